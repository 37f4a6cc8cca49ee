#!/usr/bin/python3
"""perf/gpu_check with programs that only pretend: what it runs, what it makes of failures, and what it writes."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
TOOL = pathlib.Path(__file__).resolve().parent.parent / "perf/gpu_check"
sys.path.insert(0, str(TOOL.parent))
loader = importlib.machinery.SourceFileLoader("gpu_check", str(TOOL))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)

TESTS = "echo '[  PASSED  ] 12 tests.'; echo '[  SKIPPED ] 2 tests, listed below:'"
BENCH = [
    {"name": "copy", "milliseconds": 0.13, "bytes": 537e6, "of_copy": 1.0, "with_host": False},
    {"name": "generate one", "milliseconds": 0.1, "bytes": 300e6, "of_copy": 0.73, "with_host": False},
    {"name": "generate_backward one", "milliseconds": 0.1, "bytes": 390e6, "of_copy": 0.94, "with_host": True},
    *({"name": f"linear {rows}x5x6 in f32, K=2, {how}", "milliseconds": time, "bytes": 1e6, "of_copy": 0.5, "with_host": False}
      for rows, first, fused in ((1, 2, 1), (8, 2, 2), (16, 2, 3), (32, 5, 4)) for how, time in (("generated first", first), ("fused", fused))),
]
STEP = r"""
case "$*" in
  *--help*) echo "usage: bench_step OTHER" ;;
  *) while [ $# -gt 0 ]; do
       case $1 in --model) model=$2 ;; --budget) budget=$2 ;; --precision) precision=$2 ;; esac
       shift 2
     done
     echo "{\"model\": \"$model\", \"budget\": \"$budget\", \"precision\": \"$precision\", \"batch\": 8, \"parameters\": 1234567,"
     echo " \"peak_bytes\": 2500000000, \"step_ms\": [4, 5, 900], \"host_ms\": [1, 1, 1], \"replayed_steps\": REPEATED}" ;;
esac
"""
TRAIN = r"""
out="" precision=f32 error=1.5
while [ $# -gt 0 ]; do
  case $1 in --help) echo "FLAGS"; exit ;; --out) out=$2 ;; --precision) precision=$2 ;; esac
  shift
