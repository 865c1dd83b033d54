#!/usr/bin/env bash
# NOT RUN so far: it needs Docker. cibuildwheel calls it in its manylinux_2_28 image (pyproject.toml)
# before it builds wheels. Builds every foreign library of sluice, with its headers, in /opt/sluice,
# in the versions that Debian 12 has, and writes the list of them that a wheel holds. Debian's
# pybind11 does not know Python 3.12 and later, so that is newer.
set -euo pipefail
prefix=/opt/sluice
room=$(mktemp -d)
dnf install -y perl-core zlib-devel zlib-static libcurl-devel ninja-build

# name, repository, tag, licence
libraries='
openssl https://github.com/openssl/openssl openssl-3.0.19 Apache-2.0
libsodium https://github.com/jedisct1/libsodium 1.0.18 ISC
fmtlib https://github.com/fmtlib/fmt 9.1.0 MIT
spdlog https://github.com/gabime/spdlog v1.10.0 MIT
nlohmann-json3 https://github.com/nlohmann/json v3.11.2 MIT
cli11 https://github.com/CLIUtils/CLI11 v2.1.2 BSD-3-Clause
pybind11 https://github.com/pybind/pybind11 v2.13.6 BSD-3-Clause
civetweb https://github.com/civetweb/civetweb v1.15 MIT
prometheus-cpp https://github.com/jupp0r/prometheus-cpp v1.0.1 MIT'

build() { # NAME: builds and installs the sources in the current folder
  case $1 in
    openssl) ./Configure --prefix=$prefix --libdir=lib no-shared no-tests -fPIC && make -j"$(nproc)" && make install_sw && return ;;
    libsodium) ./configure --prefix=$prefix --disable-shared --with-pic && make -j"$(nproc)" install && return ;;
  esac
  cmake -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX=$prefix -DCMAKE_PREFIX_PATH=$prefix \
    -DBUILD_TESTING=OFF -DFMT_TEST=OFF -DSPDLOG_FMT_EXTERNAL=ON -DJSON_BuildTests=OFF -DPYBIND11_TEST=OFF \
    -DCIVETWEB_ENABLE_CXX=ON -DCIVETWEB_ENABLE_SSL=OFF -DCIVETWEB_ENABLE_ASAN=OFF -DCIVETWEB_BUILD_TESTING=OFF \
    -DCIVETWEB_ENABLE_SERVER_EXECUTABLE=OFF -DUSE_THIRDPARTY_LIBRARIES=OFF -DENABLE_PUSH=OFF -DENABLE_TESTING=OFF
  cmake --build build --target install
}

while read -r name repository tag licence; do
  git clone --quiet --depth 1 --branch "$tag" "$repository" "$room/$name"
  (cd "$room/$name" && build "$name")
  echo "$name ${tag##*[-v]} $licence" >>$prefix/libraries.txt
done < <(tail -n +2 <<<"$libraries")
cp /usr/lib64/libz.a $prefix/lib/
echo "zlib $(rpm -q --qf '%{VERSION}' zlib-devel) Zlib" >>$prefix/libraries.txt
/opt/python/cp311-cp311/bin/python scripts/sbom.py $prefix/libraries.txt >$prefix/torch-sluice.cdx.json
