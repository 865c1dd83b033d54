"""The word that servers with an optimizer wait for: they hold a round's gradients until step() or a
second backward() says what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

from sluice._engine.gates import Gates
from sluice._engine.training import Training
from sluice._tensor.slots import Slot


class Decision:
    """The choice between using and dropping the gradients that the servers hold."""

    def __init__(self, training: Training, gates: Gates) -> None:
        self.is_open = False  # gradients are at the servers, and step() has not been called
        self.round = -1  # the one that made them
        self._is_dropping = False  # the servers were told to drop them, and have not answered
        self._training, self._gates = training, gates

    @property
    def slots(self) -> list[Slot]:
        """The slots that the next step() is for."""
        return [slot for slot in self._training.slots if slot.is_travelling] if self.is_open else []

    def use(self, settings: Sequence[float]) -> None:
        """Lets the servers take the step: step() was called."""
        assert self._training.session is not None
        self.is_open = False
        if self._training.device_door is not None:
            self._training.device_door.wait_before_results()
        self._training.session.update(settings)

    def drop(self) -> None:
        """Cancels the round: servers discard it, and each rank keeps its own gradients."""
        self.begin_drop()
        self.end_drop()

    def begin_drop(self) -> None:
        """Tells the servers to discard the round, and does not wait for them."""
        if self.is_open:
            assert self._training.session is not None
            with self._training.health.whole("backward()"):
                self._training.session.drop()
                self.is_open, self._is_dropping = False, True

    def end_drop(self) -> None:
        """Waits until the servers have discarded the round that they were told to."""
        if self._is_dropping:
            self._gates.settle_all()
            self._is_dropping = False
