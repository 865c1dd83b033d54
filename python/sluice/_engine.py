"""The path of gradients and parameters of one model: gradients go out as backward makes them, and
each layer's gate opens when the next forward pass reaches it.

The life of one parameter in a step:

    backward     its gradient is handed over as soon as it is there; `parameter.grad` is then a PendingGradient
    step()       the optimizer freezes its settings; the gate is closed from here on; returns at once
    forward      whoever reads the parameter opens its gate: waits for the mean, then the optimizer's step for this gate

All of it runs on the training thread; the network has a thread of its own, behind _core.Session.

Any wait may end with an exception that the program catches (_health.py). So nothing is changed
before a wait that its repetition would not find as it was, and what follows the wait is done in
whole().
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from sluice import _core
from sluice._backend import over
from sluice._health import Health
from sluice._job import Job
from sluice._layer_times import LayerTimes
from sluice._observe import Observer, Reads, calls_under_way
from sluice._pending import PendingGradient
from sluice._rank_check import Named, RankCheck, state_of
from sluice._report import report
from sluice._slots import DTYPES, Gate, Slot, is_untouched, sendable

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from sluice import _c10d

# So many rounds end with all mean gradients in place when backward() returns, as DDP's do: whatever
# a loop does only at its beginning meets nothing new.
_AS_DDP = 2
_NO_MEAN_HERE = (
    "with server_optimizer=True the mean gradient is on the servers only, and cannot be looked at, clipped or unscaled; leave "
    "server_optimizer=True away"
)


class Updater(Protocol):
    """An optimizer that has frozen a step, and applies it gate by gate."""

    def apply(self, gate: Gate) -> None: ...


class ServerUpdate(Protocol):
    """The servers' optimizer, if they have one."""

    @property
    def spec(self) -> str: ...

    @property
    def saves_with_session(self) -> bool: ...

    def memory(self, elements: int, world_size: int) -> str: ...

    def hand_out(self) -> None: ...


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
        check_every: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        self.job = job
        self.model = model
        self.name = name
        self.health = Health(f"'{name}'", is_alone=job.world_size == 1)
        self.updaters: list[Updater] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.delays = job.world_size > 1 and job.algorithm == "pipe"
        self.server: ServerUpdate | None = None
        self.synchronises = True  # false inside no_sync()
        self.is_closed = False  # true iff any gate is
        self.debug_gates = debug_gates
        self.rounds = 0
        self.steps = 0  # of the first optimizer
        self._check = (
            RankCheck(job, name, check_every, self.health.fail) if check_every > 0 else None
        )
        self._seconds_waited = 0.0
        self._began = 0.0
        self._planned_in_round = 0
        self._times = LayerTimes()
        self._first_round_seconds = 0.0  # of the network, with nothing else to do; 0: not seen

        self._process_group = process_group  # who reduces; None: sluice itself
        self._collective: _c10d.Collective | None = None
        self._broadcasts_buffers = broadcast_buffers
        self._buffers_are_due = broadcast_buffers
        self._depth = 0  # of calls of the model itself
        self._forwards = 0  # passes in training since the last round
        self._round = 0
        self._round_is_open = False
        self._round_was_lost = False  # it ended with an exception, and nothing had been sent
        self._round_is_due = (
            False  # backward has ended, but not all of its gradients have been handed over
        )
        self._handed_over = 0  # in this round
        self._round_has_gradients = False
        self._was_touched = False  # true iff somebody looked at a gradient on its way
        self._is_undecided = False  # gradients are at the servers, and step() has not been called
        self._undecided_round = -1  # whose they are
        self._is_dropping = False  # the servers were told to drop them, and have not answered
        self._is_draining = False  # a delayed gradient was handed out, and not used yet
        self._plans = 0
        self._session: _core.Session | None = None
        self._saved = b""  # what load_state() brought, before there was a session
        self._observer: Observer | None = None
        self._reads = Reads()
        self._gates_of: dict[nn.Module, list[Gate]] = {}
        self._slots: list[Slot] = []
        self.slot_of: dict[Tensor, Slot] = {}
        self._parameters: list[nn.Parameter] = []
        self._trainable: list[bool] = []
        self._hooks: list[Any] = []
        self._root_hooks = [
            model.register_forward_pre_hook(self._before_model, prepend=True),
            model.register_forward_hook(self._model_ends, always_call=True),
            model.register_forward_hook(self._after_model),
        ]
        if job.world_size > 1:
            self._take_parameters()
            job.members.append(self)

    # What the user's code meets.

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        previous, self.synchronises = self.synchronises, False
        try:
            yield
        finally:
            self.synchronises = previous

    @_disable_dynamo
    def enter(self) -> None:
        """Every call from outside begins here: it raises if the model is no longer good."""
        if self._round_is_open and torch._C._current_graph_task_id() < 0:
            if self._handed_over > 0:
                self._round_is_open = False
                self.health.fail(
                    "backward() ended with an exception after it had sent gradients, and the other ranks have used them; start "
                    "again from the last checkpoint"
                )
            self._round_is_open, self._round_was_lost = False, True
        self.health.check()
        self.job.health.check()
        if self._check is not None:
            self._check.look()

    def enter_step(self, updater: object) -> None:
        """All that step() waits for. After an exception the program has to call step() again: the
        others take this step."""
        self.enter()
        if self._round_was_lost:
            raise RuntimeError(
                "backward() ended with an exception before it had sent a gradient: run this step again, from zero_grad() on"
            )
        with self.health.owed(updater, "step()", "call it again before anything else"):
            self._finish_round()
            self.open_all()
            if self._check is not None:
                self._check.after(self.steps, self._tensors_to_compare)

    def took_step(self, updater: Updater) -> None:
        """The end of step(), inside whole(): it must not be made again."""
        self.health.paid(updater)
        if updater is self.updaters[0]:
            self.steps += 1

    def _tensors_to_compare(self) -> Iterator[Named]:
        names: dict[Tensor, str] = {
            parameter: name for name, parameter in self.model.named_parameters()
        }
        for parameter, name in names.items():
            yield name, parameter
        for optimizer in self.optimizers if self.server is None else []:
            yield from state_of(optimizer, names)

    def refuse_while_owed(self) -> None:
        """Where the program would go on without what it was interrupted in."""
        if self.job.world_size > 1:
            self.health.check_owed()

    @_disable_dynamo
    def open_all(self) -> None:
        """Every parameter has its new value afterwards."""
        self.enter()
        if self.is_closed:
            for slot in self._slots:
                if slot.gate.is_closed:
                    self.open(slot.gate)
            self.is_closed = False

    def open_for(self, parameter: Tensor) -> None:
        """The same for one that is about to be read."""
        slot = self.slot_of.get(parameter)
        if slot is not None and slot.gate.is_closed:
            self.open(slot.gate)

    def synchronize(self) -> None:
        """The mean gradients are in place afterwards."""
        self.enter()
        self._finish_round()
        if self._is_undecided:
            raise RuntimeError(_NO_MEAN_HERE)
        for slot in self._slots:
            self._settle(slot)

    def state(self) -> bytes:
        """What a checkpoint needs besides parameters and optimizers: delayed gradients, and what a
        codec owes on this rank."""
        self.enter()
        if self._session is None:
            return self._saved
        if self.server is None:
            self._finish_round()
            return self._session.state()
        if not self.server.saves_with_session:
            return b""
        self._refuse_other_memory()
        with self.health.whole(
            "state_dict()"
        ):  # asks servers for their part, which cannot be asked twice
            state = self._session.state()
            self._parameters_are_new()
        return state

    def _refuse_other_memory(self) -> None:
        """Before a call that reads or writes parameters where the session knows them to be."""
        for slot in self._slots:
            if slot.result is not None and slot.result.data_ptr() != slot.parameter.data_ptr():
                raise RuntimeError(
                    f"'{slot.name}' lies in other memory than in the last step, so the servers cannot go on with it; with "
                    "server_optimizer=True copy new values into the parameter instead of replacing its data"
                )

    def load_state(self, state: bytes) -> None:
        """Put back what state() gave, between two steps."""
        if self._session is None:
            self._saved = state
        elif self.server is None or self.server.saves_with_session:
            self._restore(state)

    def _restore(self, state: bytes) -> None:
        assert self._session is not None
        self._refuse_other_memory()
        with self.health.whole("load_state_dict()", but=(ValueError,)):
            self._session.restore(state)
            if self.server is not None:
                self._parameters_are_new()

    def _parameters_are_new(self) -> None:
        """With asp and ssp a checkpoint is the servers' model, and this rank has it from now on."""
        for slot in self._slots:
            torch.autograd.graph.increment_version(slot.parameter)
            slot.know()

    @property
    def round(self) -> int:
        """The number of the last backward pass that sent gradients."""
        return self._round

    @property
    def session(self) -> _core.Session | None:
        """None before the first backward()."""
        return self._session

    @property
    def slots(self) -> list[Slot]:
        """As the plan numbers them."""
        return self._slots

    def put_back_at_servers(self, state: bytes) -> None:
        """This rank's part of the optimizer's state, and the parameters as they are here now."""
        assert self._session is not None
        self._refuse_other_memory()
        with self.health.whole("load_state_dict()", but=(ValueError,)):
            self._session.restore(state)
            for slot in self._slots:
                slot.know()

    def drain(self) -> None:
        """Every gradient that was delayed is used, in its turn."""
        with self.health.owed(self.drain.__name__, "drain()", "call it again before anything else"):
            self._drain()
        self.health.paid(self.drain.__name__)

    def _drain(self) -> None:
        while self._is_draining or (self._session is not None and self._session.delayed > 0):
            self.open_all()
            self.synchronize()
            if not self._is_draining:
                with self.health.whole("drain()"):
                    self._hand_out_delayed()
                    self._is_draining = True
                self.synchronize()
            with self.health.whole("drain()", but=(SystemExit,)):  # leave-on-term, after the step
                for optimizer in self.optimizers:
                    optimizer.step()
                self._is_draining = False
        self.open_all()

    def leave(self) -> None:
        if self._session is None:
            self._collective = None
            return
        if complaint := self.health.complaint:
            self.abandon(complaint)
            raise RuntimeError(complaint)
        try:
            self.open_all()
            self.drop()
        finally:
            session, self._session = self._session, None
            try:
                session.leave()
            finally:
                self._collective = (
                    None  # after the session that uses it, and before the job whose loop it uses
                )

    def abandon(self, why: str) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.abandon(why)
        self._collective = None

    @property
    def seconds_waited(self) -> float:
        """For parameters and mean gradients, since the first step was planned."""
        return self._seconds_waited

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """Sent and received."""
        return (0, 0) if self._session is None else self._session.bytes_moved

    def report(self) -> str:
        """Where time has gone since the first step was planned."""
        if self._session is None:
            return f"'{self.name}' has not begun"
        elapsed = time.perf_counter() - self._began
        rounds = max(1, self.rounds - self._planned_in_round)
        return report(self, self._session, self._times, elapsed, rounds, self._first_round_seconds)

    # Called by optimizers.

    def close(self, slot: Slot) -> None:
        """The parameter has an update to come. Its gradient is not to be touched before that."""
        if self.server is None:
            slot.know()
        slot.gate.is_closed = True
        self.is_closed = True

    @_disable_dynamo
    def open(self, gate: Gate) -> None:
        self.health.check()
        for slot in gate.slots:
            self._settle(slot)
        begun = time.perf_counter()
        for slot in gate.slots:
            if slot.is_changed:
                self.health.fail(
                    f"'{slot.name}' was changed or given other memory between step() and its update, which came with the next "
                    "forward pass; call optimizer.synchronize() after step() and before you change it"
                )
        with self.health.whole(f"the optimizer's step for '{gate.slots[0].name}'"):
            gate.is_closed = False  # first, since the optimizer reads the parameters
            for updater in self.updaters:
                updater.apply(gate)
            for slot in gate.slots:
                if self.server is None:
                    slot.known = None
                    self._show(slot)
        self._times.pause(time.perf_counter() - begun)

    def undecided(self) -> list[Slot]:
        """With a server's optimizer: what the next step() is for."""
        return [slot for slot in self._slots if slot.is_travelling] if self._is_undecided else []

    def decide(self, values: list[float]) -> None:
        """step() was called: the servers may use what they have."""
        assert self._session is not None
        self._is_undecided = False
        self._session.update(values)

    def drop(self) -> None:
        """Cancels the round: servers discard it, and each rank keeps its own gradients."""
        if self._is_undecided:
            assert self._session is not None
            with self.health.whole("backward()"):
                self._session.drop()
                self._is_undecided, self._is_dropping = False, True
        if self._is_dropping:
            for slot in self._slots:
                self._settle(slot)
            self._is_dropping = False

    def guard(self, slot: Slot, gradient: Tensor) -> PendingGradient:
        """What to show in place of a gradient that is still needed as it is."""
        return PendingGradient.of(gradient, functools.partial(self._arrived, slot, gradient))

    # Which parameters there are.

    def _take_parameters(self) -> None:
        """Hooks on everything that can get a gradient now. Again when that changes: frozen layers
        are unfrozen."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._parameters = list(
            self.model.parameters()
        )  # asked later without the model's own method, which waits
        self._trainable = [parameter.requires_grad for parameter in self._parameters]
        self._slots = []
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            slot = Slot(parameter, name)
            self._slots.append(slot)
            self._hooks.append(
                parameter.register_hook(functools.partial(self._before_accumulation, slot))
            )
            self._hooks.append(
                parameter.register_post_accumulate_grad_hook(
                    functools.partial(self._after_accumulation, slot)
                )
            )
        self.slot_of = {slot.parameter: slot for slot in self._slots}
        self._observer = Observer(self.model, set(self.slot_of))

    def _plan(self) -> None:
        with self.health.whole("the first backward(), in which the ranks agree on a plan,"):
            self._make_plan()

    def _make_plan(self) -> None:
        """The first gradients are there, so the first forward pass has been seen: agree with all
        ranks on the order."""
        if self._observer is not None:
            self._reads = self._observer.stop()
            self._observer = None
        owners = {
            parameter: module
            for module in self.model.modules()
            for parameter in module._parameters.values()
        }
        place = {parameter: number for number, parameter in enumerate(self._reads.order)}
        order = sorted(
            range(len(self._slots)), key=lambda n: place.get(self._slots[n].parameter, len(place))
        )
        agreed = torch.tensor(order, dtype=torch.int64)  # ranks may have taken different branches
        self.job.broadcast(agreed)
        self._slots = [self._slots[n] for n in agreed.tolist()]

        gates: dict[nn.Module, Gate] = {}
        for index, slot in enumerate(self._slots):
            slot.index = index
            readers = self._reads.readers.get(slot.parameter, [])
            owner = owners[slot.parameter]
            slot.gate = gates.setdefault(readers[0] if readers else owner, Gate())
            slot.gate.slots.append(slot)
            for module in {owner, *readers}:
                waits = self._gates_of.setdefault(module, [])
                if slot.gate not in waits:
                    waits.append(slot.gate)
        for module in self._gates_of:
            self._hooks.append(module.register_forward_pre_hook(self._before_module, prepend=True))

        tensors = [
            (slot.name, slot.parameter.numel(), DTYPES[slot.parameter.dtype])
            for slot in self._slots
        ]
        name = f"{self.name}.{self._plans}"
        if self.server is None:
            self._collective = (
                None if self._process_group is None else over(self._process_group, self.job.core)
            )
            address = 0 if self._collective is None else self._collective.address
            self._session = _core.Session(self.job.core, name, tensors, collective=address)
        else:
            for slot in self._slots:
                slot.result = slot.parameter.detach()
            places = [slot.parameter.data_ptr() for slot in self._slots]
            self._session = _core.Session(self.job.core, name, tensors, self.server.spec, places)
            for slot in self._slots:
                slot.know()
        self._plans += 1
        self._planned_in_round, self._seconds_waited, self._times = self.rounds, 0.0, LayerTimes()
        saved, self._saved = self._saved, b""
        if saved:
            self._restore(saved)
        if self.server is not None and self.server.saves_with_session:
            self.job.gather(
                f"restored/{name}", ""
            )  # nobody's first gradient meets what is put back later
        if self.server is not None:
            self.server.hand_out()
        if self.job.rank == 0:
            self._say_hello()

    def _say_hello(self) -> None:
        assert self._session is not None
        size = sum(slot.parameter.numel() * slot.parameter.element_size() for slot in self._slots)
        elements = sum(slot.parameter.numel() for slot in self._slots)
        where = f"{self.job.core.address} ({_describe_interface(self.job.core.interface)})"
        text = (
            f"'{self.name}' trains with {self.job.option('algorithm')} on {self.job.world_size} ranks over {where}: "
            f"{elements} parameters, {size / 1e6:.1f} MB in {self._session.slices} slices; "
            f"about {size / 1e6:.1f} MB more for sums on each rank"
        )
        if self.server is not None:
            text += "; " + self.server.memory(elements, self.job.world_size)
        _core.say(text)

    # Forward: parameters leave.

    def _before_model(self, model: nn.Module, args: Any) -> None:
        if self._depth > 0 and calls_under_way(model) < 2:
            self._depth = 0  # the last call was interrupted
        self._depth += 1
        if self._depth > 1 or self.job.world_size == 1:
            return
        self.enter()
        if not model.training or not torch.is_grad_enabled():
            self.open_all()
            return
        self.refuse_while_owed()
        if self._trainable != [parameter.requires_grad for parameter in self._parameters]:
            self._start_over()
        if self._buffers_are_due:
            self._receive_buffers()
        if not torch.compiler.is_compiling():
            self._times.forward_begins()

    @_disable_dynamo
    def _receive_buffers(self) -> None:
        """Rank 0's buffers. A pass that is run again after an exception does not ask for them
        again."""
        buffers = [buffer for buffer in self.model.buffers() if buffer.numel() > 0]
        if not buffers:
            return
        here = torch.tensor([self._round, self._forwards])
        (there, *values) = self.job.receive_together(self, [here, *buffers])
        if self.job.rank > 0 and not torch.equal(there, here):
            self.health.fail(
                f"rank 0 is in forward pass {int(there[1])} of step {int(there[0])}, but rank {self.job.rank} in pass "
                f"{int(here[1])} of step {int(here[0])}: one of them has skipped or repeated a pass"
            )
        with self.health.whole("the exchange of buffers"):
            for buffer, value in zip(buffers if self.job.rank > 0 else [], values, strict=False):
                buffer.detach().copy_(value)
            self._buffers_are_due = False
            self.job.received(self)

    def _model_ends(self, model: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)  # an exception may have come before the first hook
        if self._depth == 0 and not torch.compiler.is_compiling():
            self._times.forward_ends()

    def _after_model(self, model: nn.Module, args: Any, output: Any) -> None:
        # As DDP does: the forward pass after one whose gradients were averaged begins with rank 0's
        # buffers.
        self._buffers_are_due = self._broadcasts_buffers and (
            self.synchronises or not torch.is_grad_enabled()
        )
        if self._depth == 0 and self.job.world_size > 1 and torch.is_grad_enabled():
            self._forwards += 1
            # Fires before any parameter's hook, in the outermost backward: activation checkpointing
            # has inner ones.
            for tensor in _tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward_begins)

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if (
            self.is_closed
            and self._depth == 0
            and (not module.training or not torch.is_grad_enabled())
        ):
            self.open_all()
        for gate in self._gates_of[module]:
            if gate.is_closed:
                self.open(gate)
            if not torch.compiler.is_compiling():  # it would guard against every new time
                self._times.reads(gate)
                if self._depth > 0:
                    self._note_read(gate)

    def _note_read(self, gate: Gate) -> None:
        """Reentrant checkpointing reads without recording, and each of its segments has a backward
        of its own."""
        if gate.reads_round != self._round:
            gate.reads_round, gate.reads, gate.is_read_without_grad = self._round, 0, False
        gate.reads += 1
        gate.is_read_without_grad |= not torch.is_grad_enabled()
        if gate.reads > 1 and gate.is_read_without_grad:
            for slot in gate.slots:
                slot.comes_in_parts = True

    def _start_over(self) -> None:
        """Another set of parameters is trained from here on: on all ranks, since all run the same
        program."""
        if self.server is not None:
            raise RuntimeError(
                "with server_optimizer=True no parameter can be frozen or unfrozen once training has begun"
            )
        self.open_all()
        self.synchronize()
        if self._session is not None and self._session.delayed:
            raise RuntimeError(
                "with algorithm=pipe call optimizer.drain() before parameters are frozen or unfrozen"
            )
        with self.health.whole("the first forward pass after parameters were frozen or unfrozen"):
            self.leave()
            self._gates_of.clear()
            self._take_parameters()
            assert self._observer is not None
            self._observer.enter(self.model)  # whose call has begun already

    # Backward: gradients enter.

    def _backward_begins(self, gradient: Tensor | None = None) -> None:
        if not self.synchronises or self._round_is_open:
            return
        self._handed_over = 0
        self._forwards = 0
        self._round_was_lost = False
        self._round_is_open = True
        self._round_has_gradients = False
        self._round += 1
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _before_accumulation(self, slot: Slot, gradient: Tensor) -> None:
        if slot.gate.is_closed:
            raise RuntimeError(
                f"'{slot.name}' got a gradient, but its gate was still closed: the forward pass read its old value from "
                "a reference that sluice does not see. Read it as an attribute of its module, or call "
                "optimizer.synchronize() after step()"
            )
        if self._round_is_open and slot.round == self._round:
            self.health.fail(
                f"'{slot.name}' got a second gradient in one backward() after its first had been sent, as reentrant "
                "checkpointing makes them; use checkpoint(..., use_reentrant=False)"
            )
        if self.server is not None:
            if not self._round_is_open or self._undecided_round != self._round:
                self.drop()  # a second backward before step(): the servers get the sum of both
            if isinstance(slot.parameter.grad, PendingGradient):
                slot.parameter.grad = slot.gradient
            return
        if self.delays and is_untouched(slot):
            raise RuntimeError(
                f"with algorithm=pipe the gradient of '{slot.name}' is that of an earlier step, and a new one cannot be added: "
                "call zero_grad() after every step(), and accumulate in no_sync()"
            )
        # A second backward before step(): it adds to the mean of the first.
        self._settle(slot)

    def _after_accumulation(self, slot: Slot, parameter: Tensor) -> None:
        self._times.gradient(slot.gate)
        if not self.synchronises:
            return
        self._backward_begins()
        self._round_has_gradients = True
        if slot.gradient_round == self._round:
            slot.comes_in_parts = True
        slot.gradient_round = self._round
        if self._session is not None and not slot.comes_in_parts:
            self._hand_over(slot)

    def _hand_over(self, slot: Slot) -> None:
        assert self._session is not None
        gradient = sendable(slot)
        if self.server is not None:
            slot.refuse_changed()
        with self.health.whole("backward()"):
            result = gradient
            if self.server is not None:
                result = slot.result = slot.parameter.detach()
                self._is_undecided, self._undecided_round = True, self._round
            slot.round = self._round
            slot.gradient = gradient
            slot.version = gradient._version
            slot.is_travelling = True
            slot.parameter.grad = self.guard(slot, gradient)
            self._handed_over += 1
            size = gradient.numel() * gradient.element_size()
            self._session.gradient_ready(slot.index, gradient.data_ptr(), result.data_ptr(), size)

    def _hand_over_nothing(self, slot: Slot) -> None:
        assert self._session is not None
        with self.health.whole("backward()"):
            slot.round = self._round
            slot.is_travelling = True
            if self.server is not None:
                result = slot.result = slot.parameter.detach()
                self._is_undecided, self._undecided_round = True, self._round
                slot.gradient = None
            else:
                result = slot.gradient = torch.empty_like(slot.parameter, requires_grad=False)
                slot.version = slot.gradient._version
                slot.parameter.grad = self.guard(slot, slot.gradient)
            self._session.gradient_absent(
                slot.index, result.data_ptr(), result.numel() * result.element_size()
            )

    def _backward_ends(self) -> None:
        self._round_is_due = self._round_has_gradients  # torch.autograd.grad() leaves none
        self._round_is_open = False
        if not self._round_is_due:
            return
        self.rounds += 1
        self._times.backward_ends()
        self._finish_round()

    def _finish_round(self) -> None:
        """Every rank takes part with every parameter in every round, so that nobody waits for what
        never comes. Goes on where an exception has stopped it."""
        if not self._round_is_due:
            self.health.paid(self)
            return
        with self.health.owed(
            self,
            "backward()",
            "its gradients are on their way already, so call step() or optimizer.synchronize() next",
        ):
            is_first = self._session is None
            if is_first:
                self._plan()
            begun = time.perf_counter()
            for slot in reversed(self._slots):
                if slot.round == self._round:
                    continue
                if slot.gate.is_closed:  # not read in this step
                    self.open(slot.gate)
                if self.server is None:
                    self._settle(slot)
                elif isinstance(slot.parameter.grad, PendingGradient):
                    slot.parameter.grad = slot.gradient
                if slot.parameter.grad is not None:
                    self._hand_over(slot)
                else:
                    self._hand_over_nothing(slot)
            if self.rounds <= _AS_DDP and self.server is None:
                for slot in self._slots:
                    self._settle(slot)
                if is_first:
                    self._first_round_seconds = time.perf_counter() - begun
            if is_first:
                self._began = time.perf_counter()
        self._round_is_due = False
        self.health.paid(self)

    def _hand_out_delayed(self) -> None:
        """As a round in which nobody has a gradient: the oldest that is delayed is the result."""
        assert self._session is not None
        for slot in reversed(self._slots):
            slot.gradient = torch.empty_like(slot.parameter, requires_grad=False)
            slot.version = slot.gradient._version
            slot.is_travelling = True
            slot.parameter.grad = self.guard(slot, slot.gradient)
            self._session.hand_out_delayed(
                slot.index,
                slot.gradient.data_ptr(),
                slot.gradient.numel() * slot.gradient.element_size(),
            )

    def _settle(self, slot: Slot) -> None:
        """The mean of the slot's gradient is in it afterwards, and in `parameter.grad` if nobody
        has changed that."""
        if not slot.is_travelling:
            return
        assert self._session is not None
        begun = time.perf_counter()
        slot.is_empty = not self._session.wait(slot.index)
        waited = time.perf_counter() - begun
        self._seconds_waited += waited
        self._times.pause(waited)
        if slot.gradient is not None and slot.gradient._version != slot.version:
            self.health.fail(
                f"the gradient of '{slot.name}' was changed while its mean was on the way; call "
                "optimizer.synchronize() before you touch it"
            )
        with self.health.whole(f"the wait for '{slot.name}'"):
            if slot.is_empty and slot.gradient is not None and self.server is None:
                slot.gradient.zero_()  # for whoever still holds it
            slot.is_travelling = False
            if not slot.gate.is_closed:
                self._show(slot)

    def _show(self, slot: Slot) -> None:
        """The mean in `parameter.grad`, where nobody has put anything else."""
        is_here = self.server is None and not slot.is_travelling and slot.gradient is not None
        if is_here and isinstance(slot.parameter.grad, PendingGradient):
            slot.parameter.grad = None if slot.is_empty else slot.gradient

    def _arrived(self, slot: Slot, gradient: Tensor) -> Tensor:
        """Somebody touches a gradient that is guarded: what waits for it comes first."""
        if self.server is not None:
            raise RuntimeError(_NO_MEAN_HERE)
        self.health.check()
        if slot.is_travelling and not slot.gate.is_closed and not self._was_touched:
            self._was_touched = True
            if self.job.rank == 0:
                _core.say(
                    f"the gradients of '{self.name}' are looked at between backward() and step(), as in clipping: every step "
                    "waits for their means there, and only the optimizer is left for the next forward pass"
                )
        if slot.gate.is_closed:
            self.open(slot.gate)
        self._settle(slot)
        return gradient


def _describe_interface(name: str) -> str:
    """With the rate that its driver says; virtual ones say none, or one that means nothing."""
    try:
        rate = int(Path(f"/sys/class/net/{name}/speed").read_text())
    except (OSError, ValueError):
        rate = -1
    return f"{name}, {rate} Mbit/s" if rate > 0 else f"{name}, rate unknown"


def _tensors_in(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for one in output:
            yield from _tensors_in(one)
    elif isinstance(output, dict):
        for one in output.values():
            yield from _tensors_in(one)
