"""The figures 7 to 10 and 12 of the P3 paper, and algorithms side by side: replays of a profile."""

from sluice_papers.plot.style import (
    PAPER,
    byKey,
    drawBound,
    drawLines,
    drawPaperLine,
    efficiency,
    inOrder,
    marks,
    panels,
    percentAxis,
    setTitle,
    spreadOfEfficiency,
    styleOf,
    titleOf,
)

# Numbers in the text of "Priority-based Parameter Propagation for Distributed DNN Training".
BEST_SPEEDUP = {
    "resnet50": 1.26,
    "inceptionv3": 1.18,
    "vgg19": 1.66,
    "sockeye": 1.38,
}  # figure 7, 4 workers
SLICING_SPEEDUP = {"vgg19": 1.49}  # figure 7
SCALE_SPEEDUP = {"vgg19": 1.61, "sockeye": 1.18}  # figure 10, 8 workers
BEST_SLICE = 50_000  # figure 12


def drawSweep(rows):
    """Draws figure 7: throughput against bandwidth, which 1/ratio stands for; the speedup below."""
    profiles = byKey(rows, "profile")
    figure, axes = panels(2, len(profiles), 3.0)
    for column, (profile, mine) in enumerate(profiles.items()):
        above, below = axes[:, column]
        bandwidth = lambda row: 1 / row["ratio"]
        drawBound(above, mine, bandwidth)
        drawLines(above, mine, bandwidth, efficiency, spreadOfEfficiency)
        above.set_title(titleOf(profile))
        above.set_ylim(0, 1.05)
        percentAxis(above, "throughput, of linear")
        drawLines(
            below,
            [r for r in mine if r["algorithm"] != "kvstore"],
            bandwidth,
            lambda row: row["speedup_over_kvstore"],
        )
        if profile in BEST_SPEEDUP:
            drawPaperLine(
                below, BEST_SPEEDUP[profile], f"paper, p3 at its best: {BEST_SPEEDUP[profile]:.2f}"
            )
        if profile in SLICING_SPEEDUP:
            drawPaperLine(
                below, SLICING_SPEEDUP[profile], f"paper, slicing: {SLICING_SPEEDUP[profile]:.2f}"
            )
        below.set_ylabel("speedup over kvstore")
        below.set_xlabel("bandwidth (1 = wire time equals compute time)")
        for axis in (above, below):
            axis.set_xscale("log", base=2)
            marks(axis, [bandwidth(r) for r in mine], "{:.2g}".format)
    axes[0][0].legend(frameon=False, fontsize=8, loc="lower right")
    setTitle(figure, "Bandwidth and throughput (after P3's figure 7)", rows)
    return figure


def drawScale(rows):
    """Draws figure 10: throughput of the whole job against the number of workers; the speedup
    below."""
    profiles = byKey(rows, "profile")
    figure, axes = panels(2, len(profiles), 3.0)
    for column, (profile, mine) in enumerate(profiles.items()):
        above, below = axes[:, column]
        workers = lambda row: row["workers"]
        counts = sorted({workers(r) for r in mine})
        above.plot(counts, counts, color="0.6", linestyle=":", linewidth=1.6, label="linear")
        drawLines(
            above,
            mine,
            workers,
            lambda row: row["workers"] * efficiency(row),
            lambda row: row["workers"] * spreadOfEfficiency(row),
        )
        above.set_title(titleOf(profile))
        above.set_ylabel("throughput, in single workers")
        above.set_ylim(0)
        drawLines(
            below,
            [r for r in mine if r["algorithm"] != "kvstore"],
            workers,
            lambda row: row["speedup_over_kvstore"],
        )
        if profile in SCALE_SPEEDUP:
            below.plot(
                [8],
                [SCALE_SPEEDUP[profile]],
                marker="_",
                markersize=18,
                markeredgewidth=2,
                color=PAPER,
                linestyle="none",
                label="p3 in the paper, 10 Gbit/s",
            )
            below.legend(frameon=False, fontsize=8)
        below.set_ylabel("speedup over kvstore")
        below.set_xlabel("workers")
        for axis in (above, below):
            axis.set_xscale("log", base=2)
            marks(axis, counts)
    axes[0][0].legend(frameon=False, fontsize=8, loc="upper left")
    setTitle(figure, "Number of workers and throughput (after P3's figure 10)", rows)
    return figure


