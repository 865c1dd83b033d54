"""The paper's tables with our results beside theirs, and further tables. A table has a title, a
note, and cells of text."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice_papers.study import paper
from sluice_papers.study.algorithms import Algorithm
from sluice_papers.study.order import judge
from sluice_papers.study.results import Results, Spread
from sluice_papers.study.statistics import Difference, difference
from sluice_papers.study.time_parts import PARTS

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
        *(rates(results, workers) for workers in results.tuned_at),
        worst(results),
        costs(results),
        parts(results),
    ]
    return [table for table in tables if table.rows]


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.2f}"


def _accuracy(results: Results, algorithm: Algorithm, workers: int, *, dgc: bool = False) -> str:
    spread = results.spread(algorithm, workers, dgc=dgc)
    diverged = len(results.diverged(algorithm, workers, dgc=dgc))
    if spread is None:
        return "diverged" if diverged else _NONE
    return spread.percent() + (f" ({diverged} diverged)" if diverged else "")


def _points(found: Difference | None) -> str:
    """Returns a difference of accuracies in points, with its margin."""
    if found is None:
        return _NONE
    margin = "" if found.margin is None else f" ± {100 * found.margin:.2f}"
    return f"{100 * found.value:+.2f}{margin}"


def table_2(results: Results) -> Table:
    most = max(results.workers, default=0)
    table = Table(
        f"Table II: final accuracy, {most} workers (theirs: {paper.TABLE_2_WORKERS})",
        "Per cent, mean over seeds ± their standard deviation. The loss is against BSP with the "
        "same seeds, in points, with its 95 % margin.",
        ["algorithm", "rate", "ours", "loss", "theirs", "loss"],
    )
    bsp = results.by_seed(Algorithm("bsp"), most)
    for algorithm in results.algorithms:
        theirs = paper.TABLE_2.get("arsgd" if algorithm.reduces else algorithm.text)
        if theirs is None:
            continue
        table.rows.append(
            [
                algorithm.title,
                f"x {results.factor(algorithm, most):g}",
                _accuracy(results, algorithm, most),
                _points(difference(bsp, results.by_seed(algorithm, most))),
                _percent(theirs),
                _percent(paper.TABLE_2["bsp"] - theirs),
            ]
        )
    return table


def table_3(results: Results) -> Table:
    algorithms = results.algorithms
    table = Table(
        "Table III: final accuracy by the number of workers",
        "Per cent, mean over seeds ± standard deviation, at the tuned rate where rates are tuned; "
        "theirs below ours where they have that number of workers. A run that ends at chance level "
        "has diverged and is in no mean.",
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
        "Final accuracy in per cent; what DGC adds, in points by paired seeds with its 95 % "
        "margin; bytes that a worker sends in a step, of those without DGC; and how often a worker "
        "has sent a parameter.",
        ["algorithm", "without, ours", "with, ours", "difference", "bytes", "sent", "without, "
         "theirs", "with, theirs"],
    )  # fmt: skip
    for algorithm in results.algorithms:
        sparse = results.spread(algorithm, most, "sent_bytes_per_step", dgc=True)
        if sparse is None and not results.diverged(algorithm, most, dgc=True):
            continue
        theirs = paper.TABLE_4.get(algorithm.text, (None, None))
        table.rows.append(
            [
                algorithm.title,
                _accuracy(results, algorithm, most),
                _accuracy(results, algorithm, most, dgc=True),
                _points(
                    difference(
                        results.by_seed(algorithm, most, dgc=True), results.by_seed(algorithm, most)
                    )
                ),
                _share(sparse, results.spread(algorithm, most, "sent_bytes_per_step")),
                _times(results.spread(algorithm, most, "updates_per_parameter", dgc=True)),
                _percent(theirs[0]),
                _percent(theirs[1]),
            ]
        )
    return table


def _share(part: Spread | None, whole: Spread | None) -> str:
    return _NONE if part is None or whole is None else f"{100 * part.mean / whole.mean:.1f} %"


def _times(spread: Spread | None) -> str:
    return _NONE if spread is None else f"{spread.mean:.0f} times"


def order(results: Results) -> Table:
    table = Table(
        "The paper's order of final accuracy",
        "One algorithm against another: the difference of their accuracies in points, by paired "
        "seeds, with its 95 % margin. A difference within its margin is not separable.",
        ["workers", "ahead in the paper", "behind", "difference", "theirs", "verdict"],
    )
    for workers in results.workers:
        for verdict in judge(results, workers):
            theirs = verdict.theirs
            table.rows.append(
                [
                    str(workers),
                    verdict.better.title,
                    verdict.worse.title,
                    _points(verdict.difference),
                    _NONE if theirs is None else f"{100 * theirs:+.2f}",
                    verdict.word,
                ]
            )
    return table


def rates(results: Results, workers: int) -> Table:
    """The accuracies of the tuned grid."""
    tried = {one: results.scores(one, workers) for one in results.algorithms}
    factors = sorted({factor for scores in tried.values() for factor in scores})
    table = Table(
        f"Tuned rates: final accuracy at {workers} workers, one seed",
        "The learning rate is that of the rule times the factor. A rate is tuned if both its "
        "neighbours are worse. Other numbers of workers use the factors of the nearest one.",
        ["algorithm", *(f"x {factor:g}" for factor in factors), "tuned"],
    )
    for algorithm, scores in tried.items():
        if not scores:
            continue
        cells = [
            ("diverged" if scores[factor] is None else _percent(scores[factor]))
            if factor in scores
            else _NONE
            for factor in factors
        ]
        table.rows.append([algorithm.title, *cells, results.tuning(algorithm, workers).text])
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
        "Of a mean step: computing (with the pause that fills it up to the pace) and the time in "
        "which it could not go on, in ms; samples/s of all workers, and of what "
        "they would do without waiting; models that a worker sends in a step, measured and by the "
        "paper's formula, times (N-1)/N where a rank's own share does not travel.",
        ["workers", "algorithm", "compute", "blocked", "samples/s", "of linear", "sent", "formula"],
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
                    *(f"{1e3 * mean(key):.1f}" for key in ("compute_s", "blocked_s")),
                    f"{mean('samples_per_s'):.0f}",
                    f"{100 * mean('of_linear'):.0f} %",
                    f"{mean('sent_bytes_per_step') / mean('model_bytes'):.3f}",
                    f"{algorithm.models_sent(workers):.3f}",
                ]
            )
    return table


def parts(results: Results) -> Table:
    table = Table(
        "The parts of a step's time",
        "Of a mean step, in ms, each from events of its own in traces (docs/study.md); what they "
        "leave over is unexplained.",
        ["workers", "algorithm", *PARTS, "unexplained, of the step"],
    )
    for workers in results.workers:
        for algorithm in results.algorithms:
            rows = results.traced(algorithm, workers)
            if not rows:
                continue
            means = [sum(row["parts"][part] for row in rows) / len(rows) for part in PARTS]
            table.rows.append(
                [
                    str(workers),
                    algorithm.title,
                    *(f"{1e3 * seconds:.1f}" for seconds in means),
                    f"{100 * means[-1] / sum(means):.1f} %",
                ]
            )
    return table
