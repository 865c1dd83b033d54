"""Holds what 'sluice plan' predicts and chooses against what 'sluice bench replay' measures in a
lab: three models, two rates, 4 and 8 hosts, and two clusters in which one host is slower.

    python3 papers/bench/plan_check.py --sluice build/release/bin/sluice \\
        --out papers/results/plan --budget 40

Every case is kept in OUT/CASE.json as soon as it is measured, and a second call measures only what
is missing. Computing is replayed; bytes, sums and gates are real. Most models are made small
(--shrink), in the lab as in the plan. A case in which an algorithm's own runs spread by more than
10 % of their median counts for the choice and not for the error of that algorithm.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from predict import COSTS, MOST_SPREAD, costs_for, rows_of

ALGORITHMS = ["kvstore", "p3", "sluice", "allreduce", "mgwfbp"]


@dataclasses.dataclass(frozen=True)
class Case:
    profile: str
    hosts: int
    rate_mbit: int  # before --shrink
    ratio: float
    shrink: int
    host_rate_mbit: int = 0  # of the last host; 0: as the others
    straggler: float = 1  # the last worker computes so many times longer

    def name(self) -> str:
        slower = "-slow-link" if self.host_rate_mbit else ""
        slower += "-slow-worker" if self.straggler != 1 else ""
        return f"{self.profile}-{self.hosts}-{self.rate_mbit}mbit{slower}"

    def words(self) -> str:
        small = f", {self.shrink} times smaller" if self.shrink > 1 else ""
        link = f", one at {self.host_rate_mbit} Mbit/s" if self.host_rate_mbit else ""
        worker = f", one computes {self.straggler:g} times longer" if self.straggler != 1 else ""
        return f"{self.profile}, {self.hosts} hosts, {self.rate_mbit} Mbit/s{small}{link}{worker}"


def cases() -> list[Case]:
    # Few are made very small: TCP's own times, such as its start after a pause, do not shrink.
    rates = {("resnet50", 4): (1200, 1), ("resnet50", 8): (300, 1), ("vgg19", 4): (4600, 4),
             ("vgg19", 8): (1600, 4), ("sockeye", 4): (2400, 4),
             ("sockeye", 8): (800, 2)}  # fmt: skip
    found = []
    for (profile, hosts), (rate, shrink) in rates.items():
        # The same computing at both rates.
        found.append(Case(profile, hosts, rate, 1, shrink))
        found.append(Case(profile, hosts, rate // 2, 2, shrink))
    found.append(Case("resnet50", 4, 1200, 1, 1, host_rate_mbit=400))
    found.append(Case("resnet50", 4, 1200, 1, 1, straggler=3))
    return sorted(found, key=lambda case: (case.hosts, case.ratio))  # the quick ones first


def lab_command(sluice: str, case: Case, algorithms: list[str], runs: int) -> list[str]:
    command = [sluice, "bench", "replay", "--lab", "--encrypt", "off", "--iterations", "2",
               "--profile", case.profile, "--workers", str(case.hosts),
               "--rate", f"{case.rate_mbit}mbit", "--ratio", str(case.ratio),
               "--shrink", str(case.shrink), "--runs", str(runs),
               "--algorithms", ",".join(algorithms)]  # fmt: skip
    if case.host_rate_mbit:
        command += ["--host-rate", f"{case.hosts - 1}={case.host_rate_mbit}mbit"]
    if case.straggler != 1:
        command += ["--straggler", f"1:{case.straggler:g}x"]
    return command


def plan_of(sluice: str, case: Case, compute_s: float, folder: Path) -> dict[str, Any]:
    network: dict[str, Any] = {"rate": f"{case.rate_mbit}mbit", "encrypted": False}
    last = str(case.hosts - 1)
    if case.host_rate_mbit:
        network["hosts"] = {last: {"rate": f"{case.host_rate_mbit}mbit"}}
    if case.straggler != 1:
        network["slower"] = {last: case.straggler}
    path = folder / "network.json"
    path.write_text(json.dumps(network))
    done = subprocess.run(
        [sluice, "plan", "--profile", case.profile, "--hosts", str(case.hosts),
         "--network", str(path), "--compute-time", f"{compute_s * 1e6:.0f}us",
         "--cpu", str(costs_for(case.shrink, COSTS, folder)), "--json", "-"],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def measure(sluice: str, case: Case, runs: int, folder: Path) -> dict[str, Any]:
    """Measures one case, and the plan's choice if it is not one of the five."""
    lab = rows_of(lab_command(sluice, case, ALGORITHMS, runs))
    # The lab's times and rates are of the shrunk model; its compute time is the whole one's.
    plan = plan_of(sluice, case, lab[0]["compute_s"], folder)
    choice = plan["choice"]
    if choice["name"] not in ALGORITHMS:
        flags = [
            part for key, value in choice["settings"].items() for part in (f"--{key}", str(value))
        ]
        extra = rows_of([*lab_command(sluice, case, [choice["algorithm"]], runs), *flags])
        lab.append(extra[0] | {"algorithm": choice["name"]})
    return {
        "case": dataclasses.asdict(case),
        "command": " ".join(["sluice", *lab_command(sluice, case, ALGORITHMS, runs)[1:]]),
        "lab": [
            {
                key: row[key]
                for key in ("algorithm", "iteration_s", "runs_s", "bound_s", "compute_s")
            }
            for row in lab
        ],
        "plan": plan,
    }


