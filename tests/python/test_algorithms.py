"""Algorithms that all-reduce give DDP's parameters too, bit by bit, with two ranks; with a codec ranks stay alike."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, run_script
from training import plain_loop, same_as_ddp

ALGORITHMS = ["allreduce", "wfbp", "mgwfbp", "mgp3"]


def train() -> None:
    same_as_ddp(lambda ps: torch.optim.AdamW(ps, lr=1e-3), plain_loop(50), algorithm=os.environ["SLUICE_ALGORITHM"])


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


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "mgp3"])
def test_over_the_users_own_process_group(algorithm: str) -> None:
    ranks = Ranks(2, SLUICE_ALGORITHM=algorithm)
    ranks.run(train_over_gloo)
    assert ranks.end() == [0, 0]


REFUSED = """
import torch, torch.distributed as dist, sluice
dist.init_process_group("gloo")
try:
    sluice.distribute(torch.nn.Linear(2, 2), lambda ps: torch.optim.SGD(ps, lr=0.1), process_group=dist.group.WORLD, {options})
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "why"),
    [('algorithm="sluice"', "a process group reduces"), ('algorithm="wfbp", codec="int8"', "cannot use a codec")],
)
def test_a_process_group_is_refused_where_it_has_nothing_to_do(options: str, why: str) -> None:
    for result in run_script(REFUSED.format(options=options), 2):
        assert result.returncode == 0 and why in result.stdout, result.stderr


ALIKE = """
import torch, sluice
from training import make_net, plain_loop
model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.05), algorithm="wfbp", codec="{codec}")
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
