"""Tracks the state that an exception leaves behind. Ctrl-C, a timeout or an error of the program's
own may end any wait, and the program may catch it and go on. Each call then either goes on where it
stopped, or every later call says that the model is no longer good.

Work between two waits is done in whole(): an exception in it breaks the model for good. A wait
outside of whole() changes nothing, so the call can be made again. A call that the other ranks have
finished without this one is owed() until then.
"""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn


class Health:
    """The health of one model, or of the job. A single process owes nothing to other ranks, so it
    stays good."""

    def __init__(self, name: str, *, is_alone: bool) -> None:
        self._name = name
        self._is_alone = is_alone
        self._broken = ""
        self._breaker = 0  # id() of the exception that broke the model, while it propagates
        self._owed: dict[object, str] = {}

    @property
    def complaint(self) -> str:
        """Returns the reason why this rank cannot leave in good order; empty if it can."""
        return self._broken or next(iter(self._owed.values()), "")

    def check(self) -> None:
        """Raises if the model is broken."""
        if self._broken:
            raise RuntimeError(self._broken)

    def check_owed(self) -> None:
        """Raises if the model is broken or if a call has to be made again first."""
        self.check()
        for text in self._owed.values():
            raise RuntimeError(text)

    def fail(self, why: str) -> NoReturn:
        """Breaks the model; `why` is one line that gives the reason."""
        if not self._is_alone and not self._broken:
            self._broken = f"{self._name} is no longer good: {why}"
        raise RuntimeError(self._broken or why)

    def whole(self, doing: str, *, but: tuple[type[BaseException], ...] = ()) -> Whole:
        """Guards work that no exception may cut short, except those of the types `but`."""
        return Whole(self, doing, but)

    def owed(self, key: object, call: str, remedy: str) -> Owed:
        """Guards the waits of a call that the other ranks finish: until paid(key), the program
        cannot go on without that call."""
        return Owed(self, key, call, remedy)

    def paid(self, key: object) -> None:
        self._owed.pop(key, None)

    def is_owed(self, key: object) -> bool:
        return key in self._owed

    def break_by(self, doing: str, error: BaseException) -> None:
        if self._is_alone or (self._broken and self._breaker != id(error)):
            return
        # The error names the outermost work that was cut short: users know that name.
        self._breaker = id(error)
        self._broken = (
            f"{self._name} is no longer good: {describe(error)} cut {doing} short; start again "
            "from the last checkpoint"
        )

    def owe(self, key: object, call: str, remedy: str, error: BaseException) -> None:
        if not self._is_alone and not self._broken:
            self._owed[key] = f"{call} was interrupted by {describe(error)}: {remedy}"


class Whole:
    def __init__(self, health: Health, doing: str, but: tuple[type[BaseException], ...]) -> None:
        self._health, self._doing, self._but = health, doing, but

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, self._but):
            self._health.break_by(self._doing, error)


class Owed:
    def __init__(self, health: Health, key: object, call: str, remedy: str) -> None:
        self._health, self._key, self._call, self._remedy = health, key, call, remedy

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._health.owe(self._key, self._call, self._remedy, error)


def describe(error: BaseException) -> str:
    """Describes the exception in one line, with its type."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
