#!/usr/bin/python3
"""tools/experiments with a program that trains nothing (fake_ssn.py)."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from sweeps import report, sweep  # noqa: E402

PLAIN = """
title = "Two rows"
reproduces = "Table 0"
seeds = [0, 1, 2]
against = "dense"
[common]
model = "wrn-16-1"
epochs = 4
flip = false
[[row]]
name = "shared"
paper = 30.5
[[row]]
name = "dense"
budget = "100%"
paper = {"5%" = 20}
[columns]
budget = ["2%", "5%"]
"""


class Sandbox(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)
        self.runs = self.place / "runs"

    def write(self, text, name="sweep.toml"):
        path = self.place / name
        path.write_text(text)
        return path

    def command(self, *arguments):
        return [
            sys.executable,
            ROOT / "tools/experiments",
            self.place / "sweep.toml",
            "--ssn",
            ROOT / "tests/fake_ssn.py",
            "--runs",
            self.runs,
            "--out",
            self.place / "out",
            "--no-picture",
            *arguments,
        ]

    def run_it(self, *arguments, code=0):
        done = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"FAKE_SSN": str(self.place)},
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def start(self, *arguments):
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"FAKE_SSN": str(self.place)},
        )

    def wait_for_training(self):
        """The process that trains a model that waits."""
        path, limit = self.place / "waiting", time.monotonic() + 30
        while not (path.exists() and path.read_text()) and time.monotonic() < limit:
            time.sleep(0.02)
        return int(path.read_text())

    def calls(self, what="train"):
        """Since the last time."""
        path = self.place / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in lines if line.startswith(what)]

    def directory(self, *parts):
        return self.runs / self.place.name / "sweep" / pathlib.Path(*parts)

    def table(self):
        with open(self.place / "out/sweep.csv") as file:
            return {(line["row"], line["column"]): line for line in csv.DictReader(file)}

    def markdown(self):
        return (self.place / "out/sweep.md").read_text()


class Running(Sandbox):
    def test_starts_ranks_by_mpirun(self):
        self.write("""
