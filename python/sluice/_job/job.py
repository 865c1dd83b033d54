"""This process's place in the job: one per process, joined when it is first needed, left when
Python ends."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from sluice import _core
from sluice._job import ending
from sluice._job.health import Health
from sluice._job.launch import forget_key, launch_environment
from sluice._job.whereabouts import Within

Averaged = TypeVar("Averaged", float, Tensor)


class Ending(Protocol):
    """An object that has to end with the job."""

    def leave(self) -> None: ...

    def abandon(self, why: str) -> None: ...


class Model(Ending, Protocol):
    """A model in training."""

    def report(self) -> str: ...

    def epochs(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class MembersChange:
    """A change of the members of a job. Members are named by the ranks that they began with."""

    epoch: int
    """The number of the epoch, counted from 0."""
    members: tuple[int, ...]
    """The members that are left, in the order of their ranks now."""
    lost: tuple[int, ...]
    """The members that were lost since the change before."""
    rank: int
    """The rank of this process now."""


class Job:
    """The other ranks, and calls that reach them outside the path of gradients."""

    def __init__(self, options: dict[str, str]) -> None:
        environment, published = launch_environment(options)
        self.core = _core.Job(options, environment, published)
        self.rank = self.core.rank
        self.world_size = self.core.world_size
        # From the start: a job that has lost all others still trains as a job.
        self.is_alone = self.world_size == 1
        self.may_lose_members = self.core.may_lose_members
        # As this process has last noticed them.
        self._epoch, self._members = 0, tuple(range(self.world_size))
        self._on_members_changed: list[Callable[[MembersChange], None]] = []
        self._options = _without_secrets(options)
        self.models: list[Model] = []
        self.last_report = ""  # of the model that was released last
        self._names: dict[str, int] = {}
        # Covers the calls that every rank makes in the same order: a rank that was interrupted in
        # one is out of step.
        self.health = Health("this job", is_alone=self.is_alone)
        self._numbered = 0  # broadcasts that can be waited for again
        # Broadcasts need a session; its one tensor is never trained, so any algorithm will do that
        # takes a mean gradient.
        self._words = _core.Session(self.core, "words", [("words", 1, "f32")], algorithm="sluice")

    def option(self, name: str) -> str:
        return self.core.option(name)

    @property
    def algorithm(self) -> _core.Algorithm:
        """The algorithm that the user has named, without the option after a colon."""
        return _core.algorithm(self.option("algorithm").split(":")[0])

    def is_on(self, name: str) -> bool:
        return self.option(name).strip().lower() in ("on", "true", "yes", "1")

    def differs(self, options: dict[str, str]) -> bool:
        """True iff the job was begun with other options than these."""
        return any(
            self._options.get(name) != value for name, value in _without_secrets(options).items()
        )

    def describe_options(self) -> str:
        return _describe(self._options)

    def leave_if_asked(self) -> None:
        """Call this at the end of a step: with leave-on-term, SIGTERM ends this process here, and
        the exit leaves the job."""
        ending.goes_on()
        if self.core.is_asked_to_leave:
            sys.exit(128 + signal.SIGTERM)

    def new_name(self, stem: str) -> str:
        """Returns a name that tells two models apart. It is the same on every rank if all ranks
        make their models in the same order."""
        number = self._names.get(stem, 0)
        self._names[stem] = number + 1
        return f"{stem}-{number}"

    def gather(self, key: str, value: str) -> list[str]:
        """Returns the values of all ranks, in rank order. Use it for short texts only."""
        self.health.check_owed()
        with self.health.whole(f"the meeting of all ranks for '{key}'"):
            return self._gather(key, value)

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        with Within(self.core, _core.Doing.BARRIER):
            self.gather("barrier", "")

    def _gather(self, key: str, value: str) -> list[str]:
        return [text.decode() for text in self.core.gather(key, value.encode())]

    def _gather_bytes(self, key: str, value: bytes) -> list[bytes]:
        self.health.check_owed()
        with self.health.whole(f"the meeting of all ranks for '{key}'"):
            return self.core.gather(key, value)

    def notice_members(self, session: _core.Session | None) -> None:
        """Call this at the end of a step: ranks change here, and nowhere else. All members that
        have made as many steps notice the same."""
        seen = session.agreed_members if self.may_lose_members and session is not None else None
        if seen is None or seen[0] == self._epoch:
            return
        epoch, members, rank = seen[0], tuple(seen[1]), seen[2]
        lost = tuple(member for member in self._members if member not in members)
        self._epoch, self._members = epoch, members
        self.rank, self.world_size = rank, len(members)
        change = MembersChange(epoch, members, lost, rank)
        for callback in list(self._on_members_changed):
            callback(change)

    def on_members_changed(self, callback: Callable[[MembersChange], None]) -> None:
        self._on_members_changed.append(callback)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Copies the root's values into the tensor of every rank."""
        if self.is_alone or tensor.numel() == 0:
            return
        if tensor.device.type != "cpu":
            host = tensor.detach().cpu()
            self.broadcast(host, root)
            if self.rank != root:
                tensor.detach().copy_(host)
            return
        flat = tensor.detach()
        whole = flat if flat.is_contiguous() else flat.contiguous()
        self.health.check_owed()
        with self.health.whole("a broadcast"):
            self._words.broadcast(root, whole.data_ptr(), whole.numel() * whole.element_size())
        if whole is not flat and self.rank != root:
            flat.copy_(whole)

    def receive_together(self, key: object, tensors: list[Tensor]) -> list[Tensor]:
        """Returns rank 0's values of many small tensors, sent in one message. An interrupted call
        has to be made again with the same key; after a call has returned, call received()."""
        if not self.health.is_owed(key):
            self.health.check_owed()
        flat = torch.cat(
            [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
        )
        with self.health.owed(
            key, "the exchange of buffers", "call the model again before anything else"
        ):
            self._words.broadcast_numbered(0, flat.data_ptr(), flat.numel(), self._numbered)
        parts = flat.split([tensor.numel() * tensor.element_size() for tensor in tensors])
        # Clone each part: its address may not be aligned for its type.
        return [
            part.clone().view(t.dtype).reshape(t.shape)
            for t, part in zip(tensors, parts, strict=True)
        ]

    def received(self, key: object) -> None:
        self._numbered += 1
        self.health.paid(key)

    def broadcast_bytes(self, value: bytes, most: int, what: str, root: int = 0) -> bytes:
        """Returns the root's bytes, at most `most`; the value that other ranks pass is ignored."""
        if self.may_lose_members:
            # In one round: the root may be lost between two.
            return self._gather_bytes("bytes", value)[root]
        with self.health.whole("a broadcast"):
            said = self.gather("bytes", str(len(value)))[root]
            return self.bytes_of(root, value, size_said(root, said, most, what))

    def bytes_of(self, root: int, value: bytes, size: int) -> bytes:
        """Returns the root's bytes if every rank knows their number already."""
        if size == 0:
            return b""
        own = bytearray(value if self.rank == root else bytes(size))
        self.broadcast(torch.frombuffer(own, dtype=torch.uint8), root)
        return bytes(own)

    def mean(self, value: Averaged) -> Averaged:
        """Returns the mean over all ranks, summed in rank order. Every rank sends to every other,
        so use it for metrics, not for gradients."""
        if not isinstance(value, Tensor):
            number = torch.tensor(float(value), dtype=torch.float64, device="cpu")
            return float(self.mean(number))
        with (
            Within(self.core, _core.Doing.MEAN),
            self.health.whole("sluice.mean()", but=(ValueError,)),  # every rank raises ValueError
        ):
            return self._mean(value)

    def _mean(self, value: Tensor) -> Tensor:
        brought = self.brought(f"{tuple(value.shape)} {value.dtype}")
        if other := next((rank for rank, text in enumerate(brought) if text != brought[0]), 0):
            raise ValueError(
                f"sluice.mean() got {brought[0]} on rank 0, but {brought[other]} on rank {other}; "
                "give it the same type and shape on every rank"
            )
        total = torch.zeros_like(value, memory_format=torch.contiguous_format)
        count = 0
        for part in self._parts_of(value):
            total += part
            count += 1
        return total / count

    def _parts_of(self, value: Tensor) -> Iterator[Tensor]:
        """Yields the tensor of each rank, in rank order."""
        if not self.may_lose_members:
            for root in range(self.world_size):
                part = value.detach().clone(memory_format=torch.contiguous_format)
                self.broadcast(part, root)
                yield part
            return
        # In one round: a rank may be lost between two.
        own = value.detach().cpu().contiguous()
        flat = own.reshape(-1).view(torch.uint8).numpy().tobytes()
        for brought in self._gather_bytes("mean", flat):
            part = torch.empty_like(own)
            part.reshape(-1).view(torch.uint8).copy_(_tensor_of(brought))
            yield part.to(value.device)

    def brought(self, text: str) -> list[str]:
        """Returns the texts of all ranks, cut to a line, in rank order. Unlike gather() it ends as
        soon as a missing rank ends its training."""
        if self.may_lose_members:
            return self._gather("brought", text[:200])
        texts = []
        for root in range(self.world_size):
            line = bytearray(text.encode()[:200].ljust(200))
            self.broadcast(torch.frombuffer(line, dtype=torch.uint8), root)
            texts.append(line.decode(errors="replace").rstrip())
        return texts

    def _endings(self) -> list[Ending]:
        return [*self.models, self._words]

    def leave(self) -> None:
        """Leaves the job in good order. Each model's own session tells the ranks that train on;
        this rank has done its part. A rank that is not in good order comes to no meeting for the
        end, and says so: nobody waits for it there."""
        with contextlib.suppress(RuntimeError, TimeoutError):
            # Comes first: a rank that waits for a broadcast or for all ranks to meet would never
            # reach the leaving below.
            self.core.announce_end()
            self._words.announce_end()
        for each in self._endings():
            try:
                each.leave()
            except (RuntimeError, TimeoutError, KeyboardInterrupt) as error:
                # The others go on without this rank, or know already that it was told to end.
                if self.may_lose_members or self.core.is_asked_to_leave:
                    continue
                _core.warn(f"rank {self.rank} does not end in good order: {error}")
                self.abandon(ending.reason_of(error))
                break
        self.core.close()

    def abandon(self, why: str) -> None:
        """Ends this rank's part in bad order: whatever the others wait for ends with `why`."""
        self.core.abandon(why)
        for each in self._endings():
            each.abandon(why)
        self.core.close()


def size_said(rank: int, text: str, most: int, what: str) -> int:
    """Reads the number of bytes that a rank says it will send. No rank can make the others take
    any amount of memory."""
    if text.isdecimal() and len(text) <= 18 and int(text) <= most:
        return int(text)
    raise RuntimeError(
        f"rank {rank} says that {what} has {text[:40]} bytes, but it can have {most} at most"
    )


def _tensor_of(data: bytes) -> Tensor:
    if not data:  # frombuffer() refuses it
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


_job: Job | None = None
_joining = threading.Lock()
# In a forked child: the reason why it has no job, and the parent's job, which must not be torn
# down.
_forked: tuple[str, Job] | None = None


def current(**options: str) -> Job:
    """Returns the job, and joins it first if this process has not joined yet."""
    global _job
    with _joining:
        if _forked is not None:
            raise RuntimeError(_forked[0])
        if _job is None:
            _job = Job(options)
            ending.watch()
            atexit.register(_end)
        elif _job.differs(options):
            raise ValueError(
                f"the job has begun with other options ({_job.describe_options()}): give "
                f"{_describe(options)} in the first call of this process"
            )
        return _job


def _without_secrets(options: dict[str, str]) -> dict[str, str]:
    """Replaces secrets by values that can be compared but not read."""
    return {
        name: hashlib.sha256(value.encode()).hexdigest() if _core.is_secret(name) else value
        for name, value in options.items()
    }


def _describe(options: dict[str, str]) -> str:
    return (
        ", ".join(
            f"{name}={'(set)' if _core.is_secret(name) else value}"
            for name, value in options.items()
        )
        or "none"
    )


def _after_fork() -> None:
    """A forked child of a rank (a DataLoader's worker) is no rank. A child that was forked before
    joining may become a rank."""
    global _job, _joining, _forked
    _joining = threading.Lock()  # another thread may have held the old lock
    if _job is not None:
        _forked = (
            f"this process was forked from rank {_job.rank} of a sluice job and is not a "
            "member of it; make the call in the parent",
            _job,
        )
        _job = None
        atexit.unregister(_end)
        forget_key()


os.register_at_fork(after_in_child=_after_fork)


def _end() -> None:
    global _job
    job, _job = _job, None
    if job is None:
        return
    why = ending.reason(is_asked_to_leave=job.core.is_asked_to_leave)
    if why is not None:
        job.abandon(why)
    else:
        job.leave()
