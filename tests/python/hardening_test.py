"""Tests what ranks that lie, odd buffers and odd processes do to a job."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
import torch
from ranks import run_script

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import os, sys
import torch, sluice
from torch import nn
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
def train(model, optimizer, steps=4):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    optimizer.synchronize()
"""


def outputs(script: str, **variables: str) -> list[str]:
    ended = run_script(MODEL + script, 2, **variables)
    assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
    return [each.stdout.strip() for each in ended]


def test_a_buffer_that_is_a_strided_view_trains() -> None:
    script = """
model.register_buffer("every_other", torch.randn(5)[::2])
model.register_buffer("turned", torch.randn(3, 2).t())
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))
if rank == 0:
    model.every_other.fill_(7)
train(model, optimizer)
print(model.every_other.tolist(), model.turned.tolist())
"""
    first, second = outputs(script)
    assert first == second
    assert first.startswith("[7.0, 7.0, 7.0]")


def test_an_expanded_buffer_is_refused_by_its_name() -> None:
    script = """
model.register_buffer("mask", torch.ones(1).expand(4))
try:
    sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))
except ValueError as error:
    print(error)
"""
    for text in outputs(script):
        assert "buffer 'mask' is expanded" in text


LIES = """
import sluice._core as core
kind = {kind}
honest = kind.gather
def gather(self, key, value):
    return honest(self, key, {said!r} if rank == 1 and key.startswith("{key}") else value)
kind.gather = gather
try:
    {call}
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("said", [b"6000000000", b"-1", b"many", b"9" * 5000])
def test_a_rank_that_says_a_size_of_its_state_takes_no_memory(said: bytes) -> None:
    script = """
model, optimizer = sluice.distribute(
    model, lambda ps: torch.optim.Adam(ps, lr=0.1), server_optimizer=True)
train(model, optimizer)
""" + LIES.format(kind="core.Session", key="state_dict/", said=said, call="optimizer.state_dict()")
    for text in outputs(script):
        assert text.startswith("rank 1 says that its part of the optimizer's state has ")
        assert len(text) < 200


def test_a_rank_0_that_says_the_size_of_a_text_takes_no_memory() -> None:
    call = "sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))"
    script = "rank = 1 - rank\n" + LIES.format(
        kind="core.Job", key="bytes", said=b"6000000000", call=call
    )
    for text in outputs(script):
        assert text.startswith("rank 0 says that the description of its model has 6000000000 bytes")


def test_a_daemon_keeps_its_standard_streams_closed(tmp_path: Path) -> None:
    script = """
os.closerange(0, 3)
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))
train(model, optimizer)
taken = []
for fd in range(3):
    try:
        taken.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
open(os.path.join(os.environ["FOLDER"], str(rank)), "w").write(str(taken))
"""
    ended = run_script(MODEL + script, 2, FOLDER=str(tmp_path), SLUICE_LOG="trace")
    assert [each.returncode for each in ended] == [0, 0]
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["[]", "[]"]


METRICS = """
from urllib.request import urlopen
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.1))
train(model, optimizer)
if "URL" in os.environ and rank == 0:
    print(urlopen(os.environ["URL"]).read().decode().count("sluice_steps_total{"))
sluice.barrier()
"""


def test_metrics_are_served_on_ipv6() -> None:
    with socket.socket(socket.AF_INET6) as free:
        free.bind(("::1", 0))
        port = free.getsockname()[1]
    first, _ = outputs(
        METRICS,
        SLUICE_METRICS_ADDRESS="::1",
        SLUICE_METRICS_PORT=str(port),
        URL=f"http://[::1]:{port}/metrics",
    )
    assert int(first) > 0


def test_a_job_trains_without_metrics_that_have_no_place() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run_script(MODEL + METRICS, 2, SLUICE_METRICS_PORT=str(port))
    assert [each.returncode for each in ended] == [0, 0]
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ended[0].stderr
    assert "this rank trains without metrics" in ended[0].stderr


def test_the_recipe_of_a_checkpoint_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    recipe = re.findall(r"```python shown\n(.*?)```", page, re.DOTALL)[0]
    calls = []
    sync, replace = os.fsync, os.replace

    def note_sync(fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        calls.append(f"sync {name} {os.fstat(fd).st_size > 1000}")
        sync(fd)

    def note_replace(old: str, new: str) -> None:
        calls.append(f"replace {old} {new}")
        replace(old, new)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    model = torch.nn.Linear(20, 20)
    known = {
        "torch": torch,
        "os": os,
        "step": 3,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
        "sluice": type("Alone", (), {"rank": staticmethod(lambda: 0)}),
    }
    exec(recipe, known)
    assert calls[:2] == ["sync new.pt True", "replace new.pt checkpoint.pt"]
    assert calls[2].startswith(f"sync {tmp_path.name} ")
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 3
