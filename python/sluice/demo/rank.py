"""One rank of the demo, a process of its own.

python -m sluice.demo.rank measure FOLDER SETTINGS   # a step without a network
python -m sluice.demo.rank train FOLDER SETTINGS     # the rounds

Both write FOLDER/RANK.json. Rank 0 prints a line whenever a part is done.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import sluice
from sluice.demo.model import WAYS, Training
from sluice.demo.pacing import pace_connections
from sluice.demo.settings import Settings

_WARM_UP = 3  # sluice watches its first step, and ends two steps as DDP does


def main() -> None:
    what, folder, text = sys.argv[1:]
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    _take_cores(rank)
    settings = Settings.from_json(text)
    out = Path(folder) / f"{rank}.json"
    found = _train(settings, rank) if what == "train" else _measure(settings, rank, out)
    out.write_text(json.dumps(found))


def _take_cores(rank: int) -> None:
    """Takes half of the cores, so that the ranks do not move onto each other's."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    if half > 0:
        os.sched_setaffinity(0, cores[:half] if rank == 0 else cores[half : 2 * half])


def _measure(settings: Settings, rank: int, scratch: Path) -> dict[str, Any]:
    """Returns the seconds of a step without a network, and the profile of the model."""
    training = Training("plain", settings, rank)
    profile = sluice.Profile(training.model)
    for _ in range(settings.steps):
        training.train(1)
        profile.step()
    profile.save(scratch)
    return {
        "step_s": typical(training.train(settings.steps)),
        "profile": json.loads(scratch.read_text()),
    }


def _train(settings: Settings, rank: int) -> dict[str, Any]:
    dist.init_process_group("gloo")
    ways = {way: Training(way, settings, rank) for way in WAYS}
    for training in ways.values():
        training.train(_WARM_UP)
    paced = pace_connections(settings.pace) if settings.pace else 0
    steps: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(settings.rounds):
        first = number % len(WAYS)  # no way is always the first
        for way in WAYS[first:] + WAYS[:first]:
            steps[way].append(typical(ways[way].train(settings.steps)))
            _say(rank, f"round {number + 1} of {settings.rounds}: {way:7}{_ms(steps[way][-1])}")
    found = {
        "step_s": steps,
        "digests": {way: ways[way].digest() for way in ("ddp", "sluice")},
        "steps": ways["sluice"].steps,
        "paced_connections": paced,
    }
    dist.barrier()
    dist.destroy_process_group()
    return found


def typical(seconds: list[float]) -> float:
    """Returns the median step. The first one has no step before it to wait for."""
    return statistics.median(seconds[1:])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:6.0f} ms a step"


def _say(rank: int, text: str) -> None:
    if rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
