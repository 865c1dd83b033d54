"""Tests that every wait which the Python engine and the backend ask of a device is needed: each one
is left out, and numbers must then be wrong. The waits inside the staging itself are left out by
sluice_staging_precautions_test.

A call under a stream that has nothing to do leaves out its wait: the call's mark is over at once,
and only that stream waits. The future of a collective is not here: nothing in Python sees its mark,
which is made on the stream of the copies because DDP reads the result on a stream of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import place
import pytest
import torch
import torch.distributed as dist
from place import on_host
from ranks import Ranks
from sluice._engine.backward import Backward
from sluice._engine.gates import Gates
from sluice._tensor.doors import DeviceDoor
from torch import Tensor, nn
from training import make_net, plain_loop, rank

import sluice
from sluice import _core

pytestmark = pytest.mark.skipif(not place.IS_DEVICE, reason="SLUICE_TEST_DEVICE is not set")


@contextlib.contextmanager
def replaced(owner: Any, name: str, new: Callable[..., Any]) -> Iterator[None]:
    """Calls new(old, ...) in place of the method old(...)."""
    old = getattr(owner, name)
    setattr(owner, name, lambda *args, **named: new(old, *args, **named))
    try:
        yield
    finally:
        setattr(owner, name, old)


def on_idle_stream(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with torch.Stream(torch.device(place.DEVICE)):
        return call(*args, **named)


def not_at_all(call: Callable[..., Any], *args: Any, **named: Any) -> None:
    pass


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def trained(model: nn.Module, steps: int, **options: Any) -> nn.Module:
    model, optimizer = sluice.distribute(model, sgd, **options)
    plain_loop(steps)(model, optimizer)
    return model


def training() -> list[Tensor]:
    return list(trained(make_net(), 4).state_dict().values())


def copies_before_servers_step() -> list[Tensor]:
    torch.manual_seed(1)
    model, optimizer = sluice.distribute(nn.Linear(300, 300), sgd, server_optimizer=True)
    copies = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(4, 300)).square().mean().backward()
        copies.append(model.weight.detach().clone())
        optimizer.step()
    return copies


def reading_on_another_stream() -> list[Tensor]:
    model = trained(make_net(), 3)
    for parameter in model.parameters():  # opens the gates
        parameter.detach()
    if place.here().type == "cpu":
        return [parameter.detach().clone() for parameter in model.parameters()]
    stream = torch.Stream(torch.device(place.DEVICE))
    with stream:
        seen = [parameter.detach().clone() for parameter in model.parameters()]
    stream.synchronize()
    return seen


class Branches(nn.Module):
    """Rank 0 has no gradient for one of the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.one = nn.Linear(300, 300), nn.Linear(300, 350)

    def forward(self, x: Tensor) -> Tensor:
        x = self.both(x)
        return x if rank() == 0 else self.one(x)


def memory_of_a_missing_gradient() -> list[Tensor]:
    """The mean comes to memory that was free for the host, but is still read on the device."""
    torch.manual_seed(1)
    model, optimizer = sluice.distribute(Branches(), sgd)
    seen: list[Tensor] = []
    where = place.here()  # autograd's thread does not know

    def read_before(end: Callable[..., Any], *args: Any) -> None:
        # No other tensor has this size.
        seen.append(torch.full((350, 300), float(len(seen)), device=where) + 1)
        end(*args)

    with replaced(Backward, "_end", read_before):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(4, 300)).square().mean().backward()
            optimizer.step()
    return [*seen, *model.state_dict().values()]


def wait_for(work: dist.Work) -> None:
    work.wait()


def collective() -> list[Tensor]:
    values = [torch.arange(20_000.0) * (1 + rank()) for _ in range(4)]
    for value in values:
        value.mul_(2)
        wait_for(dist.all_reduce(value, async_op=True))
        value.add_(1)
    return values


WAITS: dict[str, tuple[Callable[[], list[Tensor]], Any, str, Any]] = {
    "a gradient is copied when it is there":
        (training, DeviceDoor, "gradient_ready", on_idle_stream),
    "an update reads means that have landed":
        (training, _core.Session, "wait", on_idle_stream),
    "a reader on another stream waits for the update":
        (reading_on_another_stream, Gates, "follow_update", not_at_all),
    "servers' results wait for the last readers of a parameter":
        (copies_before_servers_step, DeviceDoor, "wait_before_results", not_at_all),
    "a mean comes to memory that nobody reads any more":
        (memory_of_a_missing_gradient, DeviceDoor, "gradient_absent", on_idle_stream),
    "a result of the backend is read when it has landed":
        (collective, sys.modules[__name__], "wait_for", on_idle_stream),
    "a call of the backend takes values that are there":
        (collective, dist, "all_reduce", on_idle_stream),
}  # fmt: skip


def is_found(name: str, is_left_out: bool) -> bool:
    import sluice_test_device

    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("sluice")
    work, owner, method, instead = WAITS[name]
    with on_host():
        expected = [value.clone() for value in work()]
    sluice_test_device.set_mode("adversary", seed=rank(), patience=0.05)
    with replaced(owner, method, instead) if is_left_out else contextlib.nullcontext():
        seen = [value.cpu() for value in work()]
    return not all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    # The comparison of ranks finds wrong numbers too; here the numbers are looked at.
    ranks = Ranks(2, SLUICE_COMPARE_RANKS="off")
    yield ranks
    assert ranks.end() == [0, 0]


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_needed(ranks: Ranks, name: str) -> None:
    assert not any(ranks.run(is_found, name, False))
    assert any(ranks.run(is_found, name, True))
