"""One rank of plugs_speed.py: trains the model of examples/fashion_vgg.py with a framework.

    python3 papers/bench/plugs_rank.py lightning|accelerate|trainer gloo|sluice --json FILE

The environment is that of `sluice lab run`. On gloo the framework does as always: it wraps the
model in DistributedDataParallel. Rank 0 writes the seconds and losses of all steps, and the bytes
that its host has sent, without those of the first steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import common
from fashion_vgg import make_model
from host_counters import bytes_on_wire


class Steps:
    """The ends and losses of this rank's steps."""

    def __init__(self, skip: int) -> None:
        self.skip = skip
        self.ends: list[float] = []
        self.losses: list[Tensor] = []
        self.sent: list[int] = []
        self.cpu: list[float] = []

    def end(self, loss: Tensor) -> None:
        """Call this at the end of each step."""
        self.ends.append(time.perf_counter())
        self.losses.append(loss.detach().clone())
        self.sent.append(bytes_on_wire()[0])
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu.append(used.ru_utime + used.ru_stime)

    def figures(self) -> dict[str, Any]:
        counted = len(self.ends) - self.skip - 1

        def each(values: list[Any]) -> float:
            return float(values[-1] - values[self.skip]) / counted

        return {
            "seconds": [b - a for a, b in itertools.pairwise(self.ends)],
            "losses": [float(loss) for loss in self.losses],
            "sent_bytes": each(self.sent),
            "cpu_s": each(self.cpu),
        }


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def with_lightning(args: argparse.Namespace, data: Dataset[Any], steps: Steps) -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy

    # One process on each of the lab's hosts, as Lightning's own environment knows them.
    os.environ["NODE_RANK"] = os.environ["RANK"]
    if args.how == "sluice":
        import sluice.lightning  # noqa: F401 (registers the strategy)

    class Net(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_model()

        def training_step(self, batch: Any, _: int) -> Tensor:
            return functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

        def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
            steps.end(outputs["loss"])

    trainer = Trainer(
        accelerator="cpu", devices=1, num_nodes=int(os.environ["WORLD_SIZE"]),
        strategy="sluice" if args.how == "sluice" else DDPStrategy(process_group_backend="gloo"),
        max_steps=args.steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Net(), DataLoader(data, args.batch, shuffle=True))


def with_accelerate(args: argparse.Namespace, data: Dataset[Any], steps: Steps) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    plain = make_model()
    parts = (plain, optimizer_of(plain), DataLoader(data, args.batch, shuffle=True))
    if args.how == "sluice":
        import sluice.accelerate

        model, optimizer, loader = sluice.accelerate.prepare(accelerator, *parts)
    else:
        model, optimizer, loader = accelerator.prepare(*parts)
    for x, y in itertools.islice(loader, args.steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        steps.end(loss)


class ForTrainer(nn.Module):
    """Takes and returns what the Trainer of transformers expects."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()
        self.loss = torch.zeros(())

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.loss = functional.cross_entropy(self.net(x), labels)
        return {"loss": self.loss}


def as_columns(samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    x, y = zip(*samples, strict=True)
    return {"x": torch.stack(x), "labels": torch.stack(y)}


def with_trainer(args: argparse.Namespace, data: Dataset[Any], steps: Steps) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    if args.how == "sluice":
        import sluice.accelerate

        sluice.accelerate.init_process_group()

    class Watch(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            steps.end(model.loss)

    model = ForTrainer()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, use_cpu=True, max_steps=args.steps, seed=1, report_to=[],
            per_device_train_batch_size=args.batch, save_strategy="no", logging_strategy="no",
            disable_tqdm=True, remove_unused_columns=False, max_grad_norm=args.clip,
            ddp_find_unused_parameters=False,  # as for a model of transformers
        )  # fmt: skip
        Trainer(
            model, settings, train_dataset=data, data_collator=as_columns, callbacks=[Watch()],
            optimizers=(optimizer_of(model), None),
        ).train()  # fmt: skip


WITH = {"lightning": with_lightning, "accelerate": with_accelerate, "trainer": with_trainer}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=sorted(WITH))
    parser.add_argument("how", choices=["gloo", "sluice"])
    parser.add_argument("--data", default=common.SYNTHETIC)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--skip", type=int, default=5)
    parser.add_argument("--clip", type=float, default=1.0, help="Trainer's max_grad_norm")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = TensorDataset(*common.images(args, "fashion-mnist", "train"))
    steps = Steps(args.skip)
    WITH[args.framework](args, data, steps)
    if os.environ["RANK"] == "0":
        args.json.write_text(json.dumps(steps.figures()))


if __name__ == "__main__":
    main()
