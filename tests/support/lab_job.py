"""A lab and a job in it whose ranks are separate processes, for tests that disturb single ranks.

`sluice lab run` ends all ranks when one fails; here every rank goes on until it ends by itself.
"""

import ctypes
import json
import os
import queue
import re
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path


class Lab:
    """`etcd` servers are on hosts of their own, after the others."""

    def __init__(self, sluice, hosts, rate, etcd=0):
        self.sluice = sluice
        self.name = f"test-{os.getpid()}"
        self.hosts = hosts
        servers = ["--etcd", str(etcd)] if etcd > 0 else []
        self.call("up", "--hosts", str(hosts), "--rate", rate, *servers)
        try:
            rows = json.loads(self.call("status", "--json"))
        except Exception:
            self.call("down")
            raise
        self.addresses = {int(row["host"]): row["address"] for row in rows}
        self.networks = {int(row["host"]): Path("/run/netns", row["namespace"]) for row in rows}

    def call(self, command, *arguments):
        done = subprocess.run(
            [self.sluice, "lab", command, "--name", self.name, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            raise RuntimeError(f"sluice lab {command}: {done.stderr.strip()}")
        return done.stdout

    def enter(self, host):
        """Moves the calling process, which must not have threads, to the network of a host."""
        network = self.networks[host]
        namespaces = [network]
        if os.geteuid() != 0:  # /proc/KEEPER/root/run/netns/NAME
            namespaces.insert(0, Path(*network.parts[:3], "ns/user"))
        for path in namespaces:
            with path.open() as namespace:
                if ctypes.CDLL(None).setns(namespace.fileno(), 0) != 0:
                    sys.exit(f"cannot enter {path}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("down")


class Job:
    """One `sluice bench rank` on every host of a lab. `said[rank]` is its output, with the time of
    each line."""

    BEGUN = re.compile(r"session '.*' has begun")

    def __init__(self, lab, task, port=29500, **variables):
        environment = dict(
            os.environ,
            SLUICE_LOG="warn,session=debug",
            SLUICE_JOB_KEY=secrets.token_hex(32),
            SLUICE_TRUSTED_NETWORK="on",
            WORLD_SIZE=str(lab.hosts),
            LOCAL_RANK="0",
            MASTER_ADDR=lab.addresses[0],
            MASTER_PORT=str(port),
            SLUICE_IFACE="eth0",
            UCX_NET_DEVICES="eth0",
        )
        environment.update(variables)
        self.said = {rank: [] for rank in range(lab.hosts)}
        self.news = queue.Queue()
        self.ranks = []
        self.readers = []
        for rank in range(lab.hosts):
            process = subprocess.Popen(
                [
                    lab.sluice,
                    "lab",
                    "exec",
                    "--name",
                    lab.name,
                    "--host",
                    str(rank),
                    "--",
                    lab.sluice,
                    "bench",
                    "rank",
                    json.dumps(task),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment | {"RANK": str(rank)},
            )
            self.ranks.append(process)
            self.readers.append(
                threading.Thread(target=self._read, args=(rank, process.stdout), daemon=True)
            )
            self.readers[-1].start()

    def _read(self, rank, lines):
        for line in lines:
            self.said[rank].append((time.monotonic(), line.rstrip("\n")))
            self.news.put(None)
        self.news.put(None)

    def text(self, rank):
        return "\n".join(line for _, line in self.said[rank])

    def allText(self):
        return "\n".join(f"[{rank}] {line}" for rank in self.said for _, line in self.said[rank])

    def waitUntil(self, holds, patience, what):
        end = time.monotonic() + patience
        while not holds():
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{what}: not after {patience} s\n{self.allText()}")
            try:
                self.news.get(timeout=left)
            except queue.Empty:
                pass

    def waitUntilBegun(self, patience=60):
        def begun():
            for rank, process in enumerate(self.ranks):
                if process.poll() is not None and not self.BEGUN.search(self.text(rank)):
                    raise AssertionError(f"rank {rank} has ended before it began\n{self.allText()}")
            return all(self.BEGUN.search(self.text(rank)) for rank in self.said)

        self.waitUntil(begun, patience, "training has begun on all ranks")

    def waitForEnd(self, ranks, patience):
        """Returns {rank: exit code}."""
        end = time.monotonic() + patience
        codes = {}
        for rank in ranks:
            try:
                codes[rank] = self.ranks[rank].wait(timeout=max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} hangs\n{self.allText()}") from None
            self.readers[rank].join(timeout=10)
        return codes

    def expectExactEnd(self, steps, patience):
        """Checks that all ranks end well, and report this number of steps with the bits of one
        process."""
        codes = self.waitForEnd(range(len(self.ranks)), patience)
        if set(codes.values()) != {0}:
            sys.exit(f"exit codes {codes}\n{self.allText()}")
        exact = [rank for rank in codes if f'"exactSteps":{steps},' in self.text(rank)]
        if exact != list(codes):
            sys.exit(f"only ranks {exact} say that they are exact\n{self.allText()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.ranks:
            if process.poll() is None:
                process.kill()
            process.wait()
        for process, reader in zip(self.ranks, self.readers):
            reader.join(timeout=10)
            process.stdout.close()


def task(profile, **changes):
    return {
        "profile": str(profile),
        "computeSeconds": 0.2,
        "warmUp": 0,
        "iterations": 1000000,
        "update": "sgd:lr=0.01,momentum=0.9",
        "watchNetwork": False,
        "compareWithReference": True,
        "unevenness": {"stragglers": 0, "stragglerFactor": 1, "jitterPeriod": 0, "jitterFactor": 1},
    } | changes


def writeProfile(path, sizes):
    """Writes the profile of a model with these numbers of parameters, which computes equally long
    for each layer."""
    share = 1 / len(sizes)
    tensors = [
        {"name": f"layer{i}", "parameters": size, "forward": share / 3, "backward": share * 2 / 3}
        for i, size in enumerate(sizes)
    ]
    path.write_text(
        json.dumps(
            {
                "model": "test",
                "note": "for a test",
                "unit": "fraction of one forward+backward",
                "tensors": tensors,
            }
        )
    )
    return path
