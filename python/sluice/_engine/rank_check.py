"""Compares the parameters of all ranks every few steps, and also the optimizer's state if every
rank has all of it.

The tensors are hashed between two steps, when each has its value as of the same step. The hashes
are compared in the background, and the next call raises an error if they differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sluice import _core
from sluice._job.job import Job
from sluice._tensor.slots import is_dense

_BY_DEBUG = 100  # steps, with SLUICE_DEBUG=ranks

Named = tuple[str, Tensor]


def check_every(job: Job) -> int:
    """Returns the number of steps between two comparisons of the ranks; 0: never. Refuses
    algorithms that let ranks differ."""
    every = int(job.option("check-ranks-every"))
    if every == 0 and "ranks" in (job.option("debug"), os.environ.get("SLUICE_DEBUG")):
        every = _BY_DEBUG
    if every < 0:
        raise ValueError(f"check-ranks-every is a number of steps, not {every}")
    if every > 0 and not job.algorithm.keeps_ranks_equal:
        raise ValueError(
            f"algorithm={job.option('algorithm')} lets ranks differ, so they cannot be compared: "
            "leave check-ranks-every out"
        )
    return every if not job.is_alone else 0


class RankCheck:
    def __init__(self, job: Job, name: str, every: int, fail: Callable[[str], None]) -> None:
        self._job, self._name, self._every, self._fail = job, name, every, fail
        self._checked = 0  # the last step that was compared
        self._pending: list[tuple[int, list[str], _core.Comparison]] = []

    def after(self, step: int, named: Callable[[], Iterator[Named]]) -> None:
        """Starts a comparison of all tensors as this step has left them. A call that is made again
        after an exception compares nothing twice."""
        if step == self._checked or step % self._every != 0:
            return
        names, places, kept = [], [], []
        for name, tensor in named():
            host = tensor.detach().cpu()
            flat = host if is_dense(host) else host.contiguous()
            names.append(name)
            kept.append(flat)
            places.append((flat.data_ptr(), flat.numel() * flat.element_size()))
        self._checked = step
        self._pending.append(
            (step, names, _core.Comparison(self._job.core, f"ranks/{self._name}/{step}", places))
        )

    def look(self) -> None:
        """Fails if a comparison has ended with a difference."""
        while self._pending and self._pending[0][2].has_ended:
            step, names, comparison = self._pending.pop(0)
            if (found := comparison.difference()) is not None:
                first, count, ranks = found
                which = (
                    f"'{names[first]}'"
                    if count == 1
                    else f"one of {count} tensors from '{names[first]}' on"
                )
                self._fail(
                    f"the ranks have different parameters: {which} differs on {ranks} after step "
                    f"{step}"
                )


def state_of(optimizer: torch.optim.Optimizer, names: dict[Tensor, str]) -> Iterator[Named]:
    """Yields the state tensors of the parameters that have names, in the order of the optimizer."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in names:
                continue
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                if isinstance(value, Tensor):
                    yield f"{key} of {names[parameter]}", value
