"""The analysis, table I and figure 2: bytes and speed."""

from __future__ import annotations

from sluice_papers.reproduce import inputs, plans, replays
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pictures import series
from sluice_papers.reproduce.pipesgd import MLP
from sluice_papers.reproduce.plans import exact
from sluice_papers.reproduce.replays import Of
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.study import algorithms, charts
from sluice_papers.study.charts import Bar

# ---- table I: bytes by formula -------------------------------------------------------------------

_N = 24
_ALL = algorithms.parse_list(algorithms.DEFAULT)


def _formulas() -> dict[str, float]:
    """Returns the models that a worker and the server beside it send in a step. A share of 1/N of
    what goes over servers stays at home."""
    return {one.text: one.models_sent(_N) for one in _ALL}


_T1 = Part("analysis-t1", Tier.MODEL, compute=_formulas)
_WIRE = Part(
    "analysis-t1-wire",
    Tier.LAB,
    "sluice bench replay --profile {inputs}/mnist-mlp.json --workers 4 --rate 500mbit --runs 1 "
    "--iterations 80 --algorithms bsp,asp,ssp:3,ssp:10,easgd:4,easgd:8,arsgd,gosgd:1,gosgd:0.1,"
    "adpsgd --lab --encrypt off --json {out}",
    seconds=120,
    inputs={"mnist-mlp.json": MLP},
)
_MEASURED = ("bsp", "asp", "ssp:3", "ssp:10", "easgd:4", "easgd:8", "arsgd", "gosgd:1", "adpsgd")


def _fewer(more: str, fewer: str) -> plans.Measure:
    """Bytes of one algorithm over those of another."""
    return exact(_T1, lambda sent: sent[more] / sent[fewer])


def _over_formula(name: str) -> plans.Measure:
    formula = algorithms.parse(name).models_sent(4)
    return replays.models_on_wire(Of(_WIRE, name), 4 * inputs.parameters(MLP) * formula)


def _draw_t1(kept: Kept) -> list[str]:
    sent = kept.data(_T1)
    if sent is None:
        return []
    bars = [Bar(algorithms.parse(name).title, [value]) for name, value in sent.items()]
    title = f"Models that a worker sends in a step, {_N} workers"
    return [charts.bars(title, "models", bars, [("formula", "#0072B2")])]


# ---- figure 2: speed -----------------------------------------------------------------------

# Ratios of wire to compute time that differ as 10 and 56 Gbit/s do, on both sides of 1.
RATIOS = {"10gbit": 2.8, "56gbit": 0.5}
_MODELS = ("resnet50", "vgg16")
_ASYNC = "--runs 3 --iterations 20 --lab --encrypt off --json {out}"
_SCALE = {
    (model, speed): Part(
        f"analysis-f2-{model}-{speed}",
        Tier.LAB,
        f"sluice bench scale --profile {model} --shrink 8 --workers 2,4,8,16,24 --ratio {ratio:g} "
        f"--algorithms bsp,asp,ssp:3,wfbp,adpsgd {_ASYNC}",
        seconds=3000,
    )
    for model in _MODELS
    for speed, ratio in RATIOS.items()
}
_SIMULATED = {
    (model, speed): Part(
        f"analysis-f2-{model}-{speed}-sim",
        Tier.SIM,
        f"sluice simulate --profile {model} --hosts 8,24 --rate 10gbit --ratio {ratio:g} "
        "--algorithms bsp,asp,ssp:3,wfbp,adpsgd --cpu free --seeds 3 --json {out}",
        seconds=240,
    )
    for model in _MODELS
    for speed, ratio in RATIOS.items()
}

_Parts = dict[tuple[str, str], Part]


def _at(parts: _Parts, model: str, speed: str, algorithm: str) -> Of:
    return Of(parts[model, speed], algorithm, {"workers": _N})


def _gain(parts: _Parts, algorithm: str) -> plans.Measure:
    """The throughput with the fast links over that with the slow ones, over computing."""
    return replays.over(
        replays.linear_share(_at(parts, "resnet50", "56gbit", algorithm)),
        replays.linear_share(_at(parts, "resnet50", "10gbit", algorithm)),
    )


def _claims_of_f2(parts: _Parts, place: str) -> tuple[Claim, ...]:
    return (
        Claim(f"ASP over BSP, ResNet-50, {_N} workers, 10 Gbit/s, {place}",
              replays.speedup(_at(parts, "resnet50", "10gbit", "bsp"),
                              _at(parts, "resnet50", "10gbit", "asp")),
              most=1, printed="ASP is slower"),
        *(Claim(f"Gain of {title} by 56 over that of BSP, {_N} workers, {place}",
                replays.over(_gain(parts, name), _gain(parts, "bsp")), least=1, printed="larger")
          for name, title in (("asp", "ASP"), ("ssp:3", "SSP"))),
        *(Claim(f"{title} over ASP, VGG-16, {_N} workers, 10 Gbit/s, {place}",
                replays.speedup(_at(parts, "vgg16", "10gbit", "asp"),
                                _at(parts, "vgg16", "10gbit", name)), least=1,
                printed="decentralised ones scale better")
          for name, title in (("wfbp", "AR-SGD"), ("adpsgd", "AD-PSGD"))),
    )  # fmt: skip


def _draw_f2(kept: Kept) -> list[str]:
    places = ((_SCALE, ""), (_SIMULATED, ", simulated"))
    return [
        one
        for parts, place in places
        for (model, speed), part in parts.items()
        for one in series(kept, part, f"{model}, {speed}{place}", "workers", "workers")
    ]


REPLAYED = (
    "Lab hosts replay computing, with tensors of an eighth. Two ratios of wire to compute time "
    "stand for 10 and 56 Gbit/s. A worker has a host of its own, so nothing is summed inside one; "
    "one worker alone is the unit of throughput."
)
FAIR = (
    "Only the ratio decides who is faster. The paper prints no compute time, so the ratios are "
    "chosen, and only their quotient is the paper's."
)

BYTES = (
    Row("analysis", "t1", "Bytes of each algorithm", parts=(_T1, _WIRE),
        claims=(
            Claim("ASP over SSP, s = 10", _fewer("asp", "ssp:10"), least=1, printed="2 / (1 + 1/11)"
                  " = 1.83"),
            Claim("BSP over EASGD, tau = 8", _fewer("bsp", "easgd:8"), least=7.999, most=8.001,
                  printed="8"),
            Claim("AD-PSGD over GoSGD, p = 0.1", _fewer("adpsgd", "gosgd:0.1"), least=9.999,
                  most=10.001, printed="1 / p = 10"),
            *(Claim(f"Bytes on the wire over the formula, {name}, 4 workers", _over_formula(name),
                    least=0.8, most=1.25, printed="1") for name in _MEASURED),
        ),
        substitute="The formulas without local aggregation, and bytes counted on lab links.",
        honest="Rates of convergence are proofs and are not measured.", draw=_draw_t1),
)  # fmt: skip

SPEED = (
    Row("analysis", "f2", "Throughput by workers, two models, 10 and 56 Gbit/s",
        parts=(*_SCALE.values(), *_SIMULATED.values()),
        claims=(*_claims_of_f2(_SCALE, "lab"), *_claims_of_f2(_SIMULATED, "simulated")),
        substitute=REPLAYED + " AR-SGD is wfbp, since the paper's overlaps with backward. "
        "Simulated hosts take no time for their own work.",
        honest=FAIR, draw=_draw_f2),
)  # fmt: skip
