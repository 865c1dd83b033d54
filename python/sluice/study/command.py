"""`sluice study`: flags, progress, errors. A study that was ended goes on from there: a run that
has its file of results is not made again."""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sluice.study import algorithms, data, network, ranks, report, results
from sluice.study.results import Results
from sluice.study.runner import RunError, Runner, row_of
from sluice.study.settings import Run, Settings, parse_counts, parse_factors, parse_straggler

# Seconds of a run, assumed until one was measured: starting, scoring, ending.
_OUTSIDE_TRAINING = 4.0
_EXAMPLES = """examples:
  sluice study --data fashion-mnist --data-dir DATA --workers 4,8,16 --seeds 3 --epochs 4 -o study/
  sluice study --data-dir DATA --algorithms bsp,asp,ssp:3 --workers 4 --straggler 1:3x -o straggler/
  sluice study --data-dir DATA --algorithms bsp,asp --workers 8 --lab --rate 100mbit \
-o slow-links/
  sluice study -o study/ --report                      # only the page, from the runs that are there

DATA holds fashion-mnist/ with its four .gz files as they are downloaded. The page is \
study/study.html, the table
study/study.md, and every run a file in study/runs/: delete one to make it again."""


def main() -> None:
    # Exit by an exception, so that the processes of the study are ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(_main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\nsluice study: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError) as error:
        text = " ".join(str(error).split())
        print(f"sluice study: {text}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ValueError) else 1)


def _main(arguments: list[str]) -> int:
    flags = _parser().parse_args(arguments)
    settings = settings_from(flags)
    study = _study_of(settings, flags.report)
    code = 0 if flags.report else _study(settings, study)
    rows = results.read(settings.output)
    missing = sum(not results.path_of(settings.output, run).is_file() for run in settings.runs())
    report.write(settings.output, Results(rows), study, 0 if flags.report else missing)
    if flags.json:
        print(json.dumps(rows))
    else:
        print(
            f"{settings.output / 'study.html'} and {settings.output / 'study.md'}: {len(rows)} runs"
        )
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice study",
        description="Trains one model with many algorithms, numbers of workers and seeds, and "
        "writes a page that compares them, beside what a paper has found.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where results and the page go",
    )
    parser.add_argument(
        "--data", choices=data.NAMES, default="fashion-mnist", help="[fashion-mnist]"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder that the data is in [data]",
    )
    parser.add_argument("--model", choices=network.NAMES, default="cnn", help="[cnn]")
    parser.add_argument(
        "--algorithms", default=algorithms.DEFAULT, metavar="LIST", help=f"[{algorithms.DEFAULT}]"
    )
    parser.add_argument(
        "--workers", default="4,8,16", metavar="LIST", help="numbers of workers [4,8,16]"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="K",
        help="trainings of each, with other beginnings [3]",
    )
    parser.add_argument("--epochs", type=int, default=4, metavar="K", help="[4]")
    parser.add_argument(
        "--batch", type=int, default=32, metavar="K", help="samples of a worker in a step [32]"
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=0.015,
        metavar="X",
        help="of a worker with 128 samples [0.015]",
    )
    parser.add_argument(
        "--grid",
        default="0.3,1,3",
        metavar="LIST",
        help="factors of the rate, one seed; or none [0.3,1,3]",
    )
    parser.add_argument(
        "--grid-workers",
        type=int,
        metavar="N",
        help="workers for that [8, or the nearest in --workers]",
    )
    parser.add_argument("--samples", type=int, metavar="K", help="only the first K training images")
    parser.add_argument(
        "--pace", type=float, metavar="MS", help="how long a step takes at least [measured]"
    )
    parser.add_argument(
        "--straggler", metavar="RANK:Kx", help="a rank that is slower, such as 1:3x"
    )
    parser.add_argument(
        "--dgc",
        action="store_true",
        help="also with deep gradient compression, where gradients are sent",
    )
    parser.add_argument(
        "--lab",
        action="store_true",
        help="each worker on a host of its own (docs/lab.md)",
    )
    parser.add_argument("--rate", metavar="RATE", help="with --lab: the speed of each link [1gbit]")
    parser.add_argument(
        "--report",
        action="store_true",
        help="train nothing: write the page from the runs that are there",
    )
    parser.add_argument("--json", action="store_true", help="print the results of all runs as JSON")
    return parser


