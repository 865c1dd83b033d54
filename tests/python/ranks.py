"""Ranks that stay alive over many tests: each is a process that runs the functions it is told to, all ranks the same one at
the same time. Importing Torch takes longer than most of the tests."""

from __future__ import annotations

import base64
import contextlib
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

HERE = Path(__file__).parent


def free_port() -> int:
    """One that was free a moment ago, with a free one after it."""
    with socket.socket() as one, socket.socket() as next_one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
        try:
            next_one.bind(("127.0.0.1", port + 1))
        except OSError:
            return free_port()
        return port


def environment(rank: int, world: int, port: int, **more: str) -> dict[str, str]:
    launched = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "SLUICE_LOG": "warn"}  # fmt: skip
    # A busy machine may not run a heartbeat for a while.
    patience = {"SLUICE_SILENCE_LIMIT": "20s"}
    return {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}", **launched, **patience, **more}


class Ranks:
    def __init__(self, world: int, **variables: str) -> None:
        port = free_port()
        self._processes = [
            subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=environment(rank, world, port, **variables))
            for rank in range(world)
        ]  # fmt: skip
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
        """What the function returns on each rank. A failure on any of them is a failure here."""
        task = base64.b64encode(pickle.dumps((function.__module__, function.__name__, args))).decode()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(task + "\n")
            process.stdin.flush()
        values, failures = [], []
        for rank, answers in enumerate(self._answers):
            answer = answers.get(timeout=timeout)
            is_ok, value = pickle.loads(base64.b64decode(answer)) if answer else (False, "the process has ended")
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
def running(text: str, world: int, **variables: str) -> Iterator[list[subprocess.Popen[str]]]:
    """A program of its own on every rank, until this ends."""
    port = free_port()
    processes = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=environment(rank, world, port, **variables))
        for rank in range(world)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run_script(text: str, world: int, timeout: float = 120, **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """The same, with all that its end shows."""
    results = []
    with running(text, world, **variables) as processes:
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            results.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return results


def _serve() -> None:
    for line in sys.stdin:
        module, name, args = pickle.loads(base64.b64decode(line))
        try:
            answer = True, getattr(importlib.import_module(module), name)(*args)
        except Exception:
            answer = False, traceback.format_exc()
        print("answer", base64.b64encode(pickle.dumps(answer)).decode(), flush=True)


if __name__ == "__main__":
    _serve()
