"""Clocks by which the computing of layers is measured: the host's, or a device's. In a hook, the
host's clock tells only when a device's work was queued."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Makes marks in the course of computing."""

    @property
    def every(self) -> int:
        """One pass of so many is measured."""

    def now(self) -> Any:
        """Returns a new mark."""

    def is_over(self, mark: Any) -> bool:
        """Returns true iff the computing before the mark is done."""

    def wait(self, mark: Any) -> None:
        """Waits until the computing before the mark is done."""

    def between(self, begin: Any, end: Any) -> float:
        """Returns the seconds from one mark to the next. REQUIRES: both are over."""


class HostClock:
    """Measures computing that the host does itself."""

    every = 1

    def now(self) -> float:
        return time.perf_counter()

    def is_over(self, mark: float) -> bool:
        return True

    def wait(self, mark: float) -> None:
        pass

    def between(self, begin: float, end: float) -> float:
        return end - begin


class DeviceClock:
    """Measures the work of the current stream by events. An event costs the training thread time,
    so few passes are measured."""

    every = 8

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> torch.Event:
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def is_over(self, mark: torch.Event) -> bool:
        return mark.query()

    def wait(self, mark: torch.Event) -> None:
        mark.synchronize()

    def between(self, begin: torch.Event, end: torch.Event) -> float:
        return begin.elapsed_time(end) / 1e3


def clock_of(device: torch.device | None) -> Clock | None:
    """Returns the clock for computing there, in host memory by default; None if the device's events
    have no times."""
    if device is None:
        return HostClock()
    clock = DeviceClock(device)
    try:
        begin, end = clock.now(), clock.now()
        clock.wait(end)
        clock.between(begin, end)
    except (NotImplementedError, RuntimeError):
        return None
    return clock
