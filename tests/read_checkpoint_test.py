#!/usr/bin/python3
"""tools/h5/read_checkpoint.py and docs/checkpoint-format.md against what the program writes: read_checkpoint_test.py SSN."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
try:
    import h5py
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(69)
sys.path.insert(0, str(ROOT / "tools/h5"))
import read_checkpoint  # noqa: E402

SSN = "ssn"
RUN = "--quiet --threads 1 --model wrn-10-1 --data synthetic:1x7x6x3x50 --batch 12 --epochs 2 --stop-after 1 --seed 5"
SMALL = "--budget 3% --mapping random --groups 2"
# What generates weights in all ways.
CASES = {
    "emb": SMALL,
    "emb with larger groups": "--budget 30%",
    "wavg": "--combine wavg --budget 30%",
    "wavg, masks of the layers": f"--combine wavg --masks layer --mask-init random --window 7 {SMALL}",
    "emb, gains": "--combine emb --budget 20% --gain on",
    "avg, inter": f"--combine avg --upsample inter {SMALL}",
    "rr, one line": f"--combine rr --upsample inter --inter 1d {SMALL}",
    "rr": "--combine rr --budget 60%",
    "inter, as published": f"--upsample inter --inter ref {SMALL}",
    "ref_block, repeat": f"--allocation ref_block --upsample repeat {SMALL}",
    "ref_block": "--allocation ref_block --combine wavg --budget 60%",
    "resized": f"--allocation resized {SMALL}",
    "resized, avg": "--allocation resized --combine avg --budget 20%",
    "gains": f"--gain on --upsample repeat {SMALL}",
    "averages": f"--ema 0.5 {SMALL}",
    "dense": "--budget dense",
    "swrn": "--baseline swrn --budget 150%",
    "reduced": "--baseline reduced --budget 30%",
}


class ReadCheckpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.place)
        cls.plain = cls.train("plain", f"--validation 0.1 --ema 0.9 {SMALL}")

    @classmethod
    def run_ssn(cls, *arguments):
        done = subprocess.run([SSN, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @classmethod
    def train(cls, name, options):
        out = cls.place / name
        cls.run_ssn("train", *RUN.split(), *options.split(), "--out", out)
        return out / "checkpoint.h5"

    def test_weights_are_those_of_export(self):
        for number, (name, options) in enumerate(CASES.items()):
            with self.subTest(name):
                checkpoint = self.train(f"case{number}", options)
                exported = self.place / f"case{number}.h5"
                self.run_ssn("export", checkpoint, exported, "--names", "own")
                found = read_checkpoint.read(checkpoint).weights()
                with h5py.File(exported) as file:
                    self.assertEqual(set(found), set(file["weights"]))
                    for layer, weight in found.items():
                        expected = file["weights"][layer][:]
                        self.assertEqual(weight.shape, expected.shape)
                        error = np.abs(weight - expected).max()
                        self.assertLessEqual(error, 1e-6 * np.abs(expected).max(), layer)

    def test_the_cases_use_every_method(self):
        used = set()
        for options in CASES.values():
            plan = self.run_ssn("plan", "--json", *RUN.replace("--stop-after 1", "").split()[1:], *options.split())
            used |= {layer["method"] for layer in read_checkpoint.json.loads(plan)["layers"]}
        self.assertEqual(used, {"exact", "templates", "upsample"})

    def test_damage(self):
        whole = self.plain.read_bytes()
        read_checkpoint.read(self.plain)
        bad = self.place / "bad.h5"
        for at in [*range(24, 80), 600, len(whole) // 2, len(whole) - 1]:
            bad.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            if whole[at : at + 1] != b"\n":
                self.assertRaises((read_checkpoint.Damaged, ValueError, KeyError), read_checkpoint.read, bad)
        for length in (600, len(whole) - 1):
            bad.write_bytes(whole[:length])
            self.assertRaisesRegex(read_checkpoint.Damaged, "truncated", read_checkpoint.read, bad)
        bad.write_bytes(whole.replace(b"format-version 2", b"format-version 3", 1))
        self.assertRaisesRegex(read_checkpoint.Damaged, "version is 3", read_checkpoint.read, bad)

    def test_version_1(self):
        old = read_checkpoint.read(ROOT / "tests/data/checkpoints/version1.h5")
        self.assertEqual(old.version, 1)
        self.assertIn("velocity/group0", old.tensors)
        self.assertRaisesRegex(read_checkpoint.Damaged, "does not say", old.weights)

    def test_the_command(self):
        script = [ROOT / "tools/h5/read_checkpoint.py", self.plain]
        said = subprocess.run([*script, "--weights", self.place / "w.npz"], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("format version 2", said.stdout)
        self.assertEqual(set(np.load(self.place / "w.npz")), set(read_checkpoint.read(self.plain).layers))
        script[1] = self.place / "none.h5"
        self.assertEqual(subprocess.run(script, capture_output=True).returncode, 1)

    def test_the_document_names_everything(self):
        document = (ROOT / "docs/checkpoint-format.md").read_text()
        patterns = []
        for row in re.findall(r"^\| (`.*?) \|", document, re.M):
            for name in re.findall("`(.*?)`", row):
                patterns.append(re.escape(name).replace("…", ".*"))
                patterns[-1] = re.sub("<.*?>", ".+", patterns[-1])
        file = read_checkpoint.read(self.plain)
        for name in [*file.tensors, *file.attributes]:
            self.assertTrue(any(re.fullmatch(p, name) for p in patterns), f"the document lacks {name}")
        for thing in (file.plan, file.plan["groups"][0], *file.plan["layers"], file.plan["options"]):
            for key in thing:
                self.assertIn(f"`{key}`", document)

    def test_the_reader_of_the_document(self):
        document = (ROOT / "docs/checkpoint-format.md").read_text()
        program = document[document.index("## A reader") :]
        program = "\n".join(line[4:] for line in program.splitlines() if line.startswith("    "))
        program = program.replace("runs/mine/checkpoint.h5", str(self.plain))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("wrn-10-1 after 1 steps", done.stdout)
        self.assertIn("group 1:", done.stdout)


if __name__ == "__main__":
    SSN = sys.argv.pop(1)
    unittest.main()
