#!/usr/bin/env python3
"""Measures what it costs to compare ranks by default: CPU seconds in the comparison over those of
the steps, and the longest time that a step waited for it.

    PYTHONPATH=build/release/python python3 bench/comparing_ranks.py --steps 60

Two ranks on this machine train ResNet-50 and a transformer with random inputs of small size: with
larger ones the steps take longer, and the comparison does not. A clock runs inside the functions of
sluice._engine.rank_check on the training thread. The cost counts from step 20 on; the longest wait
counts from the first step on.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    def __init__(self, width: int, middle: int, stride: int) -> None:
        super().__init__()
        out = 4 * middle
        self.body = nn.Sequential(
            nn.Conv2d(width, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or width != out:
            self.skip = nn.Sequential(
                nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def resnet50() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    width = 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Bottleneck(width, middle, stride if number == 0 else 1))
            width = 4 * middle
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    return nn.Sequential(*layers), torch.randn(4, 3, 96, 96)


def transformer() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    return nn.TransformerEncoder(layer, 12), torch.randn(2, 64, 768)


MODELS = {"resnet50": resnet50, "transformer": transformer}


def train(name: str, steps: int) -> None:
    """Runs one rank, and prints a line of JSON."""
    from sluice._engine.rank_check import RankCheck

    import sluice

    spent, waited, calls = 0.0, 0.0, [0.0]

    def timed(function):  # type: ignore[no-untyped-def]
        def call(*args, **named):  # type: ignore[no-untyped-def]
            nonlocal spent, waited
            cpu, wall = time.thread_time(), time.perf_counter()
            result = function(*args, **named)
            spent += time.thread_time() - cpu
            calls[-1] += time.perf_counter() - wall
            return result

        return call

    for method in ("round_ends", "stepped", "look"):
        setattr(RankCheck, method, timed(getattr(RankCheck, method)))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=1e-4))
    begun = before = 0.0
    for step in range(steps):
        if step == 20:
            begun, before = time.process_time(), spent
        calls.append(0.0)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    used = time.process_time() - begun
    print(json.dumps({"cost": (spent - before) / used, "longest": max(calls)}), flush=True)


def measure(name: str, steps: int) -> None:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    launch = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, __file__, "--rank", name, "--steps", str(steps)]
    ranks = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **launch, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    said = [json.loads(rank.communicate()[0].splitlines()[-1]) for rank in ranks]
    cost = statistics.mean(each["cost"] for each in said)
    longest = max(each["longest"] for each in said)
    print(
        f"{name:12} cost {100 * cost:.3f} % of the steps' CPU, longest wait {1e3 * longest:.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="of each model, at least 21")
    parser.add_argument("--rank", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        train(options.rank, options.steps)
        return
    for name in MODELS:
        measure(name, options.steps)


if __name__ == "__main__":
    main()
