"""The work of one rank of a run: it trains on its batches at its pace, and leaves the results on
the board."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import sluice
from sluice_papers.study import network, schedule
from sluice_papers.study.board import Board
from sluice_papers.study.data import Data
from sluice_papers.study.settings import Run

_WITH_DGC = ("bsp", "asp", "ssp", "arsgd", "wfbp")
# The options of sluice.distribute() that a study passes on, and the algorithms that take them.
OPTIONS = {
    "servers": ("bsp", "asp", "ssp", "easgd"),
    "placement": ("bsp", "asp", "ssp", "easgd"),
    "momentum_at": ("asp", "ssp"),
    "overlap": ("asp", "ssp"),
    "dgc_sparsity": _WITH_DGC,
    "dgc_masking": _WITH_DGC,
}
_MOVING_RATE = 0.9  # easgd's alpha, times the number of workers
_LATE = 1.1  # a step is late if it takes longer than this times the pace


@dataclass(frozen=True)
class Task:
    run: Run
    model: str
    options: Mapping[str, str]  # of sluice.distribute(), besides those of the run
    epochs: int
    batch: int  # samples
    batches: int  # batches of all workers in all epochs
    schedule: schedule.Schedule
    pace: float  # least seconds of a step, without waiting
    straggler: dict[int, float]
    jitter: tuple[float, float]  # share of steps that take longer, and how much
    orders: list[Tensor]  # orders of the samples, by epoch
    data: Data
    scores: bool = True  # false: only the time counts

    @property
    def batches_per_epoch(self) -> int:
        return self.batches // self.epochs


def options_of(task: Task) -> dict[str, Any]:
    """Returns the options for sluice.distribute()."""
    options: dict[str, Any] = {"algorithm": task.run.algorithm.text, **_taken(task)}
    if task.run.algorithm.is_gossip:
        options["gossip_seed"] = str(task.run.seed)  # a seed's gossip is its own, too
    if task.run.dgc:
        # A stage takes one of 90 epochs, as in the original.
        steps = task.batches / task.run.workers
        options |= {"dgc": "on", "dgc_warm_up": str(max(1, round(steps / 90)))}
    return options


def _taken(task: Task) -> dict[str, str]:
    """Returns those of the study's options that the run's algorithm takes."""
    name = task.run.algorithm.name
    return {
        option: value
        for option, value in task.options.items()
        if name in OPTIONS[option] and (task.run.dgc or not option.startswith("dgc"))
    }


class Worker:
    def __init__(self, rank: int, task: Task, board: Board) -> None:
        self._rank = rank
        self._task = task
        self._board = board
        self._algorithm = task.run.algorithm
        self._pace = task.pace * task.straggler.get(rank, 1.0)
        self._chance = random.Random(f"{task.run.seed} {rank}")  # of jitter
        self._clock = 0  # steps
        self._began = 0.0
        self._ended = 0.0  # when the last step did, or what came after it
        self._paused = 0.0  # seconds since then that do not count as training
        self._backward = 0.0  # seconds of a backward pass
        self._sent_before = 0
        self._model, self._optimizer = sluice.distribute(
            network.make(task.model, task.run.seed),
            lambda parameters: torch.optim.SGD(
                parameters,
                lr=task.schedule.start,
                momentum=schedule.MOMENTUM,
                weight_decay=schedule.WEIGHT_DECAY,
            ),
            # Without a server optimizer an all-reduce hands out mean gradients, as in the paper.
            # DGC makes the step itself.
            server_optimizer=not task.run.algorithm.reduces or task.run.dgc,
            broadcast_buffers=False,
            **options_of(task),
        )
        self._engine = self._optimizer._late.engine

    def run(self) -> None:
        epoch = 0
        for batch in self._batches():
            if self._clock == 1:  # the first step has planned the others
                self._start()
            if batch // self._task.batches_per_epoch > epoch:
                self._end_epoch(epoch)
                epoch = batch // self._task.batches_per_epoch
            self._step(batch)
        self._optimizer.synchronize()
        self._stop()
        if self._task.scores:
            self._finish(self._task.epochs - 1)
        sluice.barrier()

    def _batches(self) -> Iterator[int]:
        """Yields numbers of batches. If workers keep step, each one takes every N-th batch.
        Otherwise a free worker takes the next one, so that a slow worker does less and does not
        hold up the end."""
        if self._algorithm.keeps_step:
            yield from range(self._rank, self._task.batches, self._task.run.workers)
            return
        while (batch := self._board.take_batch()) < self._task.batches:
            yield batch

    def _start(self) -> None:
        sluice.barrier()
        self._sent_before = self._engine.bytes_moved[0]
        self._began = self._ended = time.perf_counter()

    def _stop(self) -> None:
        board, rank = self._board, self._rank
        board.crossed[self._task.epochs - 1, rank] = self._now()
        board.sent[rank] = self._engine.bytes_moved[0] - self._sent_before

    def _now(self) -> float:
        return time.perf_counter() - self._began - self._paused

    def _step(self, batch: int) -> None:
        task = self._task
        begun, waited = time.perf_counter(), self._engine.seconds_waited
        epoch, number = divmod(batch, task.batches_per_epoch)
        chosen = task.orders[epoch][number * task.batch : (number + 1) * task.batch]
        # Workers that keep step have the same rate in it, though their batches have other numbers.
        done = batch - self._rank if self._algorithm.keeps_step else batch
        self._optimizer.param_groups[0]["lr"] = task.schedule.rate(done / task.batches)
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            self._model(task.data.train_x[chosen]), task.data.train_y[chosen]
        )
        share, longer = task.jitter
        pace = self._pace * (longer if self._chance.random() < share else 1.0)
        end = begun + (self._engine.seconds_waited - waited) + pace
        # Gradients leave during backward, so a step is stretched before backward and not after it.
        _sleep_until(end - self._backward)
        before = time.perf_counter()
        loss.backward()
        self._backward += 0.2 * (time.perf_counter() - before - self._backward)
        _sleep_until(end)
        self._optimizer.step()
        self._count(begun, self._engine.seconds_waited - waited)

    def _count(self, begun: float, blocked: float) -> None:
        """Counts the time of a step on the board."""
        ended = time.perf_counter()
        if self._clock > 0:
            board, rank = self._board, self._rank
            computed = ended - begun - blocked
            board.blocked[rank] += blocked
            board.spans[rank, board.steps[rank]] = torch.tensor(
                (self._ended, begun, ended), dtype=torch.float64
            )
            board.steps[rank] += 1
            board.computed[rank] += computed
            board.late[rank] += int(computed > _LATE * self._pace)
        self._clock += 1
        self._ended = ended

    def _end_epoch(self, epoch: int) -> None:
        begun = time.perf_counter()
        self._board.crossed[epoch, self._rank] = self._now()
        if self._task.scores:
            if self._algorithm.has_own_models:
                self._board.models[epoch, self._rank] = network.flat(self._model)
            if self._rank == 0:
                self._board.scored[epoch] = self._scored()
        self._ended = time.perf_counter()
        self._paused += self._ended - begun

    def _finish(self, epoch: int) -> None:
        """Writes the final models after the last step of all workers, so that the final score is
        exact."""
        if self._algorithm.name == "ssp":
            self._catch_up()
        sluice.barrier()
        own = network.flat(self._model)
        if self._rank == 0:
            if self._algorithm.name == "asp":
                self._idle_step()  # the server answers with its model
            self._board.scored[epoch] = self._scored()
        if self._algorithm.has_own_models:
            self._board.models[epoch, self._rank] = own
            self._board.own_accuracy[self._rank] = network.accuracy(
                self._task.model, own, self._task.data
            )

    def _scored(self) -> Tensor:
        return self._centre() if self._algorithm.name == "easgd" else network.flat(self._model)

    def _catch_up(self) -> None:
        """With ssp: makes steps that change nothing, until no worker waits any more and this
        worker's copy has all updates."""
        board = self._board
        board.clocks[self._rank] = self._clock
        bound = int(self._algorithm.argument or 0)
        while not (bool(board.clocks.all()) and self._clock > int(board.clocks.max()) + bound):
            self._idle_step()
            self._clock += 1
        self._optimizer.synchronize()

    def _centre(self) -> Tensor:
        """Returns the centre of easgd. In one of tau idle steps the server draws worker and centre
        together, and the distance that the worker moves gives the position of the centre."""
        before = network.flat(self._model).double()
        for _ in range(int(self._algorithm.argument or 1)):
            self._idle_step()
        after = network.flat(self._model).double()
        return before - (before - after) * self._task.run.workers / _MOVING_RATE

    def _idle_step(self) -> None:
        """Makes a step that changes neither parameters nor, without servers, the momentum."""
        (group,) = self._optimizer.param_groups
        usual = {name: group[name] for name in ("lr", "momentum", "dampening", "weight_decay")}
        group.update(lr=0.0, weight_decay=0.0)
        if self._algorithm.name == "easgd":
            group.update(momentum=1.0, dampening=1.0)
        self._optimizer.zero_grad()
        self._model(self._task.data.train_x[:1]).sum().backward()
        self._optimizer.step()
        self._optimizer.synchronize()
        group.update(usual)


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
