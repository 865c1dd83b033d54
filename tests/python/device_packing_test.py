"""Tests algorithms that all-reduce a model on a device (place.py): gradients are staged straight
into the packing of their group, and means leave from there. The bits are DDP's in the host's
memory."""

from __future__ import annotations

from typing import Any

import place
import pytest
import torch
from place import here
from ranks import Ranks
from torch import Tensor, nn
from training import plain_loop, rank, same_as_ddp

pytestmark = pytest.mark.skipif(not place.IS_DEVICE, reason="SLUICE_TEST_DEVICE is not set")


class Wide(nn.Module):
    """Has tensors of many pieces on the device, and a layer in the host's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 300)
        self.middle = nn.Linear(300, 300)
        self.last = nn.Linear(300, 10, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.middle(torch.relu(self.first(x.flatten(1)))))
        return self.last(x.cpu()).to(here())


def make_wide() -> nn.Module:
    torch.manual_seed(5 + rank())
    return Wide()


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def run_all_reduce(mode: str) -> None:
    import sluice_test_device

    sluice_test_device.set_mode(mode, seed=rank(), patience=0.02)
    same_as_ddp(adamw, plain_loop(10), make_wide)


@pytest.mark.parametrize("algorithm", ["allreduce", "wfbp", "mgwfbp", "mgp3"])
def test_all_reduces_have_the_bits_of_ddp(algorithm: str) -> None:
    ranks = Ranks(
        2,
        SLUICE_ALGORITHM=algorithm,
        SLUICE_STAGING_BYTES="65536",
        SLUICE_COMPUTE_TIME="100s",  # a wrong guess: mgwfbp changes its groups
        SLUICE_REPLAN_STEPS="3",
    )
    for mode in ("random", "adversary"):
        ranks.run(run_all_reduce, mode)
    assert ranks.end() == [0, 0]
