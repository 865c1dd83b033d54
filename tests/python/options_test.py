"""Tests options of algorithms from PyTorch: they do what they say, and an algorithm that does not
take one refuses it in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api as mypy_api
from ranks import run_script

ROOT = Path(__file__).resolve().parents[2]

# Rank 0 makes two steps, and rank 1 one between them. Gradients are 1, and all numbers are exact.
STEPS = """
import torch, sluice
from torch import nn
model = nn.Linear(1, 1, bias=False)
nn.init.constant_(model.weight, 1.0)
model, optimizer = sluice.distribute(model,
    lambda ps: torch.optim.SGD(ps, lr=0.5, momentum=0.5, weight_decay={decay}),
    server_optimizer=True, broadcast_buffers=False, algorithm="asp", {options})
def step(rank):
    if sluice.rank() == rank:
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.synchronize()
    sluice.barrier()
model(torch.ones(1, 1)).sum().backward()  # the ranks agree on a plan; nobody takes this step
sluice.barrier()
step(0)
step(1)
step(0)
print(model.weight.item() if sluice.rank() == 0 else "-")
"""


@pytest.mark.parametrize(
    ("options", "decay", "expected"),
    [
        # One velocity of all: 1, 1.5, 1.75.
        ('momentum_at="server"', "0", 1 - 0.5 * (1 + 1.5 + 1.75)),
        # Each its own: rank 0 has 1 and 1.5, rank 1 has 1.
        ('momentum_at="workers"', "0", 1 - 0.5 * (1 + 1 + 1.5)),
        ('momentum_at="none"', "0", 1 - 0.5 * 3),
        # Decay is that of the server's parameters: 1, 0.25 and -0.3125.
        ('momentum_at="none"', "0.5", -0.734375),
    ],
)
def test_momentum_is_where_it_is_wanted(options: str, decay: str, expected: float) -> None:
    first, second = run_script(STEPS.format(options=options, decay=decay), 2)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert float(first.stdout) == expected


# Prints the tensors that the rank serves slices of.
SERVED = """
import torch, sluice
from torch import nn
torch.manual_seed(1)
model, optimizer = sluice.distribute(
    nn.Sequential(nn.Linear(256, 1024, bias=False), nn.Linear(1024, 100, bias=False)),
    lambda ps: torch.optim.SGD(ps, lr=0.01), server_optimizer=True, {options})
model(torch.ones(2, 256)).sum().backward()
optimizer.step()
optimizer.synchronize()
print(sorted({{index for index, *_ in optimizer._late.engine.session.served}}))
"""


@pytest.mark.parametrize(
    ("options", "served"),
    [
        ("", ["[0, 1]", "[0, 1]"]),
        ('placement="layers"', ["[0]", "[1]"]),
        ('servers="1"', ["[0, 1]", "[]"]),
    ],
)
def test_layers_are_where_they_are_wanted(options: str, served: list[str]) -> None:
    results = run_script(SERVED.format(options=options), 2)
    assert sorted(one.stdout.strip() for one in results) == sorted(served), results[0].stderr


REFUSED = """
import torch, sluice
try:
    model, optimizer = sluice.distribute(torch.nn.Linear(2, 2),
        lambda ps: torch.optim.SGD(ps, lr=0.1), {options})
    model(torch.ones(1, 2)).sum().backward()
except (ValueError, RuntimeError) as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ('momentum_at="workers"', "sluice takes no --momentum-at; it is for asp, ssp"),
        ('algorithm="p3", placement="layers"', "p3 takes no --placement; it is for sluice,"),
        ('algorithm="wfbp", overlap=True', "wfbp takes no --overlap; it is for asp, ssp"),
        ('algorithm="allreduce", tau=8', "allreduce takes no --tau; it is for easgd"),
        ('algorithm="asp", server_optimizer=True, codec="int8"', "asp takes no --codec; it is for"),
        ('algorithm="asp", server_optimizer=True, overlap=True, momentum_at="workers"',
         "--overlap sends parts that can be dropped"),
        ('algorithm="asp", server_optimizer=True, overlap=True, no_overlap=True',
         "--overlap and --no-overlap contradict each other"),
    ],
)  # fmt: skip
def test_an_option_of_other_algorithms_is_refused(options: str, text: str) -> None:
    for result in run_script(REFUSED.format(options=options), 2):
        assert text in result.stdout and result.stdout.count("\n") == 1, result


# Variables and files may be there for several jobs, and a default changes nothing.
@pytest.mark.parametrize("options", ['momentum_at="server"', "no_overlap=False"])
def test_a_default_or_a_variable_is_not_refused(options: str) -> None:
    for result in run_script(REFUSED.format(options=options), 2, SLUICE_TAU="8"):
        assert (result.returncode, result.stdout) == (0, ""), result


# Prints the algorithm of a run, and a hash of the bits that it ends with.
TRAINED = """
import hashlib, torch, sluice
from torch import nn
torch.manual_seed(1)
model, optimizer = sluice.distribute(nn.Sequential(nn.Linear(64, 512), nn.Linear(512, 10)),
    lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), {options})
torch.manual_seed(2 + sluice.rank())
for step in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 64)).square().mean().backward()
    optimizer.step()
optimizer.synchronize()
values = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print(optimizer._late.engine.job.option("algorithm"), hashlib.sha256(values).hexdigest())
"""


def test_auto_trains_as_sluice_with_one_warning() -> None:
    gone = "algorithm=auto is gone and now means algorithm=sluice"
    usual = run_script(TRAINED.format(options='algorithm="sluice"'), 3)
    auto = run_script(TRAINED.format(options='algorithm="auto", auto_steps=2'), 3,
                      SLUICE_AUTO_PLANNER_TIMEOUT="5s")  # fmt: skip
    for expected, result in zip(usual, auto, strict=True):
        assert result.returncode == expected.returncode == 0, result.stderr + expected.stderr
        assert (expected.stderr.count(gone), result.stderr.count(gone)) == (0, 1), result.stderr
        assert result.stdout == expected.stdout and result.stdout.startswith("sluice ")


# The package is read, not installed; Torch is left out, since reading it takes a minute.
TYPED = """
import torch, sluice
model, optimizer = torch.nn.Linear(4, 1), torch.optim.SGD([], lr=0.1)
sluice.distribute(model, optimizer, slice_elements=50_000, dgc="on", credit="1MiB")
sluice.distribute(model, optimizer, slice_elemnts=50_000)
sluice.distribute(model, optimizer, codec="int9")
"""


def test_mypy_finds_a_misspelt_option_and_a_wrong_value(tmp_path: Path) -> None:
    program, config = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text(TYPED)
    config.write_text(
        f"[mypy]\nmypy_path = {ROOT / 'python'}\ncache_dir = {tmp_path}\n"
        "[mypy-sluice.*]\nfollow_imports = silent\n[mypy-torch.*]\nfollow_imports = skip\n"
    )
    said, trouble, _ = mypy_api.run(["--config-file", str(config), str(program)])
    errors = re.findall(r"program\.py:(\d+): error: (.*)", said)
    assert {line for line, _ in errors} == {"5", "6"}, said + trouble
    assert errors[0][1].startswith('Unexpected keyword argument "slice_elemnts"')
