"""Tests that a process group frees its threads, sockets and files when it ends. Programs that make
a group for every change of their members need it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from held import held
from ranks import Ranks
from sluice._backend import groups

import sluice  # noqa: F401, since importing it is what makes the backend known

ROUNDS = 20


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    assert ranks.end() == [0, 0]


def new_group() -> dist.ProcessGroup:
    group = dist.new_group(backend="sluice", timeout=timedelta(seconds=60))
    assert isinstance(group, dist.ProcessGroup)
    return group


def all_reduce(group: dist.ProcessGroup) -> dist.Work:
    work = dist.all_reduce(torch.ones(10_000), group=group, async_op=True)
    assert work is not None
    work.get_future()  # its callbacks have a thread
    return work


def in_good_order(group: dist.ProcessGroup) -> None:
    all_reduce(group).wait()
    dist.destroy_process_group(group)


def aborted(group: dist.ProcessGroup) -> None:
    """Rank 1 aborts while rank 0 waits for it; rank 0 hears of it, and aborts too."""
    all_reduce(group).wait()
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match="rank 1"):
            all_reduce(group).wait()
    else:
        waits = dist.irecv(torch.zeros(3), src=0, group=group)
        assert waits is not None
        group.abort()
        with pytest.raises(RuntimeError, match="shut its process group down"):
            waits.wait()
    group.abort()
    dist.destroy_process_group(group)


def make_groups(count: int) -> tuple[Counter[str], Counter[str], float]:
    if not dist.is_initialized():
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    in_good_order(new_group())  # its first use makes what stays, as threads of Torch
    before, begun = held(), time.monotonic()
    for number in range(count):
        (aborted if number % 4 == 3 else in_good_order)(new_group())
    return before, held(), time.monotonic() - begun


def test_groups_that_have_ended_leave_nothing(two: Ranks) -> None:
    for before, after, seconds in two.run(make_groups, ROUNDS):
        print(f"\n{ROUNDS} groups in {seconds:.1f} s: {dict(after)}")
        assert after == before


def keep_a_group() -> tuple[Counter[str], Counter[str]]:
    make_groups(0)
    before = held()
    group = new_group()
    with_it = held()
    dist.destroy_process_group(group)
    assert held() == before
    return before, with_it


def test_a_group_that_is_kept_is_seen(two: Ranks) -> None:
    for before, with_it in two.run(keep_a_group):
        more = with_it - before
        assert more["thread sluice"] == 1, more
        assert more["thread sluice-pulse"] == 1 and more["file socket"] >= 3, more


def meet_nobody() -> tuple[Counter[str], Counter[str], list[str]]:
    """Rank 1 does not come, and later rank 0 does not."""
    make_groups(0)
    before, said = held(), []
    for missing in (1, 0):
        if dist.get_rank() != missing:
            with pytest.raises(RuntimeError) as caught:
                groups.create(
                    groups.Group(
                        f"without {missing}",
                        dist.distributed_c10d._get_default_store(),
                        dist.get_rank(),
                        2,
                        timedelta(seconds=1),
                    )
                )
            said.append(str(caught.value))
            del caught
        dist.barrier()
    return before, held(), said


def test_a_group_that_never_was_leaves_nothing(two: Ranks) -> None:
    (before, after, first), (other_before, other_after, second) = two.run(meet_nobody)
    assert after == before and other_after == other_before
    assert "rank 1" in first[0] and "not formed within 1 s: nothing from rank 0" in second[0]
