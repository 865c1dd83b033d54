"""Runs the test of gates.cc with its model on the test device (tests/device), as one rank.

usage: on_device.py MODULE MODE    MODULE: gates_module as built    MODE: how the device delays work
"""

import ctypes
import os
import sys

import sluice_test_device


def main() -> int:
    module, mode = sys.argv[1:]
    sluice_test_device.set_mode(mode, seed=int(os.environ["RANK"]))
    return int(ctypes.CDLL(module).trainWithGates(b"pretend:0"))  # without the GIL


if __name__ == "__main__":
    sys.exit(main())
