"""Trains with Lightning: DDP on Gloo, or strategy="sluice".

lightning_job.py gloo|sluice FOLDER     Lightning starts the second rank itself
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import common
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy
from torch.nn import functional
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
how, folder = common.arguments()


class Net(LightningModule):
    def __init__(self, optimizer: str = "adamw") -> None:
        super().__init__()
        self.net = common.net()
        self.kind = optimizer
        self.losses: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        x, y = batch
        # Calls a part of the module in every second step, and not the whole.
        loss = functional.cross_entropy(self(x) if number % 2 else self.net(x), y)
        self.losses.append(float(loss.detach()))
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y)
        self.losses.append(float(loss))
        self.log("val", loss, sync_dist=True)

    def configure_optimizers(self) -> Any:
        if self.kind == "lbfgs":
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        plan = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        return [optimizer], [{"scheduler": plan, "interval": "step"}]


class Gates(Callback):
    """Counts the batches that ended with closed gates: their step() had parts left to do."""

    closed = 0

    def on_train_batch_end(self, _: Any, module: Any, *__: Any) -> None:
        self.closed += module._sluice.gates.is_closed


class Saved(Callback):
    """Saves a checkpoint after the first epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_validation_end(self, trainer: Trainer, _: Any) -> None:
        if not trainer.sanity_checking and trainer.current_epoch == 0:
            trainer.save_checkpoint(self.path)


def strategy(way: str) -> Any:
    if way == "gates":
        return sluice.lightning.SluiceStrategy(process_group_backend="sluice")
    return DDPStrategy(process_group_backend="gloo") if way == "gloo" else "ddp_sluice"


def fit(
    name: str,
    *,
    epochs: int = 1,
    accumulate: int = 1,
    saved: Path | None = None,
    resumed: Path | None = None,
    optimizer: str = "adamw",
    way: str = "gloo" if how == "gloo" else "gates",
    **more: Any,
) -> None:
    before = common.sent_by_backend() if way == "backend" else 0.0
    module, gates = Net(optimizer), Gates()
    callbacks: list[Callback] = [] if saved is None else [Saved(saved)]
    if way == "gates":
        callbacks.append(gates)
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=strategy(way), max_epochs=epochs,
        callbacks=callbacks, accumulate_grad_batches=accumulate, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=1, **more,
    )  # fmt: skip
    data = common.samples()
    trainer.fit(
        module,
        DataLoader(data, common.BATCH),
        DataLoader(data[:32], common.BATCH),
        ckpt_path=resumed,
        weights_only=False,
    )
    module.losses.append(float(trainer.callback_metrics["val"]))
    steps = trainer.global_step if resumed is None else trainer.global_step // 2
    sent = common.sent_by_backend() - before if way == "backend" else None
    result.note(name, module, module.losses, steps, sent)
    if way == "gates" and optimizer == "adamw":
        result.check(f"{name}: step() leaves gates closed", gates.closed >= steps // 2)


def refusals() -> None:
    """Tries what cannot work, in a job of this process alone."""

    def refused(what: str, text: str, module: LightningModule, **more: Any) -> None:
        trainer = Trainer(
            accelerator="cpu", devices=2, strategy="sluice", max_steps=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            **more,
        )  # fmt: skip
        try:
            trainer.fit(module, DataLoader(common.samples(), common.BATCH))
        except ValueError as error:
            result.check(f"refused: {what}", text in str(error), str(error))
        else:
            result.check(f"refused: {what}", False)

    class Own(MixedPrecision):
        def optimizer_step(self, optimizer: Any, model: Any, closure: Any, **more: Any) -> Any:
            return super().optimizer_step(optimizer, model=model, closure=closure, **more)

    manual = Net()
    manual.automatic_optimization = False
    refused("manual optimization", "automatic optimization", manual)
    refused("another precision", "the steps of Own", Net(), plugins=[Own("bf16-mixed", "cpu")])


if how != "gloo":
    import sluice.lightning

result = common.Result(how, folder)
checkpoint, theirs = folder / f"lightning-{how}.ckpt", folder / "lightning-gloo.ckpt"
usual = {"accumulate": 2, "gradient_clip_val": 0.5}
fit("accumulated and clipped", epochs=2, saved=checkpoint, **usual)
fit("resumed", epochs=2, resumed=checkpoint, **usual)
fit("resumed from Gloo's checkpoint", epochs=2, resumed=theirs, **usual)
fit("plain", accumulate=1)
fit("bf16-mixed", precision="bf16-mixed", **usual)
fit("16-mixed", plugins=[MixedPrecision("16-mixed", "cpu")], **usual)
fit("LBFGS", optimizer="lbfgs", limit_train_batches=3)
if how != "gloo":
    fit("accumulated and clipped, backend", epochs=2, way="backend", **usual)
    again = Net()
    for number in (1, 2):
        Trainer(
            accelerator="cpu", devices=2, strategy="sluice", max_steps=number, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        ).fit(again, DataLoader(common.samples(), common.BATCH))  # fmt: skip
        result.check(f"plain after fit() number {number}", type(again) is Net)
    refusals()
result.write(torch.distributed.get_rank())
