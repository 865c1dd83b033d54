"""Measures copies between an accelerator and pinned memory of the host, alone, beside each other,
and beside computing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

_PIECE = 2 << 20  # bytes, as sluice copies them
_AT_ONCE = 16  # pieces in one measurement


class Copies:
    """Memory on both sides, and a stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self._out_stream, self._in_stream = torch.Stream(device), torch.Stream(device)
        self._on_device = torch.ones(_AT_ONCE * _PIECE, dtype=torch.uint8, device=device)
        self._target = torch.empty_like(self._on_device)
        self._host = torch.empty(_AT_ONCE * _PIECE, dtype=torch.uint8, pin_memory=True)
        self._source = torch.ones(_AT_ONCE * _PIECE, dtype=torch.uint8, pin_memory=True)
        self._matrix = torch.randn(512, 512, device=device)

    def to_host(self) -> None:
        with self._out_stream:
            _copy(self._host, self._on_device)

    def to_device(self) -> None:
        with self._in_stream:
            _copy(self._target, self._source)

    def compute(self) -> None:
        product = self._matrix
        for _ in range(8):
            product = torch.mm(product, self._matrix)


def measure(device: torch.device, seconds: float) -> dict[str, float]:
    """Returns bytes per second of each direction, and which part of a copy's time is hidden behind
    computing and behind copies of the other direction: 1 is all of it."""
    copies = Copies(device)
    budget = seconds / 6
    out = _time([copies.to_host], budget)
    back = _time([copies.to_device], budget)
    compute = _time([copies.compute], budget)
    both = _time([copies.to_host, copies.to_device], budget)
    beside = _time([copies.compute, copies.to_host], budget)
    size = _AT_ONCE * _PIECE
    return {
        "to_host_bytes_per_second": size / out,
        "to_device_bytes_per_second": size / back,
        "overlap_of_directions": _hidden(out, back, both),
        "overlap_with_computing": _hidden(out, compute, beside),
    }


def _copy(to: Tensor, source: Tensor) -> None:
    for piece in range(_AT_ONCE):
        part = slice(piece * _PIECE, (piece + 1) * _PIECE)
        to[part].copy_(source[part], non_blocking=True)


def _time(queue: list[Callable[[], None]], seconds: float) -> float:
    """Returns the median time until all of it is done."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
        torch.accelerator.synchronize()
        begun = time.perf_counter()
        for one in queue:
            one()
        torch.accelerator.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _hidden(one: float, other: float, both: float) -> float:
    """Returns the part of the shorter time that took place during the longer one."""
    return max(0.0, min(1.0, (one + other - both) / min(one, other)))
