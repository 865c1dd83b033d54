#!/usr/bin/env python3
"""Checks that a seed decides all that happens in a simulation: many processes simulate the same
job, with chance in every part of it, and must print the same trace hashes.

    tests/programs/same_trace_test.py PATH_OF_SLUICE [PROCESSES]

Every process fills the memory that it gets and gives back with another byte (MALLOC_PERTURB_), and
the system puts its memory elsewhere, so that a value nobody has set, or an order by address, shows.
"""

import collections
import json
import os
import subprocess
import sys

JOB = [
    *("--profile", "resnet110", "--hosts", "8", "--shrink", "64", "--seeds", "2"),
    *("--iterations", "1", "--warm-up", "1"),
    *("--algorithms", "p3,sluice", "--topology", "racks:4x2", "--loss", "0.001"),
    *("--latency-jitter", "0.5", "--random-cuts", "2"),
    *("--faults", "cut:3@2ms+3ms,rate:5=1gbit@4ms+10ms"),
]


def hashesOf(program, number):
    """Returns the trace hashes of one process, of all algorithms and seeds."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    variables["MALLOC_PERTURB_"] = str(1 + number % 255)
    ran = subprocess.run(
        [program, "simulate", *JOB, "--json", "-"],
        env=variables,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return tuple(one for row in json.loads(ran.stdout) for one in row["trace_hashes"])


def main(program, processes):
    seen = collections.Counter(hashesOf(program, number) for number in range(processes))
    for hashes, count in seen.most_common():
        print(f"{count} of {processes} processes: {' '.join(hashes)}")
    first = next(iter(seen))
    if len(set(first)) != len(first):
        print("two simulations of one process have the same hash")
    return 0 if len(seen) == 1 and len(set(first)) == len(first) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100))
