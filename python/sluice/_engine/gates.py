"""The gates of one model: step() closes them, and whoever reads a parameter opens its own. A gate
opens in two parts, the wait for the means of its gradients and the optimizer's step for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from torch import Tensor
from torch._compile import _disable_dynamo

from sluice import _core
from sluice._engine.training import Training
from sluice._tensor.pending import PendingGradient
from sluice._tensor.slots import Gate, Slot

NO_MEAN_HERE = (
    "with server_optimizer=True the mean gradient is on the servers only, and cannot be looked at, "
    "clipped or unscaled; leave out server_optimizer=True"
)


class Updater(Protocol):
    """An optimizer that has frozen a step, and applies it gate by gate."""

    def apply(self, gate: Gate) -> None: ...


class Gates:
    """Everything between a gradient that is on its way and a parameter that may be read."""

    def __init__(self, training: Training) -> None:
        self.updaters: list[Updater] = []
        self.is_closed = False  # true iff any gate is
        self.was_touched = False  # true iff somebody looked at a gradient on its way
        self.has_updates = False  # true iff parameters on a device were updated
        # Hands over what backward() has left, before somebody looks at a slot's gradient.
        self.finish_round: Callable[[Slot], None] = _nothing
        # Raises the reason if a rank was lost since the ranks differ: it may have been the first to
        # see that.
        self.explain_loss: Callable[[], None] = _nothing_to_say
        self._training = training

    def close(self, slot: Slot) -> None:
        """Closes a parameter's gate at step(): its gradient is not to be touched before the
        update."""
        if self._training.server is None:
            slot.know()
        slot.gate.is_closed = True
        self.is_closed = True

    @_disable_dynamo
    def open(self, gate: Gate) -> None:
        """Gives the gate's parameters their new values."""
        training = self._training
        training.health.check()
        with training.spent.times.paused():
            self._open(gate)

    def _open(self, gate: Gate) -> None:
        training = self._training
        for slot in gate.slots:
            self.settle(slot)
        for slot in gate.slots:
            if slot.is_changed if training.server is None else slot.is_moved:
                training.health.fail(
                    f"'{slot.name}' was changed or given other memory between step() and its "
                    "update, which came with the next "
                    "forward pass; call optimizer.synchronize() after step() and before you change "
                    "it"
                )
        with training.health.whole(f"the optimizer's step for '{gate.slots[0].name}'"):
            gate.is_closed = False  # first, since the optimizer reads the parameters
            if gate.update is not None:
                self.follow_update(gate)  # another stream may have made the last one
            for updater in self.updaters:
                updater.apply(gate)
            for slot in gate.slots:
                if training.server is None:
                    slot.known = None
                    self._show(slot)
            if training.device is not None:
                gate.update = training.device.updated()
                self.has_updates = True

    def open_all(self) -> None:
        """Opens those that are closed. The current stream then waits for all updates."""
        if self.is_closed:
            for slot in self._training.slots:
                if slot.gate.is_closed:
                    self.open(slot.gate)
            self.is_closed = False
        if self.has_updates:
            for gate in {slot.gate for slot in self._training.slots}:
                self.follow_update(gate)

    def open_for(self, parameter: Tensor) -> None:
        """Opens the gate of a parameter that is about to be read."""
        slot = self._training.slot_of.get(parameter)
        if slot is None:
            return
        if slot.gate.is_closed:
            self.open(slot.gate)
        elif slot.gate.update is not None:
            self.follow_update(slot.gate)

    def follow_update(self, gate: Gate) -> None:
        """Makes the current stream wait for the last update of a gate that is open, if another
        stream made it."""
        if gate.update is not None and self._training.device is not None:
            self._training.device.follow(gate.update)

    def guard(self, slot: Slot, gradient: Tensor) -> PendingGradient:
        """Returns a stand-in for a gradient that is still needed as it is."""
        return PendingGradient.of(gradient, functools.partial(self._arrived, slot, gradient))

    def settle(self, slot: Slot) -> None:
        """Waits until the mean of the slot's gradient is in it, and shows it in `parameter.grad` if
        nobody has changed that."""
        if not slot.is_travelling:
            return
        training = self._training
        assert training.session is not None
        try:
            with training.spent.waiting():
                slot.is_empty = not training.session.wait(slot.index)
        except RuntimeError:
            self.explain_loss()
            raise
        if slot.gradient is not None and slot.gradient._version != slot.version:
            training.health.fail(
                f"the gradient of '{slot.name}' was changed while its mean was on the way; call "
                "optimizer.synchronize() before you touch it"
            )
        with training.health.whole(f"the wait for '{slot.name}'"):
            if slot.is_empty and slot.gradient is not None and training.server is None:
                slot.gradient.zero_()  # for whoever still holds it
            slot.is_travelling = False
            if not slot.gate.is_closed:
                self._show(slot)

    def settle_all(self) -> None:
        """Waits for the means of all gradients, in the order of the plan."""
        for slot in self._training.slots:
            self.settle(slot)

    def _show(self, slot: Slot) -> None:
        """Puts the mean into `parameter.grad`, unless somebody has put anything else there."""
        if slot.awaits_finish:
            return  # finish_round() puts another gradient there
        is_here = (
            self._training.server is None and not slot.is_travelling and slot.gradient is not None
        )
        if is_here and isinstance(slot.parameter.grad, PendingGradient):
            slot.parameter.grad = None if slot.is_empty else slot.gradient

    def _arrived(self, slot: Slot, gradient: Tensor) -> Tensor:
        """Waits for all that comes before somebody may touch a gradient that is guarded."""
        training = self._training
        if training.server is not None:
            raise RuntimeError(NO_MEAN_HERE)
        training.health.check()
        is_replaced = slot.awaits_finish
        self.finish_round(slot)
        if is_replaced:
            shown = slot.parameter.grad
            if shown is not None and not isinstance(shown, PendingGradient):
                gradient = shown
            elif slot.gradient is not None:
                gradient = slot.gradient
        if slot.is_travelling and not slot.gate.is_closed and not self.was_touched:
            self.was_touched = True
            if training.job.rank == 0:
                _core.say(
                    f"the gradients of '{training.name}' are looked at between backward() and "
                    "step(), as in clipping: every step "
                    "waits for their means there, and only the optimizer is left for the next "
                    "forward pass"
                )
        if slot.gate.is_closed:
            self.open(slot.gate)
        self.settle(slot)
        return gradient


def _nothing(slot: Slot) -> None:
    pass


def _nothing_to_say() -> None:
    pass
