"""Trains in a lab with sluice and with DDP on Gloo, in interleaved runs, and shows the P3 bound of
the measured profile beside both.

A round is one run of each, and one of plain training without a network, which shows how fast the
machine computes at that time and gives the round's bound. Ratios compare runs of one round; the
median over the rounds counts.

    sudo PYTHONPATH=build/release/python python3 papers/bench/train_vs_ddp.py \\
      --sluice build/release/bin/sluice --example fashion_vgg --data DATA --json out.json \\
      --plot out.png

Each rank has a core of its own if there are enough cores. `--rate auto` makes the time on the wire
`--ratio` times the compute. `sluice plot A.json B.json -o X.png` draws several of its files side by
side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab import lab
from sluice.demo.figures import Profile
from sluice.demo.link import GOODPUT

HERE = Path(__file__).resolve().parent
BATCHES = {"fashion_vgg": 128, "char_transformer": 24, "mnist_cnn": 64}
LAB = "train-vs-ddp"

Trained = dict[str, list[float]]  # "seconds" and "losses" of every iteration, on rank 0


class Setting:
    """One way to train, with its runs: plain PyTorch, sluice, or DDP with one size of buckets."""

    def __init__(self, name: str, *options: str, bucket_mb: float = 0) -> None:
        self.name = name
        self.options = options
        self.bucket_mb = bucket_mb
        self.runs: list[Trained] = []

    @staticmethod
    def ddp(bucket_mb: float) -> Setting:
        options = ("--how", "ddp", "--bucket-mb", str(bucket_mb))
        return Setting(f"ddp {bucket_mb:g} MB", *options, bucket_mb=bucket_mb)

    def seconds(self, skip: int) -> list[float]:
        """Returns the seconds of the median iteration of each run."""
        return [statistics.median(run["seconds"][skip:]) for run in self.runs]


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder
        self.program = HERE.parents[1] / "examples" / f"{args.example}.py"
        self.batch = args.batch or BATCHES[args.example]
        self.run: list[str] = []  # the words that run a command in the lab, while there is one
        self.variables = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SLUICE_LOG": "warn",
            "SLUICE_ENCRYPT": args.encrypt,
        }

    def words(self, out: Path, *more: str) -> list[str]:
        data = ["--data", str(self.args.data), "--batch", str(self.batch),
                "--steps", str(self.args.steps), "--no-test"]  # fmt: skip
        return [sys.executable, str(self.program), *data, "--json", str(out), *more]

    def alone(self, *more: str) -> Trained:
        """Runs plain training on as many ranks as in the real job, which share memory and maybe
        cores. Each iteration is as long as that of its slowest rank, for which the others would
        wait."""
        ranks = []
        for rank in range(self.args.workers):
            words = self.words(self.folder / f"plain-{rank}.json", "--how", "plain")
            words += [word.replace("RANK", str(rank)) for word in more]
            command = ["taskset", "-c", str(rank % (os.cpu_count() or 1)), *words]
            ranks.append(
                subprocess.Popen(
                    command,
                    env=self.variables,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        if any([rank.wait() != 0 for rank in ranks]):  # noqa: C419 (wait for all of them)
            sys.exit(f"{self.program} has failed; run it by hand to see why")
        trained = [
            json.loads((self.folder / f"plain-{rank}.json").read_text())["seconds"]
            for rank in range(self.args.workers)
        ]
        return {"seconds": [max(iteration) for iteration in zip(*trained, strict=True)]}

    def profile(self) -> dict[str, Any]:
        """Returns the profile of one rank."""
        self.alone("--profile", str(self.folder / "profile-RANK.json"))
        profile = dict(json.loads((self.folder / "profile-0.json").read_text()))
        return scaled(profile, statistics.median(self.alone()["seconds"][self.args.skip :]))

    def train(self, setting: Setting) -> None:
        if setting.name == "plain":
            setting.runs.append(self.alone())
            return
        out = self.folder / "trained.json"
        pinned = f'exec taskset -c $((RANK % {os.cpu_count()})) "$@"'
        command = [*self.run, "--timeout", f"{self.args.timeout}s", "--",
                   "bash", "-c", pinned, "-", *self.words(out, *setting.options)]  # fmt: skip
        ran = subprocess.run(command, env=self.variables, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"{setting.name}: exit code {ran.returncode}\n{ran.stderr[-2000:]}")
        setting.runs.append(json.loads(out.read_text()))


def scaled(profile: dict[str, Any], iteration: float) -> dict[str, Any]:
    """Scales a profile to an iteration of this length. That removes the time that watching every
    read costs, and follows changes of the machine's speed."""
    factor = iteration / (profile["compute_s"] + profile["other_s"])
    return profile | {key: profile[key] * factor for key in ("compute_s", "other_s")}


