"""Kills a random rank somewhere in 1,000 steps, again and again: the others must end within 5 s and name it, and leave nothing.

    PYTHONPATH=build/release/python python3 tests/python/kill_ranks.py --times 20

Takes about twelve seconds each time, so it is not among the tests. Its last line is the summary: how many ended well, how long
it took, which processes and what in /dev/shm were left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from ranks import environment, free_port

STEPS = 1000
TRAINING = """
import os, torch, sluice
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 64))
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.AdamW(ps, lr=1e-3))
for step in range(%d):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    print(step, flush=True)
"""


MARK = f"KILL_RANKS={os.getpid()}"  # in the environment of every rank and of whatever it starts


def strays() -> list[int]:
    """Processes of ours that are still there."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or is not ours to look at
                if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def once(world: int, luck: random.Random, limit: float) -> tuple[float, str]:
    """How long the slowest of the others took, and what was wrong; empty if nothing."""
    port, victim, last = free_port(), luck.randrange(world), luck.randrange(5, STEPS - 100)
    ranks = [
        subprocess.Popen([sys.executable, "-c", TRAINING % STEPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=environment(rank, world, port, SLUICE_SILENCE_LIMIT="2s", **dict([MARK.split("=")])))
        for rank in range(world)
    ]  # fmt: skip
    wrong = []
    slowest = 0.0
    try:
        watched = ranks[victim].stdout
        assert watched is not None
        while watched.readline().strip() != str(last):
            if ranks[victim].poll() is not None:
                return 0.0, f"rank {victim} ended by itself"
        ranks[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for number, rank in enumerate(ranks):
            if number == victim:
                continue
            try:
                _, errors = rank.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                wrong.append(f"rank {number} has not ended after 30 s")
                continue
            slowest = max(slowest, time.monotonic() - killed)
            line = errors.strip().splitlines()[-1] if errors.strip() else "(it said nothing)"
            if rank.returncode == 0 or f"rank {victim}" not in line:
                wrong.append(f"rank {number} ended with {rank.returncode}: {line}")
        ranks[victim].communicate()
        if left := [pid for pid in strays() if all(pid != rank.pid for rank in ranks)]:
            wrong.append(f"processes are left: {left}")
        if slowest > limit:
            wrong.append(f"it took {slowest:.1f} s")
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    print(
        f"rank {victim} of {world} killed after step {last}: the others ended in {slowest:.2f} s {'; '.join(wrong)}", flush=True
    )
    return slowest, "; ".join(wrong)


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    luck, before = random.Random(args.seed), shared_memory()
    results = [once(args.world, luck, args.limit) for _ in range(args.times)]
    left, running = shared_memory() - before, strays()
    good = sum(not wrong for _, wrong in results)
    times = [seconds for seconds, _ in results]
    print(f"{good} of {args.times} in good order; the others ended after {statistics.median(times):.2f} s (median), "
          f"{max(times):.2f} s at most; stray processes: {running or 'none'}; left in /dev/shm: "
          f"{', '.join(sorted(left)) or 'nothing'}")  # fmt: skip
    sys.exit(0 if good == args.times and not left and not running else 1)


if __name__ == "__main__":
    main()
