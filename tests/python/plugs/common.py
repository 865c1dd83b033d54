"""The model, the data and the results that the programs of this folder share. Each rank writes one
file for compare.py, with the losses and parameters of every training to the last digit."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, HIDDEN, KINDS = 64, 512, 10
SAMPLES, BATCH = 192, 8  # 12 batches of each of two ranks in an epoch


class Result:
    """The trainings of one rank, by name."""

    def __init__(self, how: str, folder: Path) -> None:
        self.how, self.folder = how, folder
        self.trainings: dict[str, dict[str, Any]] = {}

    def note(
        self,
        name: str,
        model: nn.Module,
        losses: list[float],
        steps: int,
        sent: float | None = None,
    ) -> None:
        """Notes a training that has ended. `sent` are the megabytes that it has sent; by default
        those that sluice.report() shows."""
        self.trainings[name] = {
            "losses": [loss.hex() for loss in losses],
            "parameters": sha256(model),
            "bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "steps": steps,
        }
        if self.how != "gloo":
            self.trainings[name]["sent_mb"] = sent_mb() if sent is None else sent
        print(f"{self.how}: {name} is done", flush=True)

    def check(self, name: str, is_met: bool, why: str = "") -> None:
        """Notes a check that this rank has made itself."""
        self.trainings.setdefault("checks", {})[name] = "" if is_met else why or "no"

    def write(self, rank: int) -> None:
        path = self.folder / f"{self.how}.{rank}.json"
        path.with_suffix(".new").write_text(json.dumps(self.trainings))
        path.with_suffix(".new").rename(path)


def arguments() -> tuple[str, Path]:
    """Returns the arguments of every program here: `gloo` or `sluice`, and a folder."""
    torch.set_num_threads(1)
    return sys.argv[1], Path(sys.argv[2])


def net() -> nn.Module:
    """Returns a model with buffers, the same on every rank."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(WIDTH, HIDDEN),
        nn.BatchNorm1d(HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, KINDS),
    )


def samples() -> list[tuple[Tensor, Tensor]]:
    """Returns noise with labels."""
    source = torch.Generator().manual_seed(3)
    x = torch.randn(SAMPLES, WIDTH, generator=source)
    y = torch.randint(KINDS, (SAMPLES,), generator=source)
    return list(zip(x, y, strict=True))


def sha256(model: nn.Module) -> str:
    state = [value.detach().cpu().contiguous() for _, value in sorted(model.state_dict().items())]
    digest = hashlib.sha256()
    for value in state:
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sent_mb() -> float:
    """Returns the megabytes that sluice has sent for the newest model, as its report says."""
    import sluice

    found = re.findall(r"sent ([\d.]+) MB", sluice.report())
    return float(found[-1]) if found else 0.0


def sent_by_backend(backend: str | None = None) -> float:
    """Returns the megabytes that this process has sent over TCP, from the kernel's counters. Call
    it while the process group lives. Raises if that is not on sluice; by default that is the group
    of the whole job."""
    backend = backend or torch.distributed.get_backend()  # from torch, and not from the framework
    if backend != "sluice":
        raise AssertionError(f"the process group is on {backend}")
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
                    total += struct.unpack_from("=Q", info, 120)[0]  # tcpi_bytes_acked
        except OSError:
            continue
    return total / 1e6