title = "Ranks"
seeds = [0]
[common]
model = "wrn-16-1"
[[row]]
name = "alone"
[[row]]
name = "two"
ranks = 2
""")
        launcher = self.place / "mpirun"
        launcher.write_text('#!/bin/sh\necho "$1 $2" >>"$FAKE_SSN/launches"\nshift 4\nexec "$@"\n')
        launcher.chmod(0o755)
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{self.place}:{path}"
        self.run_it()
        self.assertEqual((self.place / "launches").read_text(), "-n 2\n")
        calls = self.calls()
        self.assertEqual(len(calls), 2)
        self.assertNotIn("ranks", "".join(calls))
        self.assertIn("| two | 250 | 257 | 4 |", self.markdown())
        self.assertIn("| 2 ranks |", self.markdown())
        self.assertIn("0 of 2 runs to do", self.run_it())
        self.write((self.place / "sweep.toml").read_text().replace("ranks = 2", "ranks = 3"))
        self.assertIn("ranks was 2, now 3", self.run_it(code=1))
        self.write((self.place / "sweep.toml").read_text().replace("ranks = 3", 'ranks = "all"'))
        self.assertIn("ranks must be a number from 1 on, found 'all'", self.run_it(code=2))

    def test_runs_what_is_missing_once(self):
        self.write(PLAIN)
        self.run_it("--jobs", "3")
        calls = self.calls()
        self.assertEqual(len(calls), 12)
        for seed in range(3):
            expected = (
                f"train --threads 1 --model wrn-16-1 --epochs 4 --no-flip --budget 2% --seed {seed} "
                f"--out {self.directory('shared', '2%', f'seed-{seed}')} --json"
            )
            self.assertIn(expected, calls)
        self.run_it()
        self.assertEqual(self.calls(), [])
        shutil.rmtree(self.directory("shared", "5%", "seed-1"))
        self.run_it()
        self.assertEqual(len(self.calls()), 1)

    def test_more_seeds_and_rows_keep_what_is_there(self):
        self.write(PLAIN)
        self.run_it("--only", "dense")
        self.assertEqual(len(self.calls()), 6)
        self.write(PLAIN.replace("[0, 1, 2]", "[0, 1, 2, 3]"))
        self.run_it("--only", "dense")
        self.assertEqual(len(self.calls()), 2)

    def test_dry_run_runs_nothing(self):
        self.write(PLAIN)
        said = self.run_it("--dry-run")
        self.assertIn("missing      shared, 2%, seed 0: ", said)
        self.assertIn("0 of 12 runs need not be run", said)
        self.assertEqual(self.calls(), [])
        self.assertFalse(self.runs.exists())

    def test_other_options_are_refused(self):
        self.write(PLAIN)
        self.run_it()
        self.calls()
        self.write(PLAIN.replace("epochs = 4", "epochs = 5"))
        said = self.run_it(code=1)
        self.assertIn("changed: shared, 2%, seed 0: epochs was 4, now 5", said)
        self.assertEqual(self.calls(), [])
        self.run_it("--overwrite")
        self.assertEqual(len(self.calls()), 12)
        self.assertEqual(self.table()["shared", "2%"]["epochs"], "5")

    def test_data_is_known_by_its_contents(self):
        self.write(PLAIN.replace("epochs = 4", 'epochs = 4\ndata = "glyphs:$data"'))
        for name in ("one", "two"):
            (self.place / name).mkdir()
            (self.place / name / "train.bin").write_text("abc")
        self.run_it("--set", f"data={self.place}/one")
        self.assertIn(f"--data glyphs:{self.place}/one", self.calls()[0])
        self.assertIn(
            "glyphs: train.bin: SHA-256 `ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad`",
            self.markdown(),
        )
        self.assertNotIn(str(self.place), self.markdown())
        self.run_it("--set", f"data={self.place}/two")
        self.assertEqual(self.calls(), [])
        (self.place / "two/train.bin").write_text("abd")
        self.assertIn(
            "the data files have other checksums", self.run_it("--set", f"data={self.place}/two", code=1)
        )

    def test_failures_are_reported_and_the_rest_is_written(self):
        self.write(PLAIN.replace('budget = "100%"', 'model = "fails"'))
        said = self.run_it(code=1)
        self.assertIn("failed: dense, 5%, seed 2: exit code 1: [network] it diverged", said)
        self.assertEqual(len(self.calls()), 12)
        self.assertEqual(set(self.table()), {("shared", "2%"), ("shared", "5%")})
        self.assertIn("6 of 12 runs have finished", self.markdown())
        self.assertIn("no run finished", self.markdown())
        self.run_it(code=1)
        self.assertEqual(len(self.calls()), 6)  # what failed is tried again

    def test_wrong_options_are_found_before_anything_runs(self):
        for options, message in (
            ('colour = "red"', "dense, 2%: `ssn train` has no option 'colour'"),
            ("help = true", "`ssn train` has no option 'help'"),
            ('budget = "much"', "fails: --budget: found 'much'"),
            ('budget = "much"\nmapping = "learned"\ngroups = 4', "fails: --budget: found 'much'"),
            ('data = "glyphs:/nonexistent"', "/nonexistent: there are no data files here"),
        ):
            self.write(PLAIN.replace('budget = "100%"', options))
            self.assertIn(message, self.run_it(code=2))
        self.assertIn(message, self.run_it("--dry-run", code=2))
        self.assertEqual(self.calls(), [])

    def test_threads_may_be_a_variable(self):
        self.write(PLAIN.replace("epochs = 4", 'epochs = 4\nthreads = "$t"'))
        self.run_it("--only", "dense", "--set", "t=1")
        self.assertIn("train --threads 1 --model", self.calls()[0])
        self.write(PLAIN.replace("epochs = 4", "epochs = 4\nthreads = 1"))
        self.run_it("--only", "dense")
        self.assertEqual(self.calls(), [])  # it is the same number

    def test_places_that_are_files(self):
        self.write(PLAIN)
        file = self.write("", "file")
        for option in ("--runs", "--out"):
            self.assertIn(f"{option}: {file} is no directory", self.run_it(option, file, code=2))
        self.assertEqual(self.calls(), [])

    def test_files_of_a_run_that_are_something_else(self):
        self.write(PLAIN)
        self.run_it("--only", "dense")
        directory = self.directory("dense", "2%", "seed-0")
        for name, text, message in (
            ("result.json", "{}", "result.json has no 'test_error1': remove"),
            ("run.json", "[]", "run.json has no 'options': remove"),
            ("run.json", "no", "run.json is not JSON"),
        ):
            (directory / name).write_text(text)
            self.assertIn(message, self.run_it(code=2))

    def test_a_directory_of_something_else_is_left_alone(self):
        self.write(PLAIN)
        kept = self.directory("shared", "2%", "seed-0", "diary")
        kept.parent.mkdir(parents=True)
        kept.write_text("dear")
        self.assertIn("is no run of a sweep", self.run_it(code=2))
        self.assertEqual(kept.read_text(), "dear")


class Stopping(Sandbox):
    def test_resumes_from_the_checkpoint(self):
        self.write(PLAIN.replace('budget = "100%"', 'model = "stops"'))
        self.assertIn("stopped: by a signal; the same command goes on with it", self.run_it(code=1))
        self.calls()
        self.run_it()
        calls = self.calls()
        self.assertEqual(len(calls), 6)
        path = self.directory("dense", "5%", "seed-2", "checkpoint.h5")
        self.assertIn(f"train --resume {path} --threads 1 --json", calls)
        self.assertEqual(self.table()["dense", "5%"]["n"], "3")

    def test_signal_reaches_the_runs(self):
        self.write(PLAIN.replace('budget = "100%"', 'model = "waits"'))
        process = self.start("--jobs", "2")
        self.wait_for_training()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0]
        self.assertEqual(process.returncode, 75, said)
        self.assertRegex(said, "stopped, with [0-9]+ runs to do: the same command goes on")
        self.assertTrue(list(self.runs.rglob("checkpoint.h5")), said)
        self.assertGreaterEqual(int(self.table()["shared", "2%"]["n"]), 1)


class Locking(Sandbox):
    def test_one_call_at_a_time(self):
        self.write(PLAIN.replace('budget = "100%"', 'model = "waits"'))
        first = self.start("--jobs", "1", "--only", "dense")
        training = self.wait_for_training()
        self.addCleanup(os.kill, training, signal.SIGKILL)
        for again in range(2):
            said = self.run_it(code=2)
            self.assertIn(f"is being run in {self.directory()} by another call (process {first.pid} on ", said)
            self.assertEqual(len(self.calls()), 1 - again)  # the first call's
            if not again:  # its training goes on when it is killed
                first.kill()
                first.communicate()
        self.assertIn("of 12 runs need not be run", self.run_it("--dry-run"))


REFERENCES = """
title = "References"
seeds = [0, 1]
[common]
model = "wrn-16-1"
epochs = 4
[[row]]
name = "equal time"
baseline = "reduced"
budget = "total of shared"
epochs = "time of shared"
[[row]]
name = "reduced"
baseline = "reduced"
budget = "total of shared"
[[row]]
name = "shared"
budget = "5%"
"""


class References(Sandbox):
    def test_total_and_time_of_another_row(self):
        self.write(REFERENCES)
        self.run_it("--jobs", "1")
        calls = self.calls()
        self.assertEqual(len(calls), 6)
        reduced = [call for call in calls if "--baseline reduced" in call]
        self.assertTrue(all("--budget 57 --count total" in call for call in reduced), reduced)
        equal = [call for call in calls if "equal_time" in call]
        self.assertEqual(len(equal), 2)
        self.assertTrue(all("--epochs 12" in call for call in equal), equal)  # 4 epochs of 9 s, at 3 s each
        self.assertLess(calls.index(next(c for c in calls if "shared/seed-0" in c)), calls.index(equal[0]))
        self.run_it()
        self.assertEqual(self.calls(), [])
        self.assertEqual(self.table()["equal time", ""]["seconds"], "36.0")
        self.assertEqual(self.table()["reduced", ""]["total_parameters"], "57")

    def test_only_runs_what_is_referred_to(self):
        self.write(REFERENCES)
        self.run_it("--only", "reduced")
        self.assertEqual(len(self.calls()), 2)
        self.run_it("--only", "equal time")
        self.assertEqual(len(self.calls()), 4)

    def test_does_not_wait_for_what_failed(self):
        self.write(REFERENCES.replace('budget = "5%"', 'budget = "5%"\nmodel = "fails"'))
        said = self.run_it(code=1)
        self.assertIn(
            "equal time, seed 0: the runs that its number of epochs is taken from did not finish", said
        )

    def test_dry_run_before_the_measurement(self):
        self.write(REFERENCES)
        self.assertIn("epochs follow from runs that are missing", self.run_it("--dry-run"))


    def test_damaged_measurements(self):
        self.write(REFERENCES)
        self.run_it("--only", "shared")
        path = self.directory("shared", "seed-0") / "metrics.jsonl"
        for text in ("", "no", "[]", "{}", '{"seconds": "a"}', '{"seconds": null}', '{"seconds": 1}\n{"sec'):
            path.write_text(text)
            self.assertIn("metrics.jsonl does not hold an epoch a line", self.run_it(code=2))


class Report(Sandbox):
    def test_table_and_csv(self):
        self.write(PLAIN)
        self.run_it()
        line = self.table()["shared", "2%"]
        self.assertEqual(
            {name: line[name] for name in ("n", "mean", "deviation", "values", "paper")},
            {
                "n": "3",
                "mean": "40.7300",
                "deviation": "1.0000",
                "values": "39.7300;40.7300;41.7300",
                "paper": "30.5",
            },
        )
        self.assertEqual(
            {name: line[name] for name in ("budget_parameters", "total_parameters", "epochs", "seconds")},
            {"budget_parameters": "20", "total_parameters": "27", "epochs": "4", "seconds": "36.0"},
        )
        text = self.markdown()
        self.assertIn("| shared | 40.73 ± 1.00 (3) [30.5] | 40.43 ± 1.00 (3) [30.5] |", text)
        self.assertIn("| dense | 30.93 ± 1.00 (3) | 30.93 ± 1.00 (3) [20] |", text)
        self.assertIn(
            "| 5% | dense − shared | -9.50 ± 0.82 | < 0.001 | dense is lower | -10.50, the same order |", text
        )
        self.assertIn("| shared | 5% − 2% | -0.30 ± 0.82 | 0.732 | within noise | +0.00 |", text)
        self.assertNotIn("shared − dense", text)
        self.assertIn("| dense | 5% | 1,000 | 1,007 | 4 | 36 | 29.93 30.93 31.93 | `--budget 100%` |", text)
        self.assertIn("`ssn train --model wrn-16-1 --epochs 4 --no-flip --seed S`", text)
        self.assertIn("ssn 9.8.7", text)
        self.assertIn("1 thread(s) a run", text)
        self.assertIn("The paper's Table 0.", text)

    def test_statistics(self):
        for t, freedom, p in (
            (12.706, 1, 0.05),
            (4.303, 2, 0.05),
            (2.776, 4, 0.05),
            (2.042, 30, 0.05),
            (0, 3, 1),
            (9.925, 2, 0.01),
            (1.638, 3, 0.2),
        ):
            self.assertAlmostEqual(report.two_sided_p(t, freedom), p, delta=2e-4)
        difference, error, p = report.welch([1.0, 2.0, 3.0], [5.0, 9.0])  # SciPy: t = 2.4019, p = 0.22109
        self.assertAlmostEqual(difference, 5.0)
        self.assertAlmostEqual(error, (1 / 3 + 4) ** 0.5)
        self.assertAlmostEqual(p, 0.22109, delta=1e-4)
        self.assertEqual(report.welch([1.0], [2.0, 3.0])[1:], (None, None))
        self.assertEqual(report.welch([2.0, 2.0], [2.0, 2.0]), (0, 0, 1))
        self.assertEqual(report.welch([2.0, 2.0], [3.0, 3.0]), (1, 0, 0))


class Reading(Sandbox):
    def check(self, text, message, **variables):
        with self.assertRaisesRegex(sweep.UsageError, message):
            found = sweep.read_sweep(self.write(text), variables)
            for cell in found.cells.values():
                for value in cell.options.values():
                    found.substitute(value)

    def test_wrong_files(self):
        self.check("title =", "is not TOML")
        self.check(PLAIN.replace("title", "titel"), "there is no key 'titel'; known are title")
        self.check(PLAIN.replace("[0, 1, 2]", "[0, 0]"), "seeds must be a list of different numbers")
        self.check(PLAIN.replace("epochs = 4", "epochs = [4]"), "common: epochs must be a text, a number")
        self.check(PLAIN.replace("epochs = 4", "seed = 4"), "'seed' is set by this program")
        self.check(
            PLAIN.replace('"dense"\nbudget', '"shared"\nbudget').replace('against = "dense"', ""),
            "two rows would share a directory: 'shared' and 'shared'",
        )
        self.check(
            PLAIN.replace('against = "dense"', 'against = "dens"'),
            "against names row 'dens'; there are shared",
        )
        self.check(
            PLAIN.replace('{"5%" = 20}', '{"6%" = 20}'), "row 'dense' names column '6%'; there are 2%, 5%"
        )
        self.check(PLAIN.replace("epochs = 4", 'data = "glyphs:$data"'), "give --set data=")
        self.check('title = "x"\nseeds = [0]', "a table needs rows")
        self.check(PLAIN.replace("title", 'value = "network"\ntitle'), "value must be one of test_error1, .*'network'")
        start = 'title = "x"\nseeds = [0]\n'
        self.check(start + "common = 5\n[[row]]\nname = 'a'", r"\[common] must have options .* found 5")
        self.check(start + "row = [1, 2]", r"write \[\[row]], with two brackets")
        self.check(start + "rows = 3", r"\[rows] must have options with lists of values, found 3")
        self.check(start + "columns = 5\n[[row]]\nname = 'a'", r"\[columns] must have options .* found 5")

    def test_names_that_are_no_directories(self):
        for name in (".", ".."):
            self.check(PLAIN.replace('"shared"', f'"{name}"'), f"row '{re.escape(name)}': .* choose another name")
            self.check(PLAIN.replace('"2%"', f'"{name}"'), f"column '{re.escape(name)}': .* choose another name")
        self.check(PLAIN.replace('"2%"', '""'), "column '': .* choose another name")

    def test_reads_no_other_file(self):
        with self.assertRaisesRegex(sweep.UsageError, "cannot read .*: No such file"):
            sweep.read_sweep(self.place / "none.toml", {})

    def test_wrong_references(self):
        self.check(REFERENCES.replace("total of", "time of"), "'time of' is for epochs")
        self.check(REFERENCES.replace("of shared", "of share"), "there is no row 'share' in this column")
        self.check(REFERENCES.replace("total of shared", "total of reduced"), "taken from another row itself")
        self.check(REFERENCES.replace("epochs = 4", 'epochs = 4\ncount = "groups"'), "leave count out")
        self.check(
            re.sub(r'\[\[row]]\nname = "reduced".*?shared"\n', "", REFERENCES, flags=re.S),
            "the same options and a number of epochs; add one",
        )

    def test_grids(self):
        text = 'title = "x"\nseeds = [0]\n[rows]\nmodel = ["a", "b"]\n[columns]\nbudget = ["2%", "4M"]\ngroups = [1, 2]'
        found = sweep.read_sweep(self.write(text), {})
        self.assertEqual(found.columns, ["2%, 1", "2%, 2", "4M, 1", "4M, 2"])
        self.assertEqual(found.cells["b", "4M, 1"].options, {"budget": "4M", "groups": 1, "model": "b"})
        self.assertEqual([sweep.number(text) for text in ("2%", "4M", "8", "no")], [2, 4e6, 8, None])

    def test_columns_of_a_row(self):
        found = sweep.read_sweep(
            self.write(PLAIN.replace('name = "shared"', 'name = "shared"\ncolumns = ["5%"]')), {}
        )
        self.assertEqual(set(found.cells), {("shared", "5%"), ("dense", "2%"), ("dense", "5%")})

    def test_ready_sweeps(self):
        files = sorted((ROOT / "perf/experiments").rglob("*.toml"))
        self.assertGreaterEqual(len(files), 14)
        for path in files:
            found = sweep.read_sweep(path, {"data": "DIR"})
            # What compares needs several seeds; that one shows of each network that it learns.
            self.assertGreaterEqual(len(found.seeds), 1 if path.stem == "families" else 3, path)
            for cell in found.cells.values():
                mapping = found.substitute(cell.options.get("mapping", ""))
                if mapping.endswith(".json"):
                    self.assertIsInstance(json.loads(pathlib.Path(mapping).read_text()), dict)


if __name__ == "__main__":
    unittest.main()
