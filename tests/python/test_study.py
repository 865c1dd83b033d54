"""Tests the parts of `sluice study` that need no training: the settings, the rate, and the page for
given results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from sluice.study import algorithms, charts, network, order, report, schedule, tables, words
from sluice.study.algorithms import Algorithm, parse
from sluice.study.command import _main
from sluice.study.results import Results, Row
from sluice.study.runner import blocked_and_communicated
from sluice.study.settings import Run, Settings, parse_counts, parse_factors, parse_straggler

ALL = algorithms.parse_list(algorithms.DEFAULT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bsp", Algorithm("bsp")),
        ("sluice", Algorithm("bsp")),
        ("allreduce", Algorithm("arsgd")),
        ("wfbp", Algorithm("wfbp")),
        ("ssp:3", Algorithm("ssp", 3)),
        ("gosgd:.01", Algorithm("gosgd", 0.01)),
    ],
)
def test_algorithms_are_read(text: str, expected: Algorithm) -> None:
    assert parse(text) == expected
    assert parse(expected.text) == expected


@pytest.mark.parametrize(
    "text",
    ["p3", "", "ssp", "ssp:x", "ssp:-1", "ssp:1.5", "easgd:0", "gosgd:0", "gosgd:2", "bsp:3"],
)
def test_what_is_no_algorithm_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{20,}$"):
        parse(text)


def test_formulae_of_traffic_are_the_papers() -> None:
    assert {one.text: round(one.models_sent(4), 4) for one in ALL} == {
        "bsp": 1.5, "asp": 1.5, "ssp:3": 0.9375, "ssp:10": 0.8182, "easgd:4": 0.375,
        "easgd:8": 0.1875, "arsgd": 1.5,
        "gosgd:1": 1.0, "gosgd:0.1": 0.1, "gosgd:0.01": 0.01, "adpsgd": 1.0,
    }  # fmt: skip


def test_the_rate_is_scaled_warmed_up_and_decays() -> None:
    bsp = schedule.make(Algorithm("bsp"), 0.05, 32, 8)
    assert bsp.peak == pytest.approx(0.1)
    assert bsp.rate(0) == pytest.approx(0.1 / 8)
    assert bsp.rate(2.5 / 90) == pytest.approx((0.1 + 0.1 / 8) / 2)
    assert [bsp.rate(at) for at in (5 / 90, 0.3, 0.34, 0.67, 0.89)] == pytest.approx(
        [0.1, 0.1, 0.01, 1e-3, 1e-4]
    )
    # N gradients, each applied in full, move a model as far as their mean does at N times the rate.
    assert schedule.make(Algorithm("asp"), 0.05, 32, 8).peak * 8 == pytest.approx(bsp.peak)
    assert schedule.make(Algorithm("easgd", 4), 0.05, 32, 8, factor=3).peak == pytest.approx(0.3)


def settings(**other: Any) -> Settings:
    base: dict[str, Any] = {
        "algorithms": ALL,
        "workers": (4, 8, 16),
        "seeds": 3,
        "epochs": 4,
        "output": Path("x"),
    }
    return Settings(**(base | other))


def test_runs_are_those_of_the_study_its_grid_and_dgc() -> None:
    assert len(settings().runs()) == 99
    with_grid = settings(grid=(0.3, 1.0, 3.0)).runs()
    assert len(with_grid) == 99 + 22  # the rule's own rate is in the study already
    assert len({run.key for run in with_grid}) == len(with_grid)
    assert with_grid[0].key == "bsp-n4-s1"
    with_dgc = [run for run in settings(dgc=True, seeds=1).runs() if run.dgc]
    assert [run.key for run in with_dgc] == [
        f"{name}-n16-s1-dgc" for name in ("bsp", "asp", "ssp-3", "ssp-10", "arsgd")
    ]


def test_lists_and_stragglers_are_read() -> None:
    assert parse_straggler("1:3x") == {1: 3.0}
    assert parse_counts("4,8,4", "workers", 2) == (4, 8)
    assert parse_factors("none") == ()
    for wrong in (lambda: parse_straggler("1:0.5x"), lambda: parse_straggler("x"),
                  lambda: parse_counts("1", "workers", 2),
                  lambda: parse_counts("a", "workers", 2),
                  lambda: parse_factors("0,1")):  # fmt: skip
        with pytest.raises(ValueError, match=r"^[^\n]{20,}$"):
            wrong()


def test_who_waits_least_waits_for_the_bytes_only() -> None:
    blocked = torch.tensor([[1.0, 5.0, 0.0], [3.0, 2.0, 0.0]], dtype=torch.float64)
    steps = torch.tensor([2, 2])
    assert blocked_and_communicated(blocked, steps, True) == (2.75, 1.5)
    assert blocked_and_communicated(blocked, steps, False) == (2.75, 2.75)


def test_accuracy_is_that_of_the_parameters_given() -> None:
    pixels = torch.randn(2, 1, 28, 28)
    model = network.make(3)
    labels = model(pixels).argmax(1)
    from sluice.study.data import Data

    right = Data(pixels, labels, pixels, labels)
    assert network.accuracy(network.flat(model), right) == 1.0
    assert network.accuracy(torch.full((network.size(),), float("nan")), right) == 0.0


def row(name: str, workers: int, seed: int, accuracy: float, **other: Any) -> Row:
    epochs = [
        {"epoch": e, "seconds": 2.0 * e, "accuracy": accuracy - 0.1 + 0.05 * e} for e in (1, 2)
    ]
    usual = {
        "algorithm": name, "workers": workers, "seed": seed, "rate_factor": 1.0, "dgc": False,
        "failed": None, "epochs": epochs,
        "accuracy": accuracy,
        "worst_accuracy": accuracy - 0.2 if parse(name).has_own_models else None,
        "samples_per_s": 1000.0,
        "of_linear": 0.9, "compute_s": 0.01, "wait_s": 0.001, "communication_s": 0.002,
        "late_steps": 0.01, "sent_bytes_per_step": 1000, "model_bytes": 4000, "seconds": 4.0,
    }  # fmt: skip
    return usual | other


STUDY = {"settings": settings().fixed(), "pace_s": {"4": 0.01}}
LEVELS = {
    "bsp": 0.9,
    "arsgd": 0.9,
    "asp": 0.88,
    "adpsgd": 0.88,
    "ssp": 0.86,
    "easgd": 0.8,
    "gosgd": 0.8,
}


def as_in_the_paper(seeds: int) -> list[Row]:
    return [
        row(one.text, workers, seed, LEVELS[one.name] + 0.001 * seed)
        for one in ALL
        for workers in (4, 8)
        for seed in range(1, seeds + 1)
    ]


def test_the_order_is_judged_with_its_spread() -> None:
    results = Results(as_in_the_paper(3))
    assert [verdict.word for verdict in order.judge(results, 4)] == ["confirmed"] * 3
    assert "confirmed" in words.order(results) and "refuted" not in words.order(results)

    upside_down = Results(
        row(one.text, 4, seed, 1 - LEVELS[one.name] + 0.001 * seed)
        for one in ALL
        for seed in (1, 2, 3)
    )
    assert [verdict.word for verdict in order.judge(upside_down, 4)] == ["refuted"] * 3

    noisy = Results(
        row(name, 4, seed, 0.8 + 0.1 * seed) for name in ("bsp", "asp") for seed in (1, 2, 3)
    )
    assert [verdict.word for verdict in order.judge(noisy, 4)] == ["not separable"]

    assert order.judge(Results(as_in_the_paper(1)), 4)[0].margin is None
    assert "more than one seed" in words.order(Results(as_in_the_paper(1)))


def test_tables_show_ours_beside_theirs() -> None:
    results = Results(
        [*as_in_the_paper(2), row("bsp", 8, 1, 0.89, dgc=True, sent_bytes_per_step=10)]
    )
    by_title = {table.title.split(":")[0]: table for table in tables.all_tables(results)}
    assert by_title["Table II"].rows[0] == ["BSP", "90.15 ± 0.07", "0.00", "75.11", "0.00"]
    assert ["GoSGD p = 0.01", "80.15 ± 0.07", "10.00", "39.38", "35.73"] in by_title[
        "Table II"
    ].rows
    assert [cells[0] for cells in by_title["Table III"].rows] == [
        "4, ours",
        "4, theirs",
        "8, ours",
        "8, theirs",
    ]
    assert by_title["Table IV"].rows == [
        ["BSP", "90.15 ± 0.07", "89.00", "1.0 %", "75.11", "75.05"]
    ]
    assert "Tuned rates" not in " ".join(by_title)


def test_the_best_rate_of_each_is_shown() -> None:
    results = Results(
        [
            row("easgd:4", 8, 1, 0.8),
            row("easgd:4", 8, 1, 0.85, rate_factor=0.3),
            row("bsp", 8, 1, 0.9),
        ]
    )
    table = tables.rates(results)
    assert table.rows == [
        ["BSP", "-", "90.00", "x 1: 90.00"],
        ["EASGD τ = 4", "85.00", "80.00", "x 0.3: 85.00"],
    ]
    assert "EASGD τ = 4 5.0 at 0.3 times the rate" in words.advice(results)


def test_the_order_is_judged_at_tuned_rates_too() -> None:
    rows = [row(name, 8, 1, score, rate_factor=factor)
            for name, scores in {"bsp": (0.8, 0.7), "ssp:3": (0.6, 0.75)}.items()
            for factor, score in zip((1.0, 0.3), scores, strict=True)]  # fmt: skip
    assert order.at_tuned_rates(Results(rows), 8) == [("bsp, arsgd", 0.8), ("ssp", 0.75)]
    assert "that is the paper's order" in words.order(Results(rows))


PARTIAL: dict[str, list[Row]] = {
    "nothing": [],
    "only failures": [
        {
            "algorithm": "asp",
            "workers": 4,
            "seed": 1,
            "rate_factor": 1.0,
            "dgc": True,
            "failed": "rank 1: <no>",
        }
    ],
    "one run": [row("gosgd:0.1", 4, 1, 0.5)],
    "two without bsp": [row("ssp:3", 4, 1, 0.5), row("adpsgd", 8, 1, 0.6)],
    "all of it": as_in_the_paper(3),
    "with dgc": [
        *as_in_the_paper(2),
        row("asp", 8, 1, 0.8, dgc=True),
        row("asp", 8, 1, 0.8, rate_factor=3.0),
    ],
}


@pytest.mark.parametrize("name", PARTIAL)
def test_the_page_is_whole_whatever_there_is(name: str) -> None:
    results = Results(PARTIAL[name])
    page = report.page(results, STUDY, missing=3)
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert bool(pictures) == bool(results.rows)
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert "nan" not in page.lower().replace("finance", "")
    # The page loads nothing from other hosts.
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert ("&lt;no&gt;" in page) == (name == "only failures")
    assert report.markdown(results, STUDY, 0).startswith("# ")


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [0.871, 0.8712], [5.0], [-3.0, -1.0], [0.0, 12345.0]]
)
def test_ticks_enclose_what_is_drawn(values: list[float]) -> None:
    axis = charts.axis_for(values)
    assert axis.ticks[0] == axis.low <= min(values) <= max(values) <= axis.high + 1e-9
    assert 2 <= len(axis.ticks) <= 8


def test_another_study_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    with pytest.raises(ValueError, match="has a study with epochs 4, not 2"):
        _main(["-o", str(tmp_path), "--epochs", "2"])


@pytest.mark.parametrize(
    "flags",
    [
        "--workers 1",
        "--seeds 0",
        "--rate 1gbit",
        "--algorithms p3",
        "--pace 0",
        "--grid x",
        "--straggler 1",
    ],
)
def test_wrong_flags_are_refused_before_anything_starts(flags: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{20,}$"):
        _main(["-o", str(tmp_path), *flags.split()])


def test_keys_tell_runs_apart() -> None:
    assert Run(Algorithm("gosgd", 0.01), 16, 2, 0.3).key == "gosgd-0.01-n16-s2-x0.3"
