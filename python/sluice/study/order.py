"""Compares the paper's order of final accuracy with ours, group by group, with the spread over
seeds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import mean

from sluice.study import paper
from sluice.study.algorithms import Algorithm
from sluice.study.results import Results, Spread

# Student's t for a 95 % interval, two-sided, by degrees of freedom.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 20: 2.09}


def student_t(freedom: int) -> float:
    """Returns the value for these degrees of freedom, or that of the next smaller known ones."""
    return _T[max(known for known in _T if known <= freedom)]


@dataclass(frozen=True)
class Verdict:
    workers: int
    better: str  # the group that is ahead in the paper
    worse: str
    difference: float  # difference of their mean accuracies; above 0 as in the paper
    margin: float | None  # 95 % margin of the difference; None: one seed only

    @property
    def word(self) -> str:
        if self.margin is None:
            return (
                "as in the paper, one seed"
                if self.difference > 0
                else "not as in the paper, one seed"
            )
        if abs(self.difference) <= self.margin:
            return "not separable"
        return "confirmed" if self.difference > 0 else "refuted"


def judge(results: Results, workers: int) -> list[Verdict]:
    """Compares neighbours in the paper's order of groups if both have been measured."""
    groups = [(", ".join(names), _by_seed(results, names, workers)) for names in paper.ORDER]
    measured = [(name, spread) for name, spread in groups if spread is not None]
    return [
        Verdict(workers, better, worse, above.mean - below.mean, _margin(above, below))
        for (better, above), (worse, below) in itertools.pairwise(measured)
    ]


def at_tuned_rates(results: Results, workers: int) -> list[tuple[str, float]]:
    """Returns the groups in the paper's order, with the mean of the accuracies that their
    algorithms reach at their best rates."""
    groups = []
    for names in paper.ORDER:
        best = [
            max(scores)
            for one in results.algorithms
            if one.name in names and (scores := _tried(results, one, workers))
        ]
        if best:
            groups.append((", ".join(names), mean(best)))
    return groups


def _tried(results: Results, algorithm: Algorithm, workers: int) -> list[float]:
    """Returns the accuracies of the first seed at all rates; an empty list if there is one rate
    only."""
    found = [
        rows[0]["accuracy"]
        for factor in results.factors
        if (rows := results.of(algorithm, workers, factor=factor))
    ]
    return found if len(found) > 1 else []


def _by_seed(results: Results, names: tuple[str, ...], workers: int) -> Spread | None:
    """Returns the mean accuracy of a group's algorithms for each seed that all of them have."""
    rows = [results.of(one, workers) for one in results.algorithms if one.name in names]
    rows = [of_one for of_one in rows if of_one]
    if not rows:
        return None
    seeds = set.intersection(*({row["seed"] for row in of_one} for of_one in rows))
    values = [
        mean(row["accuracy"] for of_one in rows for row in of_one if row["seed"] == seed)
        for seed in sorted(seeds)
    ]
    return Spread(tuple(values)) if values else None


def _margin(above: Spread, below: Spread) -> float | None:
    freedom = len(above.values) + len(below.values) - 2
    if min(len(above.values), len(below.values)) < 2:
        return None
    return student_t(freedom) * math.sqrt(above.error**2 + below.error**2)
