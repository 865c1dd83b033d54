#!/usr/bin/env python3
"""No kept result beats the bound that nothing can beat.

  kept_results_test.py

Looks at every JSON file below papers/results. An `over_bound` below 1 means that the bound, or the
measurement, is wrong.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def over_bounds(value):
    """Yields every `over_bound` in a JSON value: a number, or a list of one per run."""
    if isinstance(value, dict):
        found = value.get("over_bound")
        yield from found if isinstance(found, list) else [found]
        for inner in value.values():
            yield from over_bounds(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from over_bounds(inner)


def faults_in(value):
    return [found for found in over_bounds(value) if isinstance(found, float) and found < 1]


def main():
    assert faults_in([{"rows": [{"over_bound": 0.97}, {"over_bound": None}]}]) == [0.97]
    files = sorted((ROOT / "papers/results").rglob("*.json"))
    count = 0
    faults = []
    for file in files:
        kept = json.loads(file.read_text())
        count += sum(isinstance(found, float) for found in over_bounds(kept))
        faults += [f"{file.relative_to(ROOT)}: over_bound {found:.3f}" for found in faults_in(kept)]
    print("\n".join(faults) or f"{count} results of {len(files)} files keep to the bound")
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
