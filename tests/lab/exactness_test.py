"""Tests exactness over a bad network: links change their speed and lose 1 % of the packets while a
job trains. Makes a lab.

  exactness_test.py PATH_OF_SLUICE tcp|ucx

Every rank must end with the parameters, bit for bit, that one process gets by summing in rank
order.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import Job, Lab, task, writeProfile
from root import skip_without_lab

PROGRAM, FABRIC = sys.argv[1], sys.argv[2]
RANKS = 3
STEPS = 12
RATES = ["60mbit", "20mbit", "100mbit", "40mbit"]


def main():
    with tempfile.TemporaryDirectory() as folder, Lab(PROGRAM, RANKS, "100mbit") as lab:
        profile = writeProfile(Path(folder) / "model.json", [7, 60_000, 1_000, 150_001, 40_000])
        wanted = task(profile, iterations=STEPS, computeSeconds=0.05)
        with Job(
            lab,
            wanted,
            SLUICE_FABRIC=FABRIC,
            SLUICE_SLICE_ELEMENTS="9000",
            SLUICE_SILENCE_LIMIT="20s",
        ) as job:
            job.waitUntilBegun()
            lab.call("drop", "--host", f"0-{RANKS - 1}", "--percent", "1")
            changes = 0
            end = time.monotonic() + 60
            while any(rank.poll() is None for rank in job.ranks) and time.monotonic() < end:
                lab.call(
                    "set", "--host", str(changes % RANKS), "--rate", RATES[changes % len(RATES)]
                )
                changes += 1
                time.sleep(0.15)
            job.expectExactEnd(STEPS, patience=1)
            if changes < 3:
                sys.exit(f"the run was over after {changes} changes of speed: it shows nothing")
    print(f"{FABRIC}: {STEPS} exact steps on {RANKS} ranks, 1 % loss, {changes} changes of speed")


if __name__ == "__main__":
    skip_without_lab()
    main()
