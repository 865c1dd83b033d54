#!/usr/bin/env bash
# Builds the wheel that users install, and that of papers/ beside it. The first needs no root, no
# compiler and no Debian package, since every foreign library is linked in statically with hidden
# symbols (scripts/static_libraries.sh). UCX is left out. The wheel's tag names the oldest glibc that
# has all of its symbols, as auditwheel finds it.
#
#   scripts/build_wheels.sh [DIRECTORY]    default: dist
#   SLUICE_TORCH='DIR;DIR' scripts/build_wheels.sh
#       builds the backend for several releases of Torch: the folders of their packages, whole or as
#       scripts/torch_headers.py makes them; default: that of the interpreter
#   PYTHON=python3.12 scripts/build_wheels.sh
#       builds for this interpreter
#
# The compiler's cache has the objects if build/release is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-dist}")
python=${PYTHON:-python3}
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
# The cache tells compilers apart by their names, and scikit-build-core would choose that which
# Python was built with. CMake calls it c++.
export CC=${CC:-cc} CXX=${CXX:-c++}
# Two builds of one commit have the same bytes: no path of this folder, and no time of the build.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
torch=${SLUICE_TORCH:-$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null || true)}
if [[ -z $torch ]]; then
  echo "build_wheels: $python has no Torch; run scripts/install_deps.sh --with-torch, or set SLUICE_TORCH" >&2
  exit 1
fi
tools=$PWD/build/wheel-tools/$tag
if ! cmp -s packaging/wheel_tools.txt "$tools/ready"; then
  echo "build_wheels: installing the tools of packaging/wheel_tools.txt for $tag"
  rm -rf "$tools"
  "$python" -m venv "$tools"
  "$tools/bin/pip" install --quiet --no-deps --require-hashes -r packaging/wheel_tools.txt
  cp packaging/wheel_tools.txt "$tools/ready"
fi

scripts/static_libraries.sh
python3 scripts/sbom.py build/static/libraries.txt >build/static/torch-sluice.cdx.json
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
# All Pythons share the objects of the engine: only what includes Python's headers is compiled again.
tree=build/wheel/tree
log=build/wheel/$tag.log
mkdir -p "$tree"
[[ $(cat "$tree/tag" 2>/dev/null) == "$tag" ]] || rm -f "$tree/CMakeCache.txt"
echo "$tag" >"$tree/tag"
if ! "$tools/bin/pip" wheel --verbose --no-build-isolation --no-deps --wheel-dir "$room" \
  -Cbuild-dir="$tree" -Cwheel.tags="$tag-$tag-linux_$(uname -m)" \
  -Ccmake.define.SLUICE_STATIC="$PWD/build/static" -Ccmake.define.SLUICE_UCX=OFF \
  -Ccmake.define.pybind11_DIR="$("$tools/bin/python" -m pybind11 --cmakedir)" \
  -Ccmake.define.SLUICE_WERROR=ON -Ccmake.define.CMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
  -Ccmake.define.CMAKE_CXX_FLAGS="-ffile-prefix-map=$PWD=." \
  -Ccmake.define.SLUICE_TORCH="$torch" . 2>&1 | tee "$log" | progress; then
  tail -n 30 "$log" >&2
  echo "build_wheels: the build has failed (whole log: $log)" >&2
  exit 1
fi
glibc=$("$tools/bin/python" -m auditwheel show --json "$room"/torch_sluice-*.whl | python3 -c 'import json, sys; print(json.load(sys.stdin)["sym_tag"])')
"$tools/bin/python" -m wheel tags --remove --platform-tag "$glibc" "$room"/torch_sluice-*.whl >/dev/null
"$tools/bin/pip" wheel --quiet --no-index --no-build-isolation --no-deps --wheel-dir "$room" ./papers
mkdir -p "$out" && mv "$room"/*.whl "$out/"
ls "$out"/*sluice*.whl
