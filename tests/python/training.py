"""Small models, and loops that train them by DDP and by sluice on the same data. DDP trains in the
host's memory, also if the tests run on a device (place.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from place import here, on_host
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import sluice

Optimizers = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class Net(nn.Module):
    """A small model with convolution, batch normalisation, tied and functional use of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 6 * 6, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.out(torch.relu(self.hidden(x.flatten(1))))


def rank() -> int:
    return int(os.environ["RANK"])


def batches(steps: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1000 * seed + rank())
    for _ in range(steps):
        yield (
            torch.randn(8, 1, 8, 8, generator=generator, device="cpu").to(here()),
            torch.randint(0, 10, (8,), generator=generator, device="cpu").to(here()),
        )


def make_net(seed: int = 7) -> Net:
    torch.manual_seed(seed + rank())  # all ranks must get rank 0's parameters
    return Net()


def ddp(model: nn.Module, **options: object) -> DistributedDataParallel:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return DistributedDataParallel(model, **options)  # type: ignore[arg-type]


Loop = Callable[[nn.Module, torch.optim.Optimizer], None]


def plain_loop(steps: int) -> Loop:
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for x, y in batches(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    return loop


def same_as_ddp(
    optimizers: Optimizers,
    loop: Loop,
    make: Callable[[], nn.Module] = make_net,
    ddp_options: dict[str, object] | None = None,
    **options: object,
) -> None:
    """Trains twice, and compares every parameter and buffer bit by bit."""
    torch.set_num_threads(1)
    with on_host():
        reference = make()
        wrapped = ddp(reference, **(ddp_options or {}))
        loop(wrapped, optimizers(reference.parameters()))
    model, optimizer = sluice.distribute(  # type: ignore[call-overload]
        make(), optimizers, **options
    )
    loop(model, optimizer)
    assert_equal(model.state_dict(), reference.state_dict())


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        one, other = ours[name].cpu(), tensor.cpu()
        assert torch.equal(one, other), f"'{name}' differs by {(one - other).abs().max()}"
