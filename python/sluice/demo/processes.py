"""Runs the ranks of the demo, and ends them whatever happens."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sluice.study.ranks import free_port

WORLD = 2
_LAB_PREFIX = re.compile(r"^\[\d+\] ")


@dataclass(frozen=True)
class Start:
    """One process to start."""

    words: list[str]
    variables: dict[str, str]


def rank_words(what: str, folder: Path, settings: str) -> list[str]:
    return [sys.executable, "-m", "sluice.demo.rank", what, str(folder), settings]


def on_loopback(words: list[str], variables: dict[str, str]) -> list[Start]:
    """Returns the two ranks of a job on this machine's loopback interface."""
    job = {
        **variables,
        "WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
        "SLUICE_JOB_KEY": secrets.token_hex(32),
    }
    return [
        Start(words, {**job, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(WORLD)
    ]


def run(starts: list[Start], timeout: float, errors: Path, say: Callable[[str], None]) -> None:
    """Runs the processes to their end. Hands each line of the first one to `say`. Raises if one
    fails or the time is over; no process is left then."""
    with errors.open("w") as log:
        started = [
            subprocess.Popen(
                start.words,
                env=start.variables,
                stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )
            for number, start in enumerate(starts)
        ]
    timer = threading.Timer(timeout, _kill, [started])
    timer.start()
    try:
        assert started[0].stdout is not None
        for line in started[0].stdout:
            say(_LAB_PREFIX.sub("", line).rstrip())
        codes = [process.wait() for process in started]
    finally:
        is_late = not timer.is_alive()
        timer.cancel()
        _kill(started)
    if any(codes):
        raise OSError(_why(is_late, timeout, errors.read_text()))


def _kill(started: list[subprocess.Popen[str]]) -> None:
    for process in started:
        process.kill()
        process.wait()


def _why(is_late: bool, timeout: float, said: str) -> str:
    if is_late:
        return f"the ranks have not ended after {timeout:.0f} s; is the machine busy?"
    lines = [line for line in said.splitlines() if line.strip()]
    return f"a rank has failed: {_LAB_PREFIX.sub('', lines[-1]) if lines else 'without a word'}"
