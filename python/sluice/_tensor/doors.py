"""The ways of a tensor into the session: from the host's memory, or from an accelerator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from sluice import _core
from sluice._tensor.accelerator import current_accelerator

if TYPE_CHECKING:
    from sluice import _c10d


class Door(Protocol):
    """Takes the tensors of one kind of memory. The caller keeps tensors in the host's memory alive
    until the wait for them has ended."""

    def gradient_ready(self, index: int, gradient: Tensor, result: Tensor) -> None: ...

    def gradient_absent(self, index: int, result: Tensor) -> None: ...

    def hand_out_delayed(self, index: int, result: Tensor) -> None: ...


class HostDoor:
    """Hands over addresses."""

    def __init__(self, session: _core.Session) -> None:
        self._session = session

    def gradient_ready(self, index: int, gradient: Tensor, result: Tensor) -> None:
        self._session.gradient_ready(index, gradient.data_ptr(), result.data_ptr(), _size(gradient))

    def gradient_absent(self, index: int, result: Tensor) -> None:
        self._session.gradient_absent(index, result.data_ptr(), _size(result))

    def hand_out_delayed(self, index: int, result: Tensor) -> None:
        self._session.hand_out_delayed(index, result.data_ptr(), _size(result))


class DeviceDoor:
    """Hands over tensors on a device, which may still be computing them."""

    def __init__(self, session: _core.Session, device: _c10d.Device) -> None:
        self._entrance, self._device = session.entrance, device

    def gradient_ready(self, index: int, gradient: Tensor, result: Tensor) -> None:
        self._device.gradient_ready(self._entrance, index, gradient, result)

    def gradient_absent(self, index: int, result: Tensor) -> None:
        self._device.gradient_absent(self._entrance, index, result)

    def hand_out_delayed(self, index: int, result: Tensor) -> None:
        self._device.hand_out_delayed(self._entrance, index, result)

    def wait_before_results(self) -> None:
        """Lets results overwrite parameters only after the work that is queued now."""
        self._device.wait_before_results(self._entrance)


def accelerator_of(tensors: Iterable[tuple[str, Tensor]]) -> torch.device | None:
    """Returns the accelerator that some of the tensors are on; None if all are in the host's
    memory. Refuses tensors on two, and on devices that are none."""
    found: tuple[str, torch.device] | None = None
    for name, tensor in tensors:
        device = tensor.device
        if device.type == "cpu":
            continue
        known = current_accelerator()
        if known is None or known.type != device.type:
            raise ValueError(
                f"'{name}' is on {device}, which is no accelerator that PyTorch can use here; move "
                "the model to one, or to the host with .cpu()"
            )
        if found is not None and found[1] != device:
            raise ValueError(
                f"'{found[0]}' is on {found[1]} and '{name}' on {device}; sluice trains a model on "
                "one accelerator per process"
            )
        found = found or (name, device)
    return found[1] if found else None


def open_device(device: torch.device) -> _c10d.Device:
    """Returns the device as sessions use it. Needs the C++ module for the Torch that is here."""
    try:
        from sluice import _c10d
    except ImportError as error:
        raise RuntimeError(
            f"training on {device} needs sluice's module for this Torch: {error}"
        ) from None
    return _c10d.Device(device)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
