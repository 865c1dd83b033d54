#!/usr/bin/env bash
# soak_liveness.sh [SECONDS [RATE]]: four hosts, every link saturated, a rank stopped for a second
# again and again; no rank may be thought lost. Needs root and a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tests/fabric_faults.py build/release/bin/sluice soak --seconds "${1:-600}" --rate "${2:-1gbit}"
