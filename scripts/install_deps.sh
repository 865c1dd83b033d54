#!/usr/bin/env bash
# Installs the packages from Debian and PyPI that sluice needs for building, testing and measuring.
# Run it as often as you like: it skips installed packages. docs/dependencies.md has the reasons for
# the libraries, and for some tools.
#
#   scripts/install_deps.sh                 everything but Torch and SimGrid
#   scripts/install_deps.sh --with-torch    also PyTorch, for pytorch/ and the tests that compare with it
#   scripts/install_deps.sh --with-simgrid  also SimGrid, for 'sluice simulate --network simgrid'
set -euo pipefail

torch=no simgrid=no
for argument in "$@"; do
  case "$argument" in
    --with-torch) torch=yes ;;
    --with-simgrid) simgrid=yes ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install_deps: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done

# Each entry is a name, or name>=version if an older version is known not to work. Debian 12 has all
# of them.
packages=(
  # build
  'cmake>=3.25' ninja-build pkg-config ccache 'g++>=4:12' git python3 python3-pip python3-venv python3-dev
  # checks
  clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev lld-19 llvm-19 codespell
  # libraries
  'libcli11-dev>=2.1' 'nlohmann-json3-dev>=3.11' 'libspdlog-dev>=1:1.10' 'libfmt-dev>=9.1'
  libsodium-dev 'libssl-dev>=3.0' 'libcurl4-openssl-dev>=7.61' 'libucx-dev>=1.13' ucx-utils 'pybind11-dev>=2.10'
  # the C++ example
  zlib1g-dev
  # the sources of the wheel's static libraries
  curl ca-certificates dpkg-dev
  # tests
  'libgtest-dev>=1.12' 'libgmock-dev>=1.12' librapidcheck-dev
  # a launcher, for the wheel's test
  openmpi-bin
  # a store for the members of a job, for tests and the lab
  etcd-server
  # a reader of metrics, for the test of the dashboard
  prometheus
  # the lab
  iproute2 nftables kmod iperf3 procps
  # pictures of measurements
  python3-matplotlib
  # the C++ reference of the site
  'doxygen>=1.9'
)
[[ $simgrid == yes ]] && packages+=('libsimgrid-dev>=3.32')
# These packages come from PyPI, for --with-torch only.
wheels=('numpy==2.4.6' 'torch==2.13.0' 'pytest==9.0.3' 'ruff==0.17.4' 'mypy==2.4.1' 'scikit-build-core==1.1.1')

declare -A installed=()
readInstalled() {
  local name version status
  while read -r name version status; do
    [[ $status == 'install ok installed' ]] && installed[$name]=$version
  done < <(dpkg-query -W -f='${Package} ${Version} ${Status}\n')
}

missing=()
readInstalled
for package in "${packages[@]}"; do
  name=${package%%>=*}
  [[ -n ${installed[$name]:-} ]] || missing+=("$name")
done

if ((${#missing[@]})); then
  if ((EUID != 0)); then
    echo "install_deps: needs root to install ${missing[*]}; run it with sudo" >&2
    exit 3
  fi
  echo "install_deps: installing ${#missing[@]} Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  if ! { apt-get update -q && apt-get install -yq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -20 "$log" >&2
    echo "install_deps: apt-get failed (whole log: $log)" >&2
    exit 1
  fi
  rm -f "$log"
  readInstalled
  # Debian starts Prometheus as a service on all addresses; the test starts its own on loopback.
  if [[ " ${missing[*]} " == *' prometheus '* ]]; then
    { systemctl disable --now prometheus || systemctl disable prometheus; } &>/dev/null || true
  fi
fi

for package in "${packages[@]}"; do
  name=${package%%>=*} least=${package#*>=}
  if [[ $least != "$package" ]] && dpkg --compare-versions "${installed[$name]:-0}" lt "$least"; then
    echo "install_deps: $name is ${installed[$name]:-missing}, but $least or newer is needed (Debian 12 has it)" >&2
    exit 1
  fi
done
echo "install_deps: ${#packages[@]} Debian packages are there"

[[ $torch == yes ]] || exit 0

wanted=()
for wheel in "${wheels[@]}"; do
  have=$(python3 -c 'import sys, importlib.metadata as m; print(m.version(sys.argv[1]))' "${wheel%%==*}" 2>/dev/null || true)
  [[ ${have%%+*} == "${wheel#*==}" ]] || wanted+=("$wheel") # "2.13.0+cpu" is 2.13.0 without CUDA
done
if ((${#wanted[@]})); then
  echo "install_deps: installing from PyPI: ${wanted[*]}"
  pip=(python3 -m pip install --quiet --root-user-action=ignore)
  # Debian forbids pip to change its Python; no Debian package has these versions of the wheels.
  if python3 -c 'import os, sys, sysconfig as s; sys.exit(sys.prefix != sys.base_prefix or
      not os.path.exists(os.path.join(s.get_path("stdlib"), "EXTERNALLY-MANAGED")))'; then
    pip+=(--break-system-packages)
  fi
  "${pip[@]}" "${wanted[@]}"
fi
echo "install_deps: ${wheels[*]} are there"
fetch=$(dirname "${BASH_SOURCE[0]}")/static_libraries.sh
# The first try fails if the lists of packages are missing or older than the archive.
"$fetch" fetch || { apt-get update -q >/dev/null && "$fetch" fetch; }
echo "install_deps: the sources of the wheel's static libraries are there"
