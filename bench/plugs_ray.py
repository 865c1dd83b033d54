"""One host of the Ray cluster of bench/plugs_speed.py: the first of the ranks starts Ray and the
training, the others a node for a worker each. bench/plugs_rank.py calls train()."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
PORT = 6379
SECONDS = 150  # for the whole job


def work(settings: dict[str, Any]) -> None:
    """Runs on each worker."""
    import torch
    from plugs_rank import Steps, fashion_mnist, make_model, optimizer_of
    from ray.train.torch import prepare_data_loader, prepare_model
    from torch.nn import functional
    from torch.utils.data import DataLoader

    args = argparse.Namespace(**settings)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    steps = Steps(args.skip)
    model = make_model()
    optimizer = optimizer_of(model)
    if args.how == "sluice":
        import sluice

        trained, _ = sluice.distribute(model, optimizer)
    else:
        trained = prepare_model(model)
    loader = prepare_data_loader(DataLoader(fashion_mnist(args), args.batch, shuffle=True))
    for _, (x, y) in zip(range(args.steps), loader, strict=False):
        optimizer.zero_grad()
        loss = functional.cross_entropy(trained(x), y)
        loss.backward()
        optimizer.step()
        steps.end(loss)
    if os.environ["RANK"] == "0":
        Path(args.json).write_text(json.dumps(steps.figures()))


def train(args: argparse.Namespace) -> None:
    os.environ.update(
        PYTHONPATH=os.pathsep.join([str(BENCH), os.environ.get("PYTHONPATH", "")]),
        RAY_TRAIN_V2_ENABLED="1",
        RAY_AUTH_MODE="disabled",  # nobody else is in the lab
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    )
    head, rank = os.environ["MASTER_ADDR"], int(os.environ["RANK"])
    ray_program = str(Path(sys.executable).parent / "ray")
    common = ["--num-cpus", "1", "--object-store-memory", "100000000", "--disable-usage-stats"]
    if rank > 0:
        join(ray_program, head, common, args.json.with_suffix(".done"))
        return
    start = [ray_program, "start", "--head", "--node-ip-address", head, "--port", str(PORT),
             "--include-dashboard", "false", *common]  # fmt: skip
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
    fit(args, head)
    args.json.with_suffix(".done").touch()


def join(ray_program: str, head: str, common: list[str], done: Path) -> None:
    """Makes this host a node of the cluster until the training is done."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((head, PORT))
        mine = way.getsockname()[0]
    end = time.monotonic() + SECONDS
    command = [ray_program, "start", "--address", f"{head}:{PORT}", "--node-ip-address", mine]
    while subprocess.run([*command, *common], stdout=subprocess.DEVNULL).returncode != 0:
        if time.monotonic() > end:
            sys.exit("the first host does not answer")
        time.sleep(1)
    while not done.exists() and time.monotonic() < end:
        time.sleep(0.5)


def fit(args: argparse.Namespace, head: str) -> None:
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address=f"{head}:{PORT}", _node_ip_address=head)
    while ray.cluster_resources().get("CPU", 0) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.5)
    settings = {**vars(args), "json": str(args.json), "data": str(args.data)}
    TorchTrainer(
        work,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="gloo"),  # for Ray's own use, if sluice trains
        scaling_config=ScalingConfig(
            num_workers=int(os.environ["WORLD_SIZE"]), resources_per_worker={"CPU": 1}
        ),
        run_config=RunConfig(name="speed", storage_path=str(args.json.parent / "ray")),
    ).fit()
    ray.shutdown()
