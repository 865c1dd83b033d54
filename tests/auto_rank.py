"""One rank that trains with the algorithm AUTO_ALGORITHM, for the tests of algorithm="auto". Its
loop accumulates in no_sync(), scales, skips steps and loads its own checkpoint now and then.

  AUTO_STEPS=N         makes N steps
  AUTO_STOP=FILE       goes on until the file is there
  AUTO_UNTIL=complaint goes on until rank 0 has said that a plan cannot be used
  AUTO_PACE=1          goes on until the plan has changed to p3, on connections that are slowed down,
                       and back to sluice

Prints a line for each step if there is such a file, then the number of steps with digests of losses
and parameters, and sluice.report(). With AUTO_CHECK=1 it says whether the parameters have the bits of one process that
sums all gradients in rank order.
"""

from __future__ import annotations

import copy
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from sluice.demo.pacing import pace_connections
from torch import Tensor, nn

import sluice

PAUSE = float(os.environ.get("AUTO_PAUSE", "0.005"))  # seconds, between two steps
SLOW, FAST = 1_500_000, 1 << 60  # bytes per second of one connection
MOST_STEPS = 3000


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 100), nn.Linear(100, 10))


def batch(step: int, rank: int, part: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100_000 * rank + 10 * step + part)
    return (
        torch.randn(8, 64, generator=generator),
        torch.randint(0, 10, (8,), generator=generator),
    )


def loss_of(model: nn.Module, step: int, rank: int, part: int) -> Tensor:
    x, y = batch(step, rank, part)
    return nn.functional.cross_entropy(model(x), y)


def accumulates(step: int) -> bool:
    return step % 5 == 2


def is_skipped(step: int) -> bool:
    return step % 7 == 3


def numbers() -> Iterator[int]:
    """Yields the steps; the same on every rank."""
    training = optimizer._late.engine.training
    if "AUTO_STEPS" in os.environ:
        yield from range(int(os.environ["AUTO_STEPS"]))
    elif "AUTO_PACE" not in os.environ:
        stop = Path(os.environ.get("AUTO_STOP", "/nowhere"))
        auto = optimizer._late.engine._auto  # None: the algorithm is fixed
        advisor = None if auto is None else auto._advisor
        for step in range(MOST_STEPS):
            has_complained = advisor is not None and advisor._has_complained
            is_over = sluice.rank() == 0 and (stop.exists() or has_complained)
            if sluice.mean(float(is_over)) > 0:
                return
            yield step
    else:
        step = 0
        for wanted, pace in (("p3", SLOW), ("sluice", FAST)):
            while training.algorithm != wanted and step < MOST_STEPS:
                # The network is slow from the first window on that has seen it fast.
                pace_connections(pace if step > 2 * int(os.environ["SLUICE_AUTO_STEPS"]) else FAST)
                yield step
                step += 1
        yield from range(step, step + 5)


def train(step: int) -> float:
    rank = sluice.rank()
    optimizer.zero_grad()
    if accumulates(step):
        with model.no_sync():
            scaler.scale(loss_of(model, step, rank, 1)).backward()
    loss = loss_of(model, step, rank, 0)
    scaler.scale(loss).backward()
    if not is_skipped(step):
        scaler.step(optimizer)
        scaler.update()
    if step % 11 == 5:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        model.load_state_dict(copy.deepcopy(model.state_dict()))
    return float(loss.detach())


def reference(steps: int, ranks: int) -> nn.Module:
    """Trains in this process alone."""
    alone = make_model()
    plain = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        if is_skipped(step):
            continue
        means: list[Tensor] = []
        for rank in range(ranks):
            alone.zero_grad()
            for part in (1, 0) if accumulates(step) else (0,):
                (loss_of(alone, step, rank, part) * 1024.0).backward()
            parts = [parameter.grad * (1 / ranks) for parameter in alone.parameters()]
            means = [a + b for a, b in zip(means, parts, strict=True)] if means else parts
        for parameter, mean in zip(alone.parameters(), means, strict=True):
            parameter.grad = mean / 1024.0
        plain.step()
    return alone


def digest(module: nn.Module) -> str:
    whole = b"".join(parameter.detach().numpy().tobytes() for parameter in module.parameters())
    return hashlib.sha256(whole).hexdigest()[:16]


model, optimizer = sluice.distribute(
    make_model(),
    lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    algorithm=os.environ["AUTO_ALGORITHM"],
)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1_000_000)
losses = []
done = 0
for number in numbers():
    losses.append(train(number).hex())
    time.sleep(PAUSE)
    done = number + 1
    if "AUTO_STOP" in os.environ:
        print(f"step {done}", flush=True)
optimizer.synchronize()
said = hashlib.sha256(" ".join(losses).encode()).hexdigest()[:16]
print(f"ended {done} {said} {digest(model)}")
print(sluice.report())
if os.environ.get("AUTO_CHECK") == "1":
    is_exact = digest(reference(done, sluice.world_size())) == digest(model)
    print("exact" if is_exact else "not exact")
