"""The ranks of the tests. Importing Torch takes longer than most of the tests, so ranks are forked
from the process of the tests, which has imported it. Tests of launches or ends start new processes
instead. `Ranks` stay alive over many tests: each is a process that runs the functions it is given,
and all ranks run the same function at the same time."""

from __future__ import annotations

import base64
import contextlib
import gc
import importlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import place
from sluice.processes import as_a_program

HERE = Path(__file__).parent


def free_port() -> int:
    """Returns a port that was free a moment ago, with a free one after it."""
    with socket.socket() as one, socket.socket() as next_one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
        try:
            next_one.bind(("127.0.0.1", port + 1))
        except OSError:
            return free_port()
        return port


def environment(rank: int, world: int, port: int, **more: str) -> dict[str, str]:
    launched = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "SLUICE_LOG": "warn"}  # fmt: skip
    # A busy machine may not run a heartbeat for a while.
    patience = {"SLUICE_SILENCE_LIMIT": "20s"}
    ours = {name: value for name, value in os.environ.items() if name not in place.VARIABLES}
    return {
        **ours,
        "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
        **launched,
        **patience,
        **more,
    }


def fork(
    work: Callable[[], None], variables: dict[str, str], **pipes: int
) -> subprocess.Popen[str]:
    """Starts a process that does the work as a separate program with these variables would."""

    def be_it() -> None:
        # Collect no objects of the parent: a descriptor that they close may be another file here.
        gc.freeze()
        gc.enable()
        os.environ.clear()
        os.environ.update(variables)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0),
            os.fdopen(1, "w"),
            os.fdopen(2, "w", buffering=1),
        )
        sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
        # These modules may have read the variables when they were imported.
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{HERE}/") and module != place:
                del sys.modules[name]
        place.enter()
        work()

    def instead_of_another_program() -> None:
        # Close all other files, among them the pipe that Popen waits for, and the pipes of earlier
        # ranks.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        as_a_program(be_it)

    command = [sys.executable]  # this command is never run
    return subprocess.Popen(
        command, preexec_fn=instead_of_another_program, restore_signals=False, text=True, **pipes
    )


class Ranks:
    def __init__(self, world: int, **variables: str) -> None:
        port = free_port()
        self._processes = [
            fork(
                _serve,
                environment(rank, world, port, **variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for rank in range(world)
        ]
        self._answers: list[queue.Queue[str]] = [queue.Queue() for _ in self._processes]
        for process, answers in zip(self._processes, self._answers, strict=True):
            threading.Thread(target=self._listen, args=(process, answers), daemon=True).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("answer "):
                answers.put(line.removeprefix("answer "))
        answers.put("")

    def run(self, function: Callable[..., Any], *args: Any, timeout: float = 120) -> list[Any]:
        """Runs the function on all ranks and returns its results by rank. Fails if it fails on any
        rank."""
        task = base64.b64encode(
            pickle.dumps((function.__module__, function.__name__, args))
        ).decode()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(task + "\n")
            process.stdin.flush()
        values, failures = [], []
        for rank, answers in enumerate(self._answers):
            answer = answers.get(timeout=timeout)
            is_ok, value = (
                pickle.loads(base64.b64decode(answer))
                if answer
                else (False, "the process has ended")
            )
            (values if is_ok else failures).append(value if is_ok else f"rank {rank}: {value}")
        assert not failures, "\n".join(failures)
        return values

    def end(self, timeout: float = 30) -> list[int]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        return [process.wait(timeout=timeout) for process in self._processes]

    def kill(self, rank: int) -> None:
        self._processes[rank].send_signal(signal.SIGKILL)


@contextlib.contextmanager
def running(
    text: str, world: int, anew: bool = False, **variables: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs a program on every rank until the context ends. With `anew` a new Python starts it, as
    users do, and ends it in Python's own way."""
    port = free_port()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = []
    for rank in range(world):
        variables_of_rank = environment(rank, world, port, **variables)
        if anew:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", text], text=True, env=variables_of_rank, **pipes
                )
            )
        else:
            processes.append(
                fork(lambda: exec(text, {"__name__": "__main__"}), variables_of_rank, **pipes)
            )
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run_script(
    text: str, world: int, timeout: float = 120, anew: bool = False, **variables: str
) -> list[subprocess.CompletedProcess[str]]:
    """Runs a program on every rank to its end, and returns exit codes and output."""
    results = []
    with running(text, world, anew, **variables) as processes:
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            results.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return results


def _serve() -> None:
    for line in sys.stdin:
        module, name, args = pickle.loads(base64.b64decode(line))
        place.delay_anew()
        try:
            answer = True, getattr(importlib.import_module(module), name)(*args)
        except Exception:
            answer = False, traceback.format_exc()
        print("answer", base64.b64encode(pickle.dumps(answer)).decode(), flush=True)
