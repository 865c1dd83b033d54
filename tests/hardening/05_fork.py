#!/usr/bin/env python3
"""Processes that are forked after the job was joined (DataLoader workers, os.fork()) must not keep
its connections or its port, and must not hang.

  05_fork.py [--python BUILD/python] [detection] [exit] [port]     all three by default

  detection   rank 1 is killed while a child of it lives on: rank 0 knows as soon as without a child
  exit        a child of os.fork() ends in the ordinary way, and a call of sluice in a child raises
              an error of one line
  port        rank 0 is killed while a child of it lives on: its rendezvous port is free for the
              next job

Each part shows that the child was alive at that moment. Exit code 0: all parts hold.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peer import free_port

TRAIN = r"""
import os, sys, time
import torch, sluice
rank = int(os.environ["RANK"])
model, optimizer = sluice.distribute(torch.nn.Linear(8, 8), lambda ps: torch.optim.SGD(ps, lr=0.01))
def step():
    optimizer.zero_grad(); model(torch.ones(2, 8)).sum().backward(); optimizer.step()
# Into the second epoch, as it were: every lane is connected by then, the heartbeats' too.
for _ in range(30): step(); time.sleep(0.02)
"""
CHILD = r"""
if rank == %d:
    child = os.fork()
    if child == 0:
        time.sleep(30); os._exit(0)
    print("child", child, flush=True)
"""
FOREVER = r"""
print("trains", flush=True)
try:
    while True: step(); time.sleep(0.005)
except sluice.PeerLostError as error:
    print("told", time.monotonic(), error, flush=True)
    os._exit(3)
"""
EXIT = r"""
if rank == 0:
    child = os.fork()
    if child == 0:
        try:
            sluice.barrier()
        except RuntimeError as error:
            print("raised", error, flush=True)
        try:
            step()
        except RuntimeError as error:
            print("raised", error, flush=True)
        sys.exit(7)
    for _ in range(100):
        if (ended := os.waitpid(child, os.WNOHANG))[0]:
            print("ended", os.waitstatus_to_exitcode(ended[1]), flush=True); break
        time.sleep(0.1)
    else:
        print("hangs", flush=True)
        os.kill(child, 9); os.waitpid(child, 0)
step()
sluice.barrier()
print("trained", flush=True)
"""
FORKED = (
    "this process was forked from rank 0 of a sluice job and is not a member of it; make the call "
    "in the parent"
)


class Rank:
    """A process whose lines are read from a file: a read from a pipe would wait for a child that
    holds it too."""

    def __init__(self, program: str, rank: int, port: int, module: str, folder: Path) -> None:
        self.file = folder / f"rank{rank}"
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                     "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port), "PYTHONPATH": module, "SLUICE_LOG": "warn",
                     "OMP_NUM_THREADS": "1"}  # fmt: skip
        with self.file.open("w") as out:
            self.process = subprocess.Popen([sys.executable, "-c", program], stdout=out,
                                            stderr=subprocess.STDOUT,
                                            env={**os.environ, **variables},
                                            start_new_session=True)  # fmt: skip

    def words(self, first: str) -> list[str]:
        lines = [line for line in self.file.read_text().splitlines() if line.split()[:1] == [first]]
        return [line.partition(" ")[2] for line in lines]

    def wait_for(self, first: str, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while not self.words(first):
            assert time.monotonic() < deadline, f"no '{first}' in:\n{self.file.read_text()}"
            time.sleep(0.01)
        return self.words(first)[0]

    def end(self) -> None:
        try:
            # The session of the rank has only the rank and its child.
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class World:
    def __init__(self, program: str, port: int, module: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ranks = [
            Rank(program, rank, port, module, Path(self.folder.name)) for rank in range(2)
        ]

    def __enter__(self) -> list[Rank]:
        return self.ranks

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.end()
        self.folder.cleanup()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def detection(module: str) -> bool:
    times = []
    for program in (TRAIN + FOREVER, TRAIN + CHILD % 1 + FOREVER):
        with World(program, free_port(), module) as ranks:
            for rank in ranks:
                rank.wait_for("trains", 150)
            time.sleep(0.5)
            begun = time.monotonic()
            ranks[1].process.kill()
            times.append(float(ranks[0].wait_for("told", 30).split()[0]) - begun)
            if ranks[1].words("child"):
                assert is_alive(int(ranks[1].words("child")[0])), (
                    "the child has ended too early to show anything"
                )
    print(f"detection: {times[0]:.2f} s without a child, {times[1]:.2f} s with one")
    return times[1] < 1


def ordinary_exit(module: str) -> bool:
    with World(TRAIN + EXIT, free_port(), module) as ranks:
        for rank in ranks:
            rank.wait_for("trained", 150)
        print(
            f"exit: the child {ranks[0].words('ended') or 'hangs'}; it was told "
            f"{ranks[0].words('raised')}"
        )
        return ranks[0].words("ended") == ["7"] and ranks[0].words("raised") == [FORKED, FORKED]


def port(module: str) -> bool:
    number = free_port()
    with World(TRAIN + CHILD % 0 + FOREVER, number, module) as ranks:
        for rank in ranks:
            rank.wait_for("trains", 150)
        child = int(ranks[0].words("child")[0])
        ranks[0].process.kill()
        ranks[0].process.wait()
        ranks[1].wait_for("told", 30)
        assert is_alive(child), "the child has ended too early to show anything"
        with socket.socket(socket.AF_INET) as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                again.bind(("127.0.0.1", number))
                again.listen()
            except OSError as error:
                print(f"port: the next job on this MASTER_PORT would get: {error}")
                return False
    print("port: free while the child lives")
    return True


def main() -> None:
    parts = {"detection": detection, "exit": ordinary_exit, "port": port}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default="build/release/python")
    parser.add_argument("parts", nargs="*", metavar="PART", help="detection, exit or port")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(parts):
        parser.error(f"no part '{unknown.pop()}'; there are {', '.join(parts)}")
    module = os.path.abspath(args.python)
    results = [parts[name](module) for name in args.parts or parts]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
