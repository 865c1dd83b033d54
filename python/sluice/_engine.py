"""The path of gradients and parameters of one model: gradients go out as backward makes them, and each layer's gate opens
when the next forward pass reaches it.

The life of one parameter in a step:

    backward     its gradient is handed over as soon as it is there; `parameter.grad` is then a PendingGradient
    step()       the optimizer freezes its settings; the gate is closed from here on; returns at once
    forward      whoever reads the parameter opens its gate: waits for the mean, then the optimizer's step for this gate

All of it runs on the training thread; the network has a thread of its own, behind _core.Session.
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

from sluice import _core
from sluice._backend import over
from sluice._job import Job
from sluice._layer_times import LayerTimes
from sluice._observe import Observer, Reads
from sluice._pending import PendingGradient

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from sluice import _c10d

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


# So many rounds end with all mean gradients in place when backward() returns, as DDP's do: whatever a loop does only at its
# beginning meets nothing new.
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


class Slot:
    """One trainable parameter: its gradient's place in the plan, and where the mean lies."""

    def __init__(self, parameter: nn.Parameter, name: str) -> None:
        self.parameter = parameter
        self.name = name
        self.index = -1  # in the plan
        self.gate: Gate = Gate()
        self.gradient: Tensor | None = None  # handed over, kept alive until the mean is in it
        self.version = 0  # of the gradient when it was handed over
        self.is_travelling = False
        self.is_empty = False  # true iff no rank had a gradient in the last round
        self.round = -1  # the last one it took part in
        self.parameter_version = 0  # with a server's optimizer: as the servers know it


