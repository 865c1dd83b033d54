#!/usr/bin/env bash
# soak_liveness.sh [SECONDS [RATE]]: runs four hosts with every link saturated, and stops a rank for
# a second again and again. No rank may count as lost. Needs root and a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tests/fabric_faults.py build/release/bin/sluice soak --seconds "${1:-600}" --rate "${2:-1gbit}"
