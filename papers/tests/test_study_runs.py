"""Tests a short `sluice study`: all algorithms, real processes, a page, and that it goes on where
it was ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sluice_papers.study import algorithms, results, time_parts
from sluice_papers.study.flags import OUT_OF_TIME


def study(folder: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluice_papers.study", "-o", str(folder), *flags]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **variables}
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    return results.read(folder)


def data() -> list[str]:
    """Returns flags for real images if the build knows their folder."""
    place = os.environ.get("STUDY_DATA", "")
    if place and (Path(place) / "fashion-mnist").is_dir():
        return ["--data", "fashion-mnist", "--data-dir", place, "--samples", "4096"]
    return ["--data", "synthetic", "--samples", "2048"]


def test_all_algorithms_learn_and_the_page_compares_them(tmp_path: Path) -> None:
    flags = [*data(), "--workers", "4", "--seeds", "1", "--epochs", "2", "--batch", "16",
             "--learning-rate", "0.05"]  # fmt: skip
    first = study(tmp_path, *flags)
    assert first.returncode == 0, first.stderr
    found = rows(tmp_path)
    assert {row["algorithm"] for row in found} == {
        one.text for one in algorithms.parse_list(algorithms.DEFAULT)
    }
    for row in found:
        assert row["failed"] is None and row["accuracy"] > 0.2, row
        assert row["compute_s"] >= row["pace_s"] * 0.99, row
        assert sum(row["steps_by_worker"]) + 4 == 2 * (128 if "synthetic" in flags else 256), row
    by_name = {row["algorithm"]: row for row in found}
    # The two algorithms compute the same mean gradients: only the order of sums differs.
    assert by_name["bsp"]["accuracy"] == pytest.approx(by_name["arsgd"]["accuracy"], abs=0.03)
    for name in ("bsp", "asp", "easgd:4", "adpsgd"):
        sent = by_name[name]["sent_bytes_per_step"] / by_name[name]["model_bytes"]
        assert sent == pytest.approx(algorithms.parse(name).models_sent(4), rel=0.25), name
    page = (tmp_path / "study.html").read_text()
    assert page.count("<svg") == 5 and "Table III" in page
    assert "11/11" in first.stderr and not list((tmp_path / "logs").iterdir())

    before = (tmp_path / results.RUNS).read_bytes()
    again = study(tmp_path, *flags, "--json")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / results.RUNS).read_bytes() == before
    assert len(json.loads(again.stdout)) == 11


def test_a_straggler_does_less_where_nobody_waits_for_it(tmp_path: Path) -> None:
    flags = ["--data", "synthetic", "--samples", "1024", "--workers", "2", "--seeds", "1",
             "--epochs", "1", "--batch", "16", "--pace", "15",
             "--straggler", "1:3x", "--algorithms", "asp,ssp:1,bsp"]  # fmt: skip
    ran = study(tmp_path, *flags)
    assert ran.returncode == 0, ran.stderr
    steps = {row["algorithm"]: row["steps_by_worker"] for row in rows(tmp_path)}
    assert steps["bsp"][0] == steps["bsp"][1]
    assert abs(steps["ssp:1"][0] - steps["ssp:1"][1]) <= 3
    assert steps["asp"][0] > 1.8 * steps["asp"][1]


def test_a_steps_time_is_split_by_traces_and_one_worker_is_the_baseline(tmp_path: Path) -> None:
    flags = ["--data", "synthetic", "--samples", "1200", "--workers", "3,1", "--seeds", "1",
             "--epochs", "1", "--batch", "16", "--algorithms", "bsp,asp,ssp:2", "--pace", "60",
             "--straggler", "1:2x", "--traces"]  # fmt: skip
    ran = study(tmp_path, *flags)
    assert ran.returncode == 0, ran.stderr
    found = {(row["algorithm"], row["workers"]): row for row in rows(tmp_path)}
    alone = found["bsp", 1]
    assert alone["steps_by_worker"] == [74] and alone["sent_bytes_per_step"] == 0, alone
    parts = {name: found[name, 3]["parts"] for name in ("bsp", "asp", "ssp:2")}
    for name, one in parts.items():
        assert one["steps"] > 10 and one["computing"] > 0.059, (name, one)
        assert one["unexplained"] < 0.1 * sum(one[part] for part in time_parts.PARTS), (name, one)
    # Two of three workers wait half of the straggler's step, unless nobody waits.
    assert parts["bsp"]["waiting"] > 0.01 and parts["ssp:2"]["waiting"] > 0.005, parts
    assert parts["asp"]["waiting"] == 0


def test_a_budget_ends_between_two_runs(tmp_path: Path) -> None:
    flags = ["--data", "synthetic", "--samples", "512", "--workers", "2", "--seeds", "2",
             "--epochs", "1", "--algorithms", "bsp,asp", "--pace", "5"]  # fmt: skip
    ran = study(tmp_path, *flags, "--budget", "0s")
    assert ran.returncode == OUT_OF_TIME and "the same command goes on" in ran.stderr, ran.stderr
    assert rows(tmp_path) == []
    ran = study(tmp_path, *flags, "--budget", "1h")
    assert ran.returncode == 0 and len(rows(tmp_path)) == 4, ran.stderr


def test_rates_are_tuned_until_neighbours_are_worse(tmp_path: Path) -> None:
    flags = ["--data", "synthetic", "--samples", "512", "--workers", "2", "--seeds", "2",
             "--epochs", "1", "--batch", "16", "--algorithms", "bsp", "--pace", "3",
             "--tune", "2", "--learning-rate", "0.05"]  # fmt: skip
    ran = study(tmp_path, *flags)
    assert ran.returncode == 0, ran.stderr
    found = results.Results(rows(tmp_path))
    tuned = found.tuning(algorithms.parse("bsp"), 2)
    assert tuned.missing == () and tuned.factor is not None
    assert [row["seed"] for row in found.of(algorithms.parse("bsp"), 2)] == [1, 2]


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    flags = ["--data", "synthetic", "--samples", "1024", "--workers", "2", "--seeds", "1",
             "--epochs", "1",
             "--algorithms", "bsp,gosgd:1", "--pace", "5"]  # fmt: skip
    ran = study(tmp_path, *flags, SLUICE_TOPOLOGY="knot")
    assert ran.returncode == 1, ran.stderr
    reasons = [row["failed"] for row in rows(tmp_path)]
    assert len(reasons) == 2 and all(
        "SLUICE_TOPOLOGY" in reason and "\n" not in reason for reason in reasons
    ), reasons
    assert "Runs that failed" in (tmp_path / "study.html").read_text()


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    ran = study(tmp_path, "--data-dir", str(tmp_path / "nowhere"))
    assert ran.returncode == 1
    assert ran.stderr.startswith("sluice study: there is no ") and ran.stderr.count("\n") == 1, (
        ran.stderr
    )
