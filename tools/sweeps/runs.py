"""The runs of a sweep: a directory each; which are missing, and running them.

A run's directory holds what `ssn train` writes, and
  run.json     what was asked: options, checksums of data, program version, machine; written before it starts
  result.json  the result that `ssn train --json` printed; written when it has ended
  log.txt      what it said
"""

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import time

from sweeps.sweep import UsageError, slug

STOPPED = 75  # what ssn exits with after a signal, its checkpoint written
LOCK = "lock~"  # in a sweep's directory; no slug has a ~


def write_text(path, text):
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


def read_json(path, *names):
    """An object that has these names; None if the file is not there."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}): remove {path.parent} to run this again") from None
    for name in names:
        if not isinstance(found, dict) or name not in found:
            raise UsageError(f"{path} has no '{name}': remove {path.parent} to run this again")
    return found


def flags(options):
    words = []
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words


def machine():
    cpu = platform.processor() or platform.machine()
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{cpu}, {len(os.sched_getaffinity(0))} virtual core(s)"


def checksums(path):
    """SHA-256 of a file, or of all files below a directory, by name."""
    path = pathlib.Path(path)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    if not files:
        raise UsageError(f"{path}: there are no data files here; give the place where they are")
    return {
        p.name if p == path else str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in files
    }


class Run:
    """One training: a cell and a seed."""

    def __init__(self, cell, seed, directory, value):
        self.cell, self.seed, self.directory, self.value = cell, seed, directory, value
        self.state = "missing"  # finished, interrupted or changed; running, failed or stopped
        self.process = None
        self.reason = ""

    @property
    def name(self):
        return f"{self.cell.name}, seed {self.seed}"

    def result(self):
        return read_json(self.directory / "result.json", self.value, "epochs", "seconds")

    def record(self):
        return read_json(self.directory / "run.json", "options", "data_files", "version", "machine", "date")

    def epoch_seconds(self):
        """Of the fastest epoch, evaluations not counted: other programs only slow it down."""
        path = self.directory / "metrics.jsonl"
        try:
            return min(float(json.loads(line)["seconds"]) for line in path.read_text().splitlines())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} does not hold an epoch a line, each with its seconds ({error}): "
                f"remove {self.directory} to run this again"
            ) from None

    def seconds(self):
        """Of the training, without evaluations, and of the search for groups, if it was this call's."""
        result = self.result()
        return result["epochs"] * self.epoch_seconds() + result.get("search_seconds", 0)


