"""The settings of a study, and the runs that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.study.algorithms import Algorithm


@dataclass(frozen=True)
class Run:
    """One training. Its key names its file of results."""

    algorithm: Algorithm
    workers: int
    seed: int
    factor: float = 1.0  # factor of the learning rate
    dgc: bool = False

    @property
    def key(self) -> str:
        name = f"{self.algorithm.text.replace(':', '-')}-n{self.workers}-s{self.seed}"
        if self.factor != 1:
            name += f"-x{self.factor:g}"
        return name + ("-dgc" if self.dgc else "")


@dataclass(frozen=True)
class Settings:
    algorithms: tuple[Algorithm, ...]
    workers: tuple[int, ...]
    seeds: int
    epochs: int
    output: Path
    data: str = "fashion-mnist"
    data_dir: Path = Path("data")
    model: str = "cnn"
    batch: int = 32
    learning_rate: float = 0.015
    grid: tuple[float, ...] = ()
    grid_workers: int = 8
    samples: int | None = None  # samples of the training data; None: all
    pace: float | None = None  # seconds; None: measured
    straggler: dict[int, float] = field(default_factory=dict)
    dgc: bool = False
    rate: str | None = None  # rate of links in a lab; None: no lab

    def fixed(self) -> dict[str, Any]:
        """Returns the settings that all runs of one folder share."""
        return {
            "data": self.data,
            "model": self.model,
            "epochs": self.epochs,
            "batch": self.batch,
            "learning_rate": self.learning_rate,
            "samples": self.samples,
            "straggler": {str(rank): factor for rank, factor in self.straggler.items()},
            "rate": self.rate,
        }

    def runs(self) -> list[Run]:
        """Returns all runs, one seed of each first, so that an unfinished study shows results of
        all."""
        return list(dict.fromkeys(self._runs()))

    def _runs(self) -> Iterator[Run]:
        for seed in range(1, self.seeds + 1):
            for workers in self.workers:
                for algorithm in self.algorithms:
                    yield Run(algorithm, workers, seed)
            if self.dgc:
                for algorithm in self.algorithms:
                    if algorithm.sends_gradients:
                        yield Run(algorithm, max(self.workers), seed, dgc=True)
            if seed == 1:
                for factor in self.grid:
                    for algorithm in self.algorithms:
                        yield Run(algorithm, self.grid_workers, seed, factor)


def parse_straggler(text: str) -> dict[int, float]:
    """Parses a straggler: 1:3x is rank 1, three times slower than the others."""
    found = re.fullmatch(r"(\d+):(\d*\.?\d+)x?", text)
    if found is None or float(found[2]) < 1:
        raise ValueError(
            f"'{text}' is no straggler; write 1:3x for a rank 1 that takes three times as long"
        )
    return {int(found[1]): float(found[2])}


def parse_counts(text: str, what: str, least: int) -> tuple[int, ...]:
    try:
        counts = tuple(dict.fromkeys(int(one) for one in text.split(",")))
    except ValueError:
        raise ValueError(f"'{text}' is no list of {what}; write it like 4,8,16") from None
    if min(counts) < least:
        raise ValueError(f"{min(counts)} {what} are too few; give {least} or more")
    return counts


def parse_factors(text: str) -> tuple[float, ...]:
    if text == "none":
        return ()
    try:
        factors = tuple(float(one) for one in text.split(","))
    except ValueError:
        factors = (0.0,)
    if min(factors) <= 0:
        raise ValueError(f"'{text}' is no list of factors; write it like 0.3,1,3, or none")
    return factors
