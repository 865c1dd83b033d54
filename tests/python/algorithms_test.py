"""Algorithms that all-reduce give DDP's parameters bit by bit with two ranks. With a codec the
ranks stay equal. Algorithms that do not keep step learn, too."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, run_script
from training import plain_loop, same_as_ddp

ALGORITHMS = ["allreduce", "wfbp", "mgwfbp", "mgp3"]


def train() -> None:
    same_as_ddp(
        lambda ps: torch.optim.AdamW(ps, lr=1e-3),
        plain_loop(50),
        algorithm=os.environ["SLUICE_ALGORITHM"],
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_ranks_train_as_with_ddp(algorithm: str) -> None:
    ranks = Ranks(2, SLUICE_ALGORITHM=algorithm)
    ranks.run(train)
    assert ranks.end() == [0, 0]


def train_over_gloo() -> None:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    same_as_ddp(
        lambda ps: torch.optim.AdamW(ps, lr=1e-3),
        plain_loop(50),
        algorithm=os.environ["SLUICE_ALGORITHM"],
        process_group=dist.group.WORLD,
    )


# "arsgd" is an alias of "allreduce".
@pytest.mark.parametrize(
    "algorithm", ["arsgd", *(name for name in ALGORITHMS if name not in ("allreduce", "mgp3"))]
)
def test_over_the_users_own_process_group(algorithm: str) -> None:
    ranks = Ranks(
        2, SLUICE_ALGORITHM=algorithm, SLUICE_REPLAN_STEPS="5", SLUICE_COMPUTE_TIME="100s"
    )
    ranks.run(train_over_gloo)
    assert ranks.end() == [0, 0]


REFUSED = """
import torch, torch.distributed as dist, sluice
dist.init_process_group("gloo")
try:
    sluice.distribute(torch.nn.Linear(2, 2), lambda ps: torch.optim.SGD(ps, lr=0.1), \
process_group=dist.group.WORLD, {options})
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('algorithm="sluice"', "process_group works only with algorithm="),
        ('algorithm="wfbp", codec="int8"', "cannot use a codec"),
    ],
)
def test_a_process_group_is_refused_where_it_has_nothing_to_do(options: str, why: str) -> None:
    for result in run_script(REFUSED.format(options=options), 2):
        assert result.returncode == 0 and why in result.stdout, result.stderr


ALIKE = """
import torch, sluice
from training import make_net, plain_loop
model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.05), \
algorithm="wfbp", codec="{codec}")
plain_loop(30)(model, optimizer)
for name, parameter in model.state_dict().items():
    if parameter.is_floating_point() and "running" not in name:
        assert torch.equal(sluice.mean(parameter.double()), parameter.double()), name
print("alike")
"""


@pytest.mark.parametrize("codec", ["fp16", "int8"])
def test_ranks_stay_alike_with_a_codec(codec: str) -> None:
    for result in run_script(ALIKE.format(codec=codec), 2):
        assert (result.returncode, result.stdout) == (0, "alike\n"), result.stderr


# Ranks make different numbers of steps if the algorithm allows it.
APART = """
import torch, sluice
from torch import nn
from torch.nn import functional
torch.manual_seed(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1)
model, optimizer = sluice.distribute(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)),
                                     lambda ps: torch.optim.SGD(ps, lr=0.02), \
server_optimizer=True, algorithm="{algorithm}")
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)
losses = []
for step in range(100 + {more} * sluice.rank()):
    optimizer.zero_grad()
    loss = functional.mse_loss(model(x), y)
    loss.backward()
    if step != 3:
        optimizer.step()
    scheduler.step()
    losses.append(loss.item())
assert losses[-1] < 0.3 * losses[0], losses
print("learns")
"""


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [("asp", 20), ("ssp:2", 0), ("easgd:4", 20), ("gosgd:.5", 20), ("adpsgd", 20)],
)
def test_ranks_learn_without_keeping_step(algorithm: str, more: int) -> None:
    for result in run_script(APART.format(algorithm=algorithm, more=more), 2):
        assert (result.returncode, result.stdout) == (0, "learns\n"), result.stderr


@pytest.mark.parametrize(
    ("algorithm", "more"), [("allreduce", 0), ("bsp", 0), ("asp", 20), ("ssp:2", 0)]
)
def test_ranks_learn_from_compressed_gradients(algorithm: str, more: int) -> None:
    script = APART.format(algorithm=algorithm, more=more).replace(
        "server_optimizer=True,", "server_optimizer=True, dgc=True, dgc_sparsity=0.9,"
    )
    for result in run_script(script.replace("lr=0.02", "lr=0.004, momentum=0.9"), 2):
        assert (result.returncode, result.stdout) == (0, "learns\n"), result.stderr


# One job saves and stops. Another begins with other parameters and goes on from the saved state.
RESUMED = """
import io, torch, sluice
from torch import nn
from torch.nn import functional
torch.manual_seed(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1)
def start():
    return sluice.distribute(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)),
                             lambda ps: torch.optim.{optimizer}, server_optimizer=True, {options})
def train(model, optimizer, steps):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
model, optimizer = start()
first = train(model, optimizer, 100)
sluice.barrier()
file = io.BytesIO()
torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, file)
assert "sluice" in optimizer.state_dict()
sluice.barrier()
model, optimizer = start()
saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
optimizer.load_state_dict(saved["optimizer"])
model.load_state_dict(saved["model"])
second = train(model, optimizer, 5)
assert second[1] < 0.5 * first[0], (first[0], second)
assert second[-1] < 2 * first[-1] + 0.01, (first[-1], second)
print("resumed")
"""


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("Adam(ps, lr=0.01)", 'algorithm="asp"'),
        ("Adam(ps, lr=0.01)", 'algorithm="ssp:2"'),
        ("SGD(ps, lr=0.01, momentum=0.9)", 'algorithm="easgd:2"'),
        ("SGD(ps, lr=0.004, momentum=0.9)", 'algorithm="bsp", dgc=True, dgc_sparsity=0.9'),
        ("SGD(ps, lr=0.004, momentum=0.9)", 'algorithm="asp", dgc=True, dgc_sparsity=0.9'),
    ],
)
def test_training_goes_on_from_a_checkpoint(optimizer: str, options: str) -> None:
    for result in run_script(RESUMED.format(optimizer=optimizer, options=options), 2):
        assert (result.returncode, result.stdout) == (0, "resumed\n"), result.stderr


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ('algorithm="ssp"', "ssp"),
        ('algorithm="easgd"', "easgd"),
        ('algorithm="bsp", dgc=True', "dgc"),
    ],
)
def test_nans_are_not_trained_on(options: str, what: str) -> None:
    script = APART.replace('algorithm="{algorithm}"', options + ', debug="gates"').format(more=0)
    for result in run_script(script, 2):
        assert result.returncode != 0
        assert (
            f"ValueError: debug=gates fills parameters with NaN, which {what} goes on from"
            in result.stderr
        ), result.stderr


def test_other_optimizers_are_refused_in_one_line() -> None:
    script = APART.format(algorithm="asp", more=0).replace("server_optimizer=True, ", "")
    for result in run_script(script, 2):
        assert result.returncode != 0
        assert "ValueError: asp has no mean gradient for another optimizer" in result.stderr, (
            result.stderr
        )
