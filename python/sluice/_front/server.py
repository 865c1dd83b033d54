"""The optimizer's step, taken by the servers: each rank keeps the optimizer's state for its share
of the parameters only."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sluice import _core
from sluice._engine.engine import Engine
from sluice._job.job import size_said
from sluice._tensor.pending import PendingGradient
from sluice._tensor.slots import DTYPES, Gate, is_dense

# The settings of a group that the servers take, in their order, and the values that others must
# have.
_SETTINGS: dict[type, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    torch.optim.SGD: (
        "sgd",
        ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
        {"maximize": False},
    ),
    torch.optim.Adam: (
        "adam",
        ("lr", "betas", "eps", "weight_decay"),
        {"amsgrad": False, "maximize": False},
    ),
    torch.optim.AdamW: (
        "adamw",
        ("lr", "betas", "eps", "weight_decay"),
        {"amsgrad": False, "maximize": False},
    ),
}

# Their state, buffer by buffer in their order, as torch.optim calls it.
_BUFFERS = {
    "sgd": ("momentum_buffer",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
}

State = dict[Tensor, dict[str, Any]]  # of each parameter, as torch.optim keeps it


def refuse(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """Reports what the servers cannot do before training."""
    if len(optimizers) != 1:
        raise ValueError("server_optimizer=True takes one optimizer for the whole model")
    (optimizer,) = optimizers
    known = _SETTINGS.get(type(optimizer))
    if known is None:
        names = ", ".join(kind.__name__ for kind in _SETTINGS)
        raise ValueError(
            f"the servers have no {type(optimizer).__name__}; use {names}, or leave "
            "out server_optimizer=True"
        )
    if len(optimizer.param_groups) != 1:
        raise ValueError(
            "server_optimizer=True takes one parameter group; leave it out to use several"
        )
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    if {
        parameter for parameter in optimizer.param_groups[0]["params"] if parameter.requires_grad
    } != trained:
        raise ValueError(
            "server_optimizer=True takes an optimizer of all trained parameters of the model, and "
            "of no other"
        )
    if not all(is_dense(parameter) for parameter in trained):
        raise ValueError(
            "server_optimizer=True takes parameters that each fill one piece of memory; call "
            ".contiguous() on them"
        )
    _settings(optimizer)
    _check(dict(optimizer.state), _BUFFERS[known[0]])


def _settings(optimizer: torch.optim.Optimizer) -> list[float]:
    _, names, fixed = _SETTINGS[next(kind for kind in _SETTINGS if isinstance(optimizer, kind))]
    (group,) = optimizer.param_groups
    for name, value in fixed.items():
        if group.get(name, value) != value:
            raise ValueError(
                f"the servers know only {name}={value}; leave out server_optimizer=True for "
                f"{name}={group[name]}"
            )
    values: list[float] = []
    for name in names:
        value = group[name]
        values += [float(one) for one in value] if isinstance(value, tuple) else [float(value)]
    return values


def _check(state: State, known: tuple[str, ...]) -> None:
    """Rejects settings that the servers cannot go on with."""
    for parameter, content in state.items():
        for key, value in content.items():
            if value is None or (key == "step" and known[0] == "exp_avg"):
                continue
            if key not in known:
                raise ValueError(
                    f"the servers know no '{key}' in the optimizer's state; leave out "
                    "server_optimizer=True"
                )
            if value.shape != parameter.shape:
                raise ValueError(
                    f"the optimizer's state has '{key}' of {tuple(value.shape)} for a parameter of "
                    f"{tuple(parameter.shape)}; load a checkpoint of this model"
                )


def _describe(state: State) -> str:
    """Short, and different for most checkpoints that are."""
    steps = sum(int(content.get("step", 0)) for content in state.values())
    return f"{sum(bool(content) for content in state.values())} parameters and {steps} steps"


def _accumulator(parameter: Tensor) -> torch.dtype:
    """The types that the servers calculate in, and keep."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def _flat(tensor: Tensor) -> Tensor:
    """As it lies in memory. REQUIRES: is_dense(tensor)"""
    return tensor.as_strided((tensor.numel(),), (1,))


def _like(parameter: Tensor) -> Tensor:
    return torch.empty_like(parameter, dtype=_accumulator(parameter), requires_grad=False)


