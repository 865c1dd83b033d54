"""One run, from settings to a row of results. Also finds a pace, the least time of a step, that all
workers can keep."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sluice.study import network, ranks, schedule
from sluice.study.algorithms import Algorithm
from sluice.study.board import Board
from sluice.study.data import Data
from sluice.study.results import Row
from sluice.study.settings import Run, Settings
from sluice.study.worker import Task, Worker, options_of

_ROOM = 1.2  # times the time of a step when all workers run as fast as they can
_TRIED = 60  # steps of each worker, to measure that time


class RunError(Exception):
    """A run that did not end well, in one line."""


class Runner:
    """Makes runs. It holds the data, which the workers inherit."""

    def __init__(self, settings: Settings, data: Data) -> None:
        self._settings = settings
        self._data = data
        self._parameters = network.size()

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
            board = self._train(task, place, timeout=120 + 5 * self.expected_seconds(run, pace))
        return self._row(task, board)

    def _task(self, run: Run, pace: float) -> Task:
        settings = self._settings
        generator = torch.Generator().manual_seed(run.seed)
        return Task(
            run=run,
            epochs=settings.epochs,
            batch=settings.batch,
            batches=self.batches(run.workers),
            schedule=schedule.make(
                run.algorithm, settings.learning_rate, settings.batch, run.workers, run.factor
            ),
            pace=pace,
            straggler=settings.straggler,
            orders=[
                torch.randperm(len(self._data.train_x), generator=generator)
                for _ in range(settings.epochs)
            ],
            data=self._data,
        )

    def _train(self, task: Task, place: ranks.Place, timeout: float) -> Board:
        board = Board(task.run.workers, task.epochs, self._parameters, task.batches)

        def work(rank: int) -> None:
            try:
                Worker(rank, task, board).run()
            except BaseException as error:
                board.write_error(rank, error)
                raise

        log = self._log(task.run)
        failures = ranks.run(task.run.workers, place, work, log, timeout)
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
            network.accuracy(self._scored(run.algorithm, board, epoch), self._data)
            for epoch in range(task.epochs)
        ]
        # An epoch ends when rank 0 ends it; the training ends with the last worker.
        ended = [float(board.crossed[epoch, 0]) for epoch in range(task.epochs - 1)] + [
            float(board.crossed[-1].max())
        ]
        blocked, communicated = blocked_and_communicated(
            board.blocked, board.steps, run.algorithm.waits_for_others
        )
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
            "wait_s": round(blocked - communicated, 6),
            "communication_s": round(communicated, 6),
            "late_steps": round(int(board.late.sum()) / steps, 4),
            "sent_bytes_per_step": round(int(board.sent.sum()) / steps),
            "model_bytes": 4 * self._parameters,
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


def blocked_and_communicated(
    blocked: Tensor, steps: Tensor, waits_for_others: bool
) -> tuple[float, float]:
    """Returns the seconds of a mean step in which a worker could not go on, and the part of them in
    which bytes travelled. If workers wait for each other, the one that waits least in a step waits
    for the bytes only, and its wait is that part. Otherwise no worker waits for another."""
    total = float(blocked.sum()) / int(steps.sum())
    if not waits_for_others:
        return total, total
    together = blocked[:, : int(steps.min())]
    return total, min(total, float(together.min(0).values.mean()))
