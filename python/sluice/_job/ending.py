"""Finds out why this process ends, to tell the other ranks. Python shows atexit neither an
exception nor an exit code.

An exception that nobody catches is in `sys.last_value`, whichever hook has shown it. `sys.exit()`
is wrapped: a code that is not 0 is a reason, and so is the exception that its caller was handling.
A program may catch that SystemExit and go on, so a mark rides on it. When it dies while a function
runs, somebody has caught it; the one that ends the program dies after all functions.

`raise SystemExit(1)` is not seen. It ends as a good end does, and the others are told "has ended
its training".
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from sluice._core import PeerLostError

_LONGEST = 500
_MARK = "_sluice_end"
_LEFT_ON_TERM = 128 + signal.SIGTERM


@dataclasses.dataclass(frozen=True)
class _Exit:
    """A call of sys.exit() with a code that is not 0."""

    code: int
    why: str


class _Mark:
    """Rides on a SystemExit, and dies with it."""

    def __init__(self, of: _Exit) -> None:
        self.of = of

    def __del__(self, frame: Callable[[int], FrameType] = sys._getframe) -> None:
        with contextlib.suppress(ValueError):
            frame(1)  # raises if no function runs
            if _state is not None:
                _state.caught(self.of)


class _State:
    """What is known so far about the end of this process."""

    def __init__(self) -> None:
        self.is_watching = False
        self.failure: str | None = None  # of an exception that our hook has seen
        self._exit: _Exit | None = None  # nobody has caught it, as far as is known
        self._caught: _Exit | None = None

    def exits(self, error: SystemExit) -> None:
        """Notes a SystemExit on its way; its context is the exception that is being handled."""
        code = error.code
        number = code if isinstance(code, int) else 0 if code is None else 1
        self._exit = None
        if number == 0 or threading.current_thread() is not threading.main_thread():
            return
        handled = error.__context__
        before = getattr(handled, _MARK, None)
        known = before.of if isinstance(before, _Mark) else self._caught
        if known is not None and known.code == number:
            self._exit = known  # the same end, by way of somebody who has caught the first one
        elif handled is None or isinstance(handled, SystemExit):
            text = "" if code is None or isinstance(code, int) else f": {_in_one_line(code)}"
            self._exit = _Exit(number, f"ended with exit code {number}{text}")
        else:
            self._exit = _Exit(number, f"{reason_of(handled)} (exit code {number})")
        setattr(error, _MARK, _Mark(self._exit))

    def caught(self, gone: _Exit) -> None:
        if self._exit is gone:
            self._exit, self._caught = None, gone

    def goes_on(self) -> None:
        self._exit = self._caught = None

    def reason(self, *, is_asked_to_leave: bool) -> str | None:
        uncaught = getattr(sys, "last_value", None)
        if self.failure is not None:
            return self.failure
        if isinstance(uncaught, BaseException) and _has_ended_the_program(uncaught):
            return reason_of(uncaught)
        if self._exit is None or (is_asked_to_leave and self._exit.code == _LEFT_ON_TERM):
            return None
        return self._exit.why[:_LONGEST]


_state: _State | None = _State()


def watch() -> None:
    """Begins to look for reasons; call it once this process is a rank."""
    assert _state is not None
    _chain_hook(_state)
    if _state.is_watching:
        return
    _state.is_watching = True
    sys.exit = _marking(sys.exit)
    quitter: Any = type(getattr(builtins, "exit", None))
    if quitter.__module__ == "_sitebuiltins":  # exit(1) and quit(1)
        quitter.__call__ = _marking(quitter.__call__)


def goes_on() -> None:
    """Notes that the program trains: an exit that it was on was caught."""
    if _state is not None:
        _state.goes_on()


def reason(*, is_asked_to_leave: bool) -> str | None:
    """Returns why this process ends in bad order; None if it ends in good order."""
    return None if _state is None else _state.reason(is_asked_to_leave=is_asked_to_leave)


def reason_of(error: BaseException) -> str:
    """Returns the reason as the other ranks read it, behind this rank's name."""
    text = _in_one_line(error)
    if isinstance(error, PeerLostError):  # what the first rank said, however many have passed it on
        text = text.rpartition("PeerLostError: ")[2]
    return f"ended with {type(error).__name__}{': ' + text if text else ''}"[:_LONGEST]


def _chain_hook(state: _State) -> None:
    """Also sees exceptions that somebody gives to the hook, as debuggers and frameworks do."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        state.failure = reason_of(error)
        previous(kind, error, trace)

    sys.excepthook = hook


def _marking(leaves: Callable[..., Any]) -> Callable[..., NoReturn]:
    @functools.wraps(leaves)
    def marked(*args: Any, **kwargs: Any) -> NoReturn:
        try:
            leaves(*args, **kwargs)
        except SystemExit as error:
            if _state is not None:
                _state.exits(error)
            raise
        raise SystemExit(*args[-1:])  # never: `leaves` raises

    return marked


def _has_ended_the_program(error: BaseException) -> bool:
    """True iff it came out of the main program; C++ code that prints an exception shows it, too."""
    trace = error.__traceback__
    if trace is None or hasattr(sys, "ps1"):  # a person types, and goes on
        return False
    outermost = trace.tb_frame
    return outermost.f_back is None and outermost.f_globals.get("__name__") in (
        "__main__",
        "runpy",
    )


def _in_one_line(value: object) -> str:
    return " ".join(str(value).split())
