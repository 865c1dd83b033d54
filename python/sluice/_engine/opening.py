"""The opening of a session: with the plan that all ranks have agreed on, the first gradients can be
sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sluice import _core
from sluice._backend.groups import over
from sluice._engine.checkpoint import Checkpoint
from sluice._engine.training import Training
from sluice._tensor.doors import DeviceDoor, HostDoor
from sluice._tensor.slots import described

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def open_session(
    training: Training, number: int, checkpoint: Checkpoint, process_group: ProcessGroup | None
) -> None:
    """Opens the session of the plan with this number. Every rank calls it; `process_group` reduces,
    or sluice itself where there is none."""
    job, server = training.job, training.server
    name = f"{training.name}.{number}"
    tensors = described(training.slots)
    device = 0 if training.device is None else training.device.address
    if server is None:
        training.collective = None if process_group is None else over(process_group)
        address = 0 if training.collective is None else training.collective.address
        training.session = _core.Session(job.core, name, tensors, collective=address, device=device)
    else:
        for slot in training.slots:
            slot.result = slot.parameter.detach()
            slot.mirror = slot.parameter.detach().cpu() if slot.is_on_device else None
        values = [slot.result if slot.mirror is None else slot.mirror for slot in training.slots]
        places = [value.data_ptr() for value in values if value is not None]
        training.session = _core.Session(
            job.core, name, tensors, server.spec, places, device=device
        )
        for slot in training.slots:
            slot.know()
    _open_doors(training, training.session)
    training.spent.plan_is_made()
    checkpoint.session_is_open()
    if server is not None and server.saves_with_session:
        job.gather(f"restored/{name}", "")  # nobody's first gradient meets what is put back later
    if server is not None:
        server.hand_out()
    if job.rank == 0:
        _say_hello(training, training.session)


def _open_doors(training: Training, session: _core.Session) -> None:
    """Gives every parameter its way into the session."""
    host = HostDoor(session)
    if training.device is not None:
        training.device_door = DeviceDoor(session, training.device)
    for slot in training.slots:
        slot.door = training.device_door if slot.is_on_device else host


def _say_hello(training: Training, session: _core.Session) -> None:
    job, parameters = training.job, [slot.parameter for slot in training.slots]
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    elements = sum(parameter.numel() for parameter in parameters)
    where = f"{job.core.address} ({_describe_interface(job.core.interface)})"
    text = (
        f"'{training.name}' trains with {job.option('algorithm')} on {job.world_size} ranks over "
        f"{where}: "
        f"{elements} parameters, {size / 1e6:.1f} MB in {session.slices} slices; "
        f"about {size / 1e6:.1f} MB more for sums on each rank"
    )
    if job.may_lose_members:
        text += f", and {size / 1e6:.1f} MB to outlive lost members"
    if training.server is not None:
        text += "; " + training.server.memory(elements, job.world_size)
    _core.say(text)


def _describe_interface(name: str) -> str:
    """Adds the rate that its driver says; virtual ones say none, or one that means nothing."""
    try:
        rate = int(Path(f"/sys/class/net/{name}/speed").read_text())
    except (OSError, ValueError):
        rate = -1
    return f"{name}, {rate} Mbit/s" if rate > 0 else f"{name}, rate unknown"
