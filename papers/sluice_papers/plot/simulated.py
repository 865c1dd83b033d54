"""Simulated clusters: what `sluice simulate` has written."""

from sluice_papers.plot.style import byKeys, drawLines, marks, panels, setTitle, titleOf


def hosts(row):
    return row["workers"]


def rangeAround(key, scale=1):
    """Returns a function that gives the way from a row's value down to the least of its seeds, and
    up to the greatest."""

    def around(row):
        least, greatest = row[key + "_range"]
        return scale * (row[key] - least), scale * (greatest - row[key])

    return around


def drawSimulated(rows):
    """Draws the time of an iteration against the number of hosts, with the bound, and the time over
    the bound below it. Bars go from the least to the greatest of the seeds."""
    clusters = byKeys(rows, ("profile", "topology", "rate_bits_per_s"))
    figure, axes = panels(2, len(clusters), 3.0)
    for column, ((profile, topology, rate), mine) in enumerate(clusters.items()):
        above, below = axes[:, column]
        bound = sorted({(hosts(row), 1e3 * row["bound_s"]) for row in mine})
        above.plot(*zip(*bound), color="0.6", linestyle=":", linewidth=1.6, label="bound")
        milliseconds = lambda row: 1e3 * row["iteration_s"]
        drawLines(above, mine, hosts, milliseconds, rangeAround("iteration_s", 1e3))
        above.set_title(f"{titleOf(profile)}, {topology}, {rate / 1e9:g} Gbit/s")
        above.set_ylabel("ms per iteration")
        above.set_ylim(0)
        drawLines(below, mine, hosts, lambda row: row["over_bound"], rangeAround("over_bound"))
        below.axhline(1, color="0.6", linestyle=":", linewidth=1.6)
        below.set_ylabel("iteration over bound")
        below.set_xlabel("hosts")
        for axis in (above, below):
            axis.set_xscale("log", base=2)
            marks(axis, [hosts(row) for row in mine])
    axes[0][0].legend(frameon=False, fontsize=8, loc="lower right")
    setTitle(figure, "Simulated clusters", rows)
    return figure
