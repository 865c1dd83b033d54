"""Measures all-reduce on the backend `sluice` beside Gloo's, in a lab: the same ranks and tensors,
one call of each in turn.

    sudo PYTHONPATH=build/release/python python3 papers/bench/collective_vs_gloo.py \\
      --sluice build/release/bin/sluice --json out.json

Makes one lab for --rate, and for --unshaped one whose links are faster than any machine that
emulates them.
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

LAB = "collective-vs-gloo"
UNSHAPED = "100gbit"
UNITS = {"GB": 1_000_000_000, "MB": 1_000_000, "KB": 1_000, "B": 1}
Figures = dict[str, Any]


def bytes_of(text: str) -> int:
    unit = next(unit for unit in UNITS if text.endswith(unit))
    return int(text.removesuffix(unit)) * UNITS[unit]


def in_turn(sizes: list[str], methods: list[str], seconds: float, out: Path) -> None:
    """Runs one rank. The time of a call is that of the slowest rank, and all ranks make the same
    number of calls."""
    import torch
    import torch.distributed as dist

    import sluice  # noqa: F401 (makes the backend known)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD}
    for method in methods:
        os.environ["SLUICE_COLLECTIVE"] = method
        groups[method] = dist.new_group(backend="sluice")
    figures: list[Figures] = []
    for size in sizes:
        tensor = torch.ones(bytes_of(size) // 4)
        taken: dict[str, list[float]] = {name: [] for name in groups}

        def call(name: str, tensor: torch.Tensor = tensor) -> float:
            dist.barrier()
            begun = time.perf_counter()
            dist.all_reduce(tensor, group=groups[name])
            took = torch.tensor(time.perf_counter() - begun, dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            tensor.fill_(1)
            return float(took)

        warm = sum(call(name) for name in groups)
        calls = max(5, min(300, int(seconds / max(warm, 1e-4))))
        for number in range(calls):
            names = list(groups)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                taken[name].append(call(name))
        if dist.get_rank() == 0:
            print(f"{size}: {calls} calls of each", file=sys.stderr, flush=True)
        figures.append({"size": size, "bytes": bytes_of(size), "seconds": taken})
    if dist.get_rank() == 0:
        out.write_text(json.dumps(figures))
    dist.destroy_process_group()


def measure(args: argparse.Namespace, rate: str, sizes: list[str], out: Path) -> list[Figures]:
    """Measures in a lab of its own. Returns a line for each size and method, with Gloo's median
    beside it."""
    with lab(args.sluice, LAB, args.hosts, rate) as run:
        variables = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SLUICE_LOG": "warn",
            "SLUICE_ENCRYPT": "off",
        }
        words = [sys.executable, __file__, "--rank-writes", str(out), "--sizes", *sizes,
                 "--methods", *args.methods, "--seconds", str(args.seconds)]  # fmt: skip
        subprocess.run([*run, "--timeout", "590s", "--", *words], env=variables, check=True)
    lines = []
    for one in json.loads(out.read_text()):
        gloo = statistics.median(one["seconds"]["gloo"])
        for method, seconds in one["seconds"].items():
            low, median, high = statistics.quantiles(seconds, n=4)
            lines.append({
                "rate": rate, "size": one["size"], "bytes": one["bytes"], "method": method,
                "calls": len(seconds), "median_s": median, "quartiles_s": [low, high],
                "gloo_s": gloo, "times_gloo": gloo / median,
                "gbit_s": 16e-9 * (args.hosts - 1) / args.hosts * one["bytes"] / median,
            })  # fmt: skip
    return lines


def table(lines: list[Figures]) -> str:
    rows = [
        f"{'rate':>9}{'size':>8}  "
        f"{'method':18}{'calls':>6}{'median ms':>11}{'quartiles':>18}{'Gbit/s':>8}{'x Gloo':>8}"
    ]
    for line in lines:
        low, high = (1e3 * seconds for seconds in line["quartiles_s"])
        what = f"{line['rate']:>9}{line['size']:>8}  {line['method']:18}{line['calls']:6}"
        took = f"{1e3 * line['median_s']:11.2f}{f'{low:.2f} {high:.2f}':>18}"
        rows.append(f"{what}{took}{line['gbit_s']:8.2f}{line['times_gloo']:8.2f}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", help="the program, for the lab")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="1gbit", help="of each host's link")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=["4KB", "1MB", "4MB", "25MB", "100MB"],
        help="bytes of f32 to reduce",
    )
    parser.add_argument(
        "--unshaped", nargs="*", default=["4KB", "25MB"], help="sizes for the lab without limits"
    )
    parser.add_argument("--methods", nargs="+", default=["direct", "ring", "halving-doubling"])
    parser.add_argument("--seconds", type=float, default=15, help="spent on each size, about")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank-writes", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_writes is not None:
        in_turn(args.sizes, args.methods, args.seconds, args.rank_writes)
        return
    if args.sluice is None:
        parser.error("--sluice is needed: build/release/bin/sluice")
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(args, args.rate, args.sizes, Path(folder) / "shaped.json")
        if args.unshaped:
            lines += measure(args, UNSHAPED, args.unshaped, Path(folder) / "unshaped.json")
    if args.json is not None:
        args.json.write_text(json.dumps(lines, indent=1) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
