"""The backend's C++ module. Each module beside this file fits one release of Torch
(`torch_2_13...so`); importing this package loads the one for the Torch that is here, or raises an
ImportError that names those there are."""

from importlib import import_module
from pathlib import Path

import torch

torch_release = ".".join(torch.__version__.split(".")[:2])
_name = f"torch_{torch_release.replace('.', '_')}"


def _releases() -> str:
    """Returns the releases of Torch that there are modules for, as text."""
    names = {path.name.split(".")[0] for path in Path(__file__).parent.glob("torch_*.so")}
    return ", ".join(sorted(name[6:].replace("_", ".") for name in names)) or "none"


try:
    _module = import_module(f"{__name__}.{_name}")
except ModuleNotFoundError:
    raise ImportError(
        f"this is Torch {torch_release}, and the backend was built for Torch: {_releases()}"
    ) from None
globals().update({name: getattr(_module, name) for name in dir(_module) if name[0] != "_"})
