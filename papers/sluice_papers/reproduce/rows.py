"""A row of the manifest: one figure or table of a paper, the commands that make ours, and the
paper's claims as inequalities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice_papers.reproduce.kept import Kept


class Tier(str, Enum):
    __str__ = str.__str__

    MODEL = "model"  # formulas: seconds, no root
    LAB = "lab"  # replays in a lab
    TRAIN = "train"  # trainings with real data
    SIM = "sim"  # simulated clusters


@dataclass(frozen=True)
class Part:
    """One command, and the file of results that it leaves.

    A command has one line for each program that it runs; the last one leaves the result. It may
    name {out} (the JSON file that the program is to write), {folder} (a folder for what the part
    leaves), {inputs} (the folder of `inputs`) and {data} (the folder of images). If the last
    program is given neither {out} nor, as a study, "-o {folder}", it prints its JSON.
    """

    name: str  # of the file of results
    tier: Tier
    command: str = ""
    compute: Callable[[], Any] | None = None  # in place of a command: a calculation
    seconds: float = 1.0  # it takes about as long
    inputs: Mapping[str, Any] = field(default_factory=dict)  # files, by name

    @property
    def is_study(self) -> bool:
        """True iff the part can stop between two of its runs and keep those it has."""
        return self.command.startswith("sluice study ")


@dataclass(frozen=True)
class Measured:
    """A number out of result files, with half the width of its 95 % interval."""

    value: float
    margin: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A statement of the paper as an inequality: a number lies above `least` and below `most`. A
    claim without an inequality shows a number beside the paper's and has no verdict."""

    text: str
    measure: Callable[[Kept], Measured | None]  # None: no result is there
    least: float | None = None
    most: float | None = None
    printed: str = ""  # the number that the paper prints, as printed
    unit: str = ""
    is_ours: bool = False  # an inequality that the paper does not state; the row's verdict does not
    # depend on it

    @property
    def inequality(self) -> str:
        signs = []
        if self.least is not None:
            signs.append(f"> {self.least:.6g}")
        if self.most is not None:
            signs.append(f"< {self.most:.6g}")
        return ", ".join(signs)


@dataclass(frozen=True)
class Row:
    paper: str  # p3, mgwfbp, pipesgd, analysis
    name: str  # f7, t2
    shows: str
    parts: tuple[Part, ...] = ()
    claims: tuple[Claim, ...] = ()
    substitute: str = ""  # what stands here for the paper's setting
    honest: str = ""  # why the comparison is still fair, and what it cannot show
    draw: Callable[[Kept], list[str]] | None = None
    reason: str = ""  # why there is no result here, and never will be
    has_content: bool = True  # False: a drawing or a list of words

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def title(self) -> str:
        kind = "Table" if self.name.startswith("t") else "Figure"
        return f"{kind} {self.name[1:]}"

    @property
    def tiers(self) -> tuple[Tier, ...]:
        return tuple(dict.fromkeys(part.tier for part in self.parts))
