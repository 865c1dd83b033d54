"""Makes the backend `sluice` known to torch.distributed when `import torch` ends, so that
`init_process_group("sluice")` works without an import.

Torch calls register() for the entry point `torch.backends` of the distribution torch-sluice, in
every program of the environment, also in those that never use sluice. So this package is apart from
`sluice`: it needs the standard library and Torch only, and imports `sluice` when the backend is
first used. It never raises, since an exception here would break `import torch` for everybody.
TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns it off.
"""

from __future__ import annotations

import os
import warnings
from typing import Any


def register() -> None:
    """Registers the name and a function that imports sluice when it is called. Warns if that cannot
    be done."""
    try:
        if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
            _register()
    except Exception as error:
        _warn(f"the backend 'sluice' is not known to torch.distributed: {error}; import sluice")


def _register() -> None:
    import torch
    import torch.distributed as dist

    if not dist.is_available() or "sluice" in dist.Backend.backend_list:
        return
    try:
        accelerator = torch.accelerator.current_accelerator()
    except RuntimeError:  # Torch 2.6 raises where a CUDA build finds no GPU
        accelerator = None
    devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    defaults = dict(dist.Backend.default_device_backend_map)
    dist.Backend.register_backend("sluice", _create, extended_api=True, devices=devices)
    # An installed package must not become the default of any device: only `import sluice` may.
    dist.Backend.default_device_backend_map.clear()
    dist.Backend.default_device_backend_map.update(defaults)


def _create(group: Any, options: Any) -> Any:
    """Creates the backend of one group; torch.distributed calls this on every rank of the group."""
    try:
        from sluice._backend import groups
    except Exception as error:
        raise RuntimeError(
            f"the backend 'sluice' cannot be loaded ({error}); "
            "'pip install --force-reinstall --no-deps torch-sluice' repairs the package"
        ) from error
    return groups._create(group, options)


def _warn(text: str) -> None:
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Exception:  # a program that makes errors of warnings must start, too
        return
