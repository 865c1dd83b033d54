"""Ends small jobs in twenty ways, and counts in how many the files of the flight recorders name the
rank that was lost or late, and the layer that the others waited for.

    PYTHONPATH=build/release/python python3 tests/python/flight_endings.py build/release/bin/sluice
    PYTHONPATH=build/release/python python3 tests/python/flight_endings.py SLUICE slow mean

 1. kill-0          rank 0 is killed (SIGKILL) in the middle of training
 2. kill-1          rank 1 is killed
 3. kill-2          the last rank is killed
 4. kill-two        ranks 1 and 2 are killed at once
 5. kill-mapped     rank 1 is killed, with flight-dir: its own file is there, too
 6. kill-server     rank 0 is killed, which alone keeps the sums (servers=1)
 7. kill-allreduce  rank 1 is killed in a job that all-reduces
 8. term            rank 1 gets SIGTERM
 9. segv            rank 1 gets SIGSEGV
10. abort-signal    rank 1 gets SIGABRT from outside
11. abort           rank 1 calls abort()
12. os-exit         rank 1 ends by os._exit(3)
13. exception       rank 1 raises an exception
14. sys-exit        rank 1 ends by sys.exit(1)
15. ctrl-c          rank 1 gets SIGINT
16. stop            rank 1 is stopped (SIGSTOP)
17. early           rank 1 ends its training in good order, while the others train on
18. slow            rank 1 sleeps for longer than wait-timeout
19. mean            rank 1 is in sluice.mean() alone
20. silent-link     the link of rank 1 is cut, without a word; needs root

Each way is a job of three ranks and takes some seconds, so this is not among the tests. A way
counts if the fault that `sluice trace flight --json` finds has the right rank and a layer of the
model. The files are read twice: all of them, and without that of the rank to blame, as if its host
were gone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ranks import environment, free_port

TRAINING = """
import ctypes, faulthandler, os, signal, sys, time
import torch, sluice
rank, way = int(os.environ["RANK"]), os.environ["WAY"]
layers = [torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 64)]
model, optimizer = sluice.distribute(torch.nn.Sequential(*layers),
                                     lambda ps: torch.optim.SGD(ps, lr=0.01))
for step in range(1000000):
    if rank == 1 and step == 20:
        if way == "abort": os.abort()
        if way == "os-exit": os._exit(3)
        if way == "exception": raise KeyError("no such batch")
        if way == "sys-exit": sys.exit(1)
        if way == "early": break
        if way == "slow": time.sleep(60)
        if way == "mean": sluice.mean(1.0)
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    if step == 10:
        print("trains", flush=True)
    time.sleep(0.005)
