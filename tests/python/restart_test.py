"""A job that torchrun starts again goes on from its checkpoint, with the bits of a job that was
never killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from ranks import environment, free_port, run_script

# Rank 0 saves every fourth step to a new file, which it renames, and is killed once during a write.
TRAINING = """
import os, signal
from pathlib import Path
import torch, sluice

folder, dies_in_step = Path(os.environ["FOLDER"]), int(os.environ.get("DIES_IN_STEP", "0"))
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
torch.manual_seed(1)
model, optimizer = sluice.distribute(torch.nn.Sequential(torch.nn.Linear(8, 60), torch.nn.Tanh(), \
torch.nn.Linear(60, 8)),
                                     lambda ps: torch.optim.AdamW(ps, lr=0.01))
begin = 0
if (folder / "saved.pt").exists():
    saved = torch.load(folder / "saved.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begin = saved["step"]
print(f"attempt {attempt} begins with step {begin} on rank {sluice.rank()}", flush=True)
for step in range(begin, 14):
    optimizer.zero_grad()
    data = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + sluice.rank()))
    model(data).square().mean().backward()
    optimizer.step()
    if (step + 1) % 4 == 0 and sluice.rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), \
"step": step + 1}, folder / "new.pt")
        if attempt == 0 and step + 1 == dies_in_step:
            os.truncate(folder / "new.pt", 1000)
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(folder / "new.pt", folder / "saved.pt")
torch.save(model.state_dict(), folder / f"end{sluice.rank()}.pt")
"""


def train_by_torchrun(folder: Path, dies_in_step: int) -> subprocess.CompletedProcess[str]:
    program = folder / "train.py"
    program.write_text(TRAINING)
    variables = environment(0, 2, free_port(), FOLDER=str(folder), DIES_IN_STEP=str(dies_in_step))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        del variables[name]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--standalone",
    ]
    return subprocess.run(
        [*launch, str(program)], capture_output=True, text=True, env=variables, timeout=120
    )


def test_a_job_killed_while_it_saves_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    for ended in run_script(TRAINING, 2, FOLDER=str(whole)):
        assert ended.returncode == 0, ended.stderr
    killed.mkdir()
    job = train_by_torchrun(killed, dies_in_step=12)
    assert job.returncode == 0, job.stderr
    for rank in range(2):
        assert f"attempt 1 begins with step 8 on rank {rank}" in job.stdout, job.stderr
    expected = torch.load(whole / "end0.pt", weights_only=True)
    for path in (whole / "end1.pt", killed / "end0.pt", killed / "end1.pt"):
        ended_with = torch.load(path, weights_only=True)
        for name, tensor in expected.items():
            assert torch.equal(ended_with[name], tensor), f"{name} in {path}"
