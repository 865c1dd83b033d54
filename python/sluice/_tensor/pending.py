"""A gradient whose mean is on its way. A read or a change of it waits for the mean first, so that
clipping, unscaling, logging of norms and everything else between backward() and step() sees the
same values as with DDP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# These properties of a gradient can be read without waiting for its values.
_METADATA = {
    getter
    for name in ("shape", "dtype", "device", "layout", "ndim", "is_sparse", "is_cuda", "is_cpu",
                 "is_leaf", "is_meta", "is_nested", "is_quantized", "is_sparse_csr", "is_mkldnn",
                 "requires_grad", "names")
    if (getter := getattr(getattr(Tensor, name, None), "__get__", None)) is not None
} | {Tensor.size, Tensor.numel, Tensor.dim, Tensor.stride, Tensor.element_size,
     Tensor.is_floating_point, Tensor.is_complex, Tensor.__len__}  # fmt: skip


def is_metadata(func: object) -> bool:
    return func in _METADATA


class PendingGradient(Tensor):
    """Stands in `parameter.grad` for the plain tensor of the same memory, until the program reads
    it."""

    _arrive: Callable[[], Tensor]  # waits, then returns the plain tensor

    @staticmethod
    def of(gradient: Tensor, arrive: Callable[[], Tensor]) -> PendingGradient:
        pending = gradient.as_subclass(PendingGradient)
        pending._arrive = arrive
        return pending

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if is_metadata(func):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return func(*_plain(args), **_plain(kwargs or {}))


def _plain(value: Any) -> Any:
    if isinstance(value, PendingGradient):
        return value._arrive()
    if type(value) in (tuple, list):
        return type(value)(_plain(one) for one in value)
    if type(value) is dict:
        return {key: _plain(one) for key, one in value.items()}
    return value
