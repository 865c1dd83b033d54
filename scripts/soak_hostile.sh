#!/usr/bin/env bash
# soak_hostile.sh [SECONDS]: trains with strangers, a mad member, forks, stops and interrupts at the
# same time, for an hour by default. Needs a release build with the Python package. Its last line is
# the summary.
set -euo pipefail
cd "$(dirname "$0")/.."
# A shell lets programs in the background ignore Ctrl-C, which ranks must hear.
exec env --default-signal=INT,QUIT python3 tests/soak_hostile.py --build build/release --seconds "${1:-3600}"
