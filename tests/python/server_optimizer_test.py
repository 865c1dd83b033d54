"""Tests the optimizer on the servers: the same training up to rounding, the same bits on all ranks,
and no change before step()."""

from __future__ import annotations

import copy
import hashlib
import os
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from place import on_host
from ranks import Ranks
from sluice._job.job import current
from torch import Tensor, nn
from torch.nn import functional
from training import assert_equal, batches, ddp, make_net, plain_loop, rank

import sluice


def close_to_ddp(optimizers: Any, loop: Any, **options: Any) -> None:
    torch.set_num_threads(1)
    with on_host():
        reference = make_net()
        loop(ddp(reference), optimizers(reference.parameters()))
    model, optimizer = sluice.distribute(make_net(), optimizers, server_optimizer=True, **options)
    loop(model, optimizer)
    state = model.state_dict()
    for name, expected in reference.state_dict().items():
        torch.testing.assert_close(
            state[name].cpu(),
            expected,
            rtol=1e-3,
            atol=1e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    own = hashlib.sha256(
        b"".join(state[name].cpu().numpy().tobytes() for name, _ in model.named_parameters())
    ).hexdigest()
    assert len(set(current().gather("digest", own))) == 1


def scheduled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step uses the rate at step(), also if the scheduler goes on before the servers are done."""
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for x, y in batches(12):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()


def skipped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(20)):
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        functional.cross_entropy(model(x), y).backward()
        if number % 3:
            optimizer.step()


def several_backwards(model: Any, optimizer: torch.optim.Optimizer) -> None:
    for number, (x, y) in enumerate(batches(24)):
        with model.no_sync() if number % 4 == 0 else nullcontext():
            functional.cross_entropy(model(x), y).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def not_zeroed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients add up over several steps."""
    for number, (x, y) in enumerate(batches(12)):
        if number % 3 == 0:
            optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


CASES: dict[str, tuple[Any, Any]] = {
    "sgd": (
        lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True),
        plain_loop(40),
    ),
    "adam": (lambda ps: torch.optim.Adam(ps, lr=1e-3, weight_decay=1e-3, eps=1e-4), plain_loop(40)),
    "adamw": (
        lambda ps: torch.optim.AdamW(ps, lr=1e-3, betas=(0.8, 0.99), eps=1e-4),
        plain_loop(40),
    ),
    "scheduled": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), scheduled),
    "skipped": (lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9), skipped),
    "several backwards": (lambda ps: torch.optim.SGD(ps, lr=0.05), several_backwards),
    "not zeroed": (lambda ps: torch.optim.SGD(ps, lr=0.01), not_zeroed),
}


def run_case(name: str) -> None:
    close_to_ddp(*CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_trains_as_ddp_does(two_ranks: Ranks, name: str) -> None:
    two_ranks.run(run_case, name)


def started(steps: int) -> tuple[Any, Any]:
    model, optimizer = sluice.distribute(
        make_net(), lambda ps: torch.optim.SGD(ps, lr=0.1), server_optimizer=True
    )
    plain_loop(steps)(model, optimizer)
    return model, optimizer


def run_without_step() -> None:
    """No parameter changes before step(), nor without step()."""
    model, optimizer = started(3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.zero_grad()
    model.eval()
    for x, y in batches(2):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
    sluice.barrier()
    assert_equal(dict(model.named_parameters()), before)
    optimizer.step()
    after = dict(model.named_parameters())
    assert any(not torch.equal(after[name], before[name]) for name in before)


def test_nothing_happens_without_step(two_ranks: Ranks) -> None:
    two_ranks.run(run_without_step)


def text_of(function: Any) -> str:
    try:
        function()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "nothing"


def run_errors() -> list[str]:
    model, optimizer = started(3)
    saved = optimizer.state_dict()
    # SGD without momentum has no other state.
    assert saved["param_groups"][0]["lr"] == 0.1 and saved["state"] == {}
    texts = [text_of(lambda: copy.deepcopy(optimizer))]
    x, y = next(batches(1))
    optimizer.zero_grad()
    functional.cross_entropy(model(x), y).backward()
    texts += [text_of(optimizer.state_dict), text_of(lambda: optimizer.load_state_dict(saved))]
    texts.append(text_of(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
    texts.append(text_of(lambda: optimizer.step(lambda: None)))
    optimizer.step()
    texts.append(text_of(optimizer.step))
    optimizer.zero_grad()
    with torch.no_grad():
        model.out.bias.zero_()
    texts.append(text_of(lambda: functional.cross_entropy(model(x), y).backward()))
    return texts


def test_what_the_servers_cannot_do_is_an_error(two_ranks: Ranks) -> None:
    for copied, saved, loaded, clipped, closure, again, changed in two_ranks.run(run_errors):
        assert "save or copy the optimizer's state_dict()" in copied
        assert "save and load between step() and the next backward()" in saved
        assert saved == loaded
        assert "cannot be looked at, clipped or unscaled" in clipped
        assert "takes no closure" in closure
        assert "needs a backward() of its own" in again
        assert "'out.bias' was changed outside of step()" in changed


def run_refusals() -> list[str]:
    def groups(parameters: Any) -> torch.optim.Optimizer:
        every: list[Tensor] = list(parameters)
        return torch.optim.SGD([{"params": every[:1]}, {"params": every[1:]}], lr=0.1)

    makers: list[Any] = [
        lambda ps: torch.optim.RMSprop(ps, lr=0.1),
        groups,
        lambda ps: torch.optim.Adam(ps, amsgrad=True),
        lambda ps: torch.optim.SGD(list(ps)[:1], lr=0.1),
    ]
    return [
        text_of(lambda make=make: sluice.distribute(nn.Linear(2, 2), make, server_optimizer=True))
        for make in makers
    ]


def test_refusals(two_ranks: Ranks) -> None:
    for texts in two_ranks.run(run_refusals):
        assert texts == [
            "the servers have no RMSprop; use SGD, Adam, AdamW, or leave out server_optimizer=True",
            "server_optimizer=True takes one parameter group; leave it out to use several",
            "the servers know only amsgrad=False; leave out server_optimizer=True for amsgrad=True",
            "server_optimizer=True takes an optimizer of all trained parameters of the model, and "
            "of no other",
        ]


def run_debug() -> None:
    model, _ = started(6)
    os.environ["SLUICE_DEBUG"] = "gates"
    try:
        shown, its = sluice.distribute(
            make_net(), lambda ps: torch.optim.SGD(ps, lr=0.1), server_optimizer=True
        )
    finally:
        del os.environ["SLUICE_DEBUG"]
    plain_loop(6)(shown, its)
    assert_equal(shown.state_dict(), model.state_dict())
    assert rank() == sluice.rank()


def test_debugging_of_gates(two_ranks: Ranks) -> None:
    two_ranks.run(run_debug)
