"""Every collective of torch.distributed as a function of a group and a source of random numbers,
which returns all that it has made: called with two groups and the same numbers, the answers of two
backends can be compared."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.int8, torch.uint8, torch.int32, torch.int64]
DTYPES = [*FLOATS, *WHOLE, torch.bool]
BITWISE = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
REDUCTIONS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]


class Case:
    """Random choices that all ranks make alike, and values that each makes for itself."""

    def __init__(self, seed: int, rank: int, world: int) -> None:
        self.world, self.rank = world, rank
        self._common = torch.Generator().manual_seed(seed)
        self._own = torch.Generator().manual_seed(1000 * seed + rank + 1)
        self.dtype = DTYPES[self.choose(len(DTYPES))]
        self.root = self.choose(world)
        reductions = REDUCTIONS + (BITWISE if self.dtype in WHOLE else [])
        self.reduction = reductions[self.choose(len(reductions))]

    def choose(self, below: int) -> int:
        return int(torch.randint(below, (1,), generator=self._common))

    def shape(self) -> list[int]:
        """Returns a random shape: sometimes empty, sometimes one number, sometimes more than a
        message."""
        box = [1 + self.choose(9), 1 + self.choose(70), 1 + self.choose(30)]
        kinds = [[], [1], [0, 3], [1 + self.choose(5000)], box, [300_001]]
        return kinds[self.choose(len(kinds))]

    def values(self, shape: list[int]) -> Tensor:
        """Returns random values. The sum of two floats is unique; for more ranks the values are
        small whole numbers, whose sum and product do not depend on the order."""
        if self.dtype in FLOATS and self.world == 2:
            return torch.randn(shape, generator=self._own).to(self.dtype)
        return torch.randint(
            0 if self.dtype in (torch.uint8, torch.bool) else -3, 4, shape, generator=self._own
        ).to(self.dtype)

    def tensor(self) -> Tensor:
        return self.values(self.shape())

    def empty(self, like: Tensor) -> Tensor:
        return torch.zeros_like(like)


def broadcast(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.tensor()
    dist.broadcast(tensor, group_src=case.root, group=group)
    return [tensor]


def all_reduce(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.tensor()
    dist.all_reduce(tensor, case.reduction, group=group)
    return [tensor]


def all_reduce_async(case: Case, group: ProcessGroup) -> list[Tensor]:
    """Makes many calls at the same time, which end through futures."""
    tensors = [case.tensor() for _ in range(6)]
    futures = [
        dist.all_reduce(tensor, case.reduction, group=group, async_op=True).get_future()
        for tensor in tensors
    ]
    for future in futures:
        future.wait()
    return [tensor for future in futures for tensor in future.value()]


def all_reduce_coalesced(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensors = [case.tensor() for _ in range(3)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = case.reduction
    group.allreduce_coalesced(tensors, options).wait()
    return tensors


def reduce(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.tensor()
    dist.reduce(tensor, group_dst=case.root, op=case.reduction, group=group)
    return [tensor] if case.rank == case.root else []  # the tensor of other ranks is undefined


def all_gather(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.tensor()
    out = [case.empty(tensor) for _ in range(case.world)]
    dist.all_gather(out, tensor, group=group)
    return out


def all_gather_into_tensor(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.values([1 + case.choose(700), 3])
    out = case.values([case.world * tensor.shape[0], 3])
    dist.all_gather_into_tensor(out, tensor, group=group)
    return [out]


def all_gather_into_tensor_coalesced(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensors = [case.values([1 + case.choose(700)]) for _ in range(3)]
    out = [torch.zeros(case.world * tensor.numel(), dtype=case.dtype) for tensor in tensors]
    group.allgather_into_tensor_coalesced(out, tensors).wait()
    return out


def all_gather_coalesced(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensors = [case.values([1 + case.choose(700)]) for _ in range(2)]
    out = [[case.empty(tensor) for tensor in tensors] for _ in range(case.world)]
    group.allgather_coalesced(out, tensors).wait()
    return [tensor for each in out for tensor in each]


def gather(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.tensor()
    out = [case.empty(tensor) for _ in range(case.world)] if case.rank == case.root else None
    dist.gather(tensor, out, group_dst=case.root, group=group)
    return out or []


def scatter(case: Case, group: ProcessGroup) -> list[Tensor]:
    shape = case.shape()
    out = torch.zeros(shape, dtype=case.dtype)
    tensors = [case.values(shape) for _ in range(case.world)] if case.rank == case.root else None
    dist.scatter(out, tensors, group_src=case.root, group=group)
    return [out]


def reduce_scatter(case: Case, group: ProcessGroup) -> list[Tensor]:
    shape = case.shape()
    out = torch.zeros(shape, dtype=case.dtype)
    dist.reduce_scatter(
        out, [case.values(shape) for _ in range(case.world)], case.reduction, group=group
    )
    return [out]


def reduce_scatter_tensor(case: Case, group: ProcessGroup) -> list[Tensor]:
    rows = 1 + case.choose(700)
    out = torch.zeros([rows, 2], dtype=case.dtype)
    dist.reduce_scatter_tensor(
        out, case.values([case.world * rows, 2]), case.reduction, group=group
    )
    return [out]


def all_to_all_single(case: Case, group: ProcessGroup) -> list[Tensor]:
    # The indices are [from][to].
    counts = [[case.choose(900) for _ in range(case.world)] for _ in range(case.world)]
    mine, theirs = counts[case.rank], [counts[r][case.rank] for r in range(case.world)]
    out = torch.zeros([sum(theirs), 2], dtype=case.dtype)
    dist.all_to_all_single(out, case.values([sum(mine), 2]), theirs, mine, group=group)
    return [out]


def all_to_all_single_even(case: Case, group: ProcessGroup) -> list[Tensor]:
    tensor = case.values([case.world * (1 + case.choose(900))])
    out = case.empty(tensor)
    dist.all_to_all_single(out, tensor, group=group)
    return [out]


def send_and_receive(case: Case, group: ProcessGroup) -> list[Tensor]:
    """Sends around a ring, and receives the tags in another order than they were sent in."""
    shapes = [case.shape(), case.shape()]
    out = [case.values(shape) for shape in shapes]
    into = [torch.zeros(shape, dtype=case.dtype) for shape in shapes]
    next_one, previous = (case.rank + 1) % case.world, (case.rank - 1) % case.world
    sends = [
        dist.isend(tensor, group=group, group_dst=next_one, tag=tag)
        for tag, tensor in enumerate(out)
    ]
    for tag in (1, 0):
        dist.recv(into[tag], group=group, group_src=previous, tag=tag)
    for work in sends:
        work.wait()
    return into


def batch(case: Case, group: ProcessGroup) -> list[Tensor]:
    shape = case.shape()
    out, into = case.values(shape), torch.zeros(shape, dtype=case.dtype)
    next_one, previous = (case.rank + 1) % case.world, (case.rank - 1) % case.world
    operations = [
        dist.P2POp(dist.isend, out, group=group, group_peer=next_one),
        dist.P2POp(dist.irecv, into, group=group, group_peer=previous),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [into]


def objects(case: Case, group: ProcessGroup) -> list[Tensor]:
    everybodys: list[object] = [None] * case.world
    dist.all_gather_object(
        everybodys, {"rank": case.rank, "text": "x" * (10 + case.choose(1000))}, group=group
    )
    return [torch.tensor([len(str(each)) for each in everybodys])]


COLLECTIVES: list[Callable[[Case, ProcessGroup], list[Tensor]]] = [
    broadcast, all_reduce, all_reduce_async, all_reduce_coalesced, reduce, all_gather,
    all_gather_into_tensor,
    all_gather_into_tensor_coalesced, all_gather_coalesced, gather, scatter, reduce_scatter,
    reduce_scatter_tensor,
    all_to_all_single, all_to_all_single_even, send_and_receive, batch, objects,
]  # fmt: skip
