#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh virtual environment that sees the Torch of this one, and trains with it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

python3 -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$room" .
python3 -m venv --system-site-packages "$room/venv"
"$room/venv/bin/pip" install --quiet --no-deps "$room"/sluice-*.whl
cd "$room" # not beside the sources, so that only what was installed is found
venv/bin/sluice --version
cat >train.py <<'END'
import torch, sluice
model, optimizer = sluice.distribute(torch.nn.Linear(4, 4), lambda ps: torch.optim.SGD(ps, lr=0.1))
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
assert sluice.mean(float(model.weight.sum())) == float(model.weight.sum())
print(f"rank {sluice.rank()} of {sluice.world_size()} has trained")
END
venv/bin/python train.py
venv/bin/python -m torch.distributed.run --nproc-per-node 2 train.py
