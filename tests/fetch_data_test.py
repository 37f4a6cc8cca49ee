#!/usr/bin/python3
"""tools/fetch_data, against a server on this machine: layout, resuming, damage, what is there already."""

import contextlib
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import shutil
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock

sys.dont_write_bytecode = True
TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/fetch_data"
loader = importlib.machinery.SourceFileLoader("fetch_data", str(TOOL))
fetch_data = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_data", loader))
loader.exec_module(fetch_data)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.files; `cut`: so many bytes of an answer, then the line is dead; `ranges`: whether it resumes."""

    def do_GET(self):
        server = self.server
        content = server.files.get(self.path.lstrip("/"))
        server.asked.append((self.path, self.headers.get("Range")))
        if content is None:
            self.send_error(404)
            return
        begin = 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if wanted and server.ranges:
            begin = int(wanted[1])
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        part = content[begin:]
        if server.cut:
            part = part[: server.cut.pop(0)]
        self.wfile.write(part)
        self.close_connection = True

    def log_message(self, *_):
        pass


def archive_of(folder, files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class FetchData(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.files, self.server.cut, self.server.ranges, self.server.asked = {}, [], True, []
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.batches = {f"data_batch_{i}.bin": bytes([i]) * 30730 for i in range(1, 6)}
        self.batches["test_batch.bin"] = b"t" * 30730
        archive = archive_of("cifar-10-batches-bin", {**self.batches, "../escape.txt": b"x", "readme.html": b"<html>"})
        texts = [json.dumps({"data": [{"paragraphs": [{"context": f"{part} one.\nMore."}, {"context": "Two."}]},
                                      {"paragraphs": [{"context": "Three."}]}]}).encode() for part in ("train", "dev")]
        self.serve("cifar10", {"cifar-10-binary.tar.gz": archive})
        self.serve("squad", dict(zip(("train-v1.1.json", "dev-v1.1.json"), texts)))
        self.serve("mnist", {name: name.encode() * 1000 for name in fetch_data.SETS["mnist"][1]})

    def serve(self, name, files):
        """As if these were the published files."""
        sums = {file: hashlib.md5(content).hexdigest() for file, content in files.items()}
        self.assertEqual(list(sums), list(fetch_data.SETS[name][1]))
        patch = unittest.mock.patch.dict(fetch_data.SETS, {name: (fetch_data.SETS[name][0], sums)})
        patch.start()
        self.addCleanup(patch.stop)
        self.server.files.update(files)

    def fetch(self, *arguments, base=None):
        """Returns what is printed, or the message that it ends with."""
        base = base or f"http://127.0.0.1:{self.server.server_port}"
        out = io.StringIO()
        argv = ["fetch_data", *arguments, "--out", str(self.place / "data"), "--base", base]
        with unittest.mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out):
            try:
                fetch_data.main()
            except SystemExit as end:
                return str(end)
        return out.getvalue()

    def found(self, name):
        return {p.name: p.read_bytes() for p in (self.place / "data" / name).iterdir() if p.is_file()}

    def test_layout(self):
        said = self.fetch("cifar10", "squad", "mnist")
        self.assertIn(f"--data cifar10:{self.place}/data/cifar10", said)
        found = self.found("cifar10")
        for name, content in self.batches.items():
            self.assertEqual(found[name], content)
        self.assertNotIn("readme.html", found)
        self.assertNotIn("cifar-10-binary.tar.gz", found)
        self.assertFalse([p for p in self.place.rglob("*") if p.name.endswith(".part")])
        self.assertFalse((self.place / "data/escape.txt").exists())
        text = (self.place / "data/squad/train/squad.txt").read_text()
        self.assertEqual(text, "train one. More.\nTwo.\n\nThree.\n\n")
        self.assertTrue((self.place / "data/squad/test/squad.txt").read_text().startswith("dev one."))
        self.assertEqual(self.found("mnist").keys(), fetch_data.SETS["mnist"][1].keys())

    def test_what_is_there_is_left_alone(self):
        self.fetch("cifar10", "mnist")
        self.server.asked.clear()
        self.fetch("cifar10", "mnist")
        self.assertEqual(self.server.asked, [])
        (self.place / "data/mnist/t10k-images-idx3-ubyte.gz").write_bytes(b"damaged since")
        self.fetch("mnist")
        self.assertEqual(self.server.asked, [("/t10k-images-idx3-ubyte.gz", None)])

    def test_goes_on_after_the_line_broke(self):
        self.server.cut = [50, 30]
        self.assertIn("--data text:", self.fetch("squad"))
        self.assertEqual([r for p, r in self.server.asked if p == "/train-v1.1.json"], [None, "bytes=50-", "bytes=80-"])

    def test_gives_up_and_goes_on_next_time(self):
        self.server.cut = [10, 10, 10]
        said = self.fetch("squad")
        self.assertIn("train-v1.1.json.part: run this again to go on", said)
        self.assertIn("--data text:", self.fetch("squad"))
        self.assertIn(("/train-v1.1.json", "bytes=30-"), self.server.asked)

    def test_a_server_that_cannot_resume(self):
        self.server.ranges = False
        self.server.cut = [100]
        self.assertIn("--data text:", self.fetch("squad"))

    def test_a_damaged_file_is_removed(self):
        good = self.server.files["train-v1.1.json"]
        self.server.files["train-v1.1.json"] = b"x" + good[1:]
        said = self.fetch("squad")
        self.assertRegex(said, "train-v1.1.json: is damaged: its MD5 is [0-9a-f]{32}, expected [0-9a-f]{32}; removed")
        self.assertEqual(self.found("squad"), {})
        self.server.files["train-v1.1.json"] = good
        self.assertIn("--data text:", self.fetch("squad"))

    def test_a_whole_part_is_only_checked(self):
        (self.place / "data/squad").mkdir(parents=True)
        (self.place / "data/squad/train-v1.1.json.part").write_bytes(self.server.files["train-v1.1.json"])
        self.assertIn("--data text:", self.fetch("squad"))

    def test_errors(self):
        del self.server.files["dev-v1.1.json"]
        self.assertIn("the server says 404", self.fetch("squad"))
        self.assertIn("No such file", self.fetch("squad", base="file:///no/such/place"))
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self.assertEqual(self.fetch("cifar11"), "2")
        self.assertIn("invalid choice: 'cifar11'", printed.getvalue())

    def test_files_instead_of_a_server(self):
        shelf = self.place / "shelf"
        shelf.mkdir()
        for name, content in self.server.files.items():
            (shelf / name).write_bytes(content)
        self.assertIn("--data cifar10:", self.fetch("cifar10", base=shelf.as_uri()))
        self.assertEqual(self.server.asked, [])

    def test_says_where_the_rest_is(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
            with unittest.mock.patch.object(sys, "argv", ["fetch_data", "--help"]):
                fetch_data.main()
        for name in ("ImageNet", "folder:DIR", "Flickr30k", "MSCOCO", "DiDeMo"):
            self.assertIn(name, printed.getvalue())


if __name__ == "__main__":
    unittest.main()
