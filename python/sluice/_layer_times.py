"""How long each layer computes, seen while training: what the bound in sluice.report() is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable


class LayerTimes:
    """Seconds of the training thread, by layer and summed over rounds. A layer's forward lasts from
    its own first read to the next layer's; its backward from the gradient before to its own.
    Pauses, as waits are, belong to nobody.

    It is told what happens, and looks at nothing itself. A layer is whatever the caller tells
    layers apart by."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.forward: dict[Hashable, float] = {}
        self.backward: dict[Hashable, float] = {}
        self._now = now
        self._since: float | None = (
            None  # what is being computed began then; None: nothing that counts
        )
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