def drawSlices(rows):
    """Draws figure 12: throughput against the size of a slice."""
    profiles = byKey(rows, "profile")
    figure, axes = panels(1, len(profiles), 3.4, 5.2)
    for axis, (profile, mine) in zip(axes[0], profiles.items()):
        size = lambda row: row["slice_elements"]
        drawBound(axis, mine, size)
        drawLines(axis, mine, size, efficiency, spreadOfEfficiency)
        axis.set_xscale("log")
        marks(
            axis,
            [size(r) for r in mine],
            lambda v: f"{v / 1e6:g}M" if v >= 1e6 else f"{v / 1e3:g}k",
        )
        axis.axvline(BEST_SLICE, color=PAPER, linestyle="--", linewidth=1.2, zorder=1)
        axis.set_ylim(0, 1.05)
        axis.annotate(
            "paper's best",
            (BEST_SLICE, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            color=PAPER,
            fontsize=8,
        )
        axis.set_title(titleOf(profile))
        axis.set_xlabel("parameters per slice")
        percentAxis(axis, "throughput, of linear")
        axis.legend(frameon=False, fontsize=8, loc="lower right")
    setTitle(figure, "Size of slices and throughput (after P3's figure 12)", rows)
    return figure


def drawUtilisation(rows):
    """Draws figures 8 and 9: the bits that leave and enter the first host over time, an algorithm
    below the other."""
    algorithms = inOrder(row["algorithm"] for row in rows)
    profiles = byKey(rows, "profile")
    figure, axes = panels(len(algorithms), len(profiles), 1.7, 5.5)
    for column, (profile, mine) in enumerate(profiles.items()):
        for axis, algorithm in zip(axes[:, column], algorithms):
            for row in (r for r in mine if r["algorithm"] == algorithm):
                samples = row["utilisation"]
                for key, name, colour in (
                    ("sent_bits_per_s", "out", "#0072B2"),
                    ("received_bits_per_s", "in", "#E69F00"),
                ):
                    bits = samples[key]
                    axis.plot(
                        [i * samples["step_s"] for i in range(len(bits))],
                        [b / 1e9 for b in bits],
                        color=colour,
                        linewidth=0.8,
                        label=name,
                        alpha=0.9,
                    )
                axis.axhline(
                    row["rate_bits_per_s"] / 1e9, color="0.6", linestyle=":", linewidth=1.2
                )
                shown = 3 * row["iteration_s"]
                axis.set_xlim(0, min(shown, samples["step_s"] * len(samples["sent_bits_per_s"])))
                idle = sum(b < 0.1 * row["rate_bits_per_s"] for b in samples["sent_bits_per_s"])
                axis.set_title(
                    f"{titleOf(profile)}, {algorithm}: {row['iteration_s']:.2f} s an iteration, "
                    f"idle {100 * idle / len(samples['sent_bits_per_s']):.0f} % of the time",
                    fontsize=9,
                )
            axis.set_ylabel("Gbit/s")
            axis.set_ylim(0)
        axes[-1][column].set_xlabel("seconds")
    axes[0][0].legend(fontsize=8, loc="upper right", ncols=2, framealpha=0.9)
    setTitle(figure, "The first host's link (after P3's figures 8 and 9)", rows)
    return figure


def drawComparison(rows):
    """Draws algorithms side by side: time over bound, and speedups next to the paper's."""
    profiles = byKey(rows, "profile")
    algorithms = inOrder(row["algorithm"] for row in rows)
    figure, axes = panels(1, 2, 3.4, max(4.6, 1.3 * len(profiles)))
    width = 0.8 / len(algorithms)
    for position, (profile, mine) in enumerate(profiles.items()):
        for row in mine:
            offset = (algorithms.index(row["algorithm"]) - (len(algorithms) - 1) / 2) * width
            colour, _ = styleOf(row["algorithm"])
            style = {
                "width": 0.9 * width,
                "zorder": 2,
                "color": colour,
                "label": row["algorithm"] if position == 0 else None,
                "error_kw": {"linewidth": 1, "capsize": 2, "ecolor": "0.4"},
            }
            share = row["spread_s"] / row["iteration_s"] / 2
            over = row["over_bound"]
            if over is not None:  # the bound holds for this algorithm
                axes[0][0].bar(position + offset, over, yerr=over * share, **style)
            speedup = row["speedup_over_kvstore"]
            if speedup is not None and row["algorithm"] != "kvstore":
                axes[0][1].bar(position + offset, speedup - 1, yerr=speedup * share, **style)
        if profile in BEST_SPEEDUP:
            axes[0][1].plot(
                [position - 0.4, position + 0.4],
                [BEST_SPEEDUP[profile] - 1] * 2,
                color=PAPER,
                linestyle="--",
                zorder=3,
                label="p3 in the paper, at its best" if position == 0 else None,
            )
    for axis in axes[0]:
        axis.set_xticks(range(len(profiles)), [titleOf(p) for p in profiles])
        axis.grid(False, axis="x")
    axes[0][0].axhline(1, color="0.6", linestyle=":", linewidth=1.6)
    axes[0][0].set_ylabel("iteration over bound")
    axes[0][0].legend(frameon=False, fontsize=8, ncols=2)
    percentAxis(axes[0][1], "faster than kvstore by")
    axes[0][1].axhline(0, color="0.3", linewidth=0.8)
    axes[0][1].legend(frameon=False, fontsize=8)
    low, high = axes[0][0].get_ylim()
    axes[0][0].set_ylim(0, high * 1.15)
    setTitle(figure, "Strategies", rows)
    return figure
