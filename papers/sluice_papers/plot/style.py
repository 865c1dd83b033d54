"""The look that all figures share: colours, panels, lines, marks and titles."""

from collections import defaultdict

import matplotlib

matplotlib.use("Agg")  # a file, no screen
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

# Colours that stay apart for the colour-blind (Okabe and Ito), and markers for print.
STYLE = {
    "kvstore": ("#000000", "s"),
    "slicing": ("#E69F00", "^"),
    "p3": ("#0072B2", "o"),
    "sluice": ("#D55E00", "D"),
}
OTHERS = [
    ("#009E73", "v"),
    ("#CC79A7", "P"),
    ("#56B4E9", "X"),
    ("#8C564B", "*"),
    ("#F0E442", "h"),
    ("#999999", "p"),
    ("#332288", "<"),
    ("#882255", ">"),
]
TITLES = {
    "resnet50": "ResNet-50",
    "vgg19": "VGG-19",
    "inceptionv3": "InceptionV3",
    "sockeye": "Sockeye",
}
PAPER = "0.45"  # grey


def styleOf(algorithm, known={}):
    if algorithm in STYLE:
        return STYLE[algorithm]
    return known.setdefault(algorithm, OTHERS[len(known) % len(OTHERS)])


def inOrder(values):
    """Returns each value once, the algorithms we know first and in their order."""
    known = list(STYLE)
    return sorted(dict.fromkeys(values), key=lambda v: known.index(v) if v in known else len(known))


def titleOf(profile):
    return TITLES.get(profile, profile)


def byKeys(rows, keys):
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def byKey(rows, key):
    return {value: group for (value,), group in byKeys(rows, [key]).items()}


def efficiency(row):
    """Returns the part of what the accelerators could do without a network in the way."""
    return row["compute_s"] / row["iteration_s"]


def spreadOfEfficiency(row):
    return efficiency(row) * row["spread_s"] / row["iteration_s"] / 2


def panels(rows, columns, height, width=4.2):
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        squeeze=False,
        constrained_layout=True,
    )
    for axis in axes.flat:
        axis.grid(True, color="0.9", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def drawLines(axis, rows, x, y, errors=None):
    """Draws one line per algorithm. `errors` gives half the length of a point's bar, or the length
    below the point and the one above it."""
    for algorithm in inOrder(row["algorithm"] for row in rows):
        points = sorted(
            (r for r in rows if r["algorithm"] == algorithm and y(r) is not None), key=x
        )
        if not points:
            continue
        colour, marker = styleOf(algorithm)
        lengths = [errors(p) for p in points] if errors else None
        if lengths and isinstance(lengths[0], tuple):
            lengths = list(zip(*lengths))
        axis.errorbar(
            [x(p) for p in points],
            [y(p) for p in points],
            yerr=lengths,
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=1.6,
            capsize=2,
            label=algorithm,
        )


def drawBound(axis, rows, x):
    points = sorted({(x(r), r["compute_s"] / r["bound_s"]) for r in rows})
    axis.plot(
        [p[0] for p in points],
        [p[1] for p in points],
        color="0.6",
        linestyle=":",
        linewidth=1.6,
        zorder=1,
        label="bound",
    )


def drawPaperLine(axis, value, text):
    axis.axhline(value, color=PAPER, linestyle="--", linewidth=1.2, zorder=1)
    axis.annotate(
        text,
        (1, value),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=PAPER,
        fontsize=8,
    )


def marks(axis, values, text="{:g}".format):
    """Puts marks where there are measurements, and nowhere else."""
    axis.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def percentAxis(axis, label):
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.set_ylabel(label)


def settingOf(rows):
    """Describes the setting that all rows have in common, for the title."""
    parts = []
    for key, text in (
        ("workers", "{} workers"),
        ("rate_bits_per_s", "{:g} Gbit/s a host"),
        ("ratio", "ratio {:g}"),
        ("fabric", "{}"),
        ("encrypt", "encryption {}"),
        ("congestion_control", "{}"),
    ):
        values = {row.get(key) for row in rows}
        if len(values) == 1 and None not in values:
            value = values.pop()
            parts.append(text.format(value / 1e9 if key == "rate_bits_per_s" else value))
    return ", ".join(parts)


def setTitle(figure, title, rows):
    figure.suptitle(f"{title}\n{settingOf(rows)}", fontsize=10)
