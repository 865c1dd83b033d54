#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh account that has neither root nor a compiler, in a virtual
# environment that sees the Torch of this Python, and trains with it as the README says: one
# process, torchrun, DDP, mpirun, and four hosts of a lab. With SLUICE_DATA=DIR it trains on real
# images, else on noise in their format. A part that cannot run here (no mpirun, no lab) is skipped
# with a message.
#
#   scripts/wheel_test.sh [WHEEL]    default: builds one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
room=$(mktemp -d)
lab=wheel-test-$$
account=sluice-wheel-$$
isUp=no hasAccount=no
end() {
  [[ $isUp == no ]] || "$room/venv/bin/sluice" lab down --name "$lab"
  [[ $hasAccount == no ]] || userdel "$account"
  rm -rf "$room"
}
trap end EXIT
fail() {
  echo "wheel_test: $1" >&2
  exit 1
}

unset PYTHONPATH # otherwise Python would find a build tree before the wheel
if ! places=$(python3 -c 'import os, sys, torch; print(sys.base_prefix, os.path.dirname(os.path.dirname(torch.__file__)))'); then
  fail "this Python lacks Torch; run scripts/install_deps.sh --with-torch"
fi
read -r prefix site <<<"$places"
if [[ -n ${1:-} ]]; then # test a wheel that is there
  mkdir "$room/dist" && cp "$1" "$room/dist/"
  python3 -m pip wheel --quiet --no-index --no-build-isolation --no-deps --wheel-dir "$room/dist" ./papers
else
  scripts/build_wheels.sh "$room/dist"
fi

