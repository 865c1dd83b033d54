#!/usr/bin/env python3
"""Trains with DistributedDataParallel on Gloo, torchft, hivemind and sluice in the same lab, and
prints the time of a step, the bytes and the processor time of each beside those of DDP.

    sudo chrt --rr 1 env PYTHONPATH=build/release/python python3 papers/bench/vs_peers.py speed \\
      --sluice build/release/bin/sluice --data DATA --json speed.json
    sudo ... python3 papers/bench/vs_peers.py loss --data DATA --json loss.json

Each rank is a host of the lab and has a core of its own. Model, optimizer, batches and seed are the
same for all (peer_rank.py), and so is the rate of the links, at which the time on the wire is
`--ratio` times the compute. torchft and hivemind have an environment each in build/peers
(tests/python/plugs/environment.sh). Nothing is measured before all ranks take part:
num_participants() of torchft, "Averaged gradients with N peers" of hivemind, the world's size of
the others.

    speed   interleaved rounds; a ratio compares runs of one round, and each round begins with
            another system
    loss    the last rank kills its processes inside a backward pass (kill -9): when do the others
            notice, do they name the rank, how many of their steps are thrown away, and when is
            the first step that counts the ranks that are left

sluice has two settings: as it comes; and with members, which survives losses, with three etcd
servers on hosts of their own. torchft's lighthouse is on the first of these. `--limit` is the
silence after which each gives up on a rank. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/support"))
from lab_job import Lab  # noqa: E402
from peer_job import TROUBLE, PeerJob  # noqa: E402
from train_vs_ddp import GOODPUT, Bench, balanced_rate, scaled, wire_bytes  # noqa: E402

ETCD = 3
LIGHTHOUSE_PORT = 29510
START_SECONDS = 120
AFTER_A_LOSS = 60.0  # seconds in which a survivor must go on, or end
STEPS_AFTER = 5  # steps of a survivor after a loss that are waited for


def python_of(name: str) -> str:
    if name not in ("torchft", "hivemind"):
        return sys.executable
    made = subprocess.run([HERE.parents[1] / "tests/python/plugs/environment.sh", name],
                          check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
    return made.stdout.strip()


class System:
    """One way to train. `program` is the name that papers/bench/peer_rank.py knows."""

    def __init__(self, name: str, program: str, *options: str, members: bool = False) -> None:
        self.name, self.program, self.options, self.members = name, program, options, members
        self.python = python_of(program)
        self.runs: list[dict[str, Any]] = []
        self.is_in_rounds = program == "hivemind"

    def start(self, lab: Any, args: argparse.Namespace, kill_at: int = 0) -> PeerJob:
        server = None
        host = args.workers
        limit_ms = round(1000 * args.limit)
        shared = {
            "OMP_NUM_THREADS": "1",
            "WORLD_SIZE": str(args.workers),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": lab.addresses[0],
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": "eth0",
            "GLOO_TIMEOUT_S": str(args.limit),
            "SLUICE_IFACE": "eth0",
            "SLUICE_ENCRYPT": "off",
            "SLUICE_JOB_KEY": secrets.token_hex(32),
            "SLUICE_SILENCE_LIMIT": f"{limit_ms}ms",
            "MIN_RANKS": "1",
            "TORCHFT_LIGHTHOUSE": f"http://{lab.addresses[host]}:{LIGHTHOUSE_PORT}",
        }
        if self.members:
            etcd = [f"{lab.addresses[host + number]}:2379" for number in range(ETCD)]
            shared["SLUICE_MEMBERS"] = f"etcd://{','.join(etcd)}"
            shared["SLUICE_JOB"] = f"job-{secrets.token_hex(4)}"
        if self.program == "torchft":
            server = [str(Path(self.python).parent / "torchft_lighthouse"), "--min_replicas", "1",
                      "--join_timeout_ms", "10000", "--heartbeat_timeout_ms", str(limit_ms),
                      "--bind", f"{lab.addresses[host]}:{LIGHTHOUSE_PORT}"]  # fmt: skip

        def variables(rank: int) -> dict[str, str]:
            own = {"RANK": str(rank), "ADDRESS": lab.addresses[rank]}
            dies = kill_at > 0 and rank == args.workers - 1
            return shared | own | ({"KILL_AT": str(kill_at)} if dies else {})

        command = [self.python, str(HERE / "peer_rank.py"), self.program, "--data", str(args.data),
                   "--batch", str(args.batch), *self.options]  # fmt: skip
        return PeerJob(lab, args.workers, command, variables, server)


def speed_of(system: System, lab: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of rank 0, after its first steps."""
    steps = args.rounds_of_hivemind if system.is_in_rounds else args.steps
    skip = 2 if system.is_in_rounds else args.skip
    with system.start(lab, args) as job:
        job.wait_for_all(steps, START_SECONDS + 10 * steps)
        rank = job.ranks[0]
        made = rank.counted(args.workers)
        first, last = made[skip], made[steps - 1]
        window = [step for step in rank.steps if first["at"] < step["at"] <= last["at"]]
        times = [step["at"] for step in window if step["made"]]
        apart = [b - a for a, b in zip([first["at"], *times], times, strict=False)]
        seconds = last["at"] - first["at"]
        losses = [step["loss"] for step in rank.steps[:steps]]
    return {
        "step_s": statistics.median(apart),
        "steps": len(apart),
        "alone": sum(step["made"] and step["world"] != args.workers for step in window),
        "batches_a_step": len(window) / len(apart),
        "samples_s": len(window) * args.batch * args.workers / seconds,
        "sent_bytes_a_step": (last["sent"] - first["sent"]) / len(apart),
        "received_bytes_a_step": (last["received"] - first["received"]) / len(apart),
        "cpu_s_a_step": (last["cpu"] - first["cpu"]) / len(apart),
        "losses": losses,
    }


