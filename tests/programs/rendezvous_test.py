#!/usr/bin/env python3
"""Starts N real processes of `sluice rendezvous check` on loopback and prints the time that they
took to meet.

    tests/programs/rendezvous_test.py build/release/bin/sluice --ranks 64 --within 5

Exits 0 iff every process ended well, rank 0 saw all of them, and the time was kept.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument(
        "--within", type=float, default=5.0, help="seconds from the first start to the last end"
    )
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        key = os.path.join(folder, "job.key")
        subprocess.run(
            [args.sluice, "key", "new", "-o", key], check=True, stdout=subprocess.DEVNULL
        )
        common = dict(
            os.environ,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
            SLUICE_JOB_KEY_FILE=key,
            WORLD_SIZE=str(args.ranks),
            SLUICE_RENDEZVOUS_TIMEOUT="60s",
            SLUICE_LOG="warn",
        )
        begun = time.monotonic()
        ranks = [
            subprocess.Popen(
                [args.sluice, "rendezvous", "check", "--json"],
                env=dict(common, RANK=str(rank)),
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            )
            for rank in reversed(range(args.ranks))  # rank 0 last: the others must wait for it
        ]
        out, _ = ranks[-1].communicate(timeout=120)
        codes = [rank.wait(timeout=120) for rank in ranks]
        took = time.monotonic() - begun

    seen = json.loads(out)
    print(f"{args.ranks} processes met in {took:.2f} s (start and end of the processes included)")
    if any(codes):
        sys.exit(f"exit codes: {codes}")
    if len({row["pid"] for row in seen}) != args.ranks:
        sys.exit(f"rank 0 saw {len(seen)} ranks, not {args.ranks} different processes")
    if took > args.within:
        sys.exit(f"that is more than {args.within} s")


if __name__ == "__main__":
    main()
