"""Where rank 0 listens, if the launcher's port is taken: torchrun's own store has it, or an initialised process group.

Then the ranks agree on another port through that store. What stands there is checked with the job key, so that whoever
else can write to the store cannot send ranks elsewhere.
"""

from __future__ import annotations

import hmac
import os
import socket
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed import distributed_c10d

from sluice import _core

_PATIENCE = timedelta(minutes=5)


def launch_environment(options: dict[str, str]) -> dict[str, str]:
    """The environment as the launcher made it, with a port that is ours."""
    environment = dict(os.environ)
    if environment.get("WORLD_SIZE", "1") == "1":
        return environment
    store = _store(environment)
    if store is None:
        return environment
    # One store outlives several attempts of the same job.
    place = f"sluice/{environment.get('TORCHELASTIC_RUN_ID', '')}/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}/port"
    key = _core.note_key(options, environment)
    environment["MASTER_PORT"] = agree(store, place, str(free_port()) if environment["RANK"] == "0" else None, key, _PATIENCE)
    environment.pop("TORCHELASTIC_RUN_ID", None)  # its store is not at this port
    return environment


def agree(store: Store, place: str, note: str | None, key: bytes, patience: timedelta) -> str:
    """What the rank that has a note leaves for the others in somebody else's store."""
    if note is not None:
        store.set(place, f"{_check(key, place, note)} {note}")
    store.wait([place], patience)
    check, _, note = store.get(place).decode().partition(" ")
    if not hmac.compare_digest(check, _check(key, place, note)):
        raise PermissionError(
            "what stands in torchrun's store was not written with this job's key; give every rank the same SLUICE_JOB_KEY_FILE"
        )
    return note


def _store(environment: dict[str, str]) -> Store | None:
    if dist.is_available() and dist.is_initialized():
        return distributed_c10d._get_default_store()
    if "TORCHELASTIC_RUN_ID" in environment and environment.get("TORCHELASTIC_USE_AGENT_STORE", "True") == "True":
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        return TCPStore(host, port, is_master=False, timeout=_PATIENCE)
    return None


def _check(key: bytes, place: str, note: str) -> str:
    return hmac.digest(key, f"{place} {note}".encode(), "sha256").hex()


def free_port() -> int:
    """One that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])
