#!/usr/bin/env bash
# Prints the Python of an environment with a framework that sluice plugs into (docs/plugs.md) or with
# a peer that it is measured beside (papers/results/peers.md). The environment is made once, in build/, beside
# the Torch of this Python; pip fetches the packages.
#
#   tests/python/plugs/environment.sh lightning|accelerate|trainer|ray|torchft|hivemind
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
declare -A packages=(
  [lightning]="lightning==2.6.6 torchmetrics==1.9.0"
  [accelerate]="accelerate==1.15.0 huggingface_hub==2.0.0 safetensors==0.8.0"
  [trainer]="transformers==5.22.2 accelerate==1.15.0 huggingface_hub==2.0.0 safetensors==0.8.0"
  [ray]="ray[train]==2.60.0 pandas==2.3.3 pyarrow==25.0.1"
  [torchft]="torchft-nightly==2026.10.26"
  [hivemind]="hivemind==1.1.12"
)
name=${1:-}
wanted=${packages[${name:-none}]:-}
[[ -n $wanted ]] || {
  echo "environment: '$name' is none of ${!packages[*]}" >&2
  exit 1
}
room=plugs
[[ $name != torchft && $name != hivemind ]] || room=peers
venv=$PWD/build/$room/$name
if [[ $(cat "$venv/packages" 2>/dev/null) != "$wanted" ]]; then
  rm -rf "$venv"
  python3 -m venv --system-site-packages --without-pip "$venv"
  # A word for each package; Torch stays the one of this Python.
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pip install -qq $wanted \
    "torch==$(python3 -c 'import torch; print(torch.__version__)')" >&2
  echo "$wanted" >"$venv/packages"
fi
echo "$venv/bin/python"
