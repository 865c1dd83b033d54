"""Figure 4 of the Pipe-SGD paper: replays with `pipe` beside `allreduce`."""

from matplotlib.patches import Rectangle
from sluice_papers.plot.style import PAPER, panels, setTitle, styleOf, titleOf

# Numbers in the text of "Pipe-SGD": the fastest of its own over each of the others, on its four
# benchmarks.
PIPE_SPEEDUP = {"D-Sync": (2.0, 3.2), "PS-Sync": (4.0, 5.4)}  # figure 4


def pipeName(row):
    """Names an algorithm in the words of the Pipe-SGD paper."""
    names = {
        "allreduce": "D-Sync",
        "pipe": "Pipe-SGD",
        "kvstore": "PS-Sync" if row.get("overlap") is False else "PS with overlap",
    }
    codec = {"fp16": " + T", "bf16": " + T", "int8": " + Q"}.get(row.get("codec"), "")
    return names.get(row["algorithm"], row["algorithm"]) + (
        "" if row["algorithm"] == "kvstore" else codec
    )


def drawPipe(rows):
    """Draws figure 4 of Pipe-SGD, its last column: how long an iteration takes; and what Pipe-SGD
    gains, beside theirs."""
    settings = sorted({(row["profile"], row["ratio"]) for row in rows})
    order = [
        "PS-Sync",
        "PS with overlap",
        "D-Sync",
        "D-Sync + T",
        "D-Sync + Q",
        "Pipe-SGD",
        "Pipe-SGD + T",
        "Pipe-SGD + Q",
    ]
    names = sorted(
        {pipeName(row) for row in rows},
        key=lambda name: order.index(name) if name in order else len(order),
    )
    figure, axes = panels(1, 2, 3.6, max(4.8, 2.4 * len(settings)))
    width = 0.8 / len(names)
    for position, setting in enumerate(settings):
        mine = {pipeName(row): row for row in rows if (row["profile"], row["ratio"]) == setting}
        for name, row in mine.items():
            offset = (names.index(name) - (len(names) - 1) / 2) * width
            colour, _ = styleOf(name)
            axes[0][0].bar(
                position + offset,
                row["iteration_s"],
                0.9 * width,
                yerr=row["spread_s"] / 2,
                color=colour,
                zorder=2,
                error_kw={"linewidth": 1, "capsize": 2, "ecolor": "0.4"},
            )
        fastest = min(
            (row["iteration_s"] for name, row in mine.items() if name.startswith("Pipe-SGD")),
            default=None,
        )
        for number, other in enumerate(PIPE_SPEEDUP):
            if fastest is not None and other in mine:
                axes[0][1].bar(
                    position + 0.4 * (number - 0.5),
                    mine[other]["iteration_s"] / fastest,
                    0.36,
                    zorder=2,
                    color=styleOf(other)[0],
                )
    for number, (other, (low, high)) in enumerate(PIPE_SPEEDUP.items()):
        axes[0][1].axhspan(low, high, color=styleOf(other)[0], alpha=0.15, zorder=0)
        axes[0][1].annotate(
            f"paper, over {other}: {low} to {high}",
            (0.01, high),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3),
            textcoords="offset points",
            va="top",
            color=PAPER,
            fontsize=8,
        )
    for axis in axes[0]:
        axis.set_xticks(
            range(len(settings)),
            [f"{titleOf(profile)}, ratio {ratio:g}" for profile, ratio in settings],
        )
        axis.set_xlim(-0.6, len(settings) - 0.4)
        axis.grid(False, axis="x")
    handles = [Rectangle((0, 0), 1, 1, color=styleOf(name)[0]) for name in names]
    axes[0][0].legend(handles, names, frameon=False, fontsize=8)
    axes[0][0].set_ylabel("seconds an iteration")
    axes[0][1].set_ylabel("the fastest Pipe-SGD over others")
    axes[0][1].set_ylim(0)
    setTitle(figure, "Pipe-SGD (after its figure 4)", rows)
    return figure
