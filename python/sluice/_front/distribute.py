"""sluice.distribute(): from a model and its optimizer to both in training with all ranks."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sluice import _core
from sluice._engine.engine import Engine
from sluice._engine.rank_check import check_every
from sluice._front import model as _model
from sluice._front import optimizer as _optimizer
from sluice._front import server as _server
from sluice._front.optimizer import GatedOptimizer
from sluice._job.job import Job, current
from sluice._tensor.doors import accelerator_of
from sluice._tensor.slots import DTYPES

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from typing_extensions import Unpack

    from sluice._front.options import Options

Model = TypeVar("Model", bound=nn.Module)
Factory = Callable[[Iterable[nn.Parameter]], Optimizer]

_MOST_TEXT = 64 << 20  # bytes of a text that another rank sends


@overload
def distribute(
    model: Model,
    optimizer: Optimizer | Factory,
    *,
    broadcast_buffers: bool = ...,
    per_tensor: bool = ...,
    server_optimizer: bool = ...,
    process_group: ProcessGroup | None = ...,
    **options: Unpack[Options],
) -> tuple[Model, GatedOptimizer]: ...


@overload
def distribute(
    model: Model,
    optimizer: Sequence[Optimizer],
    *,
    broadcast_buffers: bool = ...,
    per_tensor: bool = ...,
    server_optimizer: bool = ...,
    process_group: ProcessGroup | None = ...,
    **options: Unpack[Options],
) -> tuple[Model, list[GatedOptimizer]]: ...


def distribute(
    model: Model,
    optimizer: Optimizer | Factory | Sequence[Optimizer],
    *,
    broadcast_buffers: bool = True,
    per_tensor: bool = False,
    server_optimizer: bool = False,
    process_group: ProcessGroup | None = None,
    **options: Unpack[Options],
) -> tuple[Model, GatedOptimizer] | tuple[Model, list[GatedOptimizer]]:
    """Trains `model` together with the other ranks of the job. Every rank calls it, with the same
    model.

    optimizer: one, several, or a function that makes one from the parameters. The model and the
        optimizer come back as the objects they were, so that schedulers, checkpoints and everything
        that holds them goes on working. Rank 0's parameters, buffers and optimizer state are
        everybody's from here on.
    broadcast_buffers: the first forward pass with gradients of every step starts with rank 0's
        buffers, as with DistributedDataParallel.
    per_tensor: the optimizer is one of your own, and treats every tensor for itself: its step may
        be taken in parts.
    server_optimizer: SGD, Adam or AdamW runs on the servers, and its state is spread over the ranks
        instead of being on each.
    process_group: with an algorithm that all-reduces ("allreduce", "wfbp", "mgwfbp", "pipe"):
        torch.distributed reduces (Gloo, NCCL), at the times and in the pieces that sluice says. It
        has all ranks of the job, in the same order.
    options: every option of docs/configuration.md, with underscores: algorithm="sluice",
        slice_elements=50_000.
    """
    job = current(**{name.replace("_", "-"): str(value) for name, value in options.items()})
    if isinstance(optimizer, Optimizer):
        optimizers = [optimizer]
    elif callable(optimizer):
        optimizers = [optimizer(model.parameters())]
    else:
        optimizers = list(optimizer)
    _refuse(model, optimizers, job)
    if process_group is not None:
        _refuse_group(process_group, job)
    debug = "gates" in (job.option("debug"), os.environ.get("SLUICE_DEBUG"))
    if server_optimizer:
        _server.refuse(model, optimizers)
        _refuse_hiding(debug, job)
    every = check_every(job)
    name = job.new_name(type(model).__name__)
    settings = [f"server_optimizer={server_optimizer}", f"broadcast_buffers={broadcast_buffers}"]
    settings.append(f"check_ranks_every={every}")
    settings.append(f"process_group={None if process_group is None else process_group.name()}")
    with job.health.whole("sluice.distribute()", but=(ValueError,)):  # raised on every rank
        _agree(job, name, [*_describe(model, optimizers), *settings])
        if job.may_lose_members:
            _refuse_with_members(job, server_optimizer, process_group)
        _start_alike(job, model, optimizers)
        engine = Engine(
            job,
            model,
            name,
            broadcast_buffers=broadcast_buffers,
            debug_gates=debug,
            process_group=process_group,
        )
        _model.dress(model, engine)
        engine.dress_newcomers = functools.partial(_model.dress, model, engine)
        on_servers = server_optimizer and not job.is_alone
        gated = [
            _optimizer.dress(one, engine, per_tensor=per_tensor, on_servers=on_servers)
            for one in optimizers
        ]
    return (model, gated) if isinstance(optimizer, Sequence) else (model, gated[0])


def _refuse_with_members(job: Job, server_optimizer: bool, process_group: object) -> None:
    """Reports what cannot go on without a lost member."""
    refused = {
        "server_optimizer=True": server_optimizer,
        "process_group=": process_group is not None,
    }
    what = next((what for what, is_wanted in refused.items() if is_wanted), None)
    if what is not None:
        raise ValueError(f"{what} cannot go on without a lost member yet; leave out members")


def _refuse(model: nn.Module, optimizers: list[Optimizer], job: Job) -> None:
    """Reports what cannot work now, before anything has been changed, and not in the first step."""
    _model.refuse(model)
    for optimizer in optimizers:
        if isinstance(optimizer, GatedOptimizer):
            raise ValueError(f"{type(optimizer).__name__} is distributed already")
    if job.option("servers").startswith("dedicated"):
        raise ValueError(
            "servers=dedicated:K does not work with PyTorch yet: every rank trains; use "
            "servers=all or servers=K"
        )
    accelerator_of([*model.named_parameters(), *model.named_buffers()])
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"'{name}' has no shape yet; run the model once before sluice.distribute()"
            )
        if parameter.dtype not in DTYPES:
            raise ValueError(
                f"'{name}' is {parameter.dtype}; sluice averages float32, float64, bfloat16 and "
                "float16"
            )
    for name, buffer in [] if job.is_alone else model.named_buffers():
        if any(
            step == 0 and size > 1 for step, size in zip(buffer.stride(), buffer.shape, strict=True)
        ):
            raise ValueError(
                f"buffer '{name}' is expanded: several of its elements are one place in memory, "
                "which rank 0's values cannot be written to; register its .clone()"
            )
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise ValueError(
                f"'{name}' makes sparse gradients, which sluice cannot average; use sparse=False"
            )


def _refuse_group(process_group: ProcessGroup, job: Job) -> None:
    if not job.algorithm.takes_process_group:
        names = [each.name for each in _core.algorithms() if each.takes_process_group]
        raise ValueError(f"process_group works only with algorithm={' or '.join(names)}")
    if job.option("codec") != "none":
        raise ValueError(
            "a process group cannot use a codec inside its reduction; leave out codec, or "
            "process_group"
        )
    if (process_group.rank(), process_group.size()) != (job.rank, job.world_size):
        raise ValueError("the process group must have all ranks of the job, in the same order")


def _refuse_hiding(debug: bool, job: Job) -> None:
    """Refuses NaNs in the place of parameters that the next step begins from."""
    if not debug:
        return
    # Each of these reads parameters while their gates are closed.
    readers = {
        "dgc": job.is_on("dgc"),
        "momentum-at workers": job.option("momentum-at") == "workers",
        job.algorithm.name: job.algorithm.reads_parameters,
    }
    what = next((name for name, reads in readers.items() if reads), None)
    if what is not None:
        raise ValueError(
            f"debug=gates fills parameters with NaN, which {what} goes on from; leave one of them "
            "out"
        )


def _describe(model: nn.Module, optimizers: list[Optimizer]) -> list[str]:
    """Lists the settings that must be the same on every rank, a line each."""
    lines = [
        f"parameter '{name}' is {tuple(p.shape)} {p.dtype}, strides {p.stride()}, "
        f"{'trained' if p.requires_grad else 'frozen'}"
        for name, p in model.named_parameters()
    ]
    lines += [f"buffer '{name}' is {tuple(b.shape)} {b.dtype}" for name, b in model.named_buffers()]
    names = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        lines.append(f"the optimizer is {type(optimizer).__name__}")
        for number, group in enumerate(optimizer.param_groups):
            lines += [
                f"group {number} has {key}={value}"
                for key, value in group.items()
                if key != "params"
            ]
            lines.append(
                f"group {number} has parameters {[names.get(p, '?') for p in group['params']]}"
            )
    return lines


def _agree(job: Job, name: str, lines: list[str]) -> None:
    ours = "\n".join(lines)
    said = job.broadcast_bytes(ours.encode(), _MOST_TEXT, "the description of its model")
    theirs = said.decode().split("\n")
    difference = ""
    if theirs != lines:
        pairs = [*zip(lines, theirs, strict=False), (f"{len(lines)} lines", f"{len(theirs)} lines")]
        mine, other = next((a, b) for a, b in pairs if a != b)
        difference = f"on rank {job.rank} {mine}; on rank 0 {other}"
    differences = [text for text in job.gather(f"describe/{name}", difference[:2000]) if text]
    if differences:
        raise ValueError(f"the ranks do not train the same thing: {differences[0]}")


def _most_state(optimizer: Optimizer) -> int:
    """Returns more bytes than the optimizer's state can have; L-BFGS keeps a history."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    history = max(int(group.get("history_size", 0)) for group in optimizer.param_groups)
    size: int = sum(p.numel() * p.element_size() for p in parameters)
    return _MOST_TEXT + (16 + 4 * history) * size


def _start_alike(job: Job, model: nn.Module, optimizers: list[Optimizer]) -> None:
    """Rank 0's parameters, buffers and optimizer state on every rank."""
    if job.is_alone:
        return
    tensors: list[Tensor] = [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        job.broadcast(tensor.detach())
    for optimizer in optimizers:
        saved = io.BytesIO()
        if job.rank == 0 and optimizer.state:
            torch.save(optimizer.state_dict(), saved)
        most = _most_state(optimizer)
        state = job.broadcast_bytes(saved.getvalue(), most, "the optimizer's state")
        if state and job.rank != 0:
            optimizer.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
