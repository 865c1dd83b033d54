"""Differences of means with their 95 % margins. Seeds share data order and first weights, so
differences are paired by seed; without common seeds they are Welch's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance

# Student's t for a 95 % interval, two-sided, by degrees of freedom.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 20: 2.09}


def student_t(freedom: float) -> float:
    """Returns the value for these degrees of freedom, or that of the next smaller known ones."""
    return _T[max((known for known in _T if known <= freedom), default=1)]


@dataclass(frozen=True)
class Difference:
    value: float
    margin: float | None  # half of the 95 % interval; None: one seed only
    kind: str  # "paired" or "Welch"

    @property
    def is_separable(self) -> bool:
        return self.margin is not None and abs(self.value) > self.margin


def margin_of_mean(values: Sequence[float]) -> float | None:
    """Returns half of the mean's 95 % interval; None for one value."""
    if len(values) < 2:
        return None
    return student_t(len(values) - 1) * math.sqrt(variance(values) / len(values))


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> Difference | None:
    """Compares values by seed. Returns None if one side has no value."""
    if not one or not other:
        return None
    common = sorted(one.keys() & other.keys())
    if common:
        differences = [one[seed] - other[seed] for seed in common]
        return Difference(mean(differences), margin_of_mean(differences), "paired")
    return _welch(list(one.values()), list(other.values()))


def _welch(one: Sequence[float], other: Sequence[float]) -> Difference:
    value = mean(one) - mean(other)
    if min(len(one), len(other)) < 2:
        return Difference(value, None, "Welch")
    parts = [variance(values) / len(values) for values in (one, other)]
    total = sum(parts)
    if total == 0:
        return Difference(value, 0.0, "Welch")
    lengths = (len(one), len(other))
    freedom = total**2 / sum(p**2 / (n - 1) for p, n in zip(parts, lengths, strict=True))
    return Difference(value, student_t(freedom) * math.sqrt(total), "Welch")
