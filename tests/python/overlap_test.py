"""Tests asp and ssp with overlap=True: gradients leave during backward, and a step that is skipped,
repeated or refused leaves no trace on the servers."""

from __future__ import annotations

import pytest
from ranks import run_script

# Every program has a reference in it: the servers' parameters as one process would make them.
COMMON = """
import copy, time, torch, sluice
from torch import nn
from torch.nn import functional
torch.manual_seed(1)
world = 2
inputs = torch.randn(world, 40, 4, 8)
wanted = inputs.sum(-1, keepdim=True)
def loss_of(model, rank, turn):
    return functional.mse_loss(model(inputs[rank, turn]), wanted[rank, turn])
def gradients_of(model, rank, turns):
    model.zero_grad()
    for turn in turns:
        loss_of(model, rank, turn).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]
def assert_alike(model, expected):
    for one, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-5, atol=1e-6)
first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
model, optimizer = sluice.distribute(copy.deepcopy(first),
    lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=MOMENTUM), server_optimizer=True,
    algorithm=ALGORITHM, overlap=True)
def moved():
    return optimizer._late.engine.bytes_moved[0]
"""

# The ranks take turns, so that the order of steps at the servers is known.
TURNS = (
    COMMON
    + """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
def act(what, turn):
    rank = sluice.rank()
    if what == "not zeroed":
        loss_of(model, rank, turn).backward()
        optimizer.step()
        return
    optimizer.zero_grad()
    if what == "no_sync":
        with model.no_sync():
            loss_of(model, rank, turn + 1).backward()
    if what == "twice":
        loss_of(model, rank, turn + 1).backward()
    if what == "scaled":
        scaler.scale(loss_of(model, rank, turn)).backward()
        try:
            scaler.step(optimizer)
        except RuntimeError as error:
            assert "clipped or unscaled" in str(error), error
        else:
            raise AssertionError("a gradient that is at the servers was unscaled")
        return
    loss_of(model, rank, turn).backward()
    if what != "skipped":
        optimizer.step()
server = copy.deepcopy(first)
momentum = torch.optim.SGD(server.parameters(), lr=0.05, momentum=MOMENTUM)
copies = [copy.deepcopy(first) for _ in range(world)]
def act_in_reference(what, rank, turn):
    if what in ("skipped", "scaled"):
        return
    turns = (turn, turn + 1) if what in ("no_sync", "twice") else (turn,)
    if what == "not zeroed":
        found = [a + b for a, b in zip(olds[rank], gradients_of(copies[rank], rank, (turn,)))]
    else:
        found = gradients_of(copies[rank], rank, turns)
    olds[rank] = found
    for parameter, gradient in zip(server.parameters(), found):
        parameter.grad = gradient.clone()
    momentum.step()
    copies[rank].load_state_dict(server.state_dict())
olds = [None] * world
loss_of(model, sluice.rank(), 39).backward()  # the ranks agree on a plan; nobody takes this step
sluice.barrier()
actions = ["step", "step", *WHAT.split(","), "step", "step", "step"]
for turn, what in enumerate(actions):
    if turn % world == sluice.rank():
        act(what, turn)
        if what not in ("skipped", "scaled"):
            optimizer.synchronize()
            act_in_reference(what, sluice.rank(), turn)
            assert_alike(model, copies[sluice.rank()])
        else:
            act_in_reference(what, sluice.rank(), turn)
    else:
        act_in_reference(what, turn % world, turn)
    sluice.barrier()
print("alike")
"""
)


def told(text: str, **names: str) -> str:
    return "".join(f"{name} = {value}\n" for name, value in names.items()) + text


@pytest.mark.parametrize(
    "what", ["step,step", "skipped,step", "twice,step", "no_sync,twice", "scaled,skipped",
             "skipped,skipped", "not zeroed,step"]
)  # fmt: skip
def test_asp_has_the_result_of_one_process(what: str) -> None:
    script = told(TURNS, MOMENTUM="0.9", ALGORITHM='"asp"', WHAT=repr(what))
    for result in run_script(script, 2):
        assert (result.returncode, result.stdout) == (0, "alike\n"), result.stderr


# With s = 0 everybody reads all steps of all workers, so that the result is known.
TOGETHER = (
    COMMON
    + """
expected = copy.deepcopy(first)
for turn in range(12):
    optimizer.zero_grad()
    loss_of(model, sluice.rank(), turn).backward()
    if turn % 4 == 2:
        continue  # skipped by all
    if turn % 4 == 3:
        optimizer.zero_grad()
        loss_of(model, sluice.rank(), turn).backward()
    optimizer.step()
    optimizer.synchronize()
    found = [gradients_of(expected, rank, (turn,)) for rank in range(world)]
    with torch.no_grad():
        for parameter, *all_of in zip(expected.parameters(), *found):
            parameter -= 0.05 * sum(all_of)
    assert_alike(model, expected)
print("alike")
"""
)


def test_ssp_has_the_result_of_one_process() -> None:
    script = told(TOGETHER, MOMENTUM="0", ALGORITHM='"ssp:0"')
    for result in run_script(script, 2):
        assert (result.returncode, result.stdout) == (0, "alike\n"), result.stderr


LEAVES = (
    COMMON
    + """
for turn in range(3):
    optimizer.zero_grad()
    loss_of(model, sluice.rank(), turn).backward()
    optimizer.step()
optimizer.synchronize()
sluice.barrier()
time.sleep(0.5)
before = moved()
optimizer.zero_grad()
loss_of(model, sluice.rank(), 3).backward()
limit = time.monotonic() + LIMIT
while moved() - before <= 100 and time.monotonic() < limit:
    time.sleep(0.01)
print("before step()" if moved() - before > 100 else "not before step()")
sluice.barrier()
optimizer.step()
"""
)


@pytest.mark.parametrize("algorithm", ["asp", "ssp:2"])
def test_gradients_leave_during_backward(algorithm: str) -> None:
    script = told(LEAVES, MOMENTUM="0", ALGORITHM=repr(algorithm), LIMIT="20")
    for result in run_script(script, 2):
        assert (result.returncode, result.stdout) == (0, "before step()\n"), result.stderr


def test_nothing_leaves_before_step_without_it() -> None:
    script = told(LEAVES, MOMENTUM="0", ALGORITHM='"asp"', LIMIT="0.3")
    for result in run_script(script.replace("overlap=True", "overlap=False"), 2):
        assert (result.returncode, result.stdout) == (0, "not before step()\n"), result.stderr


def test_a_rank_may_end_before_step() -> None:
    script = told(LEAVES, MOMENTUM="0", ALGORITHM='"asp"', LIMIT="20")
    for result in run_script(script.replace("sluice.barrier()\noptimizer.step()\n", ""), 2):
        assert (result.returncode, result.stdout) == (0, "before step()\n"), result.stderr
