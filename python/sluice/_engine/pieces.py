"""The parameters of a model, cut into pieces that ranks compare one after the other: a large model
costs a step no more than a small one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sluice._tensor.slots import is_dense

# All pieces are compared in the first steps, since mistakes in a program show early, and then
# again and again.
_FIRST_STEPS, _STEPS = 20, 1000
_LEAST = 1 << 16  # bytes of a piece; a small model is one piece
_MOST_ITEMS = 400  # in one comparison
# Ranks that round differently drift apart in parts of 1e-7 a step; another learning rate is parts
# of 1e-3 and more away.
_NEAR = 1e-4

Named = tuple[str, Tensor]


@dataclass(frozen=True)
class Item:
    """Some elements of one tensor."""

    name: str
    tensor: Tensor
    first: int
    last: int  # behind the last one

    def values(self) -> Tensor:
        """Returns them in the host's memory, as they lie in memory."""
        whole = self.tensor.detach()
        if not is_dense(whole):
            whole = whole.contiguous()
        return whole.as_strided((whole.numel(),), (1,))[self.first : self.last].cpu()


class Pieces:
    def __init__(self, named: Iterable[Named]) -> None:
        tensors = [(name, tensor) for name, tensor in named if tensor.numel() > 0]
        size = sum(tensor.numel() * tensor.element_size() for _, tensor in tensors)
        piece = max(_LEAST, -(-size // _STEPS))
        self._pieces: list[list[Item]] = [[]]
        room = piece
        for name, tensor in tensors:
            first = 0
            while first < tensor.numel():
                if room <= 0 or len(self._pieces[-1]) == _MOST_ITEMS:
                    self._pieces.append([])
                    room = piece
                last = min(tensor.numel(), first + max(1, room // tensor.element_size()))
                self._pieces[-1].append(Item(name, tensor, first, last))
                room -= (last - first) * tensor.element_size()
                first = last

    def of(self, comparison: int) -> list[Item]:
        """Returns what the comparison with this number looks at, counted from 1. No comparison is
        empty: a small model is looked at in every step."""
        turn, turns = comparison - 1, _FIRST_STEPS
        if turn >= turns:
            turn, turns = (turn - turns) % _STEPS, _STEPS
        count = len(self._pieces)
        begin, end = turn * count // turns, math.ceil((turn + 1) * count / turns)
        return [item for piece in self._pieces[begin:end] for item in piece][:_MOST_ITEMS]

    def all(self) -> list[list[Item]]:
        """Returns all items, in parts that one comparison can take each."""
        items = [item for piece in self._pieces for item in piece]
        return [items[n : n + _MOST_ITEMS] for n in range(0, len(items), _MOST_ITEMS)]


def summary(values: Tensor) -> tuple[float, float]:
    """Returns the sum of the values and of their sizes: all of them count, and rounding changes
    neither by much."""
    if not values.is_floating_point():
        values = values.to(torch.float64)
    return (
        float(values.sum(dtype=torch.float64)),
        float(values.abs().sum(dtype=torch.float64)),
    )


def is_rounding(summaries: list[list[tuple[float, float]]]) -> bool:
    """True iff the summaries of all ranks, item by item, are as near as rounding leaves them."""
    if not summaries or any(len(each) != len(summaries[0]) for each in summaries):
        return False
    for items in zip(*summaries, strict=True):
        scale = max(size for _, size in items)
        if not math.isfinite(scale) or scale == 0:
            return False
        for column in zip(*items, strict=True):
            if max(column) - min(column) > _NEAR * scale:
                return False
    return True
