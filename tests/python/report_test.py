"""Tests sluice.report() and its parts: the layers' times as seen in training, and the bound."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import torch
from ranks import Ranks
from sluice._core import p3_bound
from sluice._measure.clocks import HostClock
from sluice._measure.layer_times import LayerTimes
from torch import Tensor, nn
from training import make_net, plain_loop

import sluice


def test_the_bound_of_two_layers() -> None:
    layers = [(1.0, 2.0, 10.0), (3.0, 4.0, 20.0)]  # forward, backward, bytes
    assert p3_bound(layers, 0.0) == 10.0  # the bound is the computing alone
    # The second layer's gradient is there after 4 s, both gradients are over the wire 15 s later,
    # and 3 s of forward are left.
    assert p3_bound(layers, 0.5) == 4 + 15 + 3


def test_times_go_to_the_layer_that_computes() -> None:
    now = 0.0
    times = LayerTimes(Clock(lambda: now))

    def pause(seconds: float) -> None:
        nonlocal now
        with times.paused(), times.paused():
            now += seconds

    for _ in range(2):
        for seconds, event in (
            (5.0, times.backward_ends), (0.0, times.forward_begins),
            (1.0, lambda: times.reads("a")),
            (1.5, lambda: pause(0.5)), (0.0, lambda: times.reads("b")),
            (3.0, lambda: times.reads("a")),
            (0.25, times.forward_ends), (1.0, lambda: pause(9.0)),
            (3.0, lambda: times.gradient("b")),
            (6.0, lambda: times.gradient("a")),
            (7.0, times.backward_ends), (8.0, lambda: times.gradient("late")),
        ):  # fmt: skip
            now += seconds
            event()
    assert times.forward == {"a": 2 * (1.5 + 0.25), "b": 2 * 3.0}
    assert times.backward == {"b": 2 * 4.0, "a": 2 * 6.0}


class Clock(HostClock):
    """Shows the time that a test sets, and knows a mark's time only later if it is told so."""

    def __init__(self, show: Callable[[], float], every: int = 1) -> None:
        self.now, self.every = show, every  # type: ignore[method-assign]
        self.done = float("inf")

    def is_over(self, mark: float) -> bool:
        return mark <= self.done

    def wait(self, mark: float) -> None:
        self.done = max(self.done, mark)


def test_a_device_is_measured_in_some_passes_only() -> None:
    now = 0.0
    clock = Clock(lambda: now, every=4)
    times = LayerTimes(clock)
    for number in range(6):
        clock.done = 3 * number  # the device falls behind
        times.forward_begins()
        times.reads("a")
        now += 1
        times.forward_ends()
        now += 3
        times.gradient("a")
        times.backward_ends()
    assert clock.done == 15  # the fifth pass is not over
    assert times.forward == {"a": 6.0}
    assert times.backward == {"a": 18.0}
    assert clock.done == 20
    assert LayerTimes(None).forward == {} and not LayerTimes(None).are_known


class Sleeper(nn.Module):
    """A layer whose forward pass takes a known time."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        time.sleep(0.03)
        return self.second(x)


def run_report() -> tuple[str, str]:
    model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.1))
    plain_loop(6)(model, optimizer)
    text = sluice.report().split("'Net-")[-1]
    slow, its = sluice.distribute(Sleeper(), lambda ps: torch.optim.SGD(ps, lr=0.1))
    for _ in range(6):
        its.zero_grad()
        slow(torch.ones(2, 8)).sum().backward()
        its.step()
    return text, sluice.report().split("'Sleeper-")[-1]


def test_report(two_ranks: Ranks) -> None:
    for number, (text, slow) in enumerate(two_ranks.run(run_report)):
        lines = text.splitlines()
        assert f"on rank {number} of 2: 6 rounds of gradients" in lines[0]
        assert "% hidden behind computing" in lines[3]
        assert lines[4].startswith("  sent 0.1 MB")
        assert "no schedule takes less than" in lines[5]
        assert len(lines) == 6 + 5
        found = re.search(r"less than (\d+) ms, P3's bound: (\d+) ms forward and backward, (\d+) "
                          r"ms besides, (\d+) ms on the wire at \d+ Mbit/s; this took ([\d.]+) "
                          r"of it", slow)  # fmt: skip
        assert found is not None, slow
        bound, passes, besides, _, over = map(float, found.groups())
        assert passes >= 30
        assert bound >= passes + besides - 2  # rounded
        assert 0.5 < over < 5
