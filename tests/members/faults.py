"""Jobs with faults, one after the other, and the judgement on each: the members that are left make
all steps with the same bits, and one process gets these bits from the log of epochs.

in_lab_test.py and soak.py use this. WHAT has the kinds of faults.
"""

from __future__ import annotations

import dataclasses
import random
import secrets
import signal
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from forgeries import deleted, forger, rerun
from job import MembersLab, Ranks, now, pause_of
from training import Settings

RANK_ORDER = ("sluice", "p3", "slicing", "kvstore")
TURNED_OUT = "is not in epoch"  # the error of a member that the others go on without
TOO_FEW = "wants at least"
FORGOTTEN = "the store has lost the latest epochs"
FROZEN = "etcd"  # in a warning of every member whose membership is frozen


@dataclasses.dataclass
class Fault:
    text: str
    at: float
    is_loss: bool


class Trial:
    """One job. A function of WHAT disturbs it, and says what has to come of it."""

    def __init__(
        self,
        lab: MembersLab,
        folder: Path,
        luck: random.Random,
        settings: Settings,
        world: int = 5,
        **variables: str,
    ) -> None:
        self.lab, self.luck, self.settings, self.world = lab, luck, settings, world
        self.folder = folder
        self.faults: list[Fault] = []
        self.killed: set[int] = set()
        self.turned_out: set[int] = set()  # they end with an error that says so
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.pauses: list[float] = []  # seconds beyond a normal step, of each survivor and fault
        self.normal = 0.0  # seconds of a step
        self.result: dict[str, Any] = {}
        self.begun = now()
        self.job_key = secrets.token_hex(32)
        key = {"SLUICE_JOB_KEY": self.job_key}
        self.ranks = Ranks(lab, folder / "job", world, settings, **key, **variables)

    @property
    def left(self) -> list[int]:
        lost = self.killed | self.turned_out
        return [rank for rank in range(self.world) if rank not in lost]

    # Faults.

    def note_fault(self, text: str, is_loss: bool = False) -> None:
        self.faults.append(Fault(text, now(), is_loss))

    def wait_for_step(self, step: int) -> None:
        """Waits until a random moment soon after a member that is left has printed the step."""
        self.ranks.wait_for_step(step, self.left)
        time.sleep(self.luck.uniform(0.0, 0.12))

    def random_step(self, share: float = 0.7) -> int:
        return self.luck.randrange(2, max(3, int(share * self.settings.steps)))

    def kill(self, rank: int) -> None:
        if self.ranks.code(rank) is not None:  # it has ended by itself
            return
        self.note_fault(f"kill {rank} after step {self.ranks.last_step(rank)}", is_loss=True)
        self.ranks.signal(rank, signal.SIGKILL)
        self.killed.add(rank)

    def make_steps(self, count: int, what: str, patience: float = 60) -> None:
        """Waits until all members that are left have made more steps, or have ended."""
        goals = {rank: self.ranks.last_step(rank) + count for rank in self.left}
        self.ranks.wait_until(
            lambda: all(
                self.ranks.last_step(rank) >= goal or self.ranks.code(rank) is not None
                for rank, goal in goals.items()
            ),
            patience,
            f"{what}: members {self.left} make {count} more steps",
        )

    # Judgement.

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            self.problems.append(text)

    def patience(self) -> float:
        return 60 + self.settings.steps * (self.settings.pause + 0.5)

    def wait_for_survivors(self) -> None:
        self.ranks.wait_for_end(self.left, self.patience(), "all steps are made")

    def judge(self) -> None:
        """Waits for the ends of all members and compares them."""
        self.wait_for_survivors()
        for rank in self.left:
            code = self.ranks.code(rank)
            self.check(code == 0, f"member {rank} ended with {code}: {self.last_words(rank)}")
        self.expect_errors(self.turned_out, TURNED_OUT)
        for rank in self.killed | self.turned_out:
            (self.ranks.folder / f"rank{rank}.json").unlink(missing_ok=True)
        self.result = self.ranks.replay()
        self.problems += self.result["problems"]
        self.notes += self.result["notes"]
        self.measure()

    def expect_errors(self, ranks: Iterable[int], words: str, patience: float = 60) -> None:
        members = list(ranks)
        self.ranks.wait_for_end(members, patience, f"an error with '{words}'")
        for rank in members:
            code, said = self.ranks.code(rank), self.last_words(rank)
            self.check(code in (1, 4), f"member {rank} ended with {code}: {said}")
            has_said = words in self.ranks.logs[rank].text()  # lines of the log may follow
            self.check(has_said, f"member {rank} does not say '{words}': {said}")

    def last_words(self, rank: int) -> str:
        lines = self.ranks.logs[rank].text().splitlines()
        said = [line for line in lines if line and not line.startswith(("step=", "change="))]
        return said[-1][:600] if said else "(it said nothing)"

    def measure(self) -> None:
        """Measures the longest pause after each loss, or after several that come together."""
        losses = [fault.at for fault in self.faults if fault.is_loss]
        events: list[list[float]] = []
        for at in losses:
            if events and at - events[-1][-1] < 2:
                events[-1].append(at)
            else:
                events.append([at])
        for number, event in enumerate(events):
            end = events[number + 1][0] if number + 1 < len(events) else event[-1] + 30
            for rank in self.left:
                pause = pause_of(self.ranks.times(rank), event[0], end)
                if pause is not None:
                    self.pauses.append(pause.extra)
        gaps = [
            later - earlier
            for rank in self.left
            for times in [self.ranks.times(rank)]
            for earlier, later in zip(times, times[1:])
        ]
        self.normal = statistics.median(gaps) if gaps else 0.0

    def longest_gap(self, begin: float, end: float) -> float:
        pauses = [pause_of(self.ranks.times(rank), begin, end) for rank in self.left]
        return max((pause.seconds for pause in pauses if pause is not None), default=0.0)

    def go_on_from_checkpoint(self) -> None:
        """Begins a new job with the checkpoint of the first one."""
        settings = dataclasses.replace(
            self.settings, load=str(self.ranks.checkpoint), first=self.settings.steps, steps=4
        )
        world = max(2, len(self.left))
        with Ranks(self.lab, self.folder / "next", world, settings) as following:
            following.wait_for_end(range(world), 60, "a new job from the checkpoint")
            codes = [following.code(rank) for rank in range(world)]
            self.check(codes == [0] * world, f"the new job ended with {codes}")
            self.problems += [f"new job: {text}" for text in following.replay()["problems"]]

    def row(self) -> dict[str, Any]:
        return {
            "faults": [fault.text for fault in self.faults],
            "settings": dataclasses.asdict(self.settings),
            "members": self.world,
            "left": len(self.left),
            "steps": self.result.get("steps", 0),
            "compared": self.result.get("compared", 0),
            "normal_s": round(self.normal, 4),
            "pauses_s": [round(pause, 4) for pause in self.pauses],
            "seconds": round(now() - self.begun, 1),
            "notes": self.notes,
            "problems": self.problems,
        }

    def describe(self, lines: int = 25) -> str:
        """Returns the last lines of all ranks, without those of steps."""
        texts = []
        for rank in range(self.world):
            text = self.ranks.logs[rank].text().splitlines()
            said = [line for line in text if not line.startswith("step=")]
            last = f"[{rank}] ended with {self.ranks.code(rank)}, step {self.ranks.last_step(rank)}"
            texts += [*(f"[{rank}] {line}" for line in said[-lines:]), last]
        return "\n".join(texts)


