#!/usr/bin/env bash
# Makes the static libraries that a wheel holds, in build/static, and the list of them. Debian has
# archives of OpenSSL and libsodium. It has shared libraries only of fmt and spdlog, so these are
# built here from Debian's own source packages, which belong to the headers that are installed. Run it
# as often as you like: it makes what is missing.
#
#   scripts/static_libraries.sh         fetch, build
#   scripts/static_libraries.sh fetch   only fetch the sources, into ~/.cache/sluice
#   scripts/static_libraries.sh list    only print the Debian packages and the versions that are linked
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$PWD/build/static
# As our own code has them (cmake/SluiceOptions.cmake).
flags='-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3'
sources=${SLUICE_SOURCES:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}

# source package, version, licence, a Debian package made from it, and the SHA-256 of its .dsc, which
# holds those of its files
built='
fmtlib 9.1.0+ds1-2 MIT libfmt-dev 1c8982464f1281f5b7d42ca24e058d80d71db7c381b278cc22cbdb40c534f0c5
spdlog 1:1.10.0+ds-0.4 MIT libspdlog-dev 65220c192ef8e524d0687058d5d24e1bdd3e2ebc9b6e846c3ec8d43f77fe9e5c'
# name, licence, the Debian package it is in, its archives (none: headers only)
taken='
openssl Apache-2.0 libssl-dev libssl.a libcrypto.a
libsodium ISC libsodium-dev libsodium.a
nlohmann-json3 MIT nlohmann-json3-dev
cli11 BSD-3-Clause libcli11-dev
pybind11 BSD-3-Clause pybind11-dev'

fail() {
  echo "static_libraries: $1" >&2
  exit 1
}
# download FILE: brings a file of the source of fetch's `package`, unless it is there.
download() {
  [[ ! -s $sources/$1 ]] || return 0
  [[ -n $place ]] || place=$(placeOf "$package")
  curl --fail --silent --show-error --retry 3 --max-time 120 --output "$sources/$1.part" "$place/$1" ||
    fail "cannot fetch $place/$1; is the network there?"
  mv "$sources/$1.part" "$sources/$1"
}
# placeOf PACKAGE: prints the folder that apt takes a package from; the package's source is there, too.
placeOf() {
  local uri
  uri=$(apt-get download --print-uris "$1" 2>/dev/null | cut -d"'" -f2)
  [[ $uri == */pool/* ]] || fail "apt knows no place of $1; run: sudo apt-get update"
  echo "${uri%/*}"
}
# fetch NAME VERSION PACKAGE SUM: brings the files of a source package.
fetch() {
  local description=$1_${2#*:}.dsc package=$3 place= file
  mkdir -p "$sources"
  download "$description"
  sha256sum --check --quiet <<<"$4  $sources/$description" || fail "$sources/$description is not the file that is expected; remove it"
  for file in $(sed -n '/^Checksums-Sha256:/,/^Files:/s/^ [0-9a-f]\{64\} [0-9]* //p' "$sources/$description"); do
    download "$file"
  done
}
# build NAME VERSION: builds a source package with CMake. dpkg-source checks the sums of its files.
build() {
  local tree=$prefix/source/$1 options=()
  case $1 in
    fmtlib) options=(-DFMT_TEST=OFF -DFMT_DOC=OFF) ;;
    spdlog) options=(-DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF) ;;
  esac
  rm -rf "$tree" "$tree.build" && mkdir -p "$prefix/source"
  dpkg-source --no-copy -x "$sources/$1_${2#*:}.dsc" "$tree"
  cmake -S "$tree" -B "$tree.build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_VISIBILITY_PRESET=hidden -Wno-dev \
    -DCMAKE_CXX_FLAGS="$flags -ffile-prefix-map=$prefix/source=." \
    $(launcher) "${options[@]}"
  cmake --build "$tree.build"
  find "$tree.build" -name 'lib*.a' -exec cp -t "$prefix/lib" {} +
}
launcher() { ! command -v ccache >/dev/null || echo -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache; }
# take NAME LICENCE PACKAGE [ARCHIVE...]: takes the archives of a Debian package.
take() {
  local archive
  for archive in "${@:4}"; do
    cp -u "$(dpkg -L "$3" | grep "/$archive\$")" "$prefix/lib/"
  done
}
packageVersion() { dpkg-query -W -f='${Version}' "$1" 2>/dev/null || fail "$1 is missing; run scripts/install_deps.sh"; }

if [[ ${1:-} == list ]]; then
  while read -r _ version _ package _; do echo "$package $version"; done < <(tail -n +2 <<<"$built")
  while read -r _ _ package _; do echo "$package $(packageVersion "$package")"; done < <(tail -n +2 <<<"$taken")
  exit
fi
while read -r name version _ package sum; do fetch "$name" "$version" "$package" "$sum"; done < <(tail -n +2 <<<"$built")
[[ ${1:-} != fetch ]] || exit 0

mkdir -p "$prefix/lib"
list=$({
  while read -r name version licence _; do echo "$name $version $licence"; done < <(tail -n +2 <<<"$built")
  while read -r name licence package _; do echo "$name $(packageVersion "$package") $licence"; done < <(tail -n +2 <<<"$taken")
})
# The list is written last, so it is there only if everything in it is.
[[ ! -f $prefix/libraries.txt || $list != "$(<"$prefix/libraries.txt")" || ! -f $prefix/flags.txt || $flags != "$(<"$prefix/flags.txt")" ]] || exit 0
while read -r name version _; do
  log=$prefix/$name-$version.log
  [[ ! -f $log.done || $(<"$log.done") != "$flags" ]] || continue
  echo "static_libraries: building $name $version"
  (build "$name" "$version") >"$log" 2>&1 || { tail -n 20 "$log" >&2 && fail "$name cannot be built (whole log: $log)"; }
  echo "$flags" >"$log.done"
done < <(tail -n +2 <<<"$built")
while read -r line; do take $line; done < <(tail -n +2 <<<"$taken")
echo "$flags" >"$prefix/flags.txt"
echo "$list" >"$prefix/libraries.txt"
