#!/usr/bin/env bash
# A MASTER_ADDR that cannot be resolved yet is looked up again until rendezvous-timeout, and Ctrl-C
# ends that. A wait of more than 30 s used to abort the process. Exit code 0: the search lasted its
# whole time, the error names MASTER_ADDR, and an interrupt ended a second search at once.
#   tests/hardening/03_dns_abort_test.sh PROGRAM PYTHONPATH [SECONDS]
set -uo pipefail
SLUICE=${1:-build/release/bin/sluice}
export PYTHONPATH=${2:-build/release/python} PYTHONDONTWRITEBYTECODE=1
seconds=${3:-33} # more than 30
export RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=no-such-host.invalid MASTER_PORT=29999
SLUICE_JOB_KEY=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export SLUICE_JOB_KEY
ulimit -c 0
said=$(mktemp)
trap 'rm -f "$said"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$said"
  exit 1
}

# Both searches run at the same time: they take no CPU.
SLUICE_RENDEZVOUS_TIMEOUT=60s python3 -c '
import os, signal, sys, threading, time
import sluice
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
threading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    sluice.rank()
except KeyboardInterrupt:
    waited = time.monotonic() - begun
    print(f"interrupted after {waited:.1f} s")
    sys.exit(0 if waited > 1.5 and waited < 12 else 1)
sys.exit(2)' &
interrupted=$!
begun=$SECONDS
SLUICE_RENDEZVOUS_TIMEOUT=${seconds}s "$SLUICE" bench fabric-rank '{"case":"idle","seconds":1}' >"$said" 2>&1
code=$?
took=$((SECONDS - begun))
wait $interrupted || fail "an interrupt did not end the search"
((code > 0 && code < 128)) || fail "exit code $code after $took s"
((took >= seconds)) || fail "gave up after $took s, not $seconds s"
grep -q "is MASTER_ADDR right?" "$said" || fail "the error does not name MASTER_ADDR"
grep -q "rank 0 is not found yet" "$said" || fail "the wait did not say why"
echo "a name that nobody knows: searched for $took s, then named (exit code $code)"
