#!/usr/bin/env bash
# Installs the build tree given, builds the example against the package in a place of its own, and runs it.
set -euo pipefail
build=$1
source=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"
cmake -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release
cmake --build "$work/build"
"$work/build/example"
cd "$work" && "$work/prefix/bin/ssn" plan --model wrn-16-1 --classes 10 --input 1x8x8
