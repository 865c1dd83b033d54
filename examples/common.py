"""The code that the examples share: the flag that chooses how to train, data from files, and the
loop with its progress bar.

Nothing here is sluice's own but `distribute` below: it shows all that changes between plain
PyTorch, DDP and sluice.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import sluice

Batches = Iterator[tuple[Tensor, Tensor]]


def argument_parser(description: str, dataset: str, **defaults: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--how",
        choices=["plain", "ddp", "sluice"],
        default="sluice",
        help="how ranks are kept in step",
    )
    parser.add_argument(
        "--backend",
        choices=["gloo", "sluice"],
        default="gloo",
        help="of torch.distributed, with --how ddp",
    )
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help=f"folder with {dataset}/ in it"
    )
    parser.add_argument("--steps", type=int, default=int(defaults["steps"]), help="iterations")
    parser.add_argument(
        "--batch", type=int, default=int(defaults["batch"]), help="samples per rank and iteration"
    )
    parser.add_argument("--lr", type=float, default=defaults["lr"], help="learning rate")
    parser.add_argument(
        "--decay", action="store_true", help="let the learning rate fall to zero along a cosine"
    )
    parser.add_argument("--bucket-mb", type=float, default=25, help="DDP's bucket_cap_mb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of Torch, on each rank")
    parser.add_argument(
        "--profile", type=Path, help="measure where time goes, tensor by tensor; with --how plain"
    )
    parser.add_argument(
        "--report", action="store_true", help="with --how sluice: print where the time went"
    )
    parser.add_argument(
        "--test",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="look at the test data at the end",
    )
    parser.add_argument(
        "--json", type=Path, help="rank 0 writes the times and losses of all iterations here"
    )
    parser.add_argument(
        "--save", type=Path, help="every rank writes its parameters here, as torch.save does"
    )
    return parser


def arguments(description: str, dataset: str, **defaults: float) -> argparse.Namespace:
    return argument_parser(description, dataset, **defaults).parse_args()


def distribute(
    args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    if args.how == "ddp":
        torch.distributed.init_process_group(args.backend)
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=args.bucket_mb), optimizer
    if args.how == "sluice":
        return sluice.distribute(model, optimizer)
    return model, optimizer


def rank_and_world(args: argparse.Namespace) -> tuple[int, int]:
    if args.how == "plain":
        return 0, 1
    if args.how == "sluice":
        return sluice.rank(), sluice.world_size()  # also knows mpirun's and srun's variables
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def images(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Reads images and labels in MNIST's own format, as downloaded; `part` is `train` or `t10k`."""

    def read(name: str, header: int) -> Tensor:
        if not (folder / name).is_file():
            sys.exit(
                f"there is no {folder / name}; give the folder that {folder.name}/ is in as --data"
            )
        with gzip.open(folder / name) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    pixels = read(f"{part}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float() / 255
    return (pixels - 0.1307) / 0.3081, read(f"{part}-labels-idx1-ubyte.gz", 8).long()


def shuffled(x: Tensor, y: Tensor, args: argparse.Namespace) -> Batches:
    """Every rank sees its own part of every epoch."""
    rank, world = rank_and_world(args)
    generator = torch.Generator().manual_seed(args.seed)
    while True:
        order = torch.randperm(len(x), generator=generator)[rank::world]
        for begin in range(0, len(order) - args.batch + 1, args.batch):
            chosen = order[begin : begin + args.batch]
            yield x[chosen], y[chosen]


def train(
    args: argparse.Namespace,
    model: nn.Module,
    make_optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
    batches: Batches,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> nn.Module:
    """Trains the model. The loop is the same for all three ways of training."""
    rank, world = rank_and_world(args)
    trained, optimizer = distribute(args, model, make_optimizer(model.parameters()))
    scheduler = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps) if args.decay else None
    )
    profile = sluice.Profile(model) if args.profile is not None else None
    times, losses = [time.perf_counter()], []
    for step in range(args.steps):
        x, y = next(batches)
        optimizer.zero_grad()
        loss = loss_of(trained(x), y)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if profile is not None:
            profile.step()
        losses.append(loss.detach())
        times.append(time.perf_counter())
        if rank == 0:
            show(step + 1, args, losses, times, world)
    if args.how == "sluice":
        optimizer.drain()  # applies gradients that algorithm=pipe has delayed
    if profile is not None:
        profile.save(args.profile)
    if args.report:
        print(sluice.report(), file=sys.stderr)
    if args.save is not None:
        torch.save(model.state_dict(), args.save)
    if rank == 0 and args.json is not None:
        seconds = [after - before for before, after in itertools.pairwise(times)]
        args.json.write_text(
            json.dumps({"seconds": seconds, "losses": [float(loss) for loss in losses]})
        )
    return trained


def show(
    step: int, args: argparse.Namespace, losses: list[Tensor], times: list[float], world: int
) -> None:
    """Shows a bar on a terminal, and a line now and then elsewhere."""
    recent = times[-min(len(times), 21) :]
    rate = args.batch * world * (len(recent) - 1) / (recent[-1] - recent[0])
    text = f"{step}/{args.steps}  loss {losses[-1].item():.3f}  {rate:.0f} samples/s"
    if sys.stderr.isatty():
        done = 30 * step // args.steps
        end = "\n" if step == args.steps else "\r"
        print(f"[{'#' * done}{'.' * (30 - done)}] {text}  ", end=end, file=sys.stderr, flush=True)
    elif step == args.steps or step % max(1, args.steps // 10) == 0:
        print(text, file=sys.stderr, flush=True)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.inference_mode():
        found = torch.cat([model(part).argmax(1) for part in x.split(500)])
    return float((found == y).double().mean())
