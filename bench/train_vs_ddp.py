"""Real training in a lab: sluice beside DDP on Gloo, runs interleaved, and the P3 bound of the measured profile beside both.

    sudo python3 bench/train_vs_ddp.py --sluice build/release/bin/sluice --example fashion_vgg --data DATA --json out.json

Each rank has a core of its own while there are enough. `--rate auto` makes the time on the wire as long as the compute.
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

HERE = Path(__file__).resolve().parent
BATCHES = {"fashion_vgg": 128, "char_transformer": 12, "mnist_cnn": 64}
GOODPUT = 0.95  # of a link's rate; the rest is headers (docs/lab.md)
LAB = "train-vs-ddp"


def bound(profile: dict[str, Any], seconds_per_byte: float) -> float:
    """The shortest iteration that any schedule on one link can have: max(B+F, max_j r_j + sum_{l<=j} c_l + q_j), and what the
    loop does besides, which no schedule changes."""
    tensors, compute = profile["tensors"], profile["compute_s"]
    forward = [tensor["forward"] * compute for tensor in tensors]
    backward = [tensor["backward"] * compute for tensor in tensors]
    longest, wire = compute, 0.0
    for j, tensor in enumerate(tensors):
        wire += 4 * tensor["parameters"] * seconds_per_byte
        longest = max(longest, sum(backward[j:]) + wire + sum(forward[j:]))
    return longest + float(profile["other_s"])


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder
        self.program = HERE.parent / "examples" / f"{args.example}.py"
        self.batch = args.batch or BATCHES[args.example]
        self.variables = {**os.environ, "OMP_NUM_THREADS": "1", "SLUICE_LOG": "warn", "SLUICE_ENCRYPT": args.encrypt}

    def options(self, how: str, steps: int, out: Path, *more: str) -> list[str]:
        data = ["--data", str(self.args.data), "--batch", str(self.batch), "--steps", str(steps)]
        return [sys.executable, str(self.program), "--how", how, *data, "--json", str(out), *more]

    def profile(self) -> dict[str, Any]:
        """Of one rank, while as many others compute beside it as in the real job: they share memory, and maybe cores."""
        path = self.folder / "profile-0.json"
        ranks = []
        for rank in range(self.args.workers):
            words = self.options("plain", self.args.steps, self.folder / "plain.json")
            words += ["--profile", str(self.folder / f"profile-{rank}.json")]
            command = ["taskset", "-c", str(rank % (os.cpu_count() or 1)), *words]
            ranks.append(subprocess.Popen(command, env=self.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        if any([rank.wait() != 0 for rank in ranks]):  # noqa: C419 (all of them are to be waited for)
            sys.exit(f"{self.program} has failed; run it by hand to see why")
        return dict(json.loads(path.read_text()))

    def train(self, how: str, run: int, bucket_mb: float = 25) -> dict[str, list[float]]:
        out = self.folder / f"{how}-{bucket_mb}-{run}.json"
        words = self.options(how, self.args.steps, out, "--bucket-mb", str(bucket_mb))
        pinned = f'exec taskset -c $((RANK % {os.cpu_count()})) "$@"'
        command = [self.args.sluice, "lab", "run", "--name", LAB, "--timeout", "110s", "--", "bash", "-c", pinned, "-", *words]
        ran = subprocess.run(command, env=self.variables, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"{how}: exit code {ran.returncode}\n{ran.stderr[-2000:]}")
        return dict(json.loads(out.read_text()))


def median_of(results: list[dict[str, list[float]]], skip: int) -> float:
    return statistics.median(statistics.median(result["seconds"][skip:]) for result in results)


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    bench = Bench(args, folder)
    profile = bench.profile()
    size = 4 * sum(tensor["parameters"] for tensor in profile["tensors"])
    sent = 2 * (args.workers - 1) / args.workers * size  # by each rank: its gradients out, its sums back
    rate = sent * 8 / GOODPUT / profile["compute_s"] / args.ratio if args.rate == "auto" else float(args.rate) * 1e6
    limit = bound(profile, sent / size * 8 / GOODPUT / rate)
    lab = [args.sluice, "lab"]
    subprocess.run([*lab, "up", "--name", LAB, "--hosts", str(args.workers), "--rate", f"{rate / 1e6:.0f}mbit"], check=True)
    try:
        runs: dict[str, list[dict[str, list[float]]]] = {}
        for run in range(args.runs):  # interleaved, so that a machine that changes changes for all
            for how, bucket in [("sluice", 25.0), *[("ddp", size_mb) for size_mb in args.buckets]]:
                runs.setdefault(f"{how} {bucket:g}", []).append(bench.train(how, run, bucket))
    finally:
        subprocess.run([*lab, "down", "--name", LAB], check=True)

    samples = bench.batch * args.workers
    seconds = {name: median_of(results, args.skip) for name, results in runs.items()}
    ours = seconds.pop("sluice 25")
    best = min(seconds, key=lambda name: seconds[name])
    losses = {name: results[0]["losses"] for name, results in runs.items()}
    gap = max(abs(a - b) / abs(b) for a, b in zip(losses["sluice 25"], losses[best], strict=True))
    return {
        "example": args.example, "workers": args.workers, "rate": round(rate),
        "ratio": sent * 8 / GOODPUT / rate / profile["compute_s"],
        "sluice_samples_s": samples / ours, "ddp_samples_s": samples / seconds.get("ddp 25", float("nan")),
        "ddp_best_samples_s": samples / seconds[best], "ddp_best_bucket_mb": float(best.split()[1]),
        "speedup": seconds.get("ddp 25", float("nan")) / ours, "speedup_over_best": seconds[best] / ours,
        "over_bound": ours / limit, "loss_gap": gap, "bound_s": limit, "compute_s": profile["compute_s"],
        "other_s": profile["other_s"], "sluice_s": ours, "ddp_s": seconds, "runs": args.runs, "steps": args.steps,
    }  # fmt: skip


def plot(figures: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = {"sluice": figures["sluice_s"], **{f"{name} MB": value for name, value in figures["ddp_s"].items()}}
    pyplot.figure(figsize=(6, 3.5))
    pyplot.bar(list(bars), [1e3 * value for value in bars.values()], color=["tab:blue"] + ["tab:gray"] * len(figures["ddp_s"]))
    pyplot.axhline(1e3 * figures["bound_s"], color="tab:red", linestyle="--", label="bound")
    pyplot.ylabel("ms per iteration")
    pyplot.title(f"{figures['example']}, {figures['workers']} workers, {figures['rate'] / 1e6:.0f} Mbit/s")
    pyplot.legend()
    pyplot.tight_layout()
    pyplot.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True, help="the program, for the lab")
    parser.add_argument("--example", choices=sorted(BATCHES), default="fashion_vgg")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", default="auto", help="of each host's link in Mbit/s, or auto")
    parser.add_argument("--ratio", type=float, default=1.0, help="with --rate auto: time on the wire over compute")
    parser.add_argument("--batch", type=int, help="samples per rank and iteration")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--skip", type=int, default=5, help="iterations at the start that do not count")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--buckets", type=float, nargs="+", default=[25.0, 5.0, 1.0], help="DDP's bucket sizes in MB")
    parser.add_argument("--encrypt", choices=["on", "off"], default="off", help="sluice's; DDP on Gloo never does")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(args, Path(folder))
    text = json.dumps(figures, indent=1)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n")
    if args.plot is not None:
        plot(figures, args.plot)


if __name__ == "__main__":
    main()
