"""Runs a function on lab hosts, for the programs of this package."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluice_papers.study import ranks

_LIMIT = 1800.0  # seconds


def run(workers: int, rate: str, work: Callable[[int, Path], None]) -> Any:
    """Runs work(rank, out) for each rank on a host of its own, and returns the JSON that one rank
    has written to the file `out`. Call sluice.processes.prepare_to_fork() before."""
    # Exit by an exception, so that the lab is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with (
        tempfile.TemporaryDirectory(prefix="sluice-reproduce-") as folder,
        ranks.lab(workers, rate) as place,
    ):
        out, log = Path(folder, "out.json"), Path(folder, "log.txt")
        failures = ranks.run(workers, place, lambda rank: work(rank, out), log, _LIMIT)
        if failures:
            rank, how = next(iter(failures.items()))
            lines = log.read_text().strip().splitlines() or ["it has printed nothing"]
            raise OSError(f"rank {rank} {how}: {lines[-1]}")
        return json.loads(out.read_text())
