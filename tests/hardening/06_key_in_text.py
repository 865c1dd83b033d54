#!/usr/bin/env python3
"""A job key must not stand in the text of an exception, which goes to every rank's log.
Job.option() must not return it, and it must not stay in the environment that other programs
inherit. The test needs one process and no network.

  06_key_in_text.py [--python BUILD/python]

Exit code 0: the exception occurred and does not contain the key, the option was refused, and the
child has no key.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

KEY = "ab" * 32
PROGRAM = """
import os, subprocess, sys, torch, sluice
from sluice._job import job
def sgd(ps): return torch.optim.SGD(ps, lr=0.1)
sluice.distribute(torch.nn.Linear(2, 2), sgd, {options})
inherited = subprocess.run([sys.executable, "-c", "import os; print(dict(os.environ))"], \
capture_output=True, text=True).stdout
print("inherited:", inherited, open("/proc/self/environ").read())
print("object:", vars(job.current()), job.current())
try:
    print("told:", job.current().option("job-key"))
except ValueError as error:
    print("refused:", error)
sluice.distribute(torch.nn.Linear(2, 2), sgd, algorithm="p3", {again})
"""


def run(module: str, options: str, again: str, **variables: str) -> bool:
    ended = subprocess.run([sys.executable, "-c", PROGRAM.format(options=options, again=again)],
                           capture_output=True, text=True, timeout=120,
                           env={"PYTHONPATH": module, "PATH": "/usr/bin:/bin",
                                "OMP_NUM_THREADS": "1", **variables})  # fmt: skip
    last = ended.stderr.strip().splitlines()[-1]
    print(last)
    occurred = "ValueError: the job has begun with other options" in last
    refused = "refused: the option 'job-key' is a secret and cannot be read" in ended.stdout
    leaked = KEY in ended.stderr + ended.stdout
    print(
        f"  exception {'raised' if occurred else 'MISSING'}, "
        f"option {'refused' if refused else 'TOLD'}, {'LEAKED' if leaked else 'not leaked'}"
    )
    return occurred and refused and not leaked


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default="build/release/python")
    module = os.path.abspath(parser.parse_args().python)
    results = [
        run(module, f'job_key="{KEY}"', f'job_key="{KEY}"'),
        run(module, f'job_key="{KEY}"', f'job_key="{KEY[::-1]}"'),
        run(module, "", f'job_key="{KEY}"', SLUICE_JOB_KEY=KEY),
    ]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
