"""The topic `device`: copies, overlap, correctness and the time of a step on one accelerator."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from sluice import _core
from sluice.doctor import copies

_RANKS = 2
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
    say(f"{_MODELS} random models in {_RANKS} processes, by sluice and by PyTorch alone ...")
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
    order = {"device": str(device), "imports": imports, "models": _MODELS, "ranks": _RANKS}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    try:
        for rank in range(_RANKS):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(_RANKS),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "SLUICE_LOG": os.environ.get("SLUICE_LOG", "warn"),
            }
            command = [sys.executable, "-m", "sluice.doctor.rank", json.dumps(order)]
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            )
        outputs = [rank.communicate(timeout=_LIMIT)[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        raise OSError(f"the two processes had not ended after {_LIMIT:.0f} s") from None
    finally:
        for one in ranks:
            one.kill()
            one.wait()
    if any(rank.returncode for rank in ranks):
        raise OSError("training on the device has failed; the lines above say why")
    findings: Findings = json.loads(outputs[0].splitlines()[-1])
    return findings
