#!/usr/bin/env python3
"""Combines server_optimizer=True, reentrant activation checkpointing, and one module in two
checkpointed segments. Its parameters get their gradient twice in one backward(). The gradients are
handed over at the end of backward(), so training has the bits of use_reentrant=False.
"""

import os
import sys
from pathlib import Path

from peer import MODULE

os.environ["PYTHONPATH"] = MODULE
sys.path[:0] = [MODULE, str(Path(__file__).parents[1] / "python")]
from ranks import run_script

PROGRAM = """
import hashlib, os
import torch, sluice
from torch.utils.checkpoint import checkpoint
class Net(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.shared, self.reentrant = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), \
reentrant
    def forward(self, x):
        x = self.first(x)
        x = checkpoint(self.shared, x, use_reentrant=self.reentrant)
        return checkpoint(self.shared, x.relu(), use_reentrant=self.reentrant)
def train(reentrant, on_servers):
    torch.manual_seed(0)
    net = Net(reentrant)
    model, optimizer = sluice.distribute(net, lambda ps: torch.optim.SGD(ps, lr=0.01), \
server_optimizer=on_servers)
    parts = []
    net.shared.weight.register_hook(lambda gradient: parts.append(0))
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.full((2, 8), 1.0 + int(os.environ["RANK"]))).sum().backward()
        optimizer.step()
    bits = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return len(parts), hashlib.sha256(bits).hexdigest()[:12]
for on_servers in (False, True):
    (once, expected), (twice, trained) = train(False, on_servers), train(True, on_servers)
    print(f"server_optimizer={on_servers}: {once} and {twice} gradients in 4 steps,",
          "the same bits" if trained == expected else "OTHER BITS", trained, flush=True)
"""


def main() -> int:
    ended = run_script(PROGRAM, 2, anew=True)
    for rank, one in enumerate(ended):
        print(
            f"rank {rank}: exit {one.returncode}",
            *one.stdout.splitlines(),
            one.stderr[-500:],
            sep="\n   ",
        )
    lines = ended[0].stdout.splitlines()
    happened = len(lines) == 2 and all("4 and 8 gradients" in line for line in lines)
    is_right = all("the same bits" in line for line in lines) and ended[0].stdout == ended[1].stdout
    print(
        "gradients came in two parts"
        if happened
        else "no gradient came in two parts: nothing is shown"
    )
    return 0 if happened and is_right and all(one.returncode == 0 for one in ended) else 1


sys.exit(main())
