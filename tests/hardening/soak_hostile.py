#!/usr/bin/env python3
"""Trains job after job under all the attacks and accidents below at the same time.

    python3 tests/hardening/soak_hostile.py --build build/release --seconds 3600

Every round is a job of three ranks on the same port, each with two DataLoader workers. While the
job trains
- strangers connect to every port of the job: they are silent, send garbage, or hang up;
- ranks are stopped for up to a second, and go on;
- ranks are interrupted in the middle of their steps, catch it, and try the step's wait again;
- ranks fork children that end by themselves, exit or are killed.
All ranks must then end with code 0 and the same parameters. In every third round a fourth member
holds the job's key, speaks the protocol by hand and sends nonsense that is well sealed: then each
honest rank must end by an error that names it. No process may die by a signal that this program has
not sent, and no process may be left. The program uses loopback only, and ends only processes that
it has started. The last line is the summary; the exit code is 0 iff every round went as it must.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from peer import free_port, listening_ports

TRAINING = """
import multiprocessing.process
import hashlib, os, random, signal, sys, threading, time
import torch, sluice
from torch.utils.data import DataLoader, TensorDataset

rank, seconds = int(os.environ["RANK"]), float(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 400), torch.nn.ReLU(), torch.nn.Linear(400, 400), \
torch.nn.ReLU(),
                            torch.nn.Linear(400, 16))
# The servers make the step: Ctrl-C in the middle of an optimizer in Python cannot be made good.
model, optimizer = sluice.distribute(
    model, lambda ps: torch.optim.AdamW(ps, lr=1e-3), server_optimizer=True)
data = TensorDataset(torch.randn(256, 16, generator=torch.Generator().manual_seed(rank)))
loader = DataLoader(data, batch_size=8, num_workers=2, persistent_workers=True)
interrupts = 0


def again(wait):
    # A program that catches Ctrl-C and goes on. Signals are blocked outside, so that none is raised
    # where nobody catches it.
    global interrupts
    while True:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            try:
                return wait()
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        except KeyboardInterrupt:
            interrupts += 1


def step(batch):
    again(model.state_dict)  # opens every gate: the wait that is interrupted and resumed
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


luck, children, steps = random.Random(rank), [], 0
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("trains", flush=True)
end = time.monotonic() + seconds
go = True
while go:
    for (batch,) in loader:
        step(batch)
        steps += 1
        # The ranks end after the same step: rank 0 says whether the next one is wanted.
        if steps % 20 == 0:
            wanted = 1.0 if rank != 0 or time.monotonic() < end else 0.0
            if sluice.mean(wanted) < 1.0:
                go = False
                break
            if luck.random() < 0.3:
                child = os.fork()
                if child == 0:
                    # Else Python's own end of this child would terminate its parent's DataLoader
                    # workers.
                    multiprocessing.process._children.clear()
                    how = luck.randrange(3)
                    time.sleep(luck.random())
                    if how == 0:
                        os._exit(0)
                    if how == 1:
                        sys.exit(0)
                    os.kill(os.getpid(), signal.SIGKILL)
                children.append(child)
optimizer.synchronize()
for child in children:
    os.waitpid(child, 0)
text = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in \
model.state_dict().values())).hexdigest()
print("end", text[:16], "steps", steps, "interrupts", interrupts, "children", len(children), \
flush=True)
"""


class Strangers(threading.Thread):
    """Makes about a hundred connections a second without the key, to every port that the ranks
    listen on."""

    def __init__(self, pids: list[int], luck: random.Random) -> None:
        super().__init__(daemon=True)
        self.pids, self.luck = pids, luck
        self.ends = threading.Event()
        self.made = 0

    @staticmethod
    def ports(pid: int) -> list[int]:
        with contextlib.suppress(OSError):  # the rank may have ended
            return listening_ports(pid)
        return []

    def run(self) -> None:
        held: list[socket.socket] = []
        while not self.ends.is_set():
            for pid in self.pids:
                for port in self.ports(pid):
                    with contextlib.suppress(OSError):
                        one = socket.create_connection(("127.0.0.1", port), timeout=1)
                        self.made += 1
                        what = self.luck.randrange(4)
                        if what == 0:
                            one.sendall(self.luck.randbytes(self.luck.randrange(1, 5000)))
                        elif what == 1:
                            one.sendall(b"sluicehs" + self.luck.randbytes(100))
                        elif what == 2:
                            one.sendall(b"\x16\x03\x01\x02\x00\x01" + self.luck.randbytes(600))
                        if self.luck.random() < 0.5:
                            held.append(one)
                        else:
                            one.close()
            while len(held) > 60:
                held.pop(0).close()
            self.ends.wait(0.05)
        for one in held:
            one.close()


class Trouble(threading.Thread):
    """Stops and interrupts the ranks."""

    def __init__(self, ranks: list[subprocess.Popen[str]], luck: random.Random) -> None:
        super().__init__(daemon=True)
        self.ranks, self.luck = ranks, luck
        self.ends = threading.Event()
        self.stops = self.interrupts = 0

    def run(self) -> None:
        while not self.ends.wait(self.luck.random()):
            rank = self.luck.choice(self.ranks)
            if rank.poll() is not None:
                return
            if self.luck.random() < 0.4:
                rank.send_signal(signal.SIGSTOP)
                time.sleep(self.luck.uniform(0.05, 1.0))
                rank.send_signal(signal.SIGCONT)
                self.stops += 1
            else:
                rank.send_signal(signal.SIGINT)
                self.interrupts += 1


class Soak:
    def __init__(self, build: Path, seed: int) -> None:
        self.build = build
        self.luck = random.Random(seed)
        self.mark = f"SOAK_HOSTILE={os.getpid()}"
        self.port = free_port()
        self.counts = dict.fromkeys(
            ("rounds", "mad", "strangers", "stops", "interrupts", "caught", "children", "steps"), 0
        )
        self.faults: list[str] = []

    def start(self, rank: int, world: int, key: Path, seconds: float) -> subprocess.Popen[str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")
        }
        variables = {
            "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port), "OMP_NUM_THREADS": "1", "SLUICE_JOB_KEY_FILE": str(key),
            "SLUICE_ENCRYPT": "on",
            "PYTHONPATH": str(self.build / "python"), "SLUICE_LOG": "warn",
            "SLUICE_CHECK_RANKS_EVERY": "50",
        }  # fmt: skip
        command = [sys.executable, "-c", TRAINING, str(seconds)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        mark = dict([self.mark.split("=")])
        return subprocess.Popen(command, text=True, env={**clean, **variables, **mark}, **pipes)

    def strays(self) -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
        return found

    def round(self, folder: Path, seconds: float) -> None:
        key = folder / "key"
        key.write_text(secrets.token_hex(32) + "\n")
        key.chmod(0o600)
        ranks = [self.start(rank, 3, key, seconds) for rank in range(3)]
        strangers = Strangers([rank.pid for rank in ranks], self.luck)
        trouble = Trouble(ranks, self.luck)
        ends = []
        try:
            strangers.start()
            for rank in ranks:
                assert rank.stdout is not None
                rank.stdout.readline()
            trouble.start()
            for number, rank in enumerate(ranks):
                out, errors = rank.communicate(timeout=seconds + 120)
                words = out.split()
                if rank.returncode != 0 or words[:1] != ["end"]:
                    last = errors.strip().splitlines()[-1:] or ["(it said nothing)"]
                    self.faults.append(f"rank {number} ended with {rank.returncode}: {last[0]}")
                else:
                    ends.append(words[1])
                    self.counts["steps"] += int(words[3])
                    self.counts["caught"] += int(words[5])
                    self.counts["children"] += int(words[7])
        except subprocess.TimeoutExpired:
            self.faults.append("a rank has not ended")
        finally:
            for thread in (strangers, trouble):
                thread.ends.set()
                if thread.ident is not None:
                    thread.join()
            self.end(ranks)
        if len(set(ends)) > 1:
            self.faults.append(f"the ranks have different parameters: {ends}")
        self.counts["rounds"] += 1
        self.counts["strangers"] += strangers.made
        self.counts["stops"] += trouble.stops
        self.counts["interrupts"] += trouble.interrupts

    def mad_round(self) -> None:
        """Runs one honest rank and one that sends well-sealed nonsense. The honest rank must end by
        an error that names the other."""
        program = Path(__file__).with_name("02_check_by_message_test.py")
        variables = {
            **os.environ,
            "SLUICE": str(self.build / "bin/sluice"),
            **dict([self.mark.split("=")]),
        }
        seed = str(self.luck.randrange(1 << 30))
        ended = subprocess.run([sys.executable, str(program), "--nonsense", seed],
                               capture_output=True, text=True, env=variables,
                               timeout=120)  # fmt: skip
        self.counts["mad"] += 1
        if ended.returncode != 0:
            self.faults.append(
                f"mad member with seed {seed}: "
                f"{(ended.stdout + ended.stderr).strip().splitlines()[-1:]}"
            )

    def end(self, ranks: list[subprocess.Popen[str]]) -> None:
        for rank in ranks:
            rank.kill()
            rank.communicate()
        # DataLoader's workers look for their parent every five seconds.
        patience = time.monotonic() + 10
        while self.strays() and time.monotonic() < patience:
            time.sleep(0.2)
        for pid in self.strays():
            self.faults.append(f"process {pid} is left")
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--seconds", type=float, default=3600, help="of all rounds")
    parser.add_argument("--round", type=float, default=20, help="seconds that a job trains")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    soak, begun = Soak(args.build.resolve(), args.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        while time.monotonic() - begun < args.seconds:
            number += 1
            known = len(soak.faults)
            if number % 3 == 0:
                soak.mad_round()
            else:
                soak.round(Path(folder), args.round)
            news = "; ".join(soak.faults[known:]) or "as it must"
            print(f"{time.monotonic() - begun:6.0f} s  round {number}: {news}", flush=True)
    if soak.counts["interrupts"] > 20 and soak.counts["caught"] == 0:
        soak.faults.append("no rank has heard an interrupt")
        print("no rank has heard an interrupt: is SIGINT ignored here?")
    counted = ", ".join(f"{count} {name}" for name, count in soak.counts.items())
    print(f"{counted}; faults: {len(soak.faults)}")
    sys.exit(1 if soak.faults else 0)


if __name__ == "__main__":
    main()
