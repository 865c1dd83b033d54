"""Measures how long each layer computes during training, for the bound in sluice.report()."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

from sluice._measure.clocks import Clock


class LayerTimes:
    """Seconds of computing, by layer and summed over rounds. A layer's forward lasts from its own
    first read to the next layer's; its backward from the gradient before to its own. Pauses such as
    waits are charged to no layer. Without a clock nothing is measured.

    The caller reports every event; this class observes nothing itself. A layer is any key by which
    the caller tells layers apart."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._forward: dict[Hashable, float] = {}
        self._backward: dict[Hashable, float] = {}
        self._passes = 0
        self._measured_passes = 0
        # The begin of the current computation; None if no computation counts.
        self._since: Any = None
        self._before: list[tuple[Any, Any]] = []  # its spans before the last pause
        self._charges: deque[tuple[dict[Hashable, float], Hashable, list[tuple[Any, Any]]]]
        self._charges = deque()  # whose times are not added yet
        self._reading: Hashable = None
        self._is_forward = False

    @property
    def are_known(self) -> bool:
        return self._clock is not None

    @property
    def forward(self) -> dict[Hashable, float]:
        return self._of_all_passes(self._forward)

    @property
    def backward(self) -> dict[Hashable, float]:
        return self._of_all_passes(self._backward)

    def forward_begins(self) -> None:
        self._stop()
        self._settle()
        self._reading, self._is_forward = None, True
        if self._clock is not None:
            if self._passes % self._clock.every == 0:
                self._measured_passes += 1
                self._since = self._clock.now()
            self._passes += 1

    def reads(self, layer: Hashable) -> None:
        if self._is_forward:
            self._charge(self._forward, self._reading)
            self._reading = layer

    def forward_ends(self) -> None:
        if self._is_forward:
            self._charge(self._forward, self._reading)
            self._is_forward = False

    def gradient(self, layer: Hashable) -> None:
        if not self._is_forward:
            self._charge(self._backward, layer)

    def backward_ends(self) -> None:
        self._stop()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Charges to no layer what is done meanwhile. A pause inside another does nothing."""
        since = self._since  # threads of autograd charge times meanwhile
        if since is None or self._clock is None:
            yield
            return
        self._before.append((since, self._clock.now()))
        self._since = None
        try:
            yield
        finally:
            self._since = self._clock.now()

    def _stop(self) -> None:
        self._since = None
        self._before.clear()

    def _charge(self, to: dict[Hashable, float], layer: Hashable) -> None:
        since = self._since  # another thread may pause
        if since is None or self._clock is None:
            return
        now = self._clock.now()
        if layer is not None:  # None: before the first read
            self._charges.append((to, layer, [*self._before, (since, now)]))
        self._before.clear()
        self._since = now

    def _settle(self) -> None:
        """Adds the times of what has been computed."""
        if self._clock is None:
            return
        while self._charges and self._clock.is_over(self._charges[0][2][-1][1]):
            to, layer, spans = self._charges.popleft()
            seconds = sum(self._clock.between(begin, end) for begin, end in spans)
            to[layer] = to.get(layer, 0.0) + seconds

    def _of_all_passes(self, times: dict[Hashable, float]) -> dict[Hashable, float]:
        if self._charges and self._clock is not None:
            self._clock.wait(self._charges[-1][2][-1][1])
        self._settle()
        share = self._passes / max(1, self._measured_passes)
        return {layer: share * seconds for layer, seconds in times.items()}
