"""One model in training: all that the parts of its engine share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from sluice import _core
from sluice._job.health import Health
from sluice._job.job import Job
from sluice._measure.clocks import HostClock
from sluice._measure.spent import Spent
from sluice._tensor.doors import DeviceDoor
from sluice._tensor.slots import Slot

if TYPE_CHECKING:
    from sluice import _c10d


class ServerUpdate(Protocol):
    """The servers' optimizer, if they have one."""

    @property
    def spec(self) -> str: ...

    @property
    def saves_with_session(self) -> bool: ...

    def memory(self, elements: int, world_size: int) -> str: ...

    def hand_out(self) -> None: ...


class Training:
    """One model, the job it trains in, and the session that its plan has opened."""

    def __init__(self, job: Job, model: nn.Module, name: str) -> None:
        self.job = job
        self.model = model
        self.name = name
        self.health = Health(f"'{name}'", is_alone=job.is_alone)
        self.delays = not job.is_alone and job.algorithm.delays_results
        self.thread = 0  # ran the last forward pass, and is free to wait
        self.server: ServerUpdate | None = None
        self.spent = Spent(HostClock())
        self.slots: list[Slot] = []  # as the plan numbers them
        self.slot_of: dict[Tensor, Slot] = {}
        self.session: _core.Session | None = None  # None before the first backward()
        self.collective: _c10d.Collective | None = None  # the session reduces with it
        self.device: _c10d.Device | None = None  # of the parameters that are not in host memory
        self.device_door: DeviceDoor | None = None  # into the session, if there is a device