class Gate:
    """The parameters that are read together: one wait, one call of the optimizer."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.is_closed = False


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
        self.model = model
        self.name = name
        self.updaters: list[Updater] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.delays = job.world_size > 1 and job.algorithm == "pipe"
        self.server: ServerUpdate | None = None
        self.synchronises = True  # false inside no_sync()
        self.is_closed = False  # true iff any gate is
        self.debug_gates = debug_gates
        self.rounds = 0
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
        self._round = 0
        self._round_is_open = False
        self._round_has_gradients = False
        self._was_touched = False  # true iff somebody looked at a gradient on its way
        self._is_undecided = False  # gradients are at the servers, and step() has not been called
        self._undecided_round = -1  # whose they are
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
            model.register_forward_hook(self._after_model, always_call=True),
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

    def open_all(self) -> None:
        """Every parameter has its new value afterwards."""
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
        if self._is_undecided:
            raise RuntimeError(_NO_MEAN_HERE)
        for slot in self._slots:
            self._settle(slot)

    def state(self) -> bytes:
        """What a checkpoint needs besides parameters and optimizers: delayed gradients, and what a codec owes on this rank."""
        if self._session is None:
            return self._saved
        if self.server is not None and not self.server.saves_with_session:
            return b""
        state = self._session.state()
        if self.server is not None:
            self._parameters_are_new()
        return state

    def load_state(self, state: bytes) -> None:
        """Put back what state() gave, between two steps."""
        if self._session is None:
            self._saved = state
        elif self.server is None or self.server.saves_with_session:
            self._restore(state)

    def _restore(self, state: bytes) -> None:
        assert self._session is not None
        self._session.restore(state)
        if self.server is not None:
            self._parameters_are_new()

    def _parameters_are_new(self) -> None:
        """With asp and ssp a checkpoint is the servers' model, and this rank has it from now on."""
        for slot in self._slots:
            torch.autograd.graph.increment_version(slot.parameter)
            slot.parameter_version = slot.parameter._version

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
        self._session.restore(state)
        for slot in self._slots:
            slot.parameter_version = slot.parameter._version

    def drain(self) -> None:
        """Every gradient that was delayed is used, in its turn."""
        for _ in range(self._session.delayed if self._session is not None else 0):
            self.open_all()
            self.synchronize()
            self._hand_out_delayed()
            for optimizer in self.optimizers:
                optimizer.step()
        self.open_all()

    def leave(self) -> None:
        if self._session is None:
            self._collective = None
            return
        try:
            self.open_all()
            self.drop()
        finally:
            session, self._session = self._session, None
            try:
                session.leave()
            finally:
                self._collective = None  # after the session that uses it, and before the job whose loop it uses

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
        seconds = time.perf_counter() - self._began
        sent, received = self._session.bytes_moved
        rounds = max(1, self.rounds - self._planned_in_round)
        waited, travelled = self._seconds_waited, self._session.seconds_on_the_way
        lines = [
            f"'{self.name}' on rank {self.job.rank} of {self.job.world_size}: "
            f"{self.rounds} rounds of gradients in {seconds:.1f} s, {1e3 * seconds / rounds:.0f} ms each",
            f"  waited for parameters  {waited:8.2f} s  {100 * waited / seconds:5.1f} %",
            f"  computed               {seconds - waited:8.2f} s",
            f"  gradients on their way {travelled:8.2f} s  {100 * max(0.0, 1 - waited / max(travelled, 1e-9)):5.1f} % hidden "
            "behind computing",
            f"  sent {sent / 1e6:.1f} MB, received {received / 1e6:.1f} MB, {8 * sent / max(travelled, 1e-9) / 1e6:.0f} Mbit/s "
            "while on their way",
            self._describe_bound(seconds, rounds),
        ]
        waits_by_layer = zip(self._session.waited, self._slots, strict=True)
        for one, slot in sorted(waits_by_layer, key=lambda wait: -wait[0])[:5]:
            lines.append(f"  {slot.name:40} {one:8.2f} s")
        return "\n".join(lines)

    def _describe_bound(self, seconds: float, rounds: int) -> str:
        """P3's bound, with the layers' times as they were in training and the network as fast as it has been seen."""
        assert self._session is not None
        gates = list(dict.fromkeys(slot.gate for slot in self._slots))  # in the order of the forward pass
        layers = [
            (
                self._times.forward.get(gate, 0.0) / rounds,
                self._times.backward.get(gate, 0.0) / rounds,
                float(sum(slot.parameter.numel() * slot.parameter.element_size() for slot in gate.slots)),
            )
            for gate in gates
        ]
        passes = sum(forward + backward for forward, backward, _ in layers)
        besides = max(0.0, (seconds - self._seconds_waited) / rounds - passes)
        # Whatever has been on its way has waited for gradients too, in all rounds but the first.
        travelled = self._session.seconds_on_the_way / (rounds + 1)
        wire = min(self._first_round_seconds or travelled, travelled)
        bound = _core.p3_bound(layers, wire / sum(size for _, _, size in layers)) + besides
        sent = self._session.bytes_moved[0] / (rounds + 1)
        without = " without late gradients" if self.delays else ""
        return (
            f"  no schedule{without} takes less than {1e3 * bound:.0f} ms, P3's bound: {1e3 * passes:.0f} ms forward and "
            f"backward, {1e3 * besides:.0f} ms besides, {1e3 * wire:.0f} ms on the wire at "
            f"{8e-6 * sent / max(wire, 1e-9):.0f} Mbit/s; this took {seconds / rounds / max(bound, 1e-9):.2f} of it"
        )

    # Called by optimizers.

    def close(self, slot: Slot) -> None:
        """The parameter has an update to come. Its gradient is not to be touched before that."""
        slot.gate.is_closed = True
        self.is_closed = True

    def open(self, gate: Gate) -> None:
        gate.is_closed = False  # first, since the optimizer reads the parameters
        for slot in gate.slots:
            self._settle(slot)
        begun = time.perf_counter()
        for updater in self.updaters:
            updater.apply(gate)
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
        """It never was: every rank's gradients are its own again."""
        if not self._is_undecided:
            return
        assert self._session is not None
        self._is_undecided = False
        self._session.drop()
        for slot in self._slots:
            self._settle(slot)

    def guard(self, slot: Slot, gradient: Tensor) -> PendingGradient:
        """What to show in place of a gradient that is still needed as it is."""
        return PendingGradient.of(gradient, functools.partial(self._arrived, slot, gradient))

    # Which parameters there are.

    def _take_parameters(self) -> None:
        """Hooks on everything that can get a gradient now. Again when that changes: frozen layers are unfrozen."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._parameters = list(self.model.parameters())  # asked later without the model's own method, which waits
        self._trainable = [parameter.requires_grad for parameter in self._parameters]
        self._slots = []
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            slot = Slot(parameter, name)
            self._slots.append(slot)
            self._hooks.append(parameter.register_hook(functools.partial(self._before_accumulation, slot)))
            self._hooks.append(parameter.register_post_accumulate_grad_hook(functools.partial(self._after_accumulation, slot)))
        self.slot_of = {slot.parameter: slot for slot in self._slots}
        self._observer = Observer(self.model, set(self.slot_of))

    def _plan(self) -> None:
        """The first gradients are there, so the first forward pass has been seen: agree with all ranks on the order."""
        if self._observer is not None:
            self._reads = self._observer.stop()
            self._observer = None
        owners = {parameter: module for module in self.model.modules() for parameter in module._parameters.values()}
        place = {parameter: number for number, parameter in enumerate(self._reads.order)}
        order = sorted(range(len(self._slots)), key=lambda n: place.get(self._slots[n].parameter, len(place)))
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

        tensors = [(slot.name, slot.parameter.numel(), DTYPES[slot.parameter.dtype]) for slot in self._slots]
        name = f"{self.name}.{self._plans}"
        if self.server is None:
            self._collective = None if self._process_group is None else over(self._process_group, self.job.core)
            address = 0 if self._collective is None else self._collective.address
            self._session = _core.Session(self.job.core, name, tensors, collective=address)
        else:
            places = [slot.parameter.data_ptr() for slot in self._slots]
            self._session = _core.Session(self.job.core, name, tensors, self.server.spec, places)
            for slot in self._slots:
                slot.parameter_version = slot.parameter._version
        self._plans += 1
        self._planned_in_round, self._seconds_waited, self._times = self.rounds, 0.0, LayerTimes()
        saved, self._saved = self._saved, b""
        if saved:
            self._restore(saved)
        if self.server is not None and self.server.saves_with_session:
            self.job.gather(f"restored/{name}", "")  # nobody's first gradient meets what is put back later
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
        self._depth += 1
        if self._depth > 1 or self.job.world_size == 1:
            return
        if torch._C._current_graph_task_id() < 0:
            self._round_is_open = False  # the last backward pass may have ended with an exception
        if not model.training or not torch.is_grad_enabled():
            self.open_all()
            return
        if self._trainable != [parameter.requires_grad for parameter in self._parameters]:
            self._start_over()
        if self._buffers_are_due:
            self.job.broadcast_together([buffer for buffer in self.model.buffers() if buffer.numel() > 0])
        if not torch.compiler.is_compiling():
            self._times.forward_begins()

    def _after_model(self, model: nn.Module, args: Any, output: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and not torch.compiler.is_compiling():
            self._times.forward_ends()
        # As DDP does: the forward pass after one whose gradients were averaged begins with rank 0's buffers.
        self._buffers_are_due = self._broadcasts_buffers and (self.synchronises or not torch.is_grad_enabled())
        if self._depth == 0 and self.job.world_size > 1 and torch.is_grad_enabled():
            # Fires before any parameter's hook, in the outermost backward: activation checkpointing has inner ones.
            for tensor in _tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward_begins)

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if self.is_closed and self._depth == 0 and (not module.training or not torch.is_grad_enabled()):
            self.open_all()
        for gate in self._gates_of[module]:
            if gate.is_closed:
                self.open(gate)
            if not torch.compiler.is_compiling():  # it would guard against every new time
                self._times.reads(gate)

    def _start_over(self) -> None:
        """Another set of parameters is trained from here on: on all ranks, since all run the same program."""
        if self.server is not None:
            raise RuntimeError("with server_optimizer=True no parameter can be frozen or unfrozen once training has begun")
        self.open_all()
        self.synchronize()
        if self._session is not None and self._session.delayed:
            raise RuntimeError("with algorithm=pipe call optimizer.drain() before parameters are frozen or unfrozen")
        self.leave()
        self._gates_of.clear()
        self._take_parameters()
        assert self._observer is not None
        self._observer.enter(self.model)  # whose call has begun already

    # Backward: gradients enter.

    def _backward_begins(self, gradient: Tensor | None = None) -> None:
        if not self.synchronises or self._round_is_open:
            return
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
        if self.server is not None:
            if not self._round_is_open or self._undecided_round != self._round:
                self.drop()  # a second backward before step(): the servers get the sum of both
            if isinstance(slot.parameter.grad, PendingGradient):
                slot.parameter.grad = slot.gradient
            return
        if self.delays and _is_untouched(slot):
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
        if self._session is not None:
            self._hand_over(slot)

    def _hand_over(self, slot: Slot) -> None:
        assert self._session is not None
        slot.round = self._round
        gradient = _sendable(slot)
        slot.gradient = gradient
        slot.version = gradient._version
        slot.is_travelling = True
        slot.parameter.grad = self.guard(slot, gradient)
        result = gradient
        if self.server is not None:
            result = slot.parameter
            self._is_undecided, self._undecided_round = True, self._round
            if slot.parameter._version != slot.parameter_version:
                raise RuntimeError(
                    f"'{slot.name}' was changed outside of step(), and the servers do not know; with server_optimizer=True "
                    "load parameters before the first step, or before optimizer.load_state_dict()"
                )
        size = gradient.numel() * gradient.element_size()
        self._session.gradient_ready(slot.index, gradient.data_ptr(), result.data_ptr(), size)

    def _backward_ends(self) -> None:
        """Every rank takes part with every parameter in every round, so that nobody waits for what never comes."""
        self._round_is_open = False
        if not self._round_has_gradients:  # torch.autograd.grad() leaves none
            return
        self.rounds += 1
        self._times.backward_ends()
        is_first = self._session is None
        if is_first:
            self._plan()
        begun = time.perf_counter()
        assert self._session is not None
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
                continue
            slot.round = self._round
            slot.is_travelling = True
            result: Tensor = slot.parameter
            if self.server is not None:
                self._is_undecided, self._undecided_round = True, self._round
                slot.gradient = None
            else:
                result = slot.gradient = torch.empty_like(slot.parameter, requires_grad=False)
                slot.version = slot.gradient._version
                slot.parameter.grad = self.guard(slot, slot.gradient)
            self._session.gradient_absent(slot.index, result.data_ptr(), result.numel() * result.element_size())
        if self.rounds <= _AS_DDP and self.server is None:
            self.synchronize()
            if is_first:
                self._first_round_seconds = time.perf_counter() - begun
        if is_first:
            self._began = time.perf_counter()

    def _hand_out_delayed(self) -> None:
        """As a round in which nobody has a gradient: the oldest that is delayed is the result."""
        assert self._session is not None
        for slot in reversed(self._slots):
            slot.gradient = torch.empty_like(slot.parameter, requires_grad=False)
            slot.version = slot.gradient._version
            slot.is_travelling = True
            slot.parameter.grad = self.guard(slot, slot.gradient)
            self._session.hand_out_delayed(
                slot.index, slot.gradient.data_ptr(), slot.gradient.numel() * slot.gradient.element_size()
            )

    def _settle(self, slot: Slot) -> None:
        """The mean of the slot's gradient is in it afterwards, and in `parameter.grad` if nobody has changed that."""
        if not slot.is_travelling:
            return
        assert self._session is not None
        begun = time.perf_counter()
        slot.is_empty = not self._session.wait(slot.index)
        waited = time.perf_counter() - begun
        self._seconds_waited += waited
        self._times.pause(waited)
        slot.is_travelling = False
        if slot.gradient is None:  # a server's optimizer, and this rank had none
            return
        if slot.gradient._version != slot.version:
            raise RuntimeError(
                f"the gradient of '{slot.name}' was changed while its mean was on the way; call "
                "optimizer.synchronize() before you touch it"
            )
        if self.server is not None:
            return
        if slot.is_empty:
            slot.gradient.zero_()  # for whoever still holds it
        if isinstance(slot.parameter.grad, PendingGradient) and not slot.gate.is_closed:
            slot.parameter.grad = None if slot.is_empty else slot.gradient

    def _arrived(self, slot: Slot, gradient: Tensor) -> Tensor:
        """Somebody touches a gradient that is guarded: what waits for it comes first."""
        if self.server is not None:
            raise RuntimeError(_NO_MEAN_HERE)
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


