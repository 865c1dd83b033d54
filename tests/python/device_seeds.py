"""Trains with many seeds of the test device's random delays, and compares the bits with one run in
the host's memory. A program of its own, not among the tests:

    PYTHONPATH=build/release/python:build/release/tests/device python3 tests/python/device_seeds.py

Every case is one job of two or four ranks, in which one model after another is trained."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("SLUICE_TEST_DEVICE", "pretend")

import place
import torch
import torch.distributed as dist
from place import here, let_ddp_copy, on_host
from ranks import Ranks
from sluice.processes import prepare_to_fork
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import sluice

CASES = ["sluice", "p3", "mgwfbp", "pipe", "server_optimizer", "ddp"]


def make() -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Linear(12, 24), nn.Tanh(), nn.LayerNorm(24), nn.Linear(24, 24), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(24, 5))


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, foreach=False)


def train(case: str, steps: int) -> list[Tensor]:
    """Returns the losses and the parameters, in the host's memory."""
    net = make()
    if case == "ddp":
        let_ddp_copy()
        model: nn.Module = DistributedDataParallel(net)
        optimizer = make_optimizer(net.parameters())
    else:
        on_servers = case == "server_optimizer"
        model, optimizer = sluice.distribute(net, make_optimizer, server_optimizer=on_servers)
    data = torch.Generator().manual_seed(int(os.environ["RANK"]))
    losses = []
    for _ in range(steps):
        x = torch.randn(6, 12, generator=data, device="cpu").to(here())
        y = torch.randint(0, 5, (6,), generator=data, device="cpu").to(here())
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if case == "pipe":
        optimizer.drain()  # type: ignore[attr-defined]
    return [torch.stack(losses).cpu(), *(value.cpu() for value in net.state_dict().values())]


def train_many(case: str, first: int, last: int, steps: int, limit: float) -> tuple[int, list[int]]:
    """Returns the first seed that no rank had time for, and the seeds with wrong results."""
    import sluice_test_device

    torch.set_num_threads(1)
    if case == "ddp" and not dist.is_initialized():
        dist.init_process_group("sluice")
    with on_host():
        expected = train(case, steps)
    wrong, begun = [], time.monotonic()
    for seed in range(first, last):
        time_is_up = torch.tensor(float(time.monotonic() - begun > limit), device="cpu")
        if case == "ddp":
            dist.broadcast(time_is_up, 0)
            is_up = bool(time_is_up)
        else:
            is_up = sluice.mean(float(time_is_up)) > 0
        if is_up:
            return seed, wrong
        delay = (10e-6, 50e-6, 200e-6)[seed % 3]
        rank_seed = 100 * seed + int(os.environ["RANK"])
        sluice_test_device.set_mode("random", seed=rank_seed, longest_delay=delay)
        result = train(case, steps)
        if not all(torch.equal(a, b) for a, b in zip(result, expected, strict=True)):
            wrong.append(seed)
    return last, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="many seeds of random delay")
    parser.add_argument("--seeds", type=int, default=300, help="per case")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--worlds", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES)
    parser.add_argument("--limit", type=float, default=600, help="seconds per case and world")
    options = parser.parse_args()
    assert place.IS_DEVICE
    prepare_to_fork()
    failures = 0
    print(f"{'case':18}{'ranks':>6}{'seeds':>7}{'wrong':>7}{'seconds':>9}", flush=True)
    for world in options.worlds:
        for case in options.cases:
            begun = time.monotonic()
            variables = {} if case in ("server_optimizer", "ddp") else {"SLUICE_ALGORITHM": case}
            ranks = Ranks(world, **variables)
            last = options.first + options.seeds
            answers = ranks.run(
                train_many, case, options.first, last, options.steps, options.limit,
                timeout=options.limit + 120,
            )  # fmt: skip
            assert ranks.end(timeout=options.limit) == [0] * world  # one session after another ends
            wrong = sorted({seed for _, seeds in answers for seed in seeds})
            failures += len(wrong)
            row = f"{case:18}{world:6}{answers[0][0] - options.first:7}{len(wrong):7}"
            print(f"{row}{time.monotonic() - begun:9.1f} {wrong[:10] or ''}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    import device_seeds  # ranks import the functions that they run by the module's name

    sys.exit(device_seeds.main())
