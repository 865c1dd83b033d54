#!/usr/bin/env bash
# Trains with the frameworks that sluice plugs into (docs/plugs.md), with two ranks on loopback, and
# compares with the same framework on Gloo: losses and parameters to the last digit, bytes that
# sluice has sent. Prints a line for each check. Each framework has an environment of its own in
# build/plugs/NAME, beside the Torch of this Python; it is made once, and pip fetches the packages.
#
#   scripts/test_plugs.sh [--python BUILD/python] [NAME...]
#     NAME: lightning, accelerate, trainer, ray, torchft; default: all. --python: default build/release/python
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
declare -A packages=(
  [lightning]="lightning==2.6.6 torchmetrics==1.9.0"
  [accelerate]="accelerate==1.15.0 huggingface_hub==2.0.0 safetensors==0.8.0"
  [trainer]="transformers==5.22.2 accelerate==1.15.0 huggingface_hub==2.0.0 safetensors==0.8.0"
  [ray]="ray[train]==2.60.0 pandas==2.3.3 pyarrow==25.0.1"
  [torchft]="torchft-nightly==2026.10.26"
)
package=build/release/python
if [[ ${1:-} == --python ]]; then
  package=${2:?a folder after --python}
  shift 2
fi
names=("$@")
((${#names[@]})) || names=(lightning accelerate trainer ray torchft)
[[ -e $package/sluice/_job.py ]] || {
  echo "test_plugs: no package sluice in $package; build it, or name another folder with --python" >&2
  exit 1
}
package=$(realpath "$package")
root=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# install NAME: makes the environment, unless it is there with these packages.
install() {
  local venv=build/plugs/$1
  [[ $(cat "$venv/packages" 2>/dev/null) != "${packages[$1]}" ]] || return 0
  rm -rf "$venv"
  python3 -m venv --system-site-packages --without-pip "$venv"
  # A word for each package; Torch stays the one of this Python.
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pip install -qq ${packages[$1]} \
    "torch==$(python3 -c 'import torch; print(torch.__version__)')"
  echo "${packages[$1]}" >"$venv/packages"
}

# A folder as a wheel would install it: the package, and the entry point for Torch.
site=$room/site
mkdir -p "$site/torch_sluice-0.dist-info"
ln -s "$package/sluice" "$site/sluice"
ln -s "$root/python/sluice_autoload" "$site/sluice_autoload"
printf 'Metadata-Version: 2.1\nName: torch-sluice\nVersion: 0\n' >"$site/torch_sluice-0.dist-info/METADATA"
printf '[torch.backends]\nsluice = sluice_autoload:register\n' >"$site/torch_sluice-0.dist-info/entry_points.txt"

export PYTHONPATH=$site OMP_NUM_THREADS=1 SLUICE_LOG=warn SLUICE_SILENCE_LIMIT=60s MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo
unset RANK WORLD_SIZE LOCAL_RANK MASTER_PORT
umask 077
# Ray gives workers the address of the host, and not of loopback: sluice asks for a key there, and
# Ray for a token.
python3 -c 'import secrets; print(secrets.token_hex(32), end="")' >"$room/token"
export SLUICE_JOB_KEY_FILE=$room/job.key RAY_AUTH_TOKEN_PATH=$room/token RAY_TMPDIR=$room/ray
export RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=300 # a busy machine
"$(dirname "$package")/bin/sluice" key new -o "$SLUICE_JOB_KEY_FILE" >/dev/null

failed=0
for name in "${names[@]}"; do
  [[ -n ${packages[$name]:-} ]] || {
    echo "test_plugs: '$name' is none of ${!packages[*]}" >&2
    exit 1
  }
  install "$name"
  python=$root/build/plugs/$name/bin/python
  job=("$python" "$root/tests/plugs/${name}_job.py")
  [[ $name =~ ^(lightning|ray|torchft)$ ]] || # these start their ranks themselves
    job=("$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$root/tests/plugs/${name}_job.py")
  mkdir -p "$room/$name"
  for how in gloo sluice; do # in this order: the second resumes from a checkpoint of the first
    if ! (cd "$room" && timeout 900 "${job[@]}" "$how" "$room/$name") >"$room/log" 2>&1; then
      tail -n 30 "$room/log" >&2
      echo "$name       FAIL the job on $how has ended with an error"
      failed=1
      continue 2
    fi
  done
  python3 tests/plugs/compare.py "$name" "$room/$name" || failed=1
done
exit "$failed"