# A fresh account reads only what everyone may, so the place of this Python is shown to it.
mkdir "$room/python" "$room/home"
chmod 755 "$room"
as=()
if [[ $(id -u) == 0 ]]; then
  useradd --no-create-home --home-dir "$room/home" --shell /bin/false "$account"
  hasAccount=yes
  chown "$account" "$room/home"
  as=(setpriv --reuid "$account" --regid "$account" --clear-groups --no-new-privs)
  python=$room/python/bin/python3
  # The folder of the account's own site, at its place in this Python.
  site=${site/#$prefix/$room/python}
  [[ -x $prefix/bin/python3 ]] || fail "no python3 in $prefix/bin"
else
  echo "skipped: a fresh account needs root; this account is used"
  python=$(command -v python3)
fi
# inAccount [NAME=VALUE...] COMMAND...: runs it as the account, with no program on the PATH but those of the wheel.
inAccount() {
  if ((${#as[@]})); then
    # The path of libpython in a Python that has one is where the account may not look.
    unshare --mount --propagation private bash -c 'mount --bind "$1" "$2" && cd "$3" && exec "${@:4}"' \
      inAccount "$prefix" "$room/python" "$room/home" "${as[@]}" env -i HOME="$room/home" PATH="$room/home/venv/bin" LD_LIBRARY_PATH="$room/python/lib" OMP_NUM_THREADS=1 "$@"
  else
    (cd "$room/home" && env -i HOME="$room/home" PATH="$room/home/venv/bin" OMP_NUM_THREADS=1 "$@")
  fi
}

echo "a fresh account"
inAccount "$python" -m venv --without-pip "$room/home/venv"
purelib=$room/home/venv/lib/$(basename "$(dirname "$site")")/site-packages
echo "$site" >"$purelib/torch-of-the-caller.pth"
for compiler in cc gcc g++ clang cmake; do
  ! inAccount "$room/home/venv/bin/python" -c "import shutil, sys; sys.exit(not shutil.which('$compiler'))" ||
    fail "$compiler is on the PATH of the account"
done
start=$(date +%s%N)
inAccount python -m pip install --quiet --no-index --find-links "$room/dist" torch-sluice
took=$((($(date +%s%N) - start) / 1000000))
echo "pip install took $took ms; the wheel has $(stat -c %s "$room"/dist/torch_sluice-*.whl) bytes"
((took <= 30000)) || fail "pip install took longer than 30 s"
python3 scripts/wheel_check.py files "$purelib" "$room/home/venv/bin/sluice"
cp -r examples "$room/home/"
cp scripts/wheel_check.py "$room/home/"
inAccount python wheel_check.py process
inAccount sluice --version

data=${SLUICE_DATA:-$room/home/data}
if [[ -z ${SLUICE_DATA:-} ]]; then
  python3 - "$data/mnist" <<'END'
import gzip, os, struct, sys
os.makedirs(sys.argv[1])
for part, count in (("train", 600), ("t10k", 100)):
    with gzip.open(f"{sys.argv[1]}/{part}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 2051, count, 28, 28) + os.urandom(28 * 28 * count))
    with gzip.open(f"{sys.argv[1]}/{part}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 2049, count) + bytes(number % 10 for number in range(count)))
END
fi
train=("$room/home/examples/mnist_cnn.py" --data "$data" --steps "${SLUICE_STEPS:-10}")

echo "one process"
inAccount python "${train[@]}"
echo "torchrun"
inAccount python -m torch.distributed.run --nproc-per-node 2 "${train[@]}"
echo "torchrun, DDP on the backend sluice"
inAccount python -m torch.distributed.run --nproc-per-node 2 "${train[@]}" --how ddp --backend sluice
echo "the backend is known without an import"
inAccount python -W error -c 'import sys, torch; assert "sluice" in torch.distributed.Backend.backend_list and "sluice" not in sys.modules'
echo "the papers, a wheel of their own"
! inAccount sluice study --help &>"$room/study" || fail "the wheel has 'sluice study', which is of the papers"
grep -x "sluice study: needs the package sluice-papers; .*'pip install sluice-papers'" "$room/study" ||
  { tail "$room/study" >&2 && fail "'sluice study' does not say what to install"; }
inAccount python -m pip install --quiet --no-index --no-deps --find-links "$room/dist" sluice-papers # without matplotlib
inAccount python wheel_check.py papers
inAccount sluice study --help >"$room/study"
inAccount sluice reproduce all --tier model -o "$room/home/reproduction" >"$room/reproduction"
echo "no UCX in the wheel"
! inAccount SLUICE_FABRIC=ucx SLUICE_ENCRYPT=off python -m torch.distributed.run --nproc-per-node 2 "${train[@]}" &>"$room/ucx" ||
  fail "--fabric ucx trains with a wheel that has no UCX"
grep -m 1 -o 'this sluice was built without UCX.*' "$room/ucx" || { tail "$room/ucx" >&2 && fail "--fabric ucx fails without a reason"; }
echo "another distribution with a package sluice"
python3 - "$room/dist" <<'END'
import sys, zipfile
with zipfile.ZipFile(f"{sys.argv[1]}/sluice_other-1.0-py3-none-any.whl", "w") as wheel:
    info = "sluice_other-1.0.dist-info"
    wheel.writestr("sluice/__init__.py", "")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: sluice-other\nVersion: 1.0\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", f"sluice/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
END
inAccount python -m pip install --quiet --no-index --find-links "$room/dist" sluice-other
inAccount python -W error -c 'import torch' || fail "another package named sluice breaks import torch"
inAccount sluice --version 2>&1 | grep 'pip uninstall sluice_other torch-sluice' || fail "the program does not name the other owner"
! inAccount python -m sluice.demo &>"$room/demo" || fail "the demo runs although another distribution has overwritten its package"
grep 'sluice demo: .*(sluice-other 1.0)' "$room/demo" || { tail "$room/demo" >&2 && fail "the demo does not name the other owner"; }
inAccount python -m pip uninstall --quiet --yes sluice-other torch-sluice
inAccount python -m pip install --quiet --no-index --find-links "$room/dist" torch-sluice
inAccount python -c 'import sluice; sluice.distribute' || fail "the remedy does not repair the package"

# The rest needs programs of the system, so it runs in this account: a launcher, and a lab.
export OMP_NUM_THREADS=1
python3 -m venv --without-pip "$room/venv"
read -r _ site <<<"$places"
echo "$site" >"$("$room/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-the-caller.pth"
python3 -m pip --python "$room/venv/bin/python" install --quiet --no-deps "$room"/dist/torch_sluice-*.whl
cd "$room" # away from the sources, so that Python finds only the installed package
PATH="$room/venv/bin:$PATH"
if command -v mpirun >/dev/null; then
  echo "mpirun"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 python "${train[@]}"
else
  echo "skipped: there is no mpirun here; apt install openmpi-bin"
fi
if [[ $(id -u) == 0 ]] || unshare -Urn true 2>/dev/null; then
  echo "four hosts of a lab"
  sluice lab up --name "$lab" --hosts 4 --rate 1gbit
  isUp=yes
  sluice lab run --name "$lab" -- python "${train[@]}"
else
  echo "skipped: a lab needs root, or a kernel that allows user namespaces"
fi
echo "sluice profile"
sluice profile --steps 3 --out "$room/profile.json" "${train[@]}"
cd "$root" && echo "the wheel has trained everywhere it could"
