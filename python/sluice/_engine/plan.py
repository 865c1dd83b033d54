"""The trained parameters of one model, and the order and the gates that all ranks agree on once the
first forward pass has shown who reads them."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo

from sluice._engine.backward import Backward
from sluice._engine.training import Training
from sluice._tensor.observe import Observer, Reads
from sluice._tensor.slots import DTYPES, Gate, Slot

# Puts hooks on modules that wait at gates, and returns them.
Watch = Callable[[Iterable[nn.Module]], list[Any]]


class Plan:
    """Slots, gates and hooks of one model. They are made anew when others of its parameters are
    trained: frozen layers are unfrozen, a head is replaced."""

    def __init__(self, training: Training, backward: Backward) -> None:
        self.number = -1  # of the plans that were made
        self.gates_of: dict[nn.Module, list[Gate]] = {}
        self._training, self._backward = training, backward
        self._observer: Observer | None = None
        self._reads = Reads()
        self._parameters: list[nn.Parameter] = []
        self._trainable: list[bool] = []
        self._hooks: list[Any] = []

    def take_parameters(self) -> None:
        """Puts hooks on everything that can get a gradient now, and observes who reads it."""
        training, model = self._training, self._training.model
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._parameters = parameters_of(model)
        self._trainable = [parameter.requires_grad for parameter in self._parameters]
        training.slots = []
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            slot = Slot(parameter, name)
            training.slots.append(slot)
            before = functools.partial(self._backward.before_accumulation, slot)
            after = functools.partial(self._backward.after_accumulation, slot)
            self._hooks.append(parameter.register_hook(before))
            self._hooks.append(parameter.register_post_accumulate_grad_hook(after))
        training.slot_of = {slot.parameter: slot for slot in training.slots}
        self._observer = Observer(model, set(training.slot_of))

    @property
    @_disable_dynamo
    def is_outdated(self) -> bool:
        """True iff parameters were frozen, unfrozen, added, removed or replaced."""
        now, then = parameters_of(self._training.model), self._parameters
        return (
            len(now) != len(then)
            or not all(map(operator.is_, now, then))
            or self._trainable != [parameter.requires_grad for parameter in now]
        )

    def start_over(self) -> None:
        """Takes the parameters anew, inside a call of the model. Those that have come since the
        last time begin with rank 0's values."""
        self._let_in(set(self._parameters))
        self.gates_of.clear()
        self.take_parameters()
        assert self._observer is not None
        self._observer.enter(self._training.model)  # its call has begun already

    def _let_in(self, known: set[nn.Parameter]) -> None:
        training, job = self._training, self._training.job
        named = dict(nn.Module.named_parameters(training.model))  # not the model's own: it waits
        newcomers = {name: p for name, p in named.items() if p not in known}
        for name, parameter in newcomers.items():
            if parameter.dtype not in DTYPES:
                raise ValueError(
                    f"'{name}', which came after distribute(), is {parameter.dtype}; sluice "
                    "averages float32, float64, bfloat16 and float16"
                )
            if parameter.device.type != "cpu" and training.device is None:
                raise ValueError(
                    f"'{name}', which came after distribute(), is on {parameter.device}, but the "
                    "model is not; move it, or add it before"
                )
        lines = [f"'{name}' {tuple(p.shape)} {p.dtype}" for name, p in newcomers.items()]
        text = ", ".join(lines) or "none"
        note = f"{hashlib.sha256(text.encode()).hexdigest()} {text[:200]}"
        brought = job.gather(f"joined/{training.name}/{self.number}", note)
        if other := next((rank for rank, each in enumerate(brought) if each != brought[0]), 0):
            raise RuntimeError(
                f"the ranks have added different parameters to '{training.name}': "
                f"{brought[0][65:]} on rank 0, but {brought[other][65:]} on rank {other}"
            )
        for parameter in newcomers.values():
            job.broadcast(parameter.detach())

    def stop(self) -> None:
        """Takes all hooks off parameters and modules."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._observer is not None:
            self._observer.stop()
            self._observer = None
        self.gates_of.clear()
        self._reads, self._parameters, self._trainable = Reads(), [], []

    def agree(self, watch: Watch) -> None:
        """Makes the plan, with all ranks. The first gradients are there, so the first forward pass
        has been seen."""
        if self._observer is not None:
            self._reads = self._observer.stop()
            self._observer = None
        owners = {
            parameter: module
            for module in self._training.model.modules()
            for parameter in module._parameters.values()
        }
        self._agree_on_order()
        gates: dict[nn.Module, Gate] = {}
        for index, slot in enumerate(self._training.slots):
            slot.index = index
            readers = self._reads.readers.get(slot.parameter, [])
            owner = owners[slot.parameter]
            slot.gate = gates.setdefault(readers[0] if readers else owner, Gate())
            slot.gate.slots.append(slot)
            for module in {owner, *readers}:
                waits = self.gates_of.setdefault(module, [])
                if slot.gate not in waits:
                    waits.append(slot.gate)
        self._hooks += watch(self.gates_of)
        self.number += 1

    def _agree_on_order(self) -> None:
        """Numbers the slots as rank 0 has read them: ranks may have taken different branches."""
        slots = self._training.slots
        place = {parameter: number for number, parameter in enumerate(self._reads.order)}
        order = sorted(range(len(slots)), key=lambda n: place.get(slots[n].parameter, len(place)))
        agreed = torch.tensor(order, dtype=torch.int64, device="cpu")
        self._training.job.broadcast(agreed)
        self._training.slots = [slots[n] for n in agreed.tolist()]


def parameters_of(model: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters as they are now, without a wait, and in less time than
    model.parameters() takes: this is asked in every forward pass."""
    found: list[nn.Parameter | None] = []
    seen: set[nn.Module] = set()
    waiting: list[nn.Module] = [model]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            found += module._parameters.values()
            waiting += (child for child in module._modules.values() if child is not None)
    return [parameter for parameter in found if parameter is not None]