def _is_untouched(slot: Slot) -> bool:
    """True iff the mean that came last stands in `parameter.grad` as it came."""
    gradient = slot.parameter.grad
    if isinstance(gradient, PendingGradient):
        return True
    return gradient is not None and gradient is slot.gradient and gradient._version == slot.version


def _sendable(slot: Slot) -> Tensor:
    """The gradient as it lies, if it lies as on every other rank; else a copy in the parameter's layout."""
    parameter, gradient = slot.parameter, slot.parameter.grad
    assert gradient is not None
    if gradient.layout != torch.strided:
        raise RuntimeError(f"'{slot.name}' has a sparse gradient, which sluice cannot average; use sparse=False")
    if gradient.dtype != parameter.dtype:
        raise RuntimeError(f"'{slot.name}' is {parameter.dtype}, but its gradient is {gradient.dtype}")
    if gradient.stride() == parameter.stride() and (gradient.is_contiguous() or is_dense(gradient)):
        return gradient
    copy = torch.empty_like(parameter, requires_grad=False)
    copy.copy_(gradient)
    return copy


def is_dense(tensor: Tensor) -> bool:
    """True iff its elements fill one piece of memory without holes, in whichever order."""
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda both: both[1]):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _tensors_in(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for one in output:
            yield from _tensors_in(one)
    elif isinstance(output, dict):
        for one in output.values():
            yield from _tensors_in(one)
