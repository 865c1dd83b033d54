#!/usr/bin/env python3
"""A healthy rank whose loop does not turn for longer than silence-limit must not be lost.

  10_loop_stall.py [--python BUILD/python] [--hook-seconds 4] [--millions 20] [--load 0] [--control]

Two parts, each with two ranks and default limits:

1. hook: the loop of rank 1 calls into a process group that is written in Python, which sleeps for
   --hook-seconds. Rank 0 must say that rank 1 is busy, and both must train on to the end.
   --control sets busy-limit to silence-limit, so that rank 1 is lost: it shows that the loop was
   really gone.
2. save: asp with Adam on the servers and --millions million parameters; rank 1 calls
   optimizer.state_dict() and load_state_dict(), while --load other processes use the CPU. Rank 1's
   metrics are read all the while: a reading waits for the loop, so the longest reading lasts as
   long as the loop did not turn.

Exit code 77: the package is not built. Exit code 0: no rank was lost in either part, and in the
first the loop was gone for longer than silence-limit. For 1 GB of parameters use --millions 256
--load 8.
"""

import argparse
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

SILENCE_LIMIT = 1.9  # the default

HOOK = '''
import os, sys, time
import torch, torch.distributed as dist, sluice
rank, seconds = int(os.environ["RANK"]), float(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
class Slow(dist.ProcessGroup):
    """Gloo, but one call of rank 1 takes long. The loop waits for the call."""
    def __init__(self):
        super().__init__(rank, 2)
        self.calls = 0
        self.gloo = dist.group.WORLD
    def allreduce(self, tensors, options=dist.AllreduceOptions()):
        self.calls += 1
        if rank == 1 and self.calls == 3:
            print("hook begins", flush=True)
            time.sleep(seconds)
            print("hook ends", flush=True)
        return self.gloo.allreduce(tensors, options)
    def broadcast(self, tensors, options=dist.BroadcastOptions()):
        return self.gloo.broadcast(tensors, options)
    def size(self):
        return 2
    def getBackendName(self):
        return "slow"
model, optimizer = sluice.distribute(torch.nn.Linear(100, 100), \
lambda ps: torch.optim.SGD(ps, lr=0.1), algorithm="allreduce",
                                     process_group=Slow(), broadcast_buffers=False)
for step in range(6):
    optimizer.zero_grad(); model(torch.ones(4, 100)).sum().backward(); optimizer.step()
optimizer.synchronize()
time.sleep(1)  # until rank 0 has heard that the loop turns again
sluice.mean(1.0)  # goes over sluice's own fabric, on which a lost rank is lost
print("trained", flush=True)
sluice.barrier()
'''

SAVE = """
import os, sys, time
import torch, sluice
rank, parts = int(os.environ["RANK"]), int(sys.argv[1])
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.zeros(1_000_000) for _ in range(parts))
    def forward(self, x):
        return sum((part[:1000] * x).sum() for part in self.parts)
def phase(name):
    print("phase", name, time.monotonic(), flush=True)
model, optimizer = sluice.distribute(Net(), lambda ps: torch.optim.Adam(ps, lr=0.1), \
algorithm="asp", server_optimizer=True,
                                     broadcast_buffers=False)
def step():
    optimizer.zero_grad(); model(torch.ones(1000)).backward(); optimizer.step()
phase("first step, which makes the session")
step(); optimizer.synchronize()
phase("training")
for _ in range(4): step()
optimizer.synchronize()
if rank == 0:  # it trains on as long as rank 1 saves
    while not os.path.exists(sys.argv[2]): step(); time.sleep(0.2)
else:
    phase("state_dict()")
    state = optimizer.state_dict()
    phase("load_state_dict()")
    optimizer.load_state_dict(state)
    phase("end")
    open(sys.argv[2], "w").close()
optimizer.synchronize()
print("trained", flush=True)
sluice.barrier()
"""


class Rank:
    """One process; `lines` is its output."""

    def __init__(self, program, arguments, rank, port, module, **variables):
        environment = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE="2",
            LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            OMP_NUM_THREADS="1",
            PYTHONPATH=module,
            SLUICE_LOG="info",
            **variables,
        )
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def has_said(self, text):
        return any(text in line for line in self.lines)


