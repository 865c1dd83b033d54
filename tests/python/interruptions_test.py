"""The program catches exceptions out of waits. Training has the right bits, or an error says that
the model is no longer good.

`INTERRUPTED_WAITS=1000 PYTHONPATH=build/release/python python3 -m pytest
tests/python/interruptions_test.py` interrupts a thousand waits in each case; the gate interrupts a
few."""

from __future__ import annotations

import os

import pytest
from ranks import run_script

WAITS = int(os.environ.get("INTERRUPTED_WAITS", "24"))
CASES = [
    ("sluice", "waits", "sgd", False),
    ("sluice", "waits", "adam", True),
    ("allreduce", "waits", "adam", False),
    ("pipe", "waits", "sgd", False),
    ("sluice", "signals", "sgd", False),
    ("sluice", "signals", "sgd", True),
]


@pytest.mark.parametrize(("algorithm", "how", "kind", "on_servers"), CASES)
def test_interrupted_waits(algorithm: str, how: str, kind: str, on_servers: bool) -> None:
    call = f"interruptions.main({how!r}, {kind!r}, {on_servers}, {WAITS}, algorithm={algorithm!r})"
    for ended in run_script(f"import interruptions\n{call}", 2, timeout=30 + WAITS):
        assert ended.returncode == 0, ended.stderr
        print(ended.stdout)
