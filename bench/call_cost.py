#!/usr/bin/env python3
"""Measures the CPU time of a small all-reduce and of a training step on the backend, in two builds
in turn: the cost of the way from Torch into the engine.

    python3 bench/call_cost.py --before ../old/build/release --after build/release --pairs 10

Two ranks on this machine; the figure is CPU seconds of both ranks. Every pair runs one build right
after the other, and the order changes from pair to pair. Prints the median of the pairs' ratios,
after over before, with the least and the greatest.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

RANK = """
import resource, sys, torch, torch.distributed as dist
from torch import nn
import sluice
torch.set_num_threads(1)
dist.init_process_group("sluice")
what, count = sys.argv[1], int(sys.argv[2])
if what == "call":
    tensor = torch.ones(256)
    step = lambda: dist.all_reduce(tensor)
else:
    layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)])
    model = nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batch = torch.randn(8, 256)
    def step():
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
for _ in range(20): step()
begin = spent()
for _ in range(count): step()
print(spent() - begin)
dist.destroy_process_group()
"""


def cpu_seconds(build: Path, what: str, count: int) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str((build / "python").resolve()), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "SLUICE_LOG": "warn",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, what, str(count)],
            text=True,
            stdout=subprocess.PIPE,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    return sum(float(rank.communicate(timeout=300)[0].split()[-1]) for rank in ranks) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="build directory")
    parser.add_argument("--after", type=Path, required=True, help="build directory")
    parser.add_argument("--pairs", type=int, default=10)
    flags = parser.parse_args()
    for what, count in (("call", 3000), ("step", 300)):
        pairs = []
        for number in range(flags.pairs):
            builds = [flags.before, flags.after][:: 1 if number % 2 == 0 else -1]
            spent = {build: cpu_seconds(build, what, count) for build in builds}
            pairs.append((spent[flags.before], spent[flags.after]))
        ratios = [after / before for before, after in pairs]
        before = statistics.median(pair[0] for pair in pairs)
        print(
            f"{what}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) of "
            f"{before * 1e6:.0f} us, {flags.pairs} pairs",
            flush=True,
        )


if __name__ == "__main__":
    main()
