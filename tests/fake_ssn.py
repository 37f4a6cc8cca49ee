#!/usr/bin/python3 -SE
"""Stands for ssn in tests of tools/experiments: prints what ssn prints, and trains nothing.

Writes a line a call to $FAKE_SSN/calls. --budget much: is refused; --model fails: an error; --model stops: is stopped the first time, with a
checkpoint; --model waits: says so in $FAKE_SSN/waiting, runs until SIGTERM, then leaves a checkpoint.
"""

import json
import os
import pathlib
import signal
import sys
import time

STOPPED = 75
OPTIONS = ("baseline", "budget", "count", "data", "epochs", "flip", "groups", "mapping", "model", "threads")


def read_flags(words):
    options, i = {}, 0
    while i < len(words):
        name = words[i].removeprefix("--")
        if name in ("json", "quiet", "flip", "no-flip"):
            options[name], i = True, i + 1
        else:
            options[name], i = words[i + 1], i + 2
    return options


def parameters(options):
    budget = int(
        float(options.get("budget", "25%").rstrip("%")) * (10 if "%" in options.get("budget", "25%") else 1)
    )
    total = budget if options.get("count") == "total" else budget + 7
    return {"original": 1007, "shareable": 1000, "budget": budget, "total": total}


def stopped(directory):
    (directory / "checkpoint.h5").write_text("half")
    sys.exit(STOPPED)


def train(options):
    if "resume" in options:
        directory = pathlib.Path(options["resume"]).parent
        options = json.loads((directory / "config.json").read_text())
    else:
        directory = pathlib.Path(options["out"])
        (directory / "config.json").write_text(json.dumps(options))
        if options["model"] == "fails":
            print("1 rank\nerror: [network] it diverged\nbye", file=sys.stderr)
            sys.exit(1)
        if options["model"] == "stops":
            stopped(directory)
        if options["model"] == "waits":
            signal.signal(signal.SIGTERM, lambda *_: stopped(directory))
            (pathlib.Path(os.environ["FAKE_SSN"]) / "waiting").write_text(str(os.getpid()))
            time.sleep(60)
    epochs, size = int(options.get("epochs", 4)), parameters(options)
    seconds = 3.0 if options.get("baseline") == "reduced" else 9.0
    lines = [
        {
            "epoch": epoch + 1,
            "seconds": seconds,
            "train_loss": 1.0,
            "train_error1": 50.0,
            "test_loss": None,
            "test_error1": None,
        }
        for epoch in range(epochs)
    ]
    lines[-1] |= {"test_loss": 0.5, "test_error1": 20.0}
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    error = (
        40 - size["total"] / 100 + int(options["seed"]) + (10 if options.get("baseline") == "reduced" else 0)
    )
    print(
        json.dumps(
            {
                "network": options["model"],
                "threads": int(options["threads"]),
                "parameters": size,
                "test_error1": error,
                "epochs": epochs,
                "seconds": epochs * seconds + 1,
                "search_seconds": 0.0,
            }
        )
    )


def main():
    words = sys.argv[1:]
    if words == ["train", "--help"]:
        print("Trains.\n\nOptions:\n" + "".join(f"  --{name} X   what is --this\n" for name in OPTIONS))
        return
    with open(pathlib.Path(os.environ["FAKE_SSN"]) / "calls", "a") as calls:
        calls.write(" ".join(words) + "\n")
    if words == ["--version"]:
        print("ssn 9.8.7")
    elif words[0] == "plan":
        options = read_flags(words[1:])
        if options.get("budget") == "much":
            print("error: --budget: found 'much'", file=sys.stderr)
            sys.exit(2)
        print(json.dumps({"parameters": parameters(options)}))
    else:
        train(read_flags(words[1:]))


if __name__ == "__main__":
    main()
