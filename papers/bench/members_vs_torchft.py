#!/usr/bin/env python3
"""Trains with sluice and with torchft while ranks are killed, and prints both beside each other.

    python3 papers/bench/members_vs_torchft.py --sluice build/release/bin/sluice \\
        --pythonpath build/release/python --torchft-python ~/torchft/bin/python --json out.json
    python3 papers/bench/members_vs_torchft.py --every 15 --heartbeat-timeout-ms 1000

Install torchft with `pip install torchft-nightly==2026.10.26`; its lighthouse is beside its Python.

Eight ranks train, each on a host of its own in a lab (docs/lab.md). One rank is killed with kill -9
every --every seconds until two are left, which train as long once more. Before that, all ranks
train undisturbed for --calm seconds. The lab has three more hosts with an etcd server each, which
sluice's members use; torchft's lighthouse runs on the first of these. The same ranks are killed for
both. Computing is replayed: it is a sleep in each layer's forward and backward pass
(torchft_rank.py). The gradients, their means, the optimizer's steps and the bytes on the
network are real.

    steps/s     steps of a rank that its optimizer counted, per second: the steps of all ranks over
                the seconds in which they were alive
    share       steps/s with kills over undisturbed steps/s; fewer ranks also make shorter steps
    pause       after each kill, the longest time between two counted steps of a survivor, beyond
                the median step
    thrown away steps of all ranks that were computed and not counted, after the first kill

sluice runs with its defaults. torchft runs with the heartbeat timeout that its lighthouse has by
default (5 s) and with the timeouts of its example train_ddp.py (Gloo: 5 s), and once more for each
--heartbeat-timeout-ms, which then holds for both lighthouse and Gloo. A killed process closes its
connections; a host that vanishes does not, and is not measured here. Needs root.

A share says little if other work on the machine changes meanwhile: see the load averages at the
beginning of the calm part, at its end, and at the end of the run. Pauses depend less on it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parents[1] / "tests"))
from lab_job import Lab  # noqa: E402

INSTALL = "pip install torchft-nightly==2026.10.26"
LEFT = 2  # ranks that are never killed
ETCD = 3
LIGHTHOUSE_PORT = 29510
WARM_UP = 5  # steps with all ranks before time is taken
START_SECONDS = 300
# A lab has no name server. This gives a process a name for its host and for every other one, which
# torchft tells other ranks: FILE LIKE /etc/hosts, NAME, COMMAND...
WITH_NAMES = ["unshare", "--mount", "--uts", "sh", "-c",
              'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"']  # fmt: skip
DEFAULTS = {"heartbeat_timeout_ms": 5000, "gloo_timeout_ms": 5000}  # torchft's


class Job:
    """The ranks of one run, as processes on the hosts of a lab."""

    def __init__(
        self,
        lab: Any,
        world: int,
        command: list[str],
        variables: Callable[[int], dict[str, str]],
        server: list[str] | None = None,  # a command for the first host after the ranks'
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="members-vs-torchft-"))
        self.killed: dict[int, float] = {}  # when
        self.others: list[subprocess.Popen[bytes]] = []
        self.ranks: list[subprocess.Popen[bytes]] = []
        names = [f"{address} host{host}" for host, address in lab.addresses.items()]
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        if server is not None:
            self.others.append(self._start(lab, world, "server", server, {}))
        for rank in range(world):
            self.ranks.append(self._start(lab, rank, f"rank{rank}", command, variables(rank)))

    def _start(
        self, lab: Any, host: int, name: str, command: list[str], variables: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "TORCHFT_"))}
        out, err = (self.folder / f"{name}.{kind}" for kind in ("steps", "log"))
        with out.open("wb") as steps, err.open("wb") as log:
            return subprocess.Popen(
                [*WITH_NAMES, str(self.hosts), f"host{host}", *command],
                stdin=subprocess.DEVNULL,
                stdout=steps,
                stderr=log,
                env=kept | variables,
                preexec_fn=lambda: lab.enter(host),
            )

    def steps(self, rank: int) -> list[dict[str, Any]]:
        lines = (self.folder / f"rank{rank}.steps").read_text(errors="replace").split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith('{"at"')]

    def made(self, rank: int) -> list[float]:
        """Returns the times of the steps that were counted."""
        return [step["at"] for step in self.steps(rank) if step["made"]]

    def wait_for_all(self) -> None:
        """Waits until all ranks have made steps together."""
        world, end = len(self.ranks), time.monotonic() + START_SECONDS
        ranks = range(world)

        def is_ready(rank: int) -> bool:
            steps = self.steps(rank)
            return len([s for s in steps if s["made"] and s["world"] == world]) >= WARM_UP

        while not all(is_ready(rank) for rank in ranks):
            ended = [rank for rank in ranks if self.ranks[rank].poll() is not None]
            if ended or time.monotonic() > end:
                said = (self.folder / f"rank{ended[0] if ended else 0}.log").read_text()
                sys.exit(f"not all ranks train; ended: {ended}\n{said[-2000:]}")
            time.sleep(0.2)

    def kill(self, rank: int) -> None:
        self.ranks[rank].kill()
        self.killed[rank] = time.monotonic()
        self.ranks[rank].wait()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.ranks, *self.others]:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder)


Start = Callable[[], Job]


def steps_per_second(job: Job, begin: float, end: float) -> float:
    """Returns the steps of all ranks over the seconds in which they were alive."""
    steps, seconds = 0, 0.0
    for rank in range(len(job.ranks)):
        until = job.killed.get(rank, end)
        steps += sum(begin <= at < until for at in job.made(rank))
        seconds += until - begin
    return steps / seconds


def step_times(job: Job, begin: float, end: float) -> list[float]:
    made = [[at for at in job.made(rank) if begin <= at < end] for rank in range(len(job.ranks))]
    return [b - a for times in made for a, b in itertools.pairwise(times)]


def pauses_of(job: Job, end: float, normal: float) -> list[float]:
    """Returns the longest pause of a survivor after each kill."""
    kills = sorted(job.killed.values())
    found = []
    for at, until in itertools.pairwise([*kills, end]):
        longest = 0.0
        for rank in range(len(job.ranks)):
            if job.killed.get(rank, end) < until:
                continue
            times = [*(t for t in job.made(rank) if t < until), until]
            gaps = [b - a for a, b in itertools.pairwise(times) if b > at]
            longest = max([longest, *gaps])
        found.append(max(0.0, longest - normal))
    return found


def run(start: Start, calm: float, every: float, victims: list[int]) -> dict[str, Any]:
    with start() as job:
        job.wait_for_all()
        calm_begin, load = time.monotonic(), [os.getloadavg()[0]]
        time.sleep(calm)
        begin = time.monotonic()
        undisturbed = {
            "steps_per_s": steps_per_second(job, calm_begin, begin),
            "median_step_s": statistics.median(step_times(job, calm_begin, begin)),
        }
        load.append(os.getloadavg()[0])
        for number, victim in enumerate(victims):
            time.sleep(max(0.0, begin + every * (number + 1) - time.monotonic()))
            job.kill(victim)
        time.sleep(every)
        end = time.monotonic()
        load.append(os.getloadavg()[0])
        ended = [r for r, p in enumerate(job.ranks) if r not in job.killed and p.poll() is not None]
        normal = statistics.median(step_times(job, begin, end))
        first = min(job.killed.values())
        ranks = range(len(job.ranks))
        late = [step for rank in ranks for step in job.steps(rank) if first <= step["at"] < end]
        with_kills: dict[str, Any] = {
            "steps_per_s": steps_per_second(job, begin, end),
            "median_step_s": normal,
            "pauses_s": pauses_of(job, end, normal),
            "thrown_away": sum(not step["made"] for step in late),
            "survivors_that_ended": ended,
        }
    share = with_kills["steps_per_s"] / undisturbed["steps_per_s"]
    parts = {"undisturbed": undisturbed, "with_kills": with_kills}
    return {**parts, "share": share, "load_average": load}


def sluice_job(lab: Any, options: argparse.Namespace) -> Start:
    members = ",".join(f"{lab.addresses[options.ranks + i]}:2379" for i in range(ETCD))

    def start() -> Job:
        shared = {
            "SLUICE_MEMBERS": f"etcd://{members}",
            "SLUICE_JOB": f"job-{secrets.token_hex(4)}",
            "SLUICE_JOB_KEY": secrets.token_hex(32),
            "SLUICE_IFACE": "eth0",
            "WORLD_SIZE": str(options.ranks),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": lab.addresses[0],
            "MASTER_PORT": "29500",
            "PYTHONPATH": str(options.pythonpath.resolve()),
        }
        command = [sys.executable, str(BENCH / "torchft_rank.py"), "sluice"]
        return Job(lab, options.ranks, command, lambda r: shared | of_rank(lab, r, options))

    return start


def torchft_job(lab: Any, options: argparse.Namespace, timeouts: dict[str, int]) -> Start:
    python, host = options.torchft_python, options.ranks

    def start() -> Job:
        shared = {
            "TORCHFT_LIGHTHOUSE": f"http://{lab.addresses[host]}:{LIGHTHOUSE_PORT}",
            "MIN_RANKS": str(LEFT),
            "GLOO_TIMEOUT_S": str(timeouts["gloo_timeout_ms"] / 1000),
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        command = [python, str(BENCH / "torchft_rank.py"), "torchft"]
        lighthouse = [
            str(Path(python).parent / "torchft_lighthouse"),
            *("--min_replicas", str(LEFT), "--join_timeout_ms", "10000"),
            *("--heartbeat_timeout_ms", str(timeouts["heartbeat_timeout_ms"])),
            *("--bind", f"{lab.addresses[host]}:{LIGHTHOUSE_PORT}"),
        ]
        return Job(
            lab, options.ranks, command, lambda r: shared | of_rank(lab, r, options), lighthouse
        )

    return start


def of_rank(lab: Any, rank: int, options: argparse.Namespace) -> dict[str, str]:
    compute = {"COMPUTE_S": str(options.compute), "OMP_NUM_THREADS": "1"}
    return compute | {"RANK": str(rank), "ADDRESS": lab.addresses[rank]}


def print_table(runs: list[dict[str, Any]]) -> None:
    heads = ("share", "steps/s", "undisturbed", "step", "undisturbed", "median pause", "longest",
             "thrown away")  # fmt: skip
    print(f"{'':34}" + "".join(f"{head:>13}" for head in heads))
    for run in runs:
        calm, killed = run["undisturbed"], run["with_kills"]
        cells = [
            f"{run['share']:.3f}",
            f"{killed['steps_per_s']:.3f}",
            f"{calm['steps_per_s']:.3f}",
        ]
        cells += [f"{part['median_step_s'] * 1000:.0f} ms" for part in (killed, calm)]
        pauses = killed["pauses_s"]
        cells += [f"{statistics.median(pauses):.2f} s", f"{max(pauses):.2f} s"]
        cells += [str(killed["thrown_away"])]
        print(f"{run['name']:34}" + "".join(f"{cell:>13}" for cell in cells))
        print("  pauses: " + " ".join(f"{pause:.2f}" for pause in pauses) + " s; load average: "
              + ", ".join(f"{load:.0f}" for load in run["load_average"]))  # fmt: skip
        if killed["survivors_that_ended"]:
            print(f"  ranks that ended by themselves: {killed['survivors_that_ended']}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sluice", default="build/release/bin/sluice", help="the program")
    parser.add_argument("--pythonpath", type=Path, default=Path("build/release/python"),
                        help="the folder with sluice's Python package")  # fmt: skip
    parser.add_argument("--torchft-python", default=sys.executable, metavar="PATH",
                        help="a Python that can import torchft")  # fmt: skip
    parser.add_argument("--every", type=float, default=30, help="seconds between kills")
    parser.add_argument("--calm", type=float, default=20, help="seconds before the kills begin")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--compute", type=float, default=0.25, help="seconds of a step's computing")
    parser.add_argument("--rate", default="200mbit", help="of each host's link")
    parser.add_argument("--seed", type=int, default=1, help="decides which ranks are killed")
    parser.add_argument("--heartbeat-timeout-ms", type=int, action="append", default=[],
                        help="run torchft once more with this; may be repeated")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if os.geteuid() != 0:
        sys.exit("run this as root: ranks are started on the hosts of a lab")
    tried = subprocess.run([options.torchft_python, "-c", "import torchft"], capture_output=True)
    if tried.returncode != 0:
        sys.exit(f"{options.torchft_python} cannot import torchft: {INSTALL}, or --torchft-python")
    victims = random.Random(options.seed).sample(range(options.ranks), options.ranks - LEFT)
    runs = []
    with Lab(options.sluice, options.ranks, options.rate, etcd=ETCD) as lab:
        systems: list[tuple[str, Start, dict[str, int]]] = [
            ("sluice", sluice_job(lab, options), {}),
            ("torchft, defaults (5000 ms)", torchft_job(lab, options, DEFAULTS), DEFAULTS),
        ]
        for ms in options.heartbeat_timeout_ms:
            timeouts = {"heartbeat_timeout_ms": ms, "gloo_timeout_ms": ms}
            systems.append((f"torchft, {ms} ms", torchft_job(lab, options, timeouts), timeouts))
        for name, start, timeouts in systems:
            found = run(start, options.calm, options.every, victims)
            print(f"{name}: {found}", file=sys.stderr, flush=True)
            runs.append({"name": name, "timeouts": timeouts, **found})
    names = ("every", "calm", "ranks", "compute", "rate", "seed")
    settings = {name: getattr(options, name) for name in names} | {"victims": victims}
    if options.json is not None:
        options.json.write_text(json.dumps({"settings": settings, "runs": runs}, indent=2) + "\n")
    print_table(runs)


if __name__ == "__main__":
    main()
