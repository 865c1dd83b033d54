"""The topic `device`: copies, overlap, correctness and the time of a step on one accelerator."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sluice import _core
from sluice.demo import processes
from sluice.doctor import copies

_MODELS = 4
_LIMIT = 300.0  # seconds for the two processes

Findings = dict[str, Any]


def look(
    device: torch.device, imports: list[str], seconds: float, say: Callable[[str], None]
) -> Findings:
    """Returns what was found; `say` tells a person how far it is."""
    say(f"sluice doctor: {device}, PyTorch {torch.__version__}, sluice {_core.__version__}")
    say("copies between the device and pinned memory ...")
    measured = copies.measure(device, seconds)
    ranks = processes.WORLD
    say(f"{_MODELS} random models in {ranks} processes, by sluice and by PyTorch alone ...")
    trained = _train(device, imports)
    return {
        "device": str(device),
        "torch": torch.__version__,
        "sluice": _core.__version__,
        "copies": measured,
        "training": trained,
        "correct": trained["largest_difference"] < 1e-5,
    }


def _train(device: torch.device, imports: list[str]) -> Findings:
    ranks = processes.WORLD
    order = {"device": str(device), "imports": imports, "models": _MODELS, "ranks": ranks}
    words = [sys.executable, "-m", "sluice.doctor.rank", json.dumps(order)]
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        starts = processes.on_loopback(words, {"SLUICE_LOG": "warn", **os.environ})
        processes.run(starts, _LIMIT, Path(folder, "errors"), said.append)
    findings: Findings = json.loads(said[-1])
    return findings
