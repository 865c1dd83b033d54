"""Tests that a wait for another rank says where that rank is, on both sides, and that ranks whose
models are in different modes agree on when buffers are exchanged."""

from __future__ import annotations

import subprocess

import pytest
from ranks import run_script

PROGRAM = """
import hashlib, os, time
import torch, sluice
from torch import nn
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
WITH_BUFFERS = [nn.BatchNorm1d(32)]
def make(*middle):
    return sluice.distribute(nn.Sequential(nn.Linear(16, 32), *middle, nn.Linear(32, 4)),
                             lambda ps: torch.optim.SGD(ps, lr=0.1))
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().sum().backward()
        optimizer.step()
def hashed(tensors):
    bytes_ = b"".join(t.detach().numpy().tobytes() for t in tensors)
    return hashlib.sha256(bytes_).hexdigest()[:12]
"""
# The limits of a wait. The others' words are a quarter of a second old.
SHORT = {"SLUICE_STALL_AFTER": "1s", "SLUICE_WAIT_TIMEOUT": "3s"}


def run(program: str) -> list[subprocess.CompletedProcess[str]]:
    return run_script(PROGRAM + program, 2, **SHORT)


def line_with(text: str, ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the last line of the errors that has this text."""
    lines = [line for line in ended.stderr.splitlines() if text in line]
    assert lines, ended.stderr
    return lines[-1]


ALONE = """
model, optimizer = make()
train(4)
if rank == 0:
    {call}
train(3)
"""


@pytest.mark.parametrize(
    ("call", "place"),
    [("sluice.mean(1.0)", "in sluice.mean()"), ("sluice.barrier()", "in sluice.barrier()")],
)
def test_a_meeting_on_one_rank_only_is_named_on_both(call: str, place: str) -> None:
    first, second = run(ALONE.format(call=call))
    assert first.returncode == second.returncode == 1
    # Rank 1 waits for a gradient: a warning, then the error.
    assert f"; rank 0 has been {place} for" in line_with("rank 1 has waited", second)
    error = line_with("TimeoutError: ", second)
    assert "of step 4 did not come within 3s (wait-timeout)" in error
    assert f"rank 0 has been {place} for" in error
    # Rank 0 waits for rank 1: a warning, then the reason why rank 1 has ended.
    warning = line_with("rank 1 has been waiting for results of step 4 for", first)
    assert f"rank 0 has been {place} " in warning
    error = line_with("PeerLostError: ", first)
    assert "rank 1 ended with TimeoutError" in error and f"rank 0 has been {place} for" in error


def test_user_code_is_all_that_is_known_of_a_rank_that_makes_no_call() -> None:
    first, _ = run("model, optimizer = make()\ntrain(4)\nif rank == 1: time.sleep(5)\ntrain(3)")
    error = line_with("TimeoutError: ", first)
    assert "(wait-timeout): rank 1 has been in user code of step 3 for" in error


def test_a_rank_in_a_long_layer_is_in_its_forward_pass() -> None:
    slow = """
class Slow(nn.Module):
    def forward(self, x):
        if rank == 1 and train.is_slow: time.sleep(5)
        return x
train.is_slow = False
model, optimizer = make(Slow())
train(4)
train.is_slow = True
train(3)
"""
    first, _ = run(slow)
    error = line_with("TimeoutError: ", first)
    assert "rank 1 has been in the forward pass of step 4 for" in error


def test_a_layer_that_one_rank_freezes_is_named() -> None:
    freeze = """
model, optimizer = make()
train(3)
if rank == 1: model[0].weight.requires_grad_(False)
train(3)
"""
    first, second = run(freeze)
    assert first.returncode == second.returncode == 1
    why = "rank 1 has frozen '0.weight' after 3 steps; do so on all ranks"
    assert why in line_with("PeerLostError: ", first)
    assert "has ended its training" not in first.stderr
    assert why in line_with("PeerLostError: ", second)  # rank 0's reason


MODES = """
model, optimizer = make(*WITH_BUFFERS)
train(3)
if rank == {rank}: model.eval()
train(2)
mine = hashed(model.buffers())
train(1)
print(hashed(model.parameters()), mine, hashed(model.buffers()))
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_training_in_another_mode_exchanges_buffers_as_the_others_do(rank: int) -> None:
    ended = run(MODES.format(rank=rank))
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    (parameters, before, after), (others, _, received) = (each.stdout.split() for each in ended)
    assert parameters == others
    if rank == 0:  # its statistics are frozen, and rank 1 changes what it has received
        assert before == after
    else:  # rank 1 keeps what rank 0 had before its last pass
        assert received == before


ASIDE = """
model, optimizer = make(*WITH_BUFFERS)
for step in range(4):
    if rank == {rank}:
        model.eval()
        with torch.set_grad_enabled({gradients}):
            for _ in range(3): model(torch.randn(8, 16))
        model.train()
    train(1)
print(hashed(model.parameters()))
"""


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_may_evaluate_alone(rank: int, gradients: bool) -> None:
    ended = run(ASIDE.format(rank=rank, gradients=gradients))
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    assert ended[0].stdout == ended[1].stdout


def test_two_passes_before_one_backward_receive_buffers_once() -> None:
    two = """
model, optimizer = make(*WITH_BUFFERS)
seen = []
model[1].register_forward_pre_hook(lambda m, a: seen.append(m.running_mean.clone()))
for step in range(3):
    optimizer.zero_grad()
    (model(torch.randn(8, 16)).sum() + model(torch.randn(8, 16)).sum()).backward()
    optimizer.step()
print(hashed(seen[::2]), *[hashed([mean]) for mean in seen[1::2]])
"""
    ended = run(two)
    assert [each.returncode for each in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    (first, *own), (others, *theirs) = (each.stdout.split() for each in ended)
    assert first == others  # rank 0's, with rank 0's passes of the step before
    assert all(one != other for one, other in zip(own, theirs, strict=True))
