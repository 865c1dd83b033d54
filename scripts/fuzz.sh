#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET...]: builds the fuzz targets with clang and runs them (all, or those
# named, as in fuzz/CMakeLists.txt) side by side for SECONDS (60; 0: no limit; "build": does not run
# them). Inputs that crash are left as build/fuzz/crash-*. New inputs worth keeping go to
# build/fuzz/found/TARGET, and are merged into the committed corpus by hand. FUZZ_ARGS is handed to
# libFuzzer, as in FUZZ_ARGS=-runs=100000000 scripts/fuzz.sh 0
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=("${@:2}")
((${#targets[@]})) || targets=(header_raw header_sealed rendezvous_message sparse saved_state mad_member stream_plain stream_tls epoch_record member_message flight_file life_sign etcd_answer network_file profile trace_file options_file)

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"
[[ $seconds != build ]] || exit 0
declare -A running
for target in "${targets[@]}"; do
  case $target in
    header_*) longest=72 ;;  # a header is no longer
    etcd_answer | network_file | profile | trace_file | options_file) longest=4096 ;;
    stream_*) longest=160 ;;  # some twenty messages; longer scripts only repeat themselves
    flight_file) longest=4096 ;;  # a header, some names and texts, and fifty events
    *) longest=1024 ;;
  esac
  mkdir -p "build/fuzz/found/$target"
  # shellcheck disable=SC2086
  build/fuzz/bin/fuzz_"$target" -max_len="$longest" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ ${FUZZ_ARGS:-} "build/fuzz/found/$target" "fuzz/corpus/$target" \
    >"build/fuzz/$target.log" 2>&1 &
  running[$target]=$!
done
failed=0
for target in "${targets[@]}"; do
  wait "${running[$target]}" || failed=1
  tail -n 12 "build/fuzz/$target.log"
  echo "fuzz_$target: $(grep -a number_of_executed_units "build/fuzz/$target.log" || echo 'stopped early')"
done
exit "$failed"
