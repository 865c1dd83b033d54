"""Helps tests that make a lab: without root they are skipped, and say so."""

import os
import sys

SKIPPED = 77  # the SKIP_RETURN_CODE in CMakeLists.txt


def skip_without_root():
    if os.geteuid() != 0:
        print("skipped: a lab needs root")
        sys.exit(SKIPPED)
