"""One rank of members_vs_torchft.py: a small training with torchft, or the same with sluice.

    python3 papers/bench/torchft_rank.py sluice|torchft

The driver sets the environment: RANK, COMPUTE_S (seconds of computing in a step), ADDRESS (of this
rank's host), and for torchft TORCHFT_LIGHTHOUSE, MIN_RANKS and GLOO_TIMEOUT_S. The loop, the model
and the batches are the same for both. It goes on until the process is killed, and prints a line of
JSON at the end of each step: the time (CLOCK_MONOTONIC), whether the optimizer has counted this
rank's gradients, and the number of ranks.

Computing is a sleep in the forward and backward pass of each layer: a third of it in forward.
torchft is set up as in its example train_ddp.py: one process is one replica group.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 256
BATCH = 8
Step = Callable[[], bool]  # makes the optimizer's step; true if this rank's gradients counted


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds / 3)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * ctx.seconds / 3)
        return gradients[0], None


class Layer(nn.Module):
    """A linear layer that takes its time."""

    def __init__(self, inputs: int, outputs: int, seconds: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        slept: Tensor = Sleep.apply(self.linear(x), self.seconds)
        return slept


def make_model(seconds: float) -> nn.Module:
    torch.manual_seed(1)
    sizes = (32, WIDTH, WIDTH, 10)
    layers = [Layer(a, b, seconds / 3) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def with_sluice(model: nn.Module) -> tuple[nn.Module, Any, Step, Callable[[], int]]:
    import sluice

    model, optimizer = sluice.distribute(model, make_optimizer)

    def step() -> bool:
        optimizer.step()
        return True

    return model, optimizer, step, sluice.world_size


def with_torchft(model: nn.Module) -> tuple[nn.Module, Any, Step, Callable[[], int]]:
    import torchft
    from torch.distributed import TCPStore
    from torchft.checkpointing.pg_transport import PGTransport

    address = os.environ["ADDRESS"]
    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    group = torchft.ProcessGroupGloo(timeout=timedelta(seconds=float(os.environ["GLOO_TIMEOUT_S"])))
    manager = torchft.Manager(
        pg=group,
        load_state_dict=lambda state: load(state),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=int(os.environ["MIN_RANKS"]),
        timeout=timedelta(seconds=30),
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=store.port,
        replica_id=f"rank{os.environ['RANK']}",
        hostname=address,
        checkpoint_transport=PGTransport(group, timedelta(seconds=10), torch.device("cpu")),
        init_sync=False,  # all ranks begin with the same parameters
    )
    trained = torchft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, make_optimizer(model.parameters()))

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def step(_kept: TCPStore = store) -> bool:
        takes_part, before = manager.is_participating(), manager.current_step()
        optimizer.step()  # does nothing if should_commit() is false
        return bool(takes_part and manager.current_step() > before)

    return trained, optimizer, step, manager.num_participants


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    wrap = {"sluice": with_sluice, "torchft": with_torchft}[sys.argv[1]]
    model, optimizer, step, world = wrap(make_model(float(os.environ["COMPUTE_S"])))
    random = torch.Generator().manual_seed(rank)
    while True:
        x = torch.randn((BATCH, 32), generator=random)
        y = torch.randint(0, 10, (BATCH,), generator=random)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        made = step()
        print(json.dumps({"at": time.monotonic(), "made": made, "world": world()}), flush=True)


if __name__ == "__main__":
    main()
