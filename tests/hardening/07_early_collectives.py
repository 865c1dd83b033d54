#!/usr/bin/env python3
"""A slow rank of the backend `sluice` keeps a bounded amount of data that it has not asked for, and
the rest waits at the sender.

Rank 0 makes 24 broadcasts of 16 MB (async) while rank 1 does something else for some seconds. Rank
1 may keep 64 MB. Then it makes the same calls, and every byte must be right. An all-reduce that
both have called goes through meanwhile. Exit code 0: all of that held. `gloo` as argument runs the
same on Gloo, to compare. SLUICE_PYTHON is the folder of the built package.
"""

from __future__ import annotations

import os
import subprocess
import sys

from peer import MODULE, free_port

PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
if sys.argv[1] == "sluice":
    import sluice
rank = int(os.environ["RANK"])
dist.init_process_group(sys.argv[1])
dist.barrier()
def resident():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") \
if line.startswith("VmRSS"))
COUNT, SIZE = 24, 4_000_000
total = torch.ones(1000)
if rank == 0:
    first = dist.all_reduce(total, async_op=True)
    data = [torch.full((SIZE,), float(i)) for i in range(COUNT)]
    works = [dist.broadcast(each, 0, async_op=True) for each in data]
    first.wait()
    print("rank 0 has reduced", flush=True)
else:
    time.sleep(1)
    dist.all_reduce(total)  # rank 0 has sent a lot behind it
    assert bool((total == 2).all())
    before = resident()
    time.sleep(4)
    kept = resident() - before
    print(f"rank 1 has kept {kept} MB of {COUNT * SIZE * 4 // 2**20} MB that it has not asked \
for", flush=True)
    assert kept <= 80, kept  # 64 MB, and what the rest of the process does meanwhile
    data = [torch.zeros(SIZE) for _ in range(COUNT)]
    works = [dist.broadcast(each, 0, async_op=True) for each in data]
for work in works:
    work.wait()
for i, each in enumerate(data):
    assert bool((each == i).all()), i
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} has all of it", flush=True)
"""


def main() -> int:
    backend = "gloo" if "gloo" in sys.argv else "sluice"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")
    }
    environment |= {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": MODULE,
        "SLUICE_LOG": "warn",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, backend],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    print(*texts, sep="")
    arrived = all(f"rank {rank} has all of it" in texts[rank] for rank in range(2))
    return 0 if arrived and all(rank.returncode == 0 for rank in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
