"""Pipe-SGD, figure 2: the timing model, equations 2 to 7."""

from __future__ import annotations

from collections.abc import Callable

from sluice_papers.reproduce import plans
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.plans import Plan, exact
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.study import charts
from sluice_papers.study.charts import Line

_WORKERS = 4
_SYNC = 0.0  # S, seconds: the paper prints no value, and more makes its claims easier to meet
_BOUND = {
    kind: Part(
        f"pipesgd-f2-{kind}",
        Tier.MODEL,
        f"sluice formulas --profile resnet50 --workers {_WORKERS} --compute-time {time} "
        "--latency 45.26us --rate 10gbit --json",
    )
    for kind, time in (("communication", "60ms"), ("computing", "400ms"))
}


def _parts(plan: Plan) -> tuple[float, float, float]:
    """Returns the seconds of forward, of backward and of one ring over all gradients."""
    a, b = plans.cost(plan, _WORKERS)
    forward = sum(layer["forward_s"] for layer in plan["layers"])
    backward = sum(layer["backward_s"] for layer in plan["layers"])
    return forward, backward, a + b * sum(layer["bytes"] for layer in plan["layers"])


def equation_2(plan: Plan) -> float:
    return sum(_parts(plan))


def equation_4(plan: Plan) -> float:
    forward, backward, ring = _parts(plan)
    return max(forward + backward, ring)


def equation_5(plan: Plan, squeeze: float = 1.0) -> float:
    """Sequential communication. `squeeze` divides the bytes, as a codec does."""
    forward, backward, ring = _parts(plan)
    a, _ = plans.cost(plan, _WORKERS)
    return max(forward + backward, a + (ring - a) / squeeze + _SYNC)


def equation_6(plan: Plan, segments: int) -> float:
    """Communication in segments: each has a start-up cost of its own, and only the first segment's
    backward comes before it."""
    forward, backward, ring = _parts(plan)
    a, _ = plans.cost(plan, _WORKERS)
    return max(forward + backward / segments, segments * a + (ring - a) + segments * _SYNC)


def equation_7(plan: Plan, squeeze: float = 1.0) -> float:
    forward, backward, _ = _parts(plan)
    return (forward + backward) / equation_5(plan, squeeze)


def _draw_f2(kept: Kept) -> list[str]:
    drawn = []
    for kind, part in _BOUND.items():
        plan = kept.data(part)
        if plan is None:
            continue
        segments = (1, 2, 4, 8, 16, 32, 64)
        sequential = Line(
            "sequential, Eq. 5", [(L, 1e3 * equation_5(plan)) for L in segments], "#0072B2"
        )
        pipelined = Line("in L segments, Eq. 6", [(L, 1e3 * equation_6(plan, L)) for L in segments],
                         "#E69F00")  # fmt: skip
        title = f"Bound by {kind}"
        drawn.append(charts.lines(title, "segments", "ms of an iteration", [sequential, pipelined]))
    return drawn


def _bound(kind: str, take: Callable[[Plan], float]) -> plans.Measure:
    return exact(_BOUND[kind], take)


ROW = Row(
    "pipesgd", "f2", "Timing model: limited resources, sequential and pipelined communication",
    parts=tuple(_BOUND.values()),
    claims=(
        *(Claim(f"The core's time, off equation 4, bound by {kind}",
                _bound(kind, lambda plan: abs(plans.seconds(plan, "pipe", _WORKERS)
                                              - equation_4(plan))),
                most=1e-9, printed="as the equation", unit="s") for kind in _BOUND),
        Claim("Pipe-SGD over synchronous SGD, bound by communication",
              _bound("communication", lambda plan: equation_2(plan) / equation_4(plan)), least=1,
              printed="shorter"),
        *(Claim(f"Equation 6 over equation 5, {segments} segments, bound by communication",
                _bound("communication", lambda plan, segments=segments:  # type: ignore[misc]
                       equation_6(plan, segments) / equation_5(plan)),
                least=1, printed="Eq. 5 is smaller") for segments in (2, 16, 64)),
        Claim("Scaling by equation 7, bound by computing", _bound("computing", equation_7),
              least=0.999, most=1.001, printed="1"),
        Claim("Scaling by equation 7, bound by communication",
              _bound("communication", equation_7), most=0.99, printed="below 1"),
        Claim("Scaling by equation 7, bound by communication, four times fewer bytes",
              _bound("communication", lambda plan: equation_7(plan, 4)), least=0.999,
              printed="1, once compressed"),
    ),
    substitute="The equations with ResNet-50's sizes, four workers and 10 Gbit/s.",
    honest="Nothing is replaced. The latency is MG-WFBP's for 10GbE, since this paper prints none.",
    draw=_draw_f2,
)  # fmt: skip
