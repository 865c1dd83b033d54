"""`--check`: makes some rows again in another folder and says whether the kept numbers hold."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sluice_papers.reproduce import verdicts
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.rows import Claim, Measured, Part, Row

_SAME = 1e-6  # of a number without chance


@dataclass(frozen=True)
class Compared:
    row: Row
    claim: Claim
    kept: Measured
    again: Measured

    @property
    def holds(self) -> bool:
        """True iff the two intervals meet. Without an interval, numbers must be alike."""
        reach = self.kept.margin + self.again.margin
        if math.isinf(reach):
            reach = 0.25 * abs(self.kept.value)
        return abs(self.kept.value - self.again.value) <= reach + _SAME * abs(self.kept.value)


def draw(rows: Sequence[Row], kept: Kept, tiers: Sequence[str], seed: int | None) -> list[Row]:
    """Draws three rows that have results of these tiers."""
    known = [row for row in rows if parts_of(row, kept, tiers)]
    return random.Random(seed).sample(known, min(3, len(known)))


def parts_of(row: Row, kept: Kept, tiers: Sequence[str]) -> list[Part]:
    return [part for part in row.parts if part.tier in tiers and kept.is_made(part)]


def compare(
    rows: Sequence[Row], kept: Kept, again: Kept, tiers: Sequence[str], make: Callable[[Part], None]
) -> list[Compared]:
    """Makes the parts of the rows with `make`, which writes to `again`."""
    found = []
    for row in rows:
        for part in parts_of(row, kept, tiers):
            if again.entry(part) is None:
                make(part)
        for claim in row.claims:
            before = verdicts.judge(claim, kept).ours
            after = verdicts.judge(claim, again).ours
            if before is not None and after is not None:
                found.append(Compared(row, claim, before, after))
    return found
