#!/usr/bin/env python3
"""Trains with a framework on Gloo and with the same framework on sluice, in a lab, in interleaved
pairs, and prints how much faster sluice is.

    sudo chrt --rr 1 env PYTHONPATH=build/release/python python3 \\
      papers/bench/plugs_speed.py lightning --sluice build/release/bin/sluice \\
      --data DATA --json lightning.json

The model is that of examples/fashion_vgg.py, on Fashion-MNIST. Two ranks train, each on a host of
the lab and on a core of its own. The rate of the links makes the time on the wire `--ratio` times
the compute, as train_vs_ddp.py does. A round is one run on Gloo, one on sluice, and one of
plain training without a network, which shows how fast the machine computes at that time. Each round
begins with another of them. Ratios compare runs of one round.

    lightning    strategy="sluice" (gates), and DDPStrategy on Gloo
    accelerate   sluice.accelerate.prepare() (gates), and accelerator.prepare()
    trainer      the backend sluice, and Gloo: DistributedDataParallel on both. The Trainer clips
                 gradients by default, so it runs with its default, and with max_grad_norm=0

tests/python/plugs/environment.sh installs the framework in build/. Neither side encrypts. Needs
root.
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

from lab import lab
from train_vs_ddp import GOODPUT, Bench, balanced_rate, bound, scaled, wire_bytes

HERE = Path(__file__).resolve().parent
LAB = "plugs-speed"
WORKERS = 2


class Way:
    """The framework on Gloo or on sluice, with its runs."""

    def __init__(self, how: str, name: str, *options: str) -> None:
        self.how, self.name, self.options = how, name, options
        self.runs: list[dict[str, Any]] = []

    def medians(self, skip: int) -> list[float]:
        """Returns the seconds of the median step of each run."""
        return [statistics.median(run["seconds"][skip:]) for run in self.runs]

    def mean_of(self, what: str) -> float:
        return statistics.fmean(run[what] for run in self.runs)


def ways_of(framework: str) -> list[tuple[str, Way, Way]]:
    """Returns the pairs to compare, each with what is special about it."""
    clips = {"the default": "1", "max_grad_norm=0": "0"} if framework == "trainer" else {"": "1"}
    return [
        (
            title,
            Way("gloo", f"gloo {title}".strip(), "--clip", clip),
            Way("sluice", f"sluice {title}".strip(), "--clip", clip),
        )
        for title, clip in clips.items()
    ]


class Runner:
    def __init__(self, args: argparse.Namespace, folder: Path, python: str) -> None:
        self.args, self.python = args, python
        self.out = folder / "rank0.json"
        self.lab: list[str] = []  # the words that run a command in the lab

    def run(self, way: Way) -> None:
        args = self.args
        job = [self.python, str(HERE / "plugs_rank.py"), args.framework, way.how, *way.options,
               "--data", str(args.data), "--batch", str(args.batch), "--steps", str(args.steps),
               "--skip", str(args.skip), "--json", str(self.out)]  # fmt: skip
        pinned = f'exec taskset -c $((RANK % {os.cpu_count()})) "$@"'
        variables = {"OMP_NUM_THREADS": "1", "SLUICE_LOG": "warn", "SLUICE_ENCRYPT": "off"}
        ran = subprocess.run(
            [*self.lab, "--timeout", f"{args.timeout}s", "--", "bash", "-c", pinned, "-", *job],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        if ran.returncode != 0:
            sys.exit(f"{way.name}: exit code {ran.returncode}\n{ran.stderr[-3000:]}")
        way.runs.append(json.loads(self.out.read_text()))


def measure(args: argparse.Namespace, folder: Path, python: str) -> dict[str, Any]:
    plain = Bench(args, folder)
    profile = plain.profile()
    rate = args.rate * 1e6 or balanced_rate(profile, WORKERS, args.ratio)
    pairs = ways_of(args.framework)
    ways = [way for _, gloo, ours in pairs for way in (gloo, ours)]
    runner, plain_s = Runner(args, folder, python), []
    load = [os.getloadavg()[0]]
    with lab(args.sluice, LAB, WORKERS, f"{rate / 1e6:.0f}mbit") as runner.lab:
        for number in range(args.runs):
            plain_s.append(statistics.median(plain.alone()["seconds"][args.skip :]))
            first = number % len(ways)
            for way in ways[first:] + ways[:first]:
                runner.run(way)
                print(f"round {number + 1} of {args.runs}, {way.name}: "
                      f"{1e3 * way.medians(args.skip)[-1]:.0f} ms",
                      file=sys.stderr, flush=True)  # fmt: skip
    load.append(os.getloadavg()[0])
    rounds = [scaled(profile, seconds) for seconds in plain_s]
    on_wire = wire_bytes(profile, WORKERS) * 8 / GOODPUT / rate
    size = wire_bytes(profile, 2)
    return {
        "framework": args.framework,
        "workers": WORKERS,
        "rate": round(rate),
        "model_bytes": round(size),
        "wire_over_compute": [on_wire / one["compute_s"] for one in rounds],
        "plain_s": plain_s,
        "bound_s": [bound(one, on_wire / size) for one in rounds],
        "batch": args.batch,
        "steps": args.steps,
        "skip": args.skip,
        "load_average": load,
        "pairs": [compared(title, gloo, ours, args.skip) for title, gloo, ours in pairs],
    }


def compared(title: str, gloo: Way, ours: Way, skip: int) -> dict[str, Any]:
    theirs_s, ours_s = gloo.medians(skip), ours.medians(skip)
    faster = [a / b for a, b in zip(theirs_s, ours_s, strict=True)]
    return {
        "title": title,
        "faster": statistics.median(faster),
        "faster_spread": [min(faster), max(faster)],
        "faster_rounds": faster,
        "gloo_s": theirs_s,
        "sluice_s": ours_s,
        "same_losses": all(
            run["losses"] == gloo.runs[0]["losses"] for run in gloo.runs + ours.runs
        ),
        "gloo_sent_bytes": gloo.mean_of("sent_bytes"),
        "sluice_sent_bytes": ours.mean_of("sent_bytes"),
        "gloo_cpu_s": gloo.mean_of("cpu_s"),
        "sluice_cpu_s": ours.mean_of("cpu_s"),
    }


def table(figures: dict[str, Any]) -> str:
    ratios = figures["wire_over_compute"]
    lines = [
        f"{figures['framework']}, {figures['workers']} ranks, {figures['rate'] / 1e6:.0f} Mbit/s, "
        f"wire over compute {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
        f"{max(ratios):.2f}), load average {figures['load_average']}",
        f"{'':28}{'ms':>6}{'MB':>7}{'CPU s':>7}   rounds",
    ]

    def row(name: str, seconds: list[float], sent: float = 0, cpu: float = 0) -> str:
        rest = f"{sent / 1e6:7.1f}{cpu:7.2f}" if sent else " " * 14
        rounds = " ".join(f"{1e3 * one:.0f}" for one in seconds)
        return f"{name:28}{1e3 * statistics.median(seconds):6.0f}{rest}   {rounds}"

    lines += [row("bound", figures["bound_s"]), row("plain", figures["plain_s"])]
    for pair in figures["pairs"]:
        for how in ("gloo", "sluice"):
            name = f"{how} {pair['title']}"
            lines.append(
                row(name, pair[f"{how}_s"], pair[f"{how}_sent_bytes"], pair[f"{how}_cpu_s"])
            )
        low, high = pair["faster_spread"]
        same = "the same losses" if pair["same_losses"] else "OTHER LOSSES"
        lines.append(f"Gloo over sluice: {pair['faster']:.2f} ({low:.2f} to {high:.2f}), {same}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=["lightning", "accelerate", "trainer"])
    parser.add_argument("--sluice", required=True, help="the program, for the lab")
    parser.add_argument("--data", default="synthetic", help="folder with fashion-mnist/ in it")
    parser.add_argument("--rate", type=float, default=0, help="in Mbit/s; default: by --ratio")
    parser.add_argument("--ratio", type=float, default=1.0, help="time on the wire over compute")
    parser.add_argument("--batch", type=int, default=128, help="samples per rank and step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--skip", type=int, default=5, help="first steps, which do not count")
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("--timeout", type=int, default=170, help="seconds that one job may take")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.set_defaults(example="fashion_vgg", workers=WORKERS, encrypt="off")
    args = parser.parse_args()
    made = subprocess.run([HERE.parents[1] / "tests/python/plugs/environment.sh", args.framework],
                          check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(args, Path(folder), made.stdout.strip())
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


if __name__ == "__main__":
    main()
