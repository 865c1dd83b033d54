"""`sluice reproduce`: flags, progress, errors. A part that has its file of results is not made
again."""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluice_papers.reproduce import check, manifest, report, verdicts
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.rows import Part, Row, Tier
from sluice_papers.reproduce.runner import PartError, Runner
from sluice_papers.reproduce.tools import Program
from sluice_papers.study import ranks
from sluice_papers.study.progress import minutes, run_command, say
from sluice_papers.study.settings import parse_budget

_SHORTEST = 60.0  # seconds for which a study is worth beginning
_EXAMPLES = """examples:
  sluice reproduce all --tier model -o reproduction/      # formulas: seconds, any machine
  sluice reproduce p3/f9 -o reproduction/                 # one figure, all that it takes
  sluice reproduce mgwfbp --tier model,lab -o reproduction/
  sluice reproduce all --tier train --data-dir DATA --budget 90min -o reproduction/
  sluice reproduce all --tier model -o reproduction/ --check
  sluice reproduce --list

The page is reproduction/reproduction.html. Every part has a file in reproduction/results/: delete
one to make it again. DATA holds mnist/ and fashion-mnist/ with their .gz files as downloaded."""


def main() -> None:
    run_command("sluice reproduce", _main)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice reproduce",
        description="Makes the figures and tables of the papers, and a page with ours beside "
        "theirs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="all",
        metavar="FIGURE|PAPER|all",
        help=f"a figure such as p3/f7, a paper ({', '.join(manifest.PAPERS)}), or all [all]",
    )
    parser.add_argument(
        "--tier", metavar="LIST", help=f"of {', '.join(Tier)} [model; all of them for one figure]"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where results and the page go"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(os.environ["STUDY_DATA"]) if os.environ.get("STUDY_DATA") else None,
        metavar="DIR",
        help="folder with mnist/ and fashion-mnist/ [$STUDY_DATA]",
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        help="begin nothing that would not end in this time, such as 90min; studies keep the runs "
        "that they have made, and the same command goes on",
    )
    parser.add_argument("--list", action="store_true", help="print the rows, and make nothing")
    parser.add_argument(
        "--check",
        action="store_true",
        help="make three rows again, drawn at random, and compare them with the kept ones",
    )
    parser.add_argument("--seed", type=int, metavar="K", help="of that draw [by chance]")
    parser.add_argument("--json", action="store_true", help="print verdicts as JSON")
    return parser


def _main(arguments: list[str]) -> int:
    flags = _parser().parse_args(arguments)
    rows = manifest.select(flags.what)
    tiers = _tiers(flags.tier, rows)
    if flags.list:
        return _list(rows, flags.json)
    if flags.output is None:
        raise ValueError("no folder for the results was given; add -o DIR")
    program = Program(ranks.program())
    kept = Kept(flags.output)
    if flags.check:
        return _check(rows, tiers, kept, program, flags)
    code = _make(rows, tiers, kept, program, flags)
    page, _ = report.write(kept, lambda part: program.missing(part, flags.data_dir))
    if flags.json:
        print(json.dumps([_as_json(row, kept) for row in rows], indent=1))
    else:
        made = sum(_has_result(row, kept) for row in manifest.ROWS)
        print(f"{page}: {made} of {len(manifest.ROWS)} figures and tables have a result")
    return code


def _tiers(text: str | None, rows: Sequence[Row]) -> list[Tier]:
    if text is None:
        return list(Tier) if len(rows) == 1 else [Tier.MODEL]
    try:
        return [Tier(name) for name in text.split(",")]
    except ValueError:
        raise ValueError(f"invalid list of tiers '{text}'; use {', '.join(Tier)}") from None


