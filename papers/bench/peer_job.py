"""The ranks of one run of vs_peers.py or members_vs_torchft.py, as processes on the hosts of a
lab."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

# A lab has no name server. This gives a process a name for its host and for every other one, which
# torchft tells other ranks: FILE LIKE /etc/hosts, NAME, COMMAND...
WITH_NAMES = ["unshare", "--mount", "--uts", "sh", "-c",
              'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"']  # fmt: skip
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TROUBLE = re.compile(
    r"error|exception|fail|lost|closed|reset|timed? ?out|abort|left alone|no other peers|skip",
    re.IGNORECASE,
)


class Rank:
    """A rank in a session of its own; `said` has its lines with the times at which they came."""

    def __init__(self, process: subprocess.Popen[bytes], news: queue.Queue[None]) -> None:
        self.process = process
        self.steps: list[dict[str, Any]] = []
        self.killed: float | None = None
        self.ended: float | None = None
        self.said: list[tuple[float, str]] = []
        assert process.stdout is not None
        assert process.stderr is not None
        self._news = news
        self._readers = [
            threading.Thread(target=self._read, args=arguments, daemon=True)
            for arguments in ((process.stdout, True), (process.stderr, False))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, lines: BinaryIO, is_stdout: bool) -> None:
        for raw in lines:
            at, line = time.monotonic(), COLOURS.sub("", raw.decode(errors="replace")).rstrip()
            if line.startswith('{"at"'):
                self.steps.append(json.loads(line))
            elif line.startswith('{"killed"'):
                self.killed = json.loads(line)["killed"]
            elif line:
                self.said.append((at, line))
            self._news.put(None)
        if is_stdout:
            self.ended = time.monotonic()
        self._news.put(None)

    def counted(self, world: int) -> list[dict[str, Any]]:
        """Returns the steps that counted the gradients of this many ranks."""
        return [step for step in self.steps if step["made"] and step["world"] == world]

    def kill(self) -> None:
        self.process.kill()
        self.killed = time.monotonic()
        self.process.wait()

    def stop(self) -> None:
        """Kills the rank with its helpers, and waits for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join(timeout=10)


class PeerJob:
    """Use it in a with statement; all processes end with it."""

    def __init__(
        self,
        lab: Any,
        world: int,
        command: list[str],
        variables: Callable[[int], dict[str, str]],
        server: list[str] | None = None,  # a command for the first host after the ranks'
        is_pinned: bool = True,  # each rank on a core of its own
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vs-peers-")
        self._news: queue.Queue[None] = queue.Queue()
        self._servers: list[subprocess.Popen[bytes]] = []
        self.ranks: list[Rank] = []
        names = [f"{address} host{host}" for host, address in lab.addresses.items()]
        hosts = Path(self._folder.name, "hosts")
        hosts.write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")

        def start(host: int, words: list[str], more: dict[str, str]) -> subprocess.Popen[bytes]:
            kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "TORCHFT"))}
            return subprocess.Popen(
                [*WITH_NAMES, str(hosts), f"host{host}", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=kept | {"HIVEMIND_FILE": f"{self._folder.name}/met"} | more,
                start_new_session=True,
                preexec_fn=lambda: lab.enter(host),
            )

        try:
            if server is not None:
                started = start(world, server, {})
                self._servers.append(started)
                self.server = Rank(started, self._news)  # reads what it says
            for rank in range(world):
                pin = ["taskset", "-c", str(rank % (os.cpu_count() or 1))] if is_pinned else []
                self.ranks.append(Rank(start(rank, [*pin, *command], variables(rank)), self._news))
        except BaseException:
            self.__exit__()
            raise

    def wait_until(self, holds: Callable[[], bool], patience: float, what: str) -> None:
        """Waits for what the ranks say; exits with their words if they do not in time, or end."""

        def is_over() -> bool:
            return holds() or any(rank.ended is not None for rank in self.ranks)

        if not (self.happens(is_over, patience) and holds()):
            words = "\n".join(
                f"[{number}] {line}"
                for number, rank in enumerate(self.ranks)
                for _, line in rank.said[-15:]
            )
            sys.exit(f"{what}: not within {patience:g} s, or a rank has ended\n{words}")

    def wait_for_all(self, steps: int, patience: float) -> None:
        """Waits until every rank has made steps with the gradients of all."""
        world = len(self.ranks)
        self.wait_until(
            lambda: all(len(rank.counted(world)) >= steps for rank in self.ranks),
            patience,
            f"{steps} steps in which all ranks take part",
        )

    def happens(self, holds: Callable[[], bool], patience: float) -> bool:
        end = time.monotonic() + patience
        while not holds():
            left = end - time.monotonic()
            if left <= 0:
                return False
            try:
                self._news.get(timeout=min(left, 1))
            except queue.Empty:
                continue
        return True

    def __enter__(self) -> PeerJob:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.stop()
        for server in self._servers:
            server.kill()
            server.wait()
        self._folder.cleanup()
