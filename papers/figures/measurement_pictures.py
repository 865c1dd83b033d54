"""Pictures of measurements that have no place in a guide. draw_figures.py saves them."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

import study_runs
from sluice_papers.plot.style import OTHERS, STYLE, panels, styleOf

ROOT = Path(__file__).resolve().parents[2]
SLUICE, OTHER = STYLE["sluice"][0], "0.65"


def kept(name):
    return json.loads((ROOT / "papers/results" / name).read_text())


def withoutFrame(axis):
    axis.grid(False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def accuracy():
    """Draws the accuracy of each seed, and the mean of each way."""
    rows = kept("members_accuracy.json")
    figure, ((axis,),) = panels(1, 1, 2.0, 7.2)
    for place, row in enumerate(rows):
        colour = SLUICE if "lost" in row["way"] else OTHER
        axis.plot(row["percents"], [place] * len(row["percents"]), "o", color=colour)
        axis.plot(mean(row["percents"]), place, "|", color=colour, markersize=24, markeredgewidth=2)
    axis.set_yticks(range(len(rows)), [row["way"] for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel("accuracy on the test images, %; a dot for each seed")
    withoutFrame(axis)
    return figure


def losses():
    """Draws the pause after each killed rank."""
    runs = kept("members_vs_torchft.json")["runs"]
    figure, ((axis,),) = panels(1, 1, 2.2, 7.2)
    for place, run in enumerate(runs):
        colour = SLUICE if run["name"] == "sluice" else OTHER
        pauses = run["with_kills"]["pauses_s"]
        axis.plot(pauses, [place] * len(pauses), "o", color=colour, alpha=0.8)
        axis.plot(median(pauses), place, "|", color=colour, markersize=24, markeredgewidth=2)
    axis.set_yticks(range(len(runs)), [run["name"].replace(", ", ",\n") for run in runs])
    axis.set_ylim(len(runs) - 0.5, -0.5)
    axis.set_xlim(-0.2, None)
    axis.set_xlabel("pause after a kill, seconds; the line is the median")
    withoutFrame(axis)
    return figure


def plans():
    """Draws the predicted time of each measured algorithm against the measured one."""
    figure, ((axis,),) = panels(1, 1, 4.0, 5.2)
    points = defaultdict(list)
    for file in sorted((ROOT / "papers/results/plan").glob("*.json")):
        result = json.loads(file.read_text())
        predicted = {row["name"]: row["iteration_s"] for row in result["plan"]["candidates"]}
        for row in result["lab"]:
            if row["algorithm"] in predicted:
                point = (median(row["runs_s"]), predicted[row["algorithm"]])
                points[row["algorithm"]].append(point)
    for name, some in points.items():
        colour, marker = styleOf(name)
        axis.plot(*zip(*some), marker, color=colour, label=name, markersize=5, alpha=0.8)
    ends = [0.9, 18]
    axis.plot(ends, ends, color="0.4", linestyle="--", linewidth=1, label="as measured")
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = [1, 2, 5, 10]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.set_yticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("measured seconds for one iteration")
    axis.set_ylabel("predicted seconds")
    axis.legend(fontsize=8, frameon=False)
    return figure


def study():
    """Draws the accuracy that each algorithm of the study loses against bsp, by the workers."""
    found = study_runs.accuracies(study_runs.kept())
    figure, ((axis,),) = panels(1, 1, 3.6, 7.2)
    best = found.pop("bsp")
    workers = sorted(set(best) - {1})
    for (name, by_workers), (colour, marker) in zip(found.items(), [*OTHERS, *STYLE.values()]):
        lost = [100 * (mean(best[count]) - mean(by_workers[count])) for count in workers]
        axis.plot(workers, lost, color=colour, marker=marker, markersize=5, label=name)
    axis.set_xscale("log", base=2)
    axis.set_xticks(workers, [str(count) for count in workers])
    axis.minorticks_off()
    axis.set_xlabel("workers")
    axis.set_ylabel("points of accuracy\nlost against bsp")
    axis.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
