#!/usr/bin/env python3
"""Makes faults in a live job of four hosts. The fabric must notice some of them soon, and others
must not disturb it.

  fabric_test.py SLUICE idle [--seconds 60]       CPU of a job that has nothing to do
  fabric_test.py SLUICE kill [--times 50]         kill -9 of a rank, until all others know
  fabric_test.py SLUICE cut [--times 20]          a silent cut between two hosts, until both know
  fabric_test.py SLUICE soak [--seconds 600]      saturated all-to-all with 1 s SIGSTOPs: no alarm
                                                    may come
  fabric_test.py SLUICE strangers [--seconds 20]  every kind of stranger at every port, during an
                                                    all-to-all

Makes a lab and prints one line of JSON; exit code 1 if a limit is missed, 77 if it cannot run.
"""

import argparse
import json
import os
import queue
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import lab_job
from root import skip_without_lab

HOSTS = 4
LIMITS = {"idle": 1.0, "kill": 1.0, "cut": 3.0}  # percent, seconds, seconds


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


class Lab(lab_job.Lab):
    def __init__(self, sluice, rate):
        super().__init__(sluice, HOSTS, rate)

    def pids(self, host):
        for row in json.loads(self.call("status", "--json")):
            if int(row["host"]) == host:
                return [int(pid) for pid in row["processes"].split()]
        return []


