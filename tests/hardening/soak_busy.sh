#!/usr/bin/env bash
# soak_busy.sh [SECONDS [PROCESSES [SLUICE]]]: replays a large model again and again while PROCESSES
# other processes use every core. With default limits no rank may be lost. Needs root and a release
# build.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds="${1:-600}" processes="${2:-8}" sluice="${3:-build/release/bin/sluice}"
log="$(mktemp)"
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
  rm -f "$log"
}
trap end EXIT
for ((i = 0; i < processes; ++i)); do
  (while :; do :; done) &
  pids+=($!)
done
runs=0 lost=0 failed=0
begin=$SECONDS
while ((SECONDS - begin < seconds)); do
  "$sluice" bench replay --profile vgg19 --strategies allreduce,sluice --runs 1 --iterations 3 --lab > "$log" 2>&1 || {
    failed=$((failed + 1))
    tail -5 "$log" >&2
  }
  lost=$((lost + $(grep -c 'is lost' "$log" || true)))
  runs=$((runs + 1))
done
echo "{\"seconds\": $((SECONDS - begin)), \"processes\": $processes, \"runs\": $runs, \"failed\": $failed, \"lost\": $lost}"
((failed == 0 && lost == 0))
