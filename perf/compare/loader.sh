#!/usr/bin/env bash
# Images a second from files, beside the decoder alone and beside what a training step takes:
#   perf/compare/loader.sh [--build DIR] [--data DIR] [--images N] [--rounds N]
# Makes the images in DIR where they are missing (some 90 KB each). Wants libjpeg-turbo-progs, for djpeg.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build data=/tmp/ssn-bench-images images=1000 rounds=3
while [[ $# -gt 0 ]]; do
  case $1 in
    --build) build=$2 ;;
    --data) data=$2 ;;
    --images) images=$2 ;;
    --rounds) rounds=$2 ;;
    *) echo "loader.sh: expected --build, --data, --images or --rounds, found '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
for program in bench_loader bench_step; do
  [[ -x $build/perf/$program ]] || { echo "loader.sh: no $program in $build/perf: build it, or give --build" >&2; exit 2; }
done
command -v djpeg > /dev/null || { echo "loader.sh: no djpeg: apt-get install libjpeg-turbo-progs" >&2; exit 2; }

lscpu | sed -n 's/^Model name: *//p'
for size in 64 224; do
  for threads in 1 2; do
    "$build/perf/bench_loader" --data "$data" --make "$images" --size $size --threads $threads --rounds "$rounds"
  done
done

# djpeg is a process an image; what starting it takes is measured on the smallest image, and taken off.
files=$(find "$data/train" -name '*.jpg')
small=$(mktemp --suffix .jpg)
trap 'rm -f "$small"' EXIT
printf 'P6 1 1 255\n\1\2\3' | cjpeg > "$small"
cpu_seconds() {  # of djpeg with these flags on these files, user and system
  local flags=$1 file
  shift
  TIMEFORMAT='%U %S'
  { time for file in "$@"; do djpeg $flags "$file" > /dev/null; done; } 2>&1 | awk '{print $1 + $2}'
}
start=$(cpu_seconds "" $(yes "$small" | head -n "$images"))
for scale in 1/1 1/2 1/4 1/8; do
  whole=$(cpu_seconds "-scale $scale" $files)
  awk -v s="$start" -v w="$whole" -v n="$images" -v f="$scale" \
    'BEGIN {printf "djpeg -scale %s: %.3f CPU ms an image (starting the process, %.3f, taken off)\n", f, 1e3 * (w - s) / n, 1e3 * s / n}'
done

for model in resnet-18 resnet-50; do
  "$build/perf/bench_step" --model $model --size 64 --batch 32 --threads 2 --steps 5 --warmup 1 --classes 1000 |
    /usr/bin/python3 -c 'import json, statistics, sys
r = json.load(sys.stdin)
print("%s at 64x64, 2 threads: %.0f images/s" % (r["model"], 1e3 * r["batch"] / statistics.median(r["step_ms"])))'
done
echo "load when it ended: $(cut -d' ' -f1-3 /proc/loadavg)"
