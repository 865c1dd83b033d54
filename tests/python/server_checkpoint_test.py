"""Tests checkpoints of an optimizer that runs on the servers: they are gathered in PyTorch's own
layout, and loaded back."""

from __future__ import annotations

import copy
import io
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from place import on_host
from ranks import Ranks, run_script, running
from torch import Tensor, nn
from torch.nn import functional
from training import assert_equal, batches, ddp, make_net, rank

import sluice

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-4),
    "adam": lambda ps: torch.optim.Adam(ps, lr=1e-3, weight_decay=1e-3, eps=1e-4),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-3, betas=(0.8, 0.99), eps=1e-4),
}
STEPS, STOP = 16, 6


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: list[tuple[Tensor, Tensor]]
) -> None:
    for x, y in data:
        optimizer.zero_grad()
        functional.cross_entropy(model(x.to(next(iter(model.parameters())).dtype)), y).backward()
        optimizer.step()


def on_servers(name: str, model: nn.Module | None = None) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")  # comes first: it and sluice would listen on the same port
    return sluice.distribute(model or make_net(), OPTIMIZERS[name], server_optimizer=True)


def of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns a checkpoint as it comes back from a file."""
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    loaded: dict[str, Any] = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    return loaded


def put_back(model: nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    model.load_state_dict(saved["model"])
    # Copy the state: PyTorch would go on in the same tensors.
    optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))


def first_half(name: str, path: str) -> dict[str, Tensor]:
    """Trains without an interruption, and once more until a checkpoint, which rank 0 saves."""
    data = list(batches(STEPS))
    model, optimizer = on_servers(name)
    train(model, optimizer, data)
    stopped, its = on_servers(name)
    train(stopped, its, data[:STOP])
    saved = of(stopped, its)
    if rank() == 0:
        torch.save(saved, path)
    sluice.barrier()
    return {key: value.cpu().clone() for key, value in model.state_dict().items()}


def second_half(name: str, path: str) -> dict[str, Tensor]:
    model, optimizer = on_servers(name, make_net(seed=99))
    put_back(model, optimizer, torch.load(path, weights_only=True))
    train(model, optimizer, list(batches(STEPS))[STOP:])
    return {key: value.cpu().clone() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_new_job_goes_on_with_the_same_bits(two_ranks: Ranks, name: str, tmp_path: Path) -> None:
    path = str(tmp_path / "saved.pt")
    expected = two_ranks.run(first_half, name, path)
    # Use other slices on other servers: the checkpoint depends on neither.
    for variables in ({}, {"SLUICE_SLICE_ELEMENTS": "1000", "SLUICE_SERVERS": "1"}):
        ranks = Ranks(2, **variables)
        resumed = ranks.run(second_half, name, path)
        assert ranks.end() == [0, 0]
        for ours, theirs in zip(resumed, expected, strict=True):
            assert_equal(ours, theirs)


def to_plain_pytorch(name: str) -> None:
    """Loads state of the servers into PyTorch's optimizer, around DDP and with mean gradients."""
    data = list(batches(STEPS))
    model, optimizer = on_servers(name)
    train(model, optimizer, data[:STOP])
    saved = of(model, optimizer)
    with on_host():
        reference = make_net(seed=3)
        wrapped, its = ddp(reference), OPTIMIZERS[name](reference.parameters())
        train(wrapped, its, list(batches(1)))
    assert layout(saved["optimizer"]) == layout(its.state_dict())

    results = []
    for with_ddp in (True, False):
        with on_host() if with_ddp else nullcontext():
            net = make_net(seed=99)
            if with_ddp:
                trained, its = ddp(net), OPTIMIZERS[name](net.parameters())
            else:
                trained, its = sluice.distribute(net, OPTIMIZERS[name])  # type: ignore[assignment]
            put_back(net, its, saved)
            train(trained, its, list(batches(STEPS))[STOP:])
            results.append(net.state_dict())
    assert_equal(results[0], results[1])

    train(model, optimizer, data[STOP:])
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value.cpu(), results[0][key], rtol=1e-3, atol=1e-5)


