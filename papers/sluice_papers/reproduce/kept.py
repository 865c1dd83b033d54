"""Files of results. A part that has its file is not made again, unless its command has changed, it
failed, or it has results of some of its runs only. Files of trainings are compressed."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from sluice_papers.reproduce.rows import Part, Tier
from sluice_papers.study import results


class Kept:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, dict[str, Any] | None] = {}

    def path(self, part: Part) -> Path:
        ending = "json.gz" if part.tier is Tier.TRAIN else "json"
        return self.folder / "results" / f"{part.name}.{ending}"

    def entry(self, part: Part) -> dict[str, Any] | None:
        """Returns the whole file of a part; None if there is no file."""
        if part.name not in self._read:
            self._read[part.name] = _read(self.path(part))
        return self._read[part.name]

    def data(self, part: Part) -> Any | None:
        """Returns what the part's command has left so far; None if there is no result. What another
        command has left is no result of this one."""
        entry = self.entry(part)
        return entry["data"] if entry is not None and self._has_data(part) else None

    def failure(self, part: Part) -> str | None:
        entry = self.entry(part)
        return None if entry is None else entry.get("failed")

    def is_made(self, part: Part) -> bool:
        """True iff the part has all of its results."""
        return self._has_data(part) and not self.is_partial(part)

    def is_partial(self, part: Part) -> bool:
        """True iff the part has ended before all of its runs were made."""
        entry = self.entry(part)
        return self._has_data(part) and entry is not None and bool(entry.get("partial"))

    def _has_data(self, part: Part) -> bool:
        entry = self.entry(part)
        return entry is not None and "data" in entry and entry["command"] == part.command

    def write(self, part: Part, seconds: float, program: str, **outcome: Any) -> None:
        """`outcome` is data=..., data=... with partial=True, or failed=..."""
        entry = {
            "part": part.name,
            "command": part.command,
            "seconds": round(seconds, 3),
            "made": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "program": program,
            **outcome,
        }
        results.write(self.path(part), entry)
        self._read[part.name] = entry


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        entry: dict[str, Any] = results.read_file(path)
    except (ValueError, OSError, EOFError):
        raise ValueError(f"{path} is not a file of results; delete it to make it again") from None
    return entry