# Kinds of faults. Each is given a job that trains, and leaves it judged.


def kills(trial: Trial) -> None:
    """One or two members are killed, the second one often while the first is being replaced."""
    luck = trial.luck
    victims = luck.sample(range(trial.world), luck.choice((1, 2)))
    first = trial.random_step()
    trial.wait_for_step(first)
    trial.kill(victims[0])
    for victim in victims[1:]:
        if luck.random() < 0.6:
            time.sleep(luck.choice((0.0, 0.01, 0.1, 0.5)) * luck.uniform(0.5, 1.5))
        else:
            trial.wait_for_step(luck.randrange(first + 1, trial.settings.steps - 1))
        trial.kill(victim)
    trial.judge()


def to_one(trial: Trial) -> None:
    """Members are killed until one is left."""
    victims = trial.luck.sample(range(trial.world), trial.world - 1)
    share = max(2, trial.settings.steps // (trial.world + 1))
    for number, victim in enumerate(victims):
        trial.wait_for_step(share * (number + 1) + trial.luck.randrange(-1, 2))
        trial.kill(victim)
    trial.judge()


def end(trial: Trial) -> None:
    """A member is killed in the last steps, while others may have ended."""
    trial.wait_for_step(trial.settings.steps - 1 - trial.luck.randrange(1, 4))
    time.sleep(trial.luck.uniform(0.0, 0.2))
    trial.kill(trial.luck.randrange(trial.world))
    trial.judge()


def cut(trial: Trial) -> None:
    """The host of a member is cut off silently. It hears of its fate when the network is whole
    again, before or after the others have ended."""
    victim = trial.luck.randrange(trial.world)
    trial.wait_for_step(trial.random_step(0.3))
    trial.note_fault(f"cut {victim}", is_loss=True)
    trial.lab.call("cut", "--host", str(victim))
    trial.turned_out.add(victim)
    trial.make_steps(5, "after the cut")
    if trial.luck.random() < 0.5:
        trial.wait_for_survivors()
    trial.note_fault("heal")
    trial.lab.call("heal")
    trial.judge()


def stop(trial: Trial) -> None:
    """A member is stopped for longer than the silence limit, and wakes up."""
    victim = trial.luck.randrange(trial.world)
    trial.wait_for_step(trial.random_step(0.3))
    trial.note_fault(f"stop {victim}", is_loss=True)
    trial.ranks.signal(victim, signal.SIGSTOP)
    trial.turned_out.add(victim)
    trial.make_steps(5, "without the stopped member")
    if trial.luck.random() < 0.5:
        trial.wait_for_survivors()
    trial.note_fault(f"wake {victim}")
    trial.ranks.signal(victim, signal.SIGCONT)
    trial.judge()


def blink(trial: Trial) -> None:
    """Members are stopped for less than the silence limit: nobody is lost."""
    for _ in range(3):
        victim = trial.luck.randrange(trial.world)
        trial.wait_for_step(trial.ranks.last_step(0) + trial.luck.randrange(1, 6))
        trial.note_fault(f"stop {victim} shortly")
        trial.ranks.signal(victim, signal.SIGSTOP)
        time.sleep(trial.luck.uniform(0.1, 0.9))
        trial.ranks.signal(victim, signal.SIGCONT)
    trial.judge()


def leader(trial: Trial) -> None:
    """etcd's leader is killed together with a member."""
    victim = trial.luck.randrange(trial.world)
    server = trial.lab.leader()
    trial.wait_for_step(trial.random_step())
    first, second = trial.luck.sample(("leader", "member"), 2)
    for what in (first, second):
        if what == "member":
            trial.kill(victim)
        else:
            trial.note_fault("kill etcd's leader")
            server.kill()
        time.sleep(trial.luck.choice((0.0, 0.05, 0.3)) if what == first else 0.0)
    trial.judge()


def rolling(trial: Trial) -> None:
    """Every etcd server is killed and started again, one by one; then a member is killed."""
    for server in trial.lab.servers:
        trial.make_steps(3, "between two servers")
        trial.note_fault(f"kill etcd {server.host}")
        server.kill()
        trial.make_steps(2, "without a server")
        server.start()
    trial.lab.leader()
    trial.kill(trial.luck.randrange(trial.world))
    trial.judge()


def stop_etcd(trial: Trial, seconds: float) -> None:
    trial.note_fault(f"stop etcd for {seconds:.0f} s")
    for server in trial.lab.servers:
        server.stop()


def wake_etcd(trial: Trial) -> None:
    trial.note_fault("wake etcd")
    for server in trial.lab.servers:
        server.go_on()


def etcd_away(trial: Trial, seconds: float = 30) -> None:
    """All etcd servers are away for a while, and nobody is lost: training goes on."""
    trial.wait_for_step(3)
    begin = now()
    stop_etcd(trial, seconds)
    while now() - begin < seconds and all(trial.ranks.code(r) is None for r in trial.left):
        time.sleep(0.05)
    took = now() - begin
    steps = [trial.ranks.last_step(rank) for rank in trial.left]
    gap = trial.longest_gap(begin, now())
    wake_etcd(trial)
    trial.judge()
    trial.check(took >= seconds, f"the job was over after {took:.1f} s without etcd")
    trial.check(gap < 2, f"a step took {gap:.1f} s while etcd was away (steps {steps})")
    said = [rank for rank in trial.left if FROZEN in trial.ranks.logs[rank].text()]
    trial.check(len(said) == trial.world, f"only members {said} have said that etcd is away")
    trial.notes.append(f"longest step without etcd {gap:.2f} s")


def frozen(trial: Trial, seconds: float = 5) -> None:
    """A member is killed while all etcd servers are away: the others wait, and then go on."""
    trial.wait_for_step(trial.random_step())
    stop_etcd(trial, seconds)
    trial.kill(trial.luck.randrange(trial.world))
    before = {rank: trial.ranks.last_step(rank) for rank in trial.left}
    time.sleep(seconds)
    after = {rank: trial.ranks.last_step(rank) for rank in trial.left}
    far = {rank: after[rank] for rank in after if after[rank] > max(before.values()) + 2}
    trial.check(not far, f"without etcd and a member, steps were made: {before}, then {after}")
    wake_etcd(trial)
    trial.judge()


def leases(trial: Trial) -> None:
    """Somebody revokes all leases: nobody is lost by that. Then a member is killed."""
    trial.wait_for_step(trial.random_step(0.3))
    count = trial.lab.revoke_leases()
    trial.note_fault(f"revoke {count} leases")
    trial.check(count >= trial.world, f"there were {count} leases")
    trial.make_steps(5, "after the leases were revoked")
    trial.kill(trial.luck.randrange(trial.world))
    trial.judge()


def wipe(trial: Trial) -> None:
    """Somebody deletes all that the job has in etcd. Then a member is killed. The others may not go
    on: they cannot know that nobody has turned them out. All end with an error that says so."""
    trial.wait_for_step(trial.random_step(0.3))
    trial.note_fault(f"delete {trial.lab.delete_everything()} keys")
    trial.make_steps(3, "after the keys were deleted")
    trial.kill(trial.luck.randrange(trial.world))
    trial.expect_errors(trial.left, FORGOTTEN)


def too_few(trial: Trial) -> None:
    """Fewer members are left than SLUICE_MIN_MEMBERS: all end with an error that says so."""
    for victim in trial.luck.sample(range(trial.world), 2):
        trial.wait_for_step(trial.ranks.last_step(trial.left[0]) + 3)
        trial.kill(victim)
        if len(trial.killed) == 1:
            trial.make_steps(3, "with as many members as are wanted")
    trial.expect_errors(trial.left, TOO_FEW)
    for rank in trial.left:
        states = {record["step"]: record["state"] for record in trial.ranks.steps(rank)}
        other = {r["step"]: r["state"] for r in trial.ranks.steps(trial.left[0])}
        differing = [step for step in states if other.get(step, states[step]) != states[step]]
        trial.check(not differing, f"member {rank} has other bits in steps {differing}")


def rate_of(ranks: Ranks, members: Iterable[int], begin: float = 0.0) -> float:
    """Returns the steps per second of a member, the mean of all, after the first steps."""
    rates = []
    for rank in members:
        times = [at for at in ranks.times(rank)[3:] if at >= begin]
        rates.append((len(times) - 1) / (times[-1] - times[0]))
    return statistics.mean(rates)


def dwindle(trial: Trial, every: float = 30) -> None:
    """A member is killed every `every` seconds until two are left. Their steps per second are those
    of a job that loses nobody."""
    victims = trial.luck.sample(range(trial.world), trial.world - 2)
    trial.ranks.wait_for_step(5, trial.left)
    begun = now()
    for number, victim in enumerate(victims):
        while now() < begun + every * (number + 1) and trial.ranks.code(victim) is None:
            time.sleep(0.05)
        trial.kill(victim)
    trial.judge()
    disturbed = rate_of(trial.ranks, trial.left)
    settings = dataclasses.replace(trial.settings, steps=max(60, trial.settings.steps // 8))
    with Ranks(trial.lab, trial.folder / "calm", trial.world, settings, **PATIENT) as calm:
        calm.wait_for_end(range(trial.world), trial.patience(), "a job that loses nobody")
        undisturbed = rate_of(calm, range(trial.world))
    share = disturbed / undisturbed
    trial.check(share >= 0.9, f"members make {share:.2f} of the steps of a job that loses nobody")
    trial.notes.append(
        f"{disturbed:.3f} steps per second and member, {undisturbed:.3f} undisturbed: {share:.3f}"
    )


# Members on the first side, and the side of the etcd servers: `both` sides reach all of them, and
# `split` puts two on the first side and one on the second.
PARTITIONS = ((2, "first"), (3, "second"), (3, "first"), (2, "both"), (3, "both"), (2, "split"))


def partition(trial: Trial, number: int = 0) -> None:
    """Four members are cut into two sides. At most one side goes on."""
    size, etcd = PARTITIONS[number % len(PARTITIONS)]
    first = sorted(trial.luck.sample(range(trial.world), size))
    second = [rank for rank in range(trial.world) if rank not in first]
    servers = trial.lab.etcd_hosts
    trial.wait_for_step(trial.random_step(0.3))
    trial.note_fault(f"cut {first} from {second}, etcd: {etcd}", is_loss=True)
    if etcd == "first":
        trial.lab.cut_apart(second, servers)
    elif etcd == "second":
        trial.lab.cut_apart(first, servers)
    elif etcd == "split":
        trial.lab.cut_apart(first, servers[2:])
        trial.lab.cut_apart(second, servers[:2])
        trial.lab.cut_apart(servers[:2], servers[2:])
    trial.lab.cut_apart(first, second)
    at_cut = max(trial.ranks.last_step(rank) for rank in range(trial.world))

    def is_over(side: list[int]) -> bool:
        return all(trial.ranks.code(rank) is not None for rank in side)

    def is_ahead(side: list[int]) -> bool:
        return any(trial.ranks.last_step(rank) > at_cut + 2 for rank in side)

    winners = {"first": [first], "split": [first], "second": [second], "both": [first, second]}[
        etcd
    ]
    trial.ranks.wait_until(
        lambda: (
            any(is_over(side) and is_ahead(side) for side in winners)
            or (is_over(first) and is_over(second))
        ),
        trial.patience(),
        f"one side of {first} and {second} goes on",
    )
    ahead = [side for side in (first, second) if is_ahead(side)]
    trial.check(len(ahead) == 1, f"sides {ahead} of {first} and {second} have gone on")
    if len(ahead) != 1:
        return
    trial.check(ahead[0] in winners, f"side {ahead[0]} has gone on without etcd")
    trial.turned_out = {rank for rank in range(trial.world) if rank not in ahead[0]}
    if etcd == "both":  # the others must learn it from etcd
        trial.ranks.wait_for_end(trial.turned_out, 60, "the other side learns of the new epoch")
    trial.note_fault("heal")
    trial.lab.call("heal")
    trial.judge()


def half(trial: Trial) -> None:
    """Two members do not hear each other, but the others and etcd: one of the two goes, or several
    if all witnesses are heard; the members that are left go on."""
    one, other = sorted(trial.luck.sample(range(trial.world), 2))
    trial.wait_for_step(trial.random_step(0.3))
    trial.note_fault(f"cut {one} from {other}", is_loss=True)
    trial.lab.cut_apart([one], [other])
    everybody = range(trial.world)
    trial.ranks.wait_until(
        lambda: any(trial.ranks.code(rank) is not None for rank in (one, other)),
        trial.patience(),
        f"one of {one} and {other} is turned out",
    )
    trial.ranks.wait_for_end(everybody, trial.patience(), "all have ended")
    trial.turned_out = {rank for rank in everybody if trial.ranks.code(rank) != 0}
    trial.check(
        len(trial.turned_out) == 1 and trial.turned_out <= {one, other},
        f"{trial.turned_out} are turned out, not one of {one} and {other}",
    )
    trial.judge()


WHAT: dict[str, Callable[..., None]] = {
    "kills": kills,
    "to-one": to_one,
    "end": end,
    "cut": cut,
    "half": half,
    "partition": partition,
    "stop": stop,
    "blink": blink,
    "leader": leader,
    "rolling": rolling,
    "etcd-away": etcd_away,
    "frozen": frozen,
    "leases": leases,
    "wipe": wipe,
    "too-few": too_few,
    "dwindle": dwindle,
    "forger": forger,
    "rerun": rerun,
    "deleted": deleted,
}

# Variables of the ranks, and the number of ranks, where they are others than usual. A busy machine
# may not run a rank for a while, so a silent rank counts as lost later where silence is not tested.
PATIENT = {"SLUICE_SILENCE_LIMIT": "10s"}
SILENT = ("cut", "half", "partition", "stop", "blink", "deleted")
LONG = ("cut", "stop", "blink", "partition", "half", "rolling", "leases", "wipe", "forger")
WORLDS = {"partition": 4, "deleted": 4, "dwindle": 8}


def variables_for(what: str) -> dict[str, str]:
    if what == "too-few":
        return PATIENT | {"SLUICE_MIN_MEMBERS": "4"}
    if what == "rerun":
        return PATIENT | {"SLUICE_JOB": "rerun"}
    return {} if what in SILENT else PATIENT


def choose_settings(luck: random.Random, what: str, fixed: dict[str, Any]) -> Settings:
    """Draws the settings that are not fixed."""
    drawn = {
        "model": luck.choice(("mlp", "cnn", "branches")),
        "optimizer": luck.choice(("sgd", "adam")),
        "accumulate": luck.choice((1, 1, 2)),
        "clip": luck.choice((0.0, 0.0, 0.5)),
        "scale": luck.choice((0.0, 0.0, 1024.0)),
        "algorithm": luck.choice(RANK_ORDER),
    }
    if what in LONG:
        drawn |= {"steps": 60, "pause": 0.08}
    if what == "deleted":
        drawn |= {"steps": 200, "pause": 0.08}
    return Settings(**{**drawn, **fixed})
