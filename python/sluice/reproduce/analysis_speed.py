"""The analysis, table I and figures 2 to 4: bytes and speed."""

from __future__ import annotations

from typing import Any

from sluice.reproduce import inputs, plans, replays
from sluice.reproduce.kept import Kept
from sluice.reproduce.pictures import colour_of, series
from sluice.reproduce.pipesgd import MLP
from sluice.reproduce.plans import exact
from sluice.reproduce.replays import Of
from sluice.reproduce.rows import Claim, Measured, Part, Row, Tier
from sluice.reproduce.verdicts import interval
from sluice.study import algorithms, charts
from sluice.study.charts import Bar

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
    models = replays.models_on_wire(Of(_WIRE, name), 4 * inputs.parameters(MLP))

    def measure(kept: Kept) -> Measured | None:
        found = models(kept)
        return None if found is None else Measured(found.value / formula)

    return measure


def _draw_t1(kept: Kept) -> list[str]:
    sent = kept.data(_T1)
    if sent is None:
        return []
    bars = [Bar(algorithms.parse(name).title, [value]) for name, value in sent.items()]
    title = f"Models that a worker sends in a step, {_N} workers"
    return [charts.bars(title, "models", bars, [("formula", "#0072B2")])]


# ---- figures 2 to 4: speed -----------------------------------------------------------------------

# Ratios of wire to compute time that differ as 10 and 56 Gbit/s do, on both sides of 1.
_RATIOS = {"10gbit": 2.8, "56gbit": 0.5}
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
    for speed, ratio in _RATIOS.items()
}
_LATE = Part(
    "analysis-f3",
    Tier.LAB,
    "sluice bench replay --profile resnet50 --workers 4 --ratio 1 --algorithms bsp --runs 1 "
    "--iterations 5 --jitter 0.25:1.05x --lab --encrypt off --trace {folder}\n"
    "sluice trace merge {folder}/bsp-1 --json",
    seconds=60,
)


def _option(name: str, more: str, speed: str) -> Part:
    return Part(
        f"analysis-f4-{name}-{speed}",
        Tier.LAB,
        "sluice bench replay --profile resnet50 --shrink 8 --workers 8 "
        f"--ratio {_RATIOS[speed]:g} --algorithms bsp,asp,ssp:3 {more}{_ASYNC}",
        seconds=300,
    )


_OPTIONS = {
    (name, speed): _option(name, more, speed)
    for name, more in (
        ("one-server", "--servers 1 "),
        ("sharded", ""),
        ("dgc", "--dgc "),
    )
    for speed in _RATIOS
}


def _at(model: str, speed: str, algorithm: str, workers: int) -> Of:
    return Of(_SCALE[model, speed], algorithm, {"workers": workers})


def _gain(algorithm: str) -> plans.Measure:
    """The throughput with the fast links over that with the slow ones, over computing."""
    return replays.over(
        replays.linear_share(_at("resnet50", "56gbit", algorithm, 24)),
        replays.linear_share(_at("resnet50", "10gbit", algorithm, 24)),
    )


def _not_computing(algorithm: str) -> plans.Measure:
    share = replays.linear_share(_at("resnet50", "10gbit", algorithm, 24))

    def measure(kept: Kept) -> Measured | None:
        found = share(kept)
        return None if found is None else Measured(1 - found.value, found.margin)

    return measure


def _helped(algorithm: str, before: str, after: str, speed: str) -> plans.Measure:
    return replays.speedup(
        Of(_OPTIONS[before, speed], algorithm), Of(_OPTIONS[after, speed], algorithm)
    )


_KINDS = {
    "computing": ("compute",),
    "aggregation": ("collect", "reduce", "update", "gate"),
    "communication": ("ready", "queued", "push", "publish", "stage-out", "stage-in"),
    "unexplained": ("unknown",),
}


def _shares(iteration: dict[str, Any]) -> dict[str, float]:
    """Returns the parts of an iteration's critical path."""
    found = dict.fromkeys(_KINDS, 0.0)
    for piece in iteration["parts"]:
        kind = next((kind for kind, of in _KINDS.items() if piece["what"] in of), "unexplained")
        found[kind] += piece["length_s"] / iteration["length_s"]
    return found


def _share(kind: str) -> plans.Measure:
    def measure(kept: Kept) -> Measured | None:
        data = kept.data(_LATE)
        return (
            None if data is None else interval([_shares(one)[kind] for one in data["iterations"]])
        )

    return measure


def _draw_f3(kept: Kept) -> list[str]:
    data = kept.data(_LATE)
    if data is None:
        return []
    all_shares = [_shares(one) for one in data["iterations"]]
    shares = {kind: sum(one[kind] for one in all_shares) / len(all_shares) for kind in _KINDS}
    colours = ("#8c8c8c", "#D55E00", "#0072B2", "#000000")
    kinds = list(zip(shares, colours, strict=True))
    return [charts.bars("BSP, 4 workers", "of an iteration", [Bar("BSP", list(shares.values()))],
                        kinds)]  # fmt: skip


