"""Kills a random rank somewhere in 1,000 steps, again and again: the others must end within 5 s and
name it, and leave nothing.

    PYTHONPATH=build/release/python python3 tests/python/kill_ranks.py --times 20
    PYTHONPATH=build/release/python python3 tests/python/kill_ranks.py --times 20 --workers 2 \\
      --told 1

One round takes about twelve seconds, so it is not among the tests. Its last lines are the summary:
the time until every other rank had its PeerLostError, the time until their processes had ended, and
the processes and files in /dev/shm that were left. With --workers N every rank has a DataLoader
with N persistent workers, which outlive a killed rank by seconds.
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
import os, sys, time, torch, sluice
def tell(kind, error, trace):
    print("told at", time.monotonic(), kind.__name__, file=sys.stderr)
    sys.__excepthook__(kind, error, trace)
sys.excepthook = tell
torch.manual_seed(1)
workers = int(os.environ["WORKERS"])
loader = torch.utils.data.DataLoader(torch.randn(32 * 100, 64), batch_size=32, num_workers=workers,
                                     persistent_workers=workers > 0)
model = torch.nn.Sequential(torch.nn.Linear(64, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 64))
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.AdamW(ps, lr=1e-3))
for epoch in range(%d // len(loader)):
    for number, batch in enumerate(loader):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        print(epoch * len(loader) + number, flush=True)
"""


# In the environment of every rank and of the processes it starts.
MARK = f"KILL_RANKS={os.getpid()}"


def strays() -> list[int]:
    """Returns the processes of this test that are still alive."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # the process has ended, or another user owns it
                if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def strays_after(seconds: float) -> list[int]:
    """Returns the remaining processes after this time at most: a worker takes some time to miss its
    rank."""
    deadline = time.monotonic() + seconds
    while (left := strays()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def once(world: int, luck: random.Random, args: argparse.Namespace) -> tuple[float, float, str]:
    """Returns the time until the last of the others was told, the time until it had ended, and a
    description of the faults, which is empty if there are no faults."""
    port, victim, last = free_port(), luck.randrange(world), luck.randrange(5, STEPS - 100)
    ranks = [
        subprocess.Popen([sys.executable, "-c", TRAINING % STEPS], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True,
                         env=environment(rank, world, port, SLUICE_SILENCE_LIMIT="2s",
                                         WORKERS=str(args.workers), **dict([MARK.split("=")])))
        for rank in range(world)
    ]  # fmt: skip
    wrong = []
    slowest = told = 0.0
    try:
        watched = ranks[victim].stdout
        assert watched is not None
        while watched.readline().strip() != str(last):
            if ranks[victim].poll() is not None:
                return 0.0, 0.0, f"rank {victim} ended by itself"
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
            heard = [said.split() for said in errors.splitlines() if said.startswith("told at ")]
            told = max([told, *(float(words[2]) - killed for words in heard)])
            if (
                rank.returncode == 0
                or f"rank {victim}" not in line
                or [words[3] for words in heard] != ["PeerLostError"]
            ):
                wrong.append(f"rank {number} ended with {rank.returncode}: {line}")
        ranks[victim].communicate()
        if left := strays_after(15):
            wrong.append(f"processes are left: {left}")
        if slowest > args.limit:
            wrong.append(f"it took {slowest:.1f} s")
        if told > args.told:
            wrong.append(f"it took {told:.2f} s until they were told")
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    print(
        f"rank {victim} of {world} killed after step {last}: the others were told in {told:.2f} s "
        f"and ended in {slowest:.2f} s {'; '.join(wrong)}",
        flush=True,
    )
    return told, slowest, "; ".join(wrong)


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds")
    parser.add_argument(
        "--told",
        type=float,
        default=5.0,
        help="seconds until every other rank has its PeerLostError",
    )
    parser.add_argument("--workers", type=int, default=0, help="of each rank's DataLoader")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    luck, before = random.Random(args.seed), shared_memory()
    results = [once(args.world, luck, args) for _ in range(args.times)]
    left, running = shared_memory() - before, strays()
    good = sum(not wrong for *_, wrong in results)
    told, times = [seconds for seconds, *_ in results], [seconds for _, seconds, _ in results]
    print(f"told after {statistics.median(told):.2f} s (median), {max(told):.2f} s at most")
    print(f"{good} of {args.times} in good order; the others ended after "
          f"{statistics.median(times):.2f} s (median), {max(times):.2f} s at most; stray "
          f"processes: {running or 'none'}; left in /dev/shm: "
          f"{', '.join(sorted(left)) or 'nothing'}")  # fmt: skip
    sys.exit(0 if good == args.times and not left and not running else 1)


if __name__ == "__main__":
    main()
