"""Measures what algorithm="auto" loses where the network changes: its steps after it has planned
anew, over those of the best algorithm chosen by hand. Makes a lab of three hosts whose links become
20 times slower, and fast again.

    python3 bench/auto_regret.py --sluice build/release/bin/sluice \\
        --pythonpath build/release/python --runs 3 --json regret.json

Everything is real here, computing included: the small model of tests/auto_rank.py. The runs by hand
come after the run of auto, in the same lab, in turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))
from auto_job import AutoJob  # type: ignore[import-not-found]  # noqa: E402
from lab_job import Lab  # type: ignore[import-not-found]  # noqa: E402

RANKS = 3
FAST, SLOW = "400mbit", "20mbit"
BY_HAND = ["sluice", "p3", "slicing", "kvstore"]  # the algorithms with the bits of sluice
COUNTED = 15  # steps
WARM_UP = 10  # steps before them, where an algorithm is chosen by hand
LIMIT_SECONDS = 120


class Job(AutoJob):
    def __init__(self, lab: Any, python: str, algorithm: str, stop: Path) -> None:
        super().__init__(lab, python, stop, AUTO_ALGORITHM=algorithm, AUTO_PAUSE="0.02")

    def wait_for(self, what: str, is_there: Any) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not is_there():
            if time.monotonic() > end or self.ranks[0].poll() not in (None, 0):
                raise RuntimeError(f"no {what}\n" + "\n".join(self.said[-20:]))
            time.sleep(0.02)

    def words(self) -> int:
        return sum("auto: after round" in line for line in list(self.said))

    def next_steps(self) -> list[float]:
        """Returns how long each of the next steps takes."""
        first = len(self.steps)
        self.wait_for("further steps", lambda: len(self.steps) > first + COUNTED)
        times = self.steps[first : first + COUNTED + 1]
        return [b - a for a, b in itertools.pairwise(times)]

    def end(self) -> None:
        """Lets every rank end by itself, and kills one that does not."""
        self.stop.touch()
        for rank in self.ranks:
            try:
                rank.wait(timeout=60)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
        self.reader.join(timeout=10)
        self.stop.unlink()


def with_auto(lab: Any, python: str, folder: str) -> dict[str, list[float]]:
    """Returns the steps of auto after it has planned for each network."""
    stop = Path(folder, "stop-auto")
    job = Job(lab, python, "auto", stop)
    found = {}
    try:
        job.wait_for("first plan", lambda: job.words() > 0)
        for rate in (SLOW, FAST):
            said = job.words()
            lab.call("set", "--host", f"0-{RANKS - 1}", "--rate", rate)
            job.wait_for(f"plan at {rate}", lambda: job.words() > said)  # noqa: B023
            job.next_steps()  # the burst that links allow is used up, and no planner runs
            found[rate] = job.next_steps()
            print(f"auto at {rate}: {job.said[-1]}", file=sys.stderr)
    finally:
        job.end()
    print("\n".join(line for line in job.said if "auto:" in line), file=sys.stderr)
    return found


def by_hand(lab: Any, python: str, folder: str, algorithm: str) -> list[float]:
    stop = Path(folder, "stop-by-hand")
    job = Job(lab, python, algorithm, stop)
    try:
        job.wait_for("first steps", lambda: len(job.steps) > WARM_UP)
        return job.next_steps()
    finally:
        job.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", default="build/release/bin/sluice", help="the program")
    parser.add_argument("--pythonpath", default="build/release/python", help="the Python package")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    python = str(Path(arguments.pythonpath).resolve())
    found: dict[str, dict[str, list[float]]] = {FAST: {}, SLOW: {}}
    for run in range(arguments.runs):
        print(f"run {run + 1} of {arguments.runs}", file=sys.stderr)
        with (
            tempfile.TemporaryDirectory() as folder,
            Lab(arguments.sluice, RANKS, FAST) as lab,
        ):
            for rate, steps in with_auto(lab, python, folder).items():
                found[rate].setdefault("auto", []).append(statistics.median(steps))
            for rate in (SLOW, FAST):
                lab.call("set", "--host", f"0-{RANKS - 1}", "--rate", rate)
                for algorithm in BY_HAND:
                    steps = by_hand(lab, python, folder, algorithm)
                    found[rate].setdefault(algorithm, []).append(statistics.median(steps))
    figures = {}
    for rate, by_algorithm in found.items():
        best = min(BY_HAND, key=lambda name: statistics.median(by_algorithm[name]))
        runs = zip(by_algorithm["auto"], by_algorithm[best], strict=True)
        regrets = [auto / by_best for auto, by_best in runs]
        figures[rate] = {
            "seconds": by_algorithm,
            "best": best,
            "regret": statistics.median(regrets),
            "regret_range": [min(regrets), max(regrets)],
        }
        print(f"{rate}: the best by hand is {best}; auto takes {statistics.median(regrets):.3f} of "
              f"its time ({min(regrets):.3f} to {max(regrets):.3f})")  # fmt: skip
        for name, seconds in by_algorithm.items():
            print(f"  {name:8} {statistics.median(seconds) * 1000:7.1f} ms")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
