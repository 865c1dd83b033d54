"""The device "pretend" for Torch, and its knobs. tests/device/README.md describes it.

Importing this module registers the device, once per process. Import it before anything uses an
accelerator, and before the first backward."""

import importlib
import sys
from types import TracebackType
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

rename_privateuse1_backend("pretend")  # before the module with the device is loaded
_device: Any = importlib.import_module("sluice_test_device._device")

__all__ = [
    "copy_intervals",
    "reset_statistics",
    "set_copies",
    "set_mode",
    "set_unpinned_copies_wait",
    "statistics",
]


def set_mode(
    mode: str, seed: int = 0, longest_delay: float = 300e-6, patience: float = 1e-3
) -> None:
    """Sets how work is delayed from now on: "eager", "random" or "adversary". Times are seconds."""
    _device.set_mode(mode, seed, longest_delay, patience)


def set_copies(bytes_per_second: float = 0, latency: float = 0) -> None:
    """Sets how long a copy between host and device takes. 0 bytes per second is no limit."""
    _device.set_copies(bytes_per_second, latency)


def set_unpinned_copies_wait(wait: bool) -> None:
    """Lets a non-blocking copy wait if its host memory is not pinned, as CUDA does. By default it
    is an error. DDP makes such copies of its own."""
    _device.set_unpinned_copies_wait(wait)


def statistics() -> dict[str, int]:
    """Counts since the last reset."""
    result: dict[str, int] = _device.statistics()
    return result


def reset_statistics() -> None:
    """Sets the counts to 0, and the peaks to what is in use."""
    _device.reset_statistics()


def copy_intervals() -> list[tuple[str, float, float, int]]:
    """The copies since the last reset: direction ("to_host", "to_device" or "on_device"), start and
    end as time.monotonic() gives them, and bytes."""
    result: list[tuple[str, float, float, int]] = _device.copy_intervals()
    return result


# Torch asks a device's module for the following.


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    result: int = _device.device_count()
    return result


def current_device() -> int:
    result: int = _device.current_device()
    return result


def set_device(device: Any) -> None:
    index = device if isinstance(device, int) else torch.device(device).index
    if index is not None:
        _device.set_device(index)


def _is_in_bad_fork() -> bool:
    result: bool = _device.is_in_bad_fork()
    return result


def manual_seed_all(seed: int) -> None:
    """Does nothing: random operators use the CPU's generator."""


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


class device:  # noqa: N801
    """Makes a device the current one while the context lives."""

    def __init__(self, device: Any) -> None:
        given = torch.device("pretend", device) if isinstance(device, int) else device
        self._index = torch.device(given).index
        self._former = 0

    def __enter__(self) -> None:
        self._former = current_device()
        set_device(self._index)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_device(self._former)


torch._register_device_module("pretend", sys.modules[__name__])  # type: ignore[no-untyped-call]
