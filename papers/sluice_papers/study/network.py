"""The models. The convolutional network is small enough that a hundred trainings take an hour. The
perceptron has a million parameters, for questions about compression and slow links; the small one
takes a quarter of the convolutional network's time, for studies of hundreds of trainings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sluice_papers.study.data import Data

NAMES = ("cnn", "mlp", "small-mlp")


def make(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(28 * 28, 1024), nn.ReLU(), nn.Linear(1024, 192), nn.ReLU(),
            nn.Linear(192, 10),
        )  # fmt: skip
    if name == "small-mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def size(name: str) -> int:
    """Returns the number of parameters."""
    return sum(parameter.numel() for parameter in make(name, 0).parameters())


def flat(model: nn.Module) -> Tensor:
    """Returns all parameters in one row, with their newest values."""
    with torch.no_grad():
        return parameters_to_vector(model.parameters())


def accuracy(name: str, parameters: Tensor, data: Data) -> float:
    """Returns the accuracy of a model with these parameters on the test images. Predictions from
    NaNs are right only by chance, so they count as wrong."""
    if not torch.isfinite(parameters).all():
        return 0.0
    model = make(name, 0)
    with torch.inference_mode():
        vector_to_parameters(parameters, model.parameters())
        found = torch.cat([model(part).argmax(1) for part in data.test_x.split(1000)])
        return float((found == data.test_y).double().mean())
