"""Finds the port of rank 0 if the launcher's port is taken, by torchrun's own store or by an
initialised process group.

Then the ranks agree on another port through that store. The entry is checked with the job key, so
that nobody else who can write to the store can send ranks elsewhere.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed import distributed_c10d

from sluice import _core

_PATIENCE = timedelta(minutes=5)
_KEY = "SLUICE_JOB_KEY"
_taken: dict[str, str] = {}  # variables that were removed from the environment

# Rank 0 calls this function with the port on which it listens.
Publish = Callable[[int], None]


def own_environment() -> dict[str, str]:
    """Returns the environment of this process with the job key, and removes the key from
    os.environ: programs that this one starts do not need it."""
    if _KEY in os.environ:
        _taken[_KEY] = os.environ[_KEY]
        _core.take_variable(_KEY)
        del os.environ[_KEY]
    if "SLUICE_JOB_KEY_FILE" in os.environ:  # the program has changed its mind
        return dict(os.environ)
    return {**os.environ, **_taken}


def forget_key() -> None:
    """Forgets the job key in a forked child, which is no rank."""
    _taken.clear()


def launch_environment(options: dict[str, str]) -> tuple[dict[str, str], Publish | None]:
    """Returns the launcher's environment with a port of our own: rank 0 listens on any free port
    and publishes it."""
    environment = own_environment()
    if environment.get("WORLD_SIZE", "1") == "1":
        return environment, None
    store = _store(environment)
    if store is None:
        return environment, None
    # One store outlives several attempts of the same job.
    place = (
        f"sluice/{environment.get('TORCHELASTIC_RUN_ID', '')}/"
        f"{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}/port"
    )
    key = _core.note_key(options, environment)
    environment.pop("TORCHELASTIC_RUN_ID", None)  # its store is not at this port
    if environment["RANK"] == "0":
        environment["MASTER_PORT"] = "0"
        return environment, lambda port: leave_note(store, place, str(port), key)
    environment["MASTER_PORT"] = read_note(store, place, key, _PATIENCE)
    return environment, None


def leave_note(store: Store, place: str, note: str, key: bytes) -> None:
    """Leaves a note for the other ranks in a store that is not ours."""
    store.set(place, f"{_check(key, place, note)} {note}")


def read_note(store: Store, place: str, key: bytes, patience: timedelta) -> str:
    """Returns the note that rank 0 has left there or leaves within `patience`."""
    store.wait([place], patience)
    check, _, note = store.get(place).decode().partition(" ")
    if not hmac.compare_digest(check, _check(key, place, note)):
        raise PermissionError(
            "the note in torchrun's store was not written with this job's key; give every rank the "
            "same SLUICE_JOB_KEY_FILE"
        )
    return note


def _store(environment: dict[str, str]) -> Store | None:
    if dist.is_available() and dist.is_initialized():
        return distributed_c10d._get_default_store()
    if (
        "TORCHELASTIC_RUN_ID" in environment
        and environment.get("TORCHELASTIC_USE_AGENT_STORE", "True") == "True"
    ):
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        return TCPStore(host, port, is_master=False, timeout=_PATIENCE)
    return None


def _check(key: bytes, place: str, note: str) -> str:
    return hmac.digest(key, f"{place} {note}".encode(), "sha256").hex()
