"""torchft: `Manager(pg=ProcessGroupSluice(...))` carries gradients on the backend of sluice.

torchft makes a new process group at every quorum. Each is a job of sluice of its own: its ranks
prove the job key to each other, and a lost rank is named. abort() and shutdown() free its threads,
sockets and memory before they return.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from sluice._backend import groups

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from sluice import _c10d

__all__ = ["ProcessGroupSluice"]


class ProcessGroupSluice(ProcessGroupWrapper):
    """A process group of torchft, on the backend sluice.

    timeout: of every call, and of meeting the other ranks of a quorum.
    """

    _pg: Any  # torchft's: the present group, or None

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(timeout)
        self._lock = threading.Lock()
        self._connection: _c10d.Connection | None = None
        self._underway: list[dist.Work] = []
        self._error: Exception | None = None

    def reconfigure(self, opts: Any) -> dist.Work:
        """Ends the present group, and makes that of the next quorum."""
        try:
            work: dist.Work = super().reconfigure(opts)
        except Exception as error:
            # Not the error itself: its traceback would keep the store's connection.
            self._error = dist.DistBackendError(str(error))
            raise
        return work

    def abort(self, errored: bool = True) -> None:
        """Ends the group: its calls under way fail."""
        if errored and self.errored() is None:
            self._error = dist.DistBackendError("sluice: this process group was aborted")
        self._end(dist.ProcessGroup.abort)
        super().abort(errored=errored)

    def shutdown(self) -> None:
        """Does the same, and is no error."""
        self._end(dist.ProcessGroup.shutdown)
        super().shutdown()

    def errored(self) -> Exception | None:
        """Returns the first error of the present group, or None."""
        for work in list(self._underway):
            if not work.is_completed():
                continue
            with contextlib.suppress(ValueError):  # another thread has done so
                self._underway.remove(work)
            try:
                work.wait()
            except RuntimeError as error:
                self._error = self._error or dist.DistBackendError(str(error))
        return self._error

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout, also of the present group."""
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def getBackendName(self) -> str:  # noqa: N802, the name is PyTorch's
        return "torchft-sluice"

    def _wrap_work(self, work: dist.Work, _opts: object) -> dist.Work:
        self.errored()  # forgets calls that have ended
        self._underway.append(work)
        return work

    def _end(self, end: Callable[[dist.ProcessGroup], None]) -> None:
        with self._lock:  # one thread ends the group
            group, connection = self._pg, self._connection
            self._pg = self._connection = None
        if group is not None:
            end(group)
        if connection is not None:
            groups.close(connection)
        self.errored()

    def _create_pg(self, store: Store, rank: int, world_size: int) -> dist.ProcessGroup:
        self._underway, self._error = [], None
        # A replica's own MASTER_ADDR may be an address that other replicas cannot reach.
        host = groups.host_of(store)
        backend, self._connection = groups.create(
            groups.Group("quorum", store, rank, world_size, self._timeout, host)
        )
        group = dist.ProcessGroup(store, rank, world_size)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(kind)
        for device in groups.devices():
            group._register_backend(torch.device(device), kind, backend)
        return group
