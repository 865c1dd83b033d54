"""One task of slurm.sh: trains a small model in the job that Slurm's variables describe."""

import hashlib
import os
import signal
import sys

import torch
from torch import nn

import sluice

STEPS = 12


def main() -> None:
    rank = int(os.environ["SLURM_PROCID"])
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model: nn.Module = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    model, optimizer = sluice.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    torch.manual_seed(9 + rank)
    try:
        for step in range(STEPS):
            if sys.argv[1] == "lose" and rank == 2 and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
            optimizer.step()
        content = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    except RuntimeError as error:
        print(f"task {rank} is told: {str(error).splitlines()[0]}", flush=True)
        sys.exit(1)
    print(
        f"task {rank} of {os.environ['SLURM_NTASKS']}: bits {hashlib.sha256(content).hexdigest()[:12]}",
        flush=True,
    )


if __name__ == "__main__":
    main()
