"""The members of a job that may lose some: who is in it, and who wants to hear of changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from sluice import _core


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


Callback = Callable[[MembersChange], None]


class Company:
    """The members as this process has last noticed them."""

    def __init__(self, core: _core.Job) -> None:
        self._callbacks: list[Callback] = []
        self.may_lose_members = core.may_lose_members
        self._epoch = 0
        self._members = tuple(range(core.world_size))

    def change(self, session: _core.Session | None) -> MembersChange | None:
        """Returns what has changed since the last call. All members that have made as many steps
        get the same answer."""
        seen = session.agreed_members if self.may_lose_members and session is not None else None
        if seen is None or seen[0] == self._epoch:
            return None
        epoch, members, rank = seen[0], tuple(seen[1]), seen[2]
        lost = tuple(member for member in self._members if member not in members)
        self._epoch, self._members = epoch, members
        return MembersChange(epoch, members, lost, rank)

    def on_change(self, callback: Callback) -> None:
        self._callbacks.append(callback)

    def tell(self, change: MembersChange) -> None:
        for callback in list(self._callbacks):
            callback(change)
