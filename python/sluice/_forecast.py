"""The times that the planner of algorithm="auto" has predicted for the plan in use, and the lines
of sluice.report() that compare them with what came."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sluice._measured import Measured, Window

_FAR = 0.1  # a prediction that is wrong by more is explained


@dataclass(frozen=True)
class Forecast:
    """Seconds of one iteration, and the inputs of the prediction."""

    iteration: float
    compute: float
    other: float
    rate: float  # bits per second

    def as_json(self) -> dict[str, float]:
        return asdict(self)

    @staticmethod
    def from_json(document: dict[str, Any]) -> Forecast:
        return Forecast(**{key: float(value) for key, value in document.items()})


def ratio(one: float, other: float) -> float:
    """Returns how many times the larger is as large as the smaller, at least 1."""
    small, large = sorted((one, other))
    return large / small if small > 0 else (1.0 if large <= 0 else float("inf"))


def compare(plan: str, forecast: Forecast, window: Window) -> list[str]:
    """Returns the lines of the report. `window` began with the forecast."""
    if window.is_empty:
        return [f"  plan by auto: {plan}; {_ms(forecast.iteration)} an iteration predicted"]
    measured, _ = window.look()
    lines = [
        f"  plan by auto: {plan}; {_ms(forecast.iteration)} an iteration predicted, "
        f"{_ms(measured.iteration)} measured"
    ]
    if ratio(forecast.iteration, measured.iteration) > 1 + _FAR:
        lines.append(f"    the prediction was wrong: {_wrong_input(forecast, measured)}")
    return lines


def _wrong_input(forecast: Forecast, measured: Measured) -> str:
    """Names the input that has changed most since the prediction."""
    inputs = [
        (forecast.rate, measured.rate, "the rate", _mbit),
        (forecast.compute, measured.compute, "the sum of the layer times", _ms),
        (forecast.other, measured.other, "the time outside of both passes", _ms),
    ]
    # A share of the iteration, so that a time that is nearly zero does not count for its quotient.
    far = [
        (ratio(before, now), f"{name} was {text(before)} in the plan and is {text(now)}")
        for before, now, name, text in inputs
        if ratio(before, now) > 1 + _FAR
        and (text is _mbit or abs(before - now) > _FAR / 2 * measured.iteration)
    ]
    if far:
        return max(far)[1]
    return (
        "rate and layer times are those of the plan, so the costs of hosts are others than the "
        "planner's"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _mbit(rate: float) -> str:
    return f"{rate / 1e6:.0f} Mbit/s"
