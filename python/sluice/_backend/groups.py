"""The backend of torch.distributed: `import sluice` makes it known, `init_process_group("sluice")`
uses it.

Every process group is a job of its own: its ranks prove the job key to each other, and have their
own connections. The store that torch hands over is only used to say where the group's first rank
listens.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from sluice import _core
from sluice._backend import split
from sluice._job import ownership
from sluice._job.launch import Publish, leave_note, own_environment, read_note
from sluice._tensor.accelerator import current_accelerator

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, ProcessGroup, Store

    from sluice import _c10d

# Metrics belong to a model, and a process may be in many groups.
_OPTIONS = {"metrics-port": "off"}
_connections: list[_c10d.Connection] = []
_has_begun = False  # true iff this process has been in a group


@dataclass(frozen=True)
class Group:
    """A process group, as one of its ranks sees it."""

    name: str  # no other group has it in this store
    store: Store
    rank: int
    size: int
    timeout: timedelta  # of its creation, and of every call that does not say otherwise
    host: str = ""  # a host on the network that the ranks share; "": that of the job


def register() -> None:
    """Makes the backend known to torch.distributed."""
    if not dist.is_available():
        return
    if "sluice" in dist.Backend.backend_list:
        # The installed package has registered a function that imports this one (sluice_autoload).
        # Up to Torch 2.8 a second registration is an error.
        dist.Backend.backend_list.remove("sluice")
        dist.Backend._plugins.pop("SLUICE", None)
        delattr(dist.Backend, "SLUICE")
    dist.Backend.register_backend("sluice", _create, extended_api=True, devices=devices())


def devices() -> list[str]:
    """Returns the types of the devices that the backend takes tensors from."""
    accelerator = current_accelerator()
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]


def _create(options: Any, _: object) -> Backend:
    """Creates the backend of one group; torch.distributed calls this on every rank of the group."""
    group = Group(
        options.group_id, options.store, options.group_rank, options.group_size, options.timeout
    )
    return create(group)[0]


def create(group: Group) -> tuple[Backend, _c10d.Connection]:
    """Returns the backend of a group and its connection, once all ranks have met."""
    global _has_begun
    _require_module()
    from sluice import _c10d

    end = time.monotonic() + group.timeout.total_seconds()
    environment, published = _environment(group)
    if not _has_begun:
        _has_begun = True
        atexit.register(_end)
        split.take_over()
        if group.rank == 0:
            _core.say(f"the backend is the module for Torch {_c10d.torch_release}")
        if complaint := ownership.complaint():
            _core.say(complaint)
    connection = _c10d.connect(_OPTIONS, environment, max(1.0, end - time.monotonic()), published)
    _connections.append(connection)
    return _c10d.backend(connection, group.timeout.total_seconds()), connection


def close(connection: _c10d.Connection) -> None:
    """Ends a connection, if nobody has, and forgets it."""
    connection.close()
    with contextlib.suppress(ValueError):  # another thread has done so
        _connections.remove(connection)


def open_groups() -> int:
    """Returns how many groups of this process have connections that are not forgotten."""
    return len(_connections)


def over(process_group: ProcessGroup) -> _c10d.Collective:
    """Returns the user's own process group as a session takes it, to reduce gradients."""
    _require_module()
    from sluice import _c10d

    return _c10d.Collective(process_group)


def _require_module() -> None:
    try:
        from sluice import _c10d  # noqa: F401
    except ImportError as error:
        raise RuntimeError(
            f"sluice's backend does not fit this Torch ({error}); install a Torch that it fits, "
            "build sluice from source, or use sluice.distribute(), which works with any Torch"
        ) from error


def _environment(group: Group) -> tuple[dict[str, str], Publish | None]:
    """Returns the environment that a launcher would have set for a job of exactly this group. Rank
    0 publishes the address at which it listens."""
    from sluice import _c10d

    environment = {
        name: value for name, value in own_environment().items() if name not in _LAUNCHERS
    }
    if group.size == 1:
        return environment, None
    rank = str(group.rank)
    environment |= {"RANK": rank, "WORLD_SIZE": str(group.size), "LOCAL_RANK": rank}
    key, place = _core.note_key(_OPTIONS, environment), f"sluice/{group.name}"
    if group.rank == 0:
        environment |= {"MASTER_ADDR": group.host or _master(group.store), "MASTER_PORT": "0"}
        host = _c10d.own_address(_OPTIONS, environment)
        environment["MASTER_ADDR"] = host
        return environment, lambda port: leave_note(group.store, place, f"{host} {port}", key)
    try:
        host, port = read_note(group.store, place, key, group.timeout).split()
    except dist.DistStoreError as error:
        raise dist.DistBackendError(
            f"sluice: the process group was not formed within {group.timeout.total_seconds():g} s: "
            "nothing from rank 0"
        ) from error
    return {**environment, "MASTER_ADDR": host, "MASTER_PORT": port}, None


# Variables of the whole job, which those of the group replace. Some of them identify other
# launchers.
_LAUNCHERS = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
}


def _master(store: Any) -> str:
    """Returns a host on the network that the ranks share. This rank listens at the address that
    leads there."""
    if host := os.environ.get("MASTER_ADDR") or host_of(store):
        return host
    raise ValueError(
        "MASTER_ADDR is not set; give it the host of rank 0, so that ranks know which network "
        "they share"
    )


def host_of(store: Any) -> str:
    """Returns the host at which a TCPStore listens; "" for another store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", None) or "")


def _after_fork() -> None:
    """A forked child is no rank of the parent's groups: it says no goodbye for them."""
    global _has_begun
    _has_begun = False
    _connections.clear()
    atexit.unregister(_end)


os.register_at_fork(after_in_child=_after_fork)


def _end() -> None:
    """Says goodbye before Python ends, also if the program has not called
    destroy_process_group()."""
    for connection in _connections:
        connection.close()