def named(text: str, rank: int, address: str) -> str:
    """Says how a text names the lost rank."""
    if re.search(rf"\b(rank|member)[ _=:]?{rank}\b", text):
        return "its rank"
    return "its address" if address in text else "no"


def loss_of(system: System, lab: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Returns what the first rank sees after the last one has killed itself."""
    kill_at = args.kill_at if not system.is_in_rounds else 2 * args.kill_at
    with system.start(lab, args, kill_at) as job:
        survivor, lost = job.ranks[0], job.ranks[-1]
        job.wait_for_all(2, START_SECONDS)
        job.wait_until(lambda: lost.killed is not None, START_SECONDS, "the kill")
        at = lost.killed
        assert at is not None
        together = len(survivor.counted(args.workers))

        def later() -> list[dict[str, Any]]:
            return [step for step in survivor.steps if step["at"] > at]

        def is_over() -> bool:
            made = [step for step in later() if step["made"] and step["world"] < args.workers]
            return len(made) >= STEPS_AFTER or survivor.ended is not None

        job.happens(is_over, AFTER_A_LOSS)
        ended = None if survivor.ended is None else survivor.process.wait(timeout=30)
        alone = [step["at"] for step in later() if step["made"] and step["world"] < args.workers]
        # A round of hivemind takes several steps, which are not lost.
        lost_steps = sum(not step["made"] for step in later())
        trouble = [(when - at, line) for when, line in survivor.said
                   if when > at and TROUBLE.search(line)]  # fmt: skip
        text = "\n".join(line for _, line in trouble)
        return {
            "together_before": together,
            "noticed_s": trouble[0][0] if trouble else None,
            "said": [[round(when, 3), line[:300]] for when, line in trouble[:6]],
            "named": named(text, args.workers - 1, lab.addresses[args.workers - 1]),
            "ended": ended,
            "ended_s": None if survivor.ended is None else survivor.ended - at,
            "goes_on_s": alone[0] - at if alone else None,
            "thrown_away": None if system.is_in_rounds else lost_steps,
            "later": [{k: step[k] for k in ("made", "world")} | {"s": round(step["at"] - at, 3)}
                      for step in later()[:12]],
        }  # fmt: skip


def interleaved(
    systems: list[System], args: argparse.Namespace, measure: Callable[[System], dict[str, Any]]
) -> None:
    for number in range(args.runs):
        first = number % len(systems)
        for system in systems[first:] + systems[:first]:
            begun = time.monotonic()
            system.runs.append(measure(system))
            brief = {k: v for k, v in system.runs[-1].items() if k not in ("losses", "later")}
            print(f"round {number + 1}, {system.name} ({time.monotonic() - begun:.0f} s): {brief}",
                  file=sys.stderr, flush=True)  # fmt: skip


def limits(args: argparse.Namespace) -> dict[str, str]:
    """Returns what makes each system give up on a silent rank, for the page."""
    return {
        "ddp": f"timeout of its Gloo group {args.limit:g} s",
        "torchft": f"lighthouse heartbeat {args.limit:g} s, Gloo {args.limit:g} s, manager 30 s",
        "hivemind": f"next_chunk_timeout {args.limit:g} s, "
        f"matchmaking_time {args.matchmaking:g} s, "
        f"averaging_timeout {args.matchmaking + 2 * args.limit:g} s",
        "sluice": f"silence-limit {args.limit:g} s",
    }


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    plain = Bench(args, folder)
    profile = plain.profile()
    rate = args.rate * 1e6 or balanced_rate(profile, args.workers, args.ratio)
    hive = ["--matchmaking", str(args.matchmaking)]
    systems = [
        System("ddp", "ddp"),
        System("torchft", "torchft"),
        System("hivemind", "hivemind", *hive),
        System("sluice", "sluice"),
        System("sluice with members", "sluice", members=True),
    ]
    if args.part == "speed" and args.batches_a_round > 1:
        more = ["--batches-a-round", str(args.batches_a_round)]
        systems.insert(
            3, System(f"hivemind, {args.batches_a_round} batches", "hivemind", *hive, *more)
        )
    systems = [one for one in systems if not args.only or one.name in args.only]
    print(f"{rate / 1e6:.0f} Mbit/s; limits: {limits(args)}", file=sys.stderr, flush=True)
    rounds: list[float] = []
    load = [os.getloadavg()[0]]
    with Lab(args.sluice, args.workers, f"{rate / 1e6:.0f}mbit", etcd=ETCD) as lab:
        one = {"speed": speed_of, "loss": loss_of}[args.part]

        def measured(system: System) -> dict[str, Any]:
            if args.part == "speed" and system is systems[0]:
                rounds.append(statistics.median(plain.alone()["seconds"][args.skip :]))
            return one(system, lab, args)

        interleaved(systems, args, measured)
    load.append(os.getloadavg()[0])
    on_wire = wire_bytes(profile, args.workers) * 8 / GOODPUT / rate
    return {
        "part": args.part,
        "workers": args.workers,
        "rate": round(rate),
        "batch": args.batch,
        "limits": limits(args),
        "plain_s": rounds,
        "wire_over_compute": [on_wire / scaled(profile, one)["compute_s"] for one in rounds],
        "load_average": load,
        "systems": [{"name": system.name, "runs": system.runs} for system in systems],
    }


def speed_table(figures: dict[str, Any]) -> str:
    systems = {one["name"]: one["runs"] for one in figures["systems"]}
    ratios = figures["wire_over_compute"]
    lines = [
        f"{figures['workers']} ranks, {figures['rate'] / 1e6:.0f} Mbit/s, wire over compute "
        f"{statistics.median(ratios):.2f}, load average {figures['load_average']}",
        f"{'':24}{'ms':>7}  {'rounds':20}{'over DDP':>20}{'samples/s':>10}{'sent MB':>9}"
        f"{'CPU s':>7}",
    ]
    for name, runs in systems.items():
        steps = [run["step_s"] for run in runs]
        over = ""
        if "ddp" in systems:
            ratio = [run["step_s"] / ddp["step_s"]
                     for run, ddp in zip(runs, systems["ddp"], strict=True)]  # fmt: skip
            over = f"{statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})"
        means = [statistics.median(run[key] for run in runs)
                 for key in ("samples_s", "sent_bytes_a_step", "cpu_s_a_step")]  # fmt: skip
        lines.append(
            f"{name:24}{1e3 * statistics.median(steps):7.0f}  "
            f"{' '.join(f'{1e3 * one:.0f}' for one in steps):20}{over:>20}{means[0]:10.0f}"
            f"{means[1] / 1e6:9.1f}{means[2]:7.2f}"
        )
    return "\n".join(lines)


def loss_table(figures: dict[str, Any]) -> str:
    lines = []
    for system in figures["systems"]:
        for run in system["runs"]:
            took = {k: run[k] if run[k] is None else round(run[k], 2)
                    for k in ("noticed_s", "goes_on_s", "ended_s")}  # fmt: skip
            lines.append(f"{system['name']:22} {took}, named: {run['named']}, thrown away: "
                         f"{run['thrown_away']}, exit code: {run['ended']}")  # fmt: skip
            lines += [f"    {when:.2f} s  {line[:160]}" for when, line in run["said"][:2]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["speed", "loss"])
    parser.add_argument("--sluice", default="build/release/bin/sluice", help="the program")
    parser.add_argument("--data", default="synthetic", help="folder with fashion-mnist/ in it")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these systems")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0, help="in Mbit/s; default: by --ratio")
    parser.add_argument("--ratio", type=float, default=1.0, help="time on the wire over compute")
    parser.add_argument("--batch", type=int, default=128, help="samples per rank and step")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--skip", type=int, default=5, help="first steps, which do not count")
    parser.add_argument("--rounds-of-hivemind", type=int, default=8, help="instead of --steps")
    parser.add_argument("--matchmaking", type=float, default=3, help="hivemind's matchmaking_time")
    parser.add_argument("--batches-a-round", type=int, default=1,
                        help="in speed: also hivemind with so many batches a round")  # fmt: skip
    parser.add_argument("--kill-at", type=int, default=8, help="the step in which the rank dies")
    parser.add_argument("--limit", type=float, default=2, help="seconds of silence")
    parser.add_argument("--runs", type=int, default=3, help="rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.set_defaults(example="fashion_vgg", encrypt="off")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("run this as root: ranks are started on the hosts of a lab")
    # Ends ranks and lab, which would go on by themselves.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(args, Path(folder))
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(speed_table(figures) if args.part == "speed" else loss_table(figures))


if __name__ == "__main__":
    main()
