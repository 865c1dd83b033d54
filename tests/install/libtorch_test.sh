#!/usr/bin/env bash
# Installs a build into a fresh tree, builds examples/cpp and libtorch/ against it, and runs both
# with two ranks; libtorch/ also on the test device, if the build has it.
#   libtorch_test.sh BUILD_DIRECTORY [DATA]    DATA: the folder with mnist/ in it; without it the example makes up its images
set -euo pipefail
build=$1
data=${2:-}
project=$(cd "$(dirname "$0")" && pwd)/libtorch
device=$build/tests/device
torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' 2>/dev/null) || { echo "no Torch here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/tree" >/dev/null
# Optimising Torch's headers takes a minute, which only a program that trains is worth.
cmake -G Ninja -S "$project" -B "$work/build" -DCMAKE_BUILD_TYPE="${data:+Release}" -DCMAKE_PREFIX_PATH="$work/tree;$torch" >"$work/log" 2>&1 &&
  cmake --build "$work/build" >>"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }

# twoRanks PROGRAM...: prints the output of both ranks, one after the other; fails if either fails.
twoRanks() {
  local port=$((20000 + RANDOM % 20000)) other
  RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >"$work/1" 2>&1 &
  other=$!
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >"$work/0" 2>&1 && wait "$other" || { cat "$work/0" "$work/1"; exit 1; }
  cat "$work/0" "$work/1"
}

twoRanks "$work/build/gates"
if compgen -G "$device/sluice_test_device/_device*.so" >/dev/null; then
  for run in "sluice random" "allreduce adversary" "mgwfbp adversary"; do
    read -r algorithm mode <<<"$run"
    echo "on the test device: algorithm $algorithm, mode $mode"
    SLUICE_ALGORITHM=$algorithm PYTHONPATH=$device twoRanks python3 "$project/on_device.py" "$work/build/libgates_module.so" "$mode"
  done
fi
# Made-up images are learned in fewer steps, by a program that is not optimised.
training=(--data "${data:-synthetic}")
[[ -n $data ]] || training+=(--steps 60)
"$work/build/example/mnist" --how plain --steps 2 2>/dev/null
said=$(twoRanks "$work/build/example/mnist" "${training[@]}") || { echo "$said"; exit 1; }
echo "$said"
sums=$(sed -n 's/.*sum up to //p' <<<"$said" | sort -u | wc -l)
[[ $sums == 1 ]] || { echo "the ranks have different parameters"; exit 1; }
accuracy=$(sed -n 's/rank 0 .*accuracy \([0-9.]*\) .*/\1/p' <<<"$said")
awk "BEGIN { exit !($accuracy >= 97) }" || { echo "accuracy $accuracy %, at least 97 % is wanted"; exit 1; }
