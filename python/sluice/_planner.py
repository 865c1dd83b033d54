"""The planner of algorithm="auto": the command `sluice plan`, which rank 0 runs beside its training
at low priority. Nobody waits for it: it is looked at between two steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Steps below this process: a tenth of a core where all of them compute. At the lowest priority the
# planner would not end there.
_NICER = 10
_MOST_BYTES = 16 << 20  # of an answer
EXACT = "same bits"  # the class of plans that auto may change to


class PlannerError(Exception):
    """The planner gave no plan; the text says why, in one line."""


@dataclass(frozen=True)
class Candidate:
    """One plan, and how long the planner expects an iteration to take with it."""

    algorithm: str
    settings: dict[str, str] = field(default_factory=dict)  # by the options' names
    seconds: float = 0.0

    def describe(self) -> str:
        """Describes the plan in words: "p3, slice-elements=50000"."""
        return ", ".join(
            [self.algorithm, *(f"{key}={self.settings[key]}" for key in self.settings)]
        )


@dataclass(frozen=True)
class Answer:
    candidates: list[Candidate]  # of the class "same bits", the fastest first
    cause: str  # one sentence


class Planner:
    """At most one run at a time. The program gets no variable of ours: it plans for this job, and
    is no part of it."""

    def __init__(self, program: str | None, timeout: float) -> None:
        self._program, self._timeout = program, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._began = 0.0

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, profile: dict[str, Any], network: dict[str, Any], hosts: int) -> None:
        if self._program is None:
            raise PlannerError("there is no program 'sluice' here; install the package anew")
        self.end()
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-plan-")
        folder = Path(self._folder.name)
        words = [self._program, "plan", "--profile", str(folder / "profile.json"), "--network",
                 str(folder / "network.json"), "--hosts", str(hosts),
                 "--only", "same-bits", "--json", "-"]  # fmt: skip
        try:
            (folder / "profile.json").write_text(json.dumps(profile))
            (folder / "network.json").write_text(json.dumps(network))
            with (folder / "answer").open("wb") as answer, (folder / "errors").open("wb") as errors:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=answer,
                    stderr=errors,
                    env=_environment(),
                    start_new_session=True,
                )
            nice = os.getpriority(os.PRIO_PROCESS, 0) + _NICER
            os.setpriority(os.PRIO_PROCESS, self._process.pid, nice)
        except ProcessLookupError:
            pass  # it has ended already
        except OSError as error:
            self.end()
            raise PlannerError(f"{self._program} cannot be run: {error.strerror}") from None
        self._began = time.monotonic()

    def take(self) -> Answer | None:
        """Returns the answer once it is here; None before. Raises if there will be none."""
        assert self._process is not None and self._folder is not None
        folder = Path(self._folder.name)
        code = self._process.poll()
        if code is None and time.monotonic() - self._began < self._timeout:
            return None
        try:
            if code is None:
                raise PlannerError(f"it has not answered in {self._timeout:g} s")
            if code != 0:
                raise PlannerError(f"it ended with code {code}: {_last_line(folder / 'errors')}")
            if (folder / "answer").stat().st_size > _MOST_BYTES:
                raise PlannerError(f"its answer has more than {_MOST_BYTES} bytes")
            return read_answer((folder / "answer").read_bytes())
        finally:
            self.end()

    def end(self) -> None:
        """Ends a run that is under way, and removes its files."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def read_answer(text: bytes) -> Answer:
    """Reads the planner's JSON. Leaves out plans of other classes; raises if it is no answer."""
    try:
        document = json.loads(text)
        found = [_read_candidate(one) for one in document["candidates"] if one["class"] == EXACT]
        cause = document.get("cause", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PlannerError("its answer is not the JSON of a plan") from None
    if not found:
        raise PlannerError(f"it has found no plan of the class '{EXACT}'")
    cause = " ".join(str(cause).split())[:300]
    return Answer(sorted(found, key=lambda one: one.seconds), cause)


def _read_candidate(one: dict[str, Any]) -> Candidate:
    seconds = float(one["iteration_s"])
    if not 0 < seconds < 1e6:
        raise ValueError(seconds)
    settings = {str(key): option_text(value) for key, value in one.get("settings", {}).items()}
    return Candidate(str(one["algorithm"]), settings, seconds)


def option_text(value: Any) -> str:
    """Returns a value of JSON as an option is written."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(value)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        lines = file.read(1 << 16).decode(errors="replace").strip().splitlines()
    return " ".join(lines[-1].split())[:200] if lines else "it said nothing"