def _draw_f4(kept: Kept) -> list[str]:
    drawn = []
    for speed in _RATIOS:
        bars = []
        for name in ("bsp", "asp", "ssp:3"):
            rows = [Of(_OPTIONS[step, speed], name).figures(kept)
                    for step in ("one-server", "sharded", "dgc")]  # fmt: skip
            if all(row is not None for row in rows):
                values = [row["compute_s"] / row["iteration_s"] for row in rows if row is not None]
                bars.append(Bar(name, values))
        kinds = [(name, colour_of("", place + 1)) for place, name in
                 enumerate(("one server", "+ sharding", "+ DGC"))]  # fmt: skip
        if bars:
            title = f"8 workers, ratio of {speed}"
            drawn.append(charts.bars(title, "of linear", bars, kinds, is_stacked=False))
    return drawn


_REPLAYED = (
    "Lab hosts replay computing, with tensors of an eighth. Two ratios of wire to compute time "
    "stand for 10 and 56 Gbit/s. A worker has a host of its own, so nothing is summed inside one; "
    "one worker alone is the unit of throughput."
)
_FAIR = (
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
        parts=(*_SCALE.values(), Part("analysis-f2-sim", Tier.SIM)),
        claims=(
            Claim("ASP over BSP, ResNet-50, 24 workers, 10 Gbit/s",
                  replays.speedup(_at("resnet50", "10gbit", "bsp", 24),
                                  _at("resnet50", "10gbit", "asp", 24)),
                  most=1, printed="ASP is slower"),
            *(Claim(f"Gain of {title} by 56 over that of BSP, 24 workers",
                    replays.over(_gain(name), _gain("bsp")), least=1, printed="larger")
              for name, title in (("asp", "ASP"), ("ssp:3", "SSP"))),
            *(Claim(f"{title} over ASP, VGG-16, 24 workers, 10 Gbit/s",
                    replays.speedup(_at("vgg16", "10gbit", "asp", 24),
                                    _at("vgg16", "10gbit", name, 24)), least=1,
                    printed="decentralised ones scale better")
              for name, title in (("wfbp", "AR-SGD"), ("adpsgd", "AD-PSGD"))),
        ),
        substitute=_REPLAYED + " AR-SGD is wfbp, since the paper's overlaps with backward.",
        honest=_FAIR,
        draw=lambda kept: [one for (model, speed), part in _SCALE.items()
                           for one in series(kept, part, f"{model}, {speed}", "workers",
                                             "workers")]),
    Row("analysis", "f3", "Parts of a step's time",
        parts=(*(_SCALE["resnet50", speed] for speed in _RATIOS), _LATE),
        claims=(
            *(Claim(f"Time of {title} that is not computing, ResNet-50, 24 workers, 10 Gbit/s",
                    _not_computing(name), least=0.5, printed=printed)
              for name, title, printed in (
                  ("bsp", "BSP", "aggregation is more than half"),
                  ("asp", "ASP", "communication is more than half"),
                  ("ssp:3", "SSP", "communication is more than half"))),
            *(Claim(f"{kind.capitalize()}, of the critical path of BSP, 4 workers", _share(kind))
              for kind in ("computing", "aggregation", "communication")),
            Claim("Unexplained, of the critical path of BSP, 4 workers", _share("unexplained"),
                  most=0.03),
        ),
        substitute=_REPLAYED + " Parts of the critical path come from traces of four hosts, of "
        "which one step in four takes longer by the paper's difference between workers.",
        honest=_FAIR, draw=_draw_f3),
    Row("analysis", "f4", "Throughput with sharding, wait-free backward and DGC",
        parts=tuple(_OPTIONS.values()),
        claims=(
            Claim("Gain of ASP by sharding over that of BSP, 10 Gbit/s",
                  replays.over(_helped("asp", "one-server", "sharded", "10gbit"),
                               _helped("bsp", "one-server", "sharded", "10gbit")),
                  least=1, printed="more effective for ASP"),
            Claim("Gain of ASP by DGC over that of BSP, 10 Gbit/s",
                  replays.over(_helped("asp", "sharded", "dgc", "10gbit"),
                               _helped("bsp", "sharded", "dgc", "10gbit")),
                  least=1, printed="larger in ASP"),
            Claim("Gain of ASP by DGC at 10 over that at 56 Gbit/s",
                  replays.over(_helped("asp", "sharded", "dgc", "10gbit"),
                               _helped("asp", "sharded", "dgc", "56gbit")),
                  least=1, printed="more effective on 10 Gbit/s"),
        ),
        substitute=_REPLAYED + " Wait-free backward is always on.",
        honest=_FAIR + " The paper's gain of BSP is smaller because of local aggregation, which is "
        "not here.", draw=_draw_f4),
)  # fmt: skip
