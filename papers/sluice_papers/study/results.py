"""Rows of results, one for each run, kept in one compressed file; means and spreads of them."""

from __future__ import annotations

import functools
import gzip
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sluice_papers.study.algorithms import Algorithm, parse
from sluice_papers.study.settings import Run
from sluice_papers.study.tuning import Tuned, nearest, tune

Row = dict[str, Any]
_CLASSES = 10
_DIVERGED = 1.5 / _CLASSES  # a run that ends at or below it is at chance level
_TUNING_SEED = 1
RUNS = "runs.json.gz"


def write(path: Path, value: Any) -> None:
    """Writes the whole file or nothing, so that a study that is ended at any moment can go on. A
    name that ends with .gz means compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    text = json.dumps(value, indent=1) + "\n"
    # The same rows are the same bytes: no time is in the file.
    beside.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else
                       text.encode())  # fmt: skip
    beside.replace(path)


def read_file(path: Path) -> Any:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def read(folder: Path) -> list[Row]:
    path = folder / RUNS
    rows: list[Row] = read_file(path) if path.is_file() else []
    return rows


def add(folder: Path, row: Row) -> None:
    """Adds a row, in the place of an earlier one of the same run."""
    kept = [one for one in read(folder) if key_of(one) != key_of(row)]
    write(folder / RUNS, sorted([*kept, row], key=key_of))


def key_of(row: Row) -> str:
    return run_of(row).key


def run_of(row: Row) -> Run:
    return Run(parse(row["algorithm"]), row["workers"], row["seed"], row["rate_factor"], row["dgc"])


@dataclass(frozen=True)
class Spread:
    """The spread of one figure over seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def deviation(self) -> float:
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.deviation / math.sqrt(len(self.values))

    def percent(self) -> str:
        text = f"{100 * self.mean:.2f}"
        return f"{text} ± {100 * self.deviation:.2f}" if len(self.values) > 1 else text


class Results:
    """The results so far. Rates are the tuned ones, where some are; runs that have failed or
    diverged are in no figure."""

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        self.rows = [row for row in rows if row["failed"] is None]
        self.failed = [row for row in rows if row["failed"] is not None]

    @functools.cached_property
    def workers(self) -> list[int]:
        return sorted({row["workers"] for row in self.rows if not row["dgc"]})

    @functools.cached_property
    def algorithms(self) -> list[Algorithm]:
        """The algorithms in the paper's order."""
        order = ["bsp", "arsgd", "wfbp", "asp", "ssp", "easgd", "gosgd", "adpsgd"]
        found = {parse(row["algorithm"]) for row in self.rows}

        def place(one: Algorithm) -> tuple[int, float]:
            argument = one.argument or 0.0
            return order.index(one.name), -argument if one.name == "gosgd" else argument

        return sorted(found, key=place)

    @functools.cached_property
    def tuned_at(self) -> list[int]:
        """The numbers of workers for which several rates were tried."""
        tried: dict[tuple[str, int], set[float]] = {}
        for row in self.rows:
            if row["seed"] == _TUNING_SEED and not row["dgc"]:
                tried.setdefault((row["algorithm"], row["workers"]), set()).add(row["rate_factor"])
        return sorted({workers for (_, workers), factors in tried.items() if len(factors) > 1})

    def scores(self, algorithm: Algorithm, workers: int) -> dict[float, float | None]:
        """Returns what each rate has reached with the seed that rates are tuned with; None: it has
        diverged."""
        return {
            row["rate_factor"]: None
            if row["failed"] is not None or has_diverged(row)
            else row["accuracy"]
            for row in [*self.rows, *self.failed]
            if (row["algorithm"], row["workers"], row["seed"], row["dgc"])
            == (algorithm.text, workers, _TUNING_SEED, False)
        }

    def tuning(self, algorithm: Algorithm, workers: int) -> Tuned:
        return tune(self.scores(algorithm, workers))

    def factor(self, algorithm: Algorithm, workers: int) -> float:
        """Returns the factor of the rate at which the algorithm is compared."""
        at = nearest(workers, self.tuned_at)
        found = None if at is None else self.tuning(algorithm, at).factor
        return 1.0 if found is None else found

    def of(
        self, algorithm: Algorithm, workers: int, *, factor: float | None = None, dgc: bool = False
    ) -> list[Row]:
        """Returns the rows of these runs, sorted by seed. Without a factor it is the tuned one."""
        return [
            row for row in self._all_of(algorithm, workers, factor, dgc) if not has_diverged(row)
        ]

    def diverged(self, algorithm: Algorithm, workers: int, *, dgc: bool = False) -> list[Row]:
        return [row for row in self._all_of(algorithm, workers, None, dgc) if has_diverged(row)]

    def traced(self, algorithm: Algorithm, workers: int) -> list[Row]:
        """Returns the rows with parts of a step's time. Those of a run that has diverged are as
        good as others."""
        rows = self._all_of(algorithm, workers, None, dgc=False)
        return [row for row in rows if row.get("parts")]

    def by_seed(
        self, algorithm: Algorithm, workers: int, figure: str = "accuracy", *, dgc: bool = False
    ) -> dict[int, float]:
        return {row["seed"]: row[figure] for row in self.of(algorithm, workers, dgc=dgc)}

    def spread(
        self,
        algorithm: Algorithm,
        workers: int,
        figure: str | Callable[[Row], float | None] = "accuracy",
        *,
        dgc: bool = False,
    ) -> Spread | None:
        """Returns the spread of a figure over seeds; None if nothing has been measured."""
        take: Callable[[Row], float | None] = (
            figure if callable(figure) else lambda row: row[figure]
        )
        values = [take(row) for row in self.of(algorithm, workers, dgc=dgc)]
        there = tuple(value for value in values if value is not None)
        return Spread(there) if there else None

    def _all_of(
        self, algorithm: Algorithm, workers: int, factor: float | None, dgc: bool
    ) -> list[Row]:
        at = self.factor(algorithm, workers) if factor is None else factor
        rows = [
            row
            for row in self.rows
            if (row["algorithm"], row["workers"], row["rate_factor"], row["dgc"])
            == (algorithm.text, workers, at, dgc)
        ]
        return sorted(rows, key=lambda row: int(row["seed"]))


def has_diverged(row: Row) -> bool:
    return bool(row["accuracy"] <= _DIVERGED)
