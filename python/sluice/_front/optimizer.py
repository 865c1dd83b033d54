"""The user's optimizer, in place: still a torch.optim.Optimizer of its own class, whose step()
returns at once and is carried out gate by gate in the next forward pass."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as torch_optimizer

from sluice import _core
from sluice._engine.engine import Engine
from sluice._front.server import ServerStep
from sluice._job.whereabouts import Within
from sluice._tensor.accelerator import current_accelerator
from sluice._tensor.pending import PendingGradient
from sluice._tensor.slots import Gate, Slot

# A test (tests/python/same_training_test.py) has shown that these treat every tensor separately: a
# step in parts gives the same bits as a step at once.
BY_GATE = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD, torch.optim.Rprop,
)  # fmt: skip

Group = dict[str, Any]

_STATE = "sluice"  # key in state_dict() for state that plain PyTorch ignores


class LateStep:
    """One optimizer's part in the engine: the step that was frozen by step(), and the parts of it
    that are still to be applied."""

    def __init__(self, engine: Engine, optimizer: torch.optim.Optimizer, per_tensor: bool) -> None:
        kind = type(optimizer)
        self.engine = engine
        self.kind = kind
        self.checks_groups = per_tensor and kind not in BY_GATE
        self.is_by_gate = not engine.job.is_alone and (per_tensor or kind in BY_GATE)
        # Take the function without the hooks around it: they fire once per step, not once per gate.
        self.step_function: Callable[[Any], Any] = getattr(kind.step, "__wrapped__", kind.step)
        self.frozen: list[Group] = []
        self.late: dict[Gate, list[tuple[int, Tensor, Tensor, Slot]]] = {}
        # With SLUICE_DEBUG=gates: the values behind the NaNs.
        self.hidden: dict[Tensor, Tensor] = {}
        self.is_taken = False  # true iff the last step() must not be made again
        self.interrupted_round = -1  # the round in which step() was interrupted after that
        # The same optimizer as it was at step(), with a part of its parameters.
        self.twin: Any = None

    def freeze(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes the settings and the gradients of this step. A scheduler that steps later does not
        change them."""
        frozen = [
            {key: _frozen(value) for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        twin: Any = object.__new__(self.kind)
        twin.__dict__.update(optimizer.__dict__)
        strangers: list[tuple[int, Tensor]] = []
        late: dict[Gate, list[tuple[int, Tensor, Tensor, Slot]]] = {}
        for number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                slot = self.engine.slot_of.get(parameter)
                if slot is None:  # not in the model: no other rank has it
                    strangers.append((number, parameter))
                    continue
                if isinstance(gradient, PendingGradient):
                    assert slot.gradient is not None
                    gradient = slot.gradient
                late.setdefault(slot.gate, []).append((number, parameter, gradient, slot))
        with self.engine.health.whole("step()"):
            self.frozen, self.twin, self.late = frozen, twin, late
            for _, parameter, gradient, slot in itertools.chain(*late.values()):
                if not isinstance(parameter.grad, PendingGradient):
                    parameter.grad = self.engine.gates.guard(slot, gradient)
                if self.engine.debug_gates:
                    self.hidden[parameter] = parameter.detach().clone()
                    parameter.data.fill_(float("nan"))
                self.engine.gates.close(slot)
            self._step(strangers)
            self.is_taken = True
            self.engine.took_step(self)

    def apply(self, gate: Gate) -> None:
        """REQUIRES: inside whole(). An exception leaves the optimizer's state half changed."""
        part = self.late.get(gate)
        if part is None:
            return
        shown = []
        for _, parameter, gradient, slot in part:
            if parameter in self.hidden:
                parameter.data.copy_(self.hidden.pop(parameter))
            is_empty = slot.is_empty and gradient is slot.gradient
            before = parameter.grad
            mean = None if is_empty else gradient
            is_of_this_step = isinstance(before, PendingGradient) and not slot.awaits_finish
            shown.append((parameter, mean if is_of_this_step else before))
            parameter.grad = mean
        try:
            self._step([(number, parameter) for number, parameter, _, _ in part])
        finally:
            for parameter, gradient_shown in shown:
                parameter.grad = gradient_shown
        del self.late[gate]

    def _step(self, part: list[tuple[int, Tensor]]) -> None:
        if not part:
            return
        groups = []
        for number in sorted({number for number, _ in part}):
            groups.append(
                {
                    **self.frozen[number],
                    "params": [parameter for n, parameter in part if n == number],
                }
            )
        before = [dict(group) for group in groups] if self.checks_groups else []
        self.twin.param_groups = groups
        with _plain_modes():
            self.step_function(self.twin)
        for old, new in zip(before, groups, strict=False):
            changed = [
                key
                for key in new
                if key not in old or (key != "params" and new[key] is not old[key])
            ]
            if changed:
                raise RuntimeError(
                    f"{self.kind.__name__} keeps '{changed[0]}' in its parameter group and "
                    "changes it in every step, so its step cannot be taken in parts; leave "
                    "out per_tensor=True"
                )


class GatedOptimizer(torch.optim.Optimizer):
    """This class is mixed into the optimizer's class."""

    _late: LateStep | ServerStep

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        late = self._late
        if late.interrupted_round == late.engine.round:
            late.interrupted_round = -1
            return None
        late.is_taken = False
        try:
            with Within(late.engine.job.core, _core.Doing.STEP):
                result = self._gated_step(closure)
            late.engine.job.notice_members(late.engine.session)
            late.engine.job.leave_if_asked()
            return result
        except BaseException:
            if late.is_taken:  # this call has failed, so the program will call step() again
                late.interrupted_round = late.engine.round
            raise

    # Schedulers wrap step() to see whether it was called. Our step() reports that itself, also to a
    # scheduler made before distribute().
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    step.hooked = True  # type: ignore[attr-defined]

    def _gated_step(self, closure: Callable[[], Any] | None) -> Any:
        late = self._late
        self._opt_called = True  # schedulers read this
        if isinstance(late, ServerStep) and (closure is not None or _has_hooks(self)):
            raise RuntimeError(
                "with server_optimizer=True step() takes no closure and has no hooks; leave it "
                "out to use them"
            )
        if closure is not None and late.engine.training.delays:
            raise RuntimeError(
                "with algorithm=pipe step() takes no closure: it would not see the gradients of "
                "its own loss; call backward() before step()"
            )
        if closure is not None:
            return self._whole_step(_averaged(closure, late.engine))
        if not late.is_by_gate or _has_hooks(self) or getattr(self, "grad_scale", None) is not None:
            return self._whole_step(None)
        late.engine.enter_step(late)
        late.freeze(self)
        return None

    def _whole_step(self, closure: Callable[[], Any] | None) -> Any:
        late = self._late
        late.engine.enter_step(late)
        with late.engine.health.owed(late, "step()", "call it again before anything else"):
            late.engine.synchronize()
        with late.engine.health.whole("step()"):
            loss = super().step(closure) if closure is not None else super().step()
            late.is_taken = True
            late.engine.took_step(late)
            return loss

    def synchronize(self) -> None:
        """After backward(): the mean gradients are in place. After step(): all parameters have
        their new values."""
        self._late.engine.open_all()
        self._late.engine.synchronize()

    def drain(self) -> None:
        """With algorithm="pipe", after the last step(): applies the gradients that are still
        delayed, for all optimizers of the model. Every rank calls it. No other algorithm delays
        gradients."""
        self._late.engine.drain()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._late.engine.refuse_while_owed()
        if set_to_none:
            return super().zero_grad(set_to_none=True)
        for group in self.param_groups:
            for parameter in group["params"]:
                # New zeros do not disturb a gradient that is still on its way.
                if isinstance(parameter.grad, PendingGradient):
                    parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        return super().zero_grad(set_to_none=False)

    def state_dict(self) -> Any:
        """With server_optimizer=True this is a collective call: every rank gets the whole state,
        gathered from the servers."""
        late, engine = self._late, self._late.engine
        engine.open_all()
        with late.gathered(self) if isinstance(late, ServerStep) else contextlib.nullcontext():
            state = super().state_dict()
        # If the model has several optimizers, only the first one saves the engine's state.
        saved = engine.state() if self is engine.optimizers[0] else b""
        if saved:
            state[_STATE] = torch.frombuffer(bytearray(saved), dtype=torch.uint8)
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        engine = self._late.engine
        engine.open_all()
        plain = dict(state_dict)
        saved = plain.pop(_STATE, None)
        late, whole = self._late, {}
        if isinstance(late, ServerStep):
            late.refuse_to_load(plain["state"], saved is not None)
            # PyTorch would round the state to the parameters' type.
            whole, plain["state"] = (
                plain["state"],
                {},
            )
        super().load_state_dict(plain)
        if isinstance(late, ServerStep):
            late.load(self, plain["param_groups"], whole)
        if self is engine.optimizers[0]:
            engine.checkpoint.load(b"" if saved is None else saved.numpy().tobytes())

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._late.engine.open_all()
        if isinstance(self._late, ServerStep):
            raise RuntimeError(
                "with server_optimizer=True the state is on the servers: save or copy the "
                "optimizer's state_dict()"
            )
        return (
            copyreg.__newobj__,  # type: ignore[attr-defined]
            (self._late.kind,),
            self.__getstate__(),
        )


def dress(
    optimizer: torch.optim.Optimizer, engine: Engine, *, per_tensor: bool, on_servers: bool
) -> GatedOptimizer:
    kind = type(optimizer)
    late = ServerStep(engine, optimizer) if on_servers else LateStep(engine, optimizer, per_tensor)
    # A scheduler that was made first has put its own wrapper here.
    optimizer.__dict__.pop("step", None)
    names = {"_late": late, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    optimizer.__class__ = type(kind.__name__, (GatedOptimizer, kind), names)
    engine.gates.updaters.append(late)
    engine.optimizers.append(optimizer)
    if not late.is_by_gate and not engine.job.is_alone and engine.job.rank == 0:
        _core.say(
            f"{kind.__name__} is not known to treat tensors one by one, so its step waits for all "
            "gradients; if it does, say per_tensor=True"
        )
    assert isinstance(optimizer, GatedOptimizer)
    return optimizer


def undress(optimizer: torch.optim.Optimizer) -> None:
    """Gives the optimizer the class back that it had before dress()."""
    if isinstance(optimizer, GatedOptimizer):
        optimizer.__class__ = optimizer._late.kind  # type: ignore[assignment]


def _has_hooks(optimizer: Any) -> bool:
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
    )


def _frozen(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _averaged(closure: Callable[[], Any], engine: Engine) -> Callable[[], Any]:
    """All ranks must see the same loss, or they would decide differently on how far to go."""

    def evaluate() -> Any:
        engine.open_all()
        loss = closure()
        engine.synchronize()
        return (
            engine.job.mean(loss.detach() if isinstance(loss, Tensor) else loss)
            if loss is not None
            else None
        )

    return evaluate


@functools.cache
def _device_types() -> tuple[str, ...]:
    accelerator = current_accelerator()
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


@contextlib.contextmanager
def _plain_modes() -> Iterator[None]:
    """An update in the middle of a forward pass is still an update: none of the pass's modes
    applies to it."""
    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for kind in _device_types():
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.no_grad())
        yield
