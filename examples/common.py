"""The code that the examples share: the flag that chooses how to train, the data, and the loop with
its progress bar.

Nothing here is sluice's own but `distribute` below: it shows all that changes between plain
PyTorch, DDP and sluice.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import sluice

SYNTHETIC = "synthetic"
Batches = Iterator[tuple[Tensor, Tensor]]
MakeOptimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


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
        "--data",
        default=SYNTHETIC,
        help=f"folder with {dataset}/ in it, or {SYNTHETIC}: made up, without a download",
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


def prepare(args: argparse.Namespace) -> None:
    """Call this before the model is made: all ranks begin with the same random numbers."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.how == "ddp" and "RANK" not in os.environ:
        if "OMPI_COMM_WORLD_RANK" in os.environ or "SLURM_PROCID" in os.environ:
            sys.exit("--how ddp needs torchrun, which sets RANK; --how sluice takes any launcher")
        alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        os.environ.update(alone)


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


def is_first(args: argparse.Namespace) -> bool:
    """Tells if this process is the one that prints. With --how plain each process trains alone, but
    one of them is enough to be read."""
    return rank_and_world(args)[0] == 0 and os.environ.get("RANK", "0") == "0"


def images(args: argparse.Namespace, dataset: str, part: str) -> tuple[Tensor, Tensor]:
    """Returns images and labels; `part` is `train` or `t10k`."""
    if args.data == SYNTHETIC:
        return synthetic_images(part)
    return stored_images(Path(args.data) / dataset, part)


def synthetic_images(part: str) -> tuple[Tensor, Tensor]:
    """Makes up ten patterns of 7 by 7 squares, and images that show one of them in noise."""
    squares = torch.randn(10, 1, 7, 7, generator=torch.Generator().manual_seed(1))
    patterns = squares.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    count, seed = (8000, 2) if part == "train" else (2000, 3)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    noise = torch.randn(count, 1, 28, 28, generator=generator)
    return 0.5 * patterns[labels] + noise, labels


def stored_images(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Reads images and labels in MNIST's own format, as downloaded."""

    def read(name: str, header: int) -> Tensor:
        if not (folder / name).is_file():
            sys.exit(
                f"there is no {folder / name}; give the folder that {folder.name}/ is in as "
                f"--data, or leave --data out"
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


def classify_images(
    args: argparse.Namespace,
    dataset: str,
    model: nn.Module,
    make_optimizer: MakeOptimizer,
    test_images: int = 2000,
) -> None:
    """Trains the model on images, and prints its accuracy on others."""
    batches = shuffled(*images(args, dataset, "train"), args)
    trained = train(args, model, make_optimizer, batches, nn.functional.cross_entropy)
    if not args.test:
        return
    x, y = (tensor[:test_images] for tensor in images(args, dataset, "t10k"))
    found = accuracy(trained, x, y)
    if is_first(args):
        print(f"accuracy on the test images: {100 * found:.2f} %")


def train(
    args: argparse.Namespace,
    model: nn.Module,
    make_optimizer: MakeOptimizer,
    batches: Batches,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> nn.Module:
    """Trains the model. The loop is the same for all three ways of training."""
    _, world = rank_and_world(args)
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
        if is_first(args):
            show(step + 1, args, losses, times, world)
    if args.how == "sluice":
        optimizer.drain()  # applies gradients that algorithm=pipe has delayed
    if profile is not None:
        profile.save(args.profile)
    if args.report:
        print(sluice.report(), file=sys.stderr)
    if args.save is not None:
        torch.save(model.state_dict(), args.save)
    if is_first(args):
        seconds = [after - before for before, after in itertools.pairwise(times)]
        summarize(args, world, seconds)
        if args.json is not None:
            args.json.write_text(
                json.dumps({"seconds": seconds, "losses": [float(loss) for loss in losses]})
            )
    return trained


def summarize(args: argparse.Namespace, world: int, seconds: list[float]) -> None:
    """Prints the speed of the median step: the first ones are slower."""
    if not seconds:
        return
    step = statistics.median(seconds)
    print(
        f"{args.how} on {world} {'rank' if world == 1 else 'ranks'}: "
        f"{args.batch * world / step:.0f} samples/s, {1e3 * step:.1f} ms a step",
        flush=True,
    )


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