class Job:
    """Four ranks of `sluice bench fabric-rank`; `lines` is their output, as (rank, text)."""

    def __init__(self, lab, task, variables=None):
        environment = dict(os.environ, SLUICE_LOG="warn", **(variables or {}))
        self.lab = lab
        self.process = subprocess.Popen(
            [
                lab.sluice,
                "lab",
                "run",
                "--name",
                lab.name,
                "--",
                lab.sluice,
                "bench",
                "fabric-rank",
                json.dumps(task),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self.lines = queue.Queue()
        self.log = []
        threading.Thread(target=self._read, daemon=True).start()
        ready = set()
        while len(ready) < HOSTS:
            rank, text = self.next(60)
            if text.startswith("ready"):
                ready.add(rank)

    def _read(self):
        for line in self.process.stdout:
            match = re.match(r"\[(\d+)\] (.*)", line)
            if match:
                self.lines.put((int(match[1]), match[2]))
            self.log.append(line)
        self.lines.put((-1, "end"))

    def next(self, patience):
        rank, text = self.lines.get(timeout=patience)
        if rank == -1:
            raise RuntimeError("the job has ended:\n" + "".join(self.log[-20:]))
        return rank, text

    def losses(self, wanted, patience):
        """Returns {(observer, lost): nanoseconds} as soon as all wanted pairs are there."""
        seen = {}
        end = time.monotonic() + patience
        while not wanted <= seen.keys():
            left = end - time.monotonic()
            if left <= 0:
                raise RuntimeError(
                    f"not known after {patience} s: {sorted(wanted - seen.keys())}\n"
                    + "".join(self.log)
                )
            try:
                rank, text = self.next(left)
            except queue.Empty:
                continue
            match = re.match(r"lost (\d+) (\d+) ", text)
            if match:
                seen.setdefault((rank, int(match[1])), int(match[2]))
        return seen

    def finish(self, patience=60):
        self.process.wait(timeout=patience)
        while True:
            rank, text = self.lines.get(timeout=5)
            if rank == -1:
                return
            yield rank, text

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=20)


def reports(job, patience):
    found = {}
    lost = []
    for rank, text in job.finish(patience):
        if text.startswith("fabric-report "):
            found[rank] = json.loads(text.split(" ", 1)[1])
        elif text.startswith("lost "):
            lost.append(f"rank {rank}: {text}")
    return found, lost


def idle(lab, options):
    job = Job(lab, {"case": "idle", "seconds": options.seconds, "warm_up": 3})
    found, lost = reports(job, options.seconds + 60)
    percent = [100 * report["cpu_s"] / options.seconds for report in found.values()]
    worst = max(percent)
    return {
        "case": "idle",
        "seconds": options.seconds,
        "cpu_percent_worst": round(worst, 3),
        "cpu_percent": [round(p, 3) for p in percent],
        "ok": len(found) == HOSTS and not lost and worst <= LIMITS["idle"],
    }


def fault_task(i):
    # The case alternates between idle and busy links.
    return {
        "case": "idle" if i % 2 == 0 else "alltoall",
        "seconds": 60,
        "warm_up": 0.6,
        "outlives_loss": True,
    }


def kill(lab, options):
    worst = []
    for i in range(options.times):
        job = Job(lab, fault_task(i))
        victim = random.randrange(HOSTS)
        (pid,) = lab.pids(victim)
        begin = now_ns()
        os.kill(pid, signal.SIGKILL)
        wanted = {(rank, victim) for rank in range(HOSTS) if rank != victim}
        seen = job.losses(wanted, 10)
        worst.append(max(seen[pair] - begin for pair in wanted) * 1e-9)
        job.stop()
    return figures("kill", worst)


def cut(lab, options):
    worst = []
    for i in range(options.times):
        job = Job(lab, fault_task(i))
        a, b = random.sample(range(HOSTS), 2)
        begin = now_ns()
        lab.call("cut", "--between", f"{a},{b}")
        wanted = {(a, b), (b, a)}
        seen = job.losses(wanted, 20)
        worst.append(max(seen[pair] - begin for pair in wanted) * 1e-9)
        job.stop()
        lab.call("heal")
    return figures("cut", worst)


def figures(name, seconds):
    return {
        "case": name,
        "times": len(seconds),
        "p50_s": round(percentile(seconds, 0.5), 4),
        "p99_s": round(percentile(seconds, 0.99), 4),
        "ok": percentile(seconds, 0.99) <= LIMITS[name],
    }


def soak(lab, options):
    job = Job(lab, {"case": "alltoall", "seconds": options.seconds})
    end = time.monotonic() + options.seconds - 4
    stops = 0
    while time.monotonic() < end:
        (pid,) = lab.pids(random.randrange(HOSTS))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        os.kill(pid, signal.SIGCONT)
        stops += 1
        time.sleep(random.uniform(1, 3))
    found, lost = reports(job, 60)
    return {
        "case": "soak",
        "seconds": options.seconds,
        "stops": stops,
        "alarms": len(lost),
        "first": lost[:1],
        "received_gbit": round(sum(r["received_gbit"] for r in found.values()), 2),
        "ok": len(found) == HOSTS and not lost,
    }


# ---- Strangers ----
# They sit on a host of the lab, so that they reach every port as a real peer does.

KINDS = [
    "no key",
    "wrong key",
    "garbage",
    "4 GiB length",
    "replayed handshake",
    "half-open",
    "silent",
    "1000 at once",
]


def in_host(lab, host, task, *arguments):
    """Runs a function in the network of a host, in a process of its own, and returns its result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            lab.enter(host)
            with os.fdopen(write, "w") as answer:
                json.dump(task(*arguments), answer)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    if os.waitpid(pid, 0)[1] != 0 or not text:
        raise RuntimeError(f"{task.__name__} failed on host {host}")
    return json.loads(text)


def listening_ports():
    ports = set()
    for name in ["tcp", "tcp6"]:
        with open(f"/proc/thread-self/net/{name}") as table:
            rows = [line.split() for line in table][1:]
        ports.update(int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A")
    return sorted(ports)


def record_handshakes(seconds):
    """Returns the first bytes of every connection here, as hexadecimal digits."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniffer.settimeout(0.1)
    flows = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            frame = sniffer.recv(65600)
        except TimeoutError:
            continue
        if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        tcp = 14 + 4 * (frame[14] & 15)
        length = 14 + int.from_bytes(frame[16:18], "big")
        payload = frame[tcp + 4 * (frame[tcp + 12] >> 4) : length]
        flow = (frame[26:34], frame[tcp : tcp + 4])
        if payload and len(flows.setdefault(flow, b"")) < 2000:
            flows[flow] += payload
    return [payload[:2000].hex() for payload in flows.values() if len(payload) >= 16]


def visit(address, said, patience):
    """Connects, sends `said`, and listens until the other end hangs up or patience ends. Returns
    the number of bytes heard, or -1."""
    try:
        with socket.create_connection(address, timeout=patience) as visitor:
            visitor.settimeout(patience)
            heard = 0
            if said:
                visitor.sendall(said)
            while True:
                part = visitor.recv(65536)
                if not part:
                    return heard
                heard += len(part)
    except OSError:
        return -1


def visit_without_key(address, patience):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, timeout=patience) as visitor,
            context.wrap_socket(visitor) as inside,
        ):
            return 1 if inside.version() else 0  # TLS has let the stranger in
    except OSError:
        return 0


