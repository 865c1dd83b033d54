"""Tests the parts of `sluice study` that need no training: the settings, the rate, and the page for
given results."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from sluice_papers.study import (
    algorithms,
    charts,
    network,
    order,
    report,
    schedule,
    statistics,
    tables,
    tuning,
    words,
)
from sluice_papers.study.algorithms import Algorithm, parse
from sluice_papers.study.command import _main
from sluice_papers.study.results import Results, Row, add, read
from sluice_papers.study.settings import (
    Run,
    Settings,
    parse_budget,
    parse_counts,
    parse_jitter,
    parse_seeds,
    parse_straggler,
    parse_tune,
)
from sluice_papers.study.wanted import wanted

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
        "seeds": {4: 3, 8: 3, 16: 3},
        "epochs": 4,
        "output": Path("x"),
    }
    return Settings(**(base | other))


def test_runs_are_those_of_the_study_and_dgc() -> None:
    runs = wanted(settings(), Results([]))
    assert len(runs) == len({run.key for run in runs}) == 99
    assert runs[0].key == "bsp-n4-s1"
    with_dgc = [run for run in wanted(settings(dgc=True), Results([])) if run.dgc]
    assert [run.key for run in with_dgc if run.seed == 1] == [
        f"{name}-n16-s1-dgc" for name in ("bsp", "asp", "ssp-3", "ssp-10", "arsgd")
    ]


def test_numbers_of_workers_have_seeds_of_their_own_and_one_worker_is_alone() -> None:
    runs = wanted(settings(workers=(4, 1), seeds={4: 2, 1: 3}, algorithms=ALL[:2]), Results([]))
    assert [run.key for run in runs] == [
        "bsp-n4-s1", "asp-n4-s1", "bsp-n1-s1", "bsp-n4-s2", "asp-n4-s2", "bsp-n1-s2", "bsp-n1-s3",
    ]  # fmt: skip


def test_rates_are_tuned_before_other_runs_are_known() -> None:
    asked = settings(workers=(8, 4), seeds={8: 2, 4: 1}, tune=(8,), algorithms=ALL[:1])
    keys = [run.key for run in wanted(asked, Results([]))]
    assert keys == ["bsp-n8-s1", "bsp-n8-s1-x0.3", "bsp-n8-s1-x3"]
    scores = {1.0: 0.8, 0.3: 0.7, 3.0: 0.9}
    rows = [row("bsp", 8, 1, score, rate_factor=factor) for factor, score in scores.items()]
    assert [run.key for run in wanted(asked, Results(rows))][3:] == ["bsp-n8-s1-x10"]
    rows.append(row("bsp", 8, 1, 0.85, rate_factor=10.0))
    assert [run.key for run in wanted(asked, Results(rows))][4:] == ["bsp-n4-s1-x3", "bsp-n8-s2-x3"]
    # Where every rate has diverged, more seeds would show the same.
    diverged = [row("bsp", 8, 1, 0.1, rate_factor=tuning.factor_at(rung)) for rung in range(-7, 2)]
    assert {run.seed for run in wanted(asked, Results(diverged))} == {1}
    assert {run.workers for run in wanted(asked, Results(diverged))} == {8}


@pytest.mark.parametrize(
    ("scores", "factor", "is_tuned", "missing"),
    [
        ({}, None, False, (1.0, 0.3, 3.0)),
        ({1.0: 0.8, 0.3: 0.7, 3.0: 0.6}, 1.0, True, ()),
        ({1.0: 0.8, 0.3: 0.7, 3.0: None}, 1.0, True, ()),
        ({1.0: 0.8, 0.3: 0.9, 3.0: 0.6}, 0.3, False, (0.1,)),
        ({1.0: None, 0.3: None, 3.0: None}, None, False, (0.1,)),
        ({1.0: 0.8, 0.3: 0.8, 3.0: 0.7, 0.1: 0.5}, 0.3, True, ()),
        ({tuning.factor_at(rung): 0.1 * rung for rung in range(-1, 5)}, 100.0, False, ()),
        ({tuning.factor_at(rung): None for rung in range(-7, 2)}, None, False, ()),
    ],
)
def test_a_rate_is_tuned_if_both_neighbours_are_worse(
    scores: dict[float, float | None], factor: float | None, is_tuned: bool, missing: Any
) -> None:
    found = tuning.tune(scores)
    assert (found.factor, found.is_tuned, found.missing) == (factor, is_tuned, missing)


def test_other_numbers_of_workers_use_the_nearest_tuned_rates() -> None:
    assert [tuning.nearest(workers, (8, 24)) for workers in (1, 4, 8, 16, 24)] == [8, 8, 8, 24, 24]
    assert tuning.nearest(4, ()) is None


def test_lists_times_and_stragglers_are_read() -> None:
    assert parse_straggler("1:3x") == {1: 3.0}
    assert parse_jitter("0.25:1.05x") == (0.25, 1.05)
    assert parse_counts("4,8,4", "workers", 2) == (4, 8)
    assert parse_tune("none") == () and parse_tune("8,24") == (8, 24)
    assert parse_seeds("3", (8, 4)) == {8: 3, 4: 3}
    assert parse_seeds("3,5", (8, 4)) == {8: 3, 4: 5}
    assert [parse_budget(text) for text in ("90s", "1.5min", "2h")] == [90, 90, 7200]
    for wrong in (lambda: parse_straggler("1:0.5x"), lambda: parse_straggler("x"),
                  lambda: parse_jitter("2:3x"), lambda: parse_jitter("0.1:0.5x"),
                  lambda: parse_counts("1", "workers", 2),
                  lambda: parse_counts("a", "workers", 2),
                  lambda: parse_seeds("0", (4,)), lambda: parse_seeds("1,2,3", (4, 8)),
                  lambda: parse_budget("45")):  # fmt: skip
        with pytest.raises(ValueError, match=r"^[^\n]{20,}$"):
            wrong()


@pytest.mark.parametrize("name", network.NAMES)
def test_accuracy_is_that_of_the_parameters_given(name: str) -> None:
    pixels = torch.randn(2, 1, 28, 28)
    model = network.make(name, 3)
    labels = model(pixels).argmax(1)
    from sluice_papers.study.data import Data

    right = Data(pixels, labels, pixels, labels)
    assert network.accuracy(name, network.flat(model), right) == 1.0
    assert network.accuracy(name, torch.full((network.size(name),), float("nan")), right) == 0.0


def test_the_perceptron_has_about_a_million_parameters() -> None:
    assert network.size("mlp") == pytest.approx(1e6, rel=0.01)


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
        "of_linear": 0.9, "compute_s": 0.01, "blocked_s": 0.003, "updates_per_parameter": None,
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


def test_the_order_is_judged_by_single_algorithms() -> None:
    results = Results(as_in_the_paper(3))
    judged = {
        (verdict.better.text, verdict.worse.text): verdict.word
        for verdict in order.judge(results, 4)
    }
    assert len(judged) == 18
    assert judged["bsp", "asp"] == judged["asp", "ssp:10"] == "confirmed"
    # Both have the same accuracy with every seed.
    assert judged["ssp:3", "ssp:10"] == judged["easgd:4", "easgd:8"] == "not separable"
    assert "confirmed" in words.order(results) and "refuted" not in words.order(results)

    upside_down = Results(
        row(one.text, 4, seed, 1 - LEVELS[one.name] + 0.2 + 0.001 * seed)
        for one in ALL
        for seed in (1, 2, 3)
    )
    words_of = {(v.better.text, v.worse.text): v.word for v in order.judge(upside_down, 4)}
    assert words_of["bsp", "asp"] == words_of["ssp:10", "easgd:8"] == "refuted"
    assert "BSP and ASP with 4 workers" in words.order(upside_down)

    assert order.judge(Results(as_in_the_paper(1)), 4)[0].word == "as in the paper, one seed"


def test_seeds_are_paired() -> None:
    """Seeds differ by much more than the two algorithms do."""
    results = Results(
        row(name, 4, seed, level + 0.1 * seed)
        for name, level in (("bsp", 0.501), ("asp", 0.5))
        for seed in (1, 2, 3)
    )
    (verdict,) = order.judge(results, 4)
    assert verdict.word == "confirmed" and verdict.difference.kind == "paired"


def test_margins_are_students_and_welchs() -> None:
    paired = statistics.difference({1: 1.0, 2: 2.0, 3: 4.0}, {1: 0.0, 2: 0.0, 3: 1.0})
    assert paired is not None and paired.kind == "paired"
    assert paired.value == pytest.approx(2.0) and paired.margin == pytest.approx(4.30 / 3**0.5)
    welch = statistics.difference({1: 1.0, 2: 3.0}, {3: 0.0, 4: 2.0})
    assert welch is not None and welch.kind == "Welch" and welch.value == pytest.approx(1.0)
    assert welch.margin == pytest.approx(4.30 * 2**0.5)  # two degrees of freedom
    assert statistics.difference({1: 1.0}, {}) is None
    alone = statistics.difference({1: 1.0}, {1: 0.5})
    assert alone is not None and alone.margin is None and not alone.is_separable


def test_runs_that_end_at_chance_are_diverged_and_in_no_verdict() -> None:
    rows = [row("bsp", 4, seed, 0.9) for seed in (1, 2, 3)]
    rows += [row("asp", 4, seed, 0.1 if seed == 2 else 0.8) for seed in (1, 2, 3)]
    rows += [row("ssp:3", 4, 1, 0.1)]
    results = Results(rows)
    (verdict,) = order.judge(results, 4)
    assert verdict.difference.value == pytest.approx(0.1)
    cells = tables.table_3(results).rows[0]
    assert cells == ["4, ours", "90.00 ± 0.00", "80.00 ± 0.00 (1 diverged)", "diverged"]
    assert "ASP with 4 workers; SSP s = 3 with 4 workers" in words.order(results)


def test_it_is_said_whether_bsp_depends_on_the_number_of_workers() -> None:
    def results(loss: float) -> Results:
        return Results(
            row("bsp", workers, seed, 0.9 + 0.001 * seed * (workers == 4) - loss * (workers == 16))
            for workers in (4, 16)
            for seed in (1, 2, 3)
        )

    assert "long enough" in words.order(Results([*results(0.0).rows, row("asp", 4, 1, 0.8)]))
    assert "too short" in words.order(Results([*results(0.1).rows, row("asp", 4, 1, 0.8)]))


def test_tables_show_ours_beside_theirs() -> None:
    with_dgc = row("bsp", 8, 1, 0.89, dgc=True, sent_bytes_per_step=10, updates_per_parameter=20.6)
    results = Results([*as_in_the_paper(2), with_dgc])
    by_title = {table.title.split(":")[0]: table for table in tables.all_tables(results)}
    assert by_title["Table II"].rows[0] == [
        "BSP", "x 1", "90.15 ± 0.07", "+0.00 ± 0.00", "75.11", "0.00",
    ]  # fmt: skip
    assert by_title["Table II"].rows[-2][:4] == [
        "GoSGD p = 0.01", "x 1", "80.15 ± 0.07", "+10.00 ± 0.00",
    ]  # fmt: skip
    assert [cells[0] for cells in by_title["Table III"].rows] == [
        "4, ours",
        "4, theirs",
        "8, ours",
        "8, theirs",
    ]
    assert by_title["Table IV"].rows == [
        ["BSP", "90.15 ± 0.07", "89.00", "-1.10", "1.0 %", "21 times", "75.11", "75.05"]
    ]
    assert "Tuned rates" not in " ".join(by_title)


def test_tuned_rates_are_printed_and_used() -> None:
    scores = {1.0: 0.8, 0.3: 0.85, 0.1: 0.7, 3.0: 0.05}
    rows = [row("easgd:4", 8, 1, score, rate_factor=factor) for factor, score in scores.items()]
    results = Results(
        [*rows, row("easgd:4", 4, 1, 0.5), row("easgd:4", 4, 1, 0.6, rate_factor=0.3)]
    )
    assert results.tuned_at == [4, 8]
    assert tables.rates(results, 8).rows == [
        ["EASGD τ = 4", "70.00", "85.00", "80.00", "diverged", "x 0.3"]
    ]
    easgd = Algorithm("easgd", 4)
    assert [one["accuracy"] for one in results.of(easgd, 8)] == [0.85]
    assert [one["accuracy"] for one in results.of(easgd, 16)] == []
    assert results.tuning(easgd, 4).text == "x 0.3, not tuned yet"


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


def test_runs_are_kept_in_one_file_and_can_be_forgotten(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    for name in ("bsp", "asp", "bsp"):
        add(tmp_path, row(name, 4, 1, 0.8))
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".gz"] == ["runs.json.gz"]
    assert [one["algorithm"] for one in read(tmp_path)] == ["asp", "bsp"]
    assert _main(["-o", str(tmp_path), "--report", "--again", "asp-*"]) == 0
    assert [one["algorithm"] for one in read(tmp_path)] == ["bsp"]
    with pytest.raises(ValueError, match=r"no run in .* is called 'asp"):
        _main(["-o", str(tmp_path), "--report", "--again", "asp-*"])


@pytest.mark.parametrize(
    "flags",
    [
        "--workers 0",
        "--seeds 0",
        "--tune 1",
        "--budget 3",
        "--rate 1gbit",
        "--algorithms p3",
        "--pace 0",
        "--straggler 1",
    ],
)
def test_wrong_flags_are_refused_before_anything_starts(flags: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{20,}$"):
        _main(["-o", str(tmp_path), *flags.split()])


def test_pictures_without_torch_have_the_accuracies_of_the_kept_study() -> None:
    file = Path(__file__).resolve().parents[2] / "papers/figures/study_runs.py"
    spec = importlib.util.spec_from_file_location("study_runs", file)
    assert spec is not None and spec.loader is not None
    study_runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study_runs)
    runs = study_runs.kept()
    drawn = study_runs.accuracies(runs)
    results = Results(runs)
    assert {parse(name) for name in drawn} == set(results.algorithms)
    for name, by_workers in drawn.items():
        for workers, accuracies in by_workers.items():
            spread = results.spread(parse(name), workers)
            assert spread is not None and sorted(spread.values) == sorted(accuracies)


def test_keys_tell_runs_apart() -> None:
    assert Run(Algorithm("gosgd", 0.01), 16, 2, 0.3).key == "gosgd-0.01-n16-s2-x0.3"
