"""The backend of torch.distributed: `import sluice` makes it known, `init_process_group("sluice")`
uses it.

Every process group is a job of its own: its ranks prove the job key to each other, and have their
own connections. The store that torch hands over is only used to say where the group's first rank
listens.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from sluice import _core, _ownership, _split
from sluice._launch import Publish, leave_note, own_environment, read_note

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, ProcessGroup

    from sluice import _c10d

# Metrics belong to a model, and a process may be in many groups.
_OPTIONS = {"metrics-port": "off"}
_connections: list[_c10d.Connection] = []


def register() -> None:
    """Makes the backend known to torch.distributed."""
    if dist.is_available():
        accelerator = torch.accelerator.current_accelerator()
        devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
        dist.Backend.register_backend("sluice", _create, extended_api=True, devices=devices)


def _create(group: Any, _options: object) -> Backend:
    """Creates the backend of one group; torch.distributed calls this on every rank of the group."""
    _require_module()
    from sluice import _c10d

    timeout = group.timeout.total_seconds()
    environment, published = _environment(group)
    if not _connections:
        atexit.register(_end)
        _split.take_over()
        if group.group_rank == 0:
            _core.say(f"the backend is the module for Torch {_c10d.torch_release}")
        if complaint := _ownership.complaint():
            _core.say(complaint)
    connection = _c10d.connect(_OPTIONS, environment, timeout, published)
    _connections.append(connection)
    return _c10d.backend(connection, timeout)


def over(process_group: ProcessGroup, job: _core.Job) -> _c10d.Collective:
    """Returns the collective that reduces a job's gradients over the user's own process group."""
    _require_module()
    from sluice import _c10d

    return _c10d.Collective(process_group, job.loop)


def _require_module() -> None:
    try:
        from sluice import _c10d  # noqa: F401
    except ImportError as error:
        raise RuntimeError(
            f"sluice's backend does not fit this Torch ({error}); install a Torch that it fits, "
            "build sluice from source, or use sluice.distribute(), which works with any Torch"
        ) from error


def _environment(group: Any) -> tuple[dict[str, str], Publish | None]:
    """Returns the environment that a launcher would have set for a job of exactly this group. Rank
    0 publishes the address at which it listens."""
    from sluice import _c10d

    environment = {
        name: value for name, value in own_environment().items() if name not in _LAUNCHERS
    }
    if group.group_size == 1:
        return environment, None
    rank = str(group.group_rank)
    environment |= {"RANK": rank, "WORLD_SIZE": str(group.group_size), "LOCAL_RANK": rank}
    key, place = _core.note_key(_OPTIONS, environment), f"sluice/{group.group_id}"
    if group.group_rank == 0:
        environment |= {"MASTER_ADDR": _master(group.store), "MASTER_PORT": "0"}
        host = _c10d.own_address(_OPTIONS, environment)
        environment["MASTER_ADDR"] = host
        return environment, lambda port: leave_note(group.store, place, f"{host} {port}", key)
    host, port = read_note(group.store, place, key, group.timeout).split()
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
    if host := os.environ.get("MASTER_ADDR"):
        return host
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if host := getattr(store, "host", None):
        return str(host)
    raise ValueError(
        "MASTER_ADDR is not set; give it the host of rank 0, so that ranks know which network "
        "they share"
    )


def _after_fork() -> None:
    """A forked child is no rank of the parent's groups: it says no goodbye for them."""
    _connections.clear()
    atexit.unregister(_end)


os.register_at_fork(after_in_child=_after_fork)


def _end() -> None:
    """Says goodbye before Python ends, also if the program has not called
    destroy_process_group()."""
    for connection in _connections:
        connection.close()
