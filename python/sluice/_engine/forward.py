"""Forward: parameters leave. Each layer's gate opens when the pass reaches it, and the first pass
of a step begins with rank 0's buffers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from sluice import _core
from sluice._engine.backward import Backward
from sluice._engine.gates import Gates
from sluice._engine.plan import Plan
from sluice._engine.training import Training
from sluice._job.whereabouts import Within
from sluice._tensor.observe import calls_under_way
from sluice._tensor.slots import Gate

_FORWARD, _EVALUATION = _core.Doing.FORWARD, _core.Doing.EVALUATION


class Entrance(Protocol):
    """The engine, as calls of the model meet it."""

    def enter(self) -> None: ...

    def open_all(self) -> None: ...

    def refuse_while_owed(self) -> None: ...

    def start_over(self) -> None: ...


class Forward:
    """Hooks on the whole model from the beginning on, and on modules that read trained parameters
    once there is a plan."""

    def __init__(
        self,
        training: Training,
        gates: Gates,
        backward: Backward,
        plan: Plan,
        entrance: Entrance,
        *,
        broadcast_buffers: bool,
    ) -> None:
        self._training, self._gates, self._backward = training, gates, backward
        self._plan, self._entrance = plan, entrance
        self._broadcasts_buffers = broadcast_buffers
        self._buffers_of = -1  # the round that they were received after
        self._outside: int | None = None  # of Job.enter(), in a call of the model
        self._depth = 0  # of calls of the model itself
        model = training.model
        self._root_hooks = [
            model.register_forward_pre_hook(self._before_model, prepend=True),
            model.register_forward_hook(self._model_ends, always_call=True),
            model.register_forward_hook(self._after_model),
        ]

    def stop(self) -> None:
        """Takes its hooks off the whole model."""
        for hook in self._root_hooks:
            hook.remove()

    def watch(self, modules: Iterable[nn.Module]) -> list[Any]:
        """Waits from now on at the gates of these modules. Returns the hooks, for their removal."""
        return [
            module.register_forward_pre_hook(self._before_module, prepend=True)
            for module in modules
        ]

    def _before_model(self, model: nn.Module, args: Any) -> None:
        if self._depth > 0 and calls_under_way(model) < 2:
            self._depth = 0  # the last call was interrupted
        self._depth += 1
        if self._depth > 1 or self._training.job.is_alone:
            return
        self._training.thread = threading.get_ident()
        self._entrance.enter()
        self._enter(_FORWARD if torch.is_grad_enabled() else _EVALUATION)
        self._backward.finish()
        if not torch.is_grad_enabled():
            self._entrance.open_all()
            return
        self._entrance.refuse_while_owed()
        if self._plan.is_outdated:
            self._entrance.start_over()
        if self._broadcasts_buffers:
            self._receive_buffers()
        if not torch.compiler.is_compiling():
            self._training.spent.times.forward_begins()

    def _enter(self, doing: _core.Doing) -> None:
        """Tells the other ranks where this one is."""
        if torch.compiler.is_compiling():
            return
        before = self._training.job.core.enter(doing, self._backward.next_step)
        # A backward pass may run the forward pass again. Anything else that it was in has been
        # interrupted.
        self._outside = before if torch._C._current_graph_task_id() >= 0 else 0

    @_disable_dynamo
    def _receive_buffers(self) -> None:
        """Takes rank 0's buffers in the first pass with gradients after a round. All ranks make the
        same rounds, so they agree on that pass, but not on its mode nor on how many follow: one may
        evaluate in between, or train with frozen statistics. Later passes would also change what
        the backward pass needs of the first."""
        if self._buffers_of == self._backward.round:
            return
        training, job = self._training, self._training.job
        buffers = [buffer for buffer in training.model.buffers() if buffer.numel() > 0]
        if not buffers:
            return
        round_now = self._backward.round
        here = torch.tensor([round_now], device="cpu")
        try:
            with Within(job.core, _core.Doing.BUFFERS, self._backward.next_step):
                (there, *values) = job.receive_together(self, [here, *buffers])
        except RuntimeError:
            self._gates.explain_loss()
            raise
        if job.rank > 0 and not torch.equal(there, here):
            training.health.fail(
                f"rank 0 is in step {int(there)}, but rank {job.rank} in step {round_now}: one of "
                "them has skipped or repeated a pass"
            )
        with training.health.whole("the exchange of buffers"):
            for buffer, value in zip(buffers if job.rank > 0 else [], values, strict=False):
                buffer.detach().copy_(value)
            self._buffers_of = round_now
            job.received(self)

    def _model_ends(self, model: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)  # an exception may have come before the first hook
        if self._depth == 0 and not torch.compiler.is_compiling():
            self._training.spent.times.forward_ends()
            if self._outside is not None:
                self._training.job.core.leave(self._outside)
                self._outside = None

    def _after_model(self, model: nn.Module, args: Any, output: Any) -> None:
        if self._depth == 0 and not self._training.job.is_alone and torch.is_grad_enabled():
            # Fires before any parameter's hook, in the outermost backward: activation checkpointing
            # has inner ones.
            for tensor in _tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._backward.begin)

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if (
            self._gates.is_closed
            and self._depth == 0
            and (not module.training or not torch.is_grad_enabled())
        ):
            self._entrance.open_all()
        for gate in self._plan.gates_of[module]:
            if gate.is_closed:
                self._gates.open(gate)
            elif gate.update is not None and not torch.compiler.is_compiling():
                self._gates.follow_update(gate)
            if not torch.compiler.is_compiling():  # it would guard against every new time
                self._training.spent.times.reads(gate)
                if self._depth > 0:
                    self._note_read(gate)

    def _note_read(self, gate: Gate) -> None:
        """Counts reads of this round. Reentrant checkpointing reads without recording, and each of
        its segments has a backward of its own."""
        round_now = self._backward.round
        if gate.reads_round != round_now:
            gate.reads_round, gate.reads, gate.is_read_without_grad = round_now, 0, False
        gate.reads += 1
        gate.is_read_without_grad |= not torch.is_grad_enabled()
        if gate.reads > 1 and gate.is_read_without_grad:
            for slot in gate.slots:
                slot.comes_in_parts = True


def announce_change(training: Training) -> None:
    """Tells the other ranks, which may not follow, why this one begins a session of its own."""
    if training.session is None:
        return
    now = {p: name for name, p in nn.Module.named_parameters(training.model) if p.requires_grad}
    kept = {parameter for _, parameter in nn.Module.named_parameters(training.model)}
    changes = {
        "frozen": [slot.name for slot in training.slots if slot.parameter in kept - set(now)],
        "removed": [slot.name for slot in training.slots if slot.parameter not in kept],
        "begun to train": [name for p, name in now.items() if p not in training.slot_of],
    }
    texts = [f"{change} {_few(names)}" for change, names in changes.items() if names]
    training.session.announce_end(f"has {' and '.join(texts)}" if texts else "")


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more


def _tensors_in(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for one in output:
            yield from _tensors_in(one)
    elif isinstance(output, dict):
        for one in output.values():
            yield from _tensors_in(one)
