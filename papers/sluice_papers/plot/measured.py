"""Measurements that no paper has a figure for: real training beside DDP, and all-reduces."""

from statistics import median

from sluice_papers.plot.style import STYLE, byKeys, panels, styleOf


def drawTraining(rows):
    """Draws real training beside DDP: the time of an iteration, a panel for each file, and the
    bound that no schedule beats."""
    figure, axes = panels(1, len(rows), 3.6, 4.2)
    for axis, row in zip(axes[0], rows):
        for position, (name, runs) in enumerate(row["run_s"].items()):
            times = sorted(1e3 * one for one in runs)
            middle = median(times)
            axis.bar(
                position,
                middle,
                yerr=[[middle - times[0]], [times[-1] - middle]],
                width=0.7,
                capsize=3,
                color=STYLE["sluice"][0] if name == "sluice" else "0.65",
                error_kw={"ecolor": "0.3", "linewidth": 1},
            )
            axis.annotate(
                f"{middle:.0f}",
                (position, middle),
                xytext=(9, 2),
                textcoords="offset points",
                fontsize=8,
            )
        axis.set_xticks(range(len(row["run_s"])), list(row["run_s"]), fontsize=8)
        axis.grid(False, axis="x")
        axis.axhline(
            1e3 * row["bound_s"],
            color="#0072B2",
            linestyle="--",
            linewidth=1.4,
            label=f"bound: sluice takes {row['over_bound']:.2f} of it",
        )
        axis.set_ylim(0, axis.get_ylim()[1] * 1.15)
        axis.set_title(
            f"{row['example']}, {row['workers']} workers, {row['rate'] / 1e6:.0f} Mbit/s\n"
            f"wire over compute {row['ratio']:.2g}; {row['speedup']:.2f} x DDP, "
            f"{row['speedup_over_best']:.2f} x its best",
            fontsize=9,
        )
        axis.set_ylabel("ms per iteration")
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def drawCollective(rows):
    """Draws all-reduces: how long they take against their size, up to one in a hundred, and the
    line fitted to each way of doing it; and what part of the line's time each size took."""
    figure, (axes,) = panels(1, 2, 3.8, 5.2)
    settings = ("engine", "method", "workers", "rate", "codec")
    told = [key for key in settings if len({row[key] for row in rows}) > 1] or ["method"]
    for kind, mine in sorted(byKeys(rows, settings).items()):
        name = ", ".join(str(value) for key, value in zip(settings, kind) if key in told)
        points = sorted(mine, key=lambda row: row["bytes"])
        sizes, times = [p["bytes"] for p in points], [p["p50_ms"] for p in points]
        lines = [p["start_ms"] + p["ms_per_byte"] * p["bytes"] for p in points]
        colour, marker = styleOf(name)
        start, slope = points[0]["start_ms"], points[0]["ms_per_byte"]
        axes[0].errorbar(
            sizes,
            times,
            yerr=[[0] * len(points), [p["p99_ms"] - p["p50_ms"] for p in points]],
            color=colour,
            marker=marker,
            markersize=5,
            linestyle="none",
            capsize=2,
            label=f"{name}: {1e3 * start:.0f} us + {1e6 * slope:.2f} ns a byte",
        )
        between = [sizes[0] * (sizes[-1] / sizes[0]) ** (i / 100) for i in range(101)]
        axes[0].plot(
            between,
            [max(start + slope * size, 1e-6) for size in between],
            color=colour,
            linestyle="--",
            linewidth=1.2,
        )
        axes[1].plot(
            sizes,
            [time / line for time, line in zip(times, lines)],
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=1.6,
            label=name,
        )
    axes[1].axhline(1, color="0.6", linestyle=":", linewidth=1.6)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("ms, half of the calls (bars: up to 99 %)")
    axes[1].set_ylabel("time over a + bM")
    axes[1].set_ylim(0, 1.15 * axes[1].get_ylim()[1])
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("bytes")
    axes[0].legend(frameon=False, fontsize=8)
    common = {key: rows[0][key] for key in settings if key not in told}
    parts = [f"{common['workers']} workers"] if "workers" in common else []
    parts += [f"{common['rate']} a host"] if common.get("rate") else []
    parts += [common["engine"]] if "engine" in common else []
    parts += [f"codec {common['codec']}"] if common.get("codec", "none") != "none" else []
    figure.suptitle("All-reduces\n" + ", ".join(parts), fontsize=10)
    return figure
