#!/usr/bin/env python3
"""Simulates training at several rates of the links, for papers/results/bandwidth.json.

  papers/figures/simulate_bandwidth.py SLUICE     takes seconds; then papers/figures/draw_figures.py

ResNet-50 on four hosts, with the same computing at every rate: 613 ms for an iteration, which is as
long as the gradients travel at 2 Gbit/s.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RATES = (250, 500, 1000, 2000, 4000, 8000)  # Mbit/s
BALANCED = 2000  # the rate at which wire and compute are equal
ALGORITHMS = ("allreduce", "mgwfbp", "sluice")
KEPT = ("algorithm", "workers", "ratio", "iteration_s", "bound_s", "over_bound", "compute_s")


def main():
    rows = []
    for rate in RATES:
        flags = f"--hosts 4 --rate {rate}mbit --ratio {BALANCED / rate} --seeds 3 --iterations 2"
        flags += f" --warm-up 1 --algorithms {','.join(ALGORITHMS)} --json -"
        command = ["simulate", *flags.split()]
        said = subprocess.run([sys.argv[1], *command], check=True, capture_output=True, text=True)
        for row in json.loads(said.stdout):
            rows.append({"rate_mbit": rate, **{key: row[key] for key in KEPT}, "simulated": True})
    path = ROOT / "papers/results/bandwidth.json"
    path.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} rows in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
