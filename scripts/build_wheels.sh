#!/usr/bin/env bash
# Builds the wheel that users install, and that of papers/ beside it. The first needs no root, no compiler and no Debian package, since
# every foreign library is linked in statically with hidden symbols (scripts/static_libraries.sh).
# UCX is left out. The wheel's tag is that of this machine's glibc, the oldest that it runs with.
#
#   scripts/build_wheels.sh [DIRECTORY]    default: dist
#   SLUICE_TORCH='DIR;DIR' scripts/build_wheels.sh
#       builds the backend for several releases of Torch: the folders of their packages
#
# The compiler's cache has the objects if build/release is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-dist}")
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
# The cache tells compilers apart by their names, and scikit-build-core would choose that which
# Python was built with. CMake calls it c++.
export CC=${CC:-cc} CXX=${CXX:-c++}
if ! python3 -c 'import scikit_build_core, torch' 2>"$room/why"; then
  echo "build_wheels: $(tail -n 1 "$room/why"); run scripts/install_deps.sh --with-torch" >&2
  exit 1
fi

scripts/static_libraries.sh
python3 scripts/sbom.py build/static/libraries.txt >build/static/torch-sluice.cdx.json
glibc=$(getconf GNU_LIBC_VERSION) # "glibc 2.36"
glibc=${glibc#* }
python=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
# Prints the progress of Ninja every ten seconds, since the build may take minutes.
progress() {
  local line next=0
  while IFS= read -r line; do
    if [[ $line =~ ^\ *\[([1-9][0-9]*/[0-9]+)\] ]] && ((SECONDS >= next)); then
      echo "build_wheels: step ${BASH_REMATCH[1]} after $SECONDS s"
      next=$((SECONDS + 10))
    fi
  done
}
if ! python3 -m pip wheel --verbose --no-build-isolation --no-deps --wheel-dir "$out" \
  -Cwheel.tags="$python-$python-manylinux_${glibc/./_}_$(uname -m)" \
  -Ccmake.define.SLUICE_STATIC="$PWD/build/static" -Ccmake.define.SLUICE_UCX=OFF \
  -Ccmake.define.SLUICE_WERROR=ON -Ccmake.define.CMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
  -Ccmake.define.SLUICE_TORCH="${SLUICE_TORCH:-}" . 2>&1 | tee build/wheel.log | progress; then
  tail -n 30 build/wheel.log >&2
  echo "build_wheels: the build has failed (whole log: build/wheel.log)" >&2
  exit 1
fi
python3 -m pip wheel --quiet --no-index --no-build-isolation --no-deps --wheel-dir "$out" ./papers
ls "$out"/*sluice*.whl
