#!/usr/bin/env bash
# Installs a build into a fresh tree, and builds and runs a program against that tree alone: once
# with find_package(sluice), once with pkg-config. Compares the exported symbols of the library with
# cmake/exported_symbols.txt.
#   install_test.sh BUILD_DIRECTORY             the test
#   install_test.sh BUILD_DIRECTORY --accept    writes the list of exported symbols anew
set -euo pipefail
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
project=$source/tests/install/library
symbols=$source/cmake/exported_symbols.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/tree" >/dev/null
library=$(find "$work/tree" -name libsluice.so)
# An optimised library leaves out the table of virtual functions of an interface: its users have it.
nm --dynamic --defined-only --demangle "$library" | cut -d' ' -f3- | grep -v '^vtable for ' | sort -u >"$work/symbols"
if [[ ${2:-} == --accept ]]; then
  cp "$work/symbols" "$symbols"
  exit
fi
diff "$symbols" "$work/symbols" || { echo "other symbols are exported than $symbols lists; if that is meant: $0 $build --accept"; exit 1; }

# trains PROGRAM: runs the program, and checks the output of both of its processes.
trains() {
  local said
  said=$("$1" | sort)
  [[ $said == "rank 0 of 2 has trained 10 steps"$'\n'"rank 1 of 2 has trained 10 steps" ]] || { echo "$1 said: $said"; exit 1; }
}

# The package may search for Threads only; the trace shows every search.
cmake -G Ninja -S "$project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/tree" --trace-expand --trace-redirect="$work/trace" >/dev/null
others=$(grep -oE '(find_package|find_dependency)\([A-Za-z0-9_]+' "$work/trace" | sed 's/.*(//' | sort -u | grep -vx -e Threads -e sluice || true)
[[ -z $others ]] || { echo "find_package(sluice) asks for more than Threads: $others"; exit 1; }
cmake --build "$work/build" >/dev/null
trains "$work/build/uses_sluice"
env -u RANK -u WORLD_SIZE "$work/build/examples" >/dev/null

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/tree" -name sluice.pc)")
# shellcheck disable=SC2046
g++ -std=c++20 "$project/main.cc" $(pkg-config --cflags --libs sluice) -Wl,-rpath,"$(dirname "$library")" -o "$work/by_pkg_config"
trains "$work/by_pkg_config"

[[ $("$work/tree/bin/sluice" --version) == sluice* ]]