def _make(
    rows: Sequence[Row],
    tiers: Sequence[Tier],
    kept: Kept,
    program: Program,
    flags: argparse.Namespace,
) -> int:
    """Makes the parts that are missing. Returns the exit code."""
    data: Path | None = flags.data_dir
    deadline = None
    if flags.budget is not None:
        deadline = time.monotonic() + parse_budget(flags.budget)
    parts = list(dict.fromkeys(part.name for row in rows for part in row.parts))
    by_name = {part.name: part for row in rows for part in row.parts}
    wanted = [by_name[name] for name in parts if by_name[name].tier in tiers]
    todo = []
    for part in wanted:
        if kept.is_made(part):
            continue
        if (needs := program.missing(part, data)) is not None:
            say(f"{part.name}: {needs}")
        else:
            todo.append(part)
    runner = Runner(kept, program, data, deadline)
    progress = Progress(len(wanted), len(wanted) - len(todo), todo)
    failures = 0
    for part in todo:
        left = math.inf if deadline is None else deadline - time.monotonic()
        if left < min(part.seconds, _SHORTEST) or (not part.is_study and left < part.seconds):
            progress.skip(part)
            continue
        progress.begin(part)
        try:
            seconds = runner.make(part)
            progress.done(part, seconds, "partly made" if kept.is_partial(part) else "made")
        except PartError as failure:
            failures += 1
            progress.done(part, None, f"failed: {failure}")
    return 1 if failures else 0


class Progress:
    """Prints a line for each part, with the estimated time that is left."""

    def __init__(self, parts: int, before: int, todo: Sequence[Part]) -> None:
        self._parts, self._number = parts, before
        self._left = list(todo)
        self._expected = self._taken = 0.0  # of parts that were made

    def begin(self, part: Part) -> None:
        if part.seconds >= 20:
            say(f"{part.name}: takes about {minutes(part.seconds)}")

    def skip(self, part: Part) -> None:
        self._left.remove(part)
        self._number += 1
        say(f"[{self._number}/{self._parts}] {part.name}: the budget is too short")

    def done(self, part: Part, seconds: float | None, text: str) -> None:
        self._left.remove(part)
        self._number += 1
        if seconds is not None:
            self._expected += part.seconds
            self._taken += seconds
            text += f" in {seconds:.1f} s"
        pace = self._taken / self._expected if self._expected else 1.0
        left = pace * sum(one.seconds for one in self._left)
        say(f"[{self._number}/{self._parts}] {part.name}: {text}; {minutes(left)} left")


def _check(
    rows: Sequence[Row],
    tiers: Sequence[Tier],
    kept: Kept,
    program: Program,
    flags: argparse.Namespace,
) -> int:
    drawn = check.draw(rows, kept, tiers, flags.seed)
    if not drawn:
        raise ValueError(f"{kept.folder} has no results of these tiers; make some without --check")
    with tempfile.TemporaryDirectory(prefix="sluice-reproduce-") as folder:
        again = Kept(Path(folder))
        runner = Runner(again, program, flags.data_dir)

        def make(part: Part) -> None:
            try:
                say(f"{part.name}: made again in {runner.make(part):.1f} s")
            except PartError as failure:
                say(f"{part.name}: failed: {failure}")

        found = check.compare(drawn, kept, again, tiers, make)
    for one in found:
        word = "holds" if one.holds else "does not hold"
        print(
            f"{one.row.key}: {one.claim.text}: kept {one.kept.value:.6g}, "
            f"now {one.again.value:.6g}: {word}"
        )
    if not found:
        raise OSError("no row could be made again; the lines above give the reasons")
    return 0 if all(one.holds for one in found) else 1


def _has_result(row: Row, kept: Kept) -> bool:
    return any(kept.data(part) is not None for part in row.parts)


def _list(rows: Sequence[Row], as_json: bool) -> int:
    if as_json:
        listed = [
            {"row": row.key, "shows": row.shows, "tiers": row.tiers, "reason": row.reason}
            for row in rows
        ]
        print(json.dumps(listed, indent=1))
        return 0
    for row in rows:
        tiers = ",".join(row.tiers) or "-"
        seconds = sum(part.seconds for part in row.parts)
        print(f"{row.key:20} {tiers:16} {minutes(seconds) if seconds else '-':>8}  {row.shows}")
    return 0


def _as_json(row: Row, kept: Kept) -> dict[str, Any]:
    found = [verdicts.judge(claim, kept) for claim in row.claims]
    return {
        "row": row.key,
        "verdict": verdicts.of_row(row, kept),
        "reason": row.reason,
        "parts": [
            {
                "part": part.name,
                "tier": part.tier,
                "command": report.command_of(row, part),
                "made": kept.is_made(part),
                "partial": kept.is_partial(part),
                "failed": kept.failure(part),
            }
            for part in row.parts
        ],
        "claims": [
            {
                "claim": one.claim.text,
                "paper": one.claim.printed,
                "ours": None if one.ours is None else one.ours.value,
                "holds_if": one.claim.inequality,
                "verdict": one.verdict,
            }
            for one in found
        ],
    }
