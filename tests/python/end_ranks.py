"""Ends a job in bad order, again and again: from the first rank's exception on all ranks must end
within seconds, and the others must have its reason.

    PYTHONPATH=build/release/python python3 tests/python/end_ranks.py --times 50

One round takes some seconds, mostly for the import of Torch, so it is not among the tests. There
are three kinds: an exception that all ranks catch before `sys.exit(1)`, `sys.exit(3)` on one rank,
and an exception under a hook that was set after distribute(). The last lines are the summary: the
time from the first rank's exception to the end of the last process.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time

from ranks import environment, free_port

PROGRAM = """
import os, sys, time, torch, sluice
rank, victim, last = (int(os.environ[name]) for name in ("RANK", "VICTIM", "LAST"))
def work():
    model = torch.nn.Sequential(torch.nn.Linear(64, 2000), torch.nn.ReLU(), \
torch.nn.Linear(2000, 64))
    model, optimizer = sluice.distribute(model, lambda ps: torch.optim.AdamW(ps, lr=1e-3))
    if os.environ["KIND"] == "hook":
        sys.excepthook = lambda kind, error, trace: print(error, file=sys.stderr)
    for step in range(1_000_000):
        if rank == victim and step == last:
            print("raises", time.monotonic(), flush=True)
            if os.environ["KIND"] == "exit":
                sys.exit(3)
            raise ValueError("bad sample")
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
if os.environ["KIND"] == "hook":
    work()
try:
    work()
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""
REASONS = {
    "caught": "ValueError: bad sample",
    "exit": "exit code 3",
    "hook": "ValueError: bad sample",
}


def once(kind: str, world: int, luck: random.Random) -> tuple[float, str]:
    """Returns the seconds until the last rank has ended, and a description of the faults, which is
    empty if there are none."""
    port, victim, last = free_port(), luck.randrange(world), luck.randrange(20, 80)
    ranks = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True,
                         env=environment(rank, world, port, KIND=kind, VICTIM=str(victim),
                                         LAST=str(last)))
        for rank in range(world)
    ]  # fmt: skip
    wrong = []
    try:
        first = ranks[victim].stdout
        assert first is not None
        raised = float(first.readline().removeprefix("raises"))
        for number, rank in enumerate(ranks):
            try:
                _, errors = rank.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                wrong.append(f"rank {number} has not ended after a minute")
                continue
            if rank.returncode == 0:
                wrong.append(f"rank {number} ended well")
            if number != victim and f"rank {victim} ended with {REASONS[kind]}" not in errors:
                wrong.append(f"rank {number} does not know why: {errors.strip()[-300:]}")
        seconds = time.monotonic() - raised
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    print(f"{kind}: rank {victim} of {world}, {seconds:.2f} s {'; '.join(wrong)}", flush=True)
    return seconds, "; ".join(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50, help="of each kind")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=REASONS, default=list(REASONS))
    parser.add_argument("--median", type=float, default=3.0, help="seconds")
    parser.add_argument("--longest", type=float, default=8.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    luck, is_good = random.Random(args.seed), True
    lines = []
    for kind in args.kinds:
        results = [once(kind, args.world, luck) for _ in range(args.times)]
        times, good = [seconds for seconds, _ in results], sum(not wrong for _, wrong in results)
        median, longest = statistics.median(times), max(times)
        lines.append(
            f"{kind}: {good} of {args.times} with the reason on all ranks; ended after "
            f"{median:.2f} s (median), {longest:.2f} s at most"
        )
        is_good &= good == args.times and median <= args.median and longest <= args.longest
    print("\n".join(lines))
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