def attack(addresses, seconds, other_key, replayed):
    """Visits every address as every kind of stranger until time is up. Returns how often each kind
    came."""
    other_key = [bytes.fromhex(each) for each in other_key]
    replayed = [bytes.fromhex(each) for each in replayed]
    came = dict.fromkeys(KINDS, 0)
    let_in = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for address in map(tuple, addresses):
            let_in += visit_without_key(address, 0.5)
            came["no key"] += 1
            for kind, said in [
                ("wrong key", random.choice(other_key)),
                ("garbage", random.randbytes(4096)),
                ("4 GiB length", b"\x16\x03\x01\xff\xff" + b"\xff" * 4096),
                ("replayed handshake", random.choice(replayed)),
                ("half-open", random.choice(replayed)[:10]),
                ("silent", b""),
            ]:
                visit(address, said, 0.3)
                came[kind] += 1
            crowd = []
            for i in range(1000):
                visitor = socket.socket()
                visitor.setblocking(False)
                visitor.connect_ex(address)
                crowd.append(visitor)
            time.sleep(0.2)
            for visitor in crowd:
                try:
                    visitor.send(
                        random.choice([b"", random.randbytes(100), random.choice(replayed)])
                    )
                except OSError:
                    pass
            time.sleep(0.2)
            for visitor in crowd:
                visitor.close()
            came["1000 at once"] += 1
    return {"came": came, "let_in": let_in}


def strangers(lab, options):
    result = {"case": "strangers", "ok": True}
    for encrypt in ["on", "off"]:
        variables = {"SLUICE_ENCRYPT": encrypt}
        task = {"case": "alltoall", "seconds": options.seconds, "warm_up": 4}
        other_key = record_job(lab, dict(task, seconds=1, warm_up=1), variables)[0]
        replayed, job = record_job(lab, task, variables, keep=True)
        addresses = [
            (f"10.77.0.{host + 1}", port)
            for host in range(HOSTS)
            for port in in_host(lab, host, listening_ports)
        ]
        attacked = in_host(lab, 3, attack, addresses, options.seconds - 2, other_key, replayed)
        found, lost = reports(job, options.seconds + 60)
        # A rank has two lanes (bulk, control) to and from each of the three others; further
        # connections are uninvited.
        extra = sum(report["connections"] - 4 * (HOSTS - 1) for report in found.values())
        turned_away = sum(report["strangers"] for report in found.values())
        result[f"encrypt_{encrypt}"] = {
            "ports": len(addresses),
            "came": attacked["came"],
            "turned_away": turned_away,
            "let_in": extra + attacked["let_in"],
            "alarms": len(lost),
            "received_gbit": round(sum(r["received_gbit"] for r in found.values()), 2),
        }
        result["ok"] = (
            result["ok"]
            and len(found) == HOSTS
            and not lost
            and extra == 0
            and attacked["let_in"] == 0
            and turned_away > 0
        )
    return result


def record_job(lab, task, variables, keep=False):
    recorded = []
    listener = threading.Thread(
        target=lambda: recorded.extend(in_host(lab, 1, record_handshakes, 3))
    )
    listener.start()
    time.sleep(0.3)
    job = Job(lab, task, variables)
    listener.join()
    if not recorded:
        raise RuntimeError("no handshake was recorded")
    if keep:
        return recorded, job
    for _ in job.finish(60):
        pass
    return recorded, None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice")
    parser.add_argument("case", choices=["idle", "kill", "cut", "soak", "strangers"])
    parser.add_argument("--times", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", default="1gbit", help="of each host's link")
    options = parser.parse_args()
    options.sluice = os.path.abspath(options.sluice)
    options.times = options.times or {"kill": 50, "cut": 20}.get(options.case)
    options.seconds = options.seconds or {"idle": 60, "soak": 600, "strangers": 20}.get(
        options.case
    )
    skip_without_lab()
    with Lab(options.sluice, options.rate) as lab:
        result = globals()[options.case](lab, options)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
