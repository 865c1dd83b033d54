"""Tests the end of a job: in good order, or soon and on every rank with a line that names the rank
that ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from ranks import run_script, running

# The program prints the time when it hears of its end. Python and Torch tidy up afterwards, which
# may take long on a busy machine.
TELLS = """
import os, sys, time
def tell(kind, error, trace):
    print("told at", time.monotonic(), file=sys.stderr)
    sys.__excepthook__(kind, error, trace)
sys.excepthook = tell
"""
TRAINING = (
    TELLS
    + """
import torch, sluice
rank = int(os.environ["RANK"])
model, optimizer = sluice.distribute(torch.nn.Sequential(torch.nn.Linear(8, 300), \
torch.nn.Linear(300, 8)),
                                     lambda ps: torch.optim.SGD(ps, lr=0.01))
def train(steps):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        if step == 3:
            print("trains", flush=True)
"""
)
# The limit of users, not the longer one of the other tests: a lost rank must be noticed soon.
HEARTBEAT = {"SLUICE_SILENCE_LIMIT": "2s"}
PROMISE = 5  # seconds from the end of one rank until the others know, also on a busy machine
GONE = 10  # seconds until their processes are gone on a busy machine


def wait_for(rank: subprocess.Popen[str], word: str) -> str:
    """Waits for a line with this word, and returns the rest of the line."""
    assert rank.stdout is not None
    for said in rank.stdout:
        if said.split()[:1] == [word]:
            return said.removeprefix(word).strip()
    raise AssertionError(f"it has ended without saying '{word}'")


def errors_at_its_end(rank: subprocess.Popen[str], since: float) -> str:
    """Returns the errors of a rank at its end. All processes of a machine have the same monotonic
    clock."""
    errors = rank.communicate(timeout=30)[1]
    assert time.monotonic() - since < GONE
    (line,) = [line for line in errors.splitlines() if line.startswith("told at ")]
    assert float(line.removeprefix("told at ")) - since < PROMISE
    return errors


def test_a_normal_end_is_silent() -> None:
    for ended in run_script(TRAINING + "train(10)", 2, anew=True):
        assert (ended.returncode, ended.stderr) == (0, "")


def test_one_process_needs_no_launcher() -> None:
    variables = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    }
    program = (
        TRAINING.replace('int(os.environ["RANK"])', "0")
        + "train(10); print(sluice.world_size(), sluice.mean(3.0))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "trains\n1 3.0\n"), ended.stderr


def test_an_exception_ends_the_others_with_its_text() -> None:
    script = (
        TRAINING
        + "train(10 + 1000000 * (1 - rank))\nprint('raises', time.monotonic(), flush=True)\n"
    )
    with running(script + "raise KeyError('no such batch')", 2, anew=True, **HEARTBEAT) as (
        first,
        second,
    ):
        errors = errors_at_its_end(first, since=float(wait_for(second, "raises")))
        assert first.returncode == 1
        assert "PeerLostError" in errors and "rank 1 ended with KeyError: 'no such batch'" in errors
        assert "KeyError: 'no such batch'" in second.communicate(timeout=30)[1]


def test_unequal_numbers_of_batches_end_with_a_name() -> None:
    first, second = run_script(TRAINING + "train(20 if rank == 1 else 30)", 2, **HEARTBEAT)
    assert first.returncode == 1 and second.returncode == 0
    assert "rank 1 has ended its training after 20 steps" in first.stderr


def test_unequal_numbers_of_batches_where_buffers_are_broadcast() -> None:
    """Rank 1 waits for rank 0's buffers, not for a gradient."""
    script = TRAINING.replace(
        "torch.nn.Linear(8, 300), ", "torch.nn.Linear(8, 300), torch.nn.BatchNorm1d(300), "
    )
    first, second = run_script(script + "train(20 if rank == 0 else 30)", 2, **HEARTBEAT)
    assert first.returncode == 0 and second.returncode == 1
    assert "PeerLostError" in second.stderr and "rank 0 has ended its training" in second.stderr


MEAN = (
    TRAINING
    + """
train(5)
print(sluice.mean(float(rank)), flush=True)
if rank == 1:
    {end}
sluice.mean(1.0)
"""
)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("sys.exit(0)", "rank 1"),
        ("raise KeyError('lost')", "rank 1 ended with KeyError: 'lost'"),
        ("os.kill(os.getpid(), 9)", "rank 1"),
    ],
)
def test_a_mean_that_never_comes_names_who_has_ended(end: str, text: str) -> None:
    first, _ = run_script(MEAN.format(end=end), 2, **HEARTBEAT)
    assert (first.returncode, first.stdout) == (1, "trains\n0.5\n"), first.stderr
    assert text in first.stderr.splitlines()[-1]


def test_ctrl_c_on_all_ranks() -> None:
    """Interrupts all ranks, as a terminal does."""
    with running(TRAINING + "train(1000000)", 2, anew=True, **HEARTBEAT) as ranks:
        for rank in ranks:
            wait_for(rank, "trains")
        begun = time.monotonic()
        for rank in ranks:
            rank.send_signal(signal.SIGINT)
        for rank in ranks:
            errors = errors_at_its_end(rank, begun)
            assert "KeyboardInterrupt" in errors.splitlines()[-1], errors


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_rank_is_named(how: signal.Signals) -> None:
    with running(TRAINING + "train(1000000)", 3, anew=True, **HEARTBEAT) as ranks:
        for rank in ranks:
            wait_for(rank, "trains")
        begun = time.monotonic()
        ranks[1].send_signal(how)
        for number in (0, 2):
            errors = errors_at_its_end(ranks[number], begun)
            assert ranks[number].returncode == 1
            assert "PeerLostError" in errors and "rank 1" in errors.splitlines()[-1]


