"""Compares the accuracy of a training that loses half of its ranks with that of all ranks and with
that of the half throughout: Fashion-MNIST, the small network of examples/mnist_cnn.py, several
seeds. The lost ranks are killed at random moments in the middle third of the steps. A lost rank's
samples are not dealt to the others, so a step has fewer of them.

    PYTHONPATH=build/release/python python3 papers/bench/members_accuracy.py \\
        --data DATA --json out.json
"""

from __future__ import annotations

import argparse
import json
import random
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import mnist_ranks
from one_etcd import OneEtcd
from sluice.processes import free_port

RANKS, LEFT = 4, 2


def begin(args: argparse.Namespace, world: int, seed: int, etcd: str) -> list[Any]:
    """Starts the ranks of a job that may lose members."""
    variables = {"SLUICE_LOG": "error", "SLUICE_MEMBERS": etcd, "SLUICE_SILENCE_LIMIT": "20s",
                 "SLUICE_JOB": f"accuracy-{secrets.token_hex(4)}",
                 "SLUICE_JOB_KEY": secrets.token_hex(32)}  # fmt: skip
    command = mnist_ranks.command_for(args, "fashion-mnist", seed)
    return mnist_ranks.start(command, world, variables, subprocess.PIPE)


def lose_half(args: argparse.Namespace, ranks: list[Any], seed: int) -> str:
    """Kills ranks in the middle third of the steps. Returns at which steps."""
    luck = random.Random(seed)
    victims = luck.sample(range(1, RANKS), RANKS - LEFT)
    moments = sorted(luck.uniform(1 / 3, 2 / 3) for _ in victims)
    told = []
    for line in ranks[0].stderr:  # ten lines, at each tenth of the steps
        progress = re.match(r"(\d+)/", line)
        if progress is None:
            continue
        step = int(progress.group(1))
        while victims and step >= moments[0] * args.steps - args.steps / 10:
            time.sleep(luck.uniform(0.0, 1.0))
            ranks[victims[0]].kill()
            told.append(f"rank {victims.pop(0)} after step {step}")
            moments.pop(0)
        if not victims:
            break
    return ", ".join(told)


def accuracy(args: argparse.Namespace, way: str, seed: int) -> float:
    """Returns the accuracy in percent."""
    world = LEFT if way == f"{LEFT} ranks" else RANKS
    with tempfile.TemporaryDirectory() as folder:
        etcd = OneEtcd(folder, "127.0.0.1", (free_port(), free_port()))
        ranks = begin(args, world, seed, etcd.members)
        try:
            if way.endswith("lost"):
                print(f"killed: {lose_half(args, ranks, seed)}", file=sys.stderr)
            said, errors = ranks[0].communicate(timeout=args.timeout)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
            etcd.stop()
    found = mnist_ranks.accuracy_in(said)
    if found is None:
        sys.exit(f"{way} with seed {seed} has failed:\n{errors[-2000:]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with fashion-mnist/ in it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="samples a rank and step")
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one training")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ways = [f"{RANKS} ranks", f"{RANKS} ranks, {RANKS - LEFT} lost", f"{LEFT} ranks"]
    found = mnist_ranks.by_way(ways, args.seeds, lambda way, seed: accuracy(args, way, seed))
    if args.json is not None:
        rows = [{"way": way, "batch": args.batch, "steps": args.steps, "percents": percents}
                for way, percents in found.items()]  # fmt: skip
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{'':16}{'mean %':>8}{'spread':>16}")
    for way, percents in found.items():
        spread = f"{min(percents):.2f} to {max(percents):.2f}"
        print(f"{way:16}{statistics.mean(percents):8.2f}{spread:>16}")


if __name__ == "__main__":
    main()
