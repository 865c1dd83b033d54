"""Compares ranks while they train, where the algorithm keeps them equal: what their optimizers did
since the last backward pass, and a part of the parameters as those steps have left them.

One comparison begins at the end of each backward pass, which every rank makes equally often, and
meets the others in the background. The next pass waits for its end, which has come long before, so
that every rank learns of a difference within two steps. At the end of training all parameters are
compared."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sluice import _core
from sluice._engine.pieces import Item, Named, Pieces, is_rounding, summary
from sluice._engine.steps import Steps, describe, pack
from sluice._job.job import Job
from sluice._tensor.slots import Slot

_BY_DEBUG = 100  # steps, with SLUICE_DEBUG=ranks
_MOST_SETTINGS = 16_000  # bytes, packed
# Seconds: the others have begun the comparison of the pass before long ago, and those of the end
# before the session could end.
_WAIT, _LAST_WAIT = 1.0, 2.0
_MOST_SUMMARIES = 450  # of 16 bytes


def check_every(job: Job) -> int:
    """Returns the number of steps between two comparisons of everything; 0: never. Refuses
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


def rank_check(job: Job, name: str, fail: Callable[[str], None]) -> RankCheck | None:
    """Returns what compares the ranks that train this model; None if nothing does. Every rank calls
    it."""
    every, wanted = check_every(job), job.option("compare-ranks")
    if job.is_alone or not job.algorithm.keeps_ranks_equal or (wanted == "off" and every == 0):
        return None
    capability = torch.backends.cpu.get_cpu_capability()
    kinds = job.gather(f"arithmetic/{name}", f"{capability}, Torch {torch.__version__}")
    return RankCheck(job, name, every, kinds, _core.warn if wanted == "warn" else fail)


class _Comparison(NamedTuple):
    step: int
    items: list[Item]
    result: _core.Comparison


class RankCheck:
    """`report` gets the text of a difference, and may raise."""

    def __init__(
        self, job: Job, name: str, every: int, kinds: list[str], report: Callable[[str], None]
    ) -> None:
        self._job, self._name, self._every, self._report = job, name, every, report
        self._kinds = kinds  # of the arithmetic, by rank at the start
        # With late gradients another rank may be a pass behind.
        self._lag = 1 if job.algorithm.delays_results else 0
        self._steps = Steps()
        self._pieces = Pieces([])
        self._slots: list[Slot] = []
        self._count = 0  # of the comparisons that were begun
        self._checked = 0  # the last step after which everything was compared
        self._pending: list[_Comparison] = []
        self._reported: set[str] = set()

    def take_parameters(self, slots: list[Slot]) -> None:
        """Compares these from now on. Every rank has planned them in this order."""
        self._slots = slots
        self._pieces = Pieces((slot.name, slot.parameter) for slot in slots)

    def stepped(self, optimizer: torch.optim.Optimizer, slot_of: dict[Tensor, Slot]) -> None:
        """Call this at the end of step()."""
        self._steps.note(optimizer, slot_of)

    def round_ends(self, step: int, state: Callable[[], Iterable[Named]]) -> None:
        """Call this at the end of each backward pass that sent gradients, after so many steps. A
        call that an exception has ended may be made again."""
        self._finish(self._pending, _WAIT, but=self._lag)
        items = self._pieces.of(self._count + 1)
        if self._every and step != self._checked and step % self._every == 0:
            items = [Item(n, t, 0, t.numel()) for n, t in state() if t.numel() > 0]
            self._checked = step
        self._begin(str(self._count), step, items, self._steps.take())
        self._count += 1

    def look(self) -> None:
        """Reports a difference that is known by now."""
        self._finish(self._pending, 0.0)

    def begin_end(self, step: int) -> None:
        """Compares everything once more, before the session ends."""
        lines = self._steps.take()
        for number, items in enumerate(self._pieces.all()):
            self._begin(f"{self._count}/end/{number}", step, items, lines)
            lines = ""
        self._count += 1

    def end(self) -> None:
        """Call this after the session has ended, in good order or not."""
        pending, self._pending = self._pending, []
        self._finish(pending, _LAST_WAIT)

    def _begin(self, key: str, step: int, items: list[Item], lines: str) -> None:
        values = [item.values() for item in items]
        settings = pack(lines, _MOST_SETTINGS)
        sums = [summary(each) for each in values] if len(set(self._kinds)) > 1 else []
        detail = struct.pack("<I", len(settings)) + settings
        detail += b"".join(struct.pack("<dd", *each) for each in sums[:_MOST_SUMMARIES])
        places = [(each.data_ptr(), each.numel() * each.element_size()) for each in values]
        result = _core.Comparison(
            self._job.core, f"ranks/{self._name}/{key}", places, lines.encode(), detail
        )
        self._pending.append(_Comparison(step, items, result))

    def _finish(self, pending: list[_Comparison], seconds: float, but: int = 0) -> None:
        """Reports the differences of comparisons that end within this time, but for the newest."""
        while len(pending) > but:
            comparison = pending[0]
            while not comparison.result.ends(min(seconds, 0.1)):  # Ctrl-C ends the wait in between
                seconds -= 0.1
                if seconds <= 0:
                    return
            pending.pop(0)
            if (found := comparison.result.difference()) is not None:
                self._say(comparison, *found)

    def _say(
        self, comparison: _Comparison, first: int, count: int, ranks: str, details: list[bytes]
    ) -> None:
        settings, sums = zip(*map(_read, details), strict=True)
        step = comparison.step
        if first == 0 and (count == 1 or len(set(settings)) > 1):
            what = describe(list(settings), self._slots)
            text = (
                f"the ranks take different steps: {what}, in step {step}; compute it from what all "
                "ranks know (sluice.mean)"
            )
            return self._report_once(what.split(" on rank ")[0], text)
        if len(set(self._kinds)) > 1 and is_rounding(list(sums)):
            other = next(n for n, kind in enumerate(self._kinds) if kind != self._kinds[0])
            return self._warn_of_rounding(other)
        items = comparison.items[max(0, first - 1) :]
        which = f"'{items[0].name}'" if items else "a parameter"
        if count > 1:
            which = f"one of {count} tensors from {which} on"
        text = f"the ranks have different parameters: {which} differs on {ranks} after step {step}"
        return self._report_once(which, text)

    def _report_once(self, key: str, text: str) -> None:
        """With compare_ranks="warn" training goes on, and one line for each difference is
        enough."""
        if key not in self._reported:
            self._reported.add(key)
            self._report(text)

    def _warn_of_rounding(self, other: int) -> None:
        if "rounding" not in self._reported:
            self._reported.add("rounding")
            _core.warn(
                f"the ranks' parameters differ by rounding: rank 0 computes with {self._kinds[0]}, "
                f"rank {other} with {self._kinds[other]}; for equal bits use hosts of one kind, or "
                "set ATEN_CPU_CAPABILITY to the same value on all"
            )


def _read(detail: bytes) -> tuple[bytes, list[tuple[float, float]]]:
    """Takes a rank's detail apart, whatever it sent."""
    size = struct.unpack_from("<I", detail)[0] if len(detail) >= 4 else 0
    rest = detail[4 + size :]
    whole = len(rest) // 16 * 16
    return detail[4 : 4 + size], list(struct.iter_unpack("<dd", rest[:whole]))


def state_of(optimizer: torch.optim.Optimizer, names: dict[Tensor, str]) -> Iterator[Named]:
    """Yields the state tensors of the parameters that have names, in the order of the optimizer."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in names:
                continue
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                if isinstance(value, Tensor):
                    yield f"{key} of {names[parameter]}", value
