"""The parts of a step's time: computing, aggregation, waiting and wire. Each comes from events of
its own, and nothing is a remainder; time that no event explains is called unexplained.

Computing is what a worker's step takes without its waits. A wait is explained by the way of the
slice that ended it:

    wire         its part is queued or on its way to the server; so is the part that came last; the
                 result is queued or on its way back
    waiting      the worker whose part came last has not made its gradient yet
    aggregation  the server sums and updates; the gate has its result, and the thread goes on
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PARTS = ("computing", "aggregation", "waiting", "wire", "unexplained")

Parts = dict[str, float]  # seconds
_UNDER_WAY = 2  # steps


@dataclass(frozen=True)
class Event:
    """A slice entered a stage."""

    stage: str
    rank: int
    slice: int
    step: int
    peer: int
    at: float  # seconds of the machine's steady clock


@dataclass(frozen=True)
class Wait:
    rank: int
    layer: int
    step: int
    begin: float
    end: float


@dataclass(frozen=True)
class Span:
    """One step of a worker: it ended the step before, began this one, and ended it."""

    before: float
    begin: float
    end: float


class Traces:
    """The events of all ranks. Ranks share the machine's clock."""

    def __init__(self, events: Sequence[Event], layers: Mapping[int, int], waits: Sequence[Wait]):
        self.waits = waits
        first: dict[int, float] = {}  # events, by rank
        for event in events:
            first[event.rank] = min(event.at, first.get(event.rank, event.at))
        self.known_from = max(first.values(), default=0.0)  # a trace keeps the latest events
        self._at: dict[tuple[str, int, int, int, int], float] = {}
        self._collected: dict[tuple[int, int], list[Event]] = {}  # by server and slice
        self._applied: dict[tuple[int, int, int], Event] = {}  # by worker, layer, step: the last
        for event in events:
            self._at[event.stage, event.rank, event.slice, event.step, event.peer] = event.at
            if event.stage == "collect":
                self._collected.setdefault((event.rank, event.slice), []).append(event)
            elif event.stage == "applied":
                key = event.rank, layers[event.slice], event.step
                if key not in self._applied or self._applied[key].at <= event.at:
                    self._applied[key] = event

    def at(self, stage: str, rank: int, of: Event, peer: int) -> float | None:
        return self._at.get((stage, rank, of.slice, of.step, peer))

    def opened(self, wait: Wait) -> Event | None:
        """Returns the arrival of the slice that ended the wait."""
        return self._applied.get((wait.rank, wait.layer, wait.step))

    def last_collected(self, server: int, of: Event, until: float) -> Event | None:
        """Returns the last part of the slice that came to its server by then, of any worker."""
        there = [one for one in self._collected.get((server, of.slice), ()) if one.at <= until]
        return max(there, key=lambda one: one.at, default=None)

    def explain(self, wait: Wait, waits_for_others: bool) -> Parts:
        """Returns the parts of a wait."""
        found = dict.fromkeys(PARTS, 0.0)
        applied = self.opened(wait)
        if applied is None:
            found["unexplained"] = wait.end - wait.begin
            return found
        now = wait.begin
        for part, until in self._way(applied, waits_for_others):
            until = min(until, wait.end)
            if until > now:
                found[part] += until - now
                now = until
        found["aggregation"] += wait.end - now
        return found

    def _way(self, applied: Event, waits_for_others: bool) -> Iterator[tuple[str, float]]:
        """Yields the slice's parts of time, each with its end."""
        worker, server = applied.rank, applied.peer
        own = self.at("collect", server, applied, worker)
        answered = applied.at if server == worker else self.at("queued", server, applied, worker)
        if own is not None and answered is not None:
            yield "wire", own
            last = self.last_collected(server, applied, answered) if waits_for_others else None
            if last is not None and last.peer != worker:
                ready = self.at("ready", last.peer, last, last.peer)
                if ready is not None:
                    yield "waiting", ready
                    yield "wire", last.at
            yield "aggregation", answered
            yield "wire", applied.at
        else:  # a step of the worker's own, without the server
            yield "aggregation", applied.at


def mean_step(
    traces: Traces, spans: Mapping[int, Sequence[Span]], waits_for_others: bool
) -> Parts | None:
    """Returns the parts of a mean step, and the number of steps as "steps". `spans` has the steps
    of each worker, in order. Only steps that the traces hold in full count; None: no step is."""
    total, steps = dict.fromkeys(PARTS, 0.0), 0
    for rank, of_rank in spans.items():
        waits = [wait for wait in traces.waits if wait.rank == rank]
        known = [span for span in of_rank if span.before >= traces.known_from]
        # The first waits may be for slices that were on their way before.
        for span in known[_UNDER_WAY:]:
            inside = [wait for wait in waits if span.begin <= wait.begin and wait.end <= span.end]
            for wait in inside:
                for part, seconds in traces.explain(wait, waits_for_others).items():
                    total[part] += seconds
            total["computing"] += span.end - span.begin - sum(w.end - w.begin for w in inside)
            total["unexplained"] += span.begin - span.before
            steps += 1
    if steps == 0:
        return None
    return {**{part: seconds / steps for part, seconds in total.items()}, "steps": steps}


def read(folder: Path) -> Traces:
    """Reads the traces that the ranks of one job have left in a folder (docs/trace.md)."""
    events: list[Event] = []
    waits: list[Wait] = []
    layers: dict[int, int] = {}
    for path in sorted(folder.glob("*.rank-*.json")):
        document = json.loads(path.read_text())
        origin = document["otherData"]["clock_origin_ns"] / 1e9
        begun: dict[str, tuple[int, int, int, float]] = {}
        for one in document["traceEvents"]:
            if one["ph"] == "e" and one["id"] in begun:
                waits.append(Wait(*begun.pop(one["id"]), origin + one["ts"] / 1e6))
            if one["ph"] not in "bi":
                continue
            told, at = one["args"], origin + one["ts"] / 1e6
            if one["cat"] == "wait":
                begun[one["id"]] = (one["pid"], told["layer"], told["step"], at)
            else:
                layers[told["slice"]] = told["layer"]
                events.append(
                    Event(one["name"], one["pid"], told["slice"], told["step"], told["peer"], at)
                )
    return Traces(events, layers, waits)
