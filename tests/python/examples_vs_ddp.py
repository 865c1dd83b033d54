"""The three examples, trained by DDP and by sluice on the same data.

    PYTHONPATH=build/release/python python3 tests/python/examples_vs_ddp.py --data DATA

With two ranks all parameters must be DDP's, bit by bit, after 200 steps. With four, where DDP sums in another order: the loss
within 1e-3 in the first 20 steps, and its mean over the last 20 within 1 %; and the same bits on all ranks, with every
algorithm and slice size. Takes minutes, so it is not among the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from ranks import environment, free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["mnist_cnn", "fashion_vgg", "char_transformer"]
STEPS = 200
BATCHES = {"mnist_cnn": 32, "fashion_vgg": 8, "char_transformer": 2}
ALGORITHMS = [("sluice", 50_000), ("sluice", 12_500), ("p3", 50_000), ("slicing", 7_001), ("kvstore", 50_000)]


class Trained:
    """What a job left behind: the parameters of every rank, and the losses of rank 0."""

    def __init__(self, folder: Path, world: int) -> None:
        self.states: list[dict[str, Any]] = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]
        self.losses: list[float] = json.loads((folder / "out.json").read_text())["losses"]


def train(args: argparse.Namespace, example: str, how: str, world: int, steps: int, **variables: str) -> Trained:
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        script, data = str(EXAMPLES / f"{example}.py"), str(args.data)
        command = [sys.executable, script, "--how", how, "--data", data, "--steps", str(steps),
                   "--batch", str(BATCHES[example]), "--json", str(folder / "out.json"), "--save"]  # fmt: skip
        ranks = [
            subprocess.Popen([*command, str(folder / f"{rank}.pt")], env=environment(rank, world, port, **variables),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for rank in range(world)
        ]  # fmt: skip
        for rank in ranks:
            _, errors = rank.communicate(timeout=600)
            if rank.returncode != 0:
                sys.exit(f"{example} by {how}: {errors[-2000:]}")
        return Trained(folder, world)


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """The first tensor that differs, or nothing."""
    for name, tensor in theirs.items():
        if not torch.equal(ours[name], tensor):
            return f"'{name}' differs by {(ours[name] - tensor).abs().max():.3g}"
    return ""


def parameters(state: dict[str, Any]) -> dict[str, Any]:
    """Without the statistics of the last batch, which is every rank's own."""
    return {name: tensor for name, tensor in state.items() if not name.endswith(("running_mean", "running_var"))}


def say(what: str, wrong: str) -> bool:
    print(f"{'ok  ' if not wrong else 'NOT '} {what}{': ' + wrong if wrong else ''}", flush=True)
    return not wrong


def two_ranks(args: argparse.Namespace, example: str) -> bool:
    by_ddp, ours = (train(args, example, how, 2, STEPS) for how in ("ddp", "sluice"))
    wrong = next((text for pair in zip(ours.states, by_ddp.states, strict=True) if (text := difference(*pair))), "")
    return say(f"{example}: 2 ranks, {STEPS} steps, parameters as with DDP bit by bit", wrong)


def four_ranks(args: argparse.Namespace, example: str) -> bool:
    by_ddp, ours = (train(args, example, how, 4, STEPS) for how in ("ddp", "sluice"))
    first = max(abs(a - b) / abs(b) for a, b in zip(ours.losses[:20], by_ddp.losses[:20], strict=True))
    means = [statistics.fmean(trained.losses[-20:]) for trained in (ours, by_ddp)]
    last = abs(means[0] - means[1]) / means[1]
    wrong = "" if first <= 1e-3 and last <= 0.01 else "too far"
    apart = next((text for state in ours.states[1:] if (text := difference(state, parameters(ours.states[0])))), "")
    good = say(f"{example}: 4 ranks, loss off DDP's by {first:.1e} in 20 steps, {100 * last:.2f} % at the end", wrong)
    return say(f"{example}: 4 ranks have the same bits", apart) and good


def algorithms(args: argparse.Namespace) -> bool:
    reference: Trained | None = None
    good = True
    for algorithm, elements in ALGORITHMS:
        ours = train(args, "mnist_cnn", "sluice", 4, 50, SLUICE_ALGORITHM=algorithm, SLUICE_SLICE_ELEMENTS=str(elements))
        reference = reference or ours
        wrong = next((text for state in ours.states if (text := difference(state, reference.states[0]))), "")
        good = say(f"mnist_cnn: 4 ranks, {algorithm} with slices of {elements}: the same bits", wrong) and good
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("SLUICE_DATA"), help="folder of the data sets [SLUICE_DATA]"
    )
    parser.add_argument("--only", nargs="+", choices=["two", "four", "algorithms"], default=["two", "four", "algorithms"])
    parser.add_argument("--examples", nargs="+", choices=NAMES, default=NAMES)
    args = parser.parse_args()
    if args.data is None or not args.data.is_dir():
        print("skipped: no data; give --data or SLUICE_DATA")
        sys.exit(77)
    good = [two_ranks(args, example) for example in args.examples if "two" in args.only]
    good += [four_ranks(args, example) for example in args.examples if "four" in args.only]
    good += [algorithms(args)] if "algorithms" in args.only else []
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