def bound(profile: dict[str, Any], seconds_per_byte: float) -> float:
    """Returns the time of the shortest iteration that any schedule on one link can have, plus the
    rest of the loop: the optimizer."""
    length = profile["compute_s"] + profile["other_s"]
    return Profile(profile, length).bound_s(8 / GOODPUT / seconds_per_byte)


def wire_bytes(profile: dict[str, Any], workers: int) -> float:
    """Returns the bytes that each rank sends in an iteration: its gradients, and its sums."""
    size = 4 * sum(tensor["parameters"] for tensor in profile["tensors"])
    return float(2 * (workers - 1) / workers * size)


def balanced_rate(profile: dict[str, Any], workers: int, ratio: float) -> float:
    """Returns the bits per second at which the wire takes `ratio` times as long as computing."""
    return wire_bytes(profile, workers) * 8 / GOODPUT / float(profile["compute_s"]) / ratio


def interleave(bench: Bench, settings: list[Setting]) -> None:
    """Runs all settings in turn, so that a change of the machine's speed affects them all. Each
    round begins with another setting, so that no setting is always first."""
    args, begun = bench.args, time.monotonic()
    for run in range(args.runs):
        first = run % len(settings)
        for setting in settings[first:] + settings[:first]:
            bench.train(setting)
            print(f"run {run + 1} of {args.runs}, {setting.name}: "
                  f"{1e3 * setting.seconds(args.skip)[-1]:.0f} ms",
                  file=sys.stderr, flush=True)  # fmt: skip
        spent = time.monotonic() - begun
        if run + 1 < args.runs and spent * (run + 2) / (run + 1) > args.at_most:
            print(
                f"no further run: {run + 1} took {spent:.0f} s, and --at-most is "
                f"{args.at_most:.0f}",
                file=sys.stderr,
            )
            return


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    bench = Bench(args, folder)
    profile = bench.profile()
    size = 4 * sum(tensor["parameters"] for tensor in profile["tensors"])
    sent = wire_bytes(profile, args.workers)
    rate = (
        balanced_rate(profile, args.workers, args.ratio) if args.rate is None else args.rate * 1e6
    )
    seconds_per_byte = sent / size * 8 / GOODPUT / rate
    print(f"{args.example}: {1e3 * profile['compute_s']:.0f} ms of computing, "
          f"{1e3 * profile['other_s']:.0f} ms besides, {size / 1e6:.1f} MB; {rate / 1e6:.0f} "
          f"Mbit/s, bound {1e3 * bound(profile, seconds_per_byte):.0f} ms",
          file=sys.stderr, flush=True)  # fmt: skip
    plain, ours = Setting("plain"), Setting("sluice", "--how", "sluice")
    theirs = [Setting.ddp(bucket) for bucket in args.buckets]
    with lab(args.sluice, LAB, args.workers, f"{rate / 1e6:.0f}mbit") as bench.run:
        interleave(bench, [plain, ours, *theirs])

    rounds = [scaled(profile, iteration) for iteration in plain.seconds(args.skip)]
    bounds = [bound(one, seconds_per_byte) for one in rounds]
    run_s = {setting.name: setting.seconds(args.skip) for setting in (plain, ours, *theirs)}
    best = min(theirs, key=lambda setting: statistics.median(run_s[setting.name]))
    as_it_comes = run_s.get("ddp 25 MB", [float("nan")] * len(bounds))
    gap = max(
        abs(a - b) / abs(b)
        for a, b in zip(ours.runs[0]["losses"], best.runs[0]["losses"], strict=True)
    )

    def over_ours(others: list[float]) -> list[float]:
        return [other / one for other, one in zip(others, run_s["sluice"], strict=True)]

    ratios = {"speedup": over_ours(as_it_comes), "speedup_over_best": over_ours(run_s[best.name]),
              "over_bound": [1 / one for one in over_ours(bounds)]}  # fmt: skip
    samples = bench.batch * args.workers
    return {
        "example": args.example, "workers": args.workers, "rate": round(rate),
        "ratio": seconds_per_byte * size / statistics.median(one["compute_s"] for one in rounds),
        "sluice_samples_s": samples / statistics.median(run_s["sluice"]),
        "ddp_samples_s": samples / statistics.median(as_it_comes),
        "ddp_best_samples_s": samples / statistics.median(run_s[best.name]),
        "ddp_best_bucket_mb": best.bucket_mb,
        **{key: statistics.median(of_rounds) for key, of_rounds in ratios.items()},
        **{f"{key}_spread": [min(of_rounds), max(of_rounds)] for key, of_rounds in ratios.items()},
        **{key: statistics.median(one[key] for one in rounds) for key in ("compute_s", "other_s")},
        "loss_gap": gap, "runs": len(rounds),
        "bound_s": statistics.median(bounds),
        "steps": args.steps,
        "batch": bench.batch, "encrypt": args.encrypt, "run_s": run_s, "bounds_s": bounds,
    }  # fmt: skip


