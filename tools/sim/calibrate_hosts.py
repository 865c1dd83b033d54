#!/usr/bin/env python3
"""Fits the costs of a host's own work, which 'sluice simulate --cpu FILE' charges, to CPU times
that 'sluice bench replay' has measured with slices of two sizes at least.

    for slices in 6250 50000; do for encrypt in off on; do
      sluice bench replay --lab --algorithms sluice --slice-elements $slices --encrypt $encrypt \\
        --json replay-$slices-$encrypt.json
    done; done
    tools/sim/calibrate_hosts.py replay-*.json --machine "2 cores of .." --out costs.json

A rank's CPU time per iteration is

    messages * (message sent + received) + bytes * (byte sent + received)
      + bytes summed + bytes updated + a rest that does not depend on them, which is left out.

The numbers of messages and bytes come from 'sluice simulate' with the same slices, which runs the
same code. Two sizes of slices give the costs of a message and of a byte; sums and updates have
costs of their own that are not fitted. Measurements show only what both ends take together: halves
for messages, and SENT of the bytes' costs are the sender's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SUMMED_NS = 0.1  # a byte of one worker's part into the sum
UPDATED_NS = 0.3  # a byte of the optimizer's step
SENT = 0.45  # the sender's share of a byte's costs
KINDS = {"off": "plain", "on": "encrypted"}  # by --encrypt


@dataclasses.dataclass(frozen=True)
class Measured:
    """The work of one rank in one iteration, and the CPU time that it took."""

    messages: float  # sent; as many came
    bytes: float  # the same
    model_bytes: float
    workers: int
    cpu_seconds: float

    def left_seconds(self) -> float:
        """The CPU time without sums and updates."""
        other = SUMMED_NS * self.model_bytes + UPDATED_NS * self.model_bytes / self.workers
        return self.cpu_seconds - other * 1e-9


def fit(rows: list[Measured]) -> dict[str, float]:
    """Least squares; exact for two rows."""
    mm = sum(row.messages**2 for row in rows)
    mb = sum(row.messages * row.bytes for row in rows)
    bb = sum(row.bytes**2 for row in rows)
    mt = sum(row.messages * row.left_seconds() for row in rows)
    bt = sum(row.bytes * row.left_seconds() for row in rows)
    determinant = mm * bb - mb * mb
    if determinant <= 1e-6 * mm * bb:
        raise ValueError("give runs with slices of two sizes, as 6250 and 50000 elements")
    message = (mt * bb - bt * mb) / determinant
    byte = (bt * mm - mt * mb) / determinant
    if message < 0 or byte < 0:
        raise ValueError(
            f"the runs would give {message * 1e9:.0f} ns for a message and {byte * 1e9:.3f} ns for "
            "a byte, which cannot be: measure again on a quiet machine"
        )
    return {
        "message_sent_ns": round(message / 2 * 1e9, 1),
        "message_received_ns": round(message / 2 * 1e9, 1),
        "byte_sent_ns": round(byte * SENT * 1e9, 4),
        "byte_received_ns": round(byte * (1 - SENT) * 1e9, 4),
        "byte_summed_ns": SUMMED_NS,
        "byte_updated_ns": UPDATED_NS,
    }


def measured(sluice: str, row: dict[str, Any]) -> Measured:
    """Counts the messages and bytes of a row of 'sluice bench replay --json'."""
    if row["shrink"] != 1:
        raise ValueError("give runs without --shrink: it makes bytes cheap")
    command = [sluice, "simulate", "--profile", row["profile"], "--hosts", str(row["workers"]),
               "--algorithms", row["algorithm"], "--slice-elements", str(row["slice_elements"]),
               "--cpu", "free", "--seeds", "1", "--iterations", "1", "--warm-up", "0",
               "--json", "-"]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    counted = json.loads(done.stdout)[0]
    workers = row["workers"]
    sent = counted["bytes_on_wire"] / workers
    return Measured(
        messages=counted["messages"] / workers,
        bytes=sent,
        model_bytes=sent * workers / (2 * (workers - 1)),
        workers=workers,
        cpu_seconds=row["cpu_s_per_iteration"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="of 'sluice bench replay --json'")
    parser.add_argument("--machine", required=True, help="a description, which is kept")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sluice", default="sluice", help="the program")
    args = parser.parse_args()
    rows: dict[str, list[Measured]] = {kind: [] for kind in KINDS.values()}
    try:
        for path in args.files:
            for row in json.loads(path.read_text()):
                if row["encrypt"] not in KINDS:
                    raise ValueError("give runs with --encrypt off or on: auto may be either")
                rows[KINDS[row["encrypt"]]].append(measured(args.sluice, row))
        result: dict[str, Any] = {"machine": args.machine}
        result |= {kind: fit(of_kind) for kind, of_kind in rows.items() if of_kind}
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"calibrate_hosts: {error}")
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{args.out}: {json.dumps(result)}")


if __name__ == "__main__":
    main()
