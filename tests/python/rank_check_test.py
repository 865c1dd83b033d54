"""Tests check-ranks-every: all ranks name a rank whose parameters differ, and the first tensor."""

from __future__ import annotations

import pytest
from ranks import run_script

PROGRAM = """
import os, torch, sluice
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
model, optimizer = sluice.distribute(model, \
lambda ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9), {options})
try:
    for step in range(60):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
        if step == {wrong} and rank == 1:
            with torch.no_grad():
                {change}
    print("no error", flush=True)
except RuntimeError as error:
    print(f"by step {{step}}: {{error}}", flush=True)
"""


def run(options: str, wrong: int = -1, change: str = "pass") -> list[str]:
    ended = run_script(PROGRAM.format(options=options, wrong=wrong, change=change), 2)
    assert all(one.returncode == 0 for one in ended), ended
    return [one.stdout for one in ended]


@pytest.mark.parametrize("on_servers", [False, True])
def test_ranks_that_are_alike_are_left_alone(on_servers: bool) -> None:
    for said in run(f"check_ranks_every=5, server_optimizer={on_servers}"):
        assert said == "no error\n"


CASES = [
    ("model[2].weight[0, 0] += 1", "'2.weight'"),
    (
        "model.state_dict(); optimizer.state[model[0].bias]['momentum_buffer'][0] += 1",
        "'0.bias'|'0.weight'",
    ),
]


@pytest.mark.parametrize(("change", "named"), CASES)
def test_the_first_tensor_and_the_ranks_are_named(change: str, named: str) -> None:
    for said in run("check_ranks_every=10", 12, change):
        assert "differs on rank 1 from rank 0 after step 20" in said, said
        assert any(name in said for name in named.split("|")), said
        assert int(said.split()[2].rstrip(":")) <= 12 + 20, said


def test_algorithms_that_let_ranks_differ_refuse() -> None:
    script = "import torch, sluice\nnet = torch.nn.Linear(2, 2)\n"
    script += (
        "sluice.distribute(net, lambda ps: torch.optim.SGD(ps, lr=0.1), server_optimizer=True, "
        "algorithm='asp', debug='ranks')"
    )
    for ended in run_script(script, 2):
        assert "algorithm=asp lets ranks differ" in ended.stderr
