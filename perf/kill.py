#!/usr/bin/env python3
"""Ends training runs of several ranks at random moments, and looks at what is left of them.

perf/kill.py [--program build/ssn] [--kills 50] [--signals 20] [--ranks 2] [--seed N]

The runs write a checkpoint every third step, beside the training, and keep the one before.
Kills: one rank gets SIGKILL, every second time the one that writes, while it writes. The run must end with an error, no
process may be left, every checkpoint must be whole, and the next run goes on from the newest. Signals: mpirun gets
SIGUSR1, which it passes on. The run must end with exit code 75.
In both, the run that is taken up again and again must end with the very bytes of one that nothing interrupted, and
without the files that were half written."""
import argparse
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TRAINING = ("--quiet --threads 1 --model wrn-10-2 --data synthetic:1x5x4x3x50 --batch 12 --epochs 16 --budget dense --crop 1"
            " --ema 0.9 --eval-every 2 --validation 0.2 --seed 5 --save-every 3 --keep 2").split()
PATIENCE = 40  # seconds until a run has to be over: the watchdog's, and some


class Failure(Exception):
    pass


class Runs:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.aims, self.writes_hit = False, 0
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                                OMPI_MCA_mpi_yield_when_idle="1")
        self.started = time.monotonic()
        self.whole = self.run(self.directory / "whole")
        self.seconds = time.monotonic() - self.started

    def start(self, out):
        """mpirun, of a new run, or of one that goes on where `out` has a checkpoint."""
        checkpoint = out / "checkpoint.h5"
        how = ["--resume", str(checkpoint)] if checkpoint.exists() else ["--out", str(out), "--overwrite", *TRAINING]
        return subprocess.Popen([self.options.mpirun, "-n", str(self.options.ranks), "--bind-to", "none",
                                 str(self.options.program), "train", *how, "--quiet"], env=self.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, process, out):
        """The exit code, once no process of the run is left."""
        try:
            _, self.errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f"the run goes on {PATIENCE} s after it was interrupted")
        end = time.monotonic() + 5
        while left := ranks_of(out):
            if time.monotonic() > end:
                raise Failure(f"processes are left: {left}")
            time.sleep(0.05)
        return process.returncode

    def run(self, out):
        process = self.start(out)
        if self.finish(process, out) != 0:
            raise Failure(f"a run that nobody interrupted ends with {process.returncode}:\n{self.errors}")
        return (out / "checkpoint.h5").read_bytes()

    def check_checkpoints(self, out):
        for checkpoint in out.glob("*.h5"):
            done = subprocess.run([self.options.program, "inspect", str(checkpoint)], capture_output=True, text=True)
            if done.returncode != 0:
                raise Failure(f"{checkpoint.name} is damaged: {done.stderr}")

    def check_end(self, out):
        if self.run(out) != self.whole:
            raise Failure("the run has another result than one that nothing interrupted")
        if left := list(out.glob("*.partial")):
            raise Failure(f"half written files are left: {left}")
        shutil.rmtree(out)

    def kill_in_a_write(self, process, out, before):
        """Kills rank 0 while it writes a checkpoint."""
        ranks = ranks_of(out)
        while ranks and process.poll() is None and not half_written(out) - before:
            time.sleep(0.0002)
        if ranks:
            os.kill(ranks[0], signal.SIGKILL)

    def kill(self, out):
        """False: the run was over before."""
        before = half_written(out)
        process = self.start(out)
        time.sleep(random.uniform(0.1, self.seconds))
        self.aims = not self.aims
        with contextlib.suppress(IndexError, ProcessLookupError):
            if self.aims:
                self.kill_in_a_write(process, out, before)
            else:
                os.kill(random.choice(ranks_of(out)), signal.SIGKILL)
        code = self.finish(process, out)
        self.check_checkpoints(out)
        self.writes_hit += bool(half_written(out) - before)
        return code != 0

    def signal(self, out):
        process = self.start(out)
        # Before the program has begun to run, a signal ends it as usual.
        while process.poll() is None and not (len(found := ranks_of(out)) == self.options.ranks
                                              and all(notes_signals(rank) for rank in found)):
            time.sleep(0.01)
        time.sleep(random.uniform(0, self.seconds))
        over = not ranks_of(out)  # what is left of mpirun then passes nothing on: a signal may end it
        process.send_signal(signal.SIGUSR1)
        code = 0 if self.finish(process, out) == -signal.SIGUSR1 and over else process.returncode
        self.check_checkpoints(out)
        if code not in (0, 75):
            raise Failure(f"after SIGUSR1 the run ends with {code}, not with 75:\n{self.errors}")
        return code == 75


def half_written(out):
    """The checkpoints that are, or were, being written, each another file."""
    found = set()
    for path in out.glob("*.h5.partial"):
        with contextlib.suppress(OSError):
            found.add((path.name, path.stat().st_ino))
    return found


def ranks_of(out):
    """Processes of the program that name the directory."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"ssn") and any(str(out).encode() in word for word in words):
            found.append(int(path.name))
    return sorted(found)


def notes_signals(process):
    """Whether it catches SIGUSR1."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return int(caught, 16) >> (signal.SIGUSR1 - 1) & 1 == 1


def interrupt(runs, name, how, times):
    """Until that many runs were interrupted; returns the runs that came to their end."""
    out, ends, done = runs.directory / name, 0, 0
    for attempt in range(4 * times + 4):
        if done == times:
            break
        if how(out):
            done += 1
        else:
            ends += 1
            runs.check_end(out)
    if done < times:
        raise Failure(f"{done} of {times} runs were interrupted: the others were over before")
    runs.check_end(out)
    return ends + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--program", type=pathlib.Path, default=root / "build/ssn")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        try:
            runs = Runs(options, pathlib.Path(directory))
            print(f"a run of {options.ranks} ranks takes {runs.seconds:.1f} s", flush=True)
            size = len(runs.whole) / 1e6
            print(f"its checkpoint has {size:.1f} MB", flush=True)
            for name, how, times in (("kill", runs.kill, options.kills), ("signal", runs.signal, options.signals)):
                ends = interrupt(runs, name, how, times)
                print(f"{name}: {times} times; no process left, every checkpoint whole, {ends} run(s) that went on to the "
                      "end with the same bytes", flush=True)
            print(f"{runs.writes_hit} of the kills hit a write", flush=True)
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
