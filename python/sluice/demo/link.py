"""The slow link of the demo: two hosts of a lab, or loopback with paced connections where a lab is
not allowed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from sluice.demo.processes import WORLD, Start, on_loopback
from sluice.demo.program import find_program

KINDS = ("auto", "lab", "pacing")
# The share of a link's rate that is left for gradients; headers are the rest (docs/lab.md). Paced
# connections get this share, too.
GOODPUT = 0.95
_LIMIT = 60  # seconds of one command


@dataclass(frozen=True)
class Link:
    rate: float  # bits per second
    lab: tuple[str, ...] = ()  # the words that run a command in the lab; empty without one
    why: str = ""  # the reason why there is no lab

    @property
    def kind(self) -> str:
        return "lab" if self.lab else "pacing"

    @property
    def pace(self) -> int:
        """Returns the bytes per second of each connection; 0 if the link itself is shaped."""
        return 0 if self.lab else round(GOODPUT * self.rate / 8)

    def starts(self, words: list[str], variables: dict[str, str], timeout: float) -> list[Start]:
        if not self.lab:
            return on_loopback(words, variables)
        return [Start([*self.lab, "--timeout", f"{timeout:.0f}s", "--", *words], variables)]

    def describe(self) -> str:
        rate = f"{self.rate / 1e6:.0f} Mbit/s"
        if self.lab:
            return f"{rate} between two hosts of a lab (network namespaces)"
        return f"""{rate} on loopback, by SO_MAX_PACING_RATE on every TCP connection
  There is no lab here: {self.why}
  This is an approximation: the kernel spaces the packets of each connection, and there is no queue
  that they share. DDP and sluice each send all gradients of a rank on one connection."""


@contextlib.contextmanager
def shaped(kind: str, rate: float) -> Iterator[Link]:
    """Makes the link. It lasts as long as this context."""
    with contextlib.ExitStack() as stack:
        link = Link(rate, why="--link pacing was given")
        if kind != "pacing":
            try:
                link = stack.enter_context(_lab(rate))
            except OSError as error:
                if kind == "lab":
                    raise
                link = Link(rate, why=str(error))
        yield link


@contextlib.contextmanager
def _lab(rate: float) -> Iterator[Link]:
    program = find_program()
    if program is None:
        raise OSError("the program 'sluice' is neither beside this Python nor on the PATH")
    name = ["--name", f"demo{os.getpid()}"]
    run = (program, "lab", "run", *name)
    shape = ["--hosts", str(WORLD), "--rate", f"{rate / 1e6:.0f}mbit"]
    try:
        _call([program, "lab", "up", *name, *shape])
        _call([*run, "--timeout", "20s", "--", "true"])
        yield Link(rate, run)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([program, "lab", "down", *name], capture_output=True, timeout=_LIMIT)


def _call(words: list[str]) -> None:
    try:
        called = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        command = " ".join(words[1:3])
        raise OSError(f"'{command}' has not ended after {_LIMIT} s; is the machine busy?") from None
    if called.returncode != 0:
        lines = called.stderr.strip().splitlines()
        raise OSError(lines[-1] if lines else f"'{' '.join(words[1:3])}' has failed")
