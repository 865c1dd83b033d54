"""Compares the accuracy after training with delayed and with compressed gradients with that of
training in step. The small network of examples/mnist_cnn.py is trained on four real ranks with
several seeds, and scored on the test images. The learning rate falls to zero along a cosine, since
with a constant one the last few batches decide. As in the paper, the first tenth of all steps is in
step.

    PYTHONPATH=build/release/python python3 papers/bench/pipe_accuracy.py \\
        --data DATA --json out.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import mnist_ranks

WAYS: dict[str, dict[str, str]] = {
    "allreduce": {"SLUICE_ALGORITHM": "allreduce"},
    "pipe": {"SLUICE_ALGORITHM": "pipe"},
    "pipe, fp16": {"SLUICE_ALGORITHM": "pipe", "SLUICE_CODEC": "fp16"},
    "pipe, int8": {"SLUICE_ALGORITHM": "pipe", "SLUICE_CODEC": "int8"},
}


def accuracy(args: argparse.Namespace, dataset: str, way: str, seed: int) -> float:
    """Returns the accuracy in percent, as rank 0 prints it."""
    variables = {"SLUICE_LOG": "warn", **WAYS[way], "SLUICE_PIPE_WARM_UP": str(args.steps // 10)}
    command = mnist_ranks.command_for(args, dataset, seed)
    ranks = mnist_ranks.start(command, args.workers, variables, subprocess.DEVNULL)
    try:
        said = [rank.communicate(timeout=args.timeout)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    found = mnist_ranks.accuracy_in(said[0])
    if found is None or any(rank.returncode for rank in ranks):
        sys.exit(f"{way} on {dataset} with seed {seed} has failed: run {' '.join(command)} by hand")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with mnist/ and fashion-mnist/ in it"
    )
    parser.add_argument("--datasets", default="mnist,fashion-mnist")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="samples a rank and step")
    parser.add_argument(
        "--steps", type=int, default=3750, help="as it comes, four epochs of four ranks"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one training")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for dataset in args.datasets.split(","):

        def measure(way: str, seed: int, dataset: str = dataset) -> float:
            return accuracy(args, dataset, way, seed)

        found = mnist_ranks.by_way(WAYS, args.seeds, measure, f"{dataset}, ")
        in_step = statistics.mean(found["allreduce"])
        for way, percents in found.items():
            mean = statistics.mean(percents)
            rows.append({"dataset": dataset, "way": way, "workers": args.workers,
                         "batch": args.batch, "steps": args.steps, "percents": percents,
                         "mean": mean, "points_over_in_step": mean - in_step})  # fmt: skip
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{'':14}  {'':12}{'mean %':>8}{'spread':>16}{'over in step':>14}")
    for row in rows:
        spread = f"{min(row['percents']):.2f} to {max(row['percents']):.2f}"
        print(
            f"{row['dataset']:14}  "
            f"{row['way']:12}{row['mean']:8.2f}{spread:>16}{row['points_over_in_step']:+14.2f}"
        )


if __name__ == "__main__":
    main()
