#!/usr/bin/env python3
"""Trains job after job in a lab while members and etcd servers are killed, stopped and cut off.

    python3 tests/members/soak.py --build build/release --faults 1000 --results soak.jsonl

Every job has five members, and up to six faults at random moments, often several at a time:

    kill        kill -9 of a member
    stop        SIGSTOP of a member until the others have gone on without it, then SIGCONT
    cut         its host is cut off silently until then, and the network heals
    blink       SIGSTOP or a cut for less than the silence limit: nobody is lost
    etcd kill   kill -9 of an etcd server, which is started again later
    etcd stop   SIGSTOP of one, two or all etcd servers for some seconds

At least two members are left. They must make all steps with the bits of one process
(replay.py), and every member that was stopped or cut off must end with an error that says
that it is out. Each job appends a line to the results: its seed, the faults and the outcome. A soak
that was ended goes on after the last seed of that file, until it has the wanted number of faults.
--page writes the results as a page for people. The exit code is 0 iff every job went as it must.
"""

from __future__ import annotations

import argparse
import collections
import heapq
import itertools
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import SKIPPED, skip_without_lab

KINDS = ("kill", "stop", "cut", "blink", "etcd kill", "etcd stop")
SILENCE_LIMIT = 4.0  # seconds
FEWEST = 2  # members that are left
PATIENCE = 30.0  # seconds until the others must have gone on


