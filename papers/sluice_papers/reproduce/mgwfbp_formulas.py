"""MG-WFBP, tables I and II, figures 5a and 9: formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

from sluice_papers.reproduce import mgwfbp_examples, plans
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.plans import Plan, exact
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.study import charts
from sluice_papers.study.charts import Line

# The start-up costs that the paper prints are 2(N-1) alpha.
_NETWORK = "--latency 45.26us --rate 10gbit"

_NODES = (2, 4, 8, 16, 32, 64)

# ---- table II ------------------------------------------------------------------------------------

_COSTS = Part(
    "mgwfbp-t2", Tier.MODEL, f"sluice formulas --workers 2,4,8,16,32,64 {_NETWORK} --json"
)


def _start(method: str, workers: int) -> Callable[[Plan], float]:
    """Microseconds that an all-reduce costs besides its bytes."""
    return lambda plan: 1e6 * float(plans.at(plan, workers)["costs"][method]["a_s"])


def _per_byte(plan: Plan, method: str) -> float:
    return float(plans.at(plan, 64)["costs"][method]["b_s_per_byte"])


def _draw_t2(kept: Kept) -> list[str]:
    plan = kept.data(_COSTS)
    if plan is None:
        return []
    methods = ("binary-tree", "recursive-doubling", "halving-doubling", "ring")
    lines = [
        Line(method, [(math.log2(n), _start(method, n)(plan) / 1e3) for n in _NODES], colour)
        for method, colour in zip(
            methods, ("#8c8c8c", "#E69F00", "#009E73", "#0072B2"), strict=True
        )
    ]
    return [charts.lines("Start-up cost of an all-reduce", "log2 of workers", "ms", lines)]


# ---- figures 5a and 9 ----------------------------------------------------------------------------

_MODELS = ("resnet50", "googlenet")
# A K80's processor makes about 60 images of ResNet-50 and 130 of GoogleNet in a second.
_SIMULATED = {
    model: Part(
        f"mgwfbp-f9-{model}",
        Tier.MODEL,
        f"sluice formulas --profile {model} --workers 4,8,16,32,64 --compute-time 500ms {_NETWORK} "
        "--json",
    )
    for model in _MODELS
}


def _parameters(plan: Plan) -> list[float]:
    return [layer["bytes"] / 4 for layer in plan["layers"]]


def _usual_share(plan: Plan) -> float:
    """The share of layers with 10^2 to 5 * 10^6 parameters."""
    sizes = _parameters(plan)
    return sum(1e2 <= size <= 5e6 for size in sizes) / len(sizes)


def _draw_f5a(kept: Kept) -> list[str]:
    lines = []
    for (model, part), colour in zip(_SIMULATED.items(), ("#0072B2", "#E69F00"), strict=True):
        plan = kept.data(part)
        if plan is not None:
            points = [(n + 1.0, math.log10(size)) for n, size in enumerate(_parameters(plan))]
            lines.append(Line(model, points, colour, is_joined=False))
    return [charts.lines("Parameters of layers", "layer", "log10 of parameters", lines)]


def _draw_f9(kept: Kept) -> list[str]:
    drawn = []
    for model, part in _SIMULATED.items():
        plan = kept.data(part)
        if plan is None:
            continue
        names = ("wfbp", "one-message", "mgwfbp-paper", "mgwfbp")
        lines = [
            Line(name, [(n, n * plan["compute_s"] / plans.seconds(plan, name, n))
                        for n in (4, 8, 16, 32, 64)], colour, dash)
            for name, colour, dash in zip(names, ("#E69F00", "#8c8c8c", "#0072B2", "#D55E00"),
                                          ("", "", "", "6 3"), strict=True)
        ]  # fmt: skip
        drawn.append(charts.lines(model, "nodes", "speed-up", lines, x_ticks=[4, 8, 16, 32, 64]))
    return drawn


def _f9_claims(model: str, printed: tuple[str, str]) -> tuple[Claim, ...]:
    part = _SIMULATED[model]
    return (
        Claim(f"MG-WFBP over WFBP, 64 nodes, {model}",
              plans.speedup(part, "wfbp", "mgwfbp-paper", 64), least=1, printed=printed[0]),
        Claim(f"MG-WFBP over SyncEASGD, 64 nodes, {model}",
              plans.speedup(part, "one-message", "mgwfbp-paper", 64), least=1, printed=printed[1]),
        Claim(f"WFBP over SyncEASGD, 4 nodes, {model}",
              plans.speedup(part, "one-message", "wfbp", 4), least=1, printed="WFBP is ahead"),
        Claim(f"WFBP over SyncEASGD, 64 nodes, {model}",
              plans.speedup(part, "one-message", "wfbp", 64), most=1,
              printed="SyncEASGD is ahead: the lines cross"),
    )  # fmt: skip


ROWS = (
    Row("mgwfbp", "t1", "Names of quantities", has_content=False,
        reason="the table lists notation"),
    Row(
        "mgwfbp", "t2", "Costs of all-reduces by algorithm",
        parts=(_COSTS,),
        claims=(
            *(Claim(f"Start-up of a ring of {n}", exact(_COSTS, _start("ring", n)),
                    least=printed - 0.01, most=printed + 0.01, printed=f"{printed}", unit="us")
              for n, printed in ((2, 90.52), (4, 271.56), (8, 633.64))),
            Claim("Start-up of a ring over that of recursive doubling, 64 workers",
                  exact(_COSTS, lambda plan: _start("ring", 64)(plan)
                        / _start("recursive-doubling", 64)(plan)),
                  least=20.999, most=21.001, printed="2(N-1) / log2 N = 21"),
            Claim("Cost of a byte in a ring over recursive doubling, 64 workers",
                  exact(_COSTS, lambda plan: _per_byte(plan, "ring")
                        / _per_byte(plan, "recursive-doubling")),
                  least=0.328, most=0.3282, printed="2(N-1)/N / log2 N = 0.3281"),
        ),
        substitute="The latency that the paper's start-up costs imply, and 10 Gbit/s.",
        honest="Nothing is replaced; summing costs nothing here, as gamma is not printed.",
        draw=_draw_t2,
    ),
    *mgwfbp_examples.ROWS,
    Row("mgwfbp", "f5a", "Sizes of layers", parts=tuple(_SIMULATED.values()),
        claims=tuple(
            claim for model, millions, printed in (("resnet50", 25.5, "about 25.5"),
                                                   ("googlenet", 13.0, "about 13"))
            for claim in (
                Claim(f"Share of layers with 10^2 to 5 10^6 parameters, {model}",
                      exact(_SIMULATED[model], _usual_share), least=0.9, printed="mainly"),
                Claim(f"Parameters, {model}",
                      exact(_SIMULATED[model], lambda plan: sum(_parameters(plan)) / 1e6),
                      least=0.95 * millions, most=1.05 * millions, printed=printed,
                      unit="million"),
            )
        ),
        substitute="Sizes of the built-in profiles.",
        honest="Sizes follow from the models' definitions.", draw=_draw_f5a),
)  # fmt: skip

ROW_F9 = Row(
    "mgwfbp", "f9", "Simulated speed-up, 4 to 64 nodes",
    parts=tuple(_SIMULATED.values()),
    claims=(
        *_f9_claims("resnet50", ("1.75", "1.45")),
        Claim("Scaling of MG-WFBP, 64 nodes, resnet50",
              plans.efficiency(_SIMULATED["resnet50"], "mgwfbp-paper", 64), least=0.9,
              printed="almost linear"),
        Claim("Scaling of WFBP, 64 nodes, resnet50",
              plans.efficiency(_SIMULATED["resnet50"], "wfbp", 64), least=0.45, most=0.65,
              printed="around 0.55"),
        Claim("Scaling of SyncEASGD, 64 nodes, resnet50",
              plans.efficiency(_SIMULATED["resnet50"], "one-message", 64), least=0.45, most=0.65,
              printed="around 0.55"),
        *_f9_claims("googlenet", ("1.78", "1.35")),
    ),
    substitute="The same simulation by the core's formulas. Layer times go by multiply-adds, and "
    "an iteration of a K80 is taken as 0.5 s, since the paper prints no times.",
    honest="The paper simulates with the same model of cost. Other layer times move the factors.",
    draw=_draw_f9,
)  # fmt: skip
