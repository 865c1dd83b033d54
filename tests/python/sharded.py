"""Trainings that spread a model over ranks: each makes its device meshes on a backend, trains a few
steps, and returns all that this rank holds then. So the bits of two backends can be compared."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

Training = Callable[[str], list[Tensor]]
STEPS = 8


def mesh_of(backend: str, *shape: int, names: tuple[str, ...] = ("ranks",)) -> DeviceMesh:
    """Makes a mesh as programs do if the backend is that of the default group."""
    other = None if dist.get_backend() == backend else dict.fromkeys(names, backend)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names, backend_override=other)
    assert {dist.get_backend(mesh.get_group(name)) for name in names} == {backend}
    return mesh


def line_of(backend: str) -> DeviceMesh:
    return mesh_of(backend, dist.get_world_size())


def make_net() -> nn.Sequential:
    """Makes a model whose tensors do not divide evenly by the ranks."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(13, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5)
    )


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batches(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        yield torch.randn(8, 13, generator=generator), torch.randint(5, (8,), generator=generator)


def held(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Returns copies of this rank's parts of the parameters and of the optimizer's state."""
    tensors = list(model.parameters())
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return [
        (each.to_local() if isinstance(each, DTensor) else each).detach().clone()
        for each in tensors
    ]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> list[Tensor]:
    """Trains, and returns the losses and all that this rank holds then."""
    losses = []
    for x, y in batches(seed):
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses + held(model, optimizer)


def shard(model: nn.Sequential, mesh: DeviceMesh | None, **options: Any) -> nn.Sequential:
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def split_columns_and_rows(model: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def fsdp2(backend: str, seed: int = 0) -> list[Tensor]:
    # Without a mesh it takes the default group, as most programs do.
    model = shard(make_net(), None if dist.get_backend() == backend else line_of(backend))
    return train(model, adamw(model), seed + dist.get_rank())


def fsdp2_with_bf16_parameters(backend: str) -> list[Tensor]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = shard(make_net(), line_of(backend), mp_policy=policy)
    return train(model, adamw(model), dist.get_rank())


def fsdp2_with_bf16_reductions(backend: str) -> list[Tensor]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = shard(make_net(), line_of(backend), mp_policy=policy)
    return train(model, adamw(model), dist.get_rank())


def fsdp2_accumulating_and_clipping(backend: str) -> list[Tensor]:
    model = shard(make_net(), line_of(backend))
    optimizer = adamw(model)
    for number, (x, y) in enumerate(batches(dist.get_rank())):
        is_last = number % 2 == 1
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        nn.functional.cross_entropy(model(x), y).backward()
        if is_last:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    return held(model, optimizer)


def hsdp(backend: str) -> list[Tensor]:
    model = shard(make_net(), mesh_of(backend, 2, 2, names=("replicate", "shard")))
    return train(model, adamw(model), dist.get_rank())


def tensor_parallel(backend: str) -> list[Tensor]:
    model = split_columns_and_rows(make_net(), line_of(backend))
    return train(model, adamw(model), seed=0)


def tensor_parallel_in_fsdp2(backend: str) -> list[Tensor]:
    mesh = mesh_of(backend, 2, 2, names=("shard", "tensor"))
    model = shard(split_columns_and_rows(make_net(), mesh["tensor"]), mesh["shard"])
    return train(model, adamw(model), mesh["shard"].get_local_rank())


def zero_on_ddp(backend: str) -> list[Tensor]:
    group = line_of(backend).get_group()
    model = DistributedDataParallel(make_net(), process_group=group, bucket_cap_mb=0.001)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, process_group=group, lr=1e-2
    )
    return train(model, optimizer, dist.get_rank())


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    parameters, steps = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": steps}


def checkpoints(backend: str) -> list[Tensor]:
    """Saves in the middle of a training, also while it goes on, and goes on from either. A save
    beside the training needs a group of its own."""
    mesh, seed = line_of(backend), dist.get_rank()
    group, aside = mesh.get_group(), dist.new_group(backend=backend)
    folders: list[Any] = [tempfile.mkdtemp() if seed == 0 else None]
    dist.broadcast_object_list(folders)
    now, later = Path(folders[0], "now"), Path(folders[0], "later")
    model = shard(make_net(), mesh)
    optimizer = adamw(model)
    train(model, optimizer, seed)
    saved = held(model, optimizer)
    dcp.save(state_of(model, optimizer), checkpoint_id=now, process_group=group)
    under_way = dcp.async_save(state_of(model, optimizer), checkpoint_id=later, process_group=aside)
    further = train(model, optimizer, seed + 50)
    under_way.result()  # type: ignore[union-attr]
    for folder in (now, later):
        model = shard(make_net(), mesh)
        optimizer = adamw(model)
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=folder, process_group=group)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        assert all(map(torch.equal, held(model, optimizer), saved))
        again = train(model, optimizer, seed + 50)
        assert all(map(torch.equal, again, further))
    dist.barrier()
    if seed == 0:
        shutil.rmtree(folders[0])
    return further


def meshes(backend: str) -> list[Tensor]:
    """Moves a tensor between the placements of a mesh, and over its flattened and sliced parts. The
    numbers are whole, so that no sum depends on the order."""
    names = ("rows", "columns")
    mesh = mesh_of(backend, 2, 2, names=names)
    whole = torch.arange(35 * 3, dtype=torch.float32).reshape(35, 3)
    tensor = distribute_tensor(whole, mesh, [Shard(0), Replicate()])
    results = []
    for to in (
        [Shard(0), Shard(1)],
        [Shard(1), Shard(0)],
        [Replicate(), Shard(0)],
        [Replicate()] * 2,
    ):
        tensor = tensor.redistribute(mesh, to)
        results.append(tensor.to_local())
    assert torch.equal(results[-1], whole)
    mine = DTensor.from_local(whole + dist.get_rank(), mesh, [Partial(), Partial()])
    results += [mine.redistribute(mesh, [Shard(0), Replicate()]).to_local(), mine.full_tensor()]
    assert torch.equal(results[-1], 4 * whole + 6)
    other = None if dist.get_backend() == backend else backend
    for part in (mesh["rows"], mesh["columns"], mesh._flatten("all", backend_override=other)):
        group = part.get_group()
        assert dist.get_backend(group) == backend
        results.append(whole * (1 + dist.get_rank()))
        dist.all_reduce(results[-1], group=group)
    return results


# The reductions are over two ranks each, or of whole numbers: every order has the same bits.
WITH_TWO: list[Training] = [
    fsdp2, fsdp2_with_bf16_parameters, fsdp2_with_bf16_reductions, fsdp2_accumulating_and_clipping,
    tensor_parallel, zero_on_ddp, checkpoints,
]  # fmt: skip
WITH_FOUR: list[Training] = [hsdp, tensor_parallel_in_fsdp2, meshes]
# These reduce floats over four ranks, in another order than Gloo.
ROUNDED: list[Training] = [fsdp2, zero_on_ddp]