@pytest.mark.parametrize("where", ["rendezvous", "barrier", "mean", "backend"])
def test_ctrl_c_ends_a_wait_for_other_ranks(where: str) -> None:
    """Rank 1 does not come at all, or comes to the rendezvous only."""
    script = TELLS + "import torch, sluice\n"
    met = "" if where == "rendezvous" else "sluice.rank()\n"
    if where == "backend":
        met = (
            "torch.distributed.init_process_group('sluice')\nsys.excepthook = tell  # Torch has "
            "put its own there\n"
        )
    script += f"{met}if os.environ['RANK'] == '1': time.sleep(60)\nprint('waits', flush=True)\n"
    waits = {"mean": "sluice.mean(torch.ones(3))", "backend": "torch.distributed.barrier()"}
    script += waits.get(where, "sluice.barrier()")
    with running(script, 2, anew=True) as ranks:
        wait_for(ranks[0], "waits")
        time.sleep(0.5)  # until the rank waits
        begun = time.monotonic()
        ranks[0].send_signal(signal.SIGINT)
        assert errors_at_its_end(ranks[0], begun).splitlines()[-1] == "KeyboardInterrupt"


def test_ctrl_c_ends_a_wait() -> None:
    """Rank 0 waits for rank 1, which does nothing for a while."""
    script = (
        TRAINING + "train(10)\nif rank == 1: time.sleep(60)\nprint('waits', flush=True)\ntrain(10)"
    )
    with running(script, 2, anew=True) as ranks:
        wait_for(ranks[0], "waits")
        begun = time.monotonic()
        ranks[0].send_signal(signal.SIGINT)
        assert errors_at_its_end(ranks[0], begun).splitlines()[-1] == "KeyboardInterrupt"


# How programs end once a batch has failed. Rank 1 is the first, and the others hear of it.
FAILS = """
def work():
    train(5 if rank == 1 else 1000000)
    print("raises", time.monotonic(), flush=True)
    {end}
"""
CAUGHT = """
try:
    work()
except Exception as error:
    print("failed:", error, file=sys.stderr)
    {then}
"""
REPLACED = (
    "sys.excepthook = lambda kind, error, trace: print('my hook:', error, file=sys.stderr)\nwork()"
)


@pytest.mark.parametrize(
    ("end", "main", "text"),
    [
        ("raise ValueError('bad sample')", CAUGHT.format(then="sys.exit(1)"), "bad sample"),
        ("raise ValueError('bad sample')", REPLACED, "bad sample"),
        ("sys.exit(3)", CAUGHT.format(then="sys.exit(1)"), "exit code 3"),
        ("sys.exit('no disk')", "work()", "exit code 1: no disk"),
    ],
    ids=["caught", "hook-replaced", "exit-code", "exit-text"],
)
def test_the_first_reason_ends_all_ranks_soon(end: str, main: str, text: str) -> None:
    script = TRAINING + FAILS.format(end=end) + main
    with running(script, 3, anew=True, **HEARTBEAT) as ranks:
        since = float(wait_for(ranks[1], "raises"))
        for number, rank in enumerate(ranks):
            errors = rank.communicate(timeout=30)[1]
            assert time.monotonic() - since < GONE, f"rank {number} came late"
            assert rank.returncode != 0
            assert number == 1 or ("rank 1 ended with" in errors and text in errors), errors


def test_caught_exceptions_and_a_good_exit_on_all_ranks_end_soon() -> None:
    """Nobody says that anything is wrong, but the ranks have made different numbers of steps."""
    end = "raise ValueError('bad sample')"
    script = TRAINING + FAILS.format(end=end) + CAUGHT.format(then="pass")
    with running(script, 2, anew=True, **HEARTBEAT) as ranks:
        since = float(wait_for(ranks[1], "raises"))
        errors = [rank.communicate(timeout=30)[1] for rank in ranks]
        assert time.monotonic() - since < GONE
        assert [rank.returncode for rank in ranks] == [0, 0]
        assert "rank 1 has ended its training after 5 steps" in errors[0]


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("sys.exit(0)", "rank 1 has ended its training"),
        ("raise KeyError('lost')", "rank 1 ended with KeyError: 'lost'"),
    ],
)
def test_a_barrier_that_never_comes_names_who_has_ended(end: str, text: str) -> None:
    script = MEAN.replace("sluice.mean(1.0)", "sluice.barrier()").format(end=end)
    first, _ = run_script(script, 2, timeout=30, **HEARTBEAT)
    assert first.returncode == 1 and text in first.stderr.splitlines()[-1], first.stderr


def test_an_exit_that_is_caught_is_no_end() -> None:
    script = """
train(5)
try:
    sys.exit(2)
except SystemExit:
    pass
print(sluice.mean(float(rank)))
"""
    for ended in run_script(TRAINING + script, 2, anew=True):
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "trains\n0.5\n", "")
