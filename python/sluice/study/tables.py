"""The paper's tables with our results beside theirs, and further tables. A table has a title, a
note, and cells of text."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice.study import paper
from sluice.study.algorithms import Algorithm
from sluice.study.order import judge
from sluice.study.results import Results

_NONE = "-"


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return f"### {self.title}\n\n{self.note}\n\n{table}\n"


def all_tables(results: Results) -> list[Table]:
    tables = [
        table_2(results),
        table_3(results),
        table_4(results),
        order(results),
        rates(results),
        worst(results),
        costs(results),
    ]
    return [table for table in tables if table.rows]


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.2f}"


def _accuracy(results: Results, algorithm: Algorithm, workers: int, *, dgc: bool = False) -> str:
    spread = results.spread(algorithm, workers, dgc=dgc)
    return _NONE if spread is None else spread.percent()


def table_2(results: Results) -> Table:
    most = max(results.workers, default=0)
    table = Table(
        f"Table II: final accuracy, {most} workers (theirs: {paper.TABLE_2_WORKERS})",
        "Per cent; the loss is against BSP. Ours is the mean over seeds ± their standard "
        "deviation.",
        ["algorithm", "ours", "loss", "theirs", "loss"],
    )
    mean_of_bsp = results.spread(Algorithm("bsp"), most)
    for algorithm in results.algorithms:
        theirs = paper.TABLE_2.get(algorithm.text)
        ours = results.spread(algorithm, most)
        if theirs is None or ours is None:
            continue
        loss = None if mean_of_bsp is None else mean_of_bsp.mean - ours.mean
        table.rows.append(
            [
                algorithm.title,
                ours.percent(),
                _percent(loss),
                _percent(theirs),
                _percent(paper.TABLE_2["bsp"] - theirs),
            ]
        )
    return table


def table_3(results: Results) -> Table:
    algorithms = [
        one for one in results.algorithms if any(results.of(one, n) for n in results.workers)
    ]
    table = Table(
        "Table III: final accuracy by the number of workers",
        "Per cent, mean over seeds ± standard deviation; theirs below ours where they have that "
        "number of workers.",
        ["workers", *(algorithm.title for algorithm in algorithms)],
    )
    for workers in results.workers:
        table.rows.append(
            [f"{workers}, ours", *(_accuracy(results, one, workers) for one in algorithms)]
        )
        if theirs := paper.TABLE_3.get(workers):
            table.rows.append(
                [f"{workers}, theirs", *(_percent(theirs.get(one.text)) for one in algorithms)]
            )
    return table


def table_4(results: Results) -> Table:
    most = max(results.workers, default=0)
    table = Table(
        f"Table IV: deep gradient compression, {most} workers (theirs: 24)",
        "Final accuracy in per cent, and bytes that a worker sends in a step, with DGC of those "
        "without.",
        ["algorithm", "without, ours", "with, ours", "bytes", "without, theirs", "with, theirs"],
    )
    for algorithm in results.algorithms:
        dense = results.spread(algorithm, most, "sent_bytes_per_step")
        sparse = results.spread(algorithm, most, "sent_bytes_per_step", dgc=True)
        if sparse is None:
            continue
        theirs = paper.TABLE_4.get(algorithm.text, (None, None))
        table.rows.append(
            [
                algorithm.title,
                _accuracy(results, algorithm, most),
                _accuracy(results, algorithm, most, dgc=True),
                _NONE if dense is None else f"{100 * sparse.mean / dense.mean:.1f} %",
                _percent(theirs[0]),
                _percent(theirs[1]),
            ]
        )
    return table


def order(results: Results) -> Table:
    table = Table(
        "The paper's order of final accuracy",
        "Each group against the next: the difference of their mean accuracies in points, with its "
        "95 % margin over seeds. A difference within its margin is not separable.",
        ["workers", "ahead in the paper", "behind", "difference", "verdict"],
    )
    for workers in results.workers:
        for verdict in judge(results, workers):
            margin = "" if verdict.margin is None else f" ± {100 * verdict.margin:.2f}"
            difference = f"{100 * verdict.difference:+.2f}{margin}"
            table.rows.append(
                [str(workers), verdict.better, verdict.worse, difference, verdict.word]
            )
    return table


def rates(results: Results) -> Table:
    """The accuracies of the tuned grid."""
    factors, workers = results.factors, results.tuned_workers
    table = Table(
        f"Tuned rates: final accuracy at {workers} workers, one seed",
        "The learning rate is that of the rule times the factor. A rate is tuned only if "
        "both its neighbours in the grid are worse; a best value at the edge is not.",
        ["algorithm", *(f"x {factor:g}" for factor in factors), "best"],
    )
    if workers is None:
        return table
    for algorithm in results.algorithms:
        found = {factor: results.of(algorithm, workers, factor=factor) for factor in factors}
        scores = {factor: rows[0]["accuracy"] for factor, rows in found.items() if rows}
        best = max(scores, key=lambda factor: scores[factor], default=None)
        cells = [_percent(scores.get(factor)) for factor in factors]
        table.rows.append(
            [
                algorithm.title,
                *cells,
                _NONE if best is None else f"x {best:g}: {_percent(scores[best])}",
            ]
        )
    return table


def worst(results: Results) -> Table:
    table = Table(
        "The worst single worker",
        "Of algorithms whose workers have models of their own: what is scored, and the worst "
        "worker's model, in per cent.",
        [
            "algorithm",
            *(f"{n} workers: {what}" for n in results.workers for what in ("scored", "worst")),
        ],
    )
    for algorithm in results.algorithms:
        if not algorithm.has_own_models:
            continue
        cells = []
        for workers in results.workers:
            alone = results.spread(algorithm, workers, "worst_accuracy")
            cells += [
                _accuracy(results, algorithm, workers),
                _NONE if alone is None else alone.percent(),
            ]
        table.rows.append([algorithm.title, *cells])
    return table


def costs(results: Results) -> Table:
    table = Table(
        "Time and bytes",
        "Of a mean step: computing (with the pause that fills it up to the pace), waiting for "
        "other workers, and the way of the bytes, in ms; samples/s of all workers, and of what "
        "they would do without waiting; models that a worker sends in a step, measured and by the "
        "paper's formula, times (N-1)/N where a rank's own share does not travel.",
        [
            "workers",
            "algorithm",
            "compute",
            "wait",
            "bytes' way",
            "samples/s",
            "of linear",
            "sent",
            "formula",
        ],
    )
    for workers in results.workers:
        for algorithm in results.algorithms:
            rows = results.of(algorithm, workers)
            if not rows:
                continue

            def mean(key: str, rows: list[dict[str, float]] = rows) -> float:
                return sum(row[key] for row in rows) / len(rows)

            table.rows.append(
                [
                    str(workers),
                    algorithm.title,
                    *(
                        f"{1e3 * mean(key):.1f}"
                        for key in ("compute_s", "wait_s", "communication_s")
                    ),
                    f"{mean('samples_per_s'):.0f}",
                    f"{100 * mean('of_linear'):.0f} %",
                    f"{mean('sent_bytes_per_step') / mean('model_bytes'):.3f}",
                    f"{algorithm.models_sent(workers):.3f}",
                ]
            )
    return table
