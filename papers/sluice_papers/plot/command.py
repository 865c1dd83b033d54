"""Draws what `sluice bench` has written, as the figures 7 to 10 and 12 of the P3 paper, and 4 of
Pipe-SGD's.

  sluice plot FILE... -o X.png

Which figure it is follows from the data: `pipe` beside `allreduce` (Pipe-SGD's 4), several sizes of
slice (12), several numbers of workers (10), several ratios (7), samples of the link (8 and 9), else
a comparison of algorithms. Ours are lines and bars; theirs, where their text prints a number, are
marked "paper". What papers/bench/train_vs_ddp.py has written becomes bars beside DDP's; what
`sluice bench collective` has, time against size with the line a + b*M that ranks plan with; what
`sluice simulate` has, time and time over bound against the number of hosts; what `sluice plan` has,
the predicted time by candidate, by bandwidth and by number of hosts.
"""

import argparse
import json
import sys

from sluice_papers.plot.measured import drawCollective, drawTraining
from sluice_papers.plot.p3 import drawComparison, drawScale, drawSlices, drawSweep, drawUtilisation
from sluice_papers.plot.pipe import drawPipe
from sluice_papers.plot.planned import drawPlan
from sluice_papers.plot.simulated import drawSimulated
from sluice_papers.plot.style import byKey

# The fields that a row has to have, by where it comes from.
REPLAY = {"profile", "algorithm", "iteration_s", "bound_s", "compute_s", "speedup_over_kvstore"}
TRAINING = {"example", "workers", "rate", "ratio", "run_s", "bound_s", "over_bound", "speedup",
            "speedup_over_best"}  # fmt: skip
COLLECTIVE = {"engine", "method", "workers", "rate", "codec", "bytes", "p50_ms", "p99_ms",
              "start_ms", "ms_per_byte"}  # fmt: skip
SIMULATED = {"profile", "topology", "rate_bits_per_s", "algorithm", "workers", "iteration_s",
             "iteration_s_range", "bound_s", "over_bound", "over_bound_range"}  # fmt: skip
PLANNED = {"profile", "hosts", "rate_bits_per_s", "choice", "best", "candidates"}

# By the field that only such rows have.
OTHERS = {
    "candidates": (PLANNED, drawPlan),
    "run_s": (TRAINING, drawTraining),
    "engine": (COLLECTIVE, drawCollective),
    "simulated": (SIMULATED, drawSimulated),
}


def kindOf(rows):
    """Returns the fields that a row has to have and the drawing, by the fields that all have. A
    replay has several drawings, so its own is None."""
    for key, kind in OTHERS.items():
        if all(key in row for row in rows):
            return kind
    return REPLAY, None


def drawingFor(rows):
    """Chooses the figure, series first: a series with samples is still a series. One algorithm's
    values make one: algorithms have slice sizes of their own."""
    _, draw = kindOf(rows)
    if draw is not None:
        return draw
    if {"pipe", "allreduce"} <= {row["algorithm"] for row in rows}:
        return drawPipe
    of_an_algorithm = [
        group
        for profile in byKey(rows, "profile").values()
        for group in byKey(profile, "algorithm").values()
    ]
    for key, draw in (("slice_elements", drawSlices), ("workers", drawScale), ("ratio", drawSweep)):
        if any(len({row[key] for row in group}) > 1 for group in of_an_algorithm):
            return draw
    return drawUtilisation if all("utilisation" in row for row in rows) else drawComparison


def readRows(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        rows += [content] if isinstance(content, dict) else content
    if not rows:
        raise ValueError("nothing was measured")
    for row in rows:
        if "strategy" in row:  # the older word
            row.setdefault("algorithm", row["strategy"])
    if len({"simulated" in row for row in rows}) > 1:
        raise ValueError("some rows are simulated and others measured: draw them apart")
    wanted, _ = kindOf(rows)
    for row in rows:
        missing = wanted - row.keys()
        if missing:
            raise ValueError(f"a row lacks {sorted(missing)[0]}")
    return rows


def main():
    parser = argparse.ArgumentParser(
        prog="sluice plot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="what --json of `sluice bench`, `sluice simulate` or `sluice plan` has written",
    )
    parser.add_argument("-o", "--output", required=True, help="the picture: .png, .svg or .pdf")
    arguments = parser.parse_args()
    try:
        rows = readRows(arguments.files)
        drawingFor(rows)(rows).savefig(arguments.output, dpi=150)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        sys.exit(
            f"sluice plot: {error}; give it what 'sluice bench ... --json FILE' or 'sluice "
            "simulate ... --json FILE' has written"
        )


if __name__ == "__main__":
    main()
