"""Predictions: what `sluice plan` has written."""

from sluice_papers.plot.style import OTHERS, marks, panels, titleOf

# By class, the exact ones first.
COLOURS = {
    "same bits": "#D55E00",
    "exact in another order": "#0072B2",
    "delayed": "#009E73",
    "lossy or stale": "#999999",
}
MOST_BARS = 7  # of a class


def drawBars(axis, plan):
    """Draws the predicted time of the fastest candidates of each class, the most exact class at the
    top."""
    shown = [
        row
        for name in COLOURS
        for row in [one for one in plan["candidates"] if one["class"] == name][:MOST_BARS]
    ]
    heights = range(len(shown), 0, -1)
    axis.barh(
        list(heights),
        [1e3 * row["iteration_s"] for row in shown],
        color=[COLOURS[row["class"]] for row in shown],
    )
    axis.set_yticks(list(heights), [row["name"] for row in shown], fontsize=7)
    for name, colour in COLOURS.items():
        axis.barh(0, 0, color=colour, label=name)
    bound = plan["choice"]["bound_s"]
    if bound:
        axis.axvline(1e3 * bound, color="0.4", linestyle=":", linewidth=1.6, label="bound")
    axis.set_xlabel("predicted ms per iteration")
    axis.set_title(f"choice: {plan['choice']['name']}")
    axis.legend(frameon=False, fontsize=7, loc="lower right")


def drawSeries(axis, points, x, label, scale=1.0):
    """Draws one line for the best plan of each class."""
    names = dict.fromkeys(point["name"] for point in points)
    for index, name in enumerate(names):
        mine = sorted((p for p in points if p["name"] == name), key=lambda p: p[x])
        axis.plot(
            [p[x] / scale for p in mine],
            [1e3 * p["iteration_s"] for p in mine],
            color=COLOURS[mine[0]["class"]],
            marker=OTHERS[index % len(OTHERS)][1],
            linewidth=1.6,
            label=name,
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    marks(axis, [point[x] / scale for point in points])
    axis.set_xlabel(label)
    axis.set_ylabel("predicted ms per iteration")
    axis.legend(frameon=False, fontsize=7)


def drawPlan(rows):
    """Draws the predicted time by candidate, and by bandwidth and by hosts where `--sweep` was
    given. One plan at a time."""
    if len(rows) != 1:
        raise ValueError("one plan makes a picture: draw them apart")
    plan = rows[0]
    swept = "by_rate" in plan and "by_hosts" in plan
    figure, axes = panels(1, 3 if swept else 1, 5.0, 5.2)
    drawBars(axes[0][0], plan)
    if swept:
        drawSeries(axes[0][1], plan["by_rate"], "rate_bits_per_s", "Gbit/s of each link", 1e9)
        drawSeries(axes[0][2], plan["by_hosts"], "hosts", "hosts")
    rate = plan["rate_bits_per_s"] / 1e9
    figure.suptitle(
        f"{titleOf(plan['profile'])}, {plan['hosts']} hosts at {rate:g} Gbit/s: predicted",
        fontsize=11,
    )
    return figure
