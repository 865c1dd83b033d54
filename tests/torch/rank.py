"""One of two ranks that try the installed sluice with the Torch that is here (try_torch.py). Prints
an object of JSON: what was found, by name."""

import hashlib
import json
import os
import pathlib
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import sluice
from sluice._backend import groups

STEPS = 8


def digest(model: nn.Module) -> str:
    content = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(content).hexdigest()[:12]


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    torch.manual_seed(9 + rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
        loss.backward()
        optimizer.step()


def group(backend: str) -> None:
    dist.init_process_group(backend, timeout=timedelta(seconds=120))


def with_ddp(backend: str) -> str:
    group(backend)
    model, optimizer = model_and_optimizer()
    distributed = nn.parallel.DistributedDataParallel(model)
    train(distributed, optimizer, dist.get_rank())
    dist.destroy_process_group()
    return digest(model)


def with_sluice(rank: int) -> str:
    model, optimizer = model_and_optimizer()
    model, optimizer = sluice.distribute(model, optimizer)
    train(model, optimizer, rank)
    return digest(model)


def compile_times(rank: int, how: str) -> dict[str, object]:
    """Trains a compiled model from an empty cache; returns its digest, the seconds of the first two
    steps, and the breaks of its graph by their reasons."""
    import torch._dynamo.utils as dynamo

    model, optimizer = model_and_optimizer()
    if how == "sluice":
        model, optimizer = sluice.distribute(model, optimizer)
        trained = torch.compile(model)
    else:
        group("gloo")
        trained = torch.compile(nn.parallel.DistributedDataParallel(model))
    torch.manual_seed(9 + rank)
    begin, first_two = time.perf_counter(), 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
        loss.backward()
        optimizer.step()
        if step == 1:
            first_two = time.perf_counter() - begin
    breaks = {reason.partition("\n")[0]: n for reason, n in dynamo.counters["graph_break"].items()}
    return {"bits": digest(model), "first two steps": round(first_two, 2), "breaks": breaks}


def calls() -> dict[str, object]:
    """Calls of torch.distributed over the backend; each value is as it must be."""
    group("sluice")
    rank, found = dist.get_rank(), {}
    total = torch.full((3,), float(rank + 1))
    dist.all_reduce(total)
    found["all_reduce"] = total.tolist() == [3.0] * 3
    parts = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    found["all_gather"] = [part.tolist() for part in parts] == [[0.0] * 2, [1.0] * 2]
    other = dist.new_group([0, 1], backend="sluice")
    word = [f"from {rank}"]
    dist.broadcast_object_list(word, src=0, group=other)
    found["new_group"] = word == ["from 0"]
    import torch.distributed._functional_collectives as functional

    summed = functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    found["functional"] = functional.wait_tensor(summed).tolist() == [2.0, 2.0]
    dist.destroy_process_group()
    return found


def loss_of_a_rank() -> str:
    """Rank 1 ends without a word; returns what rank 0 is told."""
    group("sluice")
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(1))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def refusals(folder: str) -> dict[str, str]:
    """Loads the modules for other releases; returns what each one says."""
    from sluice import _c10d

    said = {}
    for file in sorted(pathlib.Path(folder).glob("torch_*.so")):
        name = file.name.split(".")[0][6:].replace("_", ".")
        if name == _c10d.torch_release:
            continue
        try:
            _c10d._load(file)
            said[name] = ""
        except ImportError as error:
            said[name] = str(error)
    return said


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    found: dict[str, object] = {"torch": torch.__version__, "devices": groups.devices()}
    match sys.argv[1:]:
        case ["distribute"]:
            found["bits"] = with_sluice(rank)
        case ["ddp", backend]:
            found["bits"] = with_ddp(backend)
        case ["calls"]:
            found["calls"] = calls()
        case ["lose"]:
            found["told"] = loss_of_a_rank()
        case ["refuse", folder]:
            found["refused"] = refusals(folder)
        case ["compile", how]:
            found[how] = compile_times(rank, how)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
