#!/usr/bin/env bash
# soak_hostile.sh [SECONDS]: strangers, a mad member, forks, stops and interrupts at the same time,
# for an hour unless said otherwise. Needs a release build with the Python package. Its last line is
# the summary.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tests/soak_hostile.py --build build/release --seconds "${1:-3600}"
