#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET]: builds the fuzz targets with clang and runs each (or TARGET: header_raw,
# header_sealed, rendezvous_message) for SECONDS (60). What is found is left as build/fuzz/crash-*; what is new
# and worth keeping goes to build/fuzz/found/TARGET, and is merged into the committed corpus by hand.
# FUZZ_ARGS is handed to libFuzzer, as in FUZZ_ARGS=-runs=100000000 scripts/fuzz.sh 0
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=${2:-header_raw header_sealed rendezvous_message}
cmake --preset fuzz >/dev/null
for target in $targets; do
  cmake --build --preset fuzz --target "fuzz_$target"
  case $target in
    header_*) longest=72 ;;  # a header is no longer
    *) longest=1024 ;;
  esac
  mkdir -p "build/fuzz/found/$target"
  # shellcheck disable=SC2086
  build/fuzz/bin/fuzz_"$target" -max_len="$longest" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ ${FUZZ_ARGS:-} "build/fuzz/found/$target" "fuzz/corpus/$target"
done
