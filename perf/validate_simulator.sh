#!/usr/bin/env bash
# What ssn simulate predicts beside what is measured on throttled networks, as Markdown on stdout:
#   perf/validate_simulator.sh [--build DIR] [--rates 100mbit,1gbit] [--ranks 2,4] [--budgets dense,10%] [--networks bert-2-768,wrn-16-2] [--turns 3] [--steps 3]
# One command, perf/validate_simulator.sh > perf/results/simulator.md, makes the whole record in about nine minutes on a
# quiet machine. perf/throttled/run.sh measures each step (it needs root, iproute2, Open MPI). Before and after each measurement a
# profile is taken without any network between the ranks, on as many as there are cores; more ranks share the cores, so their
# work is taken to last as many times longer. The prediction is the mean of what the simulator makes of the two profiles:
# a machine's pace changes within minutes. The last
# column says how much longer the step's work takes beside sums than without them: ssn simulate --interference takes that
# into account, where it is well above 1 on a quiet machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build rates=100mbit,1gbit ranks=2,4 budgets=dense,10% turns=3 steps=3 networks=bert-2-768,wrn-16-2
[[ ${1-} != --help ]] || { sed -n "2,/^set/{/^set/d;s/^# \\{0,1\\}//p}" "$0"; exit 0; }
while [[ $# -gt 0 ]]; do
  [[ $1 =~ ^--(build|rates|ranks|budgets|networks|turns|steps)$ && $# -ge 2 ]] || { echo "validate_simulator.sh: expected --build, --rates, --ranks, --budgets, --networks, --turns or --steps and a value, found '$*'; see --help" >&2; exit 2; }
  declare "${1#--}=$2"
  shift 2
done
ssn=$build/ssn
[[ -x $ssn ]] || { echo "validate_simulator.sh: no $ssn: build the target ssn, or give --build" >&2; exit 2; }
ssn=$(realpath "$ssn")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cores=$(env -u OMP_NUM_THREADS nproc)
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Samples of a rank and step, how many times --steps (short ones need more for the same certainty), and the network.
known=("4 1 --model bert-2-768 --data synthetic-text --length 64" "16 4 --model wrn-16-2 --data synthetic:3x32x32x100x4096")
echo "| network | link | ranks | budget | predicted ms | measured ms | error | predicted gain | measured gain | waiting for sums, predicted | measured | work beside sums |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for network in "${known[@]}"; do
  read -r samples times flags <<< "$network"
  read -ra flags <<< "$flags"
  [[ ,$networks, == *,${flags[1]},* ]] || continue
  profile() {  # RANKS LAUNCHER...
    local count=$1
    shift
    "$@" "$ssn" profile "${flags[@]}" --batch $((samples * count)) --threads 1 --budgets "$budgets" --turns "$turns" --steps $((steps * times)) --quiet --json
  }
  # By messages, so that the gradient is handed over as it is where a network lies between the ranks.
  profile_alone() { SSN_SUM=allreduce profile "$1" mpirun -n "$1" --bind-to none; }
  before=none
  for n in ${ranks//,/ }; do
    alone=$((n < cores ? n : cores))
    if [[ $before != "$alone" ]]; then profile_alone "$alone" > "$work/before"; fi
    before=$alone
    for rate in ${rates//,/ }; do
      echo "${flags[1]}: $n ranks at $rate" >&2
      profile "$n" "$here/throttled/run.sh" --rate "$rate" --ranks "$n" > "$work/measured" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
      profile_alone "$alone" > "$work/after"
      for side in before after; do
        "$ssn" simulate "$work/$side" --network "$rate" --ranks "$n" --speed "$(awk "BEGIN { print $alone / $n }")" --json > "$work/predicted.$side"
      done
      mv "$work/after" "$work/before"
      /usr/bin/python3 - "$rate" "$work/predicted.before" "$work/predicted.after" "$work/measured" << 'PYTHON'
import json, sys
rate, *paths = sys.argv[1:]
before, after, measured = (json.load(open(path)) for path in paths)
predicted = [{k: p[k] if k == "budget" else (p[k] + q[k]) / 2 for k in ("ranks", "budget", "step_seconds", "exposed_seconds")}
             for p, q in zip(before["steps"], after["steps"])]
for p, m in zip(predicted, measured["budgets"]):
    a, b = 1e3 * p["step_seconds"], 1e3 * m["step_seconds"]["median"]
    gain = predicted[0]["step_seconds"] / p["step_seconds"]
    waiting = m["phase_seconds"]["reduce"]["median"] / m["step_seconds"]["median"]
    slower = (b / 1e3 - m["phase_seconds"]["reduce"]["median"]) / m["work_seconds"]
    print(f"| {measured['network']} | {rate} | {p['ranks']:.0f} | {p['budget']} | {a:.0f} | {b:.0f} | {100 * (a / b - 1):+.0f}% "
          f"| {gain:.2f} | {m['speedup']:.2f} | {100 * p['exposed_seconds'] / p['step_seconds']:.0f}% | {100 * waiting:.0f}% | {slower:.2f} times |")
PYTHON
    done
  done
done
lscpu | sed -n 's/^Model name: */\n/p'
echo "$cores cores, one thread a rank, load when it ended: $(cut -d' ' -f1-3 /proc/loadavg)"
