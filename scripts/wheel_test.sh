#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh virtual environment that sees the Torch of this Python,
# and trains with it as the README says: one process, torchrun, mpirun, and four hosts of a lab.
# With SLUICE_DATA=DIR it trains on real images, else on noise in their format. A part that cannot
# run here (no mpirun, not root) is skipped with a message.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
room=$(mktemp -d)
lab=wheel-test-$$
isUp=no
end() {
  [[ $isUp == no ]] || "$room/venv/bin/sluice" lab down --name "$lab"
  rm -rf "$room"
}
trap end EXIT

unset PYTHONPATH # otherwise Python would find a build tree before the wheel
if ! site=$(python3 -c 'import os, scikit_build_core, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))'); then
  echo "wheel_test: this Python lacks Torch or scikit-build-core; run scripts/install_deps.sh --with-torch" >&2
  exit 1
fi
options=(-Ccmake.define.SLUICE_WERROR=ON -Ccmake.define.CMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG")
# The wheel reuses the build of the release preset.
[[ ! -f build/release/build.ninja ]] || options+=(-Cbuild-dir=build/release -Ccmake.define.SLUICE_TESTS=ON -Ccmake.define.SLUICE_BENCH=ON)
python3 -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$room" "${options[@]}" .
python3 -m venv --without-pip "$room/venv"
echo "$site" >"$("$room/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-the-caller.pth"
python3 -m pip --python "$room/venv/bin/python" install --quiet --no-deps "$room"/sluice-*.whl
# A place away from the sources, so that Python finds only the installed package.
cp -r examples "$room/"
cd "$room"
PATH="$room/venv/bin:$PATH"
sluice --version

data=${SLUICE_DATA:-$room/data}
if [[ -z ${SLUICE_DATA:-} ]]; then
  python - "$data/mnist" <<'END'
import gzip, os, struct, sys
os.makedirs(sys.argv[1])
for part, count in (("train", 600), ("t10k", 100)):
    with gzip.open(f"{sys.argv[1]}/{part}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 2051, count, 28, 28) + os.urandom(28 * 28 * count))
    with gzip.open(f"{sys.argv[1]}/{part}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 2049, count) + bytes(number % 10 for number in range(count)))
END
fi
train=(examples/mnist_cnn.py --data "$data" --steps "${SLUICE_STEPS:-10}")
export OMP_NUM_THREADS=1

echo "one process"
python "${train[@]}"
echo "torchrun"
python -m torch.distributed.run --nproc-per-node 2 "${train[@]}"
echo "torchrun, DDP on the backend sluice"
python -m torch.distributed.run --nproc-per-node 2 "${train[@]}" --how ddp --backend sluice
if command -v mpirun >/dev/null; then
  echo "mpirun"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 python "${train[@]}"
else
  echo "skipped: there is no mpirun here; apt install openmpi-bin"
fi
if [[ $(id -u) == 0 ]]; then
  echo "four hosts of a lab"
  sluice lab up --name "$lab" --hosts 4 --rate 1gbit
  isUp=yes
  sluice lab run --name "$lab" -- python "${train[@]}"
else
  echo "skipped: a lab needs root"
fi
echo "sluice profile"
sluice profile --steps 3 --out "$room/profile.json" "${train[@]}"
cd "$root" && echo "the wheel has trained everywhere it could"
