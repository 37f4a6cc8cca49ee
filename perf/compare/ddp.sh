#!/usr/bin/env bash
# Data parallel training beside PyTorch's DistributedDataParallel (gloo), on the same slow link between two or more ranks,
# in turns:
#   perf/compare/ddp.sh [--build DIR] [--rate 1gbit] [--ranks 2] [--rounds 2] [--steps 5] [--bucket MB] [--batch 4] [--length 64]
# Both train a BERT of two layers, --batch sequences a rank. As Markdown: a step with the sum over the ranks, without it, the
# sum alone, and which share of the sum is hidden. Needs what perf/throttled/run.sh needs, and python3-torch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build rate=1gbit ranks=2 rounds=2 steps=5 bucket=25 batch=4 length=64
while [[ $# -gt 0 ]]; do
  [[ $1 =~ ^--(build|rate|ranks|rounds|steps|bucket|batch|length)$ && $# -ge 2 ]] || { echo "ddp.sh: expected --build, --rate, --ranks, --rounds, --steps, --bucket, --batch or --length and a value, found '$*'" >&2; exit 2; }
  declare "${1#--}=$2"
  shift 2
done
ssn=$build/ssn
[[ -x $ssn ]] || { echo "ddp.sh: no $ssn: build the target ssn, or give --build" >&2; exit 2; }
ssn=$(realpath "$ssn")
/usr/bin/python3 -c 'import torch' 2> /dev/null || { echo "ddp.sh: no PyTorch: apt-get install python3-torch libopenblas0-openmp" >&2; exit 2; }

unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE # as in step.sh
! grep -q avx512f /proc/cpuinfo || export OPENBLAS_CORETYPE=SkylakeX
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0
lines=$(mktemp) log=$(mktemp)
trap 'rm -f "$lines" "$log"' EXIT
throttled() { "$here/../throttled/run.sh" --rate "$rate" --ranks "$ranks" "$@" 2> "$log" || { cat "$log" >&2; exit 1; }; }
for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds" >&2
  throttled env MASTER_ADDR="$MASTER_ADDR" MASTER_PORT="$MASTER_PORT" GLOO_SOCKET_IFNAME=eth0 OPENBLAS_NUM_THREADS=1 \
    OPENBLAS_CORETYPE="${OPENBLAS_CORETYPE-}" /usr/bin/python3 "$here/torch_ddp.py" --model bert-2-768 --batch "$batch" \
    --length "$length" --vocabulary 241 --threads 1 --warmup 2 --steps "$steps" --bucket "$bucket" >> "$lines"
  throttled "$ssn" profile --model bert-2-768 --data synthetic-text --length "$length" --batch $((batch * ranks)) --threads 1 \
    --budgets dense,10% --turns 2 --steps "$steps" --quiet --json >> "$lines"
done
/usr/bin/python3 - "$rate" "$lines" << 'PYTHON'
import json, sys
print("| program | link | ranks | parameters | ms a step | without the sum | the sum alone | hidden |")
print("| --- | --- | --- | --- | --- | --- | --- | --- |")
def row(program, ranks, parameters, step, without, alone, hidden):
    print(f"| {program} | {sys.argv[1]} | {ranks} | {parameters:,} | {step:.0f} | {without:.0f} | {alone:.0f} | {100 * hidden:.0f}% |")
for line in open(sys.argv[2]):
    run = json.loads(line)
    if "program" in run:
        row(run["program"], run["ranks"], run["parameters"], run["step_ms"], run["no_sync_ms"], run["sum_ms"], run["hidden_share"])
        continue
    for b in run["budgets"]:
        step, waited = 1e3 * b["step_seconds"]["median"], 1e3 * b["phase_seconds"]["reduce"]["median"]
        alone = 1e3 * b["raw_sum_seconds"]
        row(f"ssn {b['budget']}", run["ranks"], b["parameters"], step, step - waited, alone, max(0, 1 - waited / alone))
PYTHON
lscpu | sed -n 's/^Model name: */\n/p'
echo "one thread a rank; load when it ended: $(cut -d' ' -f1-3 /proc/loadavg)"
