"""Jobs that go on without lost members, in a lab with etcd servers: for tests that disturb them.

The processes of rank.py are forked from this one, which has imported Torch and must not
have threads. Every rank writes to a file of its own, rankN.log, in the folder of its job.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import lab_job
from rank import main as be_a_rank
from replay import Record, parse_line, replay
from training import Settings
from sluice import _core
from sluice.processes import as_a_program, prepare_to_fork

ETCD = 3
CLIENT_PORT = 2379


def now() -> float:
    """Returns the time on the clock of the ranks' lines, in seconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) * 1e-9


class Server:
    """An etcd server of the lab, which can be killed and started again with its data."""

    def __init__(self, lab: MembersLab, host: int, pid: int) -> None:
        self.lab, self.host, self.pid = lab, host, pid
        self.is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None  # once it was started again
        process = Path(f"/proc/{pid}")
        self._command = process.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        self._log = process.joinpath("fd/2").readlink()
        assert f"--initial-cluster-token={lab.name}" in self._command, (
            f"process {pid} is no etcd server of this lab"
        )

    @property
    def is_alive(self) -> bool:
        return self.pid > 0

    def kill(self) -> None:
        """Ends it with kill -9."""
        pidfd = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], 10)
        os.close(pidfd)
        if self._process is not None:
            self._process.wait()
        self.pid, self.is_stopped = 0, False

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: self.lab.enter(self.host),
                start_new_session=True,
            )
        self.pid = self._process.pid

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_stopped = False

    def ask(self, path: str, question: dict[str, Any], patience: float = 1) -> Any:
        """Returns the answer of the server; None if there is none."""
        url = f"http://{self.lab.addresses[self.host]}:{CLIENT_PORT}{path}"

        def work() -> Any:
            request = urllib.request.Request(url, json.dumps(question).encode())
            with urllib.request.urlopen(request, timeout=patience) as answer:
                return json.loads(answer.read())

        return self.lab.run_on(self.host, work)


class MembersLab(lab_job.Lab):
    """Hosts for ranks, and three more with an etcd server each."""

    def __init__(self, sluice: str, hosts: int, rate: str) -> None:
        super().__init__(sluice, hosts, rate, etcd=ETCD)
        self.jobs = 0
        self.etcd_hosts = list(range(hosts, hosts + ETCD))
        addresses = [f"{self.addresses[host]}:{CLIENT_PORT}" for host in self.etcd_hosts]
        self.members = f"etcd://{','.join(addresses)}"
        rows = {int(row["host"]): row for row in json.loads(self.call("status", "--json"))}
        self.servers = [
            Server(self, host, int(rows[host]["processes"].split()[0])) for host in self.etcd_hosts
        ]

    def run_on(self, host: int, work: Callable[[], Any]) -> Any:
        """Returns what the function returns on a host; None if it fails."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.enter(host)
                with os.fdopen(write, "w") as answer:
                    json.dump(work(), answer)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        return json.loads(text) if text else None

    def leader(self, patience: float = 10) -> Server:
        """Returns the leader of the etcd servers."""
        end = now() + patience
        while now() < end:
            for server in self.servers:
                if server.is_stopped or not server.is_alive:
                    continue
                status = server.ask("/v3/maintenance/status", {})
                if status and status["header"]["member_id"] == status.get("leader", "0"):
                    return server
            time.sleep(0.05)
        raise AssertionError("the etcd servers have no leader")

    def repair(self) -> None:
        """Ends all faults of the network and of the etcd servers."""
        self.call("heal")
        for server in self.servers:
            if server.is_stopped:
                server.go_on()
            if not server.is_alive:
                server.start()
        self.leader()

    def cut_apart(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Cuts every host of one side off from every host of the other, silently."""
        for a in one:
            for b in other:
                self.call("cut", "--between", f"{a},{b}")

    def revoke_leases(self) -> int:
        """Makes etcd forget who is announced. Returns the number of leases."""
        server = self.leader()
        leases = (server.ask("/v3/lease/leases", {}) or {}).get("leases", [])
        for lease in leases:
            server.ask("/v3/lease/revoke", {"ID": lease["ID"]})
        return len(leases)

    def delete_everything(self) -> int:
        """Deletes all keys. Returns their number."""
        zero = base64.b64encode(b"\0").decode()
        answer = self.leader().ask("/v3/kv/deleterange", {"key": zero, "range_end": zero})
        return int((answer or {}).get("deleted", 0))


class Log:
    """The lines of a rank, read as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: list[Record] = []
        self._read = 0  # bytes

    def records(self) -> list[Record]:
        """Returns the lines of steps and changes."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            lines = whole.decode(errors="replace").splitlines()
            self._records += [r for line in lines if (r := parse_line(line)) is not None]
        return self._records

    def text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.path.read_text(errors="replace")
        return ""


