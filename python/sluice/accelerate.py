"""Accelerate and the Trainer of transformers.

Accelerate knows the backends that it may choose, and "sluice" is none of them: it takes Gloo
without a word. Two ways lead around that:

    sluice.accelerate.init_process_group()  # before Accelerator() or TrainingArguments()

keeps DistributedDataParallel, on connections of sluice. The other way needs no wrapper, and its
step() returns at once, as with sluice.distribute():

    model, optimizer, loader = sluice.accelerate.prepare(accelerator, model, optimizer, loader)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from sluice import _core
from sluice._front.distribute import Model, distribute
from sluice._front.model import GatedModule

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["init_process_group", "prepare"]

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel")
_OTHERS = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA")


def init_process_group(**more: Any) -> None:
    """Creates the default process group on sluice, before Accelerate or Trainer creates one on
    Gloo. Rank 0 logs which backend carries the job: Accelerate's own `state.backend` says gloo in
    any case. One process without a launcher needs no group.

    more: arguments of torch.distributed.init_process_group(), for example timeout.
    """
    if not dist.is_initialized():
        if os.environ.get("WORLD_SIZE", "1") == "1":
            return
        dist.init_process_group("sluice", **more)
    backend = dist.get_backend()
    if "sluice" not in backend:
        raise RuntimeError(
            f"the process group is on {backend} already; call sluice.accelerate."
            "init_process_group() before Accelerator() and TrainingArguments()"
        )
    if dist.get_rank() == 0:
        _core.say(
            f"the backend {backend} carries this job, whatever Accelerate's state.backend says"
        )


def prepare(
    accelerator: Accelerator,
    model: Model,
    optimizer: torch.optim.Optimizer,
    *others: Any,
    **options: Any,
) -> tuple[Any, ...]:
    """Does for one model and its optimizer what accelerator.prepare() does, with
    sluice.distribute() in the place of DistributedDataParallel. Returns (model, optimizer,
    *others).

    others: data loaders and schedulers, which Accelerate prepares as always.
    options: those of sluice.distribute().
    """
    _refuse(accelerator, model)
    # Evaluation mode means: move it, cast its forward pass, save it with the rest, and do not wrap.
    accelerator.prepare_model(model, evaluation_mode=True)
    os.environ["RANK"] = str(accelerator.process_index)
    os.environ["WORLD_SIZE"] = str(accelerator.num_processes)
    model, gated = distribute(model, optimizer, **options)
    prepared = accelerator.prepare(gated, *others)
    return (model, *(prepared if others else (prepared,)))


def _refuse(accelerator: Accelerator, model: nn.Module) -> None:
    kinds = {kind.__name__ for kind in type(model).__mro__}
    wrapper = next((name for name in _WRAPPERS if name in kinds), None)
    if wrapper is not None or isinstance(model, GatedModule):
        raise ValueError(
            f"the model is wrapped already ({wrapper or 'sluice.distribute()'}); give "
            "sluice.accelerate.prepare() the plain model, and never accelerator.prepare()"
        )
    if accelerator.distributed_type.name in _OTHERS:
        raise ValueError(
            f"Accelerate distributes this job by {accelerator.distributed_type.name}; "
            "sluice.accelerate.prepare() works with its plain data parallel training only"
        )
    if accelerator.scaler is not None:
        raise ValueError(
            "sluice.accelerate.prepare() has not been tried with a GradScaler; use "
            "mixed_precision='bf16' or 'no'"
        )
