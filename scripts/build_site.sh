#!/usr/bin/env bash
# Builds the documentation site, and checks it: no warning, no broken link inside, every doctest.
#
#   scripts/build_site.sh            the site, in build/site/html
#   scripts/build_site.sh outside    checks the links to other sites instead (not in the gate)
#
# It needs Doxygen and Torch (scripts/install_deps.sh --with-torch) and a build of the Python
# package; it makes one if there is none. SITE_PACKAGE and SITE_PROGRAM name others than those of
# build/release and build/dev.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${1:-html}
site=build/site
mkdir -p "$site"

# packages: makes the site's own environment, once for each list of packages and each Python; clones
# share it. Torch comes from outside.
packages() {
  local list=docs/site/requirements.txt key torch
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").origin)' 2>/dev/null) || {
    echo "build_site: there is no torch; scripts/install_deps.sh --with-torch installs it" >&2
    exit 4
  }
  torch=$(dirname "$(dirname "$torch")")
  key=$({ cat "$list"; python3 --version; echo "$torch"; } | sha256sum | cut -c1-16)
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/site-$key
  [[ ! -e $venv/complete ]] || return 0
  echo "build_site: making the environment of the site in $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$list"
  echo "$torch" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch_from_outside.pth"
  touch "$venv/complete"
}

# firstOf PATTERN...: prints the first file that exists.
firstOf() {
  local each
  for each in "$@"; do
    [[ ! -e $each ]] || { echo "$each"; return; }
  done
}

core=$(firstOf build/release/python/sluice/_core*.so build/dev/python/sluice/_core*.so)
if [[ -z ${SITE_PACKAGE:-} && -z $core ]]; then
  echo "build_site: building the Python package and the program"
  cmake --preset release -DSLUICE_TESTS=OFF -DSLUICE_BENCH=OFF >"$site/configure.log"
  cmake --build --preset release >"$site/build.log"
  core=$(firstOf build/release/python/sluice/_core*.so)
fi
SITE_PYTHON=$(realpath "${SITE_PACKAGE:-${core%/sluice/*}}")
program=${SITE_PROGRAM:-$(firstOf build/release/bin/sluice build/dev/bin/sluice)}
SITE_OUTPUT=$site
SITE_DOXYGEN=$PWD/$site/doxygen
SITE_VERSION=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
export SITE_PYTHON SITE_OUTPUT SITE_DOXYGEN SITE_VERSION
packages
python=$venv/bin/python

python3 docs/site/page_style.py
rm -rf "$SITE_DOXYGEN"
doxygen docs/site/Doxyfile
PYTHONPATH=$SITE_PYTHON "$python" docs/site/commands.py "$program" >"$site/commands.md"
"$python" docs/site/stage.py "$site/source"
if [[ $what == outside ]]; then
  exec "$python" -m sphinx --builder linkcheck --doctree-dir "$site/doctrees" --quiet "$site/source" "$site/linkcheck"
fi
"$python" -m sphinx --builder html --jobs 2 --doctree-dir "$site/doctrees" --fail-on-warning --keep-going --quiet "$site/source" "$site/html"
SLUICE_LOG=warn "$python" -m sphinx --builder doctest --doctree-dir "$site/doctrees" --quiet "$site/source" "$site/doctest"
"$python" tests/docs/site_test.py "$site"
