"""Numbers out of runs of `sluice study`, for claims about accuracy. Seeds share data order and
first weights, so differences are taken seed by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluice.reproduce.kept import Kept
from sluice.reproduce.plans import Measure
from sluice.reproduce.rows import Measured, Part
from sluice.reproduce.verdicts import interval

Run = dict[str, Any]
BySeed = Callable[[Kept], dict[int, Run]]
_CHANCE = 0.15  # ten classes: a run that ends below it has diverged


@dataclass(frozen=True)
class Trained:
    part: Part
    algorithm: str
    workers: int
    dgc: bool = False

    def by_seed(self, kept: Kept) -> dict[int, Run]:
        """Returns the runs that have not diverged."""
        wanted = (self.algorithm, self.workers, self.dgc, 1)
        return {
            row["seed"]: row
            for row in kept.data(self.part) or []
            if row["failed"] is None
            and (row["algorithm"], row["workers"], row["dgc"], row["rate_factor"]) == wanted
            and row["accuracy"] > _CHANCE
        }


def accuracy(of: Trained) -> Measure:
    def measure(kept: Kept) -> Measured | None:
        rows = of.by_seed(kept).values()
        return interval([100 * row["accuracy"] for row in rows]) if rows else None

    return measure


def ahead(better: Trained, worse: Trained) -> Measure:
    """By how many points of accuracy the one is ahead of the other."""
    return paired(
        better.by_seed,
        worse.by_seed,
        lambda one, other: 100 * (one["accuracy"] - other["accuracy"]),
    )


def times_to(slow: Trained, fast: Trained, share: float) -> Measure:
    """How many times as long `slow` takes to reach a share of what `fast` ends with."""
    return paired(slow.by_seed, fast.by_seed, lambda one, other: _quotient(one, other, share))


def _quotient(slow: Run, fast: Run, share: float) -> float:
    goal = share * fast["accuracy"]
    return _seconds_to(slow, goal) / _seconds_to(fast, goal)


def _seconds_to(run: Run, goal: float) -> float:
    """Returns when the accuracy was reached. A run that never reaches it counts with its whole
    time, which is too little."""
    for epoch in run["epochs"]:
        if epoch["accuracy"] >= goal:
            return float(epoch["seconds"])
    return float(run["seconds"])


def paired(one: BySeed, other: BySeed, take: Callable[[Run, Run], float]) -> Measure:
    """A number of two runs with the same seed, over all seeds that both have."""

    def measure(kept: Kept) -> Measured | None:
        ours, theirs = one(kept), other(kept)
        seeds = sorted(ours.keys() & theirs.keys())
        return interval([take(ours[seed], theirs[seed]) for seed in seeds]) if seeds else None

    return measure
