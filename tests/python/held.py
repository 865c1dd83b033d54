"""Counts what this process holds, for tests that nothing is left over."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path


def held() -> Counter[str]:
    """Counts the threads and open files of this process, by name and kind."""
    found: Counter[str] = Counter()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found["thread " + (thread / "comm").read_text().strip()] += 1
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found["file " + os.readlink(f"/proc/self/fd/{name}").split(":")[0]] += 1
    return found
