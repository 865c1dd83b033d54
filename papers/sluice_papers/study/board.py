"""Memory that the workers of one run share with the process that forked them. Each worker writes in
its own row."""

from __future__ import annotations

import math
import mmap
import multiprocessing

import torch
from torch import Tensor

_TEXT = 1000  # bytes of an error


class Board:
    def __init__(self, workers: int, epochs: int, parameters: int, batches: int) -> None:
        self.workers = workers
        # Rank 0's copy of the server's model or of the centre.
        self.scored = _zeros(torch.float32, epochs, parameters)
        # Each worker's own model at the end of each epoch.
        self.models = _zeros(torch.float32, epochs, workers, parameters)
        # Seconds from the start to the end of an epoch.
        self.crossed = _zeros(torch.float64, epochs, workers)
        self.own_accuracy = _zeros(torch.float64, workers)
        # Seconds that steps waited for parameters.
        self.blocked = _zeros(torch.float64, workers)
        # Moments of the steady clock: a step before it ended, it began, and it ended.
        self.spans = _zeros(torch.float64, workers, batches, 3)
        self.steps = _zeros(torch.int64, workers)  # steps in the measured time
        self.computed = _zeros(torch.float64, workers)  # seconds of these steps
        # Steps that took over a tenth longer than the pace.
        self.late = _zeros(torch.int64, workers)
        self.sent = _zeros(torch.int64, workers)  # bytes
        # Steps in which data was used; 0: still training.
        self.clocks = _zeros(torch.int64, workers)
        self._taken = multiprocessing.get_context("fork").Value("q", 0)
        self._errors = _zeros(torch.uint8, workers, _TEXT)

    def take_batch(self) -> int:
        """Takes the next batch that no worker has taken yet, and returns its number."""
        with self._taken.get_lock():
            number = self._taken.value
            self._taken.value += 1
        return int(number)

    def write_error(self, rank: int, error: BaseException) -> None:
        line = " ".join(f"{type(error).__name__}: {error}".split()).encode()[:_TEXT]
        self._errors[rank, : len(line)] = torch.frombuffer(bytearray(line), dtype=torch.uint8)

    def error(self, rank: int) -> str:
        return bytes(self._errors[rank].tolist()).rstrip(b"\0").decode(errors="replace")


def _zeros(dtype: torch.dtype, *shape: int) -> Tensor:
    bytes_of_all = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(mmap.mmap(-1, bytes_of_all), dtype=dtype).view(shape)
