"""Trains with Accelerate: DDP on Gloo; or DDP on sluice, and sluice.accelerate.prepare().

torchrun --nproc-per-node 2 accelerate_job.py gloo|sluice FOLDER
"""

from __future__ import annotations

from typing import Any

import common
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import set_seed
from torch.nn import functional
from torch.utils.data import DataLoader

how, folder = common.arguments()
EPOCHS, ACCUMULATE = 2, 2


def begin(way: str, precision: str) -> tuple[Accelerator, Any, Any, Any, Any]:
    set_seed(1)
    AcceleratorState._reset_state()  # it holds the precision of the training before
    GradientState._reset_state()
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=ACCUMULATE, mixed_precision=precision
    )
    model = common.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    plan = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    loader = DataLoader(common.samples(), common.BATCH)
    if way == "gates":
        return accelerator, *sluice.accelerate.prepare(accelerator, model, optimizer, loader, plan)
    return accelerator, *accelerator.prepare(model, optimizer, loader, plan)


def train(
    name: str, way: str, saves: bool = False, resumes: bool = False, precision: str = "no"
) -> None:
    before = common.sent_by_backend() if way == "backend" else 0.0
    accelerator, model, optimizer, loader, plan = begin(way, precision)
    place = folder / f"accelerate-{way}"
    if resumes:
        accelerator.load_state(place)
    losses, steps = [], 0
    for epoch in range(1 if resumes else 0, EPOCHS):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    steps += 1
                optimizer.step()
                plan.step()
                optimizer.zero_grad()
            losses.append(float(loss.detach()))
        # Each rank evaluates with its own buffers; a call of the wrapper would take rank 0's.
        plain = accelerator.unwrap_model(model).eval()
        with torch.no_grad():
            losses += [float(functional.cross_entropy(plain(x), y)) for x, y in loader][:2]
        if saves and epoch == 0:
            accelerator.save_state(place)
    sent = None if way == "gates" else 0.0
    if way == "backend":
        sent = common.sent_by_backend() - before
    result.note(name, accelerator.unwrap_model(model), losses, steps, sent)


def refusals() -> None:
    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.SGD(common.net().parameters())
    try:
        sluice.accelerate.prepare(accelerator, accelerator.prepare(common.net()), optimizer)
    except ValueError as error:
        result.check("refused: a wrapped model", "is wrapped already" in str(error), str(error))
    else:
        result.check("refused: a wrapped model", False)


result = common.Result(how, folder)
if how == "gloo":
    train("accumulated and clipped", how, saves=True)
    train("resumed", how, resumes=True)
    train("bf16", how, precision="bf16")
else:
    import sluice.accelerate

    sluice.accelerate.init_process_group()
    for name in ("backend", "gates"):
        train(f"accumulated and clipped, {name}", name, saves=True)
        train(f"resumed, {name}", name, resumes=True)
    train("bf16, gates", "gates", precision="bf16")
    refusals()
result.write(torch.distributed.get_rank())
