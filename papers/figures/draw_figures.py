#!/usr/bin/python3
"""Draws the pictures of README.md and of the site from figures that are kept beside them.

  papers/figures/draw_figures.py            all, into docs/figures

The data is in papers/results. first.png: training.json, the medians of docs/pytorch.md. choose.png:
the replays in choose/ (their commands are in docs/choose.md) and the runs of the study in study/.
choose-NETWORK.svg and iteration.svg: the replays alone. bandwidth.svg: bandwidth.json.
slice-path.svg is a drawing without data. measurement_pictures.py draws those of the other
measurements. It needs Debian's python3-matplotlib, as `sluice plot` does.
"""

import json
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "papers"))

import measurement_pictures  # noqa: E402
import study_runs  # noqa: E402
from sluice_papers.plot.style import STYLE, panels, plt, styleOf  # noqa: E402

# The columns of choose.png: a file of papers/results/choose, and its title.
NETWORKS = {
    "balanced": "wire as long\nas compute",
    "slow": "wire four times\nas long",
    "straggler": "wire as long, one\nworker 3x slower",
}
# The rows, and the name of each in the study; pipe was not studied. All that keep step and apply
# every gradient at once train as bsp or wfbp do.
ALGORITHMS = {
    "allreduce": "wfbp",
    "wfbp": "wfbp",
    "mgwfbp": "wfbp",
    "sluice": "bsp",
    "mgp3": "wfbp",
    "pipe": None,
    "asp": "asp",
    "ssp:3": "ssp:3",
    "easgd:4": "easgd:4",
    "gosgd:.1": "gosgd:0.1",
    "adpsgd": "adpsgd",
}
STUDIED_WORKERS = 8


def drawFirst():
    """Draws an iteration with DDP and with sluice beside the bound, a panel for each model."""
    rows = json.loads((ROOT / "papers/results/training.json").read_text())
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
        file = ROOT / f"papers/results/choose/{network}.json"
        for row in json.loads(file.read_text()):
            found[row["algorithm"], network] = row["compute_s"] / row["iteration_s"]
    return found


def pointsLost(accuracy, algorithm):
    """Returns the points of accuracy that an algorithm of the study loses against bsp."""
    best, other = (mean(accuracy[name][STUDIED_WORKERS]) for name in ("bsp", algorithm))
    return round(100 * (best - other), 1) + 0.0  # which turns -0.0 into 0.0


def drawChoice():
    """Draws a table of algorithms and networks, each cell as dark as it is fast."""
    speed, accuracy = speeds(), study_runs.accuracies(study_runs.kept())
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
        lost = "" if studied is None else str(pointsLost(accuracy, studied))
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


def drawReplay(network):
    """Draws the iterations of a replay as bars, the part that is computing apart from the rest."""
    rows = json.loads((ROOT / f"papers/results/choose/{network}.json").read_text())
    rows.sort(key=lambda row: row["iteration_s"])
    figure, ((axis,),) = panels(1, 1, 0.32 * len(rows) + 1.0, 7.2)
    drawBars(axis, rows)
    saveSvg(figure, f"choose-{network}.svg")


