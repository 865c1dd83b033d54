"""One trainable parameter, and the group of parameters that are read together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sluice import _core
from sluice._tensor.doors import Door
from sluice._tensor.pending import PendingGradient

if TYPE_CHECKING:
    from sluice import _c10d

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


class Slot:
    """One trainable parameter: its gradient's place in the plan, and the memory of the
    mean."""

    def __init__(self, parameter: nn.Parameter, name: str) -> None:
        self.parameter = parameter
        self.name = name
        self.index = -1  # in the plan
        self.gate: Gate = Gate()
        self.is_on_device = parameter.device.type != "cpu"
        self.door: Door | None = None  # into the session, once there is one
        # With a server's optimizer: the servers' values of a parameter on a device, in the host's
        # memory.
        self.mirror: Tensor | None = None
        self.dtype, self.elements = parameter.dtype, parameter.numel()  # as in the plan
        self.gradient: Tensor | None = None  # handed over, kept alive until the mean is in it
        # With a server's optimizer, results land in this memory. The slot holds it for as long as
        # the session may write to it, since the program may give the parameter other memory at any
        # time.
        self.result: Tensor | None = None
        self.version = 0  # version of the gradient when it was handed over
        self.is_travelling = False
        # A gradient that has not been handed over, since backward() ran on a thread that must not
        # wait; `parameter.grad` then stands for it.
        self.unsent: Tensor | None = None
        self.is_absent = False  # true iff that is only memory for the mean of other ranks
        # The mean of an earlier backward() that is on its way, and the gradients that are added to
        # it in this order once it is here; `parameter.grad` then stands for their sum.
        self.earlier: list[Tensor] = []
        self.is_empty = False  # true iff no rank had a gradient in the last round
        self.round = -1  # the last round it took part in
        # True iff the gradient may come in several parts in one backward(), for example of a module
        # in two reentrant checkpoints. Such a gradient is handed over at the end.
        self.comes_in_parts = False
        self.gradient_round = -1  # the last round in which it got a part
        # What the parameter looked like at step(); with a server's optimizer, as the servers know
        # it.
        self.known: tuple[int, int, bytes] | None = None

    @property
    def awaits_finish(self) -> bool:
        """True iff `parameter.grad` stands for a gradient that Backward.finish() hands over."""
        return self.unsent is not None or bool(self.earlier)

    def know(self) -> None:
        self.known = _look(self.parameter)

    @property
    def is_changed(self) -> bool:
        """True iff the program has changed the parameter, or given it other memory, since
        know()."""
        return self.known is not None and self.known != _look(self.parameter)

    @property
    def is_moved(self) -> bool:
        """True iff the program has done so by other means than `.data`: the servers' results may
        have come into the parameter's memory since."""
        return self.known is not None and self.known[:2] != _look(self.parameter)[:2]

    def refuse_changed(self) -> None:
        if self.is_changed:
            raise RuntimeError(
                f"'{self.name}' was changed outside of step(), and the servers do not know; with "
                "server_optimizer=True load parameters before the first step, or before "
                "optimizer.load_state_dict()"
            )


class Gate:
    """The parameters that are read together: one wait, one call of the optimizer."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.is_closed = False
        self.reads = 0  # reads in training since the last backward()
        self.reads_round = -1
        # True iff one of the reads was so, as in reentrant checkpointing.
        self.is_read_without_grad = False
        # The last update of parameters on a device, which readers on other streams wait for.
        self.update: _c10d.Update | None = None


def described(slots: list[Slot]) -> list[tuple[str, int, str]]:
    """Returns name, number of elements and dtype of each, as a session takes them."""
    return [(slot.name, slot.parameter.numel(), DTYPES[slot.parameter.dtype]) for slot in slots]


def _look(parameter: Tensor) -> tuple[int, int, bytes]:
    """Returns version, address and a few values. A write through `.data` changes the values alone;
    those on a device are left out, since reading them would wait."""
    values = b""
    if parameter.device.type == "cpu" and (parameter.is_contiguous() or is_dense(parameter)):
        address, size = parameter.data_ptr(), parameter.element_size()
        values = _core.peek(address, parameter.numel(), size)
    return parameter._version, parameter.data_ptr(), values


def is_untouched(slot: Slot) -> bool:
    """True iff `parameter.grad` still holds the last mean unchanged."""
    gradient = slot.parameter.grad
    if isinstance(gradient, PendingGradient):
        return True
    return gradient is not None and gradient is slot.gradient and gradient._version == slot.version


def sendable(slot: Slot) -> Tensor:
    """Returns the gradient itself if its layout is the same on every rank, else a copy in the
    parameter's layout."""
    parameter, gradient = slot.parameter, slot.parameter.grad
    assert gradient is not None
    if parameter.dtype != slot.dtype or parameter.numel() != slot.elements:
        raise RuntimeError(
            f"'{slot.name}' has another type or size than when training began; change it before "
            "distribute()"
        )
    if gradient.layout != torch.strided:
        raise RuntimeError(
            f"'{slot.name}' has a sparse gradient, which sluice cannot average; use sparse=False"
        )
    if gradient.dtype != parameter.dtype:
        raise RuntimeError(
            f"'{slot.name}' is {parameter.dtype}, but its gradient is {gradient.dtype}; both must "
            "have the same type"
        )
    return laid_out(parameter, gradient)


def laid_out(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient, or a copy in the parameter's layout if it has another. A gradient that
    cannot be sent comes back as it is."""
    if gradient.layout != torch.strided or gradient.dtype != parameter.dtype:
        return gradient
    if gradient.stride() == parameter.stride() and (gradient.is_contiguous() or is_dense(gradient)):
        return gradient
    copy = torch.empty_like(parameter, requires_grad=False)
    copy.copy_(gradient)
    return copy


def is_dense(tensor: Tensor) -> bool:
    """True iff the elements fill one piece of memory without holes, in any order."""
    expected = 1
    for size, stride in sorted(
        zip(tensor.shape, tensor.stride(), strict=True), key=lambda both: both[1]
    ):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
