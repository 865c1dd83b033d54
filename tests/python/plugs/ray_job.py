"""Trains with Ray Train: DDP on Gloo; or DDP on the backend sluice, and sluice.distribute().

ray_job.py gloo|sluice FOLDER      workers know the backend by its entry point in Torch
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
sys.path.insert(0, str(Path(__file__).parent))

import common
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def work(settings: dict[str, Any]) -> None:
    """Runs on each worker."""
    import common
    import torch
    from ray import train
    from ray.train.torch import prepare_model
    from torch.nn import functional

    torch.set_num_threads(1)
    folder, rank = Path(settings["folder"]), train.get_context().get_world_rank()
    result = common.Result(settings["how"], folder)
    data = common.samples()[rank::2]

    def run(name: str, way: str, begin: int) -> None:
        before = common.sent_by_backend() if way == "backend" else 0.0
        model = common.net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if way == "gates":
            import sluice

            trained: Any
            trained, _ = sluice.distribute(model, optimizer)
        else:
            trained = prepare_model(model)
        place = folder / f"ray-{settings['how']}-{way}.pt"
        if begin > 0:
            saved = torch.load(place, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        losses, steps = [], 0
        for epoch in range(begin, 2):
            for number in range(0, len(data), common.BATCH):
                batch = data[number : number + common.BATCH]
                x, y = (torch.stack(part) for part in zip(*batch, strict=True))
                ends = (number // common.BATCH) % 2 == 1
                with contextlib.nullcontext() if ends else trained.no_sync():
                    loss = functional.cross_entropy(trained(x), y) / 2
                    loss.backward()
                losses.append(float(loss.detach()))
                if ends:
                    torch.nn.utils.clip_grad_norm_(trained.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
                    steps += 1
            if epoch == 0:
                torch.distributed.barrier()
                if rank == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(state, place)
                torch.distributed.barrier()
            train.report({"loss": losses[-1]})
        sent = common.sent_by_backend() - before if way == "backend" else None
        result.note(name, model, losses, steps, sent)

    for way in ("gloo",) if settings["how"] == "gloo" else ("backend", "gates"):
        mark = "" if way == "gloo" else f", {way}"
        run(f"accumulated and clipped{mark}", way, 0)
        run(f"resumed{mark}", way, 1)
    result.write(rank)


how, folder = common.arguments()
ray.init(
    address="local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1",
    object_store_memory=100_000_000, _temp_dir=os.environ.get("RAY_TMPDIR"),
    runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}},
)  # fmt: skip
trainer = TorchTrainer(
    work,
    train_loop_config={"how": how, "folder": str(folder)},
    torch_config=TorchConfig(backend=how),
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
    run_config=RunConfig(name=how, storage_path=str(folder / "ray")),
)
trainer.fit()
ray.shutdown()
