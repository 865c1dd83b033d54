"""Tests what a process says of its own end, in programs without Torch."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# The real module beside a stand-in for the C++ one.
PROGRAM = """
import atexit, sys, types
core = types.ModuleType("sluice._core")
core.PeerLostError = type("PeerLostError", (RuntimeError,), {{}})
for name, path in {{"sluice": "{package}", "sluice._job": "{package}/_job"}}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
sys.modules["sluice._core"] = core
from sluice._job import ending
ending.watch()
is_asked = False
atexit.register(lambda: print("reason", ending.reason(is_asked_to_leave=is_asked)))
"""
FAILS = """
def fail():
    raise ValueError("bad sample")
def main():
    try:
        fail()
    except Exception as error:
        sys.exit(1)
"""
BAD_SAMPLE = "ended with ValueError: bad sample (exit code 1)"

ENDS = {
    "": "None",
    "sys.exit()": "None",
    "sys.exit(0)": "None",
    "sys.exit(False)": "None",
    "sys.exit(3)": "ended with exit code 3",
    "exit(3)": "ended with exit code 3",
    "quit(3)": "ended with exit code 3",
    "sys.exit('no\\nfile')": "ended with exit code 1: no file",
    "is_asked = True; sys.exit(143)": "None",
    "is_asked = True; sys.exit(1)": "ended with exit code 1",
    "main()": BAD_SAMPLE,
    "fail()": "ended with ValueError: bad sample",
    "sys.excepthook = print\nfail()": "ended with ValueError: bad sample",
    "sys.excepthook = None\nfail()": "ended with ValueError: bad sample",
    "raise KeyboardInterrupt": "ended with KeyboardInterrupt",
    # Others have passed on what rank 1 said.
    "raise core.PeerLostError('rank 2 ended with PeerLostError: rank 1 ended with KeyError: 1')": (
        "ended with PeerLostError: rank 1 ended with KeyError: 1"
    ),
    # Somebody catches the exit, and the program goes on to a good end.
    "try: main()\nexcept SystemExit: pass": "None",
    "try: sys.exit(2)\nexcept SystemExit as error: print(error.code)": "None",
    "kept = []\ntry: sys.exit(2)\nexcept SystemExit as error: kept.append(error)\n"
    "ending.goes_on()": "None",
    "import threading\nt = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()": (
        "None"
    ),
    # Somebody catches it, and ends with the same code.
    "try: main()\nexcept SystemExit as error: sys.exit(error.code)": BAD_SAMPLE,
    "def code():\n  try: main()\n  except SystemExit as error: return error.code\n"
    "sys.exit(code())": BAD_SAMPLE,
    # The limits of what can be seen.
    "raise SystemExit(3)": "None",
    "kept = []\ntry: sys.exit(2)\nexcept SystemExit as error: kept.append(error)": (
        "ended with exit code 2"
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_reason_of_an_end(end: str) -> None:
    spec = find_spec("sluice._job.ending")
    assert spec is not None and spec.origin is not None
    program = PROGRAM.format(package=Path(spec.origin).parent.parent) + FAILS + end
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.splitlines()[-1] == f"reason {ENDS[end]}", ended.stderr
