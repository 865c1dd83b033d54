"""Observes in the first forward pass which module reads which parameter, and in which order,
instead of guessing from names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sluice._tensor.pending import is_metadata


def calls_under_way(module: nn.Module) -> int:
    """Returns the number of calls of the module that this thread is in. Hooks cannot count them:
    Ctrl-C ends a call without its last hook."""
    frame: FrameType | None = sys._getframe(1)
    calls = 0
    while frame is not None:
        if frame.f_code is nn.Module._call_impl.__code__ and frame.f_locals.get("self") is module:
            calls += 1
        frame = frame.f_back
    return calls


class Reads:
    """The parameters that the forward pass read. A parameter may be read outside its own module:
    tied weights, functional use."""

    def __init__(self) -> None:
        self.order: list[Tensor] = []  # in the order of their first reads
        self.readers: dict[Tensor, list[nn.Module]] = {}

    def add(self, parameter: Tensor, reader: nn.Module) -> None:
        readers = self.readers.setdefault(parameter, [])
        if not readers:
            self.order.append(parameter)
        if reader not in readers:
            readers.append(reader)


class Observer:
    """Keeps hooks on every module and watches from the begin of the outermost call to its end."""

    def __init__(
        self, model: nn.Module, parameters: set[Tensor], now: Callable[[], Any] = float
    ) -> None:
        self.reads = Reads()
        self._model = model
        self._now = now
        # Times of first reads since the times were last taken.
        self._times: dict[Tensor, Any] = {}  # earliest first
        self._running: list[nn.Module] = []
        self._mode = _ReadMode(parameters, self._read)
        self._hooks = []
        for module in model.modules():
            self._hooks.append(module.register_forward_pre_hook(self.enter, prepend=True))
            self._hooks.append(module.register_forward_hook(self._exit, always_call=True))

    def enter(self, module: nn.Module, args: Any = None) -> None:
        if self._running and module is self._model and calls_under_way(module) < 2:
            self._leave()  # the last call was interrupted
        if not self._running:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        self._running.append(module)

    def _exit(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running[1:]:
            self._running.pop()
        else:
            self._leave()

    def _leave(self) -> None:
        if self._running:
            self._running.clear()
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _read(self, parameter: Tensor) -> None:
        self.reads.add(parameter, self._running[-1])
        self._times.setdefault(parameter, self._now())

    def take_times(self) -> dict[Tensor, Any]:
        times, self._times = self._times, {}
        return times

    def stop(self) -> Reads:
        for hook in self._hooks:
            hook.remove()
        self._leave()
        return self.reads


class _ReadMode(TorchFunctionMode):
    """Sees every call of a Torch function, also calls outside of modules."""

    def __init__(self, parameters: set[Tensor], found: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._parameters = parameters
        self._found = found

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not is_metadata(func):
            for tensor in _tensors(args):
                if tensor in self._parameters:
                    self._found(tensor)
            for tensor in _tensors(tuple((kwargs or {}).values())):
                if tensor in self._parameters:
                    self._found(tensor)
        return func(*args, **(kwargs or {}))


def _tensors(values: tuple[Any, ...] | list[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (tuple, list):
            yield from _tensors(value)
