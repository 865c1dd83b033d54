"""Tests algorithm="auto": it follows the network with the bits of `sluice`, keeps its plan whatever
the planner does, and refuses settings that cannot change in one line."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import run_script
from sluice._planner import Planner, PlannerError, read_answer

TESTS = Path(__file__).parents[1]
RULE = str(TESTS / "rule_planner.py")
RANK = f"exec(compile(open({str(TESTS / 'auto_rank.py')!r}).read(), 'auto_rank.py', 'exec'))"
CHANGE = re.compile(r"auto: after round \d+ '\S+' changes from (\w+).* to (\w+), .*with which")

Ended = list[subprocess.CompletedProcess[str]]


def train(world: int, text: str = RANK, **variables: str) -> Ended:
    usual = {"AUTO_ALGORITHM": "auto", "SLUICE_AUTO_STEPS": "8", "SLUICE_AUTO_PLANNER": RULE}
    return run_script(text, world, **{**usual, "SLUICE_LOG": "warn,pytorch=info", **variables})


def output(results: Ended) -> str:
    return "\n".join(f"{one.returncode}: {one.stdout}{one.stderr}" for one in results)


def endings(results: Ended) -> set[str]:
    """Returns each rank's number of steps and digests; the losses are the rank's own."""
    assert all(one.returncode == 0 for one in results), output(results)
    return {re.search(r"ended (.*)", one.stdout)[1] for one in results}  # type: ignore[index]


def test_follows_the_network_with_the_bits_of_sluice() -> None:
    changing = train(3, AUTO_PACE="1", AUTO_CHECK="1")
    ended = endings(changing)
    changes = CHANGE.findall(changing[0].stderr)
    assert changes == [("sluice", "p3"), ("p3", "sluice")], output(changing)
    assert all(not CHANGE.search(one.stderr) for one in changing[1:])
    assert all("\nexact" in one.stdout for one in changing), output(changing)
    report = changing[0].stdout
    assert re.search(r"plan by auto: sluice.* ms an iteration predicted, .* ms measured", report)
    steps = next(iter(ended)).split()[0]
    assert endings(train(3, AUTO_ALGORITHM="sluice", AUTO_STEPS=steps)) == ended


@pytest.mark.parametrize(
    ("rule", "timeout", "line"),
    [
        ("fail", "60s", "it ended with code 1: rule_planner: this network"),
        ("hang", "200ms", "it has not answered in 0.2 s"),
    ],
)
def test_a_planner_that_gives_no_plan_changes_nothing(rule: str, timeout: str, line: str) -> None:
    results = train(2, AUTO_UNTIL="complaint", RULE=rule, SLUICE_AUTO_PLANNER_TIMEOUT=timeout)
    endings(results)
    assert results[0].stderr.count("stays with sluice, since the planner gave no plan") == 1
    assert line in results[0].stderr, output(results)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "not the JSON"),
        ("[]", "not the JSON"),
        ('{"candidates": [{}]}', "not the JSON"),
        ('{"candidates": [{"class": "same bits", "algorithm": "p3"}]}', "not the JSON"),
        (
            '{"candidates": [{"class": "same bits", "algorithm": "p3", "iteration_s": -1}]}',
            "not the JSON",
        ),
        (
            '{"candidates": [{"class": "same bits", "algorithm": "p3", "iteration_s": 1, '
            '"settings": {"slice-elements": [1]}}]}',
            "not the JSON",
        ),
        ('{"candidates": [{"class": "delayed"}]}', "no plan of the class"),
    ],
)
def test_an_answer_that_is_none_is_named(answer: str, why: str) -> None:
    with pytest.raises(PlannerError, match=why):
        read_answer(answer.encode())


def wait_for(planner: Planner) -> None:
    while planner.take() is None:
        time.sleep(0.01)


def test_the_planner_ends_when_it_is_told_to() -> None:
    planner = Planner(sys.executable, 60)
    planner.start({}, {}, 2)  # Python takes "plan" for a script that is not there
    with pytest.raises(PlannerError, match="code 2"):
        wait_for(planner)
    with pytest.raises(PlannerError, match="cannot be run"):
        Planner("/nowhere/sluice", 60).start({}, {}, 2)
    with pytest.raises(PlannerError, match="no program"):
        Planner(None, 60).start({}, {}, 2)
    planner = Planner("/usr/bin/yes", 60)  # never ends
    planner.start({}, {}, 2)
    planner.end()
    assert not planner.is_running


PATCHED = """
import os, sluice._auto
use = sluice._auto.Auto._settings
def other(self, *args):
    if os.environ["RANK"] == "1":
        {}
    return use(self, *args)
sluice._auto.Auto._settings = other
"""


def test_a_rank_that_refuses_a_plan_keeps_all_from_it() -> None:
    text = PATCHED.format('return {"slice-elements": "-1"}') + RANK
    results = train(2, text, AUTO_UNTIL="complaint", RULE="slow")
    endings(results)
    assert "a rank refuses the plan p3" in results[0].stderr, output(results)


def test_ranks_with_different_plans_end_with_the_difference() -> None:
    text = PATCHED.format('return {"slice-elements": "7777"}') + RANK
    results = train(2, text, AUTO_UNTIL="complaint", RULE="slow")
    for one in results:
        assert one.returncode != 0
        assert "the ranks do not train the same thing" in one.stderr, output(results)


def test_a_rank_that_ends_first_is_named() -> None:
    text = "import os; os.environ['AUTO_STEPS'] = str(12 if os.environ['RANK'] == '0' else 40)"
    first, second = train(2, f"{text}\n{RANK}")
    assert first.returncode == 0 and second.returncode != 0, output([first, second])
    assert "rank 0 has ended its training" in second.stderr, second.stderr


REFUSED = """
import torch, sluice
from torch import nn
model = nn.Linear(4, 4)
options = {}
try:
    sluice.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), algorithm="auto",
        **options)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ('{"server_optimizer": True}', "server_optimizer=True"),
        ('{"dgc": "on"}', "dgc"),
        ('{"codec": "fp16"}', "codec=fp16"),
        ('{"auto_steps": 0}', "at least 1"),
    ],
)
def test_settings_that_cannot_change_are_refused(options: str, what: str) -> None:
    (result,) = run_script(REFUSED.format(options), 1)
    assert what in result.stdout and len(result.stdout.splitlines()) == 1, output([result])


DIFFERENT = """
import os, time, torch, sluice
from torch import nn
model = nn.Linear(4, 4)
try:
    sluice.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), algorithm="auto",
        server_optimizer=os.environ["RANK"] == "1")
except ValueError as error:
    print(error, flush=True)
    time.sleep(1)  # no rank is told by the end of another one
"""


def test_all_ranks_refuse_what_one_rank_has() -> None:
    for result in run_script(DIFFERENT, 2, timeout=20):
        assert "the ranks do not train the same thing: on rank 1 server_optim" in result.stdout
