"""Tells the other ranks what this rank's training thread does: a rank that waits can say where the
missing one is."""

from __future__ import annotations

from types import TracebackType

from sluice import _core


class Within:
    """A call of sluice from its beginning to its end."""

    def __init__(self, core: _core.Job, doing: _core.Doing, step: int = 0) -> None:
        self._core, self._doing, self._step = core, doing, step
        self._before = 0

    def __enter__(self) -> None:
        self._before = self._core.enter(self._doing, self._step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._core.leave(self._before)
