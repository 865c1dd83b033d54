"""One run, from settings to a row of results. Also finds a pace, the least time of a step, that all
workers can keep."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from sluice_papers.study import network, ranks, schedule, time_parts
from sluice_papers.study.algorithms import Algorithm
from sluice_papers.study.board import Board
from sluice_papers.study.data import Data
from sluice_papers.study.results import Row
from sluice_papers.study.settings import Run, Settings
from sluice_papers.study.worker import Task, Worker, options_of

_ROOM = 1.2  # times the time of a step when all workers run as fast as they can
_TRIED = 60  # steps of each worker, to measure that time
_SPARSITY = 0.999  # the default of dgc-sparsity
_TRACED = {"SLUICE_TRACE_EVENTS": "10000"}  # the latest ones of each rank: some dozens of steps


class RunError(Exception):
    """A run that did not end well, in one line."""


class Runner:
    """Makes runs. It holds the data, which the workers inherit."""

    def __init__(self, settings: Settings, data: Data) -> None:
        self._settings = settings
        self._data = data
        self._parameters = network.size(settings.model)

    def batches(self, workers: int) -> int:
        """Returns the number of batches of all epochs. An epoch has as many batches as all workers
        can share evenly."""
        return (
            self._settings.epochs
            * (len(self._data.train_x) // self._settings.batch // workers)
            * workers
        )

    def expected_seconds(self, run: Run, pace: float) -> float:
        """Returns the least time that a run takes."""
        slowest = (
            max(self._settings.straggler.values(), default=1.0)
            if run.algorithm.waits_for_others
            else 1.0
        )
        return self.batches(run.workers) / run.workers * pace * slowest

    def find_pace(self, workers: int) -> float:
        """Returns the pace in seconds, rounded up to half a millisecond."""
        if self._settings.pace is not None:
            return self._settings.pace
        task = self._task(Run(Algorithm("bsp"), workers, seed=0), pace=0.0)
        short = min(self.batches(workers) // self._settings.epochs, _TRIED * workers)
        task = replace(task, epochs=1, batches=short, straggler={}, scores=False)
        board = self._train(task, ranks.LOOPBACK, timeout=180)
        seconds = float((board.crossed[0] / board.steps).mean())
        return math.ceil(2e3 * _ROOM * seconds) / 2e3

    def run(self, run: Run, pace: float) -> Row:
        task = self._task(run, pace)
        with contextlib.ExitStack() as stack:
            place = ranks.LOOPBACK
            if self._settings.rate is not None:
                place = stack.enter_context(ranks.lab(run.workers, self._settings.rate))
            traces = None
            if self._settings.traces:
                traces = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-study-")))
            timeout = 120 + 5 * self.expected_seconds(run, pace)
            board = self._train(task, place, timeout, traces)
            parts = None if traces is None else _parts(run, board, traces)
        return {**self._row(task, board), "parts": parts}

    def _task(self, run: Run, pace: float) -> Task:
        settings = self._settings
        generator = torch.Generator().manual_seed(run.seed)
        return Task(
            run=run,
            model=settings.model,
            options=settings.options,
            epochs=settings.epochs,
            batch=settings.batch,
            batches=self.batches(run.workers),
            schedule=schedule.make(
                run.algorithm, settings.learning_rate, settings.batch, run.workers, run.factor
            ),
            pace=pace,
            straggler=settings.straggler,
            jitter=settings.jitter,
            orders=[
                torch.randperm(len(self._data.train_x), generator=generator)
                for _ in range(settings.epochs)
            ],
            data=self._data,
        )

    def _train(
        self, task: Task, place: ranks.Place, timeout: float, traces: Path | None = None
    ) -> Board:
        board = Board(task.run.workers, task.epochs, self._parameters, task.batches)

        def work(rank: int) -> None:
            try:
                Worker(rank, task, board).run()
            except BaseException as error:
                board.write_error(rank, error)
                raise

        log = self._log(task.run)
        variables = {} if traces is None else {**_TRACED, "SLUICE_TRACE": str(traces)}
        failures = ranks.run(task.run.workers, place, work, log, timeout, variables)
        if failures:
            rank, how = next(iter(failures.items()))
            raise RunError(f"rank {rank}: {board.error(rank) or how}")
        log.unlink(missing_ok=True)
        return board

    def _log(self, run: Run) -> Path:
        folder = self._settings.output / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{run.key}.txt"

    def _row(self, task: Task, board: Board) -> Row:
        run, steps = task.run, int(board.steps.sum())
        scores = [
            network.accuracy(
                self._settings.model, self._scored(run.algorithm, board, epoch), self._data
            )
            for epoch in range(task.epochs)
        ]
        # An epoch ends when rank 0 ends it; the training ends with the last worker.
        ended = [float(board.crossed[epoch, 0]) for epoch in range(task.epochs - 1)] + [
            float(board.crossed[-1].max())
        ]
        own = board.own_accuracy.tolist() if run.algorithm.has_own_models else None
        return {
            **row_of(run),
            "failed": None,
            "options": options_of(task),
            "peak_rate": task.schedule.peak,
            "pace_s": task.pace,
            "epochs": [
                {"epoch": number + 1, "seconds": round(second, 3), "accuracy": round(score, 6)}
                for number, (second, score) in enumerate(zip(ended, scores, strict=True))
            ],
            "accuracy": round(scores[-1], 6),
            "worst_accuracy": None if own is None else round(min(own), 6),
            "seconds": round(ended[-1], 3),
            "samples_per_s": round(steps * task.batch / ended[-1], 1),
            "of_linear": round(steps * task.pace / run.workers / ended[-1], 4),
            "steps_by_worker": board.steps.tolist(),
            "compute_s": round(float(board.computed.sum()) / steps, 6),
            "blocked_s": round(float(board.blocked.sum()) / steps, 6),
            "late_steps": round(int(board.late.sum()) / steps, 4),
            "sent_bytes_per_step": round(int(board.sent.sum()) / steps),
            "model_bytes": 4 * self._parameters,
            "updates_per_parameter": _updates(task, steps),
        }

    @staticmethod
    def _scored(algorithm: Algorithm, board: Board, epoch: int) -> Tensor:
        return (
            board.models[epoch].double().mean(0).float()
            if algorithm.is_gossip
            else board.scored[epoch]
        )


def row_of(run: Run) -> Row:
    """Returns the columns that identify a run in its row."""
    return {
        "algorithm": run.algorithm.text,
        "workers": run.workers,
        "seed": run.seed,
        "rate_factor": run.factor,
        "dgc": run.dgc,
    }


def _parts(run: Run, board: Board, traces: Path) -> time_parts.Parts | None:
    """Returns the parts of a mean step's time; None where no server explains the waits."""
    if not run.algorithm.has_servers:
        return None
    spans = {
        rank: [time_parts.Span(*row) for row in board.spans[rank, : int(steps)].tolist()]
        for rank, steps in enumerate(board.steps.tolist())
    }
    found = time_parts.mean_step(time_parts.read(traces), spans, run.algorithm.waits_for_others)
    return None if found is None else {part: round(value, 6) for part, value in found.items()}


def _updates(task: Task, steps: int) -> float | None:
    """Returns how often a worker has sent a parameter, by its sparsity; None without DGC."""
    if not task.run.dgc:
        return None
    share = 1 - float(task.options.get("dgc_sparsity", _SPARSITY))
    return round(share * steps / task.run.workers, 1)
