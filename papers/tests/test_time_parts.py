"""Tests the split of a step's time on traces that are written out here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sluice_papers.study.time_parts import Event, Span, Traces, Wait, mean_step, read

SLICE, LAYER, STEP = 7, 2, 5
WORKER, SERVER, LATE = 0, 1, 2


def event(stage: str, rank: int, peer: int, at: float, step: int = STEP) -> Event:
    return Event(stage, rank, SLICE, step, peer, at)


def traces(*events: Event, waits: tuple[Wait, ...] = ()) -> Traces:
    return Traces(events, {SLICE: LAYER}, waits)


def the_wait(begin: float, end: float) -> Wait:
    return Wait(WORKER, LAYER, STEP, begin, end)


BSP = (
    event("ready", WORKER, WORKER, 1.0),
    event("collect", SERVER, WORKER, 2.0),
    event("ready", LATE, LATE, 5.0),
    event("collect", SERVER, LATE, 6.0),
    event("reduce", SERVER, SERVER, 6.0),
    event("update", SERVER, SERVER, 6.5),
    event("queued", SERVER, WORKER, 7.0),
    event("publish", SERVER, WORKER, 7.5),
    event("applied", WORKER, SERVER, 9.0),
)


def parts(**seconds: float) -> dict[str, float]:
    names = ("computing", "aggregation", "waiting", "wire", "unexplained")
    return {name: seconds.get(name, 0.0) for name in names}


def test_a_wait_for_the_last_worker_is_explained() -> None:
    # From 1.5 on: to the server until 2, the late worker until 5, its part's way until 6, the
    # server until 7, the way back until 9, and the gate until 9.25.
    assert traces(*BSP).explain(the_wait(1.5, 9.25), True) == pytest.approx(
        parts(wire=0.5 + 1 + 2, waiting=3, aggregation=1 + 0.25)
    )


def test_a_wait_that_begins_late_has_the_later_parts_only() -> None:
    assert traces(*BSP).explain(the_wait(6.25, 9.0), True) == pytest.approx(
        parts(aggregation=0.75, wire=2)
    )


def test_with_asp_nobody_waits_for_others() -> None:
    events = (
        event("collect", SERVER, WORKER, 2.0),
        event("collect", SERVER, LATE, 2.5),
        event("queued", SERVER, WORKER, 3.0),
        event("applied", WORKER, SERVER, 4.0),
    )
    assert traces(*events).explain(the_wait(1.0, 4.0), False) == pytest.approx(
        parts(wire=2, aggregation=1)
    )


def test_with_ssp_the_part_that_lets_a_worker_go_on_is_of_an_earlier_step() -> None:
    events = (
        event("collect", SERVER, WORKER, 2.0),
        event("ready", LATE, LATE, 3.0, step=STEP - 2),
        event("collect", SERVER, LATE, 3.5, step=STEP - 2),
        event("queued", SERVER, WORKER, 3.75),
        event("applied", WORKER, SERVER, 4.0),
    )
    assert traces(*events).explain(the_wait(1.0, 4.0), True) == pytest.approx(
        parts(wire=1 + 0.5 + 0.25, waiting=1, aggregation=0.25)
    )


def test_a_workers_own_step_is_aggregation() -> None:
    assert traces(event("applied", WORKER, SERVER, 2.0)).explain(
        the_wait(1.0, 2.5), True
    ) == pytest.approx(parts(aggregation=1.5))


def test_a_wait_without_events_is_unexplained() -> None:
    assert traces().explain(the_wait(1.0, 2.0), True) == parts(unexplained=1.0)


def test_nothing_is_a_remainder() -> None:
    """A span without a wait of its own is computing, and the time between spans is unexplained."""
    spans = [Span(0.0, 0.5, 1.4)] * 2 + [Span(1.4, 1.5, 9.5)]
    found = mean_step(traces(*BSP[1:], event("ready", WORKER, WORKER, 0.0),
                             waits=(the_wait(1.5, 9.25),)), {WORKER: spans}, True)  # fmt: skip
    assert found is None  # another rank's trace begins at 2
    early = [event("ready", rank, rank, -1.0, step=0) for rank in (WORKER, SERVER, LATE)]
    found = mean_step(traces(*early, *BSP, waits=(the_wait(1.5, 9.25),)), {WORKER: spans}, True)
    assert found == pytest.approx(
        {**parts(computing=0.25, wire=3.5, waiting=3, aggregation=1.25, unexplained=0.1),
         "steps": 1}
    )  # fmt: skip


def test_traces_are_read_as_they_are_written(tmp_path: Path) -> None:
    told = {"rank": 0, "tensor": "w", "layer": 2, "slice": 7, "step": 5, "peer": 1}
    document = {
        "otherData": {"clock_origin_ns": 3_000_000_000},
        "traceEvents": [
            {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "rank 0"}},
            {"ph": "b", "cat": "slice", "id": "1", "name": "applied", "pid": 0, "tid": 7, "ts": 2e6,
             "args": told},
            {"ph": "e", "cat": "slice", "id": "1", "name": "applied", "pid": 0, "ts": 3e6},
            {"ph": "b", "cat": "wait", "id": "2", "name": "wait", "pid": 0, "tid": 8, "ts": 1e6,
             "args": told},
            {"ph": "e", "cat": "wait", "id": "2", "name": "wait", "pid": 0, "tid": 8, "ts": 2e6},
        ],
    }  # fmt: skip
    (tmp_path / "net.rank-0.json").write_text(json.dumps(document))
    found = read(tmp_path)
    assert found.waits == [Wait(0, 2, 5, 4.0, 5.0)]
    assert found.opened(found.waits[0]) == Event("applied", 0, 7, 5, 1, 5.0)
