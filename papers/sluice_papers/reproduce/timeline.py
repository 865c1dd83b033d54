"""An event model: layers become ready one after the other, and each passes a chain of stations (a
link; or push, update and publish) that serve one at a time. It shows when each piece of work is
done, which the formulas of sluice/data/timing do not. Tests hold it against them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """`times` are the seconds at each station. A lower `priority` is more urgent."""

    name: str
    ready: float
    times: tuple[float, ...]
    priority: int = 0


@dataclass(frozen=True)
class Piece:
    name: str
    station: int
    begin: float
    end: float


def play(jobs: Sequence[Job], *, by_priority: bool = False) -> list[Piece]:
    """Returns all pieces of work, in order of station and time. Stations serve in order of arrival;
    with `by_priority` the most urgent job goes first, and interrupts others."""
    pieces: list[Piece] = []
    arrivals = [job.ready for job in jobs]
    for station in range(len(jobs[0].times)):
        arrivals = _serve(jobs, arrivals, station, by_priority, pieces)
    return pieces


def _serve(
    jobs: Sequence[Job],
    arrivals: Sequence[float],
    station: int,
    by_priority: bool,
    pieces: list[Piece],
) -> list[float]:
    """Plays one station, and returns when each job leaves it."""
    left = [job.times[station] for job in jobs]
    ends = list(arrivals)
    waiting = set(range(len(jobs)))
    now = 0.0
    while waiting:
        here = [job for job in waiting if arrivals[job] <= now]
        if not here:
            now = min(arrivals[job] for job in waiting)
            continue
        chosen = min(
            here, key=lambda job: (jobs[job].priority if by_priority else 0, arrivals[job], job)
        )
        until = now + left[chosen]
        if by_priority:
            later = (arrivals[job] for job in waiting if arrivals[job] > now)
            until = min(until, min(later, default=math.inf))
        _add(pieces, Piece(jobs[chosen].name, station, now, until))
        left[chosen] -= until - now
        now = until
        if left[chosen] <= 1e-12:
            ends[chosen] = now
            waiting.remove(chosen)
    return ends


def _add(pieces: list[Piece], piece: Piece) -> None:
    """Joins a piece to the one before it, if only the arrival of a less urgent job parts them."""
    last = pieces[-1] if pieces else None
    if last and (last.name, last.station, last.end) == (piece.name, piece.station, piece.begin):
        piece = Piece(piece.name, piece.station, last.begin, piece.end)
        pieces.pop()
    if piece.end > piece.begin:
        pieces.append(piece)


def ends_of(pieces: Sequence[Piece], station: int) -> dict[str, float]:
    """Returns when each job leaves a station."""
    ends: dict[str, float] = {}
    for piece in pieces:
        if piece.station == station:
            ends[piece.name] = max(piece.end, ends.get(piece.name, 0.0))
    return ends
