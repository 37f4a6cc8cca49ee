#!/usr/bin/env bash
# Training throughput beside PyTorch, in turns on the same machine:
#   perf/compare/step.sh [--build DIR] [--rounds N] [flags for both: --model wrn-16-2 --batch 64 ...]
# Wants the distribution's python3-torch and libopenblas0-openmp (another OpenBLAS fights PyTorch's threads).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build rounds=5 threads=2 flags=()
while [[ $# -gt 0 ]]; do
  [[ $1 == --* && $# -ge 2 ]] || { echo "step.sh: expected --flag value, found '$*'" >&2; exit 2; }
  case $1 in
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    *) flags+=("$1" "$2"); [[ $1 == --threads ]] && threads=$2 ;;
  esac
  shift 2
done
bench=$build/perf/bench_step
[[ -x $bench ]] || { echo "step.sh: no $bench: build the target bench_step, or give --build" >&2; exit 2; }
/usr/bin/python3 -c 'import torch' 2> /dev/null ||
  { echo "step.sh: no PyTorch: apt-get install python3-torch libopenblas0-openmp" >&2; exit 2; }

# The distribution's OpenBLAS does not know the newest processors and takes them for old ones, without AVX-512.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
grep -q avx512f /proc/cpuinfo && export OPENBLAS_CORETYPE=SkylakeX
# Bound to cores, as two threads that wait for each other on one core, while others use the rest, take ten times as long.
export OMP_PROC_BIND=true OMP_PLACES=cores
export OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds" >&2
  "$bench" "${flags[@]}" >> "$lines"
  /usr/bin/python3 "$here/torch_step.py" "${flags[@]}" >> "$lines"
done
lscpu | sed -n 's/^Model name: *//p'
echo "load when it ended: $(cut -d' ' -f1-3 /proc/loadavg); flags: ${flags[*]:-none}"
/usr/bin/python3 "$here/step_report.py" < "$lines"
