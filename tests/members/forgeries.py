"""A party that can write to etcd but does not hold the job key. It may disturb a job, but must not
enter it, and nobody may follow an epoch that no member has written.

These are kinds of faults for faults.py.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from job import CLIENT_PORT, MembersLab, Ranks
from sluice.processes import as_a_program

if TYPE_CHECKING:
    from faults import Trial

IGNORED = "it is ignored"  # in a warning of each member that has seen a forged value
KINDS = ("random", "changed", "moved epoch", "other job", "far epoch", "old again", "member")


def coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


class Stranger:
    """Reads and writes keys of etcd, from a host of the lab."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}:{CLIENT_PORT}"

    def ask(self, path: str, question: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(question).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            return dict(json.loads(answer.read()))

    def entries(self) -> list[tuple[bytes, bytes, int]]:
        """Returns all keys with their values and the revisions in which they came."""
        zero = coded(b"\0")
        found = self.ask("/v3/kv/range", {"key": zero, "range_end": zero}).get("kvs", [])
        decoded = [
            (base64.b64decode(e["key"]), base64.b64decode(e.get("value", ""))) for e in found
        ]
        return [(*both, int(e["create_revision"])) for both, e in zip(decoded, found, strict=True)]

    def put(self, key: bytes, value: bytes) -> None:
        self.ask("/v3/kv/put", {"key": coded(key), "value": coded(value)})

    def delete(self, key: bytes) -> None:
        self.ask("/v3/kv/deleterange", {"key": coded(key)})


class Forger:
    """Forges values of the newest job in the store."""

    def __init__(self, stranger: Stranger, luck: random.Random) -> None:
        self.stranger, self.luck = stranger, luck
        self.old: dict[bytes, bytes] = {}  # all that members have ever written
        self.forged: set[tuple[bytes, bytes]] = set()
        self.job = b""  # the prefix of its keys

    def write(self, key: bytes, value: bytes) -> None:
        if self.old.get(key) != value:
            self.forged.add((key, value))
        self.stranger.put(key, value)

    def forge(self, kind: str) -> bool:
        """Writes one forged value; False if there is nothing to make it from."""
        entries = [e for e in self.stranger.entries() if e[:2] not in self.forged]
        epochs = [entry for entry in entries if b"/epoch/" in entry[0]]
        if not self.job and epochs:
            self.job = max(epochs, key=lambda e: e[2])[0].split(b"epoch/")[0]
        for key, written, _ in entries:
            self.old.setdefault(key, written)
        mine = sorted(key for key in self.old if key.startswith(self.job))
        newest = max((key for key in mine if b"/epoch/" in key), default=None)
        if newest is None:
            return False
        place, number = newest.rsplit(b"/", 1)
        job, value = self.job, self.old[newest]
        members = [entry for entry in entries if entry[0].startswith(job + b"member/")]
        others = [entry for entry in epochs if not entry[0].startswith(job)]
        following = place + b"/%010d" % (int(number) + self.luck.choice((0, 1, 1, 1, 2)))
        if kind == "random":
            self.write(following, self.luck.randbytes(len(value)))
        elif kind == "changed":
            changed = bytearray(value)
            changed[self.luck.randrange(len(changed))] ^= 1 << self.luck.randrange(8)
            self.write(following, bytes(changed))
        elif kind == "moved epoch":
            self.write(place + b"/%010d" % (int(number) + 1), value)
        elif kind == "other job" and others:
            self.write(following, self.luck.choice(others)[1])
        elif kind == "far epoch":
            self.write(place + b"/4294967295", self.luck.choice((value, b"", b"x" * 9999)))
        elif kind == "old again":
            self.write(self.luck.choice(mine), self.old[self.luck.choice(mine)])
        elif kind == "member" and members:
            one, other = self.luck.choice(members), self.luck.choice(members)
            made_up = job + b"member/" + self.luck.randbytes(16).hex().encode()
            self.write(self.luck.choice((other[0], made_up)), one[1])
        else:
            return False
        return True


def start_forging(trial: Trial, seconds: float) -> int:
    """Starts a process that forges for so long. Its exit code is the number of forged values, at
    most 255."""
    lab, seed = trial.lab, trial.luck.random()
    address = lab.addresses[lab.leader().host]

    def work() -> None:
        lab.enter(lab.etcd_hosts[0])
        forger = Forger(Stranger(address), random.Random(seed))
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            count += forger.forge(forger.luck.choice(KINDS))
            time.sleep(forger.luck.uniform(0.0, 0.06))
        os._exit(min(255, count))

    pid = os.fork()
    if pid == 0:
        as_a_program(work)
    return pid


def forger(trial: Trial) -> None:
    """Somebody without the job key writes to etcd, while members are killed."""
    trial.wait_for_step(3)
    pid = start_forging(trial, seconds=2.5)
    try:
        time.sleep(trial.luck.uniform(0.5, 1.5))
        for victim in trial.luck.sample(range(trial.world), trial.luck.choice((1, 2))):
            trial.kill(victim)
            time.sleep(trial.luck.uniform(0.0, 0.5))
        _, status = os.waitpid(pid, 0)
        pid = 0
    finally:
        if pid > 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    forged = os.waitstatus_to_exitcode(status)
    trial.note_fault(f"{forged} forged values")
    trial.check(forged > 10, f"only {forged} values were forged")
    trial.judge()
    seen = sum(trial.ranks.logs[rank].text().count(IGNORED) for rank in trial.left)
    trial.check(seen > 0, "no member has seen a forged value")
    trial.notes.append(f"members have ignored {seen} forged values")


def rerun(trial: Trial) -> None:
    """The keys of this job are deleted, a job of the same name and key begins, and somebody writes
    the old records again. The later job goes on as if they were not there."""
    same = {"SLUICE_JOB": "rerun", "SLUICE_JOB_KEY": trial.job_key}
    trial.wait_for_step(3)
    trial.kill(trial.luck.randrange(trial.world))
    trial.judge()
    lab: MembersLab = trial.lab
    address, host = lab.addresses[lab.leader().host], lab.etcd_hosts[0]

    def read() -> list[list[str]]:
        found = Stranger(address).entries()
        return [[key.hex(), value.hex()] for key, value, _ in found if b"/rerun/" in key]

    old = lab.run_on(host, read) or []
    records = [(key, value) for key, value in old if "/epoch/" in bytes.fromhex(key).decode()]
    trial.check(len(records) == 2, f"the job has left {len(records)} epochs")
    lab.delete_everything()
    with Ranks(lab, trial.folder / "later", trial.world, trial.settings, **same) as later:
        later.wait_for_step(5, range(trial.world))

        def write() -> int:
            for key, value in old:
                Stranger(address).put(bytes.fromhex(key), bytes.fromhex(value))
            return len(old)

        trial.note_fault(f"{lab.run_on(host, write)} records of an earlier job written again")
        later.wait_for_end(range(trial.world), trial.patience(), "the later job")
        codes = [later.code(rank) for rank in range(trial.world)]
        said = later.logs[0].text().splitlines()[-1]
        trial.check(codes == [0] * trial.world, f"the later job has ended: {codes}, {said[:200]}")
        if not trial.problems:
            trial.problems += later.replay()["problems"]
    lab.delete_everything()  # the next job of this kind has the same name


def block(lab: MembersLab, host: int, addresses: list[str]) -> None:
    """Cuts a host off from these addresses, until unblock()."""
    rules = "add table ip stranger;"
    for way, side in (("input", "saddr"), ("output", "daddr")):
        rules += f"add chain ip stranger {way} {{ type filter hook {way} priority 0; }};"
        rules += f"add rule ip stranger {way} ip {side} {{ {', '.join(addresses)} }} drop;"
    done = lab.run_on(host, lambda: subprocess.run(["nft", rules]).returncode)
    assert done == 0, f"nft failed on host {host}"


def unblock(lab: MembersLab, host: int) -> None:
    lab.run_on(host, lambda: subprocess.run(["nft", "delete table ip stranger"]).returncode)


def deleted(trial: Trial) -> None:
    """Members are cut into two sides, and one side does not reach etcd either. Before it does
    again, somebody deletes all keys and their history, and etcd is started anew. At most one side
    goes on."""
    first = sorted(trial.luck.sample(range(trial.world), 2))
    second = [rank for rank in range(trial.world) if rank not in first]
    lab: MembersLab = trial.lab
    trial.wait_for_step(5)
    trial.note_fault(f"cut {first} from {second}, and {second} from etcd", is_loss=True)
    for rank in second:
        block(lab, rank, [lab.addresses[host] for host in lab.etcd_hosts])
    try:
        lab.cut_apart(first, second)
        at_cut = max(trial.ranks.last_step(rank) for rank in range(trial.world))
        trial.ranks.wait_until(
            lambda: all(trial.ranks.last_step(rank) > at_cut + 4 for rank in first),
            30,
            f"members {first} go on",
        )
        server = lab.leader()
        count = lab.delete_everything()
        revision = server.ask("/v3/maintenance/status", {})["header"]["revision"]
        compacted = server.ask("/v3/kv/compaction", {"revision": revision, "physical": True})
        trial.check(compacted is not None, "etcd has not forgotten its history")
        for each in lab.servers:  # and what it has sent already
            each.kill()
        for each in lab.servers:
            each.start()
        lab.leader()
        trial.note_fault(f"delete {count} keys and their history, start etcd anew")
    finally:
        for rank in second:
            unblock(lab, rank)
    end = time.monotonic() + 12
    while time.monotonic() < end and any(trial.ranks.code(rank) is None for rank in second):
        time.sleep(0.1)
    steps = {rank: trial.ranks.last_step(rank) for rank in range(trial.world)}
    went_on = [rank for rank in second if steps[rank] > at_cut + 2]
    trial.check(not went_on, f"both sides have gone on after step {at_cut}: steps {steps}")
