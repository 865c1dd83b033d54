#!/usr/bin/env bash
# `import sluice` must leave the handlers of signals alone, and so must a job over UCX, whose
# library takes SIGHUP and four signals of faults when it is loaded. Exit code 0: SigCgt of a Python
# is the same before and after both, SIGHUP ends it, and faulthandler still says where a fault was.
#   tests/hardening/14_signals_test.sh PYTHONPATH
set -uo pipefail
export PYTHONPATH=${1:-build/release/python} PYTHONDONTWRITEBYTECODE=1
ulimit -c 0
said=$(mktemp)
trap 'rm -f "$said"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$said"
  exit 1
}

cat >"$said.py" <<'END'
import os
import signal
import sys
import time


def caught():
    status = open("/proc/self/status")
    mask = next(line.split()[1] for line in status if line.startswith("SigCgt"))
    # SIGABRT writes the flight recorder's file while a job runs.
    return int(mask, 16) & ~(1 << (signal.SIGABRT - 1))


import torch  # it may have handlers of its own

before = caught()
import sluice

assert caught() == before, f"import sluice: {before} -> {caught()}"
if len(sys.argv) > 1:  # a job over UCX
    model = torch.nn.Linear(4, 4)
    model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1), fabric="ucx", trusted_network="on")
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    maps = open("/proc/self/maps").read()
    assert "libucs" in maps, "UCX was not loaded"
    assert caught() == before, f"a job over UCX: {before} -> {caught()}"
    sys.exit(0)
assert "libucs" not in open("/proc/self/maps").read(), "import sluice loads UCX"
print("ready", flush=True)
time.sleep(30)
END
trap 'rm -f "$said" "$said.py"' EXIT

python3 "$said.py" >"$said" 2>&1 &
pid=$!
for _ in $(seq 300); do grep -q ready "$said" && break || sleep 0.1; done
grep -q ready "$said" || fail "import sluice changes what is caught"
kill -HUP $pid
wait $pid
code=$?
((code == 129)) || fail "SIGHUP does not end it: exit code $code"
echo "import sluice: no handler is taken, and SIGHUP ends it"

export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_PORT
RANK=1 LOCAL_RANK=1 python3 "$said.py" ucx >/dev/null 2>&1 &
other=$!
RANK=0 LOCAL_RANK=0 python3 "$said.py" ucx >"$said" 2>&1 || fail "rank 0 over UCX"
wait $other || fail "rank 1 over UCX"
echo "a job over UCX: no handler is taken"

python3 -c '
import faulthandler; faulthandler.enable()
import sluice, ctypes
def the_python_line_that_crashed(): ctypes.string_at(0)
the_python_line_that_crashed()' >"$said" 2>&1
grep -q the_python_line "$said" || fail "faulthandler does not say where"
echo "faulthandler says where"
