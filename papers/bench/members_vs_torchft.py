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
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parents[1] / "tests/support"))
from lab_job import Lab  # noqa: E402
from peer_job import PeerJob, Rank  # noqa: E402

INSTALL = "pip install torchft-nightly==2026.10.26"
LEFT = 2  # ranks that are never killed
ETCD = 3
LIGHTHOUSE_PORT = 29510
WARM_UP = 5  # steps with all ranks before time is taken
START_SECONDS = 300
DEFAULTS = {"heartbeat_timeout_ms": 5000, "gloo_timeout_ms": 5000}  # torchft's


Start = Callable[[], PeerJob]


def made(rank: Rank) -> list[float]:
    """Returns the times of the steps that were counted."""
    return [step["at"] for step in rank.steps if step["made"]]


def steps_per_second(job: PeerJob, begin: float, end: float) -> float:
    """Returns the steps of all ranks over the seconds in which they were alive."""
    steps, seconds = 0, 0.0
    for rank in job.ranks:
        until = rank.killed or end
        steps += sum(begin <= at < until for at in made(rank))
        seconds += until - begin
    return steps / seconds


def step_times(job: PeerJob, begin: float, end: float) -> list[float]:
    counted = [[at for at in made(rank) if begin <= at < end] for rank in job.ranks]
    return [b - a for times in counted for a, b in itertools.pairwise(times)]


def pauses_of(job: PeerJob, end: float, normal: float) -> list[float]:
    """Returns the longest pause of a survivor after each kill."""
    kills = sorted(rank.killed for rank in job.ranks if rank.killed)
    found = []
    for at, until in itertools.pairwise([*kills, end]):
        longest = 0.0
        for rank in job.ranks:
            if (rank.killed or end) < until:
                continue
            times = [*(t for t in made(rank) if t < until), until]
            gaps = [b - a for a, b in itertools.pairwise(times) if b > at]
            longest = max([longest, *gaps])
        found.append(max(0.0, longest - normal))
    return found


def run(start: Start, calm: float, every: float, victims: list[int]) -> dict[str, Any]:
    with start() as job:
        job.wait_for_all(WARM_UP, START_SECONDS)
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
            job.ranks[victim].kill()
        time.sleep(every)
        end = time.monotonic()
        load.append(os.getloadavg()[0])
        ended = [number for number, rank in enumerate(job.ranks) if rank.ended and not rank.killed]
        normal = statistics.median(step_times(job, begin, end))
        first = min(rank.killed for rank in job.ranks if rank.killed)
        late = [s for rank in job.ranks for s in rank.steps if first <= s["at"] < end]
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

    def start() -> PeerJob:
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
        return job_of(lab, options, command, shared)

    return start


def torchft_job(lab: Any, options: argparse.Namespace, timeouts: dict[str, int]) -> Start:
    python, host = options.torchft_python, options.ranks

    def start() -> PeerJob:
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
        return job_of(lab, options, command, shared, lighthouse)

    return start


def job_of(
    lab: Any,
    options: argparse.Namespace,
    command: list[str],
    shared: dict[str, str],
    server: list[str] | None = None,
) -> PeerJob:
    compute = {"COMPUTE_S": str(options.compute), "OMP_NUM_THREADS": "1"}

    def variables(rank: int) -> dict[str, str]:
        return shared | compute | {"RANK": str(rank), "ADDRESS": lab.addresses[rank]}

    return PeerJob(lab, options.ranks, command, variables, server, is_pinned=False)


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
