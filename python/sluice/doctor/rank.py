"""One of the two processes that train the doctor's models: `python -m sluice.doctor.rank`."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from typing import Any

import torch

STEPS = 5
TIMED = 12


def main() -> None:
    order: dict[str, Any] = json.loads(sys.argv[1])
    for module in order["imports"]:
        importlib.import_module(module)
    import sluice  # after the device is known
    from sluice.doctor import models

    device, rank = torch.device(order["device"]), int(os.environ["RANK"])
    largest, differing = 0.0, 0
    for seed in range(order["models"]):
        model, optimizer = models.draw(seed, device), None
        model, optimizer = sluice.distribute(model, models.optimizer_of(model))
        for step in range(STEPS):
            optimizer.zero_grad()
            models.loss_of(model, models.batch(seed, step, rank, device)).backward()
            optimizer.step()
        trained = [parameter.detach().cpu() for parameter in model.parameters()]
        expected = models.plain_training(seed, STEPS, order["ranks"], device)
        for ours, theirs in zip(trained, expected, strict=True):
            largest = max(largest, float((ours - theirs).abs().max()))
            differing += 0 if torch.equal(ours, theirs) else 1
    findings = {
        "models": order["models"],
        "tensors_that_differ": differing,
        "largest_difference": largest,
        "plain_step_seconds": _step_time(device, is_distributed=False),
        "sluice_step_seconds": _step_time(device, is_distributed=True),
    }
    if rank == 0:
        print(json.dumps(findings), flush=True)


def _step_time(device: torch.device, *, is_distributed: bool) -> float:
    """Returns the median time of a step of a small model."""
    import sluice
    from sluice.doctor import models

    model = models.draw(1, device)
    optimizer = models.optimizer_of(model)
    if is_distributed:
        model, optimizer = sluice.distribute(model, optimizer)
    inputs, times = models.batch(1, 0, 0, device), []
    for _ in range(TIMED):
        torch.accelerator.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        models.loss_of(model, inputs).backward()
        optimizer.step()
        if is_distributed:
            optimizer.synchronize()  # type: ignore[attr-defined]
        torch.accelerator.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[2:])


if __name__ == "__main__":
    main()
