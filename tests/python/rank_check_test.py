"""Tests the comparison of ranks: every rank names what differs and where, within two steps for what
optimizers do, and lawful differences raise no alarm."""

from __future__ import annotations

import re

import pytest
from ranks import run_script

BEGIN = """
import copy, os, torch, sluice
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), \
torch.nn.Linear(16, 8))
model, optimizer = sluice.distribute(model, \
lambda ps: torch.optim.SGD(ps, lr=0.01, momentum=0.9){options})
torch.manual_seed(rank)
def backward():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    return float(loss.detach())
step = 0
try:
"""
LOOP = """
    for step in range(30):
        backward()
        optimizer.step()
        if step == 12 and rank == 1:
            with torch.no_grad():
                {change}
"""
END = """
    print("no error", flush=True)
except RuntimeError as error:
    print(f"by step {step}: {error}", flush=True)
"""


def run(body: str, options: str = "") -> list[str]:
    program = BEGIN.replace("{options}", f", {options}" if options else "") + body + END
    ended = run_script(program, 2)
    assert all(one.returncode == 0 for one in ended), ended
    return [one.stdout + one.stderr for one in ended]


@pytest.mark.parametrize("on_servers", [False, True])
def test_ranks_that_are_alike_are_left_alone(on_servers: bool) -> None:
    body = LOOP.replace("{change}", "pass")
    for said in run(body, f"check_ranks_every=5, server_optimizer={on_servers}"):
        assert said == "no error\n"


CASES = [
    ("model[3].weight[0, 0] += 1", "'3.weight'"),
    (
        "model.state_dict(); optimizer.state[model[0].bias]['momentum_buffer'][0] += 1",
        "'0.bias'|'0.weight'",
    ),
]


@pytest.mark.parametrize(("change", "named"), CASES)
def test_the_first_tensor_and_the_ranks_are_named(change: str, named: str) -> None:
    for said in run(LOOP.replace("{change}", change)):
        # A rank whose wait the other's end has ended reads the reason in its log.
        text = r"by step 1[3-5]: .* differs on rank 1 from rank 0 after step"
        assert re.search(text, said, re.DOTALL), said
        assert any(name in said for name in named.split("|")), said


# Each makes the ranks differ from step 12 on, and has to be named in step 14.
HABITS = {
    "one rank loads an old checkpoint": (
        """
    old = copy.deepcopy(model.state_dict())
    for step in range(30):
        backward(); optimizer.step()
        if step == 12 and rank == 0: model.load_state_dict(old)
""",
        "'0.weight' differs on rank 1 from rank 0",
    ),
    "a scheduler is fed with the local loss": (
        """
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for step in range(30):
        backward(); optimizer.step()
        if step >= 12: scheduler.step(float((2 * rank - 1) * step))
""",
        r"lr of group 0 of SGD in call 1 is 0.01 on rank 0, but 0.001\d* on rank 1",
    ),
    "one rank leaves a step out": (
        """
    for step in range(30):
        backward()
        if rank == 0 or step != 12: optimizer.step()
""",
        "number of calls of step.. is 1.0 on rank 0, but 0.0 on rank 1"
        "|number of calls of step.. is 1 on rank 0, but 0 on rank 1",
    ),
    "one rank steps twice": (
        """
    for step in range(30):
        backward(); optimizer.step()
        if rank == 1 and step == 12: optimizer.step()
""",
        "number of calls of step.. is 1 on rank 0, but 2 on rank 1",
    ),
    "one rank skips a parameter": (
        """
    for step in range(30):
        backward()
        if rank == 1 and step == 12: model[3].bias.grad = None
        optimizer.step()
""",
        "'3.bias' was stepped on rank 0, but had no gradient or no optimizer on rank 1",
    ),
    "one rank has another weight decay": (
        """
    for step in range(30):
        backward()
        if rank == 1 and step == 12: optimizer.param_groups[0]["weight_decay"] = 0.1
        optimizer.step()
""",
        "weight_decay of group 0 of SGD in call 1 is 0.0 on rank 0, but 0.1 on rank 1",
    ),
}


@pytest.mark.parametrize("habit", HABITS)
def test_habits_that_split_ranks_are_named_within_two_steps(habit: str) -> None:
    body, named = HABITS[habit]
    for said in run(body):
        assert re.search(named, said), said
        assert re.search("by step 1[2-6]:", said), said


def test_a_difference_in_the_last_step_is_said_at_the_end() -> None:
    body = """
    for step in range(3):
        backward(); optimizer.step()
    if rank == 1:
        with torch.no_grad(): model[0].weight.zero_()
"""
    for said in run(body):
        assert "'0.weight' differs on rank 1 from rank 0 after step 3" in said, said


def test_a_warning_lets_training_go_on_and_off_says_nothing() -> None:
    body = LOOP.replace("{change}", "model[3].weight[0, 0] += 1")
    for said in run(body, "compare_ranks='warn'"):
        assert said.count("the ranks have different parameters") >= 1, said
        assert "no error" in said
    for said in run(body, "compare_ranks='off'"):
        assert said == "no error\n"


def test_arithmetic_of_two_kinds_is_one_warning() -> None:
    """PyTorch's own kernels round differently where a CPU has other instructions."""
    body = """
    for step in range(30):
        backward(); optimizer.step()
"""
    program = BEGIN.replace("{options}", "").replace(
        "rank = ",
        'os.environ["ATEN_CPU_CAPABILITY"] = ["avx2", "default"][int(os.environ["RANK"])]\nrank = ',
    )
    program = (
        program.replace("import copy, os, torch, sluice", "import os", 1)
        .replace("\nrank = ", "\nimport copy, torch, sluice\nrank = ", 1)
        .replace("SGD(ps, lr=0.01, momentum=0.9)", "Adam(ps, lr=0.01)")
    )
    for ended in run_script(program + body + END, 2, anew=True):
        assert "no error" in ended.stdout, ended
        assert ended.stderr.count("differ by rounding") <= 1, ended
        assert "ATEN_CPU_CAPABILITY" in ended.stderr, ended


LAWFUL = {
    "groups have words of their own": "optimizer.param_groups[0]['name'] = f'on rank {rank}'; "
    "optimizer.param_groups[0]['layer'] = rank",
    "buffers differ": "model[1].running_mean.add_(rank)",
    "a parameter outside of the model": "own = torch.nn.Parameter(torch.randn(3)); "
    "optimizer.add_param_group({'params': [own]}); own.grad = torch.ones(3)",
    "one rank has a hook on its steps": "rank and optimizer.register_step_post_hook(lambda *a: 0)",
    "one rank evaluates alone": "rank or (model.eval(), torch.no_grad().__enter__(), "
    "model(torch.randn(2, 8)), torch.set_grad_enabled(True), model.train())",
}


@pytest.mark.parametrize("program", LAWFUL)
def test_lawful_differences_raise_no_alarm(program: str) -> None:
    body = f"""
    for step in range(25):
        backward(); optimizer.step()
        if step == 5: {LAWFUL[program]}
"""
    for said in run(body, "broadcast_buffers=False" if "buffers" in program else ""):
        assert said.startswith("no error"), said


def test_algorithms_that_let_ranks_differ_are_not_compared() -> None:
    script = "import torch, sluice\nnet = torch.nn.Linear(2, 2)\n"
    script += (
        "sluice.distribute(net, lambda ps: torch.optim.SGD(ps, lr=0.1), server_optimizer=True, "
        "algorithm='asp', debug='ranks')"
    )
    for ended in run_script(script, 2):
        assert "algorithm=asp lets ranks differ" in ended.stderr
