"""Finds the program `sluice` that belongs to this package."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find_program() -> str | None:
    """Returns the program `sluice` that belongs to this package, or another on the PATH."""
    places = [
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts")),
        Path(__file__).parents[3] / "bin",  # of a build tree
    ]
    for place in places:
        if os.access(place / "sluice", os.X_OK):
            return str(place / "sluice")
    return shutil.which("sluice")
