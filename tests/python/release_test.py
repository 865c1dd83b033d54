"""Tests sluice.release(): a model in training becomes a plain one, and leaves nothing behind.

RELEASED_MODELS=500 trains so many models in turn, with bounds for the growth from the 50th on.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from held import held
from ranks import Ranks, run_script
from sluice._front.model import GatedModule
from sluice._front.optimizer import GatedOptimizer
from sluice._tensor.pending import PendingGradient
from torch import nn
from training import batches, make_net

import sluice

COUNT = int(os.environ.get("RELEASED_MODELS", "30"))
SETTLED = 50 if COUNT >= 100 else 10  # models until the allocator has what it needs
MOST_GROWTH = 10 << 20 if COUNT >= 100 else 20 << 20  # bytes


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_turn(count: int) -> list[tuple[Counter[str], int]]:
    """Trains so many models of 2.1 MB, and returns what was held after each."""
    torch.set_num_threads(1)
    seen = []
    for _ in range(count):
        model: Any = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 4))
        model, optimizer = sluice.distribute(model, lambda ps: torch.optim.Adam(ps, lr=0.1))
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 512)).sum().backward()
            optimizer.step()
        sluice.release(model)
        del model, optimizer
        gc.collect()
        seen.append((held(), memory()))
    return seen


def test_models_in_turn_leave_nothing(two: Ranks) -> None:
    begun = time.monotonic()
    for seen in two.run(in_turn, COUNT, timeout=60 + 2 * COUNT):
        first, last = seen[min(SETTLED, COUNT - 1)], seen[-1]
        grown = last[1] - first[1]
        print(f"\n{COUNT} models in {time.monotonic() - begun:.0f} s: {grown / 1e6:+.1f} MB since "
              f"the {SETTLED}th, {dict(last[0])}")  # fmt: skip
        assert last[0] == first[0]
        assert grown < MOST_GROWTH


def is_plain(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    hooks = [
        hooks
        for module in model.modules()
        for hooks in (module._forward_pre_hooks, module._forward_hooks)
    ]
    backward = [
        hooks
        for p in model.parameters()
        for hooks in (p._backward_hooks, p._post_accumulate_grad_hooks)
    ]
    return (
        not any(isinstance(module, GatedModule) for module in model.modules())
        and not isinstance(optimizer, GatedOptimizer)
        and not any(hooks)
        and not any(backward)
        and not any(isinstance(p.grad, PendingGradient) for p in model.parameters())
        and "_sluice" not in dir(model)
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 0) -> None:
    for x, y in batches(steps, seed):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def released_and_again(on_servers: bool) -> tuple[list[str], bool]:
    """Trains with all ranks, then alone, then with all again; and the same without an end between
    for comparison."""
    torch.set_num_threads(1)
    net, kind = make_net(), type(make_net())
    model, optimizer = sluice.distribute(
        net, lambda ps: torch.optim.Adam(ps, lr=0.01), server_optimizer=on_servers
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    train(model, optimizer, 4)
    gradients = [p.grad for p in model.parameters()] if not on_servers else []
    sluice.release(model)
    assert model is net and type(model) is kind and type(optimizer) is torch.optim.Adam
    assert is_plain(model, optimizer)
    assert all(type(g) is not torch.Tensor or torch.isfinite(g).all() for g in gradients)
    assert len(optimizer.state) == len(list(model.parameters()))
    schedule.step()
    values = [p.detach().clone() for p in model.parameters()]
    train(model, optimizer, 2, seed=1 + sluice.rank())  # alone: nothing waits for the other rank
    alone = [p.detach().clone() for p in model.parameters()]
    model, optimizer = sluice.distribute(model, optimizer, server_optimizer=on_servers)
    train(model, optimizer, 4)
    digest = [repr(float(p.double().sum())) for p in model.parameters()]
    sluice.release(model)
    assert is_plain(model, optimizer)
    return digest, any(not torch.equal(a, b) for a, b in zip(values, alone, strict=True))


@pytest.mark.parametrize("on_servers", [False, True])
def test_a_released_model_is_plain_and_can_be_distributed_again(
    two: Ranks, on_servers: bool
) -> None:
    (first, has_trained), (second, _) = two.run(released_and_again, on_servers)
    assert has_trained and first == second


def between_backward_and_step() -> list[str]:
    torch.set_num_threads(1)
    model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.01))
    train(model, optimizer, 3)
    optimizer.zero_grad()
    ((x, y),) = batches(1)
    nn.functional.cross_entropy(model(x), y).backward()
    sluice.release(model)
    optimizer.step()
    return [repr(float(p.grad.double().sum())) for p in model.parameters() if p.grad is not None]


def test_mean_gradients_are_kept(two: Ranks) -> None:
    first, second = two.run(between_backward_and_step)
    assert first == second and first


def refusals() -> list[str]:
    model, _ = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.01))
    said = [refusal(model.conv), refusal(nn.Linear(1, 1))]
    sluice.release(model)
    return [*said, refusal(model)]


def refusal(model: nn.Module) -> str:
    try:
        sluice.release(model)
    except ValueError as error:
        return str(error)
    return "released"


def test_refusals_say_what_to_do(two: Ranks) -> None:
    for said in two.run(refusals):
        assert said == [
            "Conv2d is a part of a distributed model; release the whole model",
            "Linear is not distributed, or was released already",
            "Net is not distributed, or was released already",
        ]


def test_the_report_of_the_last_model_stays(two: Ranks) -> None:
    for text in two.run(report_after_release):
        assert "'Net-" in text and "sent" in text


def report_after_release() -> str:
    model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.01))
    train(model, optimizer, 3)
    sluice.release(model)
    return sluice.report()


FAILED = """
import torch, sluice, os, sys
rank = int(os.environ["RANK"])
model, optimizer = sluice.distribute(torch.nn.Linear(8, 8), lambda ps: torch.optim.SGD(ps, lr=0.01))
def train(steps):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
train(5)
if rank == 1:
    sys.exit(3)
try:
    sluice.release(model)
except sluice.PeerLostError as error:
    print(error, type(model) is torch.nn.Linear, type(optimizer) is torch.optim.SGD)
"""


def test_a_release_that_fails_gives_the_reason_and_a_plain_model() -> None:
    first, _ = run_script(FAILED, 2, anew=True)
    assert first.stdout.endswith("rank 1 ended with exit code 3 True True\n"), first.stderr


def test_one_process_may_release_too() -> None:
    (ended,) = run_script(FAILED + "print(type(model) is torch.nn.Linear)", 1, anew=True)
    assert ended.stdout == "True\n", ended.stderr
