"""The picture of the demo: the time of a step in each round."""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

from sluice.demo.figures import Figures

_COLOURS = {"without network": "0.75", "sluice": "#D55E00", "DDP on Gloo": "#0072B2"}


def draw(figures: Figures, path: Path) -> str:
    """Draws the picture and returns a line about it. It needs matplotlib, which is not always
    there."""
    try:
        importlib.import_module("matplotlib").use("Agg")  # a file, no screen
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return "no picture: matplotlib is missing; pip install matplotlib"
    figure, axis = pyplot.subplots(figsize=(6.4, 3.2), constrained_layout=True)
    _draw_bars(axis, figures)
    figure.savefig(path, dpi=150)
    return f"the picture is {path}"


def _draw_bars(axis: Any, figures: Figures) -> None:
    rounds = zip(_COLOURS, (figures.plain, figures.sluice, figures.ddp), strict=True)
    for place, (name, seconds) in enumerate(rounds):
        median = 1e3 * statistics.median(seconds)
        axis.barh(place, median, height=0.6, color=_COLOURS[name])
        axis.plot([1e3 * one for one in seconds], [place] * len(seconds), "k|", markersize=12)
        axis.annotate(f"{median:.0f} ms", (0, place), (6, 0), textcoords="offset points",
                      va="center", color="white" if place else "black")  # fmt: skip
    bound = 1e3 * statistics.median(figures.bound)
    axis.axvline(
        bound, color="black", linestyle="--", linewidth=1.2, label=f"bound, {bound:.0f} ms"
    )
    axis.set_yticks(range(len(_COLOURS)), list(_COLOURS))
    axis.set_xlabel("ms a step: the median of the rounds, and each round")
    axis.set_title(
        f"sluice is {figures.speedup:.2f} times as fast as DDP: two ranks, "
        f"{figures.rate / 1e6:.0f} Mbit/s ({figures.link})",
        fontsize=10,
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
