"""Asks the program `sluice` for its commands, and names the one that a part needs and lacks."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shlex
import subprocess
from pathlib import Path

from sluice_papers.reproduce.rows import Part

_LIMIT = 60  # seconds for an answer of the program
# Commands that may be of another version than this package.
_OWN = ("bench", "formulas", "plan", "simulate", "trace")


class Program:
    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def version(self) -> str:
        return self._run("--version").stdout.strip()

    def missing(self, part: Part, data: Path | None) -> str | None:
        """Returns what keeps the part from being made, as "needs ..."; None if nothing does."""
        if "{data}" in part.command and (data is None or not data.is_dir()):
            return "needs the images: give their folder as --data-dir"
        for line in part.command.splitlines():
            words = shlex.split(line)
            lacks = self._lacks(words) if words and words[0] == "sluice" else None
            if lacks is not None:
                return f"needs {lacks}"
        return None

    def _lacks(self, words: list[str]) -> str | None:
        command = []
        for word in words[1:]:
            if not re.fullmatch(r"[a-z-]+", word) or word.startswith("-"):
                break
            command.append(word)
        if command[0] not in _OWN:  # a program of this package knows what its rows ask for
            return None
        text = self._help(tuple(command))
        if text is None:
            return f"`sluice {' '.join(command)}`"
        known = set(re.findall(r"--[a-z-]+", text))
        if "sluice algorithms NAME" in text:  # the help leaves out the options of one algorithm
            known |= self._options
        for flag in words:
            if flag.startswith("--") and flag not in known:
                return f"`sluice {' '.join(command)} {flag}`"
        given = dict(itertools.pairwise(words))
        for name in filter(None, given.get("--algorithms", "").split(",")):
            if name.split(":")[0] not in self._algorithms:
                return f"the algorithm {name}"
        return None

    @functools.cached_property
    def _algorithms(self) -> set[str]:
        rows = json.loads(self._run("algorithms", "--json").stdout)
        return {row[key] for row in rows for key in ("algorithm", "also")}

    @functools.cached_property
    def _options(self) -> set[str]:
        """The flags of all options that belong to single algorithms."""
        described = (self._run("algorithms", name, "--json") for name in self._algorithms if name)
        rows = itertools.chain.from_iterable(json.loads(ran.stdout)["options"] for ran in described)
        return {f"--{row['option']}" for row in rows}

    @functools.cache  # noqa: B019  # a program lives as long as the command
    def _help(self, command: tuple[str, ...]) -> str | None:
        ran = self._run(*command, "--help")
        return ran.stdout if ran.returncode == 0 else None

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self.path, *words]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            raise OSError(
                f"'{' '.join(command)}' has not ended after {_LIMIT} s; is the machine busy?"
            ) from None