def drawBars(axis, rows):
    names = [row["algorithm"] for row in rows]
    compute = [row["compute_s"] for row in rows]
    waiting = [max(0.0, row["iteration_s"] - row["compute_s"]) for row in rows]
    axis.barh(names, compute, color="0.75", label="computing", height=0.62)
    axis.barh(names, waiting, left=compute, color=STYLE["sluice"][0], label="waiting", height=0.62)
    for place, row in enumerate(rows):
        axis.text(
            row["iteration_s"], place, f" {row['iteration_s']:.2f} s", va="center", fontsize=9
        )
    bound = rows[0]["bound_s"]
    axis.axvline(bound, color="#0072B2", linestyle="--", linewidth=1.4, label="bound")
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(0, 1.15 * max(row["iteration_s"] for row in rows))
    axis.set_xlabel("seconds for one iteration")
    axis.grid(False)
    axis.legend(loc="lower right", fontsize=8, frameon=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def drawIteration():
    """Draws where the time of an iteration goes for three algorithms that keep step."""
    kept = json.loads((ROOT / "papers/results/choose/balanced.json").read_text())
    rows = {row["algorithm"]: row for row in kept}
    figure, ((axis,),) = panels(1, 1, 2.2, 7.2)
    drawBars(axis, [rows[name] for name in ("allreduce", "mgwfbp", "sluice")])
    titles = ["allreduce:\nall after backward", "mgwfbp: as DDP\nwith best buckets", "sluice"]
    axis.set_yticks(range(3), titles, fontsize=9)
    axis.set_title("ResNet-50, four workers, wire as long as compute", fontsize=9, loc="left")
    saveSvg(figure, "iteration.svg")


def drawBandwidth():
    """Draws the time of an iteration by the rate of the links."""
    rows = json.loads((ROOT / "papers/results/bandwidth.json").read_text())
    figure, ((axis,),) = panels(1, 1, 3.2, 7.2)
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        line = [(r["rate_mbit"], r["iteration_s"]) for r in rows if r["algorithm"] == algorithm]
        colour, marker = styleOf(algorithm)
        axis.plot(*zip(*line), color=colour, marker=marker, markersize=5, label=algorithm)
    bound = sorted({(row["rate_mbit"], row["bound_s"]) for row in rows})
    axis.plot(*zip(*bound), color="0.4", linestyle="--", label="bound")
    axis.set_xscale("log")
    axis.set_yscale("log")
    rates = sorted({row["rate_mbit"] for row in rows})
    axis.set_xticks(rates, [f"{rate:g}" for rate in rates], fontsize=8)
    axis.set_yticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"], fontsize=8)
    axis.set_ylim(0.5, 6.5)
    axis.minorticks_off()
    axis.set_xlabel("rate of each link, Mbit/s")
    axis.set_ylabel("seconds for one iteration")
    axis.legend(fontsize=8, frameon=False)
    saveSvg(figure, "bandwidth.svg")


# The stages of a slice (include/sluice/observer.h): name, words, column, row.
PATH = (
    ("ready", "backward has made\nthe gradient", 0, 0),
    ("queued", "waits for its turn\nand for credit", 1, 0),
    ("push", "travels to\nits server", 2, 0),
    ("collect", "waits for the\nother ranks' parts", 3, 0),
    ("reduce", "parts are summed,\nby rank", 3, 1),
    ("publish", "the result\ntravels back", 2, 1),
    ("applied", "the result is here,\nthe gate may open", 1, 1),
    ("forward", "the next forward pass\nenters the layer", 0, 1),
)


def drawPath():
    """Draws the path of one slice: the worker's side on the left, the server's on the right."""
    figure, ((axis,),) = panels(1, 1, 3.0, 8.4)
    for left, width, title in (
        (-0.08, 1.96, "worker"),
        (1.92, 0.96, "network"),
        (2.92, 0.98, "server"),
    ):
        axis.add_patch(plt.Rectangle((left, -0.32), width, 2.3, facecolor="0.95", edgecolor="none"))
        axis.text(
            left + width / 2, -0.16, title, ha="center", va="center", fontsize=9, color="0.35"
        )
    places = []
    for name, words, x, y in PATH:
        own = name in ("queued", "applied")
        fill = STYLE["sluice"][0] if own else "white"
        box = plt.Rectangle((x, y + 0.08), 0.8, 0.62, facecolor=fill, edgecolor="0.3", linewidth=1)
        axis.add_patch(box)
        ink = "white" if own else "black"
        axis.text(x + 0.4, y + 0.24, name, ha="center", va="center", weight="bold", color=ink)
        axis.text(x + 0.4, y + 0.49, words, ha="center", va="center", fontsize=7.5, color=ink)
        places.append((x, y))
    for (x, y), (toX, toY) in zip(places, places[1:]):
        if y != toY:
            begin, end = (x + 0.4, y + 0.72), (toX + 0.4, toY + 0.06)
        elif toX > x:
            begin, end = (x + 0.81, y + 0.39), (toX - 0.01, toY + 0.39)
        else:
            begin, end = (x - 0.01, y + 0.39), (toX + 0.81, toY + 0.39)
        arrow = {"arrowstyle": "-|>", "color": "0.3", "linewidth": 1.4}
        axis.annotate("", xy=end, xytext=begin, arrowprops=arrow)
    axis.set_xlim(-0.1, 3.92)
    axis.set_ylim(2.0, -0.34)
    axis.axis("off")
    saveSvg(figure, "slice-path.svg")


def saveSvg(figure, name):
    """Writes a picture whose bytes depend on its data only."""
    path = ROOT / "docs/figures" / name
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(path, metadata={"Date": None})
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    print(f"drew {path.relative_to(ROOT)}")


def save(figure, name):
    path = ROOT / "docs/figures" / name
    figure.savefig(path, dpi=130)
    print(f"drew {path.relative_to(ROOT)}")


if __name__ == "__main__":
    drawFirst()
    drawChoice()
    for each in NETWORKS:
        drawReplay(each)
    drawIteration()
    drawBandwidth()
    drawPath()
    saveSvg(measurement_pictures.accuracy(), "members-accuracy.svg")
    saveSvg(measurement_pictures.losses(), "members-vs-torchft.svg")
    saveSvg(measurement_pictures.plans(), "plan-check.svg")
    saveSvg(measurement_pictures.study(), "study.svg")
