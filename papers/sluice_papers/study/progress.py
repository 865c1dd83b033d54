"""The messages of a study while it runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from sluice_papers.study.runner import Runner
from sluice_papers.study.settings import Run

# Seconds of a run, assumed until one was measured: starting, scoring, ending.
_OUTSIDE_TRAINING = 4.0


class Progress:
    """Prints a line for each run, with the estimated time that is left."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._paces: dict[int, float] = {}
        self._seconds: dict[int, list[float]] = {}  # seconds of runs, by number of workers

    def expected(self, run: Run, pace: float | None = None) -> float:
        """Returns the seconds that a run will take. A pace that is not known yet follows from
        another: a step costs as much as the computing of all workers, so twice the workers have
        twice the pace and half the steps."""
        if pace is not None:
            self._paces[run.workers] = pace
        if seen := self._seconds.get(run.workers):
            return sum(seen) / len(seen)
        known = min(self._paces, key=lambda workers: abs(workers - run.workers))
        pace = self._paces[known] * run.workers / known
        return _OUTSIDE_TRAINING + self._runner.expected_seconds(run, pace)

    def done(self, run: Run, seconds: float, text: str, made: int, left: list[Run]) -> None:
        self._seconds.setdefault(run.workers, []).append(seconds)
        time_left = minutes(sum(self.expected(one) for one in left))
        number = f"[{made}/{made + len(left)}]"
        say(f"{number} {run.key}: {text} in {seconds:.1f} s; {time_left} left")


def minutes(seconds: float) -> str:
    """Returns a duration for people."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_command(name: str, work: Callable[[list[str]], int]) -> NoReturn:
    """Runs a command to its end. An error is one line."""
    # Exit by an exception, so that processes of the command are ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(work(sys.argv[1:]))
    except KeyboardInterrupt:
        say(f"\n{name}: interrupted; the same command goes on from here")
        sys.exit(130)
    except (ValueError, OSError) as error:
        say(f"{name}: {' '.join(str(error).split())}")
        sys.exit(2 if isinstance(error, ValueError) else 1)
