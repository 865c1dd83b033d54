"""The backend's C++ module. Each module beside this file fits one release of Torch
(`torch_2_13...so`); importing this package loads the one for the Torch that is here, or raises an
ImportError that names those there are."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch

from sluice import _core

torch_release = ".".join(torch.__version__.split(".")[:2])


def _load(file: Path) -> ModuleType:
    """Loads a module and connects it to the engine. The module compares the Torch that it was built
    for with this one before anything else, since a call through another release's classes would go
    anywhere."""
    spec = spec_from_file_location(f"{__name__}.{file.name.split('.')[0]}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a module of this Python")
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        module.attach(_core.table)
    except (ImportError, AttributeError) as error:
        why = str(error).splitlines()[0]
        raise ImportError(
            f"{file.name} cannot be used with Torch {torch.__version__}: {why}"
        ) from None
    return module


def _choose() -> Path:
    """Returns the module for this Torch."""
    modules = {
        path.name.split(".")[0][6:].replace("_", "."): path
        for path in Path(__file__).parent.glob("torch_*.so")
    }
    if torch_release in modules:
        return modules[torch_release]
    there = ", ".join(sorted(modules, key=lambda name: [int(part) for part in name.split(".")]))
    raise ImportError(
        f"this is Torch {torch_release}, and the backend was built for Torch: {there or 'none'}"
    )


_module = _load(_choose())
_NAMES = ("Collective", "Connection", "Device", "Update", "backend", "connect", "own_address")
globals().update({name: getattr(_module, name) for name in _NAMES})
