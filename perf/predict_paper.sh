#!/usr/bin/env bash
# What ssn simulate predicts of the paper's two measurements of distributed training (appendix, "Communication Costs for
# Distributed Training"), as Markdown: perf/predict_paper.sh [BUILD]. Takes seconds; perf/results/simulated.md discusses it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ssn=$(realpath "${1:-$here/../build}/ssn")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

profile() { # FILE TFLOPS GB/s SAMPLES FLAG...
  local file=$1 tflops=$2 gbs=$3 samples=$4
  shift 4
  "$ssn" profile "$@" --batch "$samples" --bucket 25600 --tflops "$tflops" --gbs "$gbs" --json > "$file"
}
text=(--data text:unread --vocab-size 30522 --length 512 --optimizer lamb)
images=(--data synthetic:3x224x224x1000x1000)
bert() {
  profile dense "$@" --model bert-24-1024 "${text[@]}" --budgets dense
  profile shared "$@" --model albert-24-1024 "${text[@]}" --mapping albert --count total --budgets 18M
}
wrn() {
  profile dense "$@" --model wrn-50-2 "${images[@]}" --budgets dense
  profile shared "$@" --model wrn-50-2 "${images[@]}" --mapping "$here/../ssn/mappings/wrn-50-2-manual.json" --count total --budgets 10.5M
}
predict() { # NETWORK PROCESSOR RANKS RANKS_PER_NODE NODE LINK NAME_OF_LINK
  for algorithm in ring hierarchical; do
    for kind in dense shared; do
      "$ssn" simulate "$kind" --ranks "$3" --ranks-per-node "$4" --node "$5" --network "$6" --algorithm "$algorithm" --json > "$kind.$algorithm"
    done
  done
  /usr/bin/python3 - "$@" << 'PYTHON'
import json, sys
network, processor, ranks, _, _, _, link = sys.argv[1:]
def step(kind, algorithm):
    return json.load(open(f"{kind}.{algorithm}"))["steps"][0]
def cells(algorithm):
    dense, shared = step("dense", algorithm), step("shared", algorithm)
    for s in dense, shared:
        yield f"{1e3 * s['step_seconds']:.0f} ({100 * s['exposed_seconds'] / s['step_seconds']:.0f}%)"
    yield f"{dense['step_seconds'] / shared['step_seconds']:.2f}"
print("|", " | ".join([network, processor, ranks, link, *cells("ring"), *cells("hierarchical")]), "|")
PYTHON
}
echo "| network | processor | ranks | a node's link | ring: dense ms (waiting) | shared | gain | levels: dense ms (waiting) | shared | gain |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
v100() { # NETWORK PROCESSOR RANKS
  predict "$@" 4 nvlink-v100 1.5us,24.2GB "2 EDR"
  predict "$@" 4 nvlink-v100 edr "1 EDR"
  predict "$@" 4 nvlink-v100 25gbit "25 Gbit/s"
}
h100() {
  predict "$@" 8 nvlink-h100 1.2us,388GB "8 NDR"
  predict "$@" 8 nvlink-h100 ndr "1 NDR"
}
bert 6 900 2; v100 BERT-Large "V100 f32" 128
bert 21 900 4; v100 BERT-Large "V100 f16" 128
bert 400 3350 32; h100 BERT-Large H100 128
wrn 8.8 900 32; v100 WRN-50-2 "V100 f32" 64
wrn 17.9 900 64; v100 WRN-50-2 "V100 f16" 64
wrn 200 3350 128; h100 WRN-50-2 H100 64
