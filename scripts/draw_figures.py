#!/usr/bin/python3
"""Draws the pictures of README.md and docs/choose.md from figures that are kept beside them.

  scripts/draw_figures.py            both, into docs/figures

first.png: docs/figures/training.json, the medians of docs/pytorch.md. choose.png: the replays in
docs/choose (their commands are in docs/choose.md) and the runs of the study in docs/study. It
needs Debian's python3-matplotlib, as `sluice plot` does.
"""

import gzip
import json
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from sluice_plot.style import STYLE, panels, plt  # noqa: E402

# The columns of choose.png: a file of docs/choose, and its title.
NETWORKS = {
    "balanced": "wire as long\nas compute",
    "slow": "wire four times\nas long",
    "straggler": "wire as long, one\nworker 3x slower",
}
# The rows, and the name of each in the study; pipe was not studied. All that keep step and apply
# every gradient at once train as bsp or arsgd do.
ALGORITHMS = {
    "allreduce": "arsgd",
    "wfbp": "arsgd",
    "mgwfbp": "arsgd",
    "sluice": "bsp",
    "mgp3": "arsgd",
    "pipe": None,
    "asp": "asp",
    "ssp:3": "ssp-3",
    "easgd:4": "easgd-4",
    "gosgd:.1": "gosgd-0.1",
    "adpsgd": "adpsgd",
}
STUDIED_WORKERS = 8


def drawFirst():
    """Draws an iteration with DDP and with sluice beside the bound, a panel for each model."""
    rows = json.loads((ROOT / "docs/figures/training.json").read_text())
    figure, (axes,) = panels(1, len(rows), 2.1, 5.2)
    for axis, row in zip(axes, rows):
        bars = {
            "DDP": row["ddp_ms"],
            "DDP, best buckets": row["ddp_best_bucket_ms"],
            "sluice": row["sluice_ms"],
        }
        colours = ["0.65", "0.78", STYLE["sluice"][0]]
        axis.barh(list(bars), list(bars.values()), color=colours, height=0.62)
        for place, time in enumerate(bars.values()):
            axis.text(time, place, f" {time} ms", va="center", fontsize=10)
        axis.axvline(row["bound_ms"], color="#0072B2", linestyle="--", linewidth=1.6)
        axis.text(
            row["bound_ms"], -0.72, f"bound {row['bound_ms']} ms ", color="#0072B2", fontsize=9,
            ha="right", va="center",
        )  # fmt: skip
        axis.set_ylim(2.5, -1.0)
        axis.set_xlim(0, 1.2 * max(bars.values()))
        axis.set_title(f"{row['title']}\n{row['setting']}", fontsize=9, loc="left")
        axis.grid(False)
        axis.set_xticks([])
        for side in ("top", "right", "bottom"):
            axis.spines[side].set_visible(False)
    save(figure, "first.png")


def speeds():
    """Returns for each algorithm and network the speed, in parts of that without a network."""
    found = {}
    for network in NETWORKS:
        file = ROOT / f"docs/choose/{network}.json"
        for row in json.loads(file.read_text()):
            found[row["algorithm"], network] = row["compute_s"] / row["iteration_s"]
    return found


def accuracies():
    """Returns the mean final accuracy of each algorithm of the study, over the seeds."""
    by_name = {}
    for run in json.loads(gzip.decompress((ROOT / "docs/study/runs.json.gz").read_bytes())):
        if (run["workers"], run["rate_factor"], run["dgc"]) == (STUDIED_WORKERS, 1, False):
            name = run["algorithm"].replace(":", "-")
            by_name.setdefault(name, []).append(run["accuracy"])
    return {name: mean(values) for name, values in by_name.items()}


def drawChoice():
    """Draws a table of algorithms and networks, each cell as dark as it is fast."""
    speed, accuracy = speeds(), accuracies()
    columns = [*NETWORKS.values(), f"accuracy lost,\npoints ({STUDIED_WORKERS} workers)"]
    figure, ((axis,),) = panels(1, 1, 4.4, 7.2)
    shades = plt.get_cmap("Oranges")
    for y, (algorithm, studied) in enumerate(ALGORITHMS.items()):
        for x, network in enumerate(NETWORKS):
            value = speed.get((algorithm, network))
            best = max(speed[key] for key in speed if key[1] == network)
            fill = "white" if value is None else shades(0.05 + 0.6 * value)
            axis.add_patch(plt.Rectangle((x, y), 1, 1, facecolor=fill, edgecolor="white"))
            if value is not None:
                weight = "bold" if value > best - 0.03 else "normal"
                text = f"{100 * value:.0f} %"
                axis.text(x + 0.5, y + 0.5, text, ha="center", va="center", weight=weight)
        lost = "" if studied is None else f"{100 * (accuracy['bsp'] - accuracy[studied]):.1f}"
        axis.text(len(NETWORKS) + 0.5, y + 0.5, lost, ha="center", va="center")
    axis.set_xlim(0, len(columns))
    axis.set_ylim(len(ALGORITHMS), 0)
    axis.set_xticks([x + 0.5 for x in range(len(columns))], columns, fontsize=8)
    axis.set_yticks([y + 0.5 for y in range(len(ALGORITHMS))], list(ALGORITHMS))
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(False)
    for side in axis.spines.values():
        side.set_visible(False)
    save(figure, "choose.png")


def save(figure, name):
    path = ROOT / "docs/figures" / name
    figure.savefig(path, dpi=130)
    print(f"drew {path.relative_to(ROOT)}")


if __name__ == "__main__":
    drawFirst()
    drawChoice()
