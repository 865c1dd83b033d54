"""A lab that lasts as long as a measurement."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def lab(sluice: str, name: str, hosts: int, rate: str) -> Iterator[list[str]]:
    """Makes a lab, and yields the first words of a command that runs on its hosts."""
    up = [sluice, "lab", "up", "--name", name, "--hosts", str(hosts), "--rate", rate]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    try:
        yield [sluice, "lab", "run", "--name", name]
    finally:
        subprocess.run(
            [sluice, "lab", "down", "--name", name], check=True, stdout=subprocess.DEVNULL
        )
