"""The paper's figures 1 to 4 with our measurements, and the losses of table III as a picture, ours
beside theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean

from sluice_papers.study import charts, paper
from sluice_papers.study.algorithms import Algorithm
from sluice_papers.study.charts import Bar, Line
from sluice_papers.study.results import Results, Row
from sluice_papers.study.time_parts import PARTS

_COLOURS = ("#56B4E9", "#009E73", "#D55E00", "#E69F00", "#000000")


def by_epoch(results: Results, workers: int) -> str:
    """Figure 1a."""
    return _by_epoch(workers, _errors(results, workers, lambda e: e["epoch"]))


def with_dgc(results: Results, workers: int) -> str:
    """Shows one algorithm's error by epoch, with DGC and without."""
    sparse = _errors(results, workers, lambda e: e["epoch"], dgc=True)
    dashed = [replace(line, label=f"{line.label}, DGC", dash=charts.DASHES[1]) for line in sparse]
    return _by_epoch(workers, [*_errors(results, workers, lambda e: e["epoch"]), *dashed])


def by_time(results: Results, workers: int) -> str:
    """Figure 1b."""
    return charts.lines(
        f"Error by time, {workers} workers",
        "seconds",
        "test error, per cent",
        _errors(results, workers, lambda e: e["seconds"]),
    )


def losses(results: Results) -> str:
    """Shows the losses of table III as a picture."""
    lines = []
    for algorithm in results.algorithms:
        points, spreads = [], []
        for workers in results.workers:
            bsp, own = results.spread(Algorithm("bsp"), workers), results.spread(algorithm, workers)
            if bsp is not None and own is not None:
                points.append((float(workers), 100 * (own.mean - bsp.mean)))
                spreads.append(100 * own.deviation)
        lines.append(_line(results, algorithm, points, spreads))
    return charts.lines(
        "Accuracy against BSP's: ours", "workers", "points", lines, x_ticks=results.workers
    )


def their_losses(results: Results) -> str:
    """Table III, theirs."""
    lines = []
    for algorithm in results.algorithms:
        points = [
            (float(n), 100 * (row[algorithm.text] - row["bsp"]))
            for n, row in paper.TABLE_3.items()
            if algorithm.text in row
        ]
        lines.append(_line(results, algorithm, points))
    shown = [line for line in lines if line.points]
    return charts.lines(
        "Accuracy against BSP's: theirs", "workers", "points", shown, x_ticks=sorted(paper.TABLE_3)
    )


def throughput(results: Results) -> str:
    """Figure 2, in units of a single worker, so that numbers of workers with different paces can be
    compared."""
    lines = [Line("linear", [(float(n), float(n)) for n in results.workers], "#bbbbbb", "2 4")]
    for algorithm in results.algorithms:
        points = []
        for workers in results.workers:
            share = results.spread(algorithm, workers, "of_linear")
            if share is not None:
                points.append((float(workers), workers * share.mean))
        lines.append(_line(results, algorithm, points))
    return charts.lines(
        "Throughput", "workers", "in single workers", lines, x_ticks=results.workers
    )


def breakdown(results: Results, workers: int) -> str:
    """Figure 3, of the algorithms whose runs were traced. Empty if there is none."""
    bars = []
    for algorithm in results.algorithms:
        rows = results.traced(algorithm, workers)
        if rows:
            means = [1e3 * mean(row["parts"][part] for row in rows) for part in PARTS]
            bars.append(Bar(algorithm.title, means))
    kinds = list(zip(PARTS, _COLOURS, strict=True))
    title = f"Where a step's time goes, {workers} workers"
    return charts.bars(title, "ms", bars, kinds) if bars else ""


def compressed(results: Results, workers: int) -> str:
    """Figure 4. Here only DGC can be switched off."""
    bars = []
    for algorithm in results.algorithms:
        dense = results.spread(algorithm, workers, "of_linear")
        sparse = results.spread(algorithm, workers, "of_linear", dgc=True)
        if dense is not None and sparse is not None:
            bars.append(Bar(algorithm.title, [workers * dense.mean, workers * sparse.mean]))
    names = (("without DGC", "#56B4E9"), ("with DGC", "#0072B2"))
    return charts.bars(
        f"Throughput with DGC, {workers} workers",
        "in single workers",
        bars,
        names,
        is_stacked=False,
    )


def _by_epoch(workers: int, lines: list[Line]) -> str:
    return charts.lines(
        f"Error by epoch, {workers} workers", "epoch", "test error, per cent", lines
    )


def _errors(
    results: Results, workers: int, place: Callable[[Row], float], *, dgc: bool = False
) -> list[Line]:
    lines = []
    for algorithm in results.algorithms:
        rows: list[Row] = results.of(algorithm, workers, dgc=dgc)
        epochs = zip(*(row["epochs"] for row in rows), strict=True)
        points = [
            (mean(place(e) for e in seeds), 100 - 100 * mean(e["accuracy"] for e in seeds))
            for seeds in epochs
        ]
        if points:
            lines.append(_line(results, algorithm, points))
    return lines


def _line(
    results: Results,
    algorithm: Algorithm,
    points: list[tuple[float, float]],
    spreads: list[float] | None = None,
) -> Line:
    family = [one for one in results.algorithms if one.name == algorithm.name]
    dash = charts.DASHES[family.index(algorithm) % len(charts.DASHES)]
    return Line(algorithm.title, points, charts.COLOURS[algorithm.name], dash, spreads or [])
