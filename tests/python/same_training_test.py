"""Mean-gradient mode gives DDP's parameters, bit by bit, with two ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from place import IS_DEVICE
from ranks import Ranks
from torch import nn
from training import plain_loop, same_as_ddp


class SignMomentum(torch.optim.Optimizer):
    """A user's own optimizer, which sluice does not know."""

    def __init__(self, params: Iterator[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["mean"] = state.get("mean", torch.zeros_like(p)).mul(0.9).add(p.grad)
                    p.sub_(group["lr"] * state["mean"].sign())


OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "amsgrad": (torch.optim.Adam, {"lr": 1e-3, "amsgrad": True, "weight_decay": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}),
    "foreach": (torch.optim.AdamW, {"lr": 1e-3, "foreach": True}),
    "fused": (torch.optim.AdamW, {"lr": 1e-3, "fused": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3, "momentum": 0.9, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2, "lr_decay": 1e-3}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "adamax": (torch.optim.Adamax, {"lr": 1e-3}),
    "nadam": (torch.optim.NAdam, {"lr": 1e-3}),
    "radam": (torch.optim.RAdam, {"lr": 1e-3}),
    "asgd": (torch.optim.ASGD, {"lr": 1e-2}),
    "rprop": (torch.optim.Rprop, {"lr": 1e-3}),
    "own": (SignMomentum, {"lr": 1e-3}),
}


STEPS = 30 if IS_DEVICE else 200


def optimizer_of(name: str) -> tuple[Any, dict[str, Any]]:
    kind, settings = OPTIMIZERS[name]
    # On a device Torch takes lists of tensors unless told otherwise, and so the reference has to.
    if IS_DEVICE and kind is not SignMomentum and "fused" not in settings:
        settings = {**settings, "foreach": True}
    return kind, settings


def train(name: str, per_tensor: bool) -> None:
    kind, settings = optimizer_of(name)
    same_as_ddp(lambda ps: kind(ps, **settings), plain_loop(STEPS), per_tensor=per_tensor)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_ranks_train_as_with_ddp(two_ranks: Ranks, name: str) -> None:
    two_ranks.run(train, name, False)


def test_an_optimizer_of_ones_own_can_be_taken_in_parts(two_ranks: Ranks) -> None:
    two_ranks.run(train, "own", True)
