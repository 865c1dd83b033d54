"""Tests parameters that come after distribute(), and those that are written to behind autograd's
back: ranks stay equal, with the values of one process, or the program ends by name."""

from __future__ import annotations

import pytest
from ranks import run_script

BEGIN = """
import hashlib, os, torch, sluice
from torch import nn
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
def net(): return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
def step():
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
model, optimizer = sluice.distribute(net(), lambda ps: torch.optim.SGD(ps, lr=0.1))
for _ in range(5): step()
"""
END = """
for _ in range(10): step()
values = b"".join(v.numpy().tobytes() for v in model.state_dict().values())
print(hashlib.sha256(values).hexdigest(), flush=True)
"""

# Every rank makes the new parameters with a seed of its own: rank 0's values are everybody's.
LATE = {
    "a new head": """
model[2] = nn.Linear(16, 6)
optimizer.add_param_group({"params": model[2].parameters()})
""",
    "a replaced Parameter": """
model[0].weight = nn.Parameter(torch.randn(16, 8))
optimizer.param_groups[0]["params"][0] = model[0].weight
""",
    "weight_norm": """
nn.utils.parametrizations.weight_norm(model[0])
optimizer.add_param_group({"params": [p for p in model[0].parameters() if p.shape != (16,)]})
""",
    "late LoRA": """
class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.a, self.b = base.requires_grad_(False), nn.Linear(8, 2), nn.Linear(2, 16)
    def forward(self, x): return self.base(x) + self.b(self.a(x))
model[0] = Lora(model[0])
optimizer.add_param_group({"params": [*model[0].a.parameters(), *model[0].b.parameters()]})
""",
}


@pytest.mark.parametrize("late", LATE)
def test_a_late_parameter_joins(late: str) -> None:
    ended = run_script(BEGIN + LATE[late] + END, 2)
    assert all(one.returncode == 0 for one in ended), ended
    assert ended[0].stdout == ended[1].stdout


def test_a_parameter_that_the_model_has_not_read_yet_ends_the_program_by_name() -> None:
    late = """
head = nn.Linear(4, 1)
model.add_module("head", head)
optimizer.add_param_group({"params": head.parameters()})
optimizer.zero_grad()
head(torch.randn(2, 4)).sum().backward()
optimizer.step()
"""
    for ended in run_script(BEGIN + late + END, 2):
        assert ended.returncode != 0
        assert "'head.weight' came to the model after its last forward pass" in ended.stderr


def test_a_parameter_that_one_rank_adds_ends_all() -> None:
    late = """
if rank == 1:
    model[2] = nn.Linear(16, 6)
    optimizer.add_param_group({"params": model[2].parameters()})
"""
    ended = run_script(BEGIN + late + END, 2)
    assert all(one.returncode != 0 for one in ended), ended


def test_a_parameter_outside_of_the_model_is_stepped_here_and_said_once() -> None:
    late = """
own = nn.Parameter(torch.randn(3))
optimizer.add_param_group({"params": [own]})
for _ in range(2):
    optimizer.zero_grad()
    (model(torch.randn(4, 8)).square().mean() + own.sum()).backward()
    optimizer.step()
"""
    for ended in run_script(BEGIN + late + END, 2):
        assert ended.returncode == 0, ended
        assert ended.stderr.count("each rank steps them with its own gradients") == 1, ended


@pytest.mark.parametrize("write", ["p.data.clamp_(-0.01, 0.01)", "p.data.mul_(0.5)"])
def test_a_write_through_data_is_noticed(write: str) -> None:
    late = f"""
parameters = list(model.parameters())
for _ in range(3):
    step()
    for p in parameters: {write}
"""
    for ended in run_script(BEGIN + late + END, 2):
        assert ended.returncode != 0
        assert "was changed or given other memory between step() and its update" in ended.stderr


def test_a_write_through_data_after_synchronize_is_taken() -> None:
    late = """
parameters = list(model.parameters())
for _ in range(3):
    step()
    optimizer.synchronize()
    for p in parameters: p.data.clamp_(-0.1, 0.1)
"""
    ended = run_script(BEGIN + late + END, 2)
    assert all(one.returncode == 0 for one in ended), ended
    assert ended[0].stdout == ended[1].stdout
