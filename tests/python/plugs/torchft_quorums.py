"""Makes 200 quorums of two ranks in one process, as torchft's manager makes them, and counts the
threads, sockets and files that are left over.

torchft_quorums.py sluice FOLDER [PLANTED]     PLANTED: how many quorums are kept, as a leak would

Each rank is a thread with a process group of its own. Some quorums are aborted by one rank while
the other waits for it, and to some one rank does not come.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import common
import torch
import torch.distributed as dist
from sluice._backend.groups import open_groups
from sluice.torchft import ProcessGroupSluice
from torchft.process_group import ReconfigureOptions

sys.path.append(str(Path(__file__).parent.parent))
from held import held

_, folder = common.arguments()
planted = int(sys.argv[3]) if len(sys.argv) > 3 else 0
QUORUMS = 200
TIMEOUT, SHORT = timedelta(seconds=60), timedelta(seconds=1)

groups = [ProcessGroupSluice(TIMEOUT) for _ in range(2)]
handles = [group.get_reconfigure_handle() for group in groups]
kept: list[Any] = []
said: set[str] = set()


def settled() -> Counter[str]:
    """Returns what this process holds, once that has not changed for half a second: a TCPStore
    closes its end of a connection some time after its client."""
    last, since = held(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if (now := held()) != last:
            last, since = now, time.monotonic()
    return last


def form(rank: int, number: int) -> ProcessGroupSluice:
    options = ReconfigureOptions()
    options.uuid, options.handles = number, handles
    groups[rank].reconfigure(options).wait()
    return groups[rank]


def all_reduce(rank: int, number: int) -> None:
    group = form(rank, number)
    assert group.errored() is None
    tensor = torch.full((10_000,), float(number + rank))
    work = group.allreduce([tensor], dist.AllreduceOptions())
    (reduced,) = work.get_future().wait()
    assert torch.equal(reduced, torch.full((10_000,), 2.0 * number + 1)), "a wrong sum"


def is_aborted(rank: int, number: int) -> None:
    """Rank 1 aborts a call while rank 0 waits for it. Each has an error of its own."""
    all_reduce(rank, number)
    group = groups[rank]
    work = group.recv([torch.zeros(3)], 1 - rank, 0)
    if rank == 1:
        group.abort()
    try:
        work.wait()
    except RuntimeError as error:
        said.add(str(error).splitlines()[0])
    else:
        raise AssertionError("a call has ended well without its sender")
    assert group.errored() is not None


def lacks_a_rank(rank: int, number: int) -> None:
    """Only one rank comes."""
    if rank != number % 2:
        groups[rank].abort(errored=False)
        return
    groups[rank].set_timeout(SHORT)
    begun = time.monotonic()
    try:
        form(rank, number)
    except RuntimeError as error:
        said.add(str(error).splitlines()[0])
    else:
        raise AssertionError("a quorum of two has one rank")
    finally:
        groups[rank].set_timeout(TIMEOUT)
    assert time.monotonic() - begun < 10 and groups[rank].errored() is not None


def run(kind: Callable[[int, int], None], number: int) -> None:
    for ended in [threads.submit(kind, rank, number) for rank in range(2)]:
        ended.result()


def kind_of(number: int) -> Callable[[int, int], None]:
    if number % 20 in (9, 18):
        return lacks_a_rank
    return is_aborted if number % 4 == 3 else all_reduce


with ThreadPoolExecutor(2) as threads:
    for number, kind in enumerate((all_reduce, is_aborted, lacks_a_rank)):
        run(kind, 1000 + number)  # their first use makes what stays
    for group in groups:
        group.shutdown()
    before, begun, kinds = settled(), time.monotonic(), Counter[str]()
    for number in range(QUORUMS):
        kinds[kind_of(number).__name__] += 1
        run(kind_of(number), number)
        if number < planted:
            kept.extend((group._pg, group._connection) for group in groups)
            for group in groups:
                group._pg = None
    for group in groups:
        group.abort(errored=False)
    seconds, after = time.monotonic() - begun, settled()

left = Counter({"open groups": open_groups()})
left += (after - before) + (before - after)
print(f"before: {dict(before)}\nafter: {dict(after)}\n{dict(kinds)}\n" + "\n".join(sorted(said)))
checks = {
    f"{QUORUMS} quorums in {seconds:.0f} s: left over: {dict(left) or 0}": "no" if left else ""
}
(folder / "quorums.json").write_text(json.dumps(checks))