@contextlib.contextmanager
def job(program, arguments, module, **variables):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [Rank(program, arguments, rank, port, module, **variables) for rank in range(2)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.wait()


def wait_for_end(ranks, patience):
    end = time.monotonic() + patience
    codes = []
    for rank in ranks:
        try:
            codes.append(rank.process.wait(timeout=max(0.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(None)
    time.sleep(0.2)  # time for the last lines
    return codes


def fault(ranks, codes):
    """Returns the reason why not both ranks have trained to their end; empty if they have."""
    if codes == [0, 0] and all(rank.has_said("trained") for rank in ranks):
        return ""
    said = [
        f"rank {number}: {line[:200]}"
        for number, rank in enumerate(ranks)
        for line in rank.lines[-8:]
    ]
    return f"exit codes {codes}\n" + "\n".join(said)


def hook(options):
    with tempfile.TemporaryDirectory() as folder:
        limits = {"SLUICE_BUSY_LIMIT": f"{SILENCE_LIMIT}s"} if options.control else {}
        with job(
            HOOK, [str(options.hook_seconds), f"{folder}/gloo"], options.python, **limits
        ) as ranks:
            codes = wait_for_end(ranks, 120 + options.hook_seconds)
    why = fault(ranks, codes)
    if options.control:
        is_lost = any("it is busy: its loop has not turned" in line for line in ranks[0].lines)
        print(
            "hook, control: rank 1 was lost as it must be"
            if is_lost
            else f"hook, control: rank 1 was not lost\n{why}"
        )
        return is_lost
    busy = [line for line in ranks[0].lines if "rank 1 is busy" in line]
    over = [
        float(found[1])
        for line in ranks[0].lines
        if (found := re.search(r"no longer busy, after at least ([\d.]+) s", line))
    ]
    is_good = not why and bool(busy) and bool(over) and max(over) > SILENCE_LIMIT
    print(
        f"hook: the loop of rank 1 was gone for at least {max(over, default=0):.1f} s; lost: "
        f"{'nobody' if not why else why}"
    )
    return is_good


def longest_absence(ranks, is_over):
    """Reads rank 1's metrics until `is_over()`, and returns (begin, end) of every reading."""
    readings = []
    while not is_over() and ranks[1].process.poll() is None:
        url = next(
            (
                found[1]
                for line in ranks[1].lines
                if (found := re.search(r"metrics: (http://\S+)", line))
            ),
            None,
        )
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            if url:
                urllib.request.urlopen(url, timeout=120).read()
        readings.append((begun, time.monotonic()))
        time.sleep(0.02)
    return readings


def save(options):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for _ in range(options.load):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(other.wait)
            stack.callback(other.kill)
        arguments = [str(options.millions), f"{folder}/saved"]
        with job(SAVE, arguments, options.python, SLUICE_METRICS_PORT="0") as ranks:
            readings = longest_absence(ranks, lambda: ranks[1].has_said("phase end"))
            codes = wait_for_end(ranks, 120)
    phases = [
        (" ".join(line.split()[1:-1]), float(line.split()[-1]))
        for line in ranks[1].lines
        if line.startswith("phase")
    ]
    for (name, begin), (_, end) in zip(phases, phases[1:]):
        longest = max(
            (min(b, end) - max(a, begin) for a, b in readings if b > begin and a < end), default=0
        )
        print(
            f"save: {name}: {end - begin:.2f} s, the loop of rank 1 was gone for up to "
            f"{longest:.2f} s"
        )
    why = fault(ranks, codes)
    print(
        f"save: {options.millions * 4} MB of parameters, {options.load} other processes; lost: "
        f"{'nobody' if not why else why}"
    )
    return not why


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=os.environ.get("SLUICE_PYTHON", "build/release/python"))
    parser.add_argument("--hook-seconds", type=float, default=4)
    parser.add_argument("--millions", type=int, default=20)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    options.python = os.path.abspath(options.python)
    if not os.path.isdir(f"{options.python}/sluice"):
        print(f"not run: there is no package in {options.python}; build it, or set SLUICE_PYTHON")
        return 77
    good = [hook(options)] if options.control else [hook(options), save(options)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
