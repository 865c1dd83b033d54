"""Lightning: `import sluice.lightning`, then `Trainer(strategy="sluice")`, or "ddp_sluice" to keep
DistributedDataParallel and change only its backend.

"sluice" trains with sluice.distribute() instead of DistributedDataParallel. Lightning passes a
closure to every step(), and a step with a closure cannot be taken in parts. So the strategy runs
the closure first, and calls step() without it.

Lightning still has a process group, for its own barriers and metrics; no gradient goes through it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.plugins import MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from lightning.pytorch.trainer.states import TrainerStatus
from torch import Tensor

from sluice._front.distribute import distribute
from sluice._front.model import GatedModule
from sluice._front.optimizer import GatedOptimizer
from sluice._front.release import release
from sluice._job.ending import reason_of

__all__ = ["SluiceDDPStrategy", "SluiceStrategy"]

# The strategy knows what step() of these does.
_KNOWN_STEPS = (Precision.optimizer_step, MixedPrecision.optimizer_step)


class SluiceDDPStrategy(DDPStrategy):
    """DistributedDataParallel on the backend sluice. Takes the arguments of DDPStrategy."""

    def __init__(self, *, process_group_backend: str | None = "sluice", **more: Any) -> None:
        super().__init__(process_group_backend=process_group_backend, **more)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Takes the mean of whole numbers as Lightning does on Gloo: sums, then divides. The
        backend averages floats only."""
        is_mean = isinstance(reduce_op, str) and reduce_op.lower() in ("mean", "avg")
        is_whole = isinstance(tensor, Tensor) and not tensor.is_floating_point()
        if not (is_mean and is_whole and dist.is_initialized()):
            return super().reduce(tensor, group, reduce_op)
        total = super().reduce(tensor, group, "sum")
        return total.copy_(total / dist.get_world_size(group))

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        strategy_registry.register(
            "ddp_sluice", cls, description="DistributedDataParallel on the backend sluice"
        )


class SluiceStrategy(SluiceDDPStrategy):
    """Trains a LightningModule together with the other ranks of the job, without a wrapper.

    broadcast_buffers, per_tensor, server_optimizer: as in sluice.distribute().
    process_group_backend: of the group for barriers and metrics. The default is Lightning's choice.
    options: every option of docs/configuration.md, with underscores: algorithm="sluice".
    """

    optimizers: list[Any]  # a property of Lightning's

    def __init__(
        self,
        *,
        broadcast_buffers: bool = True,
        per_tensor: bool = False,
        server_optimizer: bool = False,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        cluster_environment: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        process_group_backend: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
            process_group_backend=process_group_backend,
        )
        self._settings = {
            "broadcast_buffers": broadcast_buffers,
            "per_tensor": per_tensor,
            "server_optimizer": server_optimizer,
            **options,
        }

    def configure_ddp(self) -> None:
        """Refuses what cannot work. Lightning would wrap the module here."""
        module, precision = self.lightning_module, self.precision_plugin
        assert module is not None
        if isinstance(module, GatedModule):
            raise ValueError(
                f"{type(module).__name__} is distributed already; call sluice.release(module) first"
            )
        if not module.automatic_optimization:
            raise ValueError(
                "strategy='sluice' needs automatic optimization, since it calls step() itself; use "
                "strategy='ddp_sluice' for manual optimization"
            )
        if type(precision).optimizer_step not in _KNOWN_STEPS:
            raise ValueError(
                f"strategy='sluice' does not know the steps of {type(precision).__name__}; use "
                "precision='32-true', '64-true', 'bf16-mixed', '16-mixed' or 'bf16-true'"
            )

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        # Lightning's launchers set these only in part, and leave MASTER_PORT to the process group.
        os.environ["RANK"] = str(self.global_rank)
        os.environ["WORLD_SIZE"] = str(self.world_size)
        _, self.optimizers = distribute(self.lightning_module, self.optimizers, **self._settings)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Makes training_step() one forward pass of the module, whichever of its parts it calls."""
        module = self.lightning_module
        with self.precision_plugin.train_step_context():
            return self._forward_redirection(module, module, "training_step", *args, **kwargs)

    def optimizer_step(
        self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        precision = self.precision_plugin
        # A scaler runs the closure first by itself.
        has_scaler = getattr(precision, "scaler", None) is not None
        if has_scaler or not isinstance(optimizer, GatedOptimizer) or not _is_in_parts(optimizer):
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        result = precision._wrap_closure(model or self.lightning_module, optimizer, closure)
        optimizer.step(**kwargs)
        return result

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Accumulates: gradients of backward passes in here stay on this rank."""
        module: Any = self.lightning_module
        with module.no_sync():
            yield

    def on_validation_start(self) -> None:
        """Validates with rank 0's buffers, as DistributedDataParallel does."""
        module = self.lightning_module
        if isinstance(module, GatedModule) and self._settings["broadcast_buffers"]:
            for buffer in module.buffers():
                module._sluice.job.broadcast(buffer)

    def pre_backward(self, closure_loss: Tensor) -> None:
        """Does nothing: there is no wrapper to prepare."""

    def teardown(self) -> None:
        """Gives the module back as a plain one. After an exception no rank waits for the others: it
        tells them why."""
        module, error = self.lightning_module, sys.exc_info()[1]
        if isinstance(module, GatedModule):
            if error is not None and _is_interrupted(module):
                module._sluice.abandon(reason_of(error))
            release(module)
        super().teardown()

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        strategy_registry.register(
            "sluice", cls, description="sluice.distribute() instead of DistributedDataParallel"
        )


def _is_interrupted(module: Any) -> bool:
    return bool(module.trainer.state.status == TrainerStatus.INTERRUPTED)


def _is_in_parts(optimizer: GatedOptimizer) -> bool:
    """True iff the step is taken gate by gate. Another optimizer may need its closure (LBFGS)."""
    return optimizer._late.is_by_gate


if "sluice" not in StrategyRegistry:
    SluiceStrategy.register_strategies(StrategyRegistry)
    SluiceDDPStrategy.register_strategies(StrategyRegistry)
