"""Rank 0's part of algorithm="auto": from the figures of all ranks to the word whether the plan
changes. Never waits: the ranks' figures and the planner's answer come when they come."""

from __future__ import annotations

from typing import Any

from sluice import _core
from sluice._forecast import Forecast, ratio
from sluice._job import Job
from sluice._measured import Measured, network, profile, together
from sluice._planner import Answer, Candidate, Planner, PlannerError
from sluice._program import find_program
from sluice._slots import described
from sluice._training import Training

Word = dict[str, Any]

_PAYS_FIRST = 0.01  # of an iteration: the first change must save more
_PAYS_LATER = 0.05
_CHANGED = 1.1  # a network that is so much faster or slower is planned for anew
_CHANGED_MUCH = 1.5  # so much at once, also if hardly anything waits for the network
# Figures that are passed over after a run of the planner for a small change; after each further
# one, twice as many. Rates swing by themselves, and a plan may make its own rate.
_PASSED_OVER = 2
_EXPOSED = 0.02  # of an iteration: with shorter waits no plan can save much
_MERGING = ("mgwfbp", "mgp3")  # algorithms that go by layer times
_BY_MEASURING = ("layer-times", "compute-time", "reduction-rate")  # their settings


def hash_of(training: Training, algorithm: str, settings: dict[str, str]) -> str:
    """Returns the hash of a plan. Raises if it cannot be made, or would give other bits."""
    tensors = described(training.slots)
    return _core.exact_plan(training.job.core, training.name, tensors, algorithm, settings)


class Advisor:
    """Runs the planner when the figures are worth it, and makes a word of its answer."""

    def __init__(self, training: Training) -> None:
        job = training.job
        self._training, self._job = training, job
        self._planner = Planner(
            job.option("auto-planner") or find_program(), job.seconds("auto-planner-timeout")
        )
        self._has_complained = False
        self.start_over()

    def start_over(self) -> None:
        """Forgets all figures."""
        self.end()
        self._gathering: _core.Gathering | None = None
        self._tensors: list[dict[str, Any]] = []  # of the last window
        self._asked: Measured | None = None  # the figures of the planner's last run
        self._before: Measured | None = None  # those of the run before
        self._profile: dict[str, Any] = {}  # of the last run
        self._has_planned = False
        self._pause = 0  # figures that were passed over after the last run
        self._passed = 0  # are still to be passed over

    def end(self) -> None:
        """Ends a planner that is still at work."""
        self._planner.end()

    def take(self, gathering: _core.Gathering, tensors: list[dict[str, Any]]) -> None:
        """Takes the figures of a window: those of all ranks, and the layer times of this one."""
        self._gathering, self._tensors = gathering, tensors

    def advance(self, plan: Candidate) -> Word:
        """Starts the planner, or makes a word of its answer; empty if there is nothing to say.
        `plan` is the one in use."""
        try:
            if self._planner.is_running:
                answer = self._planner.take()
                return {} if answer is None else self._decide(answer, plan)
            values = None if self._gathering is None else self._gathering.values
            if values is not None:
                self._gathering = None
                self._consider([Measured.read(value) for value in values])
        except PlannerError as error:
            self.complain(plan, f"the planner gave no plan: {error}")
        except (RuntimeError, TimeoutError, OSError) as error:
            self._gathering = None
            self.complain(plan, f"the ranks' figures did not come: {error}")
        return {}

    def complain(self, plan: Candidate, why: str) -> None:
        """Says once that a plan was not found, or not used."""
        if not self._has_complained:
            _core.say(f"auto: '{self._training.name}' stays with {plan.describe()}, since {why}")
        self._has_complained = True

    def _consider(self, ranks: list[Measured | None]) -> None:
        """Runs the planner if the window's figures are worth it."""
        known = [one for one in ranks if one is not None]
        if len(known) < len(ranks):
            raise PlannerError("a rank has sent figures that cannot be right")
        now = together(known)
        if now.compute <= 0 or now.rate <= 0:
            raise PlannerError("layer times or the rate of the network could not be measured")
        if not self._is_worth_it(now):
            self._passed = max(0, self._passed - 1)
            return
        self._before, self._asked = self._asked, now
        self._profile = profile(self._training.name, now, self._tensors)
        there = network(known, encrypted=_is_encrypted(self._job))
        self._planner.start(self._profile, there, self._job.world_size)

    def _is_worth_it(self, now: Measured) -> bool:
        """True iff another plan may pay by now."""
        if self._asked is None or _how_much(self._asked, now) >= _CHANGED_MUCH:
            return True
        is_exposed = now.waited > _EXPOSED * now.iteration
        is_due = self._passed == 0
        return is_due and is_exposed and ratio(self._asked.rate, now.rate) >= _CHANGED

    def _decide(self, answer: Answer, plan: Candidate) -> Word:
        assert self._asked is not None
        asked = self._asked
        usable = [one for one in answer.candidates if self._can_use(one)]
        if not usable:
            raise PlannerError("none of its plans can be used in this job")
        best, same = usable[0], next((one for one in usable if self._is_same(one, plan)), None)
        before = asked.iteration if same is None else same.seconds
        least = _PAYS_LATER if self._has_planned else _PAYS_FIRST
        self._has_planned = True
        pays = best.seconds < before * (1 - least)
        seconds = best.seconds if pays else before
        word: Word = {
            "forecast": Forecast(seconds, asked.compute, asked.other, asked.rate).as_json()
        }
        why = f"{asked.rate / 1e6:.0f} Mbit/s, {asked.compute * 1e3:.1f} ms of computing"
        why += f"; {answer.cause}" if answer.cause else ""
        is_new = self._before is None or _how_much(self._before, asked) >= _CHANGED_MUCH
        self._pause = _PASSED_OVER if is_new else 2 * self._pause
        self._passed = self._pause
        if not pays:
            if is_new:
                _core.say(
                    f"auto: after round {self._training.spent.rounds} '{self._training.name}' "
                    f"stays with {plan.describe()}: no plan with the same bits is faster by more "
                    f"than {least:.0%}; {why}"
                )
            return word
        return word | {
            "algorithm": best.algorithm,
            "settings": best.settings,
            "profile": self._profile if best.algorithm in _MERGING else None,
            "reason": f"changes from {plan.describe()} to {best.describe()}, with which an "
            f"iteration should take {seconds * 1e3:.1f} ms instead of {before * 1e3:.1f} ms: {why}",
        }

    def _can_use(self, plan: Candidate) -> bool:
        settings = {key: value for key, value in plan.settings.items() if key != "layer-times"}
        try:
            hash_of(self._training, plan.algorithm, settings)
        except (ValueError, RuntimeError):
            return False
        return True

    def _is_same(self, one: Candidate, other: Candidate) -> bool:
        """True iff both are one plan: a setting that a plan does not name is the job's."""
        keys = {*one.settings, *other.settings} - set(_BY_MEASURING)
        return one.algorithm == other.algorithm and all(
            self._setting(one, key) == self._setting(other, key) for key in keys
        )

    def _setting(self, plan: Candidate, key: str) -> str:
        return plan.settings[key] if key in plan.settings else self._job.option(key)


def _how_much(before: Measured, now: Measured) -> float:
    """Returns how many times the network or the model is as fast as before, or as slow."""
    return max(ratio(before.rate, now.rate), ratio(before.compute, now.compute))


def _is_encrypted(job: Job) -> bool:
    wanted = job.option("encrypt")
    is_loopback = job.core.address.startswith("127.") or job.core.address == "::1"
    return wanted == "on" or (wanted == "auto" and not is_loopback)
