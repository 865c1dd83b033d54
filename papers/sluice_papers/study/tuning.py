"""The search for a learning rate. A rate is tuned when both its neighbours on the ladder are worse;
the search climbs or descends until that is so. One rung is about a factor of three."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FIRST = (0, -1, 1)  # rungs that are tried in any case
_LOWEST, _HIGHEST = -7, 4


def factor_at(rung: int) -> float:
    """Returns the factor of the rule's rate: ..., 0.1, 0.3, 1, 3, 10, ..."""
    return float(f"{(1 if rung % 2 == 0 else 3) * 10.0 ** (rung // 2):g}")


_RUNGS = {factor_at(rung): rung for rung in range(_LOWEST, _HIGHEST + 1)}


@dataclass(frozen=True)
class Tuned:
    factor: float | None  # the best so far; None: all that were tried have diverged
    is_tuned: bool
    missing: tuple[float, ...] = ()  # factors to try next; empty: the search has ended

    @property
    def text(self) -> str:
        if self.factor is None:
            return "diverged" if not self.missing else "not tuned yet"
        if self.is_tuned:
            return f"x {self.factor:g}"
        return f"x {self.factor:g}, {'not tuned yet' if self.missing else 'at the end of the grid'}"


def tune(scores: Mapping[float, float | None]) -> Tuned:
    """Judges the search. `scores` are accuracies by factor; None is a run that has diverged. Of
    two equal ones the lower rate counts as better."""
    tried = {_RUNGS[factor]: score for factor, score in scores.items() if factor in _RUNGS}
    good = {rung: score for rung, score in tried.items() if score is not None}
    best = max(good, key=lambda rung: (good[rung], -rung), default=None)
    missing = [rung for rung in _FIRST if rung not in tried]
    if not missing:
        wanted = [min(tried) - 1] if best is None else [best - 1, best + 1]
        missing = [r for r in wanted if r not in tried and _LOWEST <= r <= _HIGHEST]
    is_tuned = best is not None and best - 1 in tried and best + 1 in tried
    return Tuned(
        None if best is None else factor_at(best),
        is_tuned and not missing,
        tuple(factor_at(rung) for rung in missing),
    )


def nearest(workers: int, tuned_at: Iterable[int]) -> int | None:
    """Returns the number of workers whose rates these workers use: the nearest one by ratio, and of
    two the larger. None: no rate is tuned."""

    def distance(other: int) -> tuple[float, int]:
        return max(other / workers, workers / other), -other

    return min(tuned_at, key=distance, default=None)
