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
for program in ssn perf/bench_loader perf/bench_step; do
  [[ -x $build/$program ]] || { echo "loader.sh: no $build/$program: build it, or give --build" >&2; exit 2; }
done
command -v djpeg > /dev/null || { echo "loader.sh: no djpeg: apt-get install libjpeg-turbo-progs" >&2; exit 2; }

lscpu | sed -n 's/^Model name: *//p'
for size in 64 224; do
  for threads in 1 2; do
    "$build/perf/bench_loader" --data "folder:$data" --make "$images" --size $size --threads $threads --rounds "$rounds"
  done
done
echo "the same from packed files:"
"$build/ssn" pack --data "folder:$data" --out "$data-packed" --overwrite --quiet
"$build/perf/bench_loader" --data "packed:$data-packed" --size 64 --threads 1 --rounds "$rounds"

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

/usr/bin/python3 - "$build/perf/bench_step" << 'END'
import json, resource, statistics, subprocess, sys
batch, steps, warmup = 32, 5, 1
for model in ("resnet-18", "resnet-50"):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    flags = f"--model {model} --size 64 --classes 1000 --threads 2 --batch {batch} --steps {steps} --warmup {warmup}"
    result = json.loads(subprocess.run([sys.argv[1], *flags.split()], check=True, capture_output=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{model} at 64x64, a training step on 2 threads: {1e3 * cpu / (warmup + 2 * steps) / batch:.1f} CPU ms an image, "
          f"{1e3 * batch / statistics.median(result['step_ms']):.0f} images/s")
END
echo "load when it ended: $(cut -d' ' -f1-3 /proc/loadavg)"
