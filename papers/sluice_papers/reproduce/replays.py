"""Numbers out of what `sluice bench` writes: speed-ups with their intervals, and the use of a
link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.plans import Measure
from sluice_papers.reproduce.rows import Measured, Part
from sluice_papers.reproduce.verdicts import interval

Figures = dict[str, Any]
_IDLE = 0.05  # of the link's rate: a sample below it counts as idle
_BLOCKS = 4  # that the samples of a link are cut into, to see how much they differ


@dataclass(frozen=True)
class Of:
    """One algorithm's figures in a part. `where` picks one point of a series."""

    part: Part
    algorithm: str
    where: Mapping[str, Any] = field(default_factory=dict)

    def figures(self, kept: Kept) -> Figures | None:
        return next(iter(self.all(kept)), None)

    def all(self, kept: Kept) -> list[Figures]:
        return [
            row
            for row in kept.data(self.part) or []
            if row["algorithm"] == self.algorithm
            and all(row[key] == value for key, value in self.where.items())
        ]


def speedup(slow: Of, fast: Of) -> Measure:
    """How many times as fast `fast` is. Runs of one round are compared, since the machine may have
    been slower in another."""

    def measure(kept: Kept) -> Measured | None:
        below, above = slow.figures(kept), fast.figures(kept)
        return None if below is None or above is None else _over(below, above)

    return measure


def _over(slow: Figures, fast: Figures) -> Measured:
    pairs = zip(slow["runs_s"], fast["runs_s"], strict=False)
    return interval([one / other for one, other in pairs])


def best_speedup(part: Part, slow: str, fast: str, along: str = "ratio") -> Measure:
    """The largest speed-up of a series."""

    def measure(kept: Kept) -> Measured | None:
        found = {row[along]: row for row in Of(part, fast).all(kept)}
        pairs = [
            (row, found[row[along]]) for row in Of(part, slow).all(kept) if row[along] in found
        ]
        return max((_over(*pair) for pair in pairs), key=lambda one: one.value, default=None)

    return measure


def repeated(parts: Sequence[Part], take: Callable[[Any], float]) -> Measure:
    """A number that several parts have measured, one after the other."""

    def measure(kept: Kept) -> Measured | None:
        found = [take(data) for part in parts if (data := kept.data(part)) is not None]
        return interval(found) if found else None

    return measure


def _both(
    one: Measure, other: Measure, take: Callable[[Measured, Measured], Measured | None]
) -> Measure:
    def measure(kept: Kept) -> Measured | None:
        first, second = one(kept), other(kept)
        return None if first is None or second is None else take(first, second)

    return measure


def over(one: Measure, other: Measure) -> Measure:
    """The quotient of two measures, none of nothing. Margins add up as independent ones do."""

    def quotient(above: Measured, below: Measured) -> Measured | None:
        if below.value == 0:
            return None
        value = above.value / below.value
        margins = (above.margin / below.value, value * below.margin / below.value)
        return Measured(value, sum(margin**2 for margin in margins) ** 0.5)

    return _both(one, other, quotient)


def difference(one: Measure, other: Measure) -> Measure:
    def minus(above: Measured, below: Measured) -> Measured:
        margin = (above.margin**2 + below.margin**2) ** 0.5
        return Measured(above.value - below.value, margin)

    return _both(one, other, minus)


def _of_row(of: Of, take: Callable[[Figures], Measured | None]) -> Measure:
    def measure(kept: Kept) -> Measured | None:
        row = of.figures(kept)
        return None if row is None else take(row)

    return measure


def linear_share(of: Of) -> Measure:
    """The throughput of all workers over that of as many workers without a network."""
    return _of_row(of, lambda row: interval([row["compute_s"] / run for run in row["runs_s"]]))


def exposed(of: Of) -> Measure:
    """Seconds of an iteration in which nothing is computed."""
    return _of_row(of, lambda row: interval([run - row["compute_s"] for run in row["runs_s"]]))


def models_on_wire(of: Of, model_bytes: float) -> Measure:
    """Models that a worker sends in a step, as its interface counts them."""
    return _of_row(of, lambda row: Measured(row["payload_bytes"] / row["workers"] / model_bytes))


def _blocks(row: Figures) -> list[list[tuple[float, float]]]:
    """Returns samples (sent, received) over the link's rate, in blocks."""
    use, rate = row["utilisation"], row["rate_bits_per_s"]
    samples = [
        (sent / rate, received / rate)
        for sent, received in zip(use["sent_bits_per_s"], use["received_bits_per_s"], strict=True)
    ]
    size = max(1, len(samples) // _BLOCKS)
    return [samples[start : start + size] for start in range(0, size * _BLOCKS, size)]


def _share(of: Of, *, idle: bool) -> Measure:
    def counts(sample: Sequence[float]) -> bool:
        return max(sample) < _IDLE if idle else min(sample) >= _IDLE

    def take(row: Figures) -> Measured | None:
        if "utilisation" not in row:
            return None
        return interval([sum(map(counts, block)) / len(block) for block in _blocks(row) if block])

    return _of_row(of, take)


def idle_share(of: Of) -> Measure:
    """The share of time in which the link carries nothing either way."""
    return _share(of, idle=True)


def both_ways_share(of: Of) -> Measure:
    """The share of time in which the link carries something both ways."""
    return _share(of, idle=False)