class Runs:
    """All runs of a sweep, and the program that does them."""

    def __init__(self, sweep, ssn, directory):
        self.sweep, self.ssn = sweep, str(ssn)
        self.directory = pathlib.Path(directory) / sweep.name
        self.runs = [
            Run(cell, seed, self.directory / slug(cell.row) / slug(cell.column) / f"seed-{seed}", sweep.value)
            for seed in sweep.seeds
            for cell in sweep.cells.values()
        ]
        self.version = self.ask("--version").strip()
        self.checksums, self.plans = {}, {}
        self.lock = None

    @contextlib.contextmanager
    def locked(self):
        """Keeps other calls out of the directory. Trainings have the lock too: some may outlive a killed call."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / LOCK, "a+") as self.lock:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.lock.seek(0)
                raise UsageError(
                    f"this sweep is being run in {self.directory} by another call ({self.lock.read().strip()}), or "
                    "by trainings that it left: wait for its end, stop it, or give another --runs"
                ) from None
            self.lock.truncate(0)
            self.lock.write(f"process {os.getpid()} on {platform.node()}\n")
            self.lock.flush()
            yield

    def ask(self, *arguments):
        """What the program prints for these arguments."""
        try:
            done = subprocess.run([self.ssn, *arguments], capture_output=True, text=True)
        except OSError as error:
            raise UsageError(
                f"cannot run {self.ssn} ({error.strerror}): build it, or give --ssn PROGRAM"
            ) from None
        if done.returncode != 0:
            raise UsageError(f"ssn {' '.join(arguments)} fails: {complaint(done.stderr)}")
        return done.stdout

    def of(self, cell, seed=None):
        """The runs of a cell, or its run with this seed."""
        found = [run for run in self.runs if run.cell is cell and seed in (None, run.seed)]
        return found if seed is None else found[0]

    # --- options

    def waits_for(self, run):
        """The runs that this one's number of epochs is measured in: of the first seed, so that more seeds
        change nothing."""
        reference = run.cell.references.get("epochs")
        if reference is None:
            return []
        cells = [self.sweep.cells[reference.row, run.cell.column], self.sweep.sibling(run.cell)]
        return [self.of(cell, self.sweep.seeds[0]) for cell in cells]

    def options(self, run):
        """What the run is to be given: no variables, no references. Its waits_for() have finished."""
        options = self.options_but_epochs(run.cell)
        if "epochs" in run.cell.references:
            other, same = self.waits_for(run)
            options["epochs"] = max(1, round(other.seconds() / same.epoch_seconds()))
        return options | {"seed": run.seed}

    def options_but_epochs(self, cell):
        options = {"threads": 1} | {
            name: self.sweep.substitute(value) for name, value in cell.options.items() if name != "ranks"
        }
        if "budget" in cell.references:
            other = self.sweep.cells[cell.references["budget"].row, cell.column]
            options |= {"budget": self.plan(other)["parameters"]["total"], "count": "total"}
        if "epochs" in cell.references:
            del options["epochs"]
        return options

    def plan(self, cell):
        """What `ssn plan` says of a cell. Learned groups are not known to it."""
        if cell.key not in self.plans:
            words = flags(self.options_but_epochs(cell))
            self.plans[cell.key] = json.loads(self.ask("plan", *words, "--json"))
        return self.plans[cell.key]

    def check_options(self, runs):
        """Finds wrong options before anything is trained."""
        known = re.findall(r"^  --([\w-]+)", self.ask("train", "--help"), re.MULTILINE)
        for cell in {run.cell.key: run.cell for run in runs}.values():
            for name in cell.options:
                if name not in known and name != "ranks":
                    raise UsageError(
                        f"{self.sweep.path}: {cell.name}: `ssn train` has no option '{name}'; "
                        "`ssn train --help` lists those it has"
                    )
            options = self.options_but_epochs(cell)
            self.data_checksums(options)
            if options.get("mapping") != "learned":
                self.plan(cell)
            else:  # what can be checked before its groups are known
                single = {name: value for name, value in options.items() if name != "groups"}
                self.ask("plan", *flags(single | {"mapping": "single"}), "--json")

    def cores(self, cell, of_machine):
        """That a run of the cell keeps busy; its options have been checked."""
        return cell.ranks * (int(self.options_but_epochs(cell)["threads"]) or of_machine)

    def data_checksums(self, options):
        path = str(options.get("data", "")).partition(":")[2]
        if not path or str(options["data"]).startswith("synthetic"):
            return {}
        if path not in self.checksums:
            self.checksums[path] = checksums(path)
        return self.checksums[path]

    def asked(self, run):
        """What makes a run the one asked for. Files are known by their contents, wherever they are."""
        options = self.options(run)
        files = self.data_checksums(options)
        identity = dict(options)
        if files:
            identity["data"] = options["data"].partition(":")[0]
        for name in ("mapping", "vocab"):
            file = pathlib.Path(str(options.get(name, "")))
            if file.is_file():
                identity[name] = next(iter(checksums(file).values()))
        if run.cell.ranks > 1:
            identity["ranks"] = run.cell.ranks
        return {"options": identity, "data_files": files}

    # --- states

    def find_states(self, overwrite):
        for run in sorted(self.runs, key=lambda run: bool(self.waits_for(run))):
            if all(other.state == "finished" for other in self.waits_for(run)):
                self.find_state(run, overwrite)

    def find_state(self, run, overwrite):
        before = run.record()
        if before is None:
            if run.directory.exists() and any(run.directory.iterdir()):
                raise UsageError(
                    f"{run.directory} holds something that is no run of a sweep: "
                    "remove it, or give another --runs"
                )
            run.state = "missing"
        elif differences := changes(before, self.asked(run)):
            run.state = "missing" if overwrite else "changed"
            run.reason = f"{differences} ({run.directory}: --overwrite runs it again)"
        elif run.result() is not None:
            run.state = "finished"
        else:
            run.state = "interrupted" if (run.directory / "checkpoint.h5").exists() else "missing"

    # --- running

    def command(self, run):
        options, ranks = self.options(run), run.cell.ranks
        launcher = ["mpirun", "-n", str(ranks), "--bind-to", "none"] if ranks > 1 else []
        if run.state == "interrupted":
            kept = flags({name: options[name] for name in ("data", "threads") if name in options})
            words = ["--resume", str(run.directory / "checkpoint.h5"), *kept]
        else:
            words = [*flags(options), "--out", str(run.directory)]
        return [*launcher, self.ssn, "train", *words, "--json"]

    def start(self, run):
        command = self.command(run)
        if run.state != "interrupted":
            shutil.rmtree(run.directory, ignore_errors=True)
            run.directory.mkdir(parents=True)
            write_text(
                run.directory / "run.json",
                json.dumps(
                    self.asked(run)
                    | {
                        "version": self.version,
                        "machine": machine(),
                        "date": datetime.date.today().isoformat(),
                    },
                    indent=1,
                )
                + "\n",
            )
        run.state = "running"
        with open(run.directory / "log.txt", "a") as log:
            # A session of its own: Ctrl-C reaches it through stop() alone, once.
            run.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                pass_fds=[self.lock.fileno()],
            )

    def end(self, run, stopping):
        """Takes the result of a process that has ended."""
        output = run.process.communicate()[0]
        code = run.process.returncode
        try:
            result = json.loads(output) if code == 0 else None
        except json.JSONDecodeError:
            result = None
        if result is not None and isinstance(result.get(self.sweep.value), (int, float)):
            write_text(run.directory / "result.json", json.dumps(result, indent=1) + "\n")
            run.state = "finished"
        elif code == STOPPED or (stopping and code != 0):
            run.state, run.reason = "stopped", "by a signal; the same command goes on with it"
        else:
            said = complaint((run.directory / "log.txt").read_text())
            found = f"its result has no number {self.sweep.value}" if result else f"exit code {code}: {said}"
            run.state, run.reason = "failed", f"{found} (see {run.directory}/log.txt)"

    def run_all(self, wanted, jobs, overwrite, say):
        """Runs what is missing or interrupted, `jobs` at a time. Returns whether a signal stopped it."""
        stops, sent = [], 0
        waiting, running = list(wanted), []
        count, done, start = len(waiting), 0, time.monotonic()
        before = {
            number: signal.signal(number, lambda number, _: stops.append(number))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            while running or (waiting and not stops):
                for run in [] if stops else self.ready(waiting)[: jobs - len(running)]:
                    waiting.remove(run)
                    if self.waits_for(run):
                        self.find_state(run, overwrite)  # now that its options are known
                    if run.state in ("missing", "interrupted"):
                        self.start(run)
                        running.append(run)
                if not running and not self.ready(waiting):
                    break  # the rest waits for runs that failed
                time.sleep(0.05)
                if len(stops) > sent:
                    sent = len(stops)
                    say("stopping: waiting for checkpoints" if sent == 1 else "ending at once")
                    for run in running:
                        run.process.send_signal(signal.SIGTERM if sent == 1 else signal.SIGKILL)
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    self.end(run, bool(stops))
                    done += 1
                    left = (time.monotonic() - start) / done * (count - done) / 60
                    say(
                        f"[{done}/{count}] {run.name}: {self.outcome(run)}"
                        + (f"; about {left:.0f} min left" if left >= 1 and not stops else "")
                    )
        finally:
            for run in running:
                run.process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        for run in waiting:
            run.state = "stopped" if stops else "failed"
            run.reason = "" if stops else "the runs that its number of epochs is taken from did not finish"
        return bool(stops)

    def ready(self, waiting):
        return [run for run in waiting if all(other.state == "finished" for other in self.waits_for(run))]

    def outcome(self, run):
        if run.state != "finished":
            return f"{run.state}: {run.reason}"
        result = run.result()
        return f"{self.sweep.value} {result[self.sweep.value]:.2f} after {result['seconds']:.0f} s"


def complaint(text):
    """The error in what a program said; without one, its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("error: ")


def changes(before, now):
    """In words; empty if there are none."""
    old, new = before["options"], now["options"]
    words = [
        f"{name} was {old.get(name, 'not given')}, now {new.get(name, 'not given')}"
        for name in sorted(old.keys() | new.keys())
        if flags({name: old.get(name)}) != flags({name: new.get(name)})
    ]
    if before["data_files"] != now["data_files"]:
        words.append("the data files have other checksums")
    return "; ".join(words)
