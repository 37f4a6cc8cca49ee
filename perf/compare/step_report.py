#!/usr/bin/env python3
"""Reads the JSON lines of bench_step and torch_step.py from stdin and prints them side by side."""
import json
import statistics
import sys

runs = {}
for line in filter(str.strip, sys.stdin):
    run = json.loads(line)
    runs.setdefault(run["program"], []).append(run)

medians, leasts = {}, {}
print(f"{'program':<20} {'runs':>4} {'median ms':>10} {'least ms':>9} {'samples/s':>10} {'parameters':>11}")
for program, all_runs in runs.items():
    steps = [ms for run in all_runs for ms in run["step_ms"]]
    medians[program], leasts[program] = statistics.median(steps), min(steps)
    rate = 1e3 * all_runs[0]["batch"] / medians[program]
    print(f"{program:<20} {len(all_runs):>4} {medians[program]:>10.1f} {min(steps):>9.1f} {rate:>10.1f} "
          f"{all_runs[0]['parameters']:>11}")

ours = runs.get("shapeshifter", [])
for program, all_runs in runs.items():
    if not ours or program == "shapeshifter":
        continue
    # A machine that others share is fast and slow by turns: only what ran one after the other met the same.
    ratios = sorted(statistics.median(theirs["step_ms"]) / statistics.median(mine["step_ms"])
                    for mine, theirs in zip(ours, all_runs))
    print(f"\nas fast as {program}, times {statistics.median(ratios):.2f} (median of the rounds, {ratios[0]:.2f} to "
          f"{ratios[-1]:.2f}); by the least of all steps, times {leasts[program] / leasts['shapeshifter']:.2f}")
if ours:
    print("\nwhere a step's time goes (median over the runs, traced):")
    spans = {name for run in ours for name in run["span_ms"]}
    times = {name: statistics.median(run["span_ms"].get(name, 0) for run in ours) for name in spans}
    total = sum(times.values())
    for name, ms in sorted(times.items(), key=lambda item: -item[1]):
        print(f"  {ms:8.2f} ms {100 * ms / total:5.1f}%  {name}")
