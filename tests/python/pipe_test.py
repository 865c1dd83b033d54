"""Tests Pipe-SGD: gradients are applied late, as in a loop around DDP by hand, and evaluations and
checkpoints change nothing."""

from __future__ import annotations

import copy
import io
import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from place import on_host
from ranks import Ranks, run_script
from torch import Tensor, nn
from torch.nn import functional
from training import assert_equal, batches, ddp, make_net

import sluice

STEPS, WARM_UP = 20, int(os.environ.get("SLUICE_PIPE_WARM_UP", "0"))
DEPTH = int(os.environ.get("SLUICE_ALGORITHM", "pipe").partition(":")[2] or "2")


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def delayed_by_hand() -> dict[str, Tensor]:
    """Trains with DDP and a queue of its mean gradients."""
    model = make_net()
    wrapped, optimizer = ddp(model), make_optimizer(model.parameters())
    waiting: deque[list[Tensor]] = deque()

    def apply() -> None:
        for parameter, gradient in zip(model.parameters(), waiting.popleft(), strict=True):
            parameter.grad = gradient
        optimizer.step()

    for number, (x, y) in enumerate(batches(STEPS)):
        optimizer.zero_grad()
        functional.cross_entropy(wrapped(x), y).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        waiting.append([gradient.clone() for gradient in gradients if gradient is not None])
        if len(waiting) > (0 if number < WARM_UP else DEPTH - 1):
            apply()
    while waiting:
        apply()
    return model.state_dict()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: list[tuple[Tensor, Tensor]],
    clips: bool = False,
) -> None:
    for x, y in data:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        if clips:
            # Clipping reads every mean and changes no value.
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()


def same_as_by_hand() -> None:
    torch.set_num_threads(1)
    with on_host():
        expected = delayed_by_hand()
    data = list(batches(STEPS))

    model, optimizer = sluice.distribute(make_net(), make_optimizer)
    train(model, optimizer, data)
    optimizer.drain()
    assert_equal(model.state_dict(), expected)

    # Train again with evaluations, and with a checkpoint from which another model goes on.
    model, optimizer = sluice.distribute(make_net(), make_optimizer)
    train(model, optimizer, data[:3])
    for number, part in enumerate((data[3:9], data[9:14], data[14:])):
        model.eval()
        with torch.no_grad():
            model(data[0][0])
        model.train()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        model, optimizer = sluice.distribute(make_net(seed=99), make_optimizer)
        saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train(model, optimizer, part, clips=number == 2)
    assert "sluice" in optimizer.state_dict() or DEPTH == 1
    optimizer.drain()
    assert_equal(model.state_dict(), expected)

    # Go back to a checkpoint in place, and train the same steps again.
    model, optimizer = sluice.distribute(make_net(), make_optimizer)
    train(model, optimizer, data[:10])
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, data[:4])
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    train(model, optimizer, data[10:])
    optimizer.drain()
    optimizer.drain()  # no delayed gradient is left
    assert_equal(model.state_dict(), expected)


@pytest.mark.parametrize(("depth", "warm_up"), [(2, 0), (3, 5), (1, 0)])
def test_the_same_as_delayed_by_hand(depth: int, warm_up: int) -> None:
    ranks = Ranks(
        2,
        SLUICE_ALGORITHM="pipe" if depth == 2 else f"pipe:{depth}",
        SLUICE_PIPE_WARM_UP=str(warm_up),
    )
    ranks.run(same_as_by_hand)
    assert ranks.end() == [0, 0]


def resumed_with_codec() -> None:
    """The checkpoint also has the error that a codec carries over: each rank saves its own."""
    data = list(batches(STEPS))
    results = []
    for stops in (False, True):
        model, optimizer = sluice.distribute(make_net(), make_optimizer)
        train(model, optimizer, data[:9])
        if stops:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model, optimizer = sluice.distribute(make_net(), make_optimizer)
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        train(model, optimizer, data[9:])
        optimizer.drain()
        results.append({name: value.clone() for name, value in model.state_dict().items()})
    assert_equal(results[0], results[1])
    for parameter in model.parameters():
        assert torch.equal(sluice.mean(parameter.detach().double()), parameter.double())


@pytest.mark.parametrize("algorithm", ["pipe", "wfbp"])
def test_a_checkpoint_holds_what_a_codec_owes(algorithm: str) -> None:
    ranks = Ranks(2, SLUICE_ALGORITHM=algorithm, SLUICE_CODEC="int8")
    ranks.run(resumed_with_codec)
    assert ranks.end() == [0, 0]


TWICE = """
import torch, sluice
model, optimizer = sluice.distribute(torch.nn.Linear(3, 3), \
lambda ps: torch.optim.SGD(ps, lr=0.1), algorithm="pipe")
x = torch.randn(4, 3)
for step in range(4):
    with model.no_sync():
        model(x).sum().backward()
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=step % 2 == 0)
try:
    for _ in range(2):
        model(x).sum().backward()
except RuntimeError as error:
    print(error)
"""


def test_a_new_gradient_is_not_added_to_a_late_one() -> None:
    for result in run_script(TWICE, 2):
        assert result.returncode == 0, result.stderr
        assert "zero_grad() after every step()" in result.stdout, result.stdout


WRITTEN_IN_PYTHON = """
import os, time, torch, torch.distributed as dist, sluice
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, \
world_size=2)
class Slow(dist.ProcessGroup):
    def __init__(self):
        super().__init__(rank, 2)
        self.gloo = dist.group.WORLD
    def allreduce(self, tensors, options=dist.AllreduceOptions()):
        time.sleep(0.2)  # the network's thread is in here, without the GIL, \
when the training thread asks it something
        return self.gloo.allreduce(tensors, options)
    def broadcast(self, tensors, options=dist.BroadcastOptions()):
        return self.gloo.broadcast(tensors, options)
    def size(self):
        return 2
    def getBackendName(self):
        return "slow"
model, optimizer = sluice.distribute(torch.nn.Linear(10, 10), \
lambda ps: torch.optim.SGD(ps, lr=0.1), algorithm="pipe",
                                     process_group=Slow(), broadcast_buffers=False)
for step in range(4):
    optimizer.zero_grad()
    model(torch.ones(4, 10)).sum().backward()
    optimizer.step()
    optimizer._late.engine.session.delayed  # asks the network's thread
optimizer.drain()
print("drained", flush=True)
"""


def test_a_process_group_that_is_written_in_python(tmp_path: Path) -> None:
    """The network's thread needs the GIL for such a group, so no other thread may wait for it with
    the GIL held."""
    for ended in run_script(
        WRITTEN_IN_PYTHON, 2, timeout=60, anew=True, MEETING=str(tmp_path / "meeting")
    ):
        assert (ended.returncode, ended.stdout) == (0, "drained\n"), ended.stderr
