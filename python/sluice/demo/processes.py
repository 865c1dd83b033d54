"""Runs the two ranks of a small job, and ends them whatever happens."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sluice.processes import free_port

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
    # A user's own key would be a second one.
    job = {
        **{name: value for name, value in variables.items() if name != "SLUICE_JOB_KEY_FILE"},
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
    started: list[subprocess.Popen[str]] = []
    late = threading.Event()

    def end_late() -> None:
        late.set()
        _kill(started)

    timer = threading.Timer(timeout, end_late)
    try:
        with errors.open("w") as log:
            for start in starts:
                started.append(_start(start, log, is_heard=not started))
        timer.start()
        assert started[0].stdout is not None
        for line in started[0].stdout:
            say(_LAB_PREFIX.sub("", line).rstrip())
        codes = [process.wait() for process in started]
    finally:
        timer.cancel()
        _kill(started)
    if any(codes):
        raise OSError(_why(late.is_set(), timeout, errors.read_text()))


def _start(start: Start, log: TextIO, is_heard: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        start.words,
        env=start.variables,
        stdout=subprocess.PIPE if is_heard else subprocess.DEVNULL,
        stderr=log,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def _kill(started: list[subprocess.Popen[str]]) -> None:
    for process in started:
        process.kill()
        process.wait()


def _why(is_late: bool, timeout: float, said: str) -> str:
    if is_late:
        return f"the ranks have not ended after {timeout:.0f} s; is the machine busy?"
    lines = [line for line in said.splitlines() if line.strip()]
    return f"a rank has failed: {_LAB_PREFIX.sub('', lines[-1]) if lines else 'without a word'}"
