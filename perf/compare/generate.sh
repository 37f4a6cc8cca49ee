#!/usr/bin/env bash
# Generating the weights of WRN-28-10 beside the published form in PyTorch, on the same machine, one after another:
#   perf/compare/generate.sh [--build DIR] [--threads N] [--budget B] [--templates K] [--groups P]
# Wants the distribution's python3-torch and libopenblas0-openmp (another OpenBLAS fights PyTorch's threads).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build threads=2 budget=36.2M templates=8 groups=1
while [[ $# -gt 0 ]]; do
  [[ $# -ge 2 ]] || { echo "generate.sh: expected --flag value, found '$*'" >&2; exit 2; }
  case $1 in
    --build) build=$2 ;;
    --threads) threads=$2 ;;
    --budget) budget=$2 ;;
    --templates) templates=$2 ;;
    --groups) groups=$2 ;;
    *) echo "generate.sh: unknown flag $1" >&2; exit 2 ;;
  esac
  shift 2
done
[[ -x $build/perf/bench_generate && -x $build/ssn ]] ||
  { echo "generate.sh: build the targets ssn and bench_generate in $build, or give --build" >&2; exit 2; }
/usr/bin/python3 -c 'import torch' 2> /dev/null ||
  { echo "generate.sh: no PyTorch: apt-get install python3-torch libopenblas0-openmp" >&2; exit 2; }

unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE  # may be set to please older programs, and slow OpenBLAS down
flags=(--model wrn-28-10 --budget "$budget" --templates "$templates")
mapping=(); [[ $groups == 1 ]] || mapping=(--mapping random --groups "$groups")
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
"$build/ssn" plan "${flags[@]}" "${mapping[@]}" --combine wavg --allocation ref_block --data cifar10:unread --json > "$plan"
"$build/perf/bench_generate" "${flags[@]}" --groups "$groups" --threads "$threads"
OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads /usr/bin/python3 "$here/torch_generate.py" "$plan" --threads "$threads" |
  /usr/bin/python3 -c 'import json, sys
for row in json.load(sys.stdin)["rows"]: print("  %-26s%8.2f ms (best %.2f)" % (row["name"], row["ms"], row["best_ms"]))'
