"""Help for programs that start ranks as processes of one host. Importing Torch takes longer than a
small training, so such a program imports it once and forks its ranks."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

import torch

__all__ = ["as_a_program", "free_port", "prepare_to_fork"]

_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """Returns a port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def prepare_to_fork() -> None:
    """Call this once, before anything is computed. A process with threads must not be forked, and
    modules that every rank would import are imported here once."""
    torch.set_num_threads(1)
    # The first optimizer of a process imports this, which takes a second or more.
    importlib.import_module("torch._dynamo")


def as_a_program(work: Callable[[], None]) -> NoReturn:
    """Does the work in a forked process and ends as a program of its own would. A forked process
    must not go through Python's own end, which would tidy up objects of its parent."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        atexit._clear()  # these functions are the parent's
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)  # the other ranks hear of it too
    finally:
        # The first function leaves the job.
        for last in (
            atexit._run_exitfuncs,
            sys.stdout.flush,
            sys.stderr.flush,
        ):
            with contextlib.suppress(BaseException):
                last()
        os._exit(code)
