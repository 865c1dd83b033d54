#!/usr/bin/env bash
# Trains with the frameworks that sluice plugs into (docs/plugs.md), with two ranks on loopback, and
# compares with the same framework on Gloo: losses and parameters to the last digit, bytes that
# sluice has sent. Prints a line for each check. Each framework has an environment of its own
# (tests/python/plugs/environment.sh).
#
#   tests/python/plugs/run.sh [--python BUILD/python] [NAME...]
#     NAME: lightning, accelerate, trainer, ray, torchft; default: all. --python: default build/release/python
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
package=build/release/python
if [[ ${1:-} == --python ]]; then
  package=${2:?a folder after --python}
  shift 2
fi
names=("$@")
((${#names[@]})) || names=(lightning accelerate trainer ray torchft)
[[ -e $package/sluice/_job/job.py ]] || {
  echo "run.sh: no package sluice in $package; build it, or name another folder with --python" >&2
  exit 1
}
package=$(realpath "$package")
root=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

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
  python=$(tests/python/plugs/environment.sh "$name")
  job=("$python" "$root/tests/python/plugs/${name}_job.py")
  [[ $name =~ ^(lightning|ray|torchft)$ ]] || # these start their ranks themselves
    job=("$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$root/tests/python/plugs/${name}_job.py")
  mkdir -p "$room/$name"
  for how in gloo sluice; do # in this order: the second resumes from a checkpoint of the first
    if ! (cd "$room" && timeout 900 "${job[@]}" "$how" "$room/$name") >"$room/log" 2>&1; then
      tail -n 30 "$room/log" >&2
      echo "$name       FAIL the job on $how has ended with an error"
      failed=1
      continue 2
    fi
  done
  python3 tests/python/plugs/compare.py "$name" "$room/$name" || failed=1
done
exit "$failed"
