#!/usr/bin/python3
"""tools/plot: what it reads, that it draws every kind of picture, and what it says of wrong input."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
try:
    import h5py
    import matplotlib.image
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(69)

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/plot"
sys.path.insert(0, str(TOOL.parent))
loader = importlib.machinery.SourceFileLoader("plot", str(TOOL))
plot = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot", loader))
loader.exec_module(plot)

PLAN = {
    "layers": [{"name": "conv1", "group": 0}, {"name": "block1.conv", "group": 2}, {"name": "fc", "group": 0}]
}
TABLE = """row,column,n,mean,deviation,values,paper,budget_parameters,total_parameters,epochs,seconds
SSN,2%,3,34.4,0.9,,,20,27,4,36
SSN,10%,3,30.1,0.7,,,100,107,4,36
reduced,2%,1,45.5,,45.5,,20,27,4,36
"""


class Sandbox(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)

    def write(self, name, text):
        path = self.place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def export(self, name, plan=None, **weights):
        with h5py.File(self.place / name, "w") as file:
            for layer, shape in weights.items():
                file["weights/" + layer.replace("__", ".")] = np.random.default_rng(7).normal(size=shape)
            if plan:
                file.attrs["plan"] = json.dumps(plan)
        return self.place / name

    def run_it(self, *arguments, code=0):
        """What the program says. In this process: importing what draws takes longer than drawing."""
        self.addCleanup(plot.plt.close, "all")
        said = ""
        with unittest.mock.patch.object(sys, "argv", ["plot", *map(str, arguments)]):
            try:
                plot.main()
            except plot.UsageError as error:
                said = str(error)
        self.assertEqual(2 if said else 0, code, said)
        return said

    def draws(self, *arguments):
        out = self.place / "out.png"
        self.run_it(*arguments, out)
        picture = matplotlib.image.imread(out)
        self.assertGreater(picture[:, :, :3].std(), 0.01)  # not blank
        out.unlink()


class Filters(Sandbox):
    SHAPES = {
        "conv1": (4, 3, 3, 3),
        "block1__conv": (4, 4, 3, 3),
        "block10__conv": (6, 4, 3, 3),
        "block9__conv": (4, 4, 3, 3),
        "short": (4, 4, 1, 1),
        "fc": (10, 6),
    }

    def test_draws_exports_beside_each_other(self):
        self.draws("filters", self.export("shared.h5", **self.SHAPES), self.export("dense.h5", **self.SHAPES))

    def test_layers_are_in_the_networks_order(self):
        path = self.export("a.h5", **self.SHAPES)
        self.assertEqual(
            plot.filter_layers({path: plot.read_export(path)}, ""), ["block1.conv", "block10.conv", "conv1"]
        )
        names = ["conv1", "block1.conv", "short", "block9.conv", "block10.conv", "fc"]
        path = self.export("b.h5", plan={"layers": [{"name": name} for name in names]}, **self.SHAPES)
        self.assertEqual(list(plot.read_export(path)), names)
        self.assertEqual(
            plot.filter_layers({path: plot.read_export(path)}, ""), ["conv1", "block9.conv", "block10.conv"]
        )

    def test_places_filters(self):
        picture = plot.mosaic(np.arange(5 * 9.0).reshape(5, 1, 3, 3), 4)
        self.assertEqual(picture.shape, (9, 9))
        np.testing.assert_array_equal(picture[5:8, 1:4], np.arange(18.0, 27).reshape(3, 3))
        self.assertTrue(np.isnan(picture[4]).all() and np.isnan(picture[:, 4]).all())

    def test_wrong_files(self):
        good, out = self.export("good.h5", **self.SHAPES), self.place / "out.png"
        text = self.write("text.h5", "no")
        self.assertIn("text.h5 as HDF5", self.run_it("filters", text, out, code=2))
        self.assertIn(
            "good.h5 has no layer 'conv9'; it has block1.conv, ",
            self.run_it("filters", good, out, "--layers", "conv9", code=2),
        )
        self.assertIn(
            "'fc' is (10, 6), and has no 3x3", self.run_it("filters", good, out, "--layers", "fc", code=2)
        )
        with h5py.File(self.place / "other.h5", "w") as file:
            file["x"] = 1
        self.assertIn("has no group 'weights'", self.run_it("filters", self.place / "other.h5", out, code=2))
        self.assertIn(
            "has no layer with 3x3", self.run_it("filters", self.export("fc.h5", fc=(2, 3)), out, code=2)
        )
        self.assertIn("a name ending in .png", self.run_it("filters", good, good, code=2))
        self.assertFalse(out.exists())


class Groups(Sandbox):
    def test_reads_plans_and_mappings(self):
        expected = [("conv1", 0), ("block1.conv", 2), ("fc", 0)]
        plan = self.write("plan.json", json.dumps(PLAN))
        mapping = self.write("mapping.json", json.dumps({"notes": "by hand"} | dict(expected)))
        self.assertEqual(plot.read_groups(plan), expected)
        self.assertEqual(plot.read_groups(mapping), expected)
        self.draws("groups", plan)
        self.draws("groups", mapping)

    def test_wrong_files(self):
        out = self.place / "out.png"
        self.assertIn("is neither a plan", self.run_it("groups", self.write("a.json", "[1]"), out, code=2))
        self.assertIn("a.json is not JSON", self.run_it("groups", self.write("a.json", "{"), out, code=2))
        self.assertIn("No such file", self.run_it("groups", self.place / "none.json", out, code=2))
        odd = self.write("a.json", '{"layers":[{"name":"a","group":{}}]}')
        self.assertIn(
            "layer 'a': its group must be a number, found {}", self.run_it("groups", odd, out, code=2)
        )
        self.assertIn("draws one file, found 2", self.run_it("groups", "a", "b", out, code=2))


class Curves(Sandbox):
    def test_draws_runs(self):
        for name in ("a", "b"):
            self.write(
                f"{name}/metrics.jsonl",
                '{"epoch":1,"train_loss":2,"train_error1":80}\n'
                '{"epoch":2,"train_loss":1,"train_error1":60,"test_loss":1.5,"test_error1":70}\n',
            )
        self.draws("curves", self.place / "a", self.place / "b")
        self.assertEqual(plot.labels_of(["runs/a/seed-0", "runs/b/seed-0"]), ["a/seed-0", "b/seed-0"])

    def test_wrong_files(self):
        out = self.place / "out.png"
        self.assertIn(
            "metrics.jsonl has no finished epoch",
            self.run_it("curves", self.write("a/metrics.jsonl", "").parent, out, code=2),
        )
        odd = self.write("a/metrics.jsonl", '{"epoch":1,"train_loss":[2]}').parent
        self.assertIn("train_loss is [2], expected a number", self.run_it("curves", odd, out, code=2))
        self.assertIn("No such file", self.run_it("curves", self.place / "none", out, code=2))


class Tables(Sandbox):
    def test_draws_lines_and_bars(self):
        path = self.write("t.csv", TABLE)
        rows = plot.read_table(path)
        self.assertEqual(list(rows), ["SSN", "reduced"])
        self.assertEqual([line["mean"] for line in rows["SSN"]], [34.4, 30.1])
        self.draws("table", path)
        self.draws("budget", path)
        self.draws("table", self.write("t.csv", TABLE.replace("%", " percent")))
        self.draws("table", self.write("t.csv", TABLE.replace("10%", "2%")))

    def test_wrong_files(self):
        out = self.place / "out.png"
        self.assertIn(
            "no run has finished", self.run_it("table", self.write("t.csv", TABLE.split()[0]), out, code=2)
        )
        self.assertIn(
            "it has no column 'mean'",
            self.run_it("budget", self.write("t.csv", TABLE.replace("mean", "m")), out, code=2),
        )
        self.assertIn(
            "row 'SSN': could not convert",
            self.run_it("table", self.write("t.csv", TABLE.replace("34.4", "low")), out, code=2),
        )
        for what in ("table", "budget"):
            for line in ("SSN,2%,3", "SSN,2%,3,34.4,0.9,,,20,27,4,36,7"):
                path = self.write("t.csv", TABLE.replace("SSN,2%,3,34.4,0.9,,,20,27,4,36", line))
                self.assertIn(
                    "row 'SSN' has not as many values as the table", self.run_it(what, path, out, code=2)
                )

    def test_leaves_out_what_is_no_number(self):
        path = self.write("t.csv", TABLE.replace("34.4", "nan").replace("30.1", "inf"))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.draws("table", path)
        self.assertEqual(
            said.getvalue(), "plot: left out: SSN, 2%: nan ± 0.9\nplot: left out: SSN, 10%: inf ± 0.7\n"
        )
        path = self.write("t.csv", TABLE.replace("34.4", "nan").replace("30.1", "inf").replace("45.5,,", "nan,,"))
        with contextlib.redirect_stderr(said):
            self.assertIn(
                "no line that can be drawn", self.run_it("budget", path, self.place / "out.png", code=2)
            )


class Steps(Sandbox):
    def step(self, ranks, budget):
        return {"ranks": ranks, "budget": budget, "step_seconds": 2, "exposed_seconds": 0.5, "speedup": 1}

    def test_draws_budgets_over_ranks(self):
        steps = [self.step(ranks, budget) for ranks in (64, 1) for budget in ("dense", "10%")]
        path = self.write("s.json", json.dumps({"steps": steps}))
        self.assertEqual([step["ranks"] for step in plot.read_steps(path)["10%"]], [1, 64])
        self.draws("simulate", path)

    def test_wrong_files(self):
        out = self.place / "out.png"
        for text in ("", "[]", "{}", '{"steps": 3}', '{"steps": [{"budget": "dense", "ranks": 2}]}'):
            said = self.run_it("simulate", self.write("s.json", text), out, code=2)
            self.assertIn("is not what `ssn simulate --json` prints", said)
        self.assertIn("has no steps", self.run_it("simulate", self.write("s.json", '{"steps": []}'), out, code=2))


class Program(unittest.TestCase):
    def test_says_what_is_wrong(self):
        done = subprocess.run([sys.executable, TOOL, "table", "none.csv", "out.png"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "plot: cannot read none.csv: No such file or directory\n")


if __name__ == "__main__":
    unittest.main()
