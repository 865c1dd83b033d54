#!/usr/bin/env python3
"""An algorithm with an option of its own is one file and one line.

  toy_algorithm_test.py BUILD

Takes the file out of docs/add-an-algorithm.md, adds its line to the list, and builds the program
and the Python module in a copy of the tree: an overlay over this one at the same place, which only
this process sees. Then finds the algorithm in `sluice algorithms`, sets its option by flag,
variable and Python, and trains. Needs root for the overlay. Exit code 77: it could not run here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/add-an-algorithm.md"
FOLDER = ROOT / "sluice/algorithms/catalogue"

TRAIN = """
import os, sys, torch, sluice
torch.manual_seed(1)
model, optimizer = sluice.distribute(
    torch.nn.Linear(50, 50), lambda ps: torch.optim.SGD(ps, lr=0.1), algorithm=sys.argv[1],
    **({"layers_fifo": True} if sys.argv[1] == "layers" else {}))
for step in range(5):
    optimizer.zero_grad()
    model(torch.full((1, 50), 1.0 + float(os.environ["RANK"]))).sum().backward()
    optimizer.step()
optimizer.synchronize()
print(sum(float(p.detach().double().sum()) for p in model.parameters()))
"""


def run(*command, **variables):
    """Returns what a program prints; ends the test with its error."""
    ended = subprocess.run(
        list(map(str, command)), env=os.environ | variables, capture_output=True, text=True
    )
    if ended.returncode != 0:
        sys.exit(f"{command} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def add_the_algorithm():
    """Writes the two files."""
    page = PAGE.read_text()
    (FOLDER / "layers.cc").write_text(re.search(r"```cpp\n(.*?)```", page, re.DOTALL)[1])
    registry = FOLDER / "registry.cc"
    lines = registry.read_text().split("\n")
    last = max(i for i, line in enumerate(lines) if re.match(r"  each\(k\w+\)", line))
    lines[last] = lines[last].rstrip() + "  \\"
    lines.insert(last + 1, "  each(kLayers)")
    registry.write_text("\n".join(lines))


def train(build, algorithm):
    """Trains with two ranks; returns the sum of the parameters that each prints."""
    with_port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000)}
    variables = os.environ | with_port | {"WORLD_SIZE": "2", "PYTHONPATH": str(build / "python")}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, algorithm],
            env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        sums = {rank.communicate(timeout=60)[0].strip() for rank in ranks}
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode != 0 for rank in ranks) or len(sums) != 1:
        sys.exit(f"{algorithm} has trained to {sums}")
    return sums


def mount(*arguments):
    """Returns true iff the kernel lets us mount this."""
    return subprocess.run(["mount", *map(str, arguments)]).returncode == 0


def inside(build, folder):
    """Runs in a mount namespace of its own. What is written lands in `folder`, in memory."""
    if not mount("-t", "tmpfs", "tmpfs", folder):
        return 77
    upper, work = folder / "upper", folder / "work"
    for each in (upper, work):
        each.mkdir()
    layers = f"lowerdir={ROOT},upperdir={upper},workdir={work}"
    if not mount("-t", "overlay", "overlay", "-o", layers, ROOT):
        return 77
    os.chdir(ROOT)
    begun = time.monotonic()
    add_the_algorithm()
    run("cmake", "--build", build, "--target", "sluice", "sluice_core")
    built = time.monotonic() - begun
    sluice = build / "bin/sluice"
    known = [row["algorithm"] for row in json.loads(run(sluice, "algorithms", "--json"))]
    assert known[-1] == "layers", known
    shown = json.loads(run(sluice, "config", "show", "--json", SLUICE_LAYERS_FIFO="on"))
    option = next(row for row in shown if row["option"] == "layers-fifo")
    assert option["value"] == "on" and "SLUICE_LAYERS_FIFO" in option["from"], option
    assert "layers-fifo" in run(sluice, "algorithms", "layers")
    flags = ["--lab", "--workers", "2", "--iterations", "1", "--runs", "1", "--exact"]
    chosen = ["--algorithms", "layers", "--layers-fifo"]
    run(sluice, "bench", "replay", "--profile", "resnet50", *chosen, *flags)
    assert train(build, "layers") == train(build, "sluice")
    print(f"2 files, built in {built:.0f} s, all in {time.monotonic() - begun:.0f} s")
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build", type=Path)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    build = args.build.resolve()
    if os.geteuid() != 0 or ROOT not in build.parents:
        print("skipped: needs root, and a build inside the tree")
        return 77
    if args.inside:
        return inside(build, args.inside)
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "--mount", sys.executable, __file__, str(build), "--inside", folder]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
