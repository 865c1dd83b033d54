"""The training that tests of lost members do, for a rank of a job (rank.py) and for one
process that repeats it (replay.py).

A gradient depends on the parameters, the step, and the member: the rank that a process had at its
launch. Settings come from variables:

  MEMBERS_MODEL=mlp|cnn|branches  branches: some members use a layer that others do not use
  MEMBERS_WIDTH=N                 of the hidden layers
  MEMBERS_OPTIMIZER=sgd|adam      sgd has momentum
  MEMBERS_STEPS=N
  MEMBERS_FIRST=N                 the step that the batches are counted from
  MEMBERS_ACCUMULATE=N            backward passes in a step, all but the last in no_sync()
  MEMBERS_CLIP=X                  clips the norm of the gradients to X; 0: not
  MEMBERS_SCALE=X                 a GradScaler with this scale; 0: none
  MEMBERS_PAUSE=S                 seconds of each step in which nothing is computed
  MEMBERS_JITTER=X                a member's pause is longer or shorter by up to this share
  MEMBERS_MEAN=N                  calls sluice.mean() every N steps; 0: never
  MEMBERS_ALGORITHM=NAME
  MEMBERS_LOAD=FILE               begins with this checkpoint
  MEMBERS_DEVICE=pretend          a device of Torch; for this one, tests/device is in PYTHONPATH
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

with contextlib.suppress(ImportError):  # before sluice, which asks Torch for its accelerator
    import sluice_test_device  # noqa: F401

Digests = dict[str, str]  # by name of the parameter


@dataclasses.dataclass(frozen=True)
class Settings:
    model: str = "mlp"
    width: int = 256
    optimizer: str = "sgd"
    steps: int = 40
    first: int = 0
    accumulate: int = 1
    clip: float = 0.0
    scale: float = 0.0
    pause: float = 0.03
    jitter: float = 0.5
    mean: int = 0
    algorithm: str = "sluice"
    load: str = ""
    device: str = "cpu"

    @staticmethod
    def from_environment() -> Settings:
        found = {}
        for field in dataclasses.fields(Settings):
            text = os.environ.get(f"MEMBERS_{field.name.upper()}")
            if text is not None:
                found[field.name] = type(field.default)(text)
        return Settings(**found)

    def as_environment(self) -> dict[str, str]:
        return {f"MEMBERS_{name.upper()}": str(v) for name, v in dataclasses.asdict(self).items()}

    @property
    def sums_in_rank_order(self) -> bool:
        return self.algorithm in ("sluice", "p3", "slicing", "kvstore")


class Branches(nn.Module):
    """A model with a layer that only some members use, in some steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.entry = nn.Linear(32, width)
        self.side = nn.Linear(width, width)
        self.exit = nn.Linear(width, 10)

    def forward(self, x: Tensor, uses_side: bool = False) -> Tensor:
        x = torch.relu(self.entry(x))
        if uses_side:
            x = torch.relu(self.side(x))
        return self.exit(x)


def make_model(settings: Settings) -> nn.Module:
    torch.manual_seed(1)
    width = settings.width
    if settings.model == "mlp":
        return nn.Sequential(
            nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 10),
        )  # fmt: skip
    if settings.model == "cnn":
        channels = max(4, width // 16)
        return nn.Sequential(
            nn.Conv2d(3, channels, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, bias=False),
            nn.BatchNorm2d(2 * channels), nn.ReLU(), nn.Flatten(),
            nn.Linear(2 * channels * 16, width), nn.ReLU(), nn.Linear(width, 10),
        )  # fmt: skip
    if settings.model == "branches":
        return Branches(width)
    raise ValueError(f"MEMBERS_MODEL is mlp, cnn or branches, not {settings.model}")


def make_optimizer(settings: Settings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=1e-3)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
    raise ValueError(f"MEMBERS_OPTIMIZER is sgd or adam, not {settings.optimizer}")


def make_scaler(settings: Settings) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(
        settings.device,
        init_scale=settings.scale or 1.0,
        growth_interval=1_000_000,
        enabled=settings.scale > 0,
    )


def read_checkpoint(settings: Settings) -> dict[str, Any]:
    """Returns the checkpoint to begin with; empty if there is none."""
    return torch.load(settings.load, map_location="cpu") if settings.load else {}


def uses_side(member: int, step: int) -> bool:
    return random.Random(f"side {member} {step}").random() < 0.25


def loss_of(settings: Settings, model: nn.Module, member: int, step: int, part: int) -> Tensor:
    seed = 1_000_003 * (settings.first + step) + 101 * member + part
    generator = torch.Generator().manual_seed(seed)
    shape = (8, 3, 12, 12) if settings.model == "cnn" else (8, 32)
    x = torch.randn(shape, generator=generator)
    y = torch.randint(0, 10, (8,), generator=generator)
    x, y = x.to(settings.device), y.to(settings.device)
    if settings.model == "branches":
        return nn.functional.cross_entropy(model(x, uses_side(member, settings.first + step)), y)
    return nn.functional.cross_entropy(model(x), y)


NoSync = Callable[[], contextlib.AbstractContextManager[None]]


def run_passes(
    settings: Settings,
    model: nn.Module,
    scaler: torch.amp.GradScaler,
    member: int,
    step: int,
    no_sync: NoSync = contextlib.nullcontext,
    after_forward: Callable[[], None] = lambda: None,
) -> None:
    """Makes the gradients of one member in one step."""
    for part in range(settings.accumulate):
        is_last = part == settings.accumulate - 1
        with contextlib.nullcontext() if is_last else no_sync():
            loss = loss_of(settings, model, member, step, part) / settings.accumulate
            after_forward()
            scaler.scale(loss).backward()


def take_step(
    settings: Settings,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> None:
    """Ends a step whose mean gradients are in place, or on their way."""
    if settings.scale > 0:
        scaler.unscale_(optimizer)
    if settings.clip > 0:
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    scaler.step(optimizer)
    scaler.update()


def digest_of(tensors: Iterable[Tensor]) -> str:
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return whole.hexdigest()[:16]


def digest_of_parameter(parameter: Tensor, optimizer: torch.optim.Optimizer) -> str:
    """Covers the parameter and the optimizer's state of it."""
    state = optimizer.state.get(parameter, {})
    kept = [state[key] for key in sorted(state) if isinstance(state[key], Tensor)]
    return digest_of([parameter, *kept])


def digest_of_step(digests: Digests) -> str:
    whole = " ".join(f"{name} {digests[name]}" for name in sorted(digests))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Returns the buffers as they lie there now."""
    return {
        f"{path}.{name}": buffer
        for path, module in model.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    }
