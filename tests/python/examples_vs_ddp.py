"""Trains the three examples by DDP and by sluice on the same data.

    PYTHONPATH=build/release/python python3 tests/python/examples_vs_ddp.py --data DATA \\
      --json out.json

    two         2 ranks: all parameters are DDP's, bit by bit, after 200 steps
    four        4 ranks, where DDP sums in another order: the loss within 1e-3 in the first 20
                steps, its mean over the last 20 within 1 %, and the same bits on all ranks
    backend     2 ranks: DDP on the backend sluice has the parameters of DDP on Gloo, bit by bit,
                after 200 steps
    algorithms  4 ranks: every algorithm and slice size gives the same bits

The models are the examples' own; batches are small (and the transformer's samples short), so that
200 steps take a minute. It takes a quarter of an hour on two cores, so it is not among the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from ranks import environment, free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = ["two", "four", "backend", "algorithms"]
STEPS = 200
SIZES = {
    "mnist_cnn": ["--batch", "32"],
    "fashion_vgg": ["--batch", "8"],
    "char_transformer": ["--batch", "2", "--length", "16"],
}
ALGORITHMS = [("sluice", 50_000), ("sluice", 12_500), ("sluice", 999), ("p3", 50_000),
              ("p3", 7_001), ("slicing", 7_001),
              ("kvstore", 50_000), ("allreduce", 0), ("wfbp", 0), ("mgwfbp", 0)]  # fmt: skip


@dataclass
class Check:
    """One line of the table at the end."""

    example: str
    workers: int
    what: str
    found: str
    is_good: bool
    seconds: float


class Trained:
    """The results of a job: the parameters of every rank, and the losses of rank 0."""

    def __init__(self, folder: Path, world: int) -> None:
        self.states: list[dict[str, Any]] = [
            torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)
        ]
        self.losses: list[float] = json.loads((folder / "out.json").read_text())["losses"]


def train(
    args: argparse.Namespace,
    example: str,
    how: str,
    world: int,
    steps: int,
    backend: str = "gloo",
    **variables: str,
) -> Trained:
    title = " ".join([f"{example} by {how} on {world} ranks", *variables.values()])
    with tempfile.TemporaryDirectory() as name:
        folder, port, begun = Path(name), free_port(), time.monotonic()
        command = [sys.executable, str(EXAMPLES / f"{example}.py"), "--how", how,
                   "--backend", backend, "--no-test",
                   "--data", str(args.data), "--steps", str(steps), *SIZES[example],
                   "--json", str(folder / "out.json"), "--save"]  # fmt: skip
        ranks = []
        for rank in range(world):
            with (folder / f"{rank}.err").open("w") as errors:
                ranks.append(
                    subprocess.Popen([*command, str(folder / f"{rank}.pt")],
                                     env=environment(rank, world, port, **variables),
                                     stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE if rank == 0 else errors, text=True)
                )  # fmt: skip
        too_long = threading.Timer(args.timeout, lambda: [rank.kill() for rank in ranks])
        too_long.start()
        try:
            said = []
            assert ranks[0].stderr is not None
            for line in ranks[0].stderr:  # its progress
                said.append(line)
                print(f"  {title}: {line.rstrip()}", file=sys.stderr, flush=True)
            failed = [rank for rank, process in enumerate(ranks) if process.wait() != 0]
            if failed:
                took = time.monotonic() - begun
                why = "".join(said) if failed[0] == 0 else (folder / f"{failed[0]}.err").read_text()
                sys.exit(f"{title}: rank {failed[0]} ended with {ranks[failed[0]].returncode} "
                         f"after {took:.0f} s{' (--timeout)' if took >= args.timeout else ''}\n"
                         f"{why[-2000:]}")  # fmt: skip
            return Trained(folder, world)
        finally:
            too_long.cancel()
            for process in ranks:
                process.kill()
                process.wait()


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Describes the first tensor that differs; empty if all are equal."""
    for name, tensor in theirs.items():
        if not torch.equal(ours[name], tensor):
            return f"'{name}' differs by {(ours[name] - tensor).abs().max():.3g}"
    return ""


