"""Numbers and time-lines out of what `sluice formulas --json` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.rows import Measured, Part
from sluice_papers.reproduce.timeline import Job, Piece, play

Measure = Callable[[Kept], Measured | None]
Plan = dict[str, Any]


def exact(part: Part, take: Callable[[Any], float]) -> Measure:
    """A number that follows from one result file without chance."""

    def measure(kept: Kept) -> Measured | None:
        data = kept.data(part)
        return None if data is None else Measured(take(data))

    return measure


def at(plan: Plan, workers: int) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in plan["plans"] if one["workers"] == workers)
    return found


def schedule(plan: Plan, name: str, workers: int) -> dict[str, Any]:
    schedules = at(plan, workers)["schedules"]
    found: dict[str, Any] = next(one for one in schedules if one["schedule"] == name)
    return found


def seconds(plan: Plan, name: str, workers: int) -> float:
    return float(schedule(plan, name, workers)["iteration_s"])


def speedup(part: Part, slow: str, fast: str, workers: int) -> Measure:
    return exact(part, lambda plan: seconds(plan, slow, workers) / seconds(plan, fast, workers))


def efficiency(part: Part, name: str, workers: int) -> Measure:
    """The speed-up over one worker, over the number of workers."""
    return exact(part, lambda plan: float(plan["compute_s"]) / seconds(plan, name, workers))


def cost(plan: Plan, workers: int) -> tuple[float, float]:
    """Returns a and b of the plan's method."""
    found = at(plan, workers)["costs"][plan["method"]]
    return found["a_s"], found["b_s_per_byte"]


def ready_times(plan: Plan) -> list[float]:
    """Returns when each layer's gradient is ready, counted from the start of forward."""
    now = sum(layer["forward_s"] for layer in plan["layers"])
    ready = []
    for layer in reversed(plan["layers"]):
        now += layer["backward_s"]
        ready.append(now)
    return ready[::-1]


def computing(plan: Plan) -> list[Piece]:
    """Returns the forward and the backward pass, with names f1, b1 and so on."""
    pieces, now = [], 0.0
    layers = list(enumerate(plan["layers"], start=1))
    for kind, key, order in (("f", "forward_s", layers), ("b", "backward_s", layers[::-1])):
        for number, layer in order:
            pieces.append(Piece(f"{kind}{number}", 0, now, now + layer[key]))
            now += layer[key]
    return pieces


def messages(
    plan: Plan, groups: Sequence[Sequence[int]], workers: int, *, after_backward: bool = False
) -> list[Piece]:
    """Returns when the link is busy with each group, by the event model."""
    a, b = cost(plan, workers)
    ready = ready_times(plan)
    jobs = []
    for first, last in reversed(groups):
        size = sum(layer["bytes"] for layer in plan["layers"][first : last + 1])
        name = "c" + "+".join(str(layer + 1) for layer in range(last, first - 1, -1))
        jobs.append(Job(name, ready[0] if after_backward else ready[first], (a + b * size,)))
    return play(jobs)
