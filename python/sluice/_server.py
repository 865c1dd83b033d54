"""The optimizer's step, taken by the servers: each rank keeps the optimizer's state for its share of the parameters only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sluice._engine import Engine, Gate, is_dense
from sluice._pending import PendingGradient

# What the servers take of a group's settings, in their order, and what those they do not know must be.
_SETTINGS: dict[type, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    torch.optim.SGD: ("sgd", ("lr", "momentum", "dampening", "weight_decay", "nesterov"), {"maximize": False}),
    torch.optim.Adam: ("adam", ("lr", "betas", "eps", "weight_decay"), {"amsgrad": False, "maximize": False}),
    torch.optim.AdamW: ("adamw", ("lr", "betas", "eps", "weight_decay"), {"amsgrad": False, "maximize": False}),
}


def refuse(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """What the servers cannot do is said before training."""
    if len(optimizers) != 1:
        raise ValueError("server_optimizer=True takes one optimizer for the whole model")
    (optimizer,) = optimizers
    known = _SETTINGS.get(type(optimizer))
    if known is None:
        names = ", ".join(kind.__name__ for kind in _SETTINGS)
        raise ValueError(f"the servers have no {type(optimizer).__name__}; use {names}, or leave server_optimizer=True away")
    if len(optimizer.param_groups) != 1:
        raise ValueError("server_optimizer=True takes one parameter group; leave it away to use several")
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    if {parameter for parameter in optimizer.param_groups[0]["params"] if parameter.requires_grad} != trained:
        raise ValueError("server_optimizer=True takes an optimizer of all trained parameters of the model, and of no other")
    if not all(is_dense(parameter) for parameter in trained):
        raise ValueError(
            "server_optimizer=True takes parameters that each fill one piece of memory; call .contiguous() on them"
        )
    if optimizer.state:
        raise ValueError(
            "the optimizer has state already, which the servers cannot take over; leave server_optimizer=True away"
        )
    _settings(optimizer)


def _settings(optimizer: torch.optim.Optimizer) -> list[float]:
    _, names, fixed = _SETTINGS[next(kind for kind in _SETTINGS if isinstance(optimizer, kind))]
    (group,) = optimizer.param_groups
    for name, value in fixed.items():
        if group.get(name, value) != value:
            raise ValueError(f"the servers know only {name}={value}; leave server_optimizer=True away for {name}={group[name]}")
    values: list[float] = []
    for name in names:
        value = group[name]
        values += [float(one) for one in value] if isinstance(value, tuple) else [float(value)]
    return values


class ServerStep:
    """Stands where LateStep does: step() is a word to the servers, and a gate is open when the new values are here."""

    is_by_gate = True

    def __init__(self, engine: Engine, optimizer: torch.optim.Optimizer) -> None:
        self.engine = engine
        self.kind = type(optimizer)
        self._optimizer = optimizer
        self._hidden: dict[Tensor, Tensor] = {}  # with SLUICE_DEBUG=gates: what is behind the NaNs
        engine.server = self

    @property
    def spec(self) -> str:
        """The servers' text for the optimizer as it begins. Its settings come with every step, but --dgc has to know the
        momentum from the start."""
        name, _, _ = _SETTINGS[self.kind]
        (group,) = self._optimizer.param_groups
        return f"{name}:momentum={group['momentum']!r}" if "momentum" in group and self.engine.job.is_on("dgc") else name

    def memory(self, elements: int, world_size: int) -> str:
        """What the shared state saves, in a line for people; float32 counts."""
        (group,) = self._optimizer.param_groups
        buffers = 2 if "betas" in group else int(group["momentum"] != 0)
        whole = 4 * buffers * elements / 1e6
        name = self.kind.__name__
        return f"{name} runs on the servers: {whole / world_size:.1f} MB of its state on each rank instead of {whole:.1f} MB"

    @property
    def saves_with_session(self) -> bool:
        """True iff the session's state has all that a checkpoint needs of the servers, and of this rank."""
        job = self.engine.job
        return job.option("algorithm").split(":")[0] in ("asp", "ssp", "easgd") or job.is_on("dgc")

    def refuse_checkpoint(self) -> None:
        """A checkpoint without the state would lose it silently."""
        (group,) = self._optimizer.param_groups
        if self.saves_with_session:
            if self.engine.undecided():
                raise RuntimeError("save and load between step() and the next backward(): the servers wait for step()")
        elif "betas" in group or group["momentum"] != 0:
            raise RuntimeError(
                f"with server_optimizer=True the state of {self.kind.__name__} is on the servers and cannot be saved yet; save "
                "the model's state_dict() alone, or leave server_optimizer=True away"
            )

    def freeze(self, optimizer: torch.optim.Optimizer) -> None:
        engine = self.engine
        engine.open_all()
        slots = engine.undecided()
        if not slots:
            if any(parameter.grad is not None for parameter in optimizer.param_groups[0]["params"]):
                raise RuntimeError(
                    "with server_optimizer=True every step() needs a backward() of its own outside no_sync(): there are no new "
                    "gradients at the servers"
                )
            return
        if len(optimizer.param_groups) != 1:
            raise RuntimeError("server_optimizer=True takes one parameter group; leave it away to use several")
        values = _settings(optimizer)
        if engine.debug_gates:
            for slot in slots:
                self._hidden[slot.parameter] = slot.parameter.detach().clone()
                slot.parameter.data.fill_(float("nan"))
        for slot in slots:
            engine.close(slot)
        engine.decide(values)

    def apply(self, gate: Gate) -> None:
        """The values are in place. Autograd has to be told that they are others than before."""
        for slot in gate.slots:
            hidden = self._hidden.pop(slot.parameter, None)
            if slot.is_empty and hidden is not None:
                slot.parameter.data.copy_(hidden)
            if not slot.is_empty:
                torch.autograd.graph.increment_version(slot.parameter)
            slot.parameter_version = slot.parameter._version
            if isinstance(slot.parameter.grad, PendingGradient) and slot.is_empty:
                slot.parameter.grad = None
