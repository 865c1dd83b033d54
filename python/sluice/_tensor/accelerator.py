"""The accelerator of this process."""

from __future__ import annotations

import torch


def current_accelerator() -> torch.device | None:
    """Returns the accelerator that this Torch was built for; None if there is none.

    Torch 2.6 raises where a CUDA build finds no GPU, and later releases return the device. Asking
    is_available() first would start CUDA in every process that imports sluice, which then could
    not fork any more.
    """
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:
        return None
