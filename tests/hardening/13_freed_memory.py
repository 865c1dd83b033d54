#!/usr/bin/env python3
"""With server_optimizer=True, rank 0 gives its parameter other memory between step() and the next
forward pass (as vector_to_parameters does), before rank 1's part and the result are there. New
tensors of the program must not change, and the next forward pass must describe the fault in one
line. `control` leaves the memory where it is.
"""

import os
import sys
from pathlib import Path

from peer import MODULE

os.environ["PYTHONPATH"] = MODULE
sys.path[:0] = [MODULE, str(Path(__file__).parents[1] / "python")]
from ranks import run_script

PROGRAM = """
import os, time
import torch, sluice
rank = int(os.environ["RANK"])
model = torch.nn.Linear(512, 512, bias=False)
model, optimizer = sluice.distribute(model, lambda ps: torch.optim.SGD(ps, lr=0.01), \
server_optimizer=True)
parameters = list(model.parameters())
def step(late=0.0):
    optimizer.zero_grad(); model(torch.ones(1, 512)).sum().backward(); \
time.sleep(late); optimizer.step()
for _ in range(3): step()
optimizer.synchronize()
step(late=1.0 if rank == 1 else 0.0)
if rank == 0:
    ready = optimizer._late.engine.session.is_ready(0)
    if HOW == "free":
        for parameter in parameters:
            parameter.data = parameter.data.clone()
    print("swapped before the result came" if not ready else "too late", flush=True)
    innocent = [torch.full((512, 512), 7.0) for _ in range(8)]
    time.sleep(2)
    print("changed:", sum(bool((tensor != 7.0).any()) for tensor in innocent), flush=True)
    for _ in range(2):
        try:
            model(torch.ones(1, 512))
            print("no error", flush=True)
        except RuntimeError as error:
            print("error:", error, flush=True)
else:
    time.sleep(3)
os._exit(0)
"""


def main() -> int:
    how = "control" if "control" in sys.argv else "free"
    ended = run_script(f"HOW = {how!r}\n{PROGRAM}", 2, anew=True)
    said = ended[0].stdout.splitlines()
    print(f"{how}, rank 0: exit {ended[0].returncode}", *said, ended[0].stderr[-500:], sep="\n   ")
    happened = "swapped before the result came" in said
    named = [
        line
        for line in said
        if line.startswith("error:") and "'weight' was changed or given other memory" in line
    ]
    is_right = len(named) == (2 if how == "free" else 0) and "changed: 0" in said
    print(
        "the memory was given away while the result was on its way"
        if happened
        else "nothing is shown"
    )
    return 0 if happened and is_right and ended[0].returncode == 0 else 1


sys.exit(main())
