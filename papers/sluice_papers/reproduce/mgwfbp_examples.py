"""MG-WFBP, figures 1 to 4: time-lines of four layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sluice_papers.reproduce import inputs, plans
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pictures import gantt
from sluice_papers.reproduce.plans import Plan, exact
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier

_SECOND = 250_000  # parameters that take a second on the link of the examples
_SAME = 1e-9  # seconds: two ways to compute one number


def _example(
    name: str,
    seconds: Sequence[float],
    start: float = 0.0,
    backward: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
) -> Part:
    """Four layers, half a second forward each. `seconds` on the link and `backward` go from layer 1
    to 4; every message costs `start` seconds more."""
    layers = [
        (0.5, back, round(time * _SECOND)) for back, time in zip(backward, seconds, strict=True)
    ]
    return Part(
        f"mgwfbp-{name}",
        Tier.MODEL,
        f"sluice formulas --profile {{inputs}}/mgwfbp-{name}.json --workers 2 "
        f"--compute-time {inputs.total_units(layers):g}s --latency {round(1000 * start)}ms "
        "--rate 8mbit --method link --json",
        inputs={f"mgwfbp-{name}.json": inputs.toy("four layers", layers)},
    )


_F2 = _example("f2", (1.2, 1.2, 1.2, 1.2), start=0.3)
_CASES = {
    1: _example("f3-case1", (0.8, 0.8, 0.8, 0.8)),
    2: _example("f3-case2", (0.6, 0.5, 0.3, 1.6)),
    3: _example("f3-case3", (1.8, 1.8, 1.8, 1.8)),
}
_F4 = _example("f4", (0.5, 0.5, 0.5, 0.5), start=0.8, backward=(1.5, 1.5, 0.5, 1.0))
# Three layers in which merging by Theorem 1 is not the best (found by search): a = 3, b = 1.
_COUNTER = Part(
    "mgwfbp-f4-counter",
    Tier.MODEL,
    "sluice formulas --profile {inputs}/mgwfbp-f4-counter.json --workers 2 --compute-time 7s "
    "--latency 3s --rate 8mbit --method link --json",
    inputs={
        "mgwfbp-f4-counter.json": inputs.toy(
            "three layers", [(0.0, 4.0, _SECOND), (0.0, 2.0, _SECOND), (0.0, 1.0, 4 * _SECOND)]
        )
    },
)


def _sent(plan: Plan) -> list[float]:
    """Returns the seconds of each layer's message: t_c."""
    a, b = plans.cost(plan, 2)
    return [a + b * layer["bytes"] for layer in plan["layers"]]


def _equation_3(plan: Plan) -> float:
    return float(plan["compute_s"]) + sum(_sent(plan))


def _equation_8(plan: Plan) -> float:
    """Equations 6 to 8: tau_c of each layer, from the last to the first."""
    end = 0.0
    for ready, time in reversed(list(zip(plans.ready_times(plan), _sent(plan), strict=True))):
        end = max(end, ready) + time
    return end


def _equation_11(plan: Plan) -> float:
    return float(plan["compute_s"]) + _sent(plan)[0]


def _equation_13(plan: Plan) -> float:
    """With C = L, and its sum over computing repaired: the link never rests after layer L."""
    forward = sum(layer["forward_s"] for layer in plan["layers"])
    return float(forward + plan["layers"][-1]["backward_s"] + sum(_sent(plan)))


def _off(part: Part, schedule: str, equation: Callable[[Plan], float]) -> plans.Measure:
    """How far the core's number is from the paper's equation, in seconds."""
    return exact(part, lambda plan: abs(plans.seconds(plan, schedule, 2) - equation(plan)))


def _line(part: Part, schedule: str, title: str) -> Callable[[Kept], list[str]]:
    def draw(kept: Kept) -> list[str]:
        plan = kept.data(part)
        if plan is None:
            return []
        groups = plans.schedule(plan, schedule, 2)["groups"]
        link = plans.messages(plan, groups, 2, after_backward=schedule == "naive")
        return [gantt(title, [("computing", plans.computing(plan)), ("link", link)])]

    return draw


def _draw_all(*draws: Callable[[Kept], list[str]]) -> Callable[[Kept], list[str]]:
    return lambda kept: [picture for draw in draws for picture in draw(kept)]


_EXAMPLE = "An example of four layers with the same properties, by the core's formulas."
_NOTHING = "The paper draws without numbers; its equations are checked in the example."
_LINES = (_SAME, "as the equation")

ROWS = (
    Row("mgwfbp", "f1", "Time-line without overlap", parts=(_F2,),
        claims=(Claim("The core's time, off equation 3", _off(_F2, "naive", _equation_3),
                      most=_LINES[0], printed=_LINES[1], unit="s"),),
        substitute=_EXAMPLE, honest=_NOTHING, draw=_line(_F2, "naive", "Without overlap")),
    Row("mgwfbp", "f2", "Time-line of WFBP", parts=(_F2,),
        claims=(
            Claim("The core's time, off equations 6 to 8", _off(_F2, "wfbp", _equation_8),
                  most=_LINES[0], printed=_LINES[1], unit="s"),
            Claim("WFBP over no overlap", plans.speedup(_F2, "naive", "wfbp", 2), least=1,
                  printed="overlaps"),
        ),
        substitute=_EXAMPLE, honest=_NOTHING, draw=_line(_F2, "wfbp", "WFBP")),
    Row("mgwfbp", "f3", "Three cases of WFBP", parts=tuple(_CASES.values()),
        claims=(
            *(Claim(f"The core's time in case {n}, off equation {equation}",
                    _off(_CASES[n], "wfbp", formula), most=_LINES[0], printed=_LINES[1], unit="s")
              for n, equation, formula in ((1, 11, _equation_11), (2, 12, _equation_11),
                                           (3, 13, _equation_13))),
            Claim("Case 3 takes longer than hidden communication would",
                  exact(_CASES[3], lambda plan: plans.seconds(plan, "wfbp", 2)
                        / _equation_11(plan)), least=1, printed="communication is not hidden"),
        ),
        substitute=_EXAMPLE, honest=_NOTHING + " Equation 13 has wrong indices and is repaired.",
        draw=_draw_all(*(_line(part, "wfbp", f"Case {n}") for n, part in _CASES.items()))),
    Row("mgwfbp", "f4", "Merged gradients", parts=(_F4, _COUNTER),
        claims=(
            Claim("MG-WFBP over WFBP", plans.speedup(_F4, "wfbp", "mgwfbp-paper", 2), least=1,
                  printed="merging is faster"),
            Claim("Algorithm 1 over the best merging, three layers",
                  plans.speedup(_COUNTER, "mgwfbp-paper", "mgwfbp", 2), most=1.001,
                  printed="1 (Theorem 1: it is optimal)"),
        ),
        substitute=_EXAMPLE + " The second claim has an example of its own, found by search.",
        honest="The printing errors of Algorithm 1 are repaired. Theorem 1 is claimed for every "
        "model, so one example decides.",
        draw=_draw_all(_line(_F4, "wfbp", "WFBP"), _line(_F4, "mgwfbp-paper", "MG-WFBP"))),
)  # fmt: skip