def settings_from(flags: argparse.Namespace) -> Settings:
    if flags.rate is not None and not flags.lab:
        raise ValueError("--rate is the speed of a lab's links; give --lab with it")
    for name, least in (("seeds", 1), ("epochs", 1), ("batch", 1)):
        if getattr(flags, name) < least:
            raise ValueError(f"--{name} is {getattr(flags, name)}; give {least} or more")
    if flags.pace is not None and flags.pace <= 0:
        raise ValueError(f"--pace is {flags.pace:g}; give milliseconds above 0")
    workers = parse_counts(flags.workers, "workers", least=2)
    return Settings(
        algorithms=algorithms.parse_list(flags.algorithms),
        workers=workers,
        seeds=flags.seeds,
        epochs=flags.epochs,
        output=flags.output,
        data=flags.data,
        data_dir=flags.data_dir,
        model=flags.model,
        batch=flags.batch,
        learning_rate=flags.learning_rate,
        grid=parse_factors(flags.grid),
        grid_workers=flags.grid_workers or min(workers, key=lambda n: abs(n - 8)),
        samples=flags.samples,
        pace=None if flags.pace is None else flags.pace / 1e3,
        straggler=parse_straggler(flags.straggler) if flags.straggler else {},
        dgc=flags.dgc,
        rate=(flags.rate or "1gbit") if flags.lab else None,
    )


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
        if study["settings"][name] != value:
            was = study["settings"][name]
            raise ValueError(
                f"{settings.output} has a study with {name} {was}, not {value}; give the same, or "
                "another -o"
            )
    return study


def _study(settings: Settings, study: dict[str, Any]) -> int:
    """Makes the runs that are missing. Returns the exit code."""
    runs = settings.runs()
    missing = [run for run in runs if not results.path_of(settings.output, run).is_file()]
    if not missing:
        return 0
    ranks.prepare_to_fork()
    runner = Runner(settings, data.load(settings.data, settings.data_dir, settings.samples))
    for workers in {run.workers for run in missing}:
        if runner.batches(workers) < 2 * workers * settings.epochs:
            raise ValueError(
                f"{workers} workers have less than two batches in an epoch; give more samples or "
                "a smaller --batch"
            )
    gc.freeze()  # pages that the workers share stay shared
    progress = Progress(runner, len(runs), missing)
    failures = 0
    for run in missing:
        pace = _pace(settings, study, runner, run.workers)
        begun = time.monotonic()
        try:
            row = runner.run(run, pace)
            text = f"{100 * row['accuracy']:.2f} %"
        except RunError as failure:
            failures += 1
            row = {**row_of(run), "failed": str(failure)}
            text = f"failed: {failure}"
        results.write(results.path_of(settings.output, run), row)
        progress.done(run, pace, time.monotonic() - begun, text)
    return 1 if failures else 0


def _pace(settings: Settings, study: dict[str, Any], runner: Runner, workers: int) -> float:
    paces: dict[str, float] = study["pace_s"]
    if str(workers) not in paces:
        try:
            paces[str(workers)] = runner.find_pace(workers)
        except RunError as failure:
            raise OSError(f"the pace of {workers} workers cannot be measured: {failure}") from None
        results.write(settings.output / "study.json", study)
        _say(f"a step of {workers} workers takes at least {1e3 * paces[str(workers)]:g} ms")
    return paces[str(workers)]


class Progress:
    """Prints a line for each run, with the estimated time that is left."""

    def __init__(self, runner: Runner, runs: int, missing: list[Run]) -> None:
        self._runner = runner
        self._runs = runs
        self._left = list(missing)
        self._paces: dict[int, float] = {}
        self._seconds: dict[int, list[float]] = {}  # seconds of runs, by number of workers

    def done(self, run: Run, pace: float, seconds: float, text: str) -> None:
        self._left.remove(run)
        self._paces[run.workers] = pace
        self._seconds.setdefault(run.workers, []).append(seconds)
        left = sum(self._expected(one) for one in self._left)
        number = self._runs - len(self._left)
        _say(f"[{number}/{self._runs}] {run.key}: {text} in {seconds:.1f} s; {_minutes(left)} left")

    def _expected(self, run: Run) -> float:
        seen = self._seconds.get(run.workers)
        if seen:
            return sum(seen) / len(seen)
        # Assumes that a step costs as much as the computing of all workers: twice the workers have
        # twice the pace and half the steps.
        known = min(self._paces, key=lambda workers: abs(workers - run.workers))
        pace = self._paces[known] * run.workers / known
        return _OUTSIDE_TRAINING + self._runner.expected_seconds(run, pace)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
