#!/usr/bin/env python3
"""Plants faults in a lab of four hosts; `sluice doctor` must find each by its code and no other.

  doctor_test.py SLUICE            a few faults and one healthy run, in about 20 s
  doctor_test.py SLUICE --all      every fault, and 20 healthy runs (--healthy N)
  doctor_test.py SLUICE loss mtu   these faults only
  doctor_test.py SLUICE --busy     other programs work on this machine: hosts without enough CPU
                                     are no false finding, and the doctor may take longer

Exit code 77 if no lab can be made here.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import lab_job
from root import skip_without_lab

HOSTS = 4
VICTIM = 2
PORT = 29517
LIMIT = 20.0  # seconds, for four hosts
FINDINGS, OK = 5, 0  # exit codes
OF_BUSY_MACHINES = {"starved-cpu", "slow-rank"}


class Lab(lab_job.Lab):
    def __init__(self, sluice, hosts, rate):
        super().__init__(sluice, hosts, rate)
        self.rate = rate

    def share(self, part):
        """Returns a part of the links' rate as tc takes it."""
        number = int(self.rate.rstrip("gmbit")) * (1000 if "g" in self.rate else 1)
        return f"{number * part:g}mbit"


class Doctor:
    """One `sluice doctor` on every host of a lab. Each ends by itself."""

    def __init__(self, lab, *flags, variables=None, wrap=None, enter=None):
        """`variables`, `wrap` (words before the program) and `enter` (called in the new process)
        are for the victim only."""
        common = dict(
            os.environ,
            SLUICE_LOG="error",
            SLUICE_JOB_KEY=secrets.token_hex(32),
            SLUICE_IFACE="eth0",
            WORLD_SIZE=str(HOSTS),
            LOCAL_RANK="0",
            MASTER_ADDR=lab.addresses[0],
            MASTER_PORT=str(PORT),
        )
        self.begun = time.monotonic()
        self.ranks = []
        for rank in range(HOSTS):
            is_victim = rank == VICTIM
            everybody = (variables or {}).get("everybody", {})
            own = {k: v for k, v in (variables or {}).items() if k != "everybody"}
            words = [lab.sluice, "lab", "exec", "--name", lab.name, "--host", str(rank), "--"]
            words += wrap(rank) if wrap else []
            self.ranks.append(
                subprocess.Popen(
                    [*words, lab.sluice, "doctor", "--json", *flags],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=common | everybody | {"RANK": str(rank)} | (own if is_victim else {}),
                    preexec_fn=enter if is_victim else None,
                )
            )

    def end(self, wait_for):
        """Waits for some ranks, ends the others, and returns {rank: (code, report)}."""
        reports, told = {}, ""
        for rank in wait_for:
            try:
                out, err = self.ranks[rank].communicate(timeout=60)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} hangs") from None
            reports[rank] = (self.ranks[rank].returncode, json.loads(out) if out.strip() else None)
            told += f"[{rank}] {out[-2000:]} {err}\n"
        self.seconds = time.monotonic() - self.begun
        self.told = told
        for process in self.ranks:
            if process.poll() is None:
                process.kill()
            process.communicate()
        return reports


def inside(lab, host, *words):
    return lab.call("exec", "--host", str(host), "--", *words)


def nft(lab, host, chain, rule):
    inside(
        lab, host, "nft",
        f"table inet plant {{ chain c {{ type filter hook {chain} priority 0; {rule}; }}; }}",
    )  # fmt: skip


@contextmanager
def ruled(lab, chain, rule, host=VICTIM):
    nft(lab, host, chain, rule)
    try:
        yield {}
    finally:
        inside(lab, host, "nft", "delete table inet plant")


@contextmanager
def slow_direction(lab):
    queue = f"qdisc replace dev eth0 root tbf rate {lab.share(0.1)} burst 128kb limit 256kb"
    inside(lab, VICTIM, "tc", *queue.split())
    try:
        yield {}
    finally:
        lab.call("set", "--host", str(VICTIM), "--rate", lab.rate)


