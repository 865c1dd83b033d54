"""Makes the file of results of one part: runs its commands, or calculates."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.rows import Part
from sluice_papers.reproduce.tools import Program
from sluice_papers.study import results
from sluice_papers.study.flags import OUT_OF_TIME

_LEAST_LIMIT = 300.0  # seconds that any command may take
_PATIENCE = 5.0  # times the expected time
_TO_TIDY_UP = 20.0  # seconds for a program that was told to end, which may have a lab to remove


class PartError(Exception):
    """The reason why a part has no result, in one line."""


class Runner:
    """`deadline` is a moment of time.monotonic() at which studies stop between two runs."""

    def __init__(
        self, kept: Kept, program: Program, data: Path | None, deadline: float | None = None
    ) -> None:
        self._kept = kept
        self._program = program
        self._data = data
        self._deadline = deadline
        self._is_out_of_time = False

    def make(self, part: Part) -> float:
        """Makes the file of the part, and returns the seconds it took. A failure is kept too. A
        study that was ended by its deadline is kept as partial."""
        begun = time.monotonic()
        self._is_out_of_time = False
        try:
            outcome = {"data": self._outcome(part)}
            if self._is_out_of_time:
                outcome["partial"] = True
        except PartError as failure:
            self._kept.write(
                part, time.monotonic() - begun, self._program.version, failed=str(failure)
            )
            raise
        seconds = time.monotonic() - begun
        self._kept.write(part, seconds, self._program.version, **outcome)
        return seconds

    def _outcome(self, part: Part) -> Any:
        if part.compute is not None:
            return part.compute()
        folder = self._kept.folder
        places = self.places(part)
        for name, content in part.inputs.items():
            results.write(folder / "inputs" / name, content)
        places["out"].parent.mkdir(parents=True, exist_ok=True)
        places["out"].unlink(missing_ok=True)
        self._put_back_runs(part, places["folder"])
        said = ""
        for line in part.command.splitlines():
            said = self._run(part, self._in_time(shlex.split(line.format(**places))))
        last = part.command.splitlines()[-1]
        try:
            if "{out}" in last:
                return json.loads(places["out"].read_text())
            if "-o {folder}" in last:
                return results.read(places["folder"])
            return json.loads(said)
        except (FileNotFoundError, ValueError):
            raise PartError(f"no JSON came from the command; run it by hand: {last}") from None

    def _put_back_runs(self, part: Part, folder: Path) -> None:
        """Puts the runs of an unfinished study back into its folder, which may have stayed on
        another machine."""
        runs = folder / results.RUNS
        if self._kept.is_partial(part) and not runs.is_file():
            results.write(runs, self._kept.data(part))

    def places(self, part: Part) -> dict[str, Path]:
        folder = self._kept.folder
        return {
            "out": folder / "work" / f"{part.name}.json",
            "folder": folder / "work" / part.name,
            "inputs": folder / "inputs",
            "data": self._data or Path("data"),
        }

    def _in_time(self, words: list[str]) -> list[str]:
        if self._deadline is None or words[:2] != ["sluice", "study"]:
            return words
        return [*words, "--budget", f"{max(0.0, self._deadline - time.monotonic()):.0f}s"]

    def _run(self, part: Part, words: list[str]) -> str:
        if words[0] == "sluice":
            words[0] = self._program.path
        elif words[0] == "python":
            words[0] = sys.executable
        elif shutil.which(words[0]) is None:
            raise PartError(f"there is no program {words[0]} on the PATH")
        limit = max(_LEAST_LIMIT, _PATIENCE * part.seconds)
        log = self._kept.folder / "logs" / f"{part.name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors, _started(words, errors, self._variables()) as process:
            try:
                said = process.communicate(timeout=limit)[0]
            except subprocess.TimeoutExpired:
                raise PartError(
                    f"the command had not ended after {limit:.0f} s; run it by hand"
                ) from None
        self._is_out_of_time = words[1:2] == ["study"] and process.returncode == OUT_OF_TIME
        if process.returncode != 0 and not self._is_out_of_time:
            lines = log.read_text().strip().splitlines() or [f"exit code {process.returncode}"]
            raise PartError(" ".join(lines[-1].split()))
        return said

    def _variables(self) -> dict[str, str]:
        """Returns what lets programs find this package, and the program `sluice`."""
        package = Path(__file__).absolute().parents[2]
        places = {"PYTHONPATH": package, "PATH": Path(self._program.path).parent}
        return {
            name: os.pathsep.join(filter(None, (str(place), os.environ.get(name))))
            for name, place in places.items()
        }


@contextlib.contextmanager
def _started(
    words: list[str], errors: IO[str], variables: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **variables}
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_TO_TIDY_UP)
            except subprocess.TimeoutExpired:
                process.kill()
