"""The processes of one run. They are forked from a process that has imported Torch already, since
importing it sixteen times takes longer than the run. So that process computes in one thread only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from sluice.processes import as_a_program, free_port

_GRACE = 20.0  # seconds for the others to end by themselves when one has failed
_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
# A machine with more workers than cores may not run a heartbeat for a while.
_PATIENCE = {"SLUICE_SILENCE_LIMIT": "30s", "SLUICE_LOG": "warn", "SLUICE_STALL_AFTER": "60s"}


@dataclass(frozen=True)
class Place:
    """The place in which ranks run and meet: all on this host, or each on a host of its own in a
    lab."""

    address: str
    lab: str | None = None
    networks: tuple[str, ...] = ()  # the network namespace of each host

    def variables(self, rank: int, world: int, port: int) -> dict[str, str]:
        found = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": self.address,
        }
        found |= {"MASTER_PORT": str(port), **_PATIENCE}
        if self.lab is not None:
            found |= {"LOCAL_RANK": "0", "SLUICE_IFACE": "eth0", "SLUICE_ENCRYPT": "off"}
        return found

    def enter(self, rank: int) -> None:
        if self.lab is None:
            return
        network = Path("/run/netns", self.networks[rank])
        if os.geteuid() != 0:  # /proc/KEEPER/root/run/netns/NAME: the user has rights in there only
            _enter(Path(*network.parts[:3], "ns", "user"), _CLONE_NEWUSER)
        _enter(network, _CLONE_NEWNET)


def _enter(namespace: Path, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open("rb") as opened:
        if libc.setns(opened.fileno(), kind) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the lab's host")


LOOPBACK = Place("127.0.0.1")


@contextlib.contextmanager
def lab(hosts: int, rate: str) -> Iterator[Place]:
    """Makes a cluster on this machine that lasts as long as this context (docs/lab.md)."""
    sluice = program()
    name = f"study{os.getpid()}"
    made = subprocess.run(
        [sluice, "lab", "up", "--name", name, "--hosts", str(hosts), "--rate", rate],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        raise OSError((made.stderr.strip() or "there is no lab").splitlines()[-1])
    try:
        shown = subprocess.run(
            [sluice, "lab", "status", "--name", name, "--json"], capture_output=True, check=True
        )
        yield Place("10.77.0.1", name, tuple(row["namespace"] for row in json.loads(shown.stdout)))
    finally:
        subprocess.run([sluice, "lab", "down", "--name", name], capture_output=True)


def program() -> str:
    """Returns the path of the program `sluice`."""
    beside = Path(sys.argv[0]).resolve().parent / "sluice"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("sluice")
    if found is None:
        raise OSError("there is no program 'sluice' on the PATH; add the folder it is in")
    return found


def run(
    world: int,
    place: Place,
    work: Callable[[int], None],
    log: Path,
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> dict[int, str]:
    """Runs work(rank) in a process for each rank, with these environment variables besides those
    of the launch. Returns how each failed rank has ended, in the order of their ends. No process
    that it has started is left afterwards. The output of ranks is in `log`."""
    port = free_port()
    key = secrets.token_hex(32)
    ranks: dict[int, int] = {}  # ranks by file descriptor
    pids: dict[int, int] = {}  # processes that have not ended, by rank
    failures: dict[int, str] = {}
    with selectors.DefaultSelector() as selector:
        try:
            for rank in range(world):
                sys.stdout.flush()
                sys.stderr.flush()
                pid = os.fork()
                if pid == 0:
                    _be_rank(
                        rank,
                        place,
                        {
                            "SLUICE_JOB_KEY": key,
                            **place.variables(rank, world, port),
                            **(variables or {}),
                        },
                        work,
                        log,
                    )
                pids[rank] = pid
                descriptor = os.pidfd_open(pid)
                ranks[descriptor] = rank
                selector.register(descriptor, selectors.EVENT_READ)
            deadline = time.monotonic() + timeout
            while pids and (left := deadline - time.monotonic()) > 0:
                for event, _ in selector.select(left):
                    rank = ranks[event.fd]
                    selector.unregister(event.fd)
                    _, status = os.waitpid(pids.pop(rank), 0)
                    if status != 0:
                        failures[rank] = _describe(status)
                        deadline = min(deadline, time.monotonic() + _GRACE)
            for rank in pids:
                failures.setdefault(rank, f"has not ended after {timeout:.0f} s")
        finally:
            for pid in pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            for descriptor in ranks:
                os.close(descriptor)
    return failures


def _be_rank(
    rank: int, place: Place, variables: dict[str, str], work: Callable[[int], None], log: Path
) -> NoReturn:
    def be_it() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has forked us ends us
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        place.enter(rank)
        os.environ.pop("SLUICE_JOB_KEY_FILE", None)
        os.environ.update(variables)
        work(rank)

    as_a_program(be_it)


def _describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was ended by signal {os.WTERMSIG(status)}"
    return f"ended with code {os.waitstatus_to_exitcode(status)}"
