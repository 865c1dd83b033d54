"""algorithm="auto": training begins with `sluice`, and changes to the best plan that gives the same
bits.

Time is counted in rounds of gradients, which all ranks count alike. A *window* of auto-steps rounds
is measured on every rank, and its figures go to rank 0, for which nobody waits. Rank 0 runs the
planner beside its training (_advisor.py). At every *beat*, a quarter of a window, a window ends and
another one begins, and rank 0 tells the others in a short broadcast whether the plan changes here.
If so, every rank checks the plan, and they compare its hash; then nothing is on its way, a session
with the new plan opens beside the old one, and the old one ends. Any failure of the planner leaves
the plan as it is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sluice import _core
from sluice._advisor import Advisor, Word, hash_of
from sluice._forecast import Forecast, compare
from sluice._job import Job
from sluice._measured import Window, bits
from sluice._planner import Candidate
from sluice._training import Training

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

FIRST = Candidate("sluice")


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
        self._training, self._job, self._change_session = training, training.job, change
        self._steps = int(self._job.option("auto-steps"))
        self._beat = max(1, self._steps // 4)
        self._next_beat = self._beat
        self._ended = 0  # windows
        self._files: tempfile.TemporaryDirectory[str] | None = None  # that the plan uses
        self._advisor = Advisor(training) if self._job.rank == 0 else None
        self._word: Word = {}  # rank 0's, for the next beat
        self._begin()

    def start_over(self) -> None:
        """Begins anew, since others of the parameters are trained."""
        if self._advisor is not None:
            self._advisor.start_over()
        self._begin()

    def _begin(self) -> None:
        self._plan = FIRST
        self._training.algorithm, self._training.settings = FIRST.algorithm, {}
        self._windows: list[Window] = []  # the oldest first, one from each beat
        self._word = {}
        # For the report: the prediction for the plan in use, and the rounds since it was made.
        self._forecast: Forecast | None = None
        self._since: Window | None = None

    def end(self) -> None:
        """Ends all that runs beside the training."""
        if self._advisor is not None:
            self._advisor.end()

    def report(self) -> list[str]:
        """Returns the lines of sluice.report()."""
        if self._forecast is None or self._since is None:
            return [f"  plan by auto: {self._plan.describe()}; not planned yet"]
        return compare(self._plan.describe(), self._forecast, self._since)

    def before_step(self) -> None:
        """Goes on with measuring and planning, between two rounds. Waits for rank 0 at a beat."""
        # After an exception in _hear() the same is told again.
        is_telling = bool(self._word) or self._job.health.is_owed(self)
        if self._advisor is not None and not is_telling:
            self._word = self._advisor.advance(self._plan)
        for window in (*self._windows, *([] if self._since is None else [self._since])):
            window.note()
        rounds = self._training.spent.rounds
        if rounds < self._next_beat:
            return
        at, word = self._hear(rounds)
        self._next_beat = at + self._beat
        if "algorithm" in word:
            self._change(rounds, at, word)
            return
        if "forecast" in word:
            self._forecast = Forecast.from_json(word["forecast"])
            self._since = Window(self._training)
        if self._windows and rounds - self._windows[0].rounds >= self._steps:
            self._end_window(self._windows.pop(0))
        self._windows.append(Window(self._training))

    def _hear(self, rounds: int) -> tuple[int, Word]:
        """Returns rank 0's round and its word. Most beats have none, and cost a few bytes. The call
        can be made again after an exception: the word stays until it is told."""
        text = json.dumps(self._word).encode() if self._word else b""
        here = torch.tensor([rounds, len(text)], device="cpu")
        (there,) = self._job.receive_together(self, [here])
        self._job.received(self)
        at, size = there.tolist()
        text = self._job.bytes_of(0, text, size)
        self._word = {}
        word: dict[str, Any] = json.loads(text) if text else {}
        return at, word

    def _end_window(self, window: Window) -> None:
        measured, tensors = window.look()
        self._ended += 1
        key = f"auto/{self._training.name}/{self._ended}"
        gathering = _core.Gathering(self._job.core, key, measured.text().encode())
        if self._advisor is not None:
            self._advisor.take(gathering, tensors)

    def _change(self, rounds: int, at: int, word: Word) -> None:
        """Changes to rank 0's plan if every rank can."""
        job, name = self._job, self._training.name
        if rounds != at:
            self._training.health.fail(
                f"rank 0 changes its plan after round {at}, but rank {job.rank} is in "
                f"round {rounds}: one of them has skipped or repeated a backward pass"
            )
        plan = Candidate(word["algorithm"], word["settings"])
        settings: dict[str, str] = {}
        try:
            settings = self._settings(word)
            mine = f"plan {hash_of(self._training, plan.algorithm, settings)}"
        except (ValueError, RuntimeError, OSError) as error:
            mine = f"error {error}"
        refusal = next((text for text in job.brought(mine) if not text.startswith("plan ")), None)
        if refusal is not None:
            if self._advisor is not None:
                why = f"a rank refuses the plan {plan.describe()}: {refusal[6:]}"
                self._advisor.complain(self._plan, why)
            return
        # The opening compares the plans, too, and names the first difference.
        self._change_session(Candidate(plan.algorithm, settings))
        self._plan = plan
        self._forecast = Forecast.from_json(word["forecast"])
        self._since, self._windows = Window(self._training), [Window(self._training)]
        if job.rank == 0:
            _core.say(f"auto: after round {rounds} '{name}' {word['reason']}")

    def _settings(self, word: Word) -> dict[str, str]:
        """Returns the plan's settings. Algorithms that merge go by the layer times that rank 0 has
        measured, which are in a file of this rank's own."""
        settings = dict(word["settings"])
        if word["profile"] is None:
            return settings
        files = tempfile.TemporaryDirectory(prefix="sluice-auto-")
        path = Path(files.name) / "profile.json"
        path.write_text(json.dumps(word["profile"]))
        self._files = files  # the files of the plan before are removed
        forecast = word["forecast"]
        settings.setdefault("compute-time", f"{max(1, round(1e6 * forecast['compute']))}us")
        settings.setdefault("reduction-rate", bits(forecast["rate"]))
        return {**settings, "layer-times": str(path)}
