"""Where the tests train: in the host's memory, or on the device that SLUICE_TEST_DEVICE names
(tests/device/README.md). A rank's tensors are made there, except inside on_host().

SLUICE_TEST_DEVICE_MODE says how the device delays work, and SLUICE_TEST_DEVICE_SEED from which
number on the random delays are chosen. Every task of a rank has a seed of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import torch

DEVICE = os.environ.get("SLUICE_TEST_DEVICE", "cpu")
MODE = os.environ.get("SLUICE_TEST_DEVICE_MODE", "random")
SEED = int(os.environ.get("SLUICE_TEST_DEVICE_SEED", "1"))
VARIABLES = {"SLUICE_TEST_DEVICE", "SLUICE_TEST_DEVICE_MODE", "SLUICE_TEST_DEVICE_SEED"}
IS_DEVICE = DEVICE != "cpu"

if IS_DEVICE:  # before sluice is imported, which asks Torch for its accelerator
    import sluice_test_device

_seeds = itertools.count(SEED)


def enter() -> None:
    """Makes the device the place of this rank's tensors."""
    if IS_DEVICE:
        torch.set_default_device(DEVICE)
        delay_anew()


def delay_anew() -> None:
    """Delays work from now on in another way than before, and on every rank in its own."""
    if IS_DEVICE:
        seed = 1000 * next(_seeds) + int(os.environ.get("RANK", "0"))
        sluice_test_device.set_mode(MODE, seed=seed)


def let_ddp_copy() -> None:
    """Lets a copy from plain memory wait instead of refusing it: DDP makes one when it puts its
    buckets into a new order."""
    if IS_DEVICE:
        sluice_test_device.set_unpinned_copies_wait(True)


def here() -> torch.device:
    """Returns the place of new tensors."""
    return torch.get_default_device()


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """New tensors are in the host's memory meanwhile, as those of a reference are."""
    with torch.device("cpu"):
        yield
