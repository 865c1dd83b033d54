"""Rows of results, one for each run, and means and spreads of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sluice.study.algorithms import Algorithm, parse
from sluice.study.settings import Run

Row = dict[str, Any]


def path_of(folder: Path, run: Run) -> Path:
    return folder / "runs" / f"{run.key}.json"


def write(path: Path, value: Any) -> None:
    """Writes the whole file or nothing, so that a study that is ended at any moment can go on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(value, indent=1) + "\n")
    beside.replace(path)


def read(folder: Path) -> list[Row]:
    rows: list[Row] = [
        json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))
    ]
    return rows


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
    """The results so far, without failed runs."""

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        self.rows = [row for row in rows if row["failed"] is None]
        self.failed = [row for row in rows if row["failed"] is not None]

    @property
    def workers(self) -> list[int]:
        return sorted({row["workers"] for row in self._plain()})

    @property
    def algorithms(self) -> list[Algorithm]:
        """The algorithms in the paper's order."""
        order = ["bsp", "arsgd", "wfbp", "asp", "ssp", "easgd", "gosgd", "adpsgd"]
        found = {parse(row["algorithm"]) for row in self.rows}

        def place(one: Algorithm) -> tuple[int, float]:
            argument = one.argument or 0.0
            return order.index(one.name), -argument if one.name == "gosgd" else argument

        return sorted(found, key=place)

    @property
    def factors(self) -> list[float]:
        return sorted({row["rate_factor"] for row in self.rows})

    @property
    def tuned_workers(self) -> int | None:
        """The number of workers for which several rates were tried."""
        return min((row["workers"] for row in self.rows if row["rate_factor"] != 1), default=None)

    def of(
        self, algorithm: Algorithm, workers: int, *, factor: float = 1.0, dgc: bool = False
    ) -> list[Row]:
        """Returns the rows of these runs, sorted by seed."""
        rows = [
            row
            for row in self.rows
            if (row["algorithm"], row["workers"], row["rate_factor"], row["dgc"])
            == (algorithm.text, workers, factor, dgc)
        ]
        return sorted(rows, key=lambda row: int(row["seed"]))

    def spread(
        self,
        algorithm: Algorithm,
        workers: int,
        figure: str | Callable[[Row], float | None] = "accuracy",
        *,
        factor: float = 1.0,
        dgc: bool = False,
    ) -> Spread | None:
        """Returns the spread of a figure over seeds; None if nothing has been measured."""
        take: Callable[[Row], float | None] = (
            figure if callable(figure) else lambda row: row[figure]
        )
        values = [take(row) for row in self.of(algorithm, workers, factor=factor, dgc=dgc)]
        there = tuple(value for value in values if value is not None)
        return Spread(there) if there else None

    def _plain(self) -> list[Row]:
        return [row for row in self.rows if row["rate_factor"] == 1 and not row["dgc"]]
