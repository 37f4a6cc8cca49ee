#!/usr/bin/python3
"""Networks that go to PyTorch and come from there give the same outputs as `ssn eval`: exchange_test.py SSN."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
try:
    import h5py
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(69)

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools/h5")]
import from_torch  # noqa: E402
import to_torch  # noqa: E402
from reference_networks import Albert, Bert, CifarResNet, WideResNet  # noqa: E402

SSN = sys.argv.pop() if len(sys.argv) > 1 else str(HERE.parent / "build/ssn")
IMAGES = ["--data", "synthetic:3x16x16x5x40", "--batch", "8"]
TEXT = ["--data", "synthetic-text:40", "--length", "24", "--vocab-size", "200", "--batch", "4"]
NETWORKS = {
    "resnet-20": (IMAGES, lambda: CifarResNet(20, 3, 5)),
    "wrn-16-2": (IMAGES, lambda: WideResNet(16, 2, 3, 5)),
    "bert-2-64": (TEXT, None),
    "albert-2-64": (TEXT, None),
}
TOLERANCE = 1e-4


def ssn(*arguments):
    done = subprocess.run([SSN, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"ssn {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def reference(name, state):
    """The module that these tensors fit into; transformers take their sizes from them."""
    make = NETWORKS[name][1]
    if make:
        return make()
    sizes = {key.split(".")[-2]: value.shape for key, value in state.items() if "_embeddings" in key}
    vocabulary, embedding = sizes["word_embeddings"]
    length = sizes["position_embeddings"][0]
    if name.startswith("bert"):
        return Bert(2, 64, 1, length, vocabulary)
    return Albert(2, 64, 1, embedding, length, vocabulary)


def outputs(model, path):
    """The model's, for what `ssn eval --logits` says that the network read; and those of ssn."""
    model.eval()
    rows = []
    with h5py.File(path, "r") as file, torch.no_grad():
        for batch in sorted(file["inputs"], key=int):
            read = {name: torch.from_numpy(value[()]) for name, value in file["inputs"][batch].items()}
            if "images" in read:
                rows.append(model(read["images"].permute(0, 3, 1, 2)))
            else:
                tokens, lengths, predicted = (read[name].long() for name in ("tokens", "lengths", "predicted"))
                rows.append(model(tokens, lengths, predicted, torch.zeros_like(tokens)))
        return torch.cat(rows).numpy(), file["logits"][()]


class Exchange(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)

    def assert_same(self, model, checkpoint):
        ssn("eval", checkpoint, "--logits", self.place / "logits.h5", "--quiet")
        theirs, ours = outputs(model, self.place / "logits.h5")
        self.assertEqual(theirs.shape, ours.shape)
        self.assertGreater(len(ours), 5)
        self.assertLess(np.abs(theirs - ours).max(), TOLERANCE * np.abs(theirs).max())

    def train(self, name, budget):
        options = NETWORKS[name][0]
        ssn("train", "--model", name, *options, "--budget", budget, "--stop-after", 2, "--out", self.place / "run",
            "--quiet", "--overwrite")
        return self.place / "run/checkpoint.h5"

    def export(self, checkpoint):
        weights = self.place / "weights.h5"
        ssn("export", checkpoint, weights, "--overwrite")
        return to_torch.state_dict(str(weights))

    def test_to_torch(self):
        for name, budget in (("resnet-20", "dense"), ("resnet-20", "10%"), ("wrn-16-2", "30%"), ("bert-2-64", "40%"),
                             ("albert-2-64", "dense")):
            with self.subTest(network=name, budget=budget):
                checkpoint = self.train(name, budget)
                state = self.export(checkpoint)
                model = reference(name, state)
                model.load_state_dict(state)
                self.assert_same(model, checkpoint)

    def test_from_torch(self):
        torch.manual_seed(1)
        for name in NETWORKS:
            with self.subTest(network=name):
                # The vocabulary, and so the sizes, are known when the network is made once.
                model = reference(name, self.export(self.train(name, "dense")))
                for module in model.modules():
                    if isinstance(module, torch.nn.BatchNorm2d):
                        module.running_mean.normal_(0, 0.1)
                        module.running_var.uniform_(0.5, 1.5)
                torch.save(model.state_dict(), self.place / "model.pt")
                from_torch.write(from_torch.load(str(self.place / "model.pt")), str(self.place / "model.h5"))
                options = NETWORKS[name][0][:-2]  # without --batch
                ssn("import", self.place / "model.h5", self.place / "dense.h5", "--model", name, *options, "--quiet",
                    "--overwrite")
                self.assert_same(model, self.place / "dense.h5")
                # A shared one is not the same; what it has become goes to PyTorch again.
                ssn("import", self.place / "model.h5", self.place / "shared.h5", "--model", name, *options, "--quiet",
                    "--budget", "30%", "--overwrite")
                model.load_state_dict(self.export(self.place / "shared.h5"))
                self.assert_same(model, self.place / "shared.h5")

    def test_wrong_files(self):
        checkpoint = self.train("resnet-20", "10%")
        ssn("export", checkpoint, self.place / "own.h5", "--names", "own")
        ssn("export", checkpoint, self.place / "hwio.h5", "--layout", "hwio")
        (self.place / "text.h5").write_text("nothing")
        for file, message in ((checkpoint, "is a checkpoint"), ("own.h5", "--names torch"), ("hwio.h5", "--layout oihw"),
                              ("text.h5", "cannot read it"), ("none.h5", "cannot read it")):
            with self.assertRaisesRegex(to_torch.UsageError, message):
                to_torch.arrays(str(self.place / file))
        with self.assertRaisesRegex(from_torch.UsageError, "cannot read it"):
            from_torch.load(str(self.place / "text.h5"))


if __name__ == "__main__":
    unittest.main()