def layout(saved: dict[str, Any]) -> Any:
    """Returns the tensors with their sizes and types, in their order."""
    kinds = [
        (number, {key: (value.shape, value.dtype, value.stride()) for key, value in state.items()})
        for number, state in saved["state"].items()
    ]
    return kinds, saved["param_groups"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_plain_pytorch_goes_on_from_it(two_ranks: Ranks, name: str) -> None:
    two_ranks.run(to_plain_pytorch, name)


def from_plain_pytorch(name: str) -> None:
    data = list(batches(STEPS))
    with on_host():
        its_data = list(batches(STEPS))
        net = make_net()
        wrapped, its = ddp(net), OPTIMIZERS[name](net.parameters())
        train(wrapped, its, its_data[:STOP])
        saved = of(net, its)

    loaded = on_servers(name, make_net(seed=99))
    put_back(*loaded, saved)
    # Training has not begun yet, and no state is lost.
    assert layout(loaded[1].state_dict()) == layout(saved["optimizer"])
    train(*loaded, data[STOP:])

    plain = make_net(seed=99)
    before = OPTIMIZERS[name](plain.parameters())
    put_back(plain, before, saved)
    dressed = sluice.distribute(plain, before, server_optimizer=True)
    assert layout(dressed[1].state_dict()) == layout(saved["optimizer"])
    train(*dressed, data[STOP:])
    assert_equal(plain.state_dict(), loaded[0].state_dict())

    with on_host():
        train(wrapped, its, its_data[STOP:])
    for key, value in net.state_dict().items():
        torch.testing.assert_close(plain.state_dict()[key].cpu(), value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_servers_go_on_from_plain_pytorch(two_ranks: Ranks, name: str) -> None:
    two_ranks.run(from_plain_pytorch, name)


def in_place(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    """Goes back to a checkpoint in the middle of a job and trains the same steps again; twice, so
    that the second save is of loaded state."""
    data = list(batches(STEPS))
    model, optimizer = on_servers("adam", make_net().to(dtype=dtype, memory_format=memory_format))
    train(model, optimizer, data[:STOP])
    saved = of(model, optimizer)
    train(model, optimizer, data[STOP:])
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    for _ in range(2):
        put_back(model, optimizer, saved)
        again = of(model, optimizer)
        assert_equal(flat(again["optimizer"]), flat(saved["optimizer"]))
        train(model, optimizer, data[STOP:])
        assert_equal(model.state_dict(), expected)


def flat(saved: dict[str, Any]) -> dict[str, Tensor]:
    return {
        f"{number} {key}": value
        for number, state in saved["state"].items()
        for key, value in state.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_back_to_a_checkpoint(
    two_ranks: Ranks, dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    two_ranks.run(in_place, dtype, memory_format)


def loaded_on_one_rank() -> str:
    model, optimizer = on_servers("adam")
    train(model, optimizer, list(batches(2)))
    saved = of(model, optimizer)
    model, optimizer = on_servers("adam")
    if rank() == 1:
        # Copy the state: PyTorch would go on in the same tensors.
        optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
    try:
        train(model, optimizer, list(batches(1)))
    except ValueError as error:
        return str(error)
    return "nothing"


def test_a_checkpoint_that_one_rank_has_loaded_is_refused() -> None:
    ranks = Ranks(2)
    texts = ranks.run(loaded_on_one_rank)
    ranks.end()
    for text in texts:
        assert text.startswith(
            "the optimizer has a state of 0 parameters and 0 steps on rank 0, but of 8 parameters"
        ), text
        assert "every rank must load the same checkpoint" in text


ALONE = """
import os, time, torch, sluice
model, optimizer = sluice.distribute(torch.nn.Linear(200, 30), lambda ps: torch.optim.AdamW(ps), \
server_optimizer=True)
def step():
    optimizer.zero_grad()
    model(torch.randn(4, 200)).sum().backward()
    optimizer.step()
step()
if os.environ["RANK"] == "0":
    optimizer.synchronize()
    print("saves", flush=True)
    optimizer.state_dict()
{other}
for _ in range(20):
    step()
"""


def test_a_rank_that_saves_alone_names_those_that_train_on() -> None:
    with running(ALONE.format(other=""), 3) as (first, *others):
        assert first.stdout is not None and first.stdout.readline() == "saves\n"
        begun = time.monotonic()
        errors = first.communicate(timeout=60)[1]
        assert time.monotonic() - begun < 5
        assert first.returncode == 1
        line = errors.splitlines()[-1]
        assert (
            "every rank must call optimizer.state_dict()" in line
            and "went on to the next step instead" in line
        ), errors
        assert "rank 1" in line or "rank 2" in line or "ranks 1-2" in line
        for other in others:
            assert "rank 0 ended with RuntimeError" in other.communicate(timeout=60)[1]


def test_a_rank_that_saves_alone_does_not_wait_for_ever() -> None:
    first, _ = run_script(ALONE.format(other="else: time.sleep(6)"), 2, SLUICE_WAIT_TIMEOUT="2s")
    assert first.returncode == 1
    line = first.stderr.splitlines()[-1]
    assert (
        "every rank must call optimizer.state_dict()" in line and "rank 1 did not come" in line
    ), first.stderr
