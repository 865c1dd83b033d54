"""algorithm="auto": training begins with `sluice`, and changes to the best plan that gives the same
bits.

Time is counted in rounds of gradients, which all ranks count alike. A *window* of auto-steps rounds
is measured on every rank, and its figures go to rank 0, for which nobody waits. Rank 0 runs the
planner beside its training (_planner.py). At every *beat*, a quarter of a window, rank 0 tells the
others in a short broadcast whether the plan changes here. If so, every rank checks the plan, and
they compare its hash; then nothing is on its way, a session with the new plan opens beside the old
one, and the old one ends. Any failure of the planner leaves the plan as it is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sluice import _core
from sluice._forecast import Forecast, compare, ratio
from sluice._job import Job
from sluice._measured import Measured, Window, bits, network, profile, together
from sluice._planner import Answer, Candidate, Planner, PlannerError
from sluice._program import find_program
from sluice._slots import described
from sluice._training import Training

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

FIRST = Candidate("sluice")
_WORD_BYTES = 8192  # of a beat's broadcast
_PAYS_FIRST = 0.01  # of an iteration: the first change must save more
_PAYS_LATER = 0.05
_CHANGED = 1.1  # a network that is so much faster or slower is planned for anew
_CHANGED_MUCH = 2.0  # this also if hardly anything waits for the network
_OTHER_MODEL = 1.5  # and so are layer times
_EXPOSED = 0.02  # of an iteration: with shorter waits no plan can save much
_MERGING = ("layer-times", "compute-time", "reduction-rate")


def refuse(job: Job, *, server_optimizer: bool, process_group: ProcessGroup | None) -> None:
    """Reports settings with which plans cannot change during training."""
    if not job.is_auto:
        return
    if job.option("algorithm") != "auto":
        raise ValueError(
            f"'{job.option('algorithm')}': auto takes nothing after a colon; use algorithm=auto"
        )
    if int(job.option("auto-steps")) < 1:
        raise ValueError(
            f"auto-steps is a number of steps, at least 1, not {job.option('auto-steps')}"
        )
    found = {
        "server_optimizer=True": server_optimizer,
        "process_group": process_group is not None,
        "dgc": job.is_on("dgc"),
        f"codec={job.option('codec')}": job.option("codec") != "none",
        "overlap": job.is_on("overlap"),
        "survive-loss": job.is_on("survive-loss"),
    }
    what = next((name for name, is_set in found.items() if is_set), None)
    if what is not None:
        raise ValueError(
            f"algorithm=auto changes plans during training, which {what} does not allow; leave it "
            "out, or name an algorithm instead of auto"
        )


class Auto:
    """The plan of one model, which follows the network. `change` opens a session with another plan;
    all of it runs on the training thread."""

    def __init__(self, training: Training, change: Callable[[Candidate], None]) -> None:
        job = training.job
        self._training, self._job, self._change_session = training, job, change
        self._steps = int(job.option("auto-steps"))
        self._beat = max(1, self._steps // 4)
        self._next_beat = self._beat
        self._plan = FIRST
        self._window: Window | None = None
        self._windows = 0  # that have ended
        self._files: tempfile.TemporaryDirectory[str] | None = None
        # For the report: the prediction for the plan in use, and the rounds since it was made.
        self._forecast: Forecast | None = None
        self._since: Window | None = None
        # Rank 0 only.
        self._planner = Planner(
            job.option("auto-planner") or find_program(), job.seconds("auto-planner-timeout")
        )
        self._gathering: _core.Gathering | None = None
        self._tensors: list[dict[str, Any]] = []  # of the last window
        self._asked: Measured | None = None  # the figures of the last run of the planner
        self._document: dict[str, Any] = {}  # its profile
        self._word: dict[str, Any] = {}  # for the next beat
        self._has_failed = False
        training.algorithm, training.settings = FIRST.algorithm, {}

    def start_over(self) -> None:
        """Begins anew, since others of the parameters are trained."""
        self.end()
        self._plan, self._window, self._gathering = FIRST, None, None
        self._forecast, self._since, self._asked, self._word = None, None, None, {}
        self._training.algorithm, self._training.settings = FIRST.algorithm, {}

    def end(self) -> None:
        """Ends a planner that is still at work."""
        self._planner.end()

    def report(self) -> list[str]:
        """Returns the lines of sluice.report()."""
        if self._forecast is None or self._since is None:
            return [f"  plan by auto: {self._plan.describe()}; not planned yet"]
        return compare(self._plan.describe(), self._forecast, self._since)

    def before_step(self) -> None:
        """Goes on with measuring and planning, between two rounds. Waits for rank 0 at a beat."""
        # After an exception the same word is told again.
        if self._job.rank == 0 and not self._job.health.is_owed(self):
            self._advance()
        rounds = self._training.spent.rounds
        if rounds < self._next_beat:
            return
        word = self._hear(rounds)
        self._next_beat = int(word["rounds"]) + self._beat
        if "plan" in word:
            self._agree(rounds, word)
            return  # the next window begins at the next beat, when connections are warm
        if "forecast" in word:
            self._forecast = Forecast.from_json(word["forecast"])
            self._since = Window(self._training)
        if self._window is None:
            self._window = Window(self._training)
        elif rounds - self._window.rounds >= self._steps:
            self._end_window(self._window)

    def _hear(self, rounds: int) -> dict[str, Any]:
        """Returns rank 0's word. A call that is made again after an exception hears the same."""
        self._word.setdefault("rounds", rounds)
        own = bytearray(json.dumps(self._word).encode().ljust(_WORD_BYTES))
        (heard,) = self._job.receive_together(self, [torch.frombuffer(own, dtype=torch.uint8)])
        self._job.received(self)
        self._word = {}
        word: dict[str, Any] = json.loads(bytes(heard.tolist()))
        return word

    def _end_window(self, window: Window) -> None:
        measured, self._tensors = window.look()
        self._windows += 1
        key = f"auto/{self._training.name}/{self._windows}"
        self._gathering = _core.Gathering(self._job.core, key, measured.text().encode())
        self._window = Window(self._training)

    # The change, on all ranks.

    def _agree(self, rounds: int, word: dict[str, Any]) -> None:
        """Changes to rank 0's plan if every rank can."""
        job, name = self._job, self._training.name
        if rounds != word["rounds"]:
            self._training.health.fail(
                f"rank 0 changes its plan after round {word['rounds']}, but rank {job.rank} is in "
                f"round {rounds}: one of them has skipped or repeated a backward pass"
            )
        text = job.bytes_of(0, json.dumps(self._document).encode(), int(word["profile_bytes"]))
        plan = Candidate(word["plan"], word["settings"])
        used = self._with_files(plan, text, word)
        try:
            mine = f"plan {self._hash(plan.algorithm, used)}"
        except (ValueError, RuntimeError) as error:
            mine = f"error {error}"
        answers = job.brought(mine)
        refusal = next((text for text in answers if not text.startswith("plan ")), None)
        if refusal is not None:
            self._complain(f"a rank refuses the plan {plan.describe()}: {refusal[6:]}")
            return
        # The opening compares the plans, too, and names the first difference.
        self._change_session(Candidate(plan.algorithm, used))
        self._plan = plan
        self._forecast = Forecast.from_json(word["forecast"])
        self._since, self._window = Window(self._training), None
        if job.rank == 0:
            _core.say(f"auto: after round {rounds} '{name}' {word['reason']}")

    def _with_files(self, plan: Candidate, text: bytes, word: dict[str, Any]) -> dict[str, str]:
        """Returns the plan's settings. Algorithms that merge go by the layer times that rank 0 has
        measured, which are in a file of this rank's own."""
        settings = dict(plan.settings)
        if not text:
            return settings
        files = tempfile.TemporaryDirectory(prefix="sluice-auto-")
        path = Path(files.name) / "profile.json"
        path.write_bytes(text)
        self._files = files  # removes those of the plan before
        forecast = word["forecast"]
        settings.setdefault("compute-time", f"{max(1, round(1e6 * forecast['compute']))}us")
        settings.setdefault("reduction-rate", bits(forecast["rate"]))
        return {**settings, "layer-times": str(path)}

    def _complain(self, why: str) -> None:
        """Says once that a plan was not found, or not used."""
        if self._job.rank == 0 and not self._has_failed:
            _core.say(
                f"auto: '{self._training.name}' stays with {self._plan.describe()}, since {why}"
            )
        self._has_failed = True

    # Rank 0.

    def _advance(self) -> None:
        """Starts the planner, or takes its answer; never waits."""
        if self._word:
            return  # until all ranks have heard it
        try:
            if self._planner.is_running:
                answer = self._planner.take()
                if answer is not None:
                    self._decide(answer)
                return
            values = None if self._gathering is None else self._gathering.values
            if values is not None:
                self._gathering = None
                self._consider([Measured.read(value) for value in values])
        except PlannerError as error:
            self._complain(f"the planner gave no plan: {error}")
        except (RuntimeError, TimeoutError, OSError) as error:
            self._gathering = None
            self._complain(f"the ranks' figures did not come: {error}")

    def _consider(self, ranks: list[Measured | None]) -> None:
        """Runs the planner if the window's figures are worth it."""
        known = [one for one in ranks if one is not None]
        if len(known) < len(ranks):
            raise PlannerError("a rank has sent figures that cannot be right")
        now = together(known)
        if now.compute <= 0 or now.rate <= 0:
            raise PlannerError("layer times or the rate of the network could not be measured")
        if not _is_worth_it(self._asked, now):
            return
        self._asked = now
        self._document = profile(self._training.name, now, self._tensors)
        there = network(known, encrypted=_is_encrypted(self._job))
        self._planner.start(self._document, there, self._job.world_size)

    def _decide(self, answer: Answer) -> None:
        """Makes the word for the next beat of the planner's answer."""
        assert self._asked is not None
        asked, is_first = self._asked, self._forecast is None
        usable = [one for one in answer.candidates if self._can_use(one)]
        if not usable:
            raise PlannerError("none of its plans can be used in this job")
        same = next((one for one in usable if self._is_in_use(one)), None)
        before = asked.iteration if same is None else same.seconds
        best = usable[0]
        least = _PAYS_FIRST if is_first else _PAYS_LATER
        pays = best.seconds < before * (1 - least)
        seconds = best.seconds if pays else before
        forecast = Forecast(seconds, asked.compute, asked.other, asked.rate)
        self._word = {"forecast": forecast.as_json()}
        why = f"{asked.rate / 1e6:.0f} Mbit/s, {asked.compute * 1e3:.1f} ms of computing"
        if answer.cause:
            why += f"; {answer.cause}"
        if pays and best is not same:
            is_merging = best.algorithm in ("mgwfbp", "mgp3")
            self._word |= {
                "plan": best.algorithm,
                "settings": best.settings,
                "profile_bytes": len(json.dumps(self._document).encode()) if is_merging else 0,
                "reason": f"changes from {self._plan.describe()} to {best.describe()}, with which "
                f"an iteration should take {seconds * 1e3:.1f} ms instead of "
                f"{before * 1e3:.1f} ms: {why}",
            }
            if len(json.dumps(self._word)) > _WORD_BYTES - 100:
                self._word = {}
                raise PlannerError("the settings of its best plan are too long")
        else:
            _core.say(
                f"auto: after round {self._training.spent.rounds} '{self._training.name}' stays "
                f"with {self._plan.describe()}: no plan with the same bits is faster by more than "
                f"{least:.0%}; {why}"
            )

    def _can_use(self, plan: Candidate) -> bool:
        settings = {key: value for key, value in plan.settings.items() if key != "layer-times"}
        try:
            self._hash(plan.algorithm, settings)
        except (ValueError, RuntimeError):
            return False
        return True

    def _hash(self, algorithm: str, settings: dict[str, str]) -> str:
        """Returns the hash of a plan. Raises if it cannot be made, or would give other bits."""
        training = self._training
        tensors = described(training.slots)
        return _core.exact_plan(training.job.core, training.name, tensors, algorithm, settings)

    def _is_in_use(self, plan: Candidate) -> bool:
        """True iff it is the plan of now: a setting that it does not name is the job's."""
        if plan.algorithm != self._plan.algorithm:
            return False
        ours = self._plan.settings
        return all(
            self._setting(plan.settings, key) == self._setting(ours, key)
            for key in {*plan.settings, *ours} - set(_MERGING)
        )

    def _setting(self, settings: dict[str, str], key: str) -> str:
        return settings[key] if key in settings else self._job.option(key)


def _is_worth_it(before: Measured | None, now: Measured) -> bool:
    if before is None:
        return True
    is_exposed = now.waited > _EXPOSED * now.iteration
    network_changed = ratio(before.rate, now.rate)
    return (
        network_changed >= _CHANGED_MUCH
        or (is_exposed and network_changed >= _CHANGED)
        or (is_exposed and ratio(before.compute, now.compute) >= _OTHER_MODEL)
    )


def _is_encrypted(job: Job) -> bool:
    wanted = job.option("encrypt")
    is_loopback = job.core.address.startswith("127.") or job.core.address == "::1"
    return wanted == "on" or (wanted == "auto" and not is_loopback)