class Ranks:
    """The ranks of one job, one on each of the first hosts of the lab."""

    def __init__(
        self, lab: MembersLab, folder: Path, world: int, settings: Settings, **variables: str
    ) -> None:
        self.lab, self.folder, self.world, self.settings = lab, folder, world, settings
        self.codes: dict[int, int] = {}  # of ranks that have ended
        self.checkpoint = folder / "checkpoint.pt"
        self.logs = [Log(folder / f"rank{rank}.log") for rank in range(world)]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        lab.jobs += 1
        shared = {
            "SLUICE_MEMBERS": lab.members,
            "SLUICE_JOB": f"job{lab.jobs}",
            "SLUICE_JOB_KEY": secrets.token_hex(32),
            "SLUICE_LOG": "info",
            "SLUICE_IFACE": "eth0",
            "SLUICE_SLICE_ELEMENTS": "5000",
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": lab.addresses[0],
            "MASTER_PORT": str(29500 + lab.jobs),
            "MEMBERS_SAVE": str(self.checkpoint),
            **settings.as_environment(),
            **variables,
        }
        self.pids = {
            rank: self._fork(
                rank, shared | {"RANK": str(rank), "MEMBERS_OUT": str(folder / f"rank{rank}.json")}
            )
            for rank in range(world)
        }

    def _fork(self, rank: int, variables: dict[str, str]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid > 0:
            return pid

        def be_rank() -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has forked us ends us
            output = os.open(self.logs[rank].path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            self.lab.enter(rank)
            for name in [name for name in os.environ if name.startswith("SLUICE_")]:
                del os.environ[name]
            os.environ.update(variables)
            be_a_rank()

        as_a_program(be_rank)

    def steps(self, rank: int) -> list[Record]:
        """Returns the lines of the steps that the rank has printed."""
        return [record for record in self.logs[rank].records() if "state" in record]

    def times(self, rank: int) -> list[float]:
        """Returns when the rank printed each of its steps, in seconds."""
        return [int(record["at"]) * 1e-9 for record in self.steps(rank)]

    def last_step(self, rank: int) -> int:
        """Returns the last step that the rank has printed; -1 if there is none."""
        steps = self.steps(rank)
        return int(steps[-1]["step"]) if steps else -1

    def code(self, rank: int) -> int | None:
        """Returns the exit code of a rank that has ended, -N if signal N has ended it."""
        if rank not in self.codes:
            pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
            if pid > 0:
                self.codes[rank] = os.waitstatus_to_exitcode(status)
        return self.codes.get(rank)

    def signal(self, rank: int, number: signal.Signals) -> None:
        if self.code(rank) is None:
            os.kill(self.pids[rank], number)

    def wait_until(self, holds: Callable[[], bool], patience: float, what: str) -> None:
        end = now() + patience
        while not holds():
            if now() > end:
                raise AssertionError(f"{what}: not after {patience:.0f} s")
            time.sleep(0.005)

    def wait_for_step(self, step: int, ranks: Iterable[int], patience: float = 90) -> None:
        """Waits until one of these ranks has printed the step, or has ended."""
        watched = list(ranks)
        self.wait_until(
            lambda: any(
                self.last_step(rank) >= step or self.code(rank) is not None for rank in watched
            ),
            patience,
            f"step {step}",
        )

    def wait_for_end(self, ranks: Iterable[int], patience: float, what: str) -> None:
        left = list(ranks)
        self.wait_until(
            lambda: all(self.code(rank) is not None for rank in left),
            patience,
            f"{what}: ranks {left} have ended",
        )

    def replay(self) -> dict[str, Any]:
        """Repeats the job in a process of its own."""
        answer = self.folder / "replay"

        def work() -> None:
            answer.write_text(json.dumps(replay(self.folder)))

        pid = os.fork()
        if pid == 0:
            as_a_program(work)
        os.waitpid(pid, 0)
        if not answer.exists():
            return {"problems": ["replay.py has failed"], "notes": [], "compared": 0}
        return dict(json.loads(answer.read_text()))

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.pids:
            if self.code(rank) is None:
                os.kill(self.pids[rank], signal.SIGKILL)
                _, status = os.waitpid(self.pids[rank], 0)
                self.codes[rank] = os.waitstatus_to_exitcode(status)


@dataclasses.dataclass
class Pause:
    """The longest wait between two steps of a survivor after a fault."""

    seconds: float
    normal: float  # the median of its other steps

    @property
    def extra(self) -> float:
        return max(0.0, self.seconds - self.normal)


def pause_of(times: list[float], begin: float, end: float) -> Pause | None:
    """Returns the longest wait among those that overlap this time."""
    gaps = [(b - a, a, b) for a, b in zip(times, times[1:])]
    if len(gaps) < 3:
        return None
    normal = sorted(gap for gap, _, _ in gaps)[len(gaps) // 2]
    near = [gap for gap, a, b in gaps if b >= begin and a <= end]
    return Pause(max(near), normal) if near else None


def build_of(sluice: str) -> str:
    """Returns a short digest of the program and of the Python module, which tells builds apart."""
    whole = hashlib.sha256(Path(sluice).read_bytes())
    whole.update(Path(_core.__file__).read_bytes())
    return whole.hexdigest()[:10]


class Results:
    """A file with a row of JSON for each job, to which jobs are only added."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path is not None and path.exists():
            text = path.read_text()
            self.rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def cell(texts: list[str]) -> str:
    """Returns the texts as a cell of a table, which is not too wide."""
    whole = "; ".join(texts)
    return whole if len(whole) <= 110 else whole[:107] + "..."


def wrong_jobs(rows: list[dict[str, Any]]) -> list[str]:
    """Returns a table of the jobs that did not go as they must, for a page."""
    wrong = [row for row in rows if row["problems"]]
    lines = [
        f"| {row.get('what', 'soak')} {row['seed']} | {cell(row['faults'])} | "
        f"{cell(row['problems'])} | {row['build']} |"
        for row in wrong
    ]
    return ["", "| job | faults | wrong | build |", "|---|---|---|---|", *lines] if wrong else []


def prepare() -> None:
    """Call this before the first job, and before anything is computed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    prepare_to_fork()
