"""Trains a job that was told to merge everything, in a network that becomes slow during training.
Makes a lab.

  replan_test.py PATH_OF_SLUICE

Computing takes far longer than the job was told, but with fast links that hardly matters. With slow
links it pays to send gradients as soon as they are ready. Every rank must change to the same plan
after the same step, and end with the parameters, bit for bit, that one process gets.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import Job, Lab, task, writeProfile
from root import skip_without_lab

PROGRAM = sys.argv[1]
RANKS = 3
STEPS = 30
CHANGE = re.compile(r"plan ([0-9a-f]{8}) after step (\d+): (\d+) groups of tensors instead of 1,")


def changes(job, rank):
    """Returns [(plan, step, groups)], and the time of the first change."""
    found = [(when, CHANGE.search(line)) for when, line in job.said[rank]]
    return [match.groups() for _, match in found if match], min(
        (when for when, match in found if match), default=None
    )


def main():
    with tempfile.TemporaryDirectory() as folder, Lab(PROGRAM, RANKS, "1gbit") as lab:
        profile = writeProfile(Path(folder) / "model.json", [22_000] * 4)
        wanted = task(profile, iterations=STEPS, computeSeconds=0.2)
        with Job(
            lab,
            wanted,
            SLUICE_ALGORITHM="mgwfbp",
            SLUICE_REPLAN_STEPS="5",
            SLUICE_COMPUTE_TIME="1ms",
            SLUICE_REDUCTION_START="1ms",
            SLUICE_LOG="warn,session=debug,strategy=debug",
        ) as job:
            job.waitUntilBegun()
            time.sleep(1.5)  # at least one boundary passes without a change
            slowed = time.monotonic()
            lab.call("set", "--host", f"0-{RANKS - 1}", "--rate", "50mbit")
            job.expectExactEnd(STEPS, patience=60)
            first, when = changes(job, 0)
            if not first or when < slowed:
                sys.exit(
                    f"rank 0 changed its plan {first}, which was to be after the network became "
                    f"slow\n{job.allText()}"
                )
            for rank in range(RANKS):
                if changes(job, rank)[0] != first:
                    sys.exit(
                        f"rank {rank} changed its plan {changes(job, rank)[0]}, rank 0 {first}\n"
                        f"{job.allText()}"
                    )
    print(f"{STEPS} exact steps on {RANKS} ranks; (plan, after step, groups): {first}")


if __name__ == "__main__":
    skip_without_lab()
    main()
