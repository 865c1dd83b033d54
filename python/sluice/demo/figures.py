"""From the measured times to the figures that the demo shows."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from sluice._core import p3_bound
from sluice.demo.link import GOODPUT, Link


@dataclass(frozen=True)
class Profile:
    """A step without a network: the times of its tensors, and their bytes."""

    profile: dict[str, Any]  # as sluice.Profile saves it
    step_s: float

    @property
    def bytes(self) -> int:
        """Returns the bytes of all gradients. With two ranks each rank sends and receives as many
        in a step, with an all-reduce and with parameter servers."""
        return 4 * sum(int(tensor["parameters"]) for tensor in self.profile["tensors"])

    @property
    def passes_s(self) -> float:
        """Returns the seconds of forward and backward in a step of `step_s`. The profile's own
        times contain the cost of measuring."""
        passes, other = self.profile["compute_s"], self.profile["other_s"]
        return float(self.step_s * passes / (passes + other))

    def balanced_rate(self) -> float:
        """Returns the bits per second at which gradients travel as long as a step computes."""
        return 8 * self.bytes / GOODPUT / self.passes_s

    def wire_s(self, rate: float) -> float:
        return 8 * self.bytes / GOODPUT / rate

    def bound_s(self, rate: float) -> float:
        """Returns the shortest step that any order of sending can have: P3's bound, and the rest of
        the loop."""
        layers = [
            (
                tensor["forward"] * self.passes_s,
                tensor["backward"] * self.passes_s,
                4.0 * tensor["parameters"],
            )
            for tensor in self.profile["tensors"]
        ]
        return p3_bound(layers, self.wire_s(rate) / self.bytes) + self.step_s - self.passes_s


@dataclass(frozen=True)
class Figures:
    """The figures of all rounds, in seconds a step."""

    rate: float
    link: str
    plain: list[float]
    ddp: list[float]
    sluice: list[float]
    bound: list[float]
    wire_s: float
    steps: int  # of each way, in all
    digests: list[str]  # of DDP and of sluice, on each rank

    @property
    def speedups(self) -> list[float]:
        return [theirs / ours for theirs, ours in zip(self.ddp, self.sluice, strict=True)]

    @property
    def speedup(self) -> float:
        """Returns the median over the rounds: within a round the machine is equally fast."""
        return statistics.median(self.speedups)

    @property
    def over_bound(self) -> float:
        ratios = [ours / bound for ours, bound in zip(self.sluice, self.bound, strict=True)]
        return statistics.median(ratios)

    @property
    def has_same_bits(self) -> bool:
        return len(set(self.digests)) == 1


def figures_of(profile: Profile, ranks: list[dict[str, Any]], link: Link) -> Figures:
    """Joins the results of both ranks. A step is as long as that of the slower rank."""

    def slower(way: str) -> list[float]:
        return [max(both) for both in zip(*(rank["step_s"][way] for rank in ranks), strict=True)]

    plain = slower("plain")
    bounds = [Profile(profile.profile, step).bound_s(link.rate) for step in plain]
    return Figures(
        rate=link.rate,
        link=link.kind,
        plain=plain,
        ddp=slower("ddp"),
        sluice=slower("sluice"),
        bound=bounds,
        wire_s=profile.wire_s(link.rate),
        steps=ranks[0]["steps"],
        digests=[rank["digests"][way] for rank in ranks for way in ("ddp", "sluice")],
    )