class Disturbance:
    """The faults of one job. Each may need a second act, which a heap keeps until its time."""

    def __init__(self, trial: Any, count: int) -> None:
        self.trial, self.luck, self.count = trial, trial.luck, count
        self.made: list[str] = []  # kinds
        self._later: list[tuple[float, int, Callable[[], bool]]] = []
        self._number = itertools.count()
        self._is_cut = False
        self._busy: set[int] = set()  # members that are stopped or cut off

    def run(self) -> None:
        self.trial.ranks.wait_for_step(2, range(self.trial.world))
        while len(self.made) < self.count or self._later:
            if all(self.trial.ranks.code(rank) is not None for rank in self.trial.left):
                break
            if len(self.made) < self.count:
                self.make_one()
            self.wait(self.luck.choice((0.05, 0.5, 2.0)) * self.luck.random())
        while self._later:  # what was begun is ended
            self.wait(0.05)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            while self._later and self._later[0][0] <= time.monotonic():
                _, _, act = heapq.heappop(self._later)
                if not act():
                    self.after(0.05, act)
            if time.monotonic() >= end:
                return
            time.sleep(0.01)

    def after(self, seconds: float, act: Callable[[], bool]) -> None:
        """Calls `act` then, and again later until it returns True."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._number), act))

    def make_one(self) -> None:
        kind = self.luck.choice(KINDS)
        act = getattr(self, "begin_" + kind.replace(" ", "_"))
        if act():
            self.made.append(kind)

    def choose_member(self, is_lost: bool) -> int | None:
        ranks, left = self.trial.ranks, self.trial.left
        if is_lost and len(left) <= FEWEST:
            return None
        free = [rank for rank in left if rank not in self._busy and ranks.code(rank) is None]
        return self.luck.choice(free) if free else None

    def begin_kill(self) -> bool:
        member = self.choose_member(is_lost=True)
        if member is not None:
            self.trial.kill(member)
        return member is not None

    def others_have_gone_on(self, steps: int = 3) -> Callable[[], bool]:
        trial, begun = self.trial, time.monotonic()
        before = max(trial.ranks.last_step(rank) for rank in range(trial.world))

        def have() -> bool:
            if time.monotonic() - begun > PATIENCE:
                raise AssertionError(f"members {trial.left} have not gone on for {PATIENCE:.0f} s")
            goal = before + steps
            return any(
                trial.ranks.last_step(rank) >= goal or trial.ranks.code(rank) is not None
                for rank in trial.left
            )

        return have

    def begin_stop(self) -> bool:
        member = self.choose_member(is_lost=True)
        if member is None:
            return False
        self.trial.note_fault(f"stop {member}", is_loss=True)
        self.trial.ranks.signal(member, signal.SIGSTOP)
        self.trial.turned_out.add(member)
        have = self.others_have_gone_on()

        def wake() -> bool:
            if have():
                self.trial.ranks.signal(member, signal.SIGCONT)
                return True
            return False

        self.after(SILENCE_LIMIT, wake)
        return True

    def begin_cut(self) -> bool:
        member = self.choose_member(is_lost=True)
        if member is None or self._is_cut:
            return False
        self.trial.note_fault(f"cut {member}", is_loss=True)
        self._is_cut = True
        self.trial.lab.call("cut", "--host", str(member))
        self.trial.turned_out.add(member)
        have = self.others_have_gone_on()
        self.after(SILENCE_LIMIT, lambda: have() and self.heal())
        return True

    def heal(self) -> bool:
        self.trial.lab.call("heal")
        self._is_cut = False
        return True

    def begin_blink(self) -> bool:
        member = self.choose_member(is_lost=False)
        if member is None:
            return False
        is_stop = self._is_cut or self.luck.random() < 0.5
        self.trial.note_fault(f"{'stop' if is_stop else 'cut'} {member} shortly")
        self._busy.add(member)
        if is_stop:
            self.trial.ranks.signal(member, signal.SIGSTOP)
        else:
            self._is_cut = True
            self.trial.lab.call("cut", "--host", str(member))

        def end() -> bool:
            self._busy.discard(member)
            if not is_stop:
                return self.heal()
            self.trial.ranks.signal(member, signal.SIGCONT)
            return True

        self.after(self.luck.uniform(0.05, SILENCE_LIMIT / 4), end)
        return True

    def begin_etcd_kill(self) -> bool:
        alive = [s for s in self.trial.lab.servers if s.is_alive and not s.is_stopped]
        if not alive:
            return False
        server = self.luck.choice(alive)
        self.trial.note_fault(f"kill etcd {server.host}")
        server.kill()

        def start() -> bool:
            server.start()
            return True

        self.after(self.luck.uniform(0.1, 3.0), start)
        return True

    def begin_etcd_stop(self) -> bool:
        alive = [s for s in self.trial.lab.servers if s.is_alive and not s.is_stopped]
        if not alive:
            return False
        servers = self.luck.sample(alive, self.luck.randrange(1, len(alive) + 1))
        self.trial.note_fault(f"stop {len(servers)} etcd servers")
        for server in servers:
            server.stop()

        def go_on() -> bool:
            for server in servers:
                server.go_on()
            return True

        self.after(self.luck.uniform(0.1, 4.0), go_on)
        return True


def run_job(lab: Any, folder: Path, seed: int) -> dict[str, Any]:
    import faults

    luck = random.Random(f"soak {seed}")
    fixed = {"steps": luck.randrange(60, 140), "pause": luck.choice((0.02, 0.05, 0.1))}
    settings = faults.choose_settings(luck, "soak", fixed)
    limit = {"SLUICE_SILENCE_LIMIT": f"{SILENCE_LIMIT:.0f}s"}
    trial = faults.Trial(lab, folder, luck, settings, 5, **limit)
    disturbance = Disturbance(trial, luck.randrange(1, 7))
    with trial.ranks:
        try:
            disturbance.run()
            trial.judge()
        except AssertionError as wrong:
            trial.problems.append(str(wrong))
        if trial.problems:
            print(trial.describe(), file=sys.stderr, flush=True)
    lab.repair()
    return {"seed": seed, "kinds": disturbance.made, **trial.row()}


def write_page(rows: list[Any], path: Path) -> None:
    """Writes the results as a page."""
    import job

    builds = ", ".join(dict.fromkeys(row["build"] for row in rows))
    counts = collections.Counter(kind for row in rows for kind in row["kinds"])
    pauses = [pause for row in rows for pause in row["pauses_s"]]
    wrong = [row for row in rows if row["problems"]]
    lost = sum(row["members"] - row["left"] for row in rows)
    middle = f"{statistics.median(pauses):.2f} s" if pauses else "-"
    longest = f"{max(pauses):.2f} s" if pauses else "-"
    lines = [
        "# Soak of members that may be lost",
        "",
        "`tests/members/soak.py` trains job after job while members and etcd servers are killed,",
        "stopped and cut off, and writes this page from its results. The script lists",
        "the faults. Every step of every member is compared bit for bit with one process.",
        "",
        "| | |",
        "|---|---|",
        f"| jobs, of five members each | {len(rows)} |",
        f"| jobs that did not go as they must | {len(wrong)} |",
        f"| faults | {sum(counts.values())} |",
        f"| members lost | {lost} |",
        f"| steps of members that were compared | {sum(row['compared'] for row in rows)} |",
        f"| pause after a loss, beyond a normal step: median | {middle} |",
        f"| the same: longest | {longest} |",
        f"| hours | {sum(row['seconds'] for row in rows) / 3600:.1f} |",
        f"| builds, by a digest of program and module | {builds} |",
        "",
        f"A stopped or cut-off member counts as lost after {SILENCE_LIMIT:.0f} s, which is part of "
        "its pause.",
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {kind} | {counts[kind]} |" for kind in KINDS),
    ]
    lines += job.wrong_jobs(rows)
    path.write_text("\n".join(lines) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--faults", type=int, default=1000, help="that all jobs have together")
    parser.add_argument("--results", type=Path, default=Path("build/soak_members.jsonl"))
    parser.add_argument("--page", type=Path, help="write this page after every job")
    parser.add_argument("--rate", default="200mbit", help="of each host's link")
    parser.add_argument("--first-seed", type=int, default=1, help="of a new file of results")
    parser.add_argument("--keep", type=Path, help="keep the files of jobs that went wrong here")
    return parser.parse_args()


def main(options: argparse.Namespace) -> int:
    import job

    job.prepare()
    results = job.Results(options.results)
    rows = results.rows
    program = str((options.build / "bin/sluice").resolve())
    build = job.build_of(program)

    def faults() -> int:
        return sum(len(row["kinds"]) for row in rows)

    with (
        tempfile.TemporaryDirectory(prefix="soak-members-") as folder,
        job.MembersLab(program, 5, options.rate) as lab,
    ):
        while faults() < options.faults:
            seed = max((row["seed"] + 1 for row in rows), default=options.first_seed)
            place = Path(folder, str(seed))
            row = {"build": build, **run_job(lab, place, seed)}
            results.add(row)
            if options.page is not None:
                write_page(rows, options.page)
            if row["problems"] and options.keep is not None:
                shutil.copytree(place, options.keep / str(seed), dirs_exist_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            outcome = "; ".join(row["problems"]) or "as it must"
            print(f"{faults():6} faults  seed {seed}: {'; '.join(row['faults'])} => {outcome}",
                  flush=True)  # fmt: skip
    wrong = sum(bool(row["problems"]) for row in rows)
    print(f"{len(rows)} jobs, {faults()} faults, {wrong} jobs did not go as they must")
    return 1 if wrong else 0


if __name__ == "__main__":
    options = parse()
    skip_without_lab()
    if shutil.which("etcd") is None:
        print("skipped: etcd is not installed")
        sys.exit(SKIPPED)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str((options.build / "python").resolve()))
    sys.exit(main(options))
