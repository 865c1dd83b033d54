"""Measures what it costs to be able to lose members while none is lost: iterations and bytes of
'sluice bench replay' with SLUICE_MEMBERS over those without, in pairs.

    python3 papers/bench/members_cost.py --sluice build/release/bin/sluice \\
        --pairs 5 --json cost.json

Computing is replayed; bytes, sums and gates are real. The lab of a replay gets one etcd server, on
its first host: members ask it at the start, and nothing goes there afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from one_etcd import OneEtcd

REPLAY = ["bench", "replay", "--lab", "--profile", "resnet50", "--credit", "100000",
          "--algorithms", "sluice", "--update", "mean-gradient", "--runs", "1"]  # fmt: skip
LIMIT_SECONDS = 600


def namespaces() -> set[str]:
    return {path.name for path in Path("/run/netns").glob("*")}


def first_host(new: set[str]) -> str | None:
    """Returns the namespace of host 0 of the lab that has these namespaces."""
    return next((name for name in new if name.endswith("-h0")), None)


def address_in(namespace: str) -> str | None:
    shown = subprocess.run(
        ["ip", "-json", "-4", "-n", namespace, "address"], capture_output=True, text=True
    )
    if shown.returncode != 0 or not shown.stdout.strip():
        return None
    for link in json.loads(shown.stdout):
        for address in link.get("addr_info", []):
            if address.get("scope") == "global":
                return str(address["local"])
    return None


def replay(sluice: str, first: str, with_members: bool, iterations: int) -> dict[str, Any]:
    """Returns the figures of one replay. `first` is the address of a lab's first host."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "replay.json")
        environment = dict(os.environ, SLUICE_JOB_KEY=secrets.token_hex(32))
        if with_members:
            environment |= {"SLUICE_MEMBERS": f"etcd://{first}", "SLUICE_JOB": "cost"}
        before = namespaces()
        command = [sluice, *REPLAY, "--iterations", str(iterations), "--json", str(out)]
        etcd = None
        with Path(folder, "log").open("w+") as log:
            job = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            end = time.monotonic() + LIMIT_SECONDS
            while job.poll() is None and time.monotonic() < end:
                if etcd is None and with_members:
                    host = first_host(namespaces() - before)
                    if host is not None and address_in(host) == first:
                        etcd = OneEtcd(folder, first, (2379, 2380), ["ip", "netns", "exec", host])
                time.sleep(0.01)
            if etcd is not None:
                etcd.stop()
            if job.poll() != 0:
                job.kill()
                log.seek(0)
                sys.exit(f"the replay has failed\n{log.read()[-2000:]}")
        found = json.loads(out.read_text())
    return dict(found[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", default="build/release/bin/sluice", help="the program")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--first-host", default="10.77.0.1", help="its address in a new lab")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run this as root: etcd is started in the network of a lab's host")
    pairs = []
    for number in range(arguments.pairs):
        pair = {}
        for with_members in (False, True) if number % 2 == 0 else (True, False):
            name = "with" if with_members else "without"
            pair[name] = replay(
                arguments.sluice, arguments.first_host, with_members, arguments.iterations
            )
            print(f"pair {number + 1}, {name} members: {pair[name]}", file=sys.stderr)
        pairs.append(pair)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(pairs, indent=2) + "\n")
    for key in ("iteration_s", "payload_bytes", "cpu_s_per_iteration"):
        ratios = [p["with"][key] / p["without"][key] for p in pairs if p["without"].get(key)]
        if ratios:
            median = statistics.median(ratios)
            print(f"{key}: {median:.4f} ({min(ratios):.4f} to {max(ratios):.4f})")


if __name__ == "__main__":
    main()
