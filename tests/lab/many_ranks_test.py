"""Trains a model of two million parameters with 32 ranks on links of 100 Mbit/s, exactly and with
bounded resources. Makes a lab.

  many_ranks_test.py PATH_OF_SLUICE [--ranks 32] [--steps 20] [--rate 100mbit]

Prints the largest use of threads, open files and memory, from /proc of every rank. Exit code 1 if a
limit is missed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import Job, Lab, task, writeProfile
from root import skip_without_lab

MODEL = [300_000, 9_408, 64, 700_000, 2_048, 500_000, 1_000, 487_480]  # two million
THREADS = 4
FILES_BESIDE_PEERS = 40  # files of the rank, of libraries, and of the rendezvous at rank 0
FILES_PER_PEER = 9  # three lanes and the pulse each way, and one at the rendezvous
CONSTANT_MIB = 48  # the program and its libraries, buffers of connections
TIMES_MODEL = 4  # two of these, gradients and parameters, are the user's own


def usage(pid):
    """Returns threads, open files and the largest resident memory so far in MiB; None if the
    process has ended."""
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return (
            int(fields["Threads"]),
            len(os.listdir(f"/proc/{pid}/fd")),
            int(fields["VmHWM"].split()[0]) / 1024,
        )
    except (FileNotFoundError, ProcessLookupError, KeyError):
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sluice")
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rate", default="100mbit")
    options = parser.parse_args()
    begin = time.monotonic()
    most = [0, 0, 0.0]
    with (
        tempfile.TemporaryDirectory() as folder,
        Lab(options.sluice, options.ranks, options.rate) as lab,
    ):
        profile = writeProfile(Path(folder) / "model.json", MODEL)
        wanted = task(profile, iterations=options.steps, computeSeconds=0.05, update="sgd:lr=0.01")
        with Job(lab, wanted, SLUICE_ENCRYPT="off", SLUICE_SILENCE_LIMIT="30s") as job:
            while any(rank.poll() is None for rank in job.ranks):
                for rank in job.ranks:
                    for i, value in enumerate(usage(rank.pid) or ()):
                        most[i] = max(most[i], value)
                if time.monotonic() - begin > 150:
                    sys.exit("not done after 150 s\n" + job.allText()[-4000:])
                time.sleep(0.5)
            codes = job.waitForEnd(range(options.ranks), 1)
            if set(codes.values()) != {0}:
                sys.exit(f"exit codes {codes}\n{job.allText()[-4000:]}")
            exact = sum(
                f'"exactSteps":{options.steps},' in job.text(rank) for rank in range(options.ranks)
            )
    threads, files, memory = most
    model = 4 * sum(MODEL) / 2**20
    limits = {
        "threads": THREADS,
        "files": FILES_BESIDE_PEERS + FILES_PER_PEER * (options.ranks - 1),
        "memory_mib": round(TIMES_MODEL * model + CONSTANT_MIB, 1),
    }
    used = {"threads": threads, "files": files, "memory_mib": round(memory, 1)}
    over = [name for name in used if used[name] > limits[name]]
    print(
        json.dumps(
            {
                "ranks": options.ranks,
                "steps": options.steps,
                "exact_ranks": exact,
                "used": used,
                "limits": limits,
                "seconds": round(time.monotonic() - begin, 1),
            }
        )
    )
    if over or exact != options.ranks:
        sys.exit(f"over the limit: {over}" if over else f"only {exact} ranks are exact")


if __name__ == "__main__":
    skip_without_lab()
    main()