@contextmanager
def sysctl(lab, name, value):
    before = inside(lab, VICTIM, "sysctl", "-n", name).strip()
    inside(lab, VICTIM, "sysctl", "-q", "-w", f"{name}={value}")
    try:
        yield {}
    finally:
        inside(lab, VICTIM, "sysctl", "-q", "-w", f"{name}={before}")


@contextmanager
def overfilled_queue(lab):
    """The victim sends with reno, and the switch has a very long queue before host 0."""
    switch = ["ip", "netns", "exec", f"sluice-{lab.name}-switch"]
    queue = f"qdisc replace dev h0 root tbf rate {lab.share(0.5)} burst 128kb limit 32mb"
    with sysctl(lab, "net.ipv4.tcp_congestion_control", "reno"):
        subprocess.run([*switch, "tc", *queue.split()], check=True)
        try:
            yield {"variables": {"SLUICE_CONGESTION_CONTROL": "machine"}}
        finally:
            lab.call("set", "--host", "0", "--rate", lab.rate)


@contextmanager
def starved_cpu(lab):
    """The victim may use a tenth of a CPU."""
    root = Path("/sys/fs/cgroup/cpu" if Path("/sys/fs/cgroup/cpu").exists() else "/sys/fs/cgroup")
    group = root / f"sluice-test-{os.getpid()}"
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("10000 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("10000")

        def enter():
            (group / "cgroup.procs").write_text("0")

        yield {"enter": enter}
    finally:
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@contextmanager
def lying_resolver(lab, liar):
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(HOSTS):
            address = "127.0.1.1" if rank == liar else lab.addresses[0]
            Path(folder, str(rank)).write_text(f"127.0.0.1 localhost\n{address} head\n")

        def wrap(rank):
            script = f'mount --bind {folder}/{rank} /etc/hosts && exec "$@"'
            return ["unshare", "-m", "sh", "-c", script, "sh"]

        yield {"wrap": wrap, "variables": {"everybody": {"MASTER_ADDR": "head"}}}


@contextmanager
def wrong_interface(lab):
    inside(lab, VICTIM, "ip", "link", "add", "plant0", "type", "veth", "peer", "name", "plant1")
    try:
        inside(lab, VICTIM, "ip", "link", "set", "plant0", "up")
        inside(lab, VICTIM, "ip", "address", "add", "192.168.77.3/24", "dev", "plant0")
        yield {"variables": {"SLUICE_IFACE": "plant0"}}
    finally:
        inside(lab, VICTIM, "ip", "link", "delete", "plant0")


@contextmanager
def given(_lab, **what):
    yield what


SYN = "tcp flags & (syn|ack) == syn"
# name: (the codes that must be found, how the fault is made, values for --plant)
PLANTS = {
    "port": (["blocked-port"], lambda lab: ruled(lab, "input", f"{SYN} drop"), []),
    "rank0-port": (
        ["blocked-port"],
        lambda lab: ruled(lab, "output", f"tcp dport {PORT} drop"),
        [],
    ),
    "interface": (["wrong-interface"], wrong_interface, []),
    "no-interface": (
        ["wrong-interface"],
        lambda lab: given(lab, variables={"SLUICE_IFACE": "eth7"}),
        [],
    ),
    "key": (
        ["wrong-key"],
        lambda lab: given(lab, variables={"SLUICE_JOB_KEY": secrets.token_hex(32)}),
        [],
    ),
    "values": (
        ["other-version", "other-torch", "clock-off", "slow-rank"],
        lambda lab: given(lab),
        ["version=0.0.1@1", "torch=1.9@3", "clock=+90s@2", "compute=2.5@3"],
    ),
    "version": (["other-version"], lambda lab: given(lab), ["version=0.0.1@1"]),
    "torch": (["other-torch"], lambda lab: given(lab), ["torch=1.9@3"]),
    "clock": (["clock-off"], lambda lab: given(lab), ["clock=-90s@2"]),
    "compute": (["slow-rank"], lambda lab: given(lab), ["compute=2.5@3"]),
    "settings": (
        ["other-settings"],
        lambda lab: given(lab, variables={"SLUICE_PAYLOAD_CHECK": "off"}),
        [],
    ),
    "direction": (["slow-direction"], slow_direction, []),
    "loss": (
        ["packet-loss"],
        lambda lab: ruled(lab, "input", "numgen random mod 100 < 1 drop"),
        [],
    ),
    "mtu": (["mtu-hole"], lambda lab: ruled(lab, "input", "meta length > 1200 drop"), []),
    "mtu-pair": (
        ["mtu-hole"],
        lambda lab: ruled(lab, "input", f"ip saddr {lab.addresses[1]} meta length > 1200 drop"),
        [],
    ),
    "mtu-out": (["mtu-hole"], lambda lab: ruled(lab, "output", "meta length > 1200 drop"), []),
    "queue": (["overfilled-queue"], overfilled_queue, []),
    "cpu": (["starved-cpu"], starved_cpu, []),
    "resolver": (["resolver"], lambda lab: lying_resolver(lab, VICTIM), []),
    "rank0-resolver": (["resolver"], lambda lab: lying_resolver(lab, 0), []),
    "buffers": (
        ["small-buffers"],
        lambda lab: sysctl(lab, "net.ipv4.tcp_rmem", "4096 8192 16384"),
        [],
    ),
}
# The victim says why it cannot come.
NOT_MET = ("rank0-port", "no-interface", "key", "resolver", "mtu-out")
NEED_ROOT = ("queue", "cpu", "resolver", "rank0-resolver")
FEW = ("key", "values", "loss")


def check(name, wanted, doctor, speaker, is_busy):
    code, report = doctor.end([speaker])[speaker]
    found = [finding["code"] for finding in report["findings"]] if report else []
    words = f"{name:15} {doctor.seconds:5.1f} s  {', '.join(found) or 'nothing found'}"
    print(words, flush=True)
    true = set(wanted) | (OF_BUSY_MACHINES if is_busy else set())
    is_right = set(wanted) <= set(found) <= true and code == (FINDINGS if found else OK)
    limit = 3 * LIMIT if is_busy else LIMIT
    if not is_right:
        print(f"  wanted {wanted}, exit code {code}\n{doctor.told}", flush=True)
    if doctor.seconds > limit:
        print(f"  took longer than {limit} s", flush=True)
    return is_right and doctor.seconds <= limit


def run_plant(lab, name, is_busy):
    wanted, plant, plants = PLANTS[name]
    flags = [word for text in plants for word in ("--plant", text)]
    with plant(lab) as how:
        doctor = Doctor(lab, *flags, **how)
        return check(name, wanted, doctor, VICTIM if name in NOT_MET else 0, is_busy)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sluice")
    parser.add_argument("plants", nargs="*", help=", ".join(PLANTS))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--busy", action="store_true", help="other programs work here")
    parser.add_argument("--rate", default="100mbit", help="of the links, for the faults")
    parser.add_argument("--healthy", type=int, default=None, help="healthy runs")
    arguments = parser.parse_intermixed_args()
    skip_without_lab()
    names = arguments.plants or (PLANTS if arguments.all else FEW)
    healthy = arguments.healthy
    if healthy is None:
        healthy = 0 if arguments.plants else 20 if arguments.all else 1
    good = 0
    total = 0
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(arguments.sluice, HOSTS, arguments.rate))
        for name in names:
            if name in NEED_ROOT and os.geteuid() != 0:
                print(f"{name}: skipped, needs root")
                continue
            total += 1
            good += run_plant(lab, name, arguments.busy)
        for i in range(healthy):
            rate = ("100mbit", "1gbit", "20mbit")[i % 3]
            for host in range(HOSTS):
                lab.call("set", "--host", str(host), "--rate", rate)
            total += 1
            good += check(f"healthy {rate}", [], Doctor(lab), 0, arguments.busy)
    print(f"{good} of {total} as wanted")
    return 0 if good == total else 1


if __name__ == "__main__":
    sys.exit(main())
