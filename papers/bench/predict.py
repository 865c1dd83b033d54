"""Compares what 'sluice simulate' predicts with what 'sluice bench replay' measures in a lab of the
same hosts, links, algorithms and models.

    python3 papers/bench/predict.py --sluice build/release/bin/sluice --keep lab --json out.json

The lab's hosts share this machine's cores, so its links are slow enough for them. A model that does
not fit is made small (--shrink), in the lab and in the simulation; bytes are then cheap for the
lab's hosts, so the simulation gets costs of bytes that are divided by as much. A case whose own
runs in the lab spread by more than 10 % of their median is shown and does not count. What the lab
has measured is kept in the directory --keep, and a second call measures only what is missing there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

COSTS = Path(__file__).resolve().parents[2] / "tools" / "sim" / "host_costs.json"
MOST_SPREAD = 0.1


@dataclasses.dataclass(frozen=True)
class Case:
    profile: str
    hosts: int
    algorithm: str
    runs: list[float]  # seconds of an iteration, in the lab
    predicted: float

    def median(self) -> float:
        return statistics.median(self.runs)

    def spread(self) -> float:
        return (max(self.runs) - min(self.runs)) / self.median()

    def counts(self) -> bool:
        return self.spread() <= MOST_SPREAD

    def error(self) -> float:
        return self.predicted / self.median() - 1


def rows_of(command: list[str], kept: Path | None = None) -> list[dict[str, Any]]:
    """Runs the command, or reads the file in which its result was kept before."""
    if kept is not None and kept.exists():
        text = kept.read_text()
    else:
        done = subprocess.run(
            [*command, "--json", "-"], check=True, stdout=subprocess.PIPE, text=True
        )
        text = done.stdout
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def costs_for(shrink: int, costs: Path, folder: Path) -> Path:
    """Writes the costs of hosts whose bytes are 1/shrink of those that are counted."""
    content = json.loads(costs.read_text())
    for kind in ("plain", "encrypted"):
        for name in content[kind]:
            if name.startswith("byte_"):
                content[kind][name] /= shrink
    path = folder / f"costs-{shrink}.json"
    path.write_text(json.dumps(content))
    return path


def compare(args: argparse.Namespace, profile: str, hosts: int, folder: Path) -> list[Case]:
    """All algorithms with one model and one number of hosts."""
    shrink = args.shrink if hosts > args.whole_up_to or profile in args.large else 1
    same = ["--profile", profile, "--algorithms", args.algorithms, "--ratio", str(args.ratio),
            "--shrink", str(shrink)]  # fmt: skip
    lab = rows_of([args.sluice, "bench", "replay", "--lab", "--workers", str(hosts),
                   "--runs", str(args.runs), "--encrypt", "off",
                   "--iterations", str(args.iterations),
                   *(["--rate", args.rate] if args.rate else []), *same],
                  args.keep and args.keep / f"{profile}-{hosts}.json")  # fmt: skip
    # --shrink has divided the lab's rate; the simulation counts every byte as often instead.
    rate = f"{lab[0]['rate_bits_per_s'] * shrink:.0f}bit"
    simulated = rows_of([args.sluice, "simulate", "--hosts", str(hosts), "--rate", rate,
                         "--latency", args.latency, "--seeds", "3",
                         "--cpu", str(costs_for(shrink, args.costs, folder)), *same])  # fmt: skip
    predicted = {row["algorithm"]: row["iteration_s"] for row in simulated}
    return [
        Case(profile, hosts, row["algorithm"], row["runs_s"], predicted[row["algorithm"]])
        for row in lab
    ]


def show(cases: list[Case]) -> None:
    print(f"{'profile':10} {'hosts':>5} {'algorithm':10} {'lab s':>8} {'spread':>7} "
          f"{'predicted s':>11} {'error':>7}")  # fmt: skip
    for case in cases:
        note = "" if case.counts() else "  not counted: its runs differ too much"
        print(
            f"{case.profile:10} {case.hosts:5} {case.algorithm:10} {case.median():8.4f} "
            f"{case.spread():7.1%} {case.predicted:11.4f} {case.error():+7.1%}{note}"
        )
    errors = [abs(case.error()) for case in cases if case.counts()]
    if errors:
        print(f"error of {len(errors)} cases: median {statistics.median(errors):.1%}, "
              f"worst {max(errors):.1%}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", default="sluice", help="the program")
    parser.add_argument("--profiles", default="resnet50,vgg19")
    parser.add_argument("--hosts", default="8,16")
    parser.add_argument("--algorithms", default="kvstore,p3,sluice,allreduce,mgwfbp")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=3, help="that count in each run")
    parser.add_argument("--ratio", type=float, default=1)
    parser.add_argument("--rate", help="of the lab's links; default: what this machine can carry")
    parser.add_argument("--latency", default="50us", help="of the lab's links")
    parser.add_argument("--costs", type=Path, default=COSTS, help="of calibrate_hosts.py")
    parser.add_argument("--shrink", type=int, default=8, help="models that do not fit")
    parser.add_argument("--large", default="vgg19,vgg16", help="models that do not fit")
    parser.add_argument("--whole-up-to", type=int, default=16, help="hosts with other models")
    parser.add_argument("--keep", type=Path, help="directory for what the lab has measured")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.large = args.large.split(",")
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as folder:
        for profile in args.profiles.split(","):
            for hosts in args.hosts.split(","):
                cases += compare(args, profile, int(hosts), Path(folder))
    show(cases)
    if args.json:
        rows = [dataclasses.asdict(case) | {"error": case.error(), "counts": case.counts()}
                for case in cases]  # fmt: skip
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
