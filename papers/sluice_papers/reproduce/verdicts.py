"""The verdict on a claim and on a row, from result files only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import mean

from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.rows import Claim, Measured, Row
from sluice_papers.study.statistics import margin_of_mean


class Verdict(str, Enum):
    __str__ = str.__str__

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
    margin = margin_of_mean(values)
    return Measured(mean(values), math.inf if margin is None else margin)


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
    otherwise makes the row otherwise. An inequality of our own does not count."""
    if not row.has_content:
        return Verdict.NO_CONTENT
    if row.reason:
        return Verdict.NOT_HERE
    found = {judge(claim, kept).verdict for claim in row.claims if not claim.is_ours}
    for verdict in (Verdict.OTHERWISE, Verdict.NOT_SEPARABLE, Verdict.AS):
        if verdict in found:
            return verdict
    return Verdict.MISSING
