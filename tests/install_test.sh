#!/usr/bin/env bash
# Installs a build into a fresh tree and builds a small project against it with find_package(sluice).
#   install_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$1
project=$(cd "$(dirname "$0")" && pwd)/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/tree" >/dev/null
cmake -G Ninja -S "$project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/tree" >/dev/null
cmake --build "$work/build" >/dev/null
said=$("$work/build/uses_sluice")
[[ $said == "rank 3 logs at debug" ]] || { echo "the program that uses the installed tree said: $said"; exit 1; }
[[ $("$work/tree/bin/sluice" --version) == sluice* ]]
