"""The course of the demo: measure a step, choose the rate of the link, train in rounds."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice.demo import processes
from sluice.demo.figures import Figures, Profile, figures_of
from sluice.demo.link import Link, shaped
from sluice.demo.settings import Settings

_TIMEOUT = 150.0  # seconds of one job
_ROUND = 4.5  # a step of each way takes as long as so many steps without a network
_LEAST_STEPS, _MOST_STEPS = 4, 12
_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "SLUICE_LOG": "error",
    "SLUICE_ENCRYPT": "off",  # as in Gloo, which cannot encrypt
    "SLUICE_SILENCE_LIMIT": "30s",  # a busy machine may not run a heartbeat for a while
}
Say = Callable[[str], None]


def run(settings: Settings, link: str, rate: float | None, seconds: float, say: Say) -> Figures:
    """Returns the figures of all rounds. `link` is a kind of link; the rate is chosen if None."""
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as name:
        folder = Path(name)
        profile = _measure(settings, folder, say)
        with shaped(link, rate or profile.balanced_rate()) as made:
            say(f"link: {made.describe()}")
            steps = round(seconds / settings.rounds / _ROUND / profile.step_s)
            steps = min(max(steps, _LEAST_STEPS), _MOST_STEPS)
            say(f"training: {settings.rounds} rounds, each {steps} steps of plain, DDP and sluice")
            ranks = _train(replace(settings, steps=steps, pace=made.pace), made, folder, say)
        return figures_of(profile, ranks, made)


def _measure(settings: Settings, folder: Path, say: Say) -> Profile:
    say("measuring a step without a network ...")
    words = processes.rank_words("measure", folder, settings.to_json())
    starts = processes.on_loopback(words, {**os.environ, **_VARIABLES})
    processes.run(starts, _TIMEOUT, folder / "errors", say)
    ranks = _read(folder)
    slower = max(ranks, key=lambda rank: float(rank["step_s"]))
    found = Profile(slower["profile"], slower["step_s"])
    say(
        f"model: a transformer with {found.bytes / 4e6:.1f} million parameters, "
        f"{found.bytes / 1e6:.0f} MB of gradients; a step takes {1e3 * found.step_s:.0f} ms"
    )
    return found


def _train(settings: Settings, link: Link, folder: Path, say: Say) -> list[dict[str, Any]]:
    words = processes.rank_words("train", folder, settings.to_json())
    starts = link.starts(words, {**os.environ, **_VARIABLES}, _TIMEOUT)
    processes.run(starts, _TIMEOUT + 10, folder / "errors", say)
    return _read(folder)


def _read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes.WORLD)]
