"""Numbers out of runs of `sluice study`, for claims about accuracy. Seeds share data order and
first weights, so differences are taken seed by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.plans import Measure
from sluice_papers.reproduce.rows import Measured, Part, Tier
from sluice_papers.reproduce.verdicts import interval
from sluice_papers.study import algorithms
from sluice_papers.study.results import Results
from sluice_papers.study.time_parts import PARTS

# A perceptron of a million parameters, with DGC and without. At 99.8 % sparsity a worker sends a
# parameter once in 500 steps: three epochs of batches of 8 are 11,250 steps of each of two workers.
# More workers would share the same two cores, and an epoch would have fewer steps of each.
MILLION = (
    "sluice study --model mlp --dgc --workers 2 --batch 8 --learning-rate 0.03 "
    "--data fashion-mnist --data-dir {data} -o {folder} "
)
# The workers of bsp keep step, so any pace has the same accuracy; steps take longer than this one.
DGC_BSP = Part(
    "million-bsp",
    Tier.TRAIN,
    MILLION + "--algorithms bsp --seeds 5 --epochs 3 --pace 10 --dgc-sparsity 0.998",
    seconds=10 * 170,
)

# The same with one thing changed: elements that are sent keep their momentum.
DGC_BSP_UNMASKED = Part(
    "million-bsp-unmasked",
    Tier.TRAIN,
    MILLION
    + "--algorithms bsp --seeds 3 --epochs 3 --pace 10 --dgc-sparsity 0.998 --dgc-masking off",
    seconds=6 * 170,
)

Run = dict[str, Any]
BySeed = Callable[[Kept], dict[int, Run]]


@dataclass(frozen=True)
class Trained:
    part: Part
    algorithm: str
    workers: int
    dgc: bool = False

    def by_seed(self, kept: Kept) -> dict[int, Run]:
        """Returns the runs at the tuned rate that have not diverged."""
        found = Results(kept.data(self.part) or [])
        rows = found.of(algorithms.parse(self.algorithm), self.workers, dgc=self.dgc)
        return {row["seed"]: row for row in rows}


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


def drawn(part: Part, *draws: Callable[[Results, int], str]) -> Callable[[Kept], list[str]]:
    """Pictures of a part's runs, with the most workers that it has."""

    def draw(kept: Kept) -> list[str]:
        rows = kept.data(part)
        if not rows:
            return []
        found = Results(rows)
        return [one(found, max(found.workers)) for one in draws]

    return draw


def part_of_step(of: Trained, *parts: str) -> Measure:
    """The share of these parts in a step's time, over seeds."""

    def measure(kept: Kept) -> Measured | None:
        found = Results(kept.data(of.part) or [])
        rows = found.traced(algorithms.parse(of.algorithm), of.workers)
        split = [row["parts"] for row in rows]
        shares = [sum(one[part] for part in parts) / sum(one[p] for p in PARTS) for one in split]
        return interval(shares) if shares else None

    return measure


def updates(of: Trained) -> Measure:
    """How often a worker has sent a parameter, at least."""

    def measure(kept: Kept) -> Measured | None:
        found = [row["updates_per_parameter"] for row in of.by_seed(kept).values()]
        return Measured(min(found)) if found else None

    return measure


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
