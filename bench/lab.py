"""A lab for as long as something is measured in it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def lab(sluice: str, name: str, hosts: int, rate: str) -> Iterator[list[str]]:
    """The words that run a command on its hosts begin with what this gives."""
    up = [sluice, "lab", "up", "--name", name, "--hosts", str(hosts), "--rate", rate]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    try:
        yield [sluice, "lab", "run", "--name", name]
    finally:
        subprocess.run(
            [sluice, "lab", "down", "--name", name], check=True, stdout=subprocess.DEVNULL
        )