def judge(kept: dict[str, Any]) -> dict[str, Any]:
    """Compares the predictions with the lab's medians, and the choice with the best measured."""
    predicted = {row["name"]: row["iteration_s"] for row in kept["plan"]["candidates"]}
    errors, times, spreads = {}, {}, {}
    for row in kept["lab"]:
        name, median = row["algorithm"], statistics.median(row["runs_s"])
        times[name] = median
        spreads[name] = max(row["runs_s"]) - min(row["runs_s"])
        if name in predicted and spreads[name] <= MOST_SPREAD * median:
            errors[name] = predicted[name] / median - 1
    choice = kept["plan"]["choice"]["name"]
    best = min(times, key=lambda name: times[name])
    difference = times[choice] - times[best]
    equal = difference <= max(spreads[choice], spreads[best])
    regret = 1.0 if equal else times[choice] / times[best]
    return {"errors": errors, "choice": choice, "best": best, "regret": regret,
            "regret_of_medians": times[choice] / times[best]}  # fmt: skip


def show(kept: list[tuple[Case, dict[str, Any]]]) -> None:
    errors: list[float] = []
    print(f"{'case':34} {'choice':28} {'best':10} {'regret':>6}  error of each prediction, %")
    for case, result in kept:
        verdict = judge(result)
        errors += [abs(error) for error in verdict["errors"].values()]
        each = ", ".join(f"{name} {error:+.1%}" for name, error in verdict["errors"].items())
        print(f"{case.name():34} {verdict['choice']:28} {verdict['best']:10} "
              f"{verdict['regret']:6.2f}  {each}")  # fmt: skip
    if errors:
        print(f"error of {len(errors)} predictions: median {statistics.median(errors):.1%}, "
              f"worst {max(errors):.1%}")  # fmt: skip


def page(kept: list[tuple[Case, dict[str, Any]]]) -> str:
    """Returns the same as a page of the documents."""
    lines = [
        "# Plans beside measurements",
        "",
        "`papers/bench/plan_check.py --out papers/results/plan` measures, resumes and writes this",
        "page. Computing is replayed; bytes, sums and gates are real. Rates are those of the",
        "whole model; a model that is made `k` times smaller runs at a rate `k` times lower.",
        "Every figure is the median of three runs. *Regret* is the time of the plan's choice over",
        "that of the best of the measured algorithms; 1.00 where they differ by less than their",
        "spread.",
        "",
        f"| case | choice | regret | {' | '.join(ALGORITHMS)} |",
        "|---" * (3 + len(ALGORITHMS)) + "|",
    ]
    errors = []
    for case, result in kept:
        verdict = judge(result)
        predicted = {row["name"] for row in result["plan"]["candidates"]}
        errors += [abs(error) for error in verdict["errors"].values()]
        cells = []
        for row in result["lab"][: len(ALGORITHMS)]:
            error = verdict["errors"].get(row["algorithm"])
            without = "spread" if row["algorithm"] in predicted else "not predicted"
            off = without if error is None else f"{error:+.0%}"
            cells.append(f"{statistics.median(row['runs_s']):.2f} s, {off}")
        lines.append(
            f"| {case.words()} | {verdict['choice']} | {verdict['regret']:.2f} | "
            f"{' | '.join(cells)} |"
        )
    lines += [
        "",
        "The second figure of a cell is the error of the prediction; *spread* marks a case whose",
        "own runs differ by more than 10 %, which does not count. Over all "
        f"{len(errors)}: median {statistics.median(errors):.1%}, worst {max(errors):.1%}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", default="sluice", help="the program")
    parser.add_argument("--out", type=Path, required=True, help="directory for the results")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--budget", type=float, default=120, help="minutes for new cases")
    parser.add_argument("--again", action="store_true", help="predict the kept cases again")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            path = args.out / f"{case.name()}.json"
            if path.exists():
                result = json.loads(path.read_text())
                if args.again:
                    compute = result["lab"][0]["compute_s"]
                    result["plan"] = plan_of(args.sluice, case, compute, Path(folder))
                    path.write_text(json.dumps(result, indent=1) + "\n")
            elif time.monotonic() - begin < 60 * args.budget:
                print(f"measuring {case.name()}", flush=True)
                result = measure(args.sluice, case, args.runs, Path(folder))
                path.write_text(json.dumps(result, indent=1) + "\n")
            else:
                continue
            kept.append((case, result))
    show(kept)
    if kept:
        (args.out / "check.md").write_text(page(kept))


if __name__ == "__main__":
    main()