def parameters(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state without the statistics of the last batch, which differ between ranks."""
    return {
        name: tensor
        for name, tensor in state.items()
        if not name.endswith(("running_mean", "running_var"))
    }


class Checks:
    def __init__(self) -> None:
        self.done: list[Check] = []
        self._begun = time.monotonic()

    def add(self, example: str, workers: int, what: str, found: str, is_good: bool) -> None:
        now = time.monotonic()
        check = Check(example, workers, what, found, is_good, now - self._begun)
        self._begun = now
        self.done.append(check)
        print(self.line(check), flush=True)

    def same(self, example: str, workers: int, what: str, wrong: str) -> None:
        self.add(example, workers, what, wrong or "the same bits", not wrong)

    @staticmethod
    def line(check: Check) -> str:
        mark = "ok " if check.is_good else "NOT"
        return (
            f"{mark} {check.example:17}{check.workers:2} ranks  "
            f"{check.what:45}{check.found:40}{check.seconds:5.0f} s"
        )

    def two_ranks(self, args: argparse.Namespace, example: str) -> None:
        by_ddp, ours = (train(args, example, how, 2, STEPS) for how in ("ddp", "sluice"))
        pairs = zip(ours.states, by_ddp.states, strict=True)
        wrong = next((text for pair in pairs if (text := difference(*pair))), "")
        size = sum(tensor.numel() for tensor in ours.states[0].values()) / 1e6
        self.same(example, 2, f"{size:.1f} M numbers and DDP's, {STEPS} steps", wrong)

    def backends(self, args: argparse.Namespace, example: str) -> None:
        gloo, ours = (
            train(args, example, "ddp", 2, STEPS, backend=backend) for backend in ("gloo", "sluice")
        )
        pairs = zip(ours.states, gloo.states, strict=True)
        wrong = next((text for pair in pairs if (text := difference(*pair))), "")
        self.same(example, 2, f"DDP on sluice and on Gloo, {STEPS} steps", wrong)

    def four_ranks(self, args: argparse.Namespace, example: str) -> None:
        by_ddp, ours = (train(args, example, how, 4, STEPS) for how in ("ddp", "sluice"))
        first = max(
            abs(a - b) / abs(b) for a, b in zip(ours.losses[:20], by_ddp.losses[:20], strict=True)
        )
        means = [statistics.fmean(trained.losses[-20:]) for trained in (ours, by_ddp)]
        last = abs(means[0] - means[1]) / means[1]
        self.add(
            example, 4, "loss of steps 1 to 20 off DDP's (1e-3)", f"{first:.1e}", first <= 1e-3
        )
        self.add(
            example, 4, "its mean over steps 181 to 200 (1 %)", f"{100 * last:.3f} %", last <= 0.01
        )
        apart = (
            text
            for state in ours.states[1:]
            if (text := difference(state, parameters(ours.states[0])))
        )
        self.same(example, 4, "all ranks", next(apart, ""))

    def algorithms(self, args: argparse.Namespace) -> None:
        reference: Trained | None = None
        for algorithm, elements in ALGORITHMS:
            variables = {"SLUICE_ALGORITHM": algorithm, "SLUICE_SLICE_ELEMENTS": str(elements)}
            ours = train(args, "mnist_cnn", "sluice", 4, 50, **variables)
            reference = reference or ours
            wrong = next(
                (text for state in ours.states if (text := difference(state, reference.states[0]))),
                "",
            )
            self.same(
                "mnist_cnn",
                4,
                f"{algorithm}{f', slices of {elements}' if elements else ''}, all ranks",
                wrong,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("SLUICE_DATA"),
        help="folder of the data sets [SLUICE_DATA]",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--examples", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one job may take")
    parser.add_argument("--json", type=Path, help="write the table here too")
    args = parser.parse_args()
    if args.data is None or not args.data.is_dir():
        print("skipped: no data; give --data or SLUICE_DATA")
        sys.exit(77)
    checks = Checks()
    for example in args.examples:
        if "two" in args.only:
            checks.two_ranks(args, example)
    for example in args.examples:
        if "four" in args.only:
            checks.four_ranks(args, example)
    for example in args.examples:
        if "backend" in args.only:
            checks.backends(args, example)
    if "algorithms" in args.only:
        checks.algorithms(args)
    good = sum(check.is_good for check in checks.done)
    print(
        "\n"
        + "\n".join(map(checks.line, checks.done))
        + f"\n{good} of {len(checks.done)} as they should be"
    )
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(check) for check in checks.done], indent=1) + "\n")
    sys.exit(0 if good == len(checks.done) else 1)


if __name__ == "__main__":
    main()
