"""Measures training over a window of steps, for algorithm="auto": layer times, the rate at which
payloads come in, and waits. Makes of them the files that `sluice plan` reads."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sluice._training import Training

_MOST_SECONDS = 1e6
_MOST_RATE = 1e15  # bits per second
_COUNTED = 0.75  # of the rounds; the slowest ones may have waited for a busy machine
_SLOW_HOST = 0.7  # of the usual rate: such a host is named to the planner


@dataclass(frozen=True)
class Measured:
    """Seconds of one round, as a mean of several, and bits per second; a rate of 0 is not known."""

    iteration: float
    waited: float
    compute: float  # forward and backward
    other: float
    rate: float

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: bytes) -> Measured | None:
        """Returns another rank's words; None if they cannot be right."""
        try:
            one = Measured(**{key: float(value) for key, value in json.loads(text).items()})
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        seconds = (one.iteration, one.waited, one.compute, one.other)
        is_time = all(0 <= each <= _MOST_SECONDS for each in seconds)
        return one if is_time and one.iteration > 0 and 0 <= one.rate <= _MOST_RATE else None


class Window:
    """The rounds since it was made. REQUIRES: the session stays open."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.rounds = training.spent.rounds
        self._began = time.perf_counter()
        self._waited = training.spent.waited
        self._forward = dict(training.spent.times.forward)
        self._backward = dict(training.spent.times.backward)
        self._moved = _moved(training)
        self._received = _received(training)  # at the last note
        self._rates: list[tuple[float, int, float]] = []  # of each note, with bytes and seconds

    def note(self) -> None:
        """Notes the rate since the last note, for a rate without the slowest rounds. Call it after
        each round."""
        received, seconds = _received(self._training)
        part = received - self._received[0], seconds - self._received[1]
        if part[0] > 0 and part[1] > 0:
            self._rates.append((part[0] / part[1], *part))
        self._received = received, seconds

    @property
    def is_empty(self) -> bool:
        return self._training.spent.rounds == self.rounds

    def look(self) -> tuple[Measured, list[dict[str, Any]]]:
        """Returns the measured means, and the tensors in the plan's order with both times."""
        self.note()
        spent = self._training.spent
        rounds = max(1, spent.rounds - self.rounds)
        tensors = self._tensors(rounds)
        compute = sum(tensor["forward"] + tensor["backward"] for tensor in tensors)
        iteration = (time.perf_counter() - self._began) / rounds
        waited = (spent.waited - self._waited) / rounds
        rate = min(self._rate(), _MOST_RATE)
        other = max(0.0, iteration - waited - compute)
        return Measured(iteration, waited, compute, other, rate), tensors

    def _rate(self) -> float:
        """Returns bits per second; 0 if nothing has come. Payloads that are too small to be timed
        show only how much came while gradients were on their way, which may be less than the
        network can do."""
        counted = sorted(self._rates)[int((1 - _COUNTED) * len(self._rates)) :]
        seconds = sum(part[2] for part in counted)
        if seconds > 0:
            return 8 * sum(part[1] for part in counted) / seconds
        received, seconds = _moved(self._training)
        seconds -= self._moved[1]
        return 8 * (received - self._moved[0]) / seconds if seconds > 0 else 0.0

    def _tensors(self, rounds: int) -> list[dict[str, Any]]:
        """The first tensor of a gate has the times of all: they are read together."""
        times = self._training.spent.times
        forward, backward = times.forward, times.backward
        seen = set()
        tensors = []
        for slot in self._training.slots:
            is_first = slot.gate not in seen
            seen.add(slot.gate)
            since = (
                forward.get(slot.gate, 0.0) - self._forward.get(slot.gate, 0.0),
                backward.get(slot.gate, 0.0) - self._backward.get(slot.gate, 0.0),
            )
            tensors.append(
                {
                    "name": slot.name,
                    "parameters": slot.elements,
                    "forward": max(0.0, since[0]) / rounds if is_first else 0.0,
                    "backward": max(0.0, since[1]) / rounds if is_first else 0.0,
                }
            )
        return tensors


def together(ranks: Sequence[Measured]) -> Measured:
    """Returns what all ranks train by: the slowest computes for all, and of rates the usual one."""
    slowest = max(ranks, key=lambda one: one.compute)
    return Measured(
        iteration=max(one.iteration for one in ranks),
        waited=slowest.waited,
        compute=slowest.compute,
        other=slowest.other,
        rate=statistics.median(one.rate for one in ranks),
    )


def profile(name: str, measured: Measured, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the document that `sluice profile` writes, with rank 0's shares of the layers."""
    whole = sum(tensor["forward"] + tensor["backward"] for tensor in tensors)
    shares = [
        {**one, "forward": one["forward"] / whole, "backward": one["backward"] / whole}
        for one in tensors
    ]
    return {
        "model": name,
        "note": f"measured in training: {measured.compute * 1e3:.1f} ms of forward and backward, "
        f"{measured.other * 1e3:.1f} ms elsewhere",
        "compute_s": measured.compute,
        "other_s": measured.other,
        "unit": "fraction of one forward+backward",
        "tensors": shares,
    }


def network(ranks: Sequence[Measured], *, encrypted: bool) -> dict[str, Any]:
    """Returns the network as the ranks have seen it; hosts that are far slower have lines of their
    own."""
    usual = together(ranks).rate
    hosts = {
        str(rank): {"out": bits(one.rate), "in": bits(one.rate)}
        for rank, one in enumerate(ranks)
        if 0 < one.rate < _SLOW_HOST * usual
    }
    document: dict[str, Any] = {"rate": bits(usual), "encrypted": encrypted}
    return {**document, "hosts": hosts} if hosts else document


def bits(rate: float) -> str:
    return f"{max(1000, round(rate))}bit"


def _received(training: Training) -> tuple[int, float]:
    return (0, 0.0) if training.session is None else training.session.receiving


def _moved(training: Training) -> tuple[int, float]:
    session = training.session
    return (0, 0.0) if session is None else (session.bytes_moved[1], session.seconds_on_the_way)
