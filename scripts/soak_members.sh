#!/usr/bin/env bash
# soak_members.sh [FAULTS [RESULTS]]: trains job after job in a lab while members and etcd servers are
# killed, stopped and cut off, until the file RESULTS (build/soak_members.jsonl by default) has FAULTS
# faults, 1000 by default. Run it again to go on after an end. Each job appends its seed, faults and
# outcome to RESULTS, and papers/results/members_soak.md shows all of them. Needs a release build with the
# Python package.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tests/soak_members.py --build build/release --faults "${1:-1000}" \
  --results "${2:-build/soak_members.jsonl}" --page papers/results/members_soak.md
