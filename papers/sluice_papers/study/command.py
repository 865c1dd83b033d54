"""`sluice study`: flags, progress, errors. A study that was ended goes on from there: a run that
has its file of results is not made again."""

from __future__ import annotations

import fnmatch
import gc
import json
import time
from pathlib import Path
from typing import Any

from sluice.processes import prepare_to_fork

from sluice_papers.study import data, report, results
from sluice_papers.study.flags import OUT_OF_TIME, parser, settings_from
from sluice_papers.study.progress import Progress, run_command, say
from sluice_papers.study.results import Results
from sluice_papers.study.runner import RunError, Runner, row_of
from sluice_papers.study.settings import Run, Settings
from sluice_papers.study.wanted import presumed, wanted

# A run must not take longer than this: then a study that is ended loses little.
_LONGEST = 20 * 60.0


def main() -> None:
    run_command("sluice study", _main)


def _main(arguments: list[str]) -> int:
    flags = parser().parse_args(arguments)
    settings = settings_from(flags)
    study = _study_of(settings, flags.report)
    if flags.again:
        _forget(settings.output, flags.again)
    code = 0 if flags.report else _study(settings, study)
    rows = results.read(settings.output)
    missing = 0 if flags.report else len(_missing(settings, rows))
    report.write(settings.output, Results(rows), study, missing)
    if flags.json:
        print(json.dumps(rows))
    else:
        print(
            f"{settings.output / 'study.html'} and {settings.output / 'study.md'}: {len(rows)} runs"
        )
    return code


def _study_of(settings: Settings, must_exist: bool) -> dict[str, Any]:
    """Returns the settings that all runs in the folder share. Another study in the same folder
    would be compared with the first."""
    path = settings.output / "study.json"
    if not path.is_file():
        if must_exist:
            raise FileNotFoundError(
                f"there is no {path}, so no study to report; leave out --report to make one"
            )
        return {"settings": settings.fixed(), "pace_s": {}}
    study: dict[str, Any] = json.loads(path.read_text())
    if must_exist:
        return study
    for name, value in settings.fixed().items():
        was = study["settings"].get(name)
        if was != value:
            raise ValueError(
                f"{settings.output} has a study with {name} {was}, not {value}; give the same, or "
                "another -o"
            )
    return study


def _forget(folder: Path, pattern: str) -> None:
    rows = results.read(folder)
    kept = [row for row in rows if not fnmatch.fnmatch(results.key_of(row), pattern)]
    if len(kept) == len(rows):
        raise ValueError(f"no run in {folder} is called '{pattern}'")
    results.write(folder / results.RUNS, kept)


def _missing(settings: Settings, rows: list[results.Row]) -> list[Run]:
    """Returns the runs that are still to be made, and presumes those that depend on others."""
    made = {results.key_of(row) for row in rows}
    return [run for run in presumed(settings, Results(rows)) if run.key not in made]


def _study(settings: Settings, study: dict[str, Any]) -> int:
    """Makes the runs that are missing. Returns the exit code."""
    begun = time.monotonic()
    rows = results.read(settings.output)
    missing = _missing(settings, rows)
    if not missing:
        return 0
    prepare_to_fork()
    runner = Runner(settings, data.load(settings.data, settings.data_dir, settings.samples))
    for workers in {run.workers for run in missing}:
        if runner.batches(workers) < 2 * workers * settings.epochs:
            raise ValueError(
                f"{workers} workers have less than two batches in an epoch; give more samples or "
                "a smaller --batch"
            )
    gc.freeze()  # pages that the workers share stay shared
    progress = Progress(runner)
    failures = 0
    while (run := _next(settings, rows)) is not None:
        pace = _pace(settings, study, runner, run.workers)
        expected = progress.expected(run, pace)
        if expected > _LONGEST:
            raise ValueError(
                f"a run of {run.workers} workers would take about {expected / 60:.0f} min; give "
                f"fewer epochs or samples, so that it ends within {_LONGEST / 60:.0f}"
            )
        if settings.budget is not None:
            left = settings.budget - (time.monotonic() - begun)
            if expected > left:
                say("the budget has ended; the same command goes on from here")
                return OUT_OF_TIME
        row, text, seconds = _make(runner, run, pace)
        failures += row["failed"] is not None
        results.add(settings.output, row)
        rows = results.read(settings.output)
        progress.done(run, seconds, text, len(rows), _missing(settings, rows))
    return 1 if failures else 0


def _next(settings: Settings, rows: list[results.Row]) -> Run | None:
    made = {results.key_of(row) for row in rows}
    return next((run for run in wanted(settings, Results(rows)) if run.key not in made), None)


def _make(runner: Runner, run: Run, pace: float) -> tuple[results.Row, str, float]:
    """Returns the row of a run, what is said about it, and its seconds."""
    begun = time.monotonic()
    try:
        row = runner.run(run, pace)
        text = "diverged" if results.has_diverged(row) else f"{100 * row['accuracy']:.2f} %"
    except RunError as failure:
        row = {**row_of(run), "failed": str(failure)}
        text = f"failed: {failure}"
    return row, text, time.monotonic() - begun


def _pace(settings: Settings, study: dict[str, Any], runner: Runner, workers: int) -> float:
    paces: dict[str, float] = study["pace_s"]
    if str(workers) not in paces:
        try:
            paces[str(workers)] = runner.find_pace(workers)
        except RunError as failure:
            raise OSError(f"the pace of {workers} workers cannot be measured: {failure}") from None
        results.write(settings.output / "study.json", study)
        say(f"a step of {workers} workers takes at least {1e3 * paces[str(workers)]:g} ms")
    return paces[str(workers)]
