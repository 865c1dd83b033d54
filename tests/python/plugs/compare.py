#!/usr/bin/env python3
"""Compares the trainings of a framework on sluice with the same trainings on Gloo.

  compare.py NAME FOLDER     FOLDER has the results of NAME_job.py gloo and NAME_job.py sluice

Prints one line for each check, and fails if one is not met. Losses and parameters must be the same
to the last digit, on both ranks. The bytes that were sent show that sluice carried the job: about
the size of the model for every step, since each of two ranks sends half of its gradients and half
of the means.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RANKS = 2
LEAST, MOST = 0.9, 1.6  # bytes sent, in sizes of the model for each step
LBFGS = 3  # passes of its step


def read(folder: Path, how: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{how}.{rank}.json").read_text()) for rank in range(RANKS)]


def compare(gloo: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Returns each check with the reason why it is not met, or nothing."""
    found = []
    names = [name for name in ours[0] if name != "checks"]
    for name in names:
        # "resumed, gates" is compared with "resumed" if Gloo has only one way.
        other = name if name in gloo[0] else name.rpartition(", ")[0]
        why = ""
        for rank in range(RANKS):
            theirs, mine = gloo[rank][other], ours[rank][name]
            for what in ("losses", "parameters", "steps"):
                if theirs[what] != mine[what]:
                    why = why or f"{what} of rank {rank} differ"
        losses, steps = len(ours[0][name]["losses"]), ours[0][name]["steps"]
        found.append((f"{name}: {losses} losses and all parameters are Gloo's", why))
        sent = 1e6 * ours[0][name]["sent_mb"] / ours[0][name]["bytes"] / steps
        most = LBFGS * MOST if "LBFGS" in name else MOST
        is_met = LEAST <= sent <= most
        text = f"{name}: sent {sent:.2f} models in each of {steps} steps"
        found.append((text, "" if is_met else f"not {LEAST} to {most}"))
    for rank, one in enumerate(ours):
        found += [(f"rank {rank}: {name}", why) for name, why in one.get("checks", {}).items()]
    return found


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    checks = compare(read(folder, "gloo"), read(folder, "sluice"))
    for check, why in checks:
        print(f"{name:10} {'ok  ' if not why else 'FAIL'} {check}{why and ': ' + why}")
    sys.exit(any(why for _, why in checks))


if __name__ == "__main__":
    main()
