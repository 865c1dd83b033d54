"""A job of tests/auto_rank.py in a lab, one rank on each host."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEASURED = 8  # steps that auto measures before it plans


class AutoJob:
    """The ranks of a job, which train until the file `stop` is there. `said` are the lines of rank
    0, and `steps` the times at which it has ended a step."""

    def __init__(self, lab: Any, python: str, stop: Path, **settings: str) -> None:
        self.said: list[str] = []
        self.steps: list[float] = []
        self.stop = stop
        environment = dict(
            os.environ,
            PYTHONPATH=python,
            SLUICE_LOG="warn,pytorch=info",
            SLUICE_JOB_KEY=secrets.token_hex(32),
            SLUICE_SILENCE_LIMIT="20s",
            SLUICE_AUTO_STEPS=str(MEASURED),
            OMP_NUM_THREADS="1",
            WORLD_SIZE=str(lab.hosts),
            LOCAL_RANK="0",
            MASTER_ADDR=lab.addresses[0],
            MASTER_PORT="29500",
            AUTO_ALGORITHM="auto",
            AUTO_STOP=str(stop),
        )
        environment |= settings
        at = [lab.sluice, "lab", "exec", "--name", lab.name, "--host"]
        self.ranks = [
            subprocess.Popen(
                [*at, str(rank), "--", sys.executable, str(HERE / "auto_rank.py")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment | {"RANK": str(rank)},
            )
            for rank in range(lab.hosts)
        ]
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.ranks[0].stdout is not None
        for line in self.ranks[0].stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("step "):
                self.steps.append(time.monotonic())

    def __enter__(self) -> AutoJob:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the ranks that have not ended by themselves."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
        self.reader.join(timeout=10)
