"""The path of gradients and parameters of one model: gradients go out as backward makes them, and
each layer's gate opens when the next forward pass reaches it.

The life of one parameter in a step:

    backward     its gradient is handed over as soon as it is there; `parameter.grad` is then a
                 PendingGradient
    step()       the optimizer freezes its settings; the gate is closed from here on; returns at
                 once
    forward      whoever reads the parameter opens its gate: waits for the mean, then the
                 optimizer's step for this gate

Each of these has a module: backward.py, _front/optimizer.py with server.py, and forward.py with
gates.py. Before the first round ends, plan.py and opening.py make all ranks agree. The engine has
the calls that the user's code makes, which go through several of them.

All of it runs on the training thread; the network has a thread of its own, behind _core.Session.

Any wait may end with an exception that the program catches (_job/health.py). A wait may be
repeated, so state changes only after it, inside whole().
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from sluice import _core
from sluice._engine.backward import Backward
from sluice._engine.checkpoint import Checkpoint
from sluice._engine.decision import Decision
from sluice._engine.forward import Forward, announce_change
from sluice._engine.gates import NO_MEAN_HERE, Gates, Updater
from sluice._engine.opening import open_session
from sluice._engine.pieces import Named
from sluice._engine.plan import Plan
from sluice._engine.rank_check import rank_check, state_of
from sluice._engine.report import report
from sluice._engine.training import Training
from sluice._job.ending import reason_of
from sluice._job.job import Job
from sluice._measure.clocks import clock_of
from sluice._measure.spent import Spent
from sluice._tensor.doors import accelerator_of, open_device
from sluice._tensor.pending import PendingGradient
from sluice._tensor.slots import Slot

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Engine:
    """Everything between one model's autograd hooks and its session."""

    def __init__(
        self,
        job: Job,
        model: nn.Module,
        name: str,
        *,
        broadcast_buffers: bool,
        debug_gates: bool,
        process_group: ProcessGroup | None = None,
    ) -> None:
        self.job = job
        self.name = name
        self.training = Training(job, model, name)
        self.health = self.training.health
        device = accelerator_of([*model.named_parameters(), *model.named_buffers()])
        if device is not None and not job.is_alone:
            self.training.device = open_device(device)
            self.training.spent = Spent(clock_of(device))
        self.gates = Gates(self.training)
        self.decision = Decision(self.training, self.gates)
        self.checkpoint = Checkpoint(self.training)
        self.optimizers: list[torch.optim.Optimizer] = []
        self.debug_gates = debug_gates
        self.dress_newcomers: Callable[[], None] = _nothing  # modules that came to the model
        self.steps = 0  # of the first optimizer
        self._check = rank_check(job, name, self.health.fail)
        self._has_met_strangers = False
        self._is_draining = False  # a delayed gradient was handed out, and not used yet
        self._is_abandoned = False
        self._process_group = process_group
        self._backward = Backward(
            self.training, self.gates, self.decision, self._make_plan, self._round_ends
        )
        self.gates.finish_round = self._backward.finish_before_look
        if self._check is not None:
            self.gates.explain_loss = self._check.end
        self._plan = Plan(self.training, self._backward)
        self._forward = Forward(
            self.training,
            self.gates,
            self._backward,
            self._plan,
            self,
            broadcast_buffers=broadcast_buffers,
        )
        if not job.is_alone:
            self._plan.take_parameters()
            job.models.append(self)

    @property
    def round(self) -> int:
        """The number of the last backward pass that sent gradients."""
        return self._backward.round

    @property
    def rounds(self) -> int:
        """The number of backward passes that made gradients."""
        return self.training.spent.rounds

    @property
    def session(self) -> _core.Session | None:
        """None before the first backward()."""
        return self.training.session

    @property
    def slots(self) -> list[Slot]:
        """The trained parameters, as the plan numbers them."""
        return self.training.slots

    @property
    def slot_of(self) -> dict[Tensor, Slot]:
        """The slots by their parameters."""
        return self.training.slot_of

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keeps the gradients of backward passes in here on this rank."""
        backward = self._backward
        previous, backward.synchronises = backward.synchronises, False
        try:
            yield
        finally:
            backward.synchronises = previous

    @_disable_dynamo
    def enter(self) -> None:
        """Begins every call from outside: it raises if the model is no longer good."""
        self._backward.notice_exception()
        self.health.check()
        self.job.health.check()
        if self._check is not None:
            self._check.look()

    def refuse_while_owed(self) -> None:
        """Raises where the program would go on without the call that it was interrupted in."""
        if not self.job.is_alone:
            self.health.check_owed()

    def enter_step(self, updater: Updater) -> None:
        """Waits for all that step() needs. After an exception the program has to call step() again:
        the others take this step."""
        self.enter()
        if self._backward.was_lost:
            raise RuntimeError(
                "backward() ended with an exception before it had sent a gradient: run this step "
                "again, from zero_grad() on"
            )
        self._meet_strangers(self.optimizers[self.gates.updaters.index(updater)])
        with self.health.owed(updater, "step()", "call it again before anything else"):
            self._backward.finish()
            self.open_all()

    def _meet_strangers(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks at parameters of the optimizer whose gradients are this rank's own."""
        strangers = {
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and parameter not in self.slot_of
        }
        if not strangers or self.job.is_alone:
            return
        for name, parameter in nn.Module.named_parameters(self.training.model):
            if parameter in strangers:
                self.health.fail(
                    f"'{name}' came to the model after its last forward pass in training, so its "
                    "gradient is this rank's own; add it before that pass, and call the model "
                    "itself, not a part of it"
                )
        if not self._has_met_strangers:
            self._has_met_strangers = True
            shapes = ", ".join(str(tuple(stranger.shape)) for stranger in list(strangers)[:3])
            _core.warn(
                f"the optimizer of '{self.name}' also steps {len(strangers)} parameters that are "
                f"not in the model ({shapes}): each rank steps them with its own gradients"
            )

    def took_step(self, updater: Updater) -> None:
        """Ends step(), which must not be made again. REQUIRES: inside whole()"""
        self.health.paid(updater)
        number = self.gates.updaters.index(updater)
        if number == 0:
            self.steps += 1
        if self._check is not None:
            self._check.stepped(self.optimizers[number], self.slot_of)

    def _round_ends(self) -> None:
        """Compares the ranks. All gates are open: the parameters are as the last step has left
        them."""
        if self._check is not None:
            for gate in {slot.gate for slot in self.slots} if self.gates.has_updates else ():
                self.gates.follow_update(gate)
            self._check.round_ends(self.steps, self._tensors_to_compare)

    def _tensors_to_compare(self) -> Iterator[Named]:
        names: dict[Tensor, str] = {
            parameter: name for name, parameter in self.training.model.named_parameters()
        }
        for parameter, name in names.items():
            yield name, parameter
        for optimizer in self.optimizers if self.training.server is None else []:
            yield from state_of(optimizer, names)

    @_disable_dynamo
    def open_all(self) -> None:
        """Gives every parameter its new value."""
        self.enter()
        self.gates.open_all()

    def synchronize(self) -> None:
        """Puts the mean gradients in place."""
        self.enter()
        self._backward.finish()
        if self.decision.is_open:
            raise RuntimeError(NO_MEAN_HERE)
        self.gates.settle_all()

    def state(self) -> bytes:
        """Returns all that a checkpoint needs besides parameters and optimizers."""
        self.enter()
        if self.training.session is not None and self.training.server is None:
            self._backward.finish()
        return self.checkpoint.save()

    def drain(self) -> None:
        """Uses every gradient that was delayed, in its turn."""
        with self.health.owed(self.drain.__name__, "drain()", "call it again before anything else"):
            self._drain()
        self.health.paid(self.drain.__name__)

    def _drain(self) -> None:
        while self._is_draining or self._has_delayed():
            self.open_all()
            self.synchronize()
            if not self._is_draining:
                with self.health.whole("drain()"):
                    self._backward.hand_out_delayed()
                    self._is_draining = True
                self.synchronize()
            with self.health.whole("drain()", but=(SystemExit,)):  # leave-on-term, after the step
                for optimizer in self.optimizers:
                    optimizer.step()
                self._is_draining = False
        self.open_all()

    def _has_delayed(self) -> bool:
        return self.training.session is not None and self.training.session.delayed > 0

    def _make_plan(self) -> None:
        with self.health.whole("the first backward(), in which the ranks agree on a plan,"):
            self._plan.agree(self._forward.watch)
            open_session(self.training, self._plan.number, self.checkpoint, self._process_group)
            if self._check is not None:
                self._check.take_parameters(self.slots)

    def start_over(self) -> None:
        """Trains another set of parameters from here on: on all ranks, since all run the same
        program."""
        if self.training.server is not None:
            raise RuntimeError(
                "with server_optimizer=True no parameter can be frozen or unfrozen, added or "
                "replaced once training has begun"
            )
        self.open_all()
        self.synchronize()
        if self._has_delayed():
            raise RuntimeError(
                "with algorithm=pipe call optimizer.drain() before parameters are frozen or "
                "unfrozen, added or replaced"
            )
        with self.health.whole("the first forward pass after the trained parameters changed"):
            announce_change(self.training)
            self.leave()
            self._plan.start_over()
            self.dress_newcomers()

    def leave(self) -> None:
        """Ends the session in good order. If that fails, ends it in bad order, so that no rank
        waits for this one."""
        training = self.training
        if self._is_abandoned:
            return
        if complaint := self.health.complaint:
            self.abandon(complaint)
            raise RuntimeError(complaint)
        if training.session is None:
            training.collective = None
            return
        try:
            self.open_all()
            self.decision.drop()
            if self._check is not None:
                self._check.begin_end(self.steps)
        finally:
            session, training.session = training.session, None
            try:
                session.leave()
                if self._check is not None:
                    self._check.end()
            except BaseException as error:
                session.abandon(reason_of(error))
                raise
            finally:
                # After the session that uses it, and before the job whose loop it uses.
                training.collective = None

    def abandon(self, why: str) -> None:
        """Ends the session, and tells the other ranks why."""
        training, self._is_abandoned = self.training, True
        if training.session is not None:
            session, training.session = training.session, None
            session.abandon(why)
        training.collective = None

    def refuse_release(self) -> None:
        """Raises where training would lose gradients."""
        if not self.health.complaint and self._has_delayed():
            raise RuntimeError("with algorithm=pipe call optimizer.drain() before sluice.release()")

    def release(self, before_end: Callable[[], None]) -> None:
        """Ends the session for good; the model is of no rank's concern any more. `before_end` runs
        when every parameter has its new value, and may ask all ranks. Every rank calls this. After
        an exception the session has ended in bad order."""
        try:
            if not self.job.is_alone and not self._is_abandoned and not self.health.complaint:
                self._settle()
                before_end()
            if self.training.session is not None:
                self.job.last_report = self.report()
            self.leave()
        except BaseException as error:
            self.abandon(reason_of(error))
            raise
        finally:
            self._let_go()

    def _settle(self) -> None:
        self.open_all()
        if self.training.server is None:
            self.synchronize()
        else:
            self._backward.finish()
            self.decision.drop()

    def _let_go(self) -> None:
        """Takes everything off the model that came with distribute(), but for the classes."""
        self._forward.stop()
        self._plan.stop()
        training = self.training
        for slot in training.slots:
            if isinstance(slot.parameter.grad, PendingGradient):  # no mean comes any more
                slot.parameter.grad = None
        training.slots, training.slot_of, training.device_door = [], {}, None
        self.gates.is_closed = self.gates.has_updates = False
        self.gates.updaters.clear()
        self.optimizers.clear()
        self._check = None
        if self in self.job.models:
            self.job.models.remove(self)

    @property
    def seconds_waited(self) -> float:
        """Seconds for parameters and mean gradients, since the first step was planned."""
        return self.training.spent.waited

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """Bytes that were sent and received."""
        session = self.training.session
        return (0, 0) if session is None else session.bytes_moved

    def epochs(self) -> dict[str, Any]:
        """Says which members each sum has counted."""
        session = self.training.session
        if session is None:
            raise RuntimeError(f"'{self.name}' has not begun")
        names = [slot.name for slot in self.slots]
        return {
            "slices": [[names[tensor], first, count] for tensor, first, count in session.cut],
            "epochs": [
                {"number": number, "members": members, "first_steps": first_steps}
                for number, members, first_steps in session.epochs
            ],
        }

    def report(self) -> str:
        """Says where time has gone since the first step was planned."""
        if self.training.session is None:
            return f"'{self.name}' has not begun"
        return report(self.training, self.training.session)


def _nothing() -> None:
    pass
