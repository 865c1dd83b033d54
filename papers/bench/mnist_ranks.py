"""The ranks of examples/mnist_cnn.py, for measurements of the accuracy that it prints."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from sluice.processes import free_port

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist_cnn.py"


def command_for(args: argparse.Namespace, dataset: str, seed: int) -> list[str]:
    """Returns the command of each rank. `args` has data, steps and batch."""
    return [sys.executable, str(EXAMPLE), "--data", str(args.data), "--dataset", dataset,
            "--seed", str(seed), "--steps", str(args.steps), "--batch", str(args.batch),
            "--decay"]  # fmt: skip


def start(
    command: list[str], world: int, variables: dict[str, str], first_stderr: int
) -> list[subprocess.Popen[str]]:
    """Starts the ranks. Rank 0 prints the accuracy at its end, and its progress to stderr."""
    launched = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", **variables}  # fmt: skip
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **launched, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=first_stderr if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(world)
    ]


def accuracy_in(said: str) -> float | None:
    """Returns the accuracy in percent that rank 0 has printed, if any."""
    found = re.search(r"accuracy on the test images: ([\d.]+) %", said)
    return None if found is None else float(found.group(1))


def by_way(
    ways: Iterable[str], seeds: int, measure: Callable[[str, int], float], of: str = ""
) -> dict[str, list[float]]:
    """Measures every way to train with each seed, one seed after the other."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(1, seeds + 1):
        for way, percents in found.items():
            percents.append(measure(way, seed))
            print(f"{of}seed {seed}, {way}: {percents[-1]:.2f} %", file=sys.stderr, flush=True)
    return found