def table(figures: dict[str, Any]) -> str:
    """Returns a table for people: every setting beside the bound, and the ratios of runs of one
    round."""
    samples = figures["batch"] * figures["workers"]
    lines = [
        f"{figures['example']}, {figures['workers']} workers, {figures['rate'] / 1e6:.0f} Mbit/s "
        f"a host, wire over compute {figures['ratio']:.2f}, {figures['runs']} rounds of "
        f"{figures['steps']} steps",
        f"{'':12}{'ms':>8}{'samples/s':>11}   rounds",
    ]
    for name, runs in {**figures["run_s"], "bound": figures["bounds_s"]}.items():
        median = statistics.median(runs)
        lines.append(
            f"{name:12}{1e3 * median:8.0f}{samples / median:11.1f}   "
            f"{' '.join(f'{1e3 * one:.0f}' for one in runs)}"
        )
    best = f"DDP with its best bucket, {figures['ddp_best_bucket_mb']:g} MB"
    for key, what in {
        "over_bound": "over the bound",
        "speedup": "DDP over sluice",
        "speedup_over_best": f"{best}, over sluice",
    }.items():
        low, high = figures[f"{key}_spread"]
        lines.append(f"{what}: {figures[key]:.2f} ({low:.2f} to {high:.2f})")
    lines.append(f"loss off DDP's by {figures['loss_gap']:.1e} at most")
    return "\n".join(lines)


def megabits(text: str) -> float | None:
    return None if text == "auto" else float(text.removesuffix("mbit"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", required=True, help="the program, for the lab")
    parser.add_argument("--example", choices=sorted(BATCHES), default="fashion_vgg")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--rate", type=megabits, default="auto", help="of each host's link in Mbit/s, or auto"
    )
    parser.add_argument(
        "--ratio", type=float, default=1.0, help="with --rate auto: time on the wire over compute"
    )
    parser.add_argument("--batch", type=int, help="samples per rank and iteration")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--skip", type=int, default=5, help="iterations at the start that do not count"
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument(
        "--buckets",
        type=float,
        nargs="+",
        default=[25.0, 5.0, 1.0],
        help="DDP's bucket sizes in MB",
    )
    parser.add_argument(
        "--encrypt", choices=["on", "off"], default="off", help="sluice's; DDP on Gloo never does"
    )
    parser.add_argument("--timeout", type=int, default=170, help="seconds that one job may take")
    parser.add_argument(
        "--at-most", type=float, default=500, help="seconds after which no further run is begun"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="a picture, as `sluice plot` draws it")
    args = parser.parse_args()
    if args.steps <= args.skip + 1:
        parser.error("--steps must be more than --skip and one")
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(args, Path(folder))
        file = args.json or Path(folder) / "figures.json"
        file.write_text(json.dumps(figures, indent=1) + "\n")
        if args.plot is not None:
            subprocess.run([args.sluice, "plot", str(file), "-o", str(args.plot)], check=True)
    print(table(figures))


if __name__ == "__main__":
    main()
