"""Tests the parts of `sluice reproduce` that need no program: the manifest, the event model,
verdicts, result files and the report. reproduce_test.py runs the tier of formulas."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from sluice_papers.reproduce import (
    check,
    ddp_link,
    inputs,
    manifest,
    pictures,
    pipe_training,
    report,
    trainings,
    verdicts,
)
from sluice_papers.reproduce.command import _main
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pipesgd import MLP
from sluice_papers.reproduce.replays import Of, idle_share, over, speedup
from sluice_papers.reproduce.rows import Claim, Measured, Part, Row, Tier
from sluice_papers.reproduce.runner import PartError, Runner
from sluice_papers.reproduce.timeline import Job, ends_of, play
from sluice_papers.reproduce.tools import Program
from sluice_papers.reproduce.trainings import Trained
from sluice_papers.reproduce.verdicts import Verdict, interval, judge
from sluice_papers.study.flags import parser as study_parser
from sluice_papers.study.flags import settings_from

PART = Part("example", Tier.LAB, "sluice bench replay --json {out}")


def replayed(**runs: list[float]) -> list[dict[str, Any]]:
    """Returns figures as `sluice bench` writes them."""
    return [
        {
            "profile": "resnet50", "algorithm": name, "workers": 4, "ratio": 1, "compute_s": 1.0,
            "iteration_s": sorted(values)[len(values) // 2], "runs_s": values,
            "spread_s": max(values) - min(values), "slice_elements": 50_000,
        }
        for name, values in runs.items()
    ]  # fmt: skip


def kept_with(folder: Path, **parts: Any) -> Kept:
    """Returns results of these parts of the manifest, with - for _ in their names."""
    kept = Kept(folder)
    by_name = {part.name: part for row in manifest.ROWS for part in row.parts}
    for name, data in parts.items():
        kept.write(by_name[name.replace("_", "-")], 1.0, "sluice 0", data=data)
    return kept


# ---- the manifest --------------------------------------------------------------------------------


def test_the_manifest_has_a_row_for_each_figure_and_table() -> None:
    counts = {paper: len(rows) for paper, rows in report.ROWS_OF.items()}
    assert counts == {"p3": 15, "mgwfbp": 12, "pipesgd": 8, "analysis": 8}
    assert len({row.key for row in manifest.ROWS}) == 43


@pytest.mark.parametrize("row", manifest.ROWS, ids=lambda row: row.key)
def test_a_row_has_a_result_to_come_or_a_reason(row: Row) -> None:
    assert row.shows
    if row.reason:
        assert not row.parts and not row.claims
        return
    assert row.parts and row.claims and row.substitute and row.honest
    assert any(claim.inequality for claim in row.claims)
    for claim in row.claims:
        assert claim.printed or not claim.inequality or claim.is_ours, claim.text
    for part in row.parts:
        assert bool(part.command) != (part.compute is not None), part.name


def test_parts_of_one_name_are_one_part() -> None:
    by_name: dict[str, Part] = {}
    for part in (part for row in manifest.ROWS for part in row.parts):
        assert by_name.setdefault(part.name, part) == part


def test_commands_of_studies_can_be_read() -> None:
    places = {"folder": "x", "data": "y", "out": "z"}
    found = [part for row in manifest.ROWS for part in row.parts if "sluice study" in part.command]
    assert len(found) >= 4
    for part in found:
        words = part.command.format(**places).split()
        settings_from(study_parser().parse_args(words[2:]))


def test_programs_of_the_package_are_there() -> None:
    for part in (part for row in manifest.ROWS for part in row.parts):
        words = part.command.split()
        if words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]) is not None, part.command


def test_prose_has_no_numbers_of_results() -> None:
    for row in manifest.ROWS:
        assert "%" not in row.substitute + row.honest, row.key


# ---- the event model -----------------------------------------------------------------------------


def test_stations_serve_in_order_of_arrival() -> None:
    jobs = [Job("a", 0, (2, 1)), Job("b", 1, (1, 1)), Job("c", 9, (1, 1))]
    assert ends_of(play(jobs), 1) == {"a": 3, "b": 4, "c": 11}


def test_an_urgent_job_interrupts_and_nothing_is_lost() -> None:
    jobs = [Job("late", 0, (4,), priority=2), Job("urgent", 1, (2,), priority=1)]
    pieces = play(jobs, by_priority=True)
    assert [(one.name, one.begin, one.end) for one in pieces] == [
        ("late", 0, 1), ("urgent", 1, 3), ("late", 3, 6),
    ]  # fmt: skip


@pytest.mark.parametrize("by_priority", [False, True])
def test_one_station_is_busy_while_anything_waits(by_priority: bool) -> None:
    chance = random.Random(1)
    for _ in range(200):
        jobs = [Job(str(n), chance.randrange(10), (chance.randrange(1, 5),), n) for n in range(6)]
        now = 0.0
        for job in sorted(jobs, key=lambda one: one.ready):
            now = max(now, job.ready) + job.times[0]
        pieces = play(jobs, by_priority=by_priority)
        assert max(piece.end for piece in pieces) == pytest.approx(now)
        spent = sum(piece.end - piece.begin for piece in pieces)
        assert spent == pytest.approx(sum(job.times[0] for job in jobs))


# ---- verdicts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (Measured(1.3, 0.1), Verdict.AS),
        (Measured(1.05, 0.1), Verdict.NOT_SEPARABLE),
        (Measured(0.8, 0.1), Verdict.OTHERWISE),
        (Measured(9.0, math.inf), Verdict.NOT_SEPARABLE),
        (Measured(1.0), Verdict.OTHERWISE),
        (None, Verdict.MISSING),
    ],
)
def test_a_claim_is_judged_with_its_margin(
    tmp_path: Path, measured: Measured | None, verdict: Verdict
) -> None:
    assert judge(Claim("x", lambda _: measured, least=1), Kept(tmp_path)).verdict is verdict


def test_an_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.value == 2 and found.margin == pytest.approx(4.30 / math.sqrt(3))


def test_a_quotient_of_nothing_is_exact_and_one_by_nothing_is_none(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    nothing, some = Measured(0.0, 0.0), Measured(2.0, 0.2)
    assert over(lambda _: nothing, lambda _: some)(kept) == nothing
    assert over(lambda _: some, lambda _: nothing)(kept) is None
    quotient = over(lambda _: some, lambda _: Measured(4.0, 0.4))(kept)
    assert quotient is not None
    assert quotient.value == 0.5
    assert quotient.margin == pytest.approx(0.5 * 0.1 * 2**0.5)


def test_runs_of_one_round_are_compared(tmp_path: Path) -> None:
    """Both algorithms are twice as slow in the second round, and the quotient does not change."""
    kept = Kept(tmp_path)
    kept.write(PART, 1, "", data=replayed(kvstore=[3.0, 6.0, 3.0], p3=[2.0, 4.0, 2.0]))
    found = speedup(Of(PART, "kvstore"), Of(PART, "p3"))(kept)
    assert found == Measured(1.5, 0.0)


def test_a_link_is_idle_while_it_carries_nothing(tmp_path: Path) -> None:
    (row,) = replayed(p3=[1.0])
    use = {"step_s": 0.01, "sent_bits_per_s": [0, 8, 0, 8] * 4,
           "received_bits_per_s": [0, 0, 8, 8] * 4}  # fmt: skip
    kept = Kept(tmp_path)
    kept.write(PART, 1, "", data=[{**row, "utilisation": use, "rate_bits_per_s": 10}])
    assert idle_share(Of(PART, "p3"))(kept) == Measured(0.25, 0.0)


def test_swapped_algorithms_change_the_verdict(tmp_path: Path) -> None:
    fast, slow = [1.10, 1.12, 1.11], [1.48, 1.50, 1.49]
    figures = replayed(kvstore=slow, slicing=slow, p3=fast)
    kept = kept_with(tmp_path / "kept", p3_f7_vgg19_whole=figures, p3_f7_sockeye_whole=figures)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "kept", copy)
    for path in (copy / "results").iterdir():
        text = path.read_text().replace('"kvstore"', '"?"').replace('"p3"', '"kvstore"')
        path.write_text(text.replace('"?"', '"p3"'))
    (row,) = manifest.select("p3/f7")
    before = [judge(claim, kept).verdict for claim in row.claims]
    after = [judge(claim, Kept(copy)).verdict for claim in row.claims]
    assert before.count(Verdict.AS) == 2 and after.count(Verdict.OTHERWISE) >= 2
    assert verdicts.of_row(row, Kept(copy)) is Verdict.OTHERWISE


# ---- result files --------------------------------------------------------------------------------


class FakeProgram(Program):
    """Knows some commands without running anything."""

    version = "sluice 0"

    def __init__(self) -> None:
        super().__init__("/bin/false")
        self._algorithms = {"kvstore", "p3"}

    def _help(self, command: tuple[str, ...]) -> str | None:  # type: ignore[override]
        text = "--profile X  Which model\n--algorithms --json --lab"
        return text if command == ("bench", "replay") else None


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        ("sluice bench replay --profile vgg19 --algorithms p3 --json {out}", None),
        ("sluice bench replay --profile {inputs}/mine.json", None),
        ("sluice bench replay --shrink 8", "needs `sluice bench replay --shrink`"),
        ("sluice bench replay --algorithms p3,other:3", "needs the algorithm other:3"),
        ("sluice formulas --json", "needs `sluice formulas`"),
        ("sluice study --data-dir {data}", "needs the images: give their folder as --data-dir"),
    ],
)
def test_needs_are_seen_before_anything_runs(command: str, needs: str | None) -> None:
    assert FakeProgram().missing(Part("x", Tier.LAB, command), None) == needs


def test_a_part_is_made_once_and_again_if_its_command_changes(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    part = Part("x", Tier.MODEL, "python -c \"print('[1]')\"")
    assert not kept.is_made(part)
    Runner(kept, FakeProgram(), None).make(part)
    assert Kept(tmp_path).is_made(part) and Kept(tmp_path).data(part) == [1]
    assert not kept.is_made(Part("x", Tier.MODEL, "python -c \"print('[2]')\""))


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.path(PART).parent.mkdir()
    kept.path(PART).write_text("half a fi")
    with pytest.raises(ValueError, match=r"example.json is not a file of results; delete it"):
        kept.data(PART)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("python -c \"raise SystemExit('no lab here')\"", "no lab here"),
        ("python -c \"print('no JSON')\"", "no JSON came from the command; run it by hand: python"),
        ("no-such-program", "there is no program no-such-program"),
    ],
)
def test_a_failure_is_kept_and_tried_again(tmp_path: Path, command: str, text: str) -> None:
    kept = Kept(tmp_path)
    part = Part("x", Tier.MODEL, command)
    with pytest.raises(PartError, match=text):
        Runner(kept, FakeProgram(), None).make(part)
    assert (Kept(tmp_path).failure(part) or "").startswith(text) and not kept.is_made(part)


def test_a_check_finds_numbers_that_do_not_hold() -> None:
    row = manifest.ROWS[3]
    claim = row.claims[0]
    held = [
        check.Compared(row, claim, Measured(1.0, 0.1), Measured(again, 0.1)).holds
        for again in (1.0, 1.19, 1.21)
    ]
    assert held == [True, True, False]


# ---- programs ------------------------------------------------------------------------------------


def test_a_replayed_model_has_the_profiles_gradients() -> None:
    layers = [{"forward_s": 0.0, "backward_s": 0.0, "bytes": 4.0 * n} for n in (3, 5)]
    model = ddp_link.Replayed(layers)
    model(torch.zeros(1, requires_grad=True)).sum().backward()
    assert [one.grad.tolist() for one in model.parameters() if one.grad is not None] == [
        [1.0] * 3,
        [1.0] * 5,
    ]


def test_models_of_pipe_sgd_are_those_that_are_printed() -> None:
    sizes = {
        name: sum(one.numel() for one in pipe_training.make(name, 1).parameters())
        for name in ("mlp", "convex")
    }
    assert sizes == {"mlp": inputs.parameters(MLP), "convex": 20_000 * 10 + 10}


# ---- report and command --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("margin", "shown"), [(0.0, "1.5 points"), (0.25, "1.5 ± 0.25 points"),
                          (math.inf, "1.5 points (one run)")]
)  # fmt: skip
def test_numbers_have_their_unit_and_margin(margin: float, shown: str, tmp_path: Path) -> None:
    claim = Claim("accuracy", lambda _: Measured(1.5, margin), unit="points")
    row = Row("p3", "f99", "Accuracy", parts=(), claims=(claim,))
    assert report.claims(row, Kept(tmp_path)).rows[0][2] == shown


def test_the_report_shows_every_row(tmp_path: Path) -> None:
    figures = replayed(kvstore=[1.5, 1.5, 1.5], slicing=[1.4, 1.4, 1.4], p3=[1.1, 1.1, 1.1])
    kept = kept_with(tmp_path, p3_f7_vgg19_whole=figures)
    page, text = report.write(kept, lambda part: FakeProgram().missing(part, None))
    html, markdown = page.read_text(), text.read_text()
    for row in manifest.ROWS:
        assert f'id="{row.key}"' in html
    assert html.index("<svg") < html.index("<p>") and "http" not in html.replace(
        "http://www.w3.org/2000/svg", ""
    )
    assert "1.364" in markdown and "1.66 at best" in markdown
    assert "needs the images" in markdown and "as in the paper" in markdown
    for picture in (tmp_path / "pictures").iterdir():
        ElementTree.parse(picture)


def test_tiles_and_timelines_are_pictures() -> None:
    jobs = play([Job("c1", 0, (1, 2)), Job("c2", 0, (1, 2))])
    for picture in (
        pictures.gantt("a < b", [("link", jobs)]),
        pictures.tiles([("P3", [("f1", Verdict.AS), ("f4-mnist", Verdict.MISSING)])]),
    ):
        ElementTree.fromstring(picture)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["p3/f99"], "there is no figure or paper 'p3/f99'; 'sluice reproduce --list'"),
        (["--tier", "moon", "-o", "x"], "invalid list of tiers 'moon'; use model, lab, train, sim"),
        ([], "no folder for the results was given; add -o DIR"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        _main(flags)
    assert str(refused.value).startswith(text)


def test_the_list_names_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 43


def trained(name: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    """Returns a row as `sluice study` keeps it."""
    return {"algorithm": name, "workers": 8, "seed": seed, "rate_factor": 1.0, "dgc": False,
            "failed": None, "accuracy": accuracy, "parts": None, **more}  # fmt: skip


def test_trainings_are_paired_at_the_tuned_rate_and_without_diverged_ones(tmp_path: Path) -> None:
    part = Part("x", Tier.TRAIN, "sluice study -o {folder}")
    rows = [trained("bsp", seed, 0.8 + 0.01 * seed) for seed in (1, 2, 3)]
    rows += [trained("asp", seed, 0.1 if seed == 3 else 0.7 + 0.01 * seed) for seed in (1, 2, 3)]
    rows += [trained("bsp", 1, 0.5, rate_factor=0.3), trained("bsp", 1, 0.5, rate_factor=3.0)]
    kept = Kept(tmp_path)
    kept.write(part, 1, "", data=rows)
    assert kept.path(part).name == "x.json.gz"
    found = trainings.ahead(Trained(part, "bsp", 8), Trained(part, "asp", 8))(Kept(tmp_path))
    assert found is not None and found.value == pytest.approx(10) and found.margin < 1e-9


def test_parts_of_a_step_are_shares(tmp_path: Path) -> None:
    part = Part("x", Tier.TRAIN, "sluice study -o {folder}")
    split = {"computing": 5, "aggregation": 1, "waiting": 2, "wire": 1.5, "unexplained": 0.5}
    kept = Kept(tmp_path)
    kept.write(part, 1, "", data=[trained("bsp", s, 0.1, parts=split) for s in (1, 2)])
    found = trainings.part_of_step(Trained(part, "bsp", 8), "aggregation", "waiting")(kept)
    assert found is not None and found.value == pytest.approx(0.3)


def _study_that_adds(folder: Path, run: dict[str, Any]) -> Path:
    """Writes a program that makes one run and ends as a study does; one with a budget ends as if it
    were over."""
    program = folder / "sluice"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n"
        "from sluice_papers.study import results\n"
        "folder = Path(sys.argv[sys.argv.index('-o') + 1])\n"
        f"results.add(folder, {run!r})\n"
        "sys.exit(3 if '--budget' in sys.argv else 0)\n"
    )
    program.chmod(0o755)
    return program


def test_a_study_that_is_out_of_time_keeps_what_it_has(tmp_path: Path) -> None:
    known = FakeProgram()
    known.path = str(_study_that_adds(tmp_path, trained("bsp", 1, 0.8)))
    part = Part("x", Tier.TRAIN, "sluice study -o {folder}")
    kept = Kept(tmp_path / "kept")
    Runner(kept, known, None, deadline=time.monotonic() + 60).make(part)
    assert kept.is_partial(part) and not kept.is_made(part) and len(kept.data(part) or []) == 1
    Runner(kept, known, None).make(part)
    assert kept.is_made(part) and not kept.is_partial(part)


def test_an_unfinished_study_goes_on_from_its_kept_runs(tmp_path: Path) -> None:
    """The program adds one run, and the folder with the runs before it is on another machine."""
    known = FakeProgram()
    known.path = str(_study_that_adds(tmp_path, trained("bsp", 2, 0.8)))
    part = Part("x", Tier.TRAIN, "sluice study -o {folder}")
    kept = Kept(tmp_path / "kept")
    kept.write(part, 1.0, "", data=[trained("bsp", 1, 0.9)], partial=True)
    Runner(kept, known, None).make(part)
    assert [row["seed"] for row in kept.data(part) or []] == [1, 2]
