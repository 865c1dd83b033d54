"""Compares the paper's order of final accuracy with ours, one algorithm against another at the same
number of workers, by paired seeds. Nothing is pooled over algorithms or their arguments, and runs
that have diverged are in no verdict."""

from __future__ import annotations

from dataclasses import dataclass

from sluice_papers.study import paper
from sluice_papers.study.algorithms import Algorithm, parse
from sluice_papers.study.results import Results
from sluice_papers.study.statistics import Difference, difference


@dataclass(frozen=True)
class Verdict:
    workers: int
    better: Algorithm  # the one that is ahead in the paper
    worse: Algorithm
    difference: Difference  # of accuracies; above 0 as in the paper

    @property
    def word(self) -> str:
        ahead = self.difference.value > 0
        if self.difference.margin is None:
            return "as in the paper, one seed" if ahead else "not as in the paper, one seed"
        if not self.difference.is_separable:
            return "not separable"
        return "confirmed" if ahead else "refuted"

    @property
    def theirs(self) -> float | None:
        """Their difference at this number of workers."""
        row = paper.TABLE_3.get(self.workers)
        return None if row is None else row[self.better.text] - row[self.worse.text]


def judge(results: Results, workers: int) -> list[Verdict]:
    """Judges the pairs of the paper if both have been measured and have not diverged."""
    found = []
    for better, worse in ((parse(one), parse(other)) for one, other in paper.PAIRS):
        judged = difference(results.by_seed(better, workers), results.by_seed(worse, workers))
        if judged is not None:
            found.append(Verdict(workers, better, worse, judged))
    return found


def bsp_between(results: Results, few: int, many: int) -> Difference | None:
    """Returns how much BSP loses from few to many workers, by paired seeds. If that is within its
    margin, the training is long enough to compare numbers of workers."""
    bsp = Algorithm("bsp")
    return difference(results.by_seed(bsp, few), results.by_seed(bsp, many))