done
[ $precision = bf16 ] && error=BF16
mkdir -p "$out"
echo '{"train_loss": 0.5}' > "$out/metrics.jsonl"
echo "{\"test_loss\": 0.2, \"test_error1\": $error, \"samples_per_second\": 1e4, \"seconds\": 2, \"memory\": {\"training\": 5e6}}"
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)
        self.write("path/nvidia-smi", "echo NVIDIA H100 PCIe, 9.0")
        for name in ("op_test", "golden_test", "device_training_test"):
            self.write(f"bin/{name}", TESTS)
        self.write("bin/bench_device", f"echo '{json.dumps(BENCH)}'")
        self.write("bin/bench_step", STEP.replace("REPEATED", "0"))
        self.write("bin/ssn", TRAIN.replace("BF16", "2"))
        for tool in ("sh", "sleep", "mkdir", "git"):
            if found := shutil.which(tool):
                os.symlink(found, self.place / "path" / tool)

    def write(self, name, text):
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)

    def check(self, *arguments, code=0, limit=None):
        """What it says on stderr; self.results and self.text are what it writes."""
        out, said = self.place / "results.md", io.StringIO()
        parts = [(title, limit or most, work, quick) for title, most, work, quick in gpu_check.PARTS]
        words = ["gpu_check", "--programs", str(self.place), "--out", str(out), *arguments]
        with unittest.mock.patch.object(sys, "argv", words), unittest.mock.patch.object(gpu_check, "PARTS", parts), \
                unittest.mock.patch.object(gpu_check, "has_torch", lambda *_: False), \
                unittest.mock.patch.dict(os.environ, PATH=str(self.place / "path")), \
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            try:
                self.assertEqual(code, gpu_check.main(), said.getvalue())
            except SystemExit as end:
                self.assertEqual(code, end.code)
        if out.exists():
            self.text, self.results = out.read_text(), json.loads(out.with_suffix(".json").read_text())
            self.parts = {part["title"]: part for part in self.results["parts"]}
        return said.getvalue()

    def test_all_pass(self):
        self.check()
        self.assertEqual([title for title, *_ in gpu_check.PARTS], list(self.parts))
        self.assertIn("# GPU check: NVIDIA H100 PCIe", self.text)
        self.assertIn("op_test: 12 passed, 2 skipped", self.text)
        not_run = [title for title, part in self.parts.items() if part["state"] == "not run"]
        self.assertEqual(["Sums over ranks, and their trainings", "compute-sanitizer", "Training steps in PyTorch"], not_run)
        steps = self.parts["Training steps"]["rows"]
        self.assertEqual(3 * 2 * 2, len(steps))
        self.assertEqual((5, 1600, 2.5), (steps[0]["ms"], steps[0]["samples/s"], steps[0]["peak GB"]))
        self.assertEqual(4, len(self.parts["The sample task"]["rows"]))
        notes = self.parts["Memory-bound operations beside a copy, and products"]["notes"]
        self.assertEqual(["below the aim of 90% of a copy: generate one",
                          "linear 5x6 in f32, K=2: the fused way is faster up to 32 rows"], notes)
        self.assertNotIn("**Failed**", self.text)

    def test_ranks_each_on_a_gpu(self):
        title = "Sums over ranks, and their trainings"
        for name in ("mpi_device_test", "mpi_training_test"):
            self.write(f"tests/mpi/{name}", TESTS)
        self.write("path/mpirun", 'echo "$2 ranks on 1 node"; shift 2; exec "$@"')
        self.check("--quick")
        self.assertEqual(["mpi_device_test: 12 passed, 2 skipped", "one rank alone: there is one GPU"], self.parts[title]["notes"])
        self.write("path/nvidia-smi", 5 * "echo NVIDIA H100 PCIe, 9.0\n")
        self.check("--quick")
        self.assertEqual([*2 * ["mpi_device_test: 12 passed, 2 skipped"], "mpi_training_test: 12 passed, 2 skipped",
                          "4 ranks, each on a GPU"], self.parts[title]["notes"])
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="3"):
            self.check("--quick")
        self.assertIn("one rank alone: there is one GPU", self.text)
        self.write("tests/mpi/mpi_training_test", "echo 'the ranks wait for ever'; exit 3")
        self.check("--quick", code=1)
        self.assertIn("the ranks wait for ever", self.text)
        self.write("path/mpirun", 'shift 2; exec "$@"')
        self.check("--quick", code=1)
        self.assertIn("is not of the MPI that these programs are built with", self.text)
        (self.place / "path/mpirun").unlink()
        self.check("--quick")
        self.assertIn("one rank alone: there is no mpirun", self.text)

    def test_what_nvidia_smi_may_print(self):
        self.write("path/nvidia-smi", "echo 'Odd, old card, [N/A]'\necho Tesla T4, 7.5\necho 'WARNING: infoROM is corrupted at gpu 0000:01:00.0'")
        with unittest.mock.patch.dict(os.environ, PATH=str(self.place / "path")):
            self.assertEqual([("Tesla T4", "7.5")], gpu_check.cards_here())

    def test_an_older_gpu_computes_in_f32(self):
        self.write("path/nvidia-smi", "echo Tesla T4, 7.5")
        self.check("--quick")
        self.assertEqual(2 * ["f32"], [row["precision"] for row in self.parts["The sample task"]["rows"]])
        self.assertEqual({"f32"}, {row["precision"] for row in self.parts["Training steps"]["rows"]})

    def test_quick_leaves_out(self):
        self.check("--quick")
        self.assertNotIn("compute-sanitizer", self.parts)
        self.assertNotIn("Training steps in PyTorch", self.parts)

    def test_graphs_where_the_programs_know_them(self):
        self.write("bin/ssn", TRAIN.replace("BF16", "2").replace("FLAGS", "--graph on|off"))
        self.write("bin/bench_step", STEP.replace("OTHER", "--graph").replace("REPEATED", "0"))
        self.assertIn("failed: Training steps", self.check("--quick", code=1))
        self.assertIn("was recorded and repeated: is SSN_SYNC set?", self.text)
        self.write("bin/bench_step", STEP.replace("OTHER", "--graph").replace("REPEATED", "17"))
        self.check("--quick")
        self.assertEqual(["-", "on", "off"] + 2 * ["on", "off"], [row["graph"] for row in self.parts["The sample task"]["rows"]])
        self.assertEqual(24, len(self.parts["Training steps"]["rows"]))

    def test_goes_on_after_failures(self):
        self.write("bin/op_test", "echo '[  FAILED  ] Case/Ops.cuda/add'; exit 1")
        self.write("bin/golden_test", "echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 2 tests.'")
        self.write("bin/device_training_test", "echo started; sleep 60")
        (self.place / "bin/bench_device").write_text("#!/bin/sh\necho no JSON\n")
        self.write("bin/ssn", TRAIN.replace("BF16", "7.5"))
        said = self.check("--quick", code=1, limit=2)
        self.assertIn("failed: Every operation's case", said)
        for what in ("exit code 1", "Case/Ops.cuda/add", "no test ran", "as long as it may take", "started", "JSONDecodeError",
                     "in bf16 the error is 7.5%, on the processor 1.5%"):
            self.assertIn(what, self.text)
        self.assertEqual("passed", self.parts["Training steps"]["state"])

    def test_a_program_that_is_missing(self):
        (self.place / "bin/golden_test").unlink()
        self.check("--quick", code=1)
        self.assertIn("golden_test is not in", self.text)

    def test_no_time_left(self):
        with unittest.mock.patch.object(gpu_check, "SECONDS", 0):
            self.check("--quick", code=1)
        self.assertIn("no time left for op_test", self.text)

    def test_rehearsal_says_so(self):
        (self.place / "path/nvidia-smi").unlink()
        self.check("--no-gpu")
        self.assertIn("no figure here is one of a GPU", self.text)

    def test_no_gpu(self):
        (self.place / "path/nvidia-smi").unlink()
        self.assertIn("no GPU here", self.check(code=69))

    def test_wrong_usage(self):
        self.assertIn("ends in .md", self.check("--out", "results", code=2))
        self.assertIn("no bench_device in", self.check("--programs", str(self.place / "none"), code=2))

    def test_beside_pytorch(self):
        mine = {"model": "m", "budget": "dense", "precision": "bf16", "samples/s": 30.0, "peak GB": 1.0}
        theirs = [{"model": "m", "budget": "dense", "samples/s": rate, "peak GB": 2.0, "compiled": kind} for rate, kind in ((10.0, "off"), (20.0, "on"))]
        parts = [{"title": "Training steps", "rows": [mine, {**mine, "precision": "tf32", "samples/s": 90.0}]},
                 {"title": "Training steps in PyTorch", "rows": theirs}]
        rows = sys.modules["gpu_check_report"].comparison({"parts": parts})
        self.assertEqual([(1.5, "on")], [(row["times as fast"], row["its torch.compile"]) for row in rows])


if __name__ == "__main__":
    unittest.main()
