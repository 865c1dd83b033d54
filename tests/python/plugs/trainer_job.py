"""Trains with the Trainer of transformers: DDP on Gloo, or on the backend sluice.

torchrun --nproc-per-node 2 trainer_job.py gloo|sluice FOLDER
"""

from __future__ import annotations

from typing import Any

import common
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

how, folder = common.arguments()


class Net(nn.Module):
    """Takes and returns what Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.net = common.net()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.net(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Samples(Dataset[Any]):
    def __init__(self) -> None:
        self.samples = common.samples()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        x, y = self.samples[number]
        return {"x": x, "labels": y}


class Sent(TrainerCallback):
    """Counts bytes before Trainer ends its work with the process group."""

    before = after = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.before = common.sent_by_backend()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.after = common.sent_by_backend()


def train(name: str, resumes: bool = False) -> None:
    place = folder / f"trainer-{how}"
    settings = TrainingArguments(
        output_dir=str(place), use_cpu=True, num_train_epochs=2, seed=1, learning_rate=1e-2,
        per_device_train_batch_size=common.BATCH, gradient_accumulation_steps=2, max_grad_norm=0.5,
        logging_steps=1, save_strategy="epoch", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    model, sent = Net(), Sent()
    trainer = Trainer(
        model, settings, train_dataset=Samples(), callbacks=[] if how == "gloo" else [sent]
    )
    trainer.train(resume_from_checkpoint=str(place / "checkpoint-6") if resumes else None)
    losses = [float(line["loss"]) for line in trainer.state.log_history if "loss" in line]
    steps = trainer.state.global_step // (2 if resumes else 1)
    result.note(name, model, losses, steps, sent.after - sent.before)


result = common.Result(how, folder)
if how != "gloo":
    import sluice.accelerate

    sluice.accelerate.init_process_group()
train("accumulated and clipped")
train("resumed", resumes=True)
result.write(torch.distributed.get_rank())
