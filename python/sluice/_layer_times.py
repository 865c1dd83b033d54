"""Measures how long each layer computes during training, for the bound in sluice.report()."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable


class LayerTimes:
    """Seconds of the training thread, by layer and summed over rounds. A layer's forward lasts from
    its own first read to the next layer's; its backward from the gradient before to its own. Pauses
    such as waits are charged to no layer.

    The caller reports every event; this class observes nothing itself. A layer is any key by which
    the caller tells layers apart."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.forward: dict[Hashable, float] = {}
        self.backward: dict[Hashable, float] = {}
        self._now = now
        # The begin of the current computation; None if no computation counts.
        self._since: float | None = None
        self._reading: Hashable = None
        self._is_forward = False

    def forward_begins(self) -> None:
        self._since, self._reading, self._is_forward = self._now(), None, True

    def reads(self, layer: Hashable) -> None:
        if self._is_forward:
            self._charge(self.forward, self._reading)
            self._reading = layer

    def forward_ends(self) -> None:
        if self._is_forward:
            self._charge(self.forward, self._reading)
            self._is_forward = False

    def gradient(self, layer: Hashable) -> None:
        if not self._is_forward:
            self._charge(self.backward, layer)

    def backward_ends(self) -> None:
        self._since = None

    def pause(self, seconds: float) -> None:
        if self._since is not None:
            self._since += seconds

    def _charge(self, to: dict[Hashable, float], layer: Hashable) -> None:
        if self._since is None:
            return
        now = self._now()
        if layer is not None:  # None: before the first read
            to[layer] = to.get(layer, 0.0) + now - self._since
        self._since = now
