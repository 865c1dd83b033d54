"""What this rank's optimizers did since the last backward pass: how often step() was called, with
which numbers, and for which parameters. All ranks have to do the same."""

from __future__ import annotations

import zlib
from numbers import Real

from torch import Tensor
from torch.optim import Optimizer

from sluice._tensor.slots import Slot

# How a step is carried out, not what it does.
_IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
_MOST_TEXT = 1 << 20  # bytes of another rank's lines, once they are unpacked
_SLOTS = 64  # in one line of bits


class Steps:
    """The calls of step() since the last take(), as lines that all ranks compare."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._calls = 0

    def note(self, optimizer: Optimizer, slot_of: dict[Tensor, Slot]) -> None:
        """Notes one call of step(). Groups without a synchronised parameter are this rank's own
        affair, and so are words that the program keeps in a group."""
        self._calls += 1
        kind = f"{type(optimizer).__name__} in call {self._calls}"
        stepped = [0] * -(-len(slot_of) // _SLOTS)
        number = 0
        for group in optimizer.param_groups:
            slots = [slot for p in group["params"] if (slot := slot_of.get(p)) is not None]
            if not slots:
                continue
            for slot in slots:
                # A slot that no rank has a gradient for shows that only where step() has waited.
                if slot.parameter.grad is not None or slot.is_empty:
                    stepped[slot.index // _SLOTS] |= 1 << slot.index % _SLOTS
            for key in optimizer.defaults:
                if key not in _IMPLEMENTATION and (text := _number(group.get(key))):
                    self._lines.append(f"{key} of group {number} of {kind}\t{text}")
            number += 1
        for place, bits in enumerate(stepped):
            self._lines.append(f"_{place} of {kind}\t{bits:x}")

    def take(self) -> str:
        """Returns the calls since the last time."""
        lines = [f"the number of calls of step()\t{self._calls}", *self._lines]
        self._lines, self._calls = [], 0
        return "\n".join(lines)


def pack(text: str, most: int) -> bytes:
    """Returns the text, compressed; empty if that takes more bytes than `most`."""
    packed = zlib.compress(text.encode(), 1)
    return packed if len(packed) <= most else b""


def describe(packed: list[bytes], slots: list[Slot]) -> str:
    """Says in words what two ranks did differently, from every rank's packed lines."""
    ranks = [_unpack(each) for each in packed]
    for other, theirs in enumerate(ranks):
        for key in {**ranks[0], **theirs}:
            here, there = ranks[0].get(key), theirs.get(key)
            if here == there:
                continue
            if key.startswith("_"):
                return _describe_stepped(key, here or "0", there or "0", other, slots)
            return (
                f"{key} is {here or 'missing'} on rank 0, but {there or 'missing'} on rank {other}"
            )
    return "their settings differ"


def _describe_stepped(key: str, here: str, there: str, other: int, slots: list[Slot]) -> str:
    try:
        place, bits = int(key[1:].split()[0]), int(here, 16) ^ int(there, 16)
    except ValueError:
        return "their settings differ"
    index = place * _SLOTS + (bits & -bits).bit_length() - 1
    name = f"'{slots[index].name}'" if 0 <= index < len(slots) else "a parameter"
    has, lacks = (0, other) if int(here, 16) & bits & -bits else (other, 0)
    return f"{name} was stepped on rank {has}, but had no gradient or no optimizer on rank {lacks}"


def _unpack(packed: bytes) -> dict[str, str]:
    """Another rank's lines, by their keys; whatever it sent."""
    try:
        text = zlib.decompressobj().decompress(packed, _MOST_TEXT).decode(errors="replace")
    except zlib.error:
        return {}
    lines = (line.partition("\t") for line in text.split("\n"))
    return {key: value for key, _, value in lines}


def _number(value: object) -> str:
    """Returns the number as text that has all of its bits; empty for whatever is no number, or is
    on a device, where reading it would wait."""
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_number, value))
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type == "cpu":
        return repr(float(value))
    return ""
