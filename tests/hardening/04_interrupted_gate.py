#!/usr/bin/env python3
"""The program catches an exception out of a wait (Ctrl-C, a timeout): the step is resumed with the
right bits.

There are two ranks. Rank 1 is late in one step. Rank 0 is interrupted while it waits for the first
layer in the next forward pass, saves as a notebook or a framework does on KeyboardInterrupt, and
goes on. The saved model and the last parameters must be those of rank 1. `control` leaves the
interrupt out.
"""

import os
import sys
from pathlib import Path

from peer import MODULE

os.environ["PYTHONPATH"] = MODULE
sys.path[:0] = [MODULE, str(Path(__file__).parents[1] / "python")]
from ranks import run_script

PROGRAM = """
import hashlib, os, signal, time
import torch, sluice
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9))
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
def digest(tensors):
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()[:12]
for step in range(12):
    data = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + rank))
    optimizer.zero_grad()
    if rank == 0 and step == 6 and HOW == "interrupt":
        signal.setitimer(signal.ITIMER_REAL, 0.5)   # rank 1 hands its gradients of step 5 \
over only after 1.5 s
    try:
        out = model(data)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        print("model", digest(model.state_dict().values()), flush=True)
        out = model(data)
    if rank == 1 and step == 5:
        time.sleep(1.5)
    if rank == 1 and step == 6:
        print("model", digest(model.state_dict().values()), flush=True)
    out.square().sum().backward()
    optimizer.step()
optimizer.synchronize()
print("end", digest(model.state_dict().values()), flush=True)
"""


def main() -> int:
    how = "control" if "control" in sys.argv else "interrupt"
    ended = run_script(f"HOW = {how!r}\n{PROGRAM}", 2, anew=True)
    for rank, one in enumerate(ended):
        print(
            f"rank {rank}: exit {one.returncode}", *one.stdout.splitlines(), one.stderr, sep="\n   "
        )
    said = [one.stdout.splitlines() for one in ended]
    words = [{line for line in lines if line.startswith(("model", "end"))} for lines in said]
    happened = "interrupted" in said[0] or how == "control"
    is_same = words[0] == words[1] if how == "interrupt" else words[0] <= words[1]
    print("the interrupt happened" if happened else "no wait was interrupted: nothing is shown")
    print(
        "the same parameters"
        if is_same
        else "the ranks have different parameters, and no error was raised"
    )
    return 0 if happened and is_same and all(one.returncode == 0 for one in ended) else 1


sys.exit(main())
