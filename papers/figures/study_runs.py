"""The final accuracies of a study, read from its kept runs. Pictures are drawn by a Python without
Torch, which cannot import sluice_papers.study.results; test_study.py compares the two."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "results/study/runs.json.gz"


def kept():
    return json.loads(gzip.decompress(KEPT.read_bytes()))


def accuracies(runs):
    """Returns the final accuracies of all seeds, by algorithm and number of workers, at the tuned
    rate: the one with the most seeds, since the others have one."""
    by_rate = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if not run["dgc"] and run["failed"] is None:
            cell = by_rate[run["algorithm"], run["workers"]]
            cell[run["rate_factor"]].append(run["accuracy"])
    found = defaultdict(dict)
    for (algorithm, workers), cell in by_rate.items():
        found[algorithm][workers] = max(cell.values(), key=len)
    return found
