"""Random models and batches, the same in every process that draws them with the same seed."""

from __future__ import annotations

import itertools
import random

import torch
from torch import Tensor, nn

BATCH = 16


def draw(seed: int, device: torch.device) -> nn.Module:
    """Returns a model of a few layers, some narrow and some wide."""
    choice = random.Random(seed)
    torch.manual_seed(seed)
    widths = [32, *(choice.choice([3, 17, 64, 300, 1000]) for _ in range(choice.randint(2, 5)))]
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [nn.Linear(wide, narrow), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1)).to(device)


def batch(seed: int, step: int, rank: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(1_000_000 * seed + 1_000 * step + rank)
    return torch.randn(BATCH, 32, generator=generator).to(device)


def loss_of(model: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = model(inputs)
    return (outputs - 1).square().mean()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def plain_training(seed: int, steps: int, ranks: int, device: torch.device) -> list[Tensor]:
    """Trains with PyTorch alone: every gradient is the mean over the batches of all ranks."""
    model = draw(seed, device)
    optimizer = optimizer_of(model)
    for step in range(steps):
        sums: list[Tensor] = []
        for rank in range(ranks):
            optimizer.zero_grad()
            loss_of(model, batch(seed, step, rank, device)).backward()
            gradients = [p.grad.detach().clone() for p in model.parameters() if p.grad is not None]
            sums = gradients if rank == 0 else [a + b for a, b in zip(sums, gradients, strict=True)]
        for parameter, total in zip(model.parameters(), sums, strict=True):
            parameter.grad = total / ranks
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]
