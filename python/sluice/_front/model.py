"""The user's model, in place: the same object, the same names in its state_dict, with methods that
know of gates.

As torch's own fully_shard does, the class of every module is replaced by one of the same name that
derives from it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import nn

from sluice._engine.engine import Engine


class GatedModule(nn.Module):
    """Mixed into every module of the model, so that a read of a parameter from outside finds its
    new value."""

    _sluice: ClassVar[Engine]

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        gates = self._sluice.gates
        if (gates.is_closed or gates.has_updates) and isinstance(value, nn.Parameter):
            gates.open_for(value)
        return value

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        self._sluice.open_all()
        return super().named_parameters(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._sluice.open_all()
        return super().state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("assign", args[2] if len(args) > 2 else False):
            raise ValueError(
                "load_state_dict(assign=True) replaces the parameters that are trained; leave out "
                "assign=True, or load before sluice.distribute()"
            )
        self._sluice.open_all()
        return super().load_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._sluice.open_all()
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._sluice.refuse_while_owed()
        # Avoid named_parameters(), which would wait: new zeros do not disturb gradients that are
        # still on their way.
        for module in self.modules():
            for parameter in module._parameters.values():
                if parameter is not None and parameter.grad is not None:
                    parameter.grad = (
                        None if set_to_none else torch.zeros_like(parameter, requires_grad=False)
                    )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Returns a plain module, which takes no part in distributed training."""
        self._sluice.open_all()
        if self._sluice.training.server is None:
            self._sluice.synchronize()
        with _undressed(self):
            return copy.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copy.copy, (copy.deepcopy(self),)  # loads without sluice


class GatedRoot(GatedModule):
    """Adds to the whole model the members that users of DistributedDataParallel expect."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # as in model.module.state_dict()
                return self
            raise

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Gradients of backward passes in here stay on this rank and add up, for gradient
        accumulation."""
        return self._sluice.no_sync()


def refuse(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                "sluice cannot see what a ScriptModule reads; distribute the model before it is "
                "scripted"
            )
        if isinstance(module, GatedModule):
            raise ValueError(f"{type(module).__name__} is distributed already")


def dress(model: nn.Module, engine: Engine) -> None:
    """Gives every module that has not got it yet the class that knows of gates."""
    classes: dict[tuple[type, type], type] = {}
    for module in model.modules():
        if isinstance(module, GatedModule):
            continue
        mixin = GatedRoot if module is model else GatedModule
        kind = type(module)
        if (kind, mixin) not in classes:
            names = {
                "_sluice": engine,
                "__module__": kind.__module__,
                "__qualname__": kind.__qualname__,
            }
            classes[kind, mixin] = type(kind.__name__, (mixin, kind), names)
        module.__class__ = classes[kind, mixin]


def undress(model: nn.Module) -> None:
    """Gives every module the class back that the user wrote."""
    for module in model.modules():
        module.__class__ = _plain_class(type(module))


def _plain_class(kind: type) -> type:
    return next(
        k for k in kind.__mro__ if issubclass(k, nn.Module) and not issubclass(k, GatedModule)
    )


@contextlib.contextmanager
def _undressed(module: nn.Module) -> Iterator[None]:
    """Inside this context the modules are those that the user wrote, without any hook of ours."""
    dressed = []
    for one in module.modules():
        hooks = one._forward_pre_hooks, one._forward_hooks
        dressed.append((one, type(one), [dict(of) for of in hooks]))
        for of in hooks:
            for number in [number for number, hook in of.items() if _is_ours(hook)]:
                del of[number]
        one.__class__ = _plain_class(type(one))
    try:
        yield
    finally:
        for one, kind, saved in dressed:
            one.__class__ = kind
            for of, whole in zip((one._forward_pre_hooks, one._forward_hooks), saved, strict=True):
                of.clear()
                of.update(whole)


def _is_ours(hook: Any) -> bool:
    return type(getattr(hook, "__self__", None)).__module__.startswith("sluice.")
