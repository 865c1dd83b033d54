"""One rank of vs_peers.py: trains the model of examples/fashion_vgg.py with one of the peers.

    python3 papers/bench/peer_rank.py ddp|torchft|hivemind|sluice --data DATA

The driver sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ADDRESS (of this rank's host) and what
torchft_rank.py needs. Model, optimizer and batches are the same for all. The loop goes on
until the process is killed, and prints a line of JSON at the end of each step: the time
(CLOCK_MONOTONIC), whether the optimizer counted this rank's gradients, the number of ranks whose
gradients it used, this host's bytes and this rank's processor time.

With KILL_AT=N the rank kills all of its processes in its Nth step, in the backward pass of the
first convolutions: the gradients of the wide layers are there by then.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import common
from fashion_vgg import make_model
from host_counters import SessionTime, bytes_on_wire
from torchft_rank import Step, make_optimizer, with_sluice, with_torchft

Wrapped = tuple[nn.Module, Any, Step, Callable[[], int]]
FIRST_POOL = 6  # in the model: what comes before it is still to be done when its gradient is there


def with_ddp(model: nn.Module, _: argparse.Namespace) -> Wrapped:
    torch.distributed.init_process_group("gloo")
    # A limit for collectives only: ranks may start further apart.
    limit = timedelta(seconds=float(os.environ["GLOO_TIMEOUT_S"]))
    group = torch.distributed.new_group(timeout=limit)
    trained = nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = make_optimizer(model.parameters())

    def step() -> bool:
        optimizer.step()
        return True

    return trained, optimizer, step, torch.distributed.get_world_size


class Averaged(logging.Handler):
    """Follows what hivemind says about its rounds."""

    SAID = re.compile(r"Averaged gradients with (\d+) peers")
    peers = 1

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if found := self.SAID.search(text):
            self.peers = int(found[1])
        elif "local gradients" in text or "no other peers" in text:
            self.peers = 1


def with_hivemind(model: nn.Module, args: argparse.Namespace) -> Wrapped:
    """One optimizer's step of all ranks for each batch, as far as its rounds allow."""
    import hivemind

    limit = float(os.environ["GLOO_TIMEOUT_S"])
    met = Path(os.environ["HIVEMIND_FILE"])
    first = os.environ["RANK"] == "0"
    while not first and not met.exists():
        time.sleep(0.1)
    dht = hivemind.DHT(
        host_maddrs=[f"/ip4/{os.environ['ADDRESS']}/tcp/0"],
        initial_peers=[] if first else met.read_text().split(),
        start=True,
    )
    if first:
        part = met.with_suffix(".part")
        part.write_text("\n".join(map(str, dht.get_visible_maddrs())))
        part.rename(met)
    said = Averaged()
    logging.getLogger("hivemind.optim.optimizer").addHandler(said)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="vs-peers",
        batch_size_per_step=args.batch,
        target_batch_size=args.batch * int(os.environ["WORLD_SIZE"]) * args.batches_a_round,
        params=model.parameters(),
        optimizer=make_optimizer,
        matchmaking_time=args.matchmaking,
        averaging_timeout=args.matchmaking + 2 * limit,
        next_chunk_timeout=limit,
        verbose=True,
    )

    def step(_kept: Any = dht) -> bool:
        before = optimizer.local_epoch
        optimizer.step()
        return bool(optimizer.local_epoch > before)

    return model, optimizer, step, lambda: said.peers


WITH: dict[str, Callable[[nn.Module, argparse.Namespace], Wrapped]] = {
    "ddp": with_ddp,
    "torchft": lambda model, _: with_torchft(model),
    "hivemind": with_hivemind,
    "sluice": lambda model, _: with_sluice(model),
}


def batches(args: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields this rank's batches: of every epoch, the part that falls to its first number."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    x, y = common.images(args, "fashion-mnist", "train")
    generator = torch.Generator().manual_seed(args.seed)
    while True:
        order = torch.randperm(len(x), generator=generator)[rank::world]
        for begin in range(0, len(order) - args.batch + 1, args.batch):
            chosen = order[begin : begin + args.batch]
            yield x[chosen], y[chosen]


def kill_in_backward(model: nn.Sequential, kill_at: int) -> None:
    """Makes the rank kill its process group in the backward pass of this step."""
    forwards = 0

    def kill(_: Tensor) -> None:
        print(json.dumps({"killed": time.monotonic()}), flush=True)
        os.killpg(0, signal.SIGKILL)

    def watch(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        nonlocal forwards
        forwards += 1
        if forwards == kill_at:
            output.register_hook(kill)

    model[FIRST_POOL].register_forward_hook(watch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("system", choices=sorted(WITH))
    parser.add_argument("--data", default=common.SYNTHETIC)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches-a-round", type=int, default=1, help="of each rank, for hivemind")
    parser.add_argument("--matchmaking", type=float, default=3, help="hivemind's matchmaking_time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    logging.basicConfig(level=logging.INFO)
    plain = make_model()
    if "KILL_AT" in os.environ:
        kill_in_backward(plain, int(os.environ["KILL_AT"]))
    data = batches(args)
    x, y = next(data)
    model, optimizer, step, world = WITH[args.system](plain, args)
    used = SessionTime()
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        made = step()
        sent, received = bytes_on_wire()
        said = {"at": time.monotonic(), "made": made, "world": world(), "loss": float(loss),
                "sent": sent, "received": received, "cpu": used.seconds()}  # fmt: skip
        print(json.dumps(said), flush=True)
        x, y = next(data)


if __name__ == "__main__":
    main()
