"""sluice: data parallel training that keeps computing while gradients travel.

model, optimizer = sluice.distribute(Net(), lambda ps: torch.optim.AdamW(ps, lr=1e-3))
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()  # returns at once; the next forward pass waits layer by layer
"""

from collections.abc import Callable
from typing import Any

from sluice._backend import groups
from sluice._core import PeerLostError, __version__
from sluice._front.distribute import distribute
from sluice._front.release import release
from sluice._job.job import Averaged, MembersChange, current
from sluice._measure.profile import Profile

groups.register()

__all__ = [
    "MembersChange",
    "PeerLostError",
    "Profile",
    "__version__",
    "barrier",
    "distribute",
    "epochs",
    "mean",
    "on_members_changed",
    "rank",
    "release",
    "report",
    "world_size",
]


def rank() -> int:
    """Returns this process's number in the job, counted from 0."""
    return current().rank


def world_size() -> int:
    """Returns the number of processes that train together."""
    return current().world_size


def barrier() -> None:
    """Returns when every rank has called it."""
    current().barrier()


def mean(value: Averaged) -> Averaged:
    """Returns the mean of a number or a tensor over all ranks, with the same bits on each. Use it
    for metrics: it waits for all ranks."""
    return current().mean(value)


def on_members_changed(callback: Callable[[MembersChange], None]) -> None:
    """Calls `callback` at the end of the step() after members were lost. Needs the option members:
    without it a lost rank ends the job."""
    current().on_members_changed(callback)


def epochs() -> dict[str, Any]:
    """Returns which members each sum has counted, so that one process can repeat the run: how the
    first model is cut into slices, and the first step of every slice in each epoch."""
    models = current().models
    return models[0].epochs() if models else {"slices": [], "epochs": []}


def report() -> str:
    """Returns as text how this rank has spent its time since training began: every model's waits by
    layer, bytes and steps; also those of the model that was released last."""
    job = current()
    texts = [job.last_report, *(model.report() for model in job.models)]
    return "\n".join(text for text in texts if text)
