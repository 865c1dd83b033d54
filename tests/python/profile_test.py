"""`sluice profile`: a script as it is becomes a profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
print("all steps were made")
"""


def profile(folder: Path, steps: int, **variables: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("STEPS", str(steps)))
    command = [
        sys.executable,
        "-m",
        "sluice._measure.profile_command",
        "--steps",
        "4",
        "--out",
        str(folder / "out.json"),
        str(script),
    ]
    variables = {
        **{name: value for name, value in os.environ.items() if name != "RANK"},
        **variables,
    }
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60)


def test_a_script_is_measured_as_it_is(tmp_path: Path) -> None:
    ended = profile(tmp_path, 1000)
    assert ended.returncode == 0 and "all steps were made" not in ended.stdout, ended.stderr
    written = json.loads((tmp_path / "out.json").read_text())
    assert [tensor["name"] for tensor in written["tensors"]] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]
    assert sum(
        tensor["forward"] + tensor["backward"] for tensor in written["tensors"]
    ) == pytest.approx(1)


def test_what_cannot_be_measured_is_said(tmp_path: Path) -> None:
    ended = profile(tmp_path, 5)
    assert ended.returncode == 1 and "has made fewer than 7 steps" in ended.stderr
    ended = profile(tmp_path, 5, RANK="0")
    assert ended.returncode == 2 and "but RANK is set" in ended.stderr
