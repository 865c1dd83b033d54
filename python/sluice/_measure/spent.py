"""The seconds of one model's training that sluice.report() speaks of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from sluice._measure.clocks import Clock
from sluice._measure.layer_times import LayerTimes


class Spent:
    """Rounds and seconds of one model; seconds count from its last plan on."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock  # of the layers' computing
        self.rounds = 0  # backward passes that made gradients
        self.waited = 0.0  # for parameters and mean gradients
        self.times = LayerTimes(clock)
        self.began = 0.0  # when the first round after the plan had ended
        self.first_round = 0.0  # of the network, with nothing else to do; 0: not seen
        self._planned_in_round = 0

    def plan_is_made(self) -> None:
        """Starts to count anew."""
        self._planned_in_round, self.waited = self.rounds, 0.0
        self.times = LayerTimes(self._clock)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts what is done meanwhile as a wait, which is no layer's computing."""
        begun = time.perf_counter()
        with self.times.paused():
            yield
        self.waited += time.perf_counter() - begun

    @property
    def elapsed(self) -> float:
        """Seconds since the first round had ended."""
        return time.perf_counter() - self.began

    @property
    def planned_rounds(self) -> int:
        """Rounds since the plan was made, and at least one."""
        return max(1, self.rounds - self._planned_in_round)