class ServerStep:
    """Stands where LateStep does: step() is a word to the servers, and a gate is open when the new
    values are here."""

    is_by_gate = True

    def __init__(self, engine: Engine, optimizer: torch.optim.Optimizer) -> None:
        self.engine = engine
        self.is_taken = False  # as LateStep
        self.interrupted_round = -1
        self.kind = type(optimizer)
        self._optimizer = optimizer
        self._buffers = _BUFFERS[_SETTINGS[self.kind][0]]
        self._hidden: dict[Tensor, Tensor] = {}  # with SLUICE_DEBUG=gates: what is behind the NaNs
        # Else each rank's state is of parameters of its own, and no checkpoint of one optimizer.
        keeps_ranks_equal = engine.job.algorithm.keeps_ranks_equal
        self.is_gathered = not self.saves_with_session and keeps_ranks_equal
        self._refuse_state(dict(optimizer.state))
        # State that the optimizer brought or load() gave, and no server has taken: there is no
        # server yet, or the parameter is frozen.
        self._loaded: State = {
            parameter: dict(content) for parameter, content in optimizer.state.items()
        }
        optimizer.state.clear()
        engine.training.server = self

    @property
    def spec(self) -> str:
        """The servers' text for the optimizer as it begins. Its settings come with every step, but
        --dgc has to know the momentum from the start."""
        name, _, _ = _SETTINGS[self.kind]
        (group,) = self._optimizer.param_groups
        return (
            f"{name}:momentum={group['momentum']!r}"
            if "momentum" in group and self.engine.job.is_on("dgc")
            else name
        )

    def memory(self, elements: int, world_size: int) -> str:
        """Says in a line for people how much the shared state saves; float32 counts."""
        (group,) = self._optimizer.param_groups
        buffers = 2 if "betas" in group else int(group["momentum"] != 0)
        whole = 4 * buffers * elements / 1e6
        name = self.kind.__name__
        return (
            f"{name} runs on the servers: {whole / world_size:.1f} MB of its state on each rank "
            f"instead of {whole:.1f} MB"
        )

    @property
    def saves_with_session(self) -> bool:
        """True iff the session's state has all that a checkpoint needs of the servers, and of this
        rank."""
        job = self.engine.job
        return job.algorithm.checkpoint_holds_model or job.is_on("dgc")

    def refuse_checkpoint(self) -> None:
        """Refuses to lose state silently."""
        (group,) = self._optimizer.param_groups
        if self.saves_with_session:
            self._refuse_undecided()
        elif not self.is_gathered and ("betas" in group or group["momentum"] != 0):
            raise RuntimeError(
                f"with algorithm={self.engine.job.option('algorithm')} {self.kind.__name__}'s "
                "state is each rank's own and "
                "cannot be saved or loaded yet; save the model's state_dict() alone, or use an "
                "algorithm that keeps the ranks in step"
            )

    @contextlib.contextmanager
    def gathered(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """The servers' state is in the optimizer meanwhile, on every rank. Every rank calls it."""
        self.refuse_checkpoint()
        if self.is_gathered:
            optimizer.state.update(
                self._loaded if self.engine.session is None else self._gather(self.engine.session)
            )
        try:
            yield
        finally:
            optimizer.state.clear()

    def give_back(self) -> None:
        """Puts the servers' state into the optimizer for good, where a checkpoint could have it.
        Every rank calls it."""
        if self.is_gathered:
            session = self.engine.session
            self._optimizer.state.update(self._loaded if session is None else self._gather(session))

    def _gather(self, session: _core.Session) -> State:
        self._refuse_undecided()
        own = session.state()
        with self.engine.health.whole("optimizer.state_dict()"):
            return self._gather_from_all(session, own)

    def _gather_from_all(self, session: _core.Session, own: bytes) -> State:
        job = self.engine.job
        try:
            sizes = session.gather(f"state_dict/{self.engine.name}", str(len(own)).encode())
        except (RuntimeError, TimeoutError) as error:
            raise type(error)(
                "with server_optimizer=True every rank must call optimizer.state_dict(), which "
                "gathers the state from all "
                f"servers: {error}"
            ) from None
        slots = {slot.name: slot for slot in self.engine.slots}
        whole = dict(self._loaded)
        # Far more than a server keeps of all elements, also in slices of one element.
        elements = sum(slot.parameter.numel() for slot in self.engine.slots)
        most = (64 << 20) + 128 * elements
        for root, size in enumerate(
            sizes
        ):  # one server's part after the other: never two copies of the whole
            text = size.decode(errors="replace")
            length = size_said(root, text, most, "its part of the optimizer's state")
            for name, first, count, steps, buffers in _core.read_server_state(
                job.bytes_of(root, own, length)
            ):
                parameter = slots[name].parameter
                for key, content in zip(self._buffers, buffers, strict=False):
                    if content is None:
                        continue
                    state = whole.setdefault(parameter, {})
                    if "betas" in self._optimizer.param_groups[0]:
                        count_of_steps = torch.tensor(
                            float(steps), dtype=torch.float32, device="cpu"
                        )
                        state.setdefault("step", count_of_steps)
                    if key not in state:
                        state[key] = _like(parameter)
                    place = _flat(state[key])[first : first + count]
                    if count > 0:
                        place.copy_(torch.frombuffer(bytearray(content), dtype=place.dtype))
        # In the optimizer's order, as if it had made them itself.
        (group,) = self._optimizer.param_groups
        return {parameter: whole[parameter] for parameter in group["params"] if parameter in whole}

    def _refuse_undecided(self) -> None:
        if self.engine.decision.slots:
            raise RuntimeError(
                "with server_optimizer=True save and load between step() and the next backward(): "
                "the servers wait for step()"
            )

    def _refuse_state(self, state: dict[Any, Any]) -> None:
        if state and not self.is_gathered:
            raise ValueError(
                "the optimizer has state, which no server takes over with "
                f"algorithm={self.engine.job.option('algorithm')}: "
                "leave it out, or use an algorithm that keeps the ranks in step"
            )

    def refuse_to_load(self, state: dict[Any, Any], has_more: bool) -> None:
        """Finds the part of a checkpoint that the servers cannot go on from."""
        self._refuse_undecided()
        self._refuse_state(state)
        if has_more and self.is_gathered:
            raise ValueError(
                "this checkpoint has delayed or compressed gradients, which server_optimizer=True "
                "does not know; load it without server_optimizer=True"
            )

    def load(
        self,
        optimizer: torch.optim.Optimizer,
        groups: list[dict[str, Any]],
        whole: dict[Any, dict[str, Any]],
    ) -> None:
        """Reads the state of a checkpoint, by its own numbers; the settings are the optimizer's
        already. Every rank calls it."""
        _settings(optimizer)
        numbers = [number for group in groups for number in group["params"]]
        parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        loaded = {
            parameter: whole[n]
            for n, parameter in zip(numbers, parameters, strict=True)
            if n in whole
        }
        _check(loaded, self._buffers)
        if self.is_gathered:
            self._loaded = loaded
            self.hand_out()

    def hand_out(self) -> None:
        """Each server takes its part, out of what its own rank has loaded."""
        session, job = self.engine.session, self.engine.job
        if session is None or not self.is_gathered:
            return
        loaded = self._loaded
        self._loaded = {
            parameter: state
            for parameter, state in loaded.items()
            if parameter not in self.engine.slot_of
        }
        brought = job.gather(f"load_state_dict/{self.engine.name}", _describe(loaded))
        if other := next((rank for rank, text in enumerate(brought) if text != brought[0]), 0):
            raise ValueError(
                f"the optimizer has a state of {brought[0]} on rank 0, but of {brought[other]} on "
                f"rank {other}: with "
                "server_optimizer=True every rank must load the same checkpoint"
            )
        parts = []
        for index, slices in itertools.groupby(session.served, key=lambda served: served[0]):
            slot = self.engine.slots[index]
            state = loaded.get(slot.parameter, {})
            values = [state.get(key) for key in self._buffers]
            if all(value is None for value in values):
                continue
            flats = [
                None if value is None else _flat(_like(slot.parameter).copy_(value))
                for value in values
            ]
            for _, first, count in slices:
                buffers = [
                    None if flat is None else flat[first : first + count].cpu().numpy().tobytes()
                    for flat in flats
                ]
                parts.append(
                    (
                        slot.name,
                        first,
                        DTYPES[slot.parameter.dtype],
                        int(state.get("step", 0)),
                        buffers,
                    )
                )
        self.engine.checkpoint.put_back_at_servers(
            _core.write_server_state(_SETTINGS[self.kind][0], parts)
        )

    def freeze(self, optimizer: torch.optim.Optimizer) -> None:
        engine = self.engine
        slots = engine.decision.slots
        if not slots:
            if any(parameter.grad is not None for parameter in optimizer.param_groups[0]["params"]):
                raise RuntimeError(
                    "with server_optimizer=True every step() needs a backward() of its own outside "
                    "no_sync(): there are no new "
                    "gradients at the servers"
                )
            return
        if len(optimizer.param_groups) != 1:
            raise RuntimeError(
                "server_optimizer=True takes one parameter group; leave it out to use several"
            )
        values = _settings(optimizer)
        for slot in slots:
            slot.refuse_changed()
        with engine.health.whole("step()"):
            if engine.debug_gates:
                for slot in slots:
                    self._hidden[slot.parameter] = slot.parameter.detach().clone()
                    slot.parameter.data.fill_(float("nan"))
            for slot in slots:
                engine.gates.close(slot)
            engine.decision.use(values)
            self.is_taken = True
            engine.took_step(self)

    def apply(self, gate: Gate) -> None:
        """The values are in place. Autograd has to be told that they are others than before."""
        for slot in gate.slots:
            hidden = self._hidden.pop(slot.parameter, None)
            if slot.is_empty and hidden is not None:
                slot.parameter.data.copy_(hidden)
            if not slot.is_empty:
                torch.autograd.graph.increment_version(slot.parameter)
            slot.know()
            if isinstance(slot.parameter.grad, PendingGradient) and slot.is_empty:
                slot.parameter.grad = None
