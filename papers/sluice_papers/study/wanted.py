"""The runs of a study, in the order in which they are made. The rates of a number of workers have
to be tuned before its other runs are known, so the list grows with the results."""

from __future__ import annotations

from collections.abc import Iterator

from sluice_papers.study.algorithms import Algorithm
from sluice_papers.study.results import Results
from sluice_papers.study.settings import Run, Settings
from sluice_papers.study.tuning import nearest

ALONE = Algorithm("bsp")  # what one worker is trained with: there is nobody to be in step with


def wanted(settings: Settings, results: Results) -> list[Run]:
    """Returns all runs that are known to be wanted, whether they are made or not. One seed of all
    comes first, so that an unfinished study shows results of all."""
    return list(dict.fromkeys(_wanted(settings, results, presumes=False)))


def presumed(settings: Settings, results: Results) -> list[Run]:
    """The same with those that are not known yet, at presumed rates: it tells how many there will
    be."""
    return list(dict.fromkeys(_wanted(settings, results, presumes=True)))


def _wanted(settings: Settings, results: Results, *, presumes: bool) -> Iterator[Run]:
    for seed in range(1, max(settings.seeds.values()) + 1):
        for workers in settings.workers:
            if seed > settings.seeds[workers]:
                continue
            for algorithm in algorithms_of(settings, workers):
                yield from _cell(settings, results, algorithm, workers, seed, presumes)


def algorithms_of(settings: Settings, workers: int) -> tuple[Algorithm, ...]:
    return settings.algorithms if workers > 1 else (ALONE,)


def _cell(
    settings: Settings,
    results: Results,
    algorithm: Algorithm,
    workers: int,
    seed: int,
    presumes: bool,
) -> Iterator[Run]:
    factor: float | None = 1.0
    at = nearest(workers, settings.tune)
    if at is not None:
        yield from _tried(results, algorithm, at)
        tuned = results.tuning(algorithm, at)
        yield from (Run(algorithm, at, 1, factor) for factor in tuned.missing)
        if tuned.missing and not presumes:
            return
        factor = tuned.factor or (1.0 if presumes else None)
    if factor is None:  # every rate has diverged: more seeds would show the same
        return
    yield Run(algorithm, workers, seed, factor)
    if settings.dgc and algorithm.sends_gradients and workers == max(settings.workers):
        yield Run(algorithm, workers, seed, factor, dgc=True)


def _tried(results: Results, algorithm: Algorithm, workers: int) -> Iterator[Run]:
    for factor in results.scores(algorithm, workers):
        yield Run(algorithm, workers, 1, factor)
