"""The settings of a study, and one run of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice_papers.study.algorithms import Algorithm


@dataclass(frozen=True)
class Run:
    """One training. Its key names it."""

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
    workers: tuple[int, ...]  # the most telling number first
    seeds: Mapping[int, int]  # by number of workers
    epochs: int
    output: Path
    data: str = "fashion-mnist"
    data_dir: Path = Path("data")
    model: str = "cnn"
    batch: int = 32
    learning_rate: float = 0.015
    tune: tuple[int, ...] = ()  # numbers of workers that rates are tuned for
    samples: int | None = None  # samples of the training data; None: all
    pace: float | None = None  # seconds; None: measured
    straggler: dict[int, float] = field(default_factory=dict)
    jitter: tuple[float, float] = (0.0, 1.0)  # share of steps that take longer, and how much
    dgc: bool = False
    rate: str | None = None  # rate of links in a lab; None: no lab
    traces: bool = False  # a step's time is split into its parts
    options: Mapping[str, str] = field(default_factory=dict)  # of sluice.distribute()
    budget: float | None = None  # seconds after which no run is begun

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
            "jitter": list(self.jitter),
            "rate": self.rate,
            "options": dict(self.options),
        }


def parse_straggler(text: str) -> dict[int, float]:
    """Parses a straggler: 1:3x is rank 1, three times slower than the others."""
    found = re.fullmatch(r"(\d+):(\d*\.?\d+)x?", text)
    if found is None or float(found[2]) < 1:
        raise ValueError(
            f"invalid straggler '{text}'; use 1:3x for a rank 1 that takes three times as long"
        )
    return {int(found[1]): float(found[2])}


def parse_jitter(text: str) -> tuple[float, float]:
    """Parses unevenness: 0.25:1.05x is a quarter of all steps, 1.05 times as long."""
    found = re.fullmatch(r"(\d*\.?\d+):(\d*\.?\d+)x?", text)
    if found is None or not 0 < float(found[1]) <= 1 or float(found[2]) < 1:
        raise ValueError(
            f"invalid jitter '{text}'; use 0.25:1.05x for a quarter of the steps, 1.05 times as "
            "long"
        )
    return float(found[1]), float(found[2])


def parse_counts(text: str, what: str, least: int) -> tuple[int, ...]:
    try:
        counts = tuple(dict.fromkeys(int(one) for one in text.split(",")))
    except ValueError:
        raise ValueError(f"invalid list of {what} '{text}'; use 4,8,16") from None
    if min(counts) < least:
        raise ValueError(f"{min(counts)} {what} are too few; give {least} or more")
    return counts


def parse_seeds(text: str, workers: tuple[int, ...]) -> dict[int, int]:
    """Parses numbers of seeds: 3 for all, or one for each number of workers, in their order."""
    counts = text.split(",")
    if not all(one.strip().isdigit() and int(one) > 0 for one in counts):
        raise ValueError(f"invalid number of seeds '{text}'; use 3, or one for each of --workers")
    if len(counts) == 1:
        return dict.fromkeys(workers, int(text))
    if len(counts) != len(workers):
        raise ValueError(
            f"--seeds has {len(counts)} numbers and --workers has {len(workers)}; give one for each"
        )
    return dict(zip(workers, map(int, counts), strict=True))


def parse_tune(text: str) -> tuple[int, ...]:
    return () if text == "none" else parse_counts(text, "workers", least=2)


def parse_budget(text: str) -> float:
    """Parses a time: 90s, 45min or 2h. Returns seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)", text)
    if found is None:
        raise ValueError(f"invalid time '{text}'; use 45min or 2h")
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]]
