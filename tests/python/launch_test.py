"""Tests how ranks find each other, by torchrun's store, a process group, or neither, and the limits
of a stranger in the store."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ranks import free_port, run_script
from sluice._job import launch
from torch.distributed import HashStore

WORDS = """
import os, sluice, torch
if {init}: torch.distributed.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sluice.barrier()
print(sluice.rank() == rank, sluice.world_size() == world, sluice.mean(float(rank)), \
sluice.mean(torch.ones(2) * rank).tolist())
"""


@pytest.mark.parametrize("init", [False, True])
def test_with_and_without_a_process_group(init: bool) -> None:
    for ended in run_script(WORDS.format(init=init), 2, anew=True):
        assert (ended.returncode, ended.stdout) == (0, "True True 0.5 [0.5, 0.5]\n"), ended.stderr


def test_torchrun() -> None:
    """torchrun's own store has MASTER_PORT, so ranks agree on another port."""
    variables = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
    }
    # Write text and newline in one call: both ranks write into one pipe.
    program = (
        "import sluice, sys; sys.stdout.write(f'{sluice.world_size()} "
        "{sluice.mean(float(sluice.rank()))}\\n')"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
               "--master-port", str(free_port()),
               "--no-python", sys.executable, "-c", program]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)
    assert (ended.returncode, sorted(ended.stdout.split())) == (0, ["0.5", "0.5", "2", "2"]), (
        ended.stderr
    )


def test_the_key_does_not_stay_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that a rank starts do not inherit the key, but the second job of a process still
    finds it."""
    key = "17" * 32
    monkeypatch.setenv("SLUICE_JOB_KEY", key)
    monkeypatch.setattr(launch, "_taken", {})
    for _ in range(2):
        assert launch.own_environment()["SLUICE_JOB_KEY"] == key
        assert "SLUICE_JOB_KEY" not in os.environ
        inherited = subprocess.run(
            [sys.executable, "-c", "import os; print(dict(os.environ))"],
            capture_output=True,
            text=True,
        )
        assert inherited.returncode == 0 and key not in inherited.stdout
    monkeypatch.setenv("SLUICE_JOB_KEY_FILE", "job.key")
    assert "SLUICE_JOB_KEY" not in launch.own_environment()
    monkeypatch.delenv("SLUICE_JOB_KEY_FILE")
    monkeypatch.setenv("SLUICE_JOB_KEY", key[::-1])
    assert launch.own_environment()["SLUICE_JOB_KEY"] == key[::-1]


def test_texts_do_not_have_the_key() -> None:
    """The text of an exception goes to every rank's log."""
    key = "17" * 32
    script = f"""
import sluice, torch
from sluice._job import job
model = torch.nn.Linear(1, 1)
def sgd(ps): return torch.optim.SGD(ps, lr=1)
sluice.distribute(model, sgd, job_key="{key}")
assert "{key}" not in repr(vars(job.current()))
sluice.distribute(torch.nn.Linear(1, 1), sgd, job_key="{key}")
for name in ("job-key",):
    try:
        print("told", job.current().option(name))
    except ValueError as error:
        print(error)
sluice.distribute(torch.nn.Linear(1, 1), sgd, job_key="{key[::-1]}")
"""
    for ended in run_script(script, 2, anew=True):
        assert ended.stdout == "the option 'job-key' is a secret and cannot be read\n"
        assert (
            "ValueError: the job has begun with other options (job-key=(set)): give job-key=(set) "
            "in" in ended.stderr
        )
        assert key not in ended.stderr and key[::-1] not in ended.stderr


def test_a_note_that_was_not_written_with_the_key_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HashStore()
    monkeypatch.setattr(launch, "_store", lambda environment: store)
    for name, value in {
        "WORLD_SIZE": "2",
        "RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    options = {"job-key": "17" * 32}
    environment, published = launch.launch_environment(options)
    assert environment["MASTER_PORT"] == "0" and published is not None
    published(4711)
    monkeypatch.setenv("RANK", "1")
    assert launch.launch_environment(options)[0]["MASTER_PORT"] == "4711"
    with pytest.raises(PermissionError, match="not written with this job's key"):
        launch.launch_environment({"job-key": "18" * 32})
    store.set("sluice//0/port", "6666 " + "0" * 64)
    with pytest.raises(PermissionError, match="SLUICE_JOB_KEY_FILE"):
        launch.launch_environment(options)
