#!/usr/bin/env python3
"""Measures speed and CPU time of two builds in turn, to show the cost of a change.

    python3 bench/before_after.py cpu --before ../old/build/release --after build/release
    python3 bench/before_after.py cpu --before ... --after ... --set-after SLUICE_ENCRYPT=integrity
    python3 bench/before_after.py pair --encrypt on --before ... --after ...
    python3 bench/before_after.py replay --before ... --after ... --json replay.json

    cpu     two ranks on loopback, each on a core of its own, as fast as they can: CPU seconds of
            both per GB of payload
    pair    `bench fabric pair --lab 2 --rate 1gbit`: Gbit/s
    replay  `bench replay --profile resnet50 --algorithms sluice --credit 100000 --lab --encrypt
            off`: seconds and CPU seconds of an iteration; computing is replayed, all else is real

Every pair runs one build right after the other, and the order changes from pair to pair. The figure
is the median of the pairs' ratios, after over before, with the least and the greatest. `pair` and
`replay` need root.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Figures = dict[str, float]
MARK = "received_gbit"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def cpu(sluice: Path, variables: dict[str, str], args: argparse.Namespace) -> Figures:
    task = json.dumps({"case": "pair", "seconds": args.seconds})
    port = free_port()
    launch = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "SLUICE_ENCRYPT": args.encrypt,
    }
    ranks = [
        subprocess.Popen(["taskset", "-c", str(rank), str(sluice), "bench", "fabric-rank", task],
                         stdout=subprocess.PIPE, text=True,
                         env={**os.environ, **launch, "RANK": str(rank), "LOCAL_RANK": str(rank),
                              **variables})
        for rank in range(2)
    ]  # fmt: skip
    texts = [rank.communicate(timeout=args.seconds + 60)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit(f"{sluice}: a rank failed: {texts}")
    lines = [line for text in texts for line in text.splitlines() if MARK in line]
    reports = [json.loads(line[line.index("{") :]) for line in lines]
    gigabytes = sum(report["received_gbit"] for report in reports) * args.seconds / 8
    return {
        "cpu_s_per_gb": sum(report["cpu_s"] for report in reports) / gigabytes,
        "gbit": 8 * gigabytes / args.seconds,
    }


def bench(sluice: Path, variables: dict[str, str], words: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [str(sluice), "bench", *words, "--json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env={**os.environ, **variables})  # fmt: skip
        rows: list[dict[str, object]] = json.loads(out.read_text())
        return rows[0]


def pair(sluice: Path, variables: dict[str, str], args: argparse.Namespace) -> Figures:
    words = f"fabric pair --lab 2 --rate 1gbit --samples 1 --encrypt {args.encrypt}".split()
    row = bench(sluice, variables, [*words, "--seconds", str(args.seconds)])
    return {"gbit": float(str(row["sluice_gbit"]))}


def replay(sluice: Path, variables: dict[str, str], args: argparse.Namespace) -> Figures:
    words = ["replay", "--profile", "resnet50", "--algorithms", "sluice", "--credit", "100000",
             "--lab", "--encrypt", args.encrypt, "--runs", "1", "--iterations", "5"]  # fmt: skip
    row = bench(sluice, variables, words)
    return {name: float(str(row[name])) for name in ("iteration_s", "cpu_s_per_iteration")}


MEASURES: dict[str, Callable[[Path, dict[str, str], argparse.Namespace], Figures]] = {
    "cpu": cpu,
    "pair": pair,
    "replay": replay,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=sorted(MEASURES))
    parser.add_argument("--before", type=Path, required=True, help="build directory")
    parser.add_argument("--after", type=Path, required=True, help="build directory")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of one sample of cpu and pair")
    parser.add_argument("--encrypt", default="off")
    parser.add_argument(
        "--set-after",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the later build only",
    )
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    args = parser.parse_args()
    builds = {
        "before": (args.before / "bin/sluice", {}),
        "after": (args.after / "bin/sluice", dict(v.split("=", 1) for v in args.set_after)),
    }
    samples: dict[str, list[Figures]] = {"before": [], "after": []}
    for number in range(args.pairs):
        order = list(builds) if number % 2 == 0 else list(reversed(builds))
        for name in order:
            samples[name].append(MEASURES[args.what](*builds[name], args))
            print(
                f"pair {number + 1} of {args.pairs}, {name}: {samples[name][-1]}",
                file=sys.stderr,
                flush=True,
            )
    rows = []
    for figure in samples["before"][0]:
        before, after = ([one[figure] for one in samples[name]] for name in builds)
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        rows.append({"figure": figure, "before": statistics.median(before),
                     "after": statistics.median(after), "ratio": statistics.median(ratios),
                     "least": min(ratios), "greatest": max(ratios)})  # fmt: skip
        print(f"{figure}: before {rows[-1]['before']:.4g}, after {rows[-1]['after']:.4g}; after "
              f"over before {rows[-1]['ratio']:.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f})")  # fmt: skip
    if args.json:
        args.json.write_text(
            json.dumps({"what": args.what, "rows": rows, "samples": samples}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
