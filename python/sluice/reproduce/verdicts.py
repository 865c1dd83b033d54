"""The verdict on a claim and on a row, from result files only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, stdev

from sluice.reproduce.kept import Kept
from sluice.reproduce.rows import Claim, Measured, Row

# Student's t for a 95 % interval, two-sided, by degrees of freedom.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 20: 2.09}


class Verdict(StrEnum):
    AS = "as in the paper"
    NOT_SEPARABLE = "not separable"
    OTHERWISE = "otherwise"
    NOT_HERE = "not reproducible here"
    MISSING = "not made yet"
    NO_CONTENT = "nothing to reproduce"


@dataclass(frozen=True)
class Judged:
    claim: Claim
    ours: Measured | None
    verdict: Verdict | None  # None: no inequality


def interval(values: Sequence[float]) -> Measured:
    """Returns the mean of repeated measurements. One measurement has no interval: every inequality
    that it meets is not separable."""
    if len(values) < 2:
        return Measured(values[0], math.inf)
    freedom = max(known for known in _T if known <= len(values) - 1)
    return Measured(mean(values), _T[freedom] * stdev(values) / math.sqrt(len(values)))


def judge(claim: Claim, kept: Kept) -> Judged:
    ours = claim.measure(kept)
    if claim.least is None and claim.most is None:
        return Judged(claim, ours, None)
    if ours is None:
        return Judged(claim, None, Verdict.MISSING)
    low, high = ours.value - ours.margin, ours.value + ours.margin
    least = -math.inf if claim.least is None else claim.least
    most = math.inf if claim.most is None else claim.most
    if least < low and high < most:
        return Judged(claim, ours, Verdict.AS)
    if high <= least or low >= most:
        return Judged(claim, ours, Verdict.OTHERWISE)
    return Judged(claim, ours, Verdict.NOT_SEPARABLE)


def of_row(row: Row, kept: Kept) -> Verdict:
    """A row is as in the paper if every claim of the paper that has a result is. One that is
    otherwise makes the row otherwise. An inequality of our own has no printed counterpart."""
    if not row.has_content:
        return Verdict.NO_CONTENT
    if row.reason:
        return Verdict.NOT_HERE
    found = {judge(claim, kept).verdict for claim in row.claims if claim.printed}
    for verdict in (Verdict.OTHERWISE, Verdict.NOT_SEPARABLE, Verdict.AS):
        if verdict in found:
            return verdict
    return Verdict.MISSING
