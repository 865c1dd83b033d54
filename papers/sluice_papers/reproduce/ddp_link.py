"""Shows how PyTorch's DDP uses a link: lab hosts train a model whose layers take the times of a
profile and do nothing else, with DDP on Gloo, and the first host counts its bytes every 10 ms.

    python -m sluice_papers.reproduce.ddp_link --profile resnet50 \\
        --workers 4 --rate 1200mbit --json X.json

The JSON is that of `sluice bench replay --utilisation`, with the algorithm "ddp".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sluice.processes import prepare_to_fork
from torch import Tensor, nn

from sluice_papers.reproduce import on_hosts
from sluice_papers.study import ranks

_STEP = 0.01  # seconds between two looks at the counters, as in the paper
_WARM_UP = 2


class _Layer(torch.autograd.Function):
    """Takes so long forward and backward, and gives its parameters a gradient of ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parameters: Tensor, forward: float, backward: float) -> Tensor:
        ctx.size, ctx.seconds = parameters.shape, backward
        time.sleep(forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        time.sleep(ctx.seconds)
        return grad, torch.ones(ctx.size), None, None


class Replayed(nn.Module):
    def __init__(self, layers: list[dict[str, float]]) -> None:
        super().__init__()
        self._times = [(layer["forward_s"], layer["backward_s"]) for layer in layers]
        self._weights = nn.ParameterList(
            [nn.Parameter(torch.zeros(int(layer["bytes"]) // 4)) for layer in layers]
        )

    def forward(self, x: Tensor) -> Tensor:
        for (forward, backward), weight in zip(self._times, self._weights, strict=True):
            x = _Layer.apply(x, weight, forward, backward)  # type: ignore[no-untyped-call]
        return x


class Sampler(threading.Thread):
    """Counts the bytes of this host's interface until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self.sent: list[float] = []
        self.received: list[float] = []

    def run(self) -> None:
        next_look = time.monotonic()
        before = _counted()
        while not self._is_over.is_set():
            next_look += _STEP
            time.sleep(max(0.0, next_look - time.monotonic()))
            now = _counted()
            self.received.append(8 * (now[0] - before[0]) / _STEP)
            self.sent.append(8 * (now[1] - before[1]) / _STEP)
            before = now

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def _counted() -> tuple[int, int]:
    """Returns the bytes that eth0 has received and sent."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == "eth0":
            fields = rest.split()
            return int(fields[0]), int(fields[8])
    raise OSError("this host has no interface eth0; run this in a lab")


def _train(flags: argparse.Namespace, layers: list[dict[str, float]], rank: int, out: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    model = nn.parallel.DistributedDataParallel(Replayed(layers))
    sampler, seconds = Sampler(), []
    for step in range(_WARM_UP + flags.iterations):
        dist.barrier()
        if step == _WARM_UP and rank == 0:
            sampler.start()
        begun = time.monotonic()
        model(torch.zeros(1, requires_grad=True)).sum().backward()
        seconds.append(time.monotonic() - begun)
    if rank == 0:
        sampler.stop()
        use = {
            "step_s": _STEP,
            "sent_bits_per_s": sampler.sent,
            "received_bits_per_s": sampler.received,
        }
        out.write_text(json.dumps({"runs_s": seconds[_WARM_UP:], "utilisation": use}))
    dist.destroy_process_group()


def _planned(flags: argparse.Namespace) -> dict[str, Any]:
    """Returns the layers with the times that make the ratio, and the rate in bits."""
    command = [ranks.program(), "formulas", "--profile", flags.profile,
               "--workers", str(flags.workers),
               "--rate", flags.rate, "--compute-time", "1s", "--json"]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if shown.returncode != 0:
        raise OSError((shown.stderr.strip() or "sluice formulas has failed").splitlines()[-1])
    plan: dict[str, Any] = json.loads(shown.stdout)
    size = sum(layer["bytes"] for layer in plan["layers"])
    share = 2 * (flags.workers - 1) / flags.workers
    seconds = share * size * plan["beta_s_per_byte"] / flags.ratio
    for layer in plan["layers"]:
        layer["forward_s"] *= seconds
        layer["backward_s"] *= seconds
    return {**plan, "compute_s": seconds, "rate_bits_per_s": 8 / plan["beta_s_per_byte"]}


def _measure(flags: argparse.Namespace) -> dict[str, Any]:
    plan = _planned(flags)
    prepare_to_fork()

    def work(rank: int, out: Path) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        _train(flags, plan["layers"], rank, out)

    found = on_hosts.run(flags.workers, flags.rate, work)
    return {
        "profile": flags.profile,
        "algorithm": "ddp",
        "workers": flags.workers,
        "ratio": flags.ratio,
        "compute_s": plan["compute_s"],
        "iteration_s": statistics.median(found["runs_s"]),
        "rate_bits_per_s": plan["rate_bits_per_s"],
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profile", default="resnet50")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--ratio", type=float, default=1.0, help="wire time / compute time")
    parser.add_argument("--rate", default="1200mbit")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--json", type=Path, required=True)
    flags = parser.parse_args()
    try:
        flags.json.write_text(json.dumps([_measure(flags)]) + "\n")
    except OSError as error:
        sys.exit(f"sluice_papers.reproduce.ddp_link: {error}")


if __name__ == "__main__":
    main()