"""
LAYERS = {"0.weight", "0.bias", "2.weight", "2.bias"}


@dataclasses.dataclass(frozen=True)
class Way:
    blamed: tuple[int, ...] = (1,)
    sent: signal.Signals | None = None  # to the blamed ranks, while the job trains
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    is_mapped: bool = False


KILL = signal.SIGKILL
WAYS = {
    "kill-0": Way((0,), KILL),
    "kill-1": Way((1,), KILL),
    "kill-2": Way((2,), KILL),
    "kill-two": Way((1, 2), KILL),
    "kill-mapped": Way((1,), KILL, is_mapped=True),
    "kill-server": Way((0,), KILL, {"SLUICE_SERVERS": "1"}),
    "kill-allreduce": Way((1,), KILL, {"SLUICE_ALGORITHM": "allreduce"}),
    "term": Way(sent=signal.SIGTERM),
    "segv": Way(sent=signal.SIGSEGV),
    "abort-signal": Way(sent=signal.SIGABRT),
    "abort": Way(),
    "os-exit": Way(),
    "exception": Way(),
    "sys-exit": Way(),
    "ctrl-c": Way(sent=signal.SIGINT),
    "stop": Way(sent=signal.SIGSTOP),
    "early": Way(),
    "slow": Way(options={"SLUICE_WAIT_TIMEOUT": "3s"}),
    "mean": Way(options={"SLUICE_WAIT_TIMEOUT": "3s"}),
    "silent-link": Way(),
}


class Network:
    """Three network namespaces around a bridge."""

    def __init__(self) -> None:
        self.stem = f"flight{os.getpid()}"
        for name in ("hub", "0", "1", "2"):
            self._run("netns", "add", self.stem + name)
            self._run("-n", self.stem + name, "link", "set", "lo", "up")
        hub = self.stem + "hub"
        self._run("-n", hub, "link", "add", "bridge", "type", "bridge")
        self._run("-n", hub, "link", "set", "bridge", "up")
        for rank in range(3):
            own = self.stem + str(rank)
            self._run("-n", hub, "link", "add", f"to{rank}", "type", "veth",
                      "peer", "name", "eth0", "netns", own)  # fmt: skip
            self._run("-n", hub, "link", "set", f"to{rank}", "master", "bridge", "up")
            self._run("-n", own, "address", "add", f"10.99.0.{rank + 1}/24", "dev", "eth0")
            self._run("-n", own, "link", "set", "eth0", "up")

    @staticmethod
    def _run(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def words(self, rank: int) -> list[str]:
        return ["ip", "netns", "exec", self.stem + str(rank)]

    def cut(self, rank: int) -> None:
        self._run("-n", self.stem + "hub", "link", "set", f"to{rank}", "nomaster")

    def remove(self) -> None:
        for name in ("0", "1", "2", "hub"):
            subprocess.run(["ip", "netns", "delete", self.stem + name], check=False)


@contextlib.contextmanager
def network(
    name: str, sluice: str, folder: Path
) -> Iterator[tuple[Network | None, dict[str, str]]]:
    if name != "silent-link":
        yield None, {}
        return
    key = folder / "key"
    subprocess.run([sluice, "key", "new", "-o", str(key)], check=True, stdout=subprocess.DEVNULL)
    net = Network()
    try:
        yield net, {"MASTER_ADDR": "10.99.0.1", "SLUICE_JOB_KEY_FILE": str(key)}
    finally:
        net.remove()


def end_a_job(name: str, way: Way, sluice: str, folder: Path) -> None:
    """Runs a job until all of its ranks have ended. The files are in the folder then."""
    port = free_port()
    with network(name, sluice, folder) as (net, variables):
        variables |= {"SLUICE_SILENCE_LIMIT": "1900ms", "TMPDIR": str(folder), "WAY": name}
        if way.is_mapped:
            variables["SLUICE_FLIGHT_DIR"] = str(folder)
        ranks = []
        for rank in range(3):
            command = [*(net.words(rank) if net else []), sys.executable, "-c", TRAINING]
            own = environment(rank, 3, port, **variables, **way.options)
            with (folder / f"log-{rank}").open("w") as log:
                ranks.append(
                    subprocess.Popen(
                        command, stdout=subprocess.PIPE, stderr=log, text=True, env=own
                    )
                )
        try:
            for process in ranks:
                assert process.stdout is not None
                process.stdout.readline()
            time.sleep(0.2)
            for blamed in way.blamed:
                if way.sent is not None:
                    ranks[blamed].send_signal(way.sent)
            if net is not None:
                net.cut(1)
            deadline = time.monotonic() + 30
            waited_for = [each for rank, each in enumerate(ranks) if rank not in way.blamed]
            for process in waited_for:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=max(0.1, deadline - time.monotonic()))
        finally:
            for process in ranks:
                process.kill()
                process.communicate()


def fault_in(sluice: str, files: list[Path]) -> dict[str, object]:
    if not files:
        return {"why": "no file is there"}
    words = [sluice, "trace", "flight", *map(str, files), "--json"]
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode != 0:
        return {"why": ran.stderr}
    return json.loads(ran.stdout)["fault"] or {"why": "no fault is found"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts the ways to end that the files tell of.")
    parser.add_argument("sluice", help="the program")
    parser.add_argument("ways", nargs="*", metavar="WAY", help="only these")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    options = parser.parse_args()
    named = named_without = 0
    chosen = options.ways or list(WAYS)
    for name in chosen:
        way = WAYS[name]
        folder = Path(tempfile.mkdtemp(prefix=f"flight-{name}-"))
        end_a_job(name, way, options.sluice, folder)
        files = sorted(folder.glob("sluice-flight-*"))
        is_good = []
        others = [f for f in files if int(f.name.split("-")[-2]) not in way.blamed]
        for read in (files, others):
            fault = fault_in(options.sluice, read)
            is_good.append(fault.get("rank") in way.blamed and fault.get("layer") in LAYERS)
            if read is files or not is_good[-1]:
                print(f"{'good' if is_good[-1] else 'BAD '} {name}: {len(read)} files: "
                      f"rank {fault.get('rank')} {fault.get('fate')}, layer {fault.get('layer')!r} "
                      f"of step {fault.get('step')}: {fault.get('why')}", flush=True)  # fmt: skip
        named += is_good[0]
        named_without += is_good[1]
        if options.keep or not all(is_good):
            print(f"     files: {folder}")
        else:
            shutil.rmtree(folder)
    print(f"{named} of {len(chosen)} ways: the files name the rank and its layer")
    print(f"{named_without} of {len(chosen)} ways without the files of the rank itself")
    return 0 if named == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
