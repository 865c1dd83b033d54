"""Trains as in figure 4 of Pipe-SGD: four lab hosts, a global batch of 100, the same number of
steps in every way, and accuracy by wall-clock.

    python -m sluice_papers.reproduce.pipe_training --model mlp \\
        --data-dir DATA --seed 1 --json X.json

Models are MNIST-MLP as printed (500-500), and a convex one: the last layer of a network with fixed
random features (differences of two pixels), on Fashion-MNIST. Computing is stretched to --pace, so
that the ratio of wire to compute time is that of the paper's speed-ups.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from sluice.processes import prepare_to_fork
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import sluice
from sluice_papers.reproduce import on_hosts
from sluice_papers.study import data

_WORKERS = 4
_BATCH = 100  # of all workers
# Rates of learning; the paper prints none. Steps that come late are stable up to half the rate of
# others, so a rate near the limit would compare stability and not accuracy.
_RATES = {"mlp": 0.1, "convex": 2.0}
_FEATURES = 20_000  # a message must be longer than what a shaped link lets pass at once
# The paper's names: T is truncation to 16 bits, Q is quantisation to 8.
WAYS: dict[str, dict[str, Any]] = {
    "ps-sync": {"algorithm": "kvstore", "servers": "1", "no_overlap": True},
    "d-sync": {"algorithm": "allreduce"},
    "d-sync+t": {"algorithm": "allreduce", "codec": "bf16"},
    "d-sync+q": {"algorithm": "allreduce", "codec": "int8"},
    "pipe": {"algorithm": "pipe"},
    "pipe+t": {"algorithm": "pipe", "codec": "bf16"},
    "pipe+q": {"algorithm": "pipe", "codec": "int8"},
}
_DATA = {"mlp": "mnist", "convex": "fashion-mnist"}


class Convex(nn.Module):
    """One layer that is trained, on features that are not."""

    pairs: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.randint(784, (2, _FEATURES)))
        self.last = nn.Linear(_FEATURES, 10)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        features = torch.relu(flat[:, self.pairs[0]] - flat[:, self.pairs[1]])
        found: Tensor = self.last(features / math.sqrt(_FEATURES))
        return found


def make(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if name == "convex":
        return Convex()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(),
        nn.Linear(500, 10),
    )  # fmt: skip


def accuracy(model: nn.Module, parameters: Tensor, images: data.Data) -> float:
    with torch.inference_mode():
        vector_to_parameters(parameters, model.parameters())
        found = torch.cat([model(part).argmax(1) for part in images.test_x.split(1000)])
        return float((found == images.test_y).double().mean())


def _train(flags: argparse.Namespace, way: str, images: data.Data, rank: int, out: Path) -> None:
    torch.set_num_threads(1)
    model, optimizer = sluice.distribute(
        make(flags.model, flags.seed),
        lambda parameters: torch.optim.SGD(parameters, lr=_RATES[flags.model]),
        broadcast_buffers=False,
        **WAYS[way],
    )
    order = torch.Generator().manual_seed(flags.seed)
    share, pace = _BATCH // _WORKERS, flags.pace / 1e3
    computed = 0.0  # seconds of the step before
    seen: list[tuple[float, Tensor]] = []
    sluice.barrier()
    begun = time.perf_counter()
    for _ in range(flags.epochs):
        for batch in torch.randperm(len(images.train_x), generator=order).split(_BATCH):
            chosen = batch[rank * share : (rank + 1) * share]
            optimizer.zero_grad()
            time.sleep(max(0.0, pace - computed))
            before = time.perf_counter()
            loss = nn.functional.cross_entropy(
                model(images.train_x[chosen]), images.train_y[chosen]
            )
            loss.backward()
            computed = time.perf_counter() - before
            optimizer.step()
        optimizer.synchronize()
        with torch.no_grad():
            seen.append((time.perf_counter() - begun, parameters_to_vector(model.parameters())))
    sluice.barrier()
    if rank == 0:
        fresh = make(flags.model, flags.seed)
        epochs = [
            {"epoch": epoch, "seconds": seconds, "accuracy": accuracy(fresh, found, images)}
            for epoch, (seconds, found) in enumerate(seen, start=1)
        ]
        out.write_text(json.dumps(epochs))


def _measure(flags: argparse.Namespace) -> list[dict[str, Any]]:
    prepare_to_fork()
    images = data.load(_DATA[flags.model], flags.data_dir, flags.samples)
    rows = []
    for way in flags.ways.split(","):

        def work(rank: int, out: Path, way: str = way) -> None:
            _train(flags, way, images, rank, out)

        epochs = on_hosts.run(_WORKERS, flags.rate, work)
        last = {key: epochs[-1][key] for key in ("accuracy", "seconds")}
        rows.append({"model": flags.model, "way": way, "seed": flags.seed, **last,
                     "epochs": epochs})  # fmt: skip
        print(f"{way}: {last['accuracy']:.4f} in {last['seconds']:.1f} s", file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=list(_DATA), default="mlp")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of mnist/ and so on")
    parser.add_argument("--ways", default=",".join(WAYS), metavar="LIST")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, help="only the first K training images")
    parser.add_argument("--rate", default="1gbit", help="speed of each link")
    parser.add_argument("--pace", type=float, default=14.0, help="ms of computing in a step")
    parser.add_argument("--json", type=Path, required=True)
    flags = parser.parse_args()
    try:
        flags.json.write_text(json.dumps(_measure(flags)) + "\n")
    except OSError as error:
        sys.exit(f"sluice_papers.reproduce.pipe_training: {error}")


if __name__ == "__main__":
    main()
