"""Backward: gradients enter. A round is one backward pass that sends gradients, from the first of
them until every rank has taken part with every parameter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor

from sluice import _core
from sluice._engine.decision import Decision
from sluice._engine.gates import Gates
from sluice._engine.training import Training
from sluice._job.whereabouts import Within
from sluice._tensor.pending import PendingGradient
from sluice._tensor.slots import Slot, is_untouched, laid_out, sendable

# So many rounds end with all mean gradients in place when backward() returns, as DDP's do: whatever
# a loop does only at its beginning meets nothing new.
_AS_DDP = 2


class Backward:
    """The rounds of one model. `make_plan` opens the session, at the end of the first, and
    `round_ends` is called at the end of each."""

    def __init__(
        self,
        training: Training,
        gates: Gates,
        decision: Decision,
        make_plan: Callable[[], None],
        round_ends: Callable[[], None],
    ) -> None:
        self.synchronises = True  # false inside no_sync()
        self.round = 0  # the number of the last one
        self.was_lost = False  # it ended with an exception, and nothing had been sent
        self._first_round = 1  # step 0 of the session
        self._outside = 0  # of Job.enter()
        # The hooks of parameters on a device run on a thread of autograd's, beside those of
        # parameters in the host's memory.
        self._opening = threading.Lock()
        self._is_open = False
        self._is_due = False  # it has ended, but not all of its gradients have been handed over
        self._is_finishing = False
        self._handed_over = 0  # in this round
        self._has_gradients = False
        self._has_earlier = False  # gradients wait for a mean that they are added to
        self._training, self._gates, self._decision = training, gates, decision
        self._make_plan, self._round_ends = make_plan, round_ends

    @property
    def step(self) -> int:
        """The last round, as the session numbers its steps."""
        return max(0, self.round - self._first_round)

    @property
    def next_step(self) -> int:
        return max(0, self.round + 1 - self._first_round)

    def notice_exception(self) -> None:
        """Closes a round that backward() has left with an exception. Fails if other ranks have used
        its gradients."""
        if self._is_open and torch._C._current_graph_task_id() < 0:
            if self._handed_over > 0:
                self._is_open = False
                self._training.health.fail(
                    "backward() ended with an exception after it had sent gradients, and the other "
                    "ranks have used them; start "
                    "again from the last checkpoint"
                )
            self._is_open, self.was_lost = False, True
            self._training.job.core.leave(self._outside)

    def begin(self, gradient: Tensor | None = None) -> None:
        """Opens a round with the first gradient of a backward pass, as a hook on the model's output
        or from a parameter's."""
        if not self.synchronises or self._is_open:
            return
        with self._opening:
            if self._is_open:
                return
            self._handed_over = 0
            self.was_lost = False
            self._has_gradients = False
            self.round += 1
            self._outside = self._training.job.core.enter(_core.Doing.BACKWARD, self.step)
            self._is_open = True  # last: hooks on another thread look at it first
        torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def before_accumulation(self, slot: Slot, gradient: Tensor) -> None:
        """Makes `parameter.grad` a tensor that a gradient can be added to; a hook."""
        if slot.gate.is_closed:
            raise RuntimeError(
                f"'{slot.name}' got a gradient, but its gate was still closed: the forward pass "
                "read its old value from "
                "a reference that sluice does not see. Read it as an attribute of its module, or "
                "call "
                "optimizer.synchronize() after step()"
            )
        if self._is_open and slot.round == self.round:
            self._training.health.fail(
                f"'{slot.name}' got a second gradient in one backward() after its first had been "
                "sent, as reentrant "
                "checkpointing makes them; use checkpoint(..., use_reentrant=False)"
            )
        if self._training.server is not None:
            if not self._is_open or self._decision.round != self.round:
                # A second backward before step(): the servers get the sum of both.
                self._decision.begin_drop()
                if not slot.is_on_device:  # a thread of autograd's must not wait for the network
                    self._decision.end_drop()
            if isinstance(slot.parameter.grad, PendingGradient):
                slot.parameter.grad = slot.gradient
                if slot.is_travelling:
                    slot.gradient = None  # it is discarded, so it may change on its way
            return
        if self._training.delays and is_untouched(slot):
            raise RuntimeError(
                f"with algorithm=pipe the gradient of '{slot.name}' is that of an earlier step, "
                "and a new one cannot be added: "
                "call zero_grad() after every step(), and accumulate in no_sync()"
            )
        # A second backward before step(): it adds to the mean of the first.
        if not slot.is_on_device:
            self._gates.settle(slot)
        elif not isinstance(slot.parameter.grad, PendingGradient):
            slot.earlier = []  # the program has dropped their sum
        elif slot.is_absent:  # now it has a gradient
            slot.unsent, slot.is_absent, slot.parameter.grad = None, False, None
        elif slot.earlier or (slot.is_travelling and slot.gradient is not None):
            # finish() adds them: a thread of autograd's must not wait for the network.
            if not slot.earlier and slot.gradient is not None:
                slot.earlier = [slot.gradient]
            self._has_earlier = True
            slot.parameter.grad = None

    def after_accumulation(self, slot: Slot, parameter: Tensor) -> None:
        """Hands a gradient over as soon as all of it is there; a hook."""
        self._training.spent.times.gradient(slot.gate)
        if slot.earlier:
            assert slot.parameter.grad is not None
            slot.earlier.append(slot.parameter.grad)
            slot.parameter.grad = self._gates.guard(slot, slot.earlier[0])  # the sum, later
        if not self.synchronises:
            return
        self.begin()
        self._has_gradients = True
        if slot.gradient_round == self.round:
            slot.comes_in_parts = True
        slot.gradient_round = self.round
        comes_late = slot.comes_in_parts or slot.is_travelling or slot.earlier
        if self._training.session is not None and not comes_late:
            self._hand_over(slot)

    def finish_before_look(self, slot: Slot) -> None:
        """Runs finish() when somebody looks at a gradient: its mean may have to wait for gradients
        that have not been handed over."""
        if slot.awaits_finish or self._is_due:
            self.finish()

    def finish(self) -> None:
        """Hands over all that the round still lacks: every rank takes part with every parameter in
        every round, so that nobody waits for what never comes. Goes on where an exception has
        stopped it."""
        if self._is_finishing:  # an optimizer's hook looks at a gradient
            return
        self._is_finishing = True
        try:
            self._finish()
        finally:
            self._is_finishing = False

    def _finish(self) -> None:
        training = self._training
        self._decision.end_drop()
        if not self._is_due:
            self._take_up_earlier()
            training.health.paid(self)
            return
        with training.health.owed(
            self,
            "backward()",
            "its gradients are on their way already, so call step() or optimizer.synchronize() "
            "next",
        ):
            is_first = training.session is None
            if is_first:
                self._first_round = self.round
                with Within(training.job.core, _core.Doing.PLAN):
                    self._make_plan()
            begun = time.perf_counter()
            for slot in reversed(training.slots):
                if slot.round != self.round:
                    self._hand_over_late(slot)
            if training.spent.rounds <= _AS_DDP and training.server is None:
                self._gates.settle_all()
                if is_first:
                    training.spent.first_round = time.perf_counter() - begun
            if is_first:
                training.spent.began = time.perf_counter()
            self._round_ends()
        self._is_due = self._has_earlier = False
        training.health.paid(self)

    def hand_out_delayed(self) -> None:
        """Runs a round in which nobody has a gradient: the oldest that is delayed is the result.
        REQUIRES: inside whole()"""
        for slot in reversed(self._training.slots):
            empty = self._send_off(slot, torch.empty_like(slot.parameter, requires_grad=False))
            assert slot.door is not None
            slot.door.hand_out_delayed(slot.index, empty)

    def _end(self) -> None:
        """Ends the backward pass, as autograd's callback."""
        try:
            self._close_round()
        finally:
            self._training.job.core.leave(self._outside)

    def _close_round(self) -> None:
        self._is_due = self._has_gradients  # torch.autograd.grad() leaves none
        self._is_open = False
        if not self._is_due:
            return
        self._training.spent.rounds += 1
        self._training.spent.times.backward_ends()
        if threading.get_ident() == self._training.thread:
            self.finish()
        else:
            self._leave_to_training_thread()

    def _leave_to_training_thread(self) -> None:
        """Puts a stand-in in the place of every gradient that has not been handed over, also where
        this rank has none: unscaling and clipping change the means of other ranks' gradients, too.
        finish() runs when somebody looks at one, or in step(): there Ctrl-C can end its waits."""
        for slot in self._training.slots:
            gradient = slot.parameter.grad
            if slot.round == self.round:
                continue
            if gradient is not None:
                slot.unsent = (
                    slot.earlier[0] if slot.earlier else laid_out(slot.parameter, gradient)
                )
            elif self._training.server is None:
                slot.unsent = torch.empty_like(slot.parameter, requires_grad=False)
                slot.is_absent = True
            else:
                continue
            slot.parameter.grad = self._gates.guard(slot, slot.unsent)

    def _hand_over_late(self, slot: Slot) -> None:
        """Hands over a gradient that came in parts or late, or that does not exist."""
        if slot.gate.is_closed:  # not read in this step
            self._gates.open(slot.gate)
        if self._training.server is None:
            self._gates.settle(slot)
        place = slot.unsent if slot.is_absent else None
        self._take_up(slot)
        if self._training.server is not None and isinstance(slot.parameter.grad, PendingGradient):
            slot.parameter.grad = slot.gradient
        if slot.parameter.grad is not None:
            self._hand_over(slot)
        else:
            self._hand_over_nothing(slot, place)

    def _take_up_earlier(self) -> None:
        """Adds what passes in no_sync() have made to the means that they found on their way."""
        if self._has_earlier:
            for slot in self._training.slots:
                if slot.earlier:
                    self._gates.settle(slot)
                    self._take_up(slot)
            self._has_earlier = False

    @torch.no_grad()
    def _take_up(self, slot: Slot) -> None:
        """Puts the gradient in the place of its stand-in, if the program has left that there. Adds
        it to the mean of an earlier backward() as autograd does in the host's memory. REQUIRES:
        that mean is here."""
        unsent, slot.unsent = slot.unsent, None
        earlier, slot.earlier = slot.earlier, []
        is_absent, slot.is_absent = slot.is_absent, False
        if not isinstance(slot.parameter.grad, PendingGradient):
            return
        if earlier:
            for part in earlier[1:]:
                earlier[0].add_(part)
            slot.parameter.grad = earlier[0]
        elif unsent is not None:
            slot.parameter.grad = None if is_absent else unsent

    def _hand_over(self, slot: Slot) -> None:
        assert slot.door is not None
        gradient = sendable(slot)
        if self._training.server is not None:
            slot.refuse_changed()
        with self._training.health.whole("backward()"):
            result = gradient if self._training.server is None else self._result_at_servers(slot)
            slot.round = self.round
            self._send_off(slot, gradient)
            self._handed_over += 1
            slot.door.gradient_ready(slot.index, gradient, result)

    def _hand_over_nothing(self, slot: Slot, place: Tensor | None) -> None:
        """Takes part without a gradient. The mean of the others lands in `place`, if it is
        given."""
        assert slot.door is not None
        with self._training.health.whole("backward()"):
            slot.round = self.round
            if self._training.server is not None:
                slot.is_travelling = True
                result = self._result_at_servers(slot)
                slot.gradient = None
            else:
                if place is None:
                    place = torch.empty_like(slot.parameter, requires_grad=False)
                result = self._send_off(slot, place)
            slot.door.gradient_absent(slot.index, result)

    def _send_off(self, slot: Slot, gradient: Tensor) -> Tensor:
        """Marks the gradient as on its way, and guards it until its mean is in it."""
        slot.gradient = gradient
        slot.version = gradient._version
        slot.is_travelling = True
        slot.parameter.grad = self._gates.guard(slot, gradient)
        return gradient

    def _result_at_servers(self, slot: Slot) -> Tensor:
        """Returns the memory that the servers' new values land in; they wait for a decision now."""
        slot.result = slot.parameter.detach()
        self._decision.is_open, self._decision.round = True, self.round
        return slot.result
