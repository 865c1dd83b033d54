"""P3, figures 1 to 6: the worked examples, and the sizes of layers."""

from __future__ import annotations

from typing import Any

from sluice_papers.reproduce import inputs, plans
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pictures import gantt
from sluice_papers.reproduce.plans import exact
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.reproduce.timeline import Job, Piece, ends_of, play
from sluice_papers.study import charts

# ---- figures 4 and 6: worked examples ------------------------------------------------------------

_TOY = [(1.0, 1.0, 250_000)] * 3  # a megabyte each: two seconds at 4 Mbit/s
_F4 = Part(
    "p3-f4",
    Tier.MODEL,
    "sluice formulas --profile {inputs}/p3-f4.json --workers 2 --compute-time 6s --latency 0s "
    "--rate 4mbit --method link --json",
    inputs={"p3-f4.json": inputs.toy("three equal layers", _TOY)},
)


def _delay_of(plan: plans.Plan, name: str) -> float:
    """Returns the time between backward and forward in which nothing is computed."""
    return float(plans.schedule(plan, name, 2)["exposed_s"])


def _one_layer(plan: plans.Plan) -> float:
    return plans.cost(plan, 2)[1] * float(plan["layers"][0]["bytes"])


def _draw_f4(kept: Kept) -> list[str]:
    plan = kept.data(_F4)
    if plan is None:
        return []
    drawn = []
    for title, by_priority in (("In order of generation", False), ("By priority", True)):
        jobs = [
            Job(f"s{layer}", 4.0 - layer, (_one_layer(plan),), priority=layer)
            for layer in (3, 2, 1)
        ]
        link = play(jobs, by_priority=by_priority)
        arrived = ends_of(link, 0)
        computing = [Piece(f"b{layer}", 0, 3.0 - layer, 4.0 - layer) for layer in (3, 2, 1)]
        now = 3.0
        for layer in (1, 2, 3):
            begin = max(now, arrived[f"s{layer}"])
            now = begin + 1
            computing.append(Piece(f"f{layer}", 0, begin, now))
        drawn.append(gantt(title, [("computing", computing), ("link", link)], "units"))
    return drawn


def _coarse_and_fine() -> dict[str, Any]:
    """Plays push, update and publish of three layers, of which the second takes three times as
    long; then of the same with the second layer in three slices."""
    coarse = [("c3", 1.0, 1.0), ("c2", 2.0, 3.0), ("c1", 3.0, 1.0)]
    fine = [coarse[0], ("c2a", 2.0, 1.0), ("c2b", 2.0, 1.0), ("c2c", 2.0, 1.0), coarse[2]]
    found: dict[str, Any] = {}
    for name, layers in (("coarse", coarse), ("fine", fine)):
        pieces = play([Job(label, ready, (time,) * 3) for label, ready, time in layers])
        begin = min(piece.begin for piece in pieces)
        found[name] = {
            "units": max(piece.end for piece in pieces) - begin,
            "pieces": [[piece.name, piece.station, piece.begin, piece.end] for piece in pieces],
        }
    return found


def _only_published(data: dict[str, Any]) -> float:
    """Returns how long nothing but parameters travels at the end, with whole layers."""
    ends = [
        max(end for _, station, _, end in data["coarse"]["pieces"] if station == wanted)
        for wanted in (1, 2)
    ]
    return float(ends[1] - ends[0])


_F6 = Part("p3-f6", Tier.MODEL, compute=_coarse_and_fine)


def _draw_f6(kept: Kept) -> list[str]:
    data = kept.data(_F6)
    drawn = []
    for title, name in (("Whole layers", "coarse"), ("The second layer in three slices", "fine")):
        pieces = [Piece(*piece) for piece in data[name]["pieces"]] if data else []
        lanes = [
            (label, [piece for piece in pieces if piece.station == station])
            for station, label in enumerate(("push", "update", "publish"))
        ]
        drawn += [gantt(title, lanes, "units")] if pieces else []
    return drawn


# ---- figure 5: sizes of layers -------------------------------------------------------------------

_SIZES = {
    profile: Part(
        f"p3-f5-{profile}", Tier.MODEL, f"sluice formulas --profile {profile} --workers 2 --json"
    )
    for profile in ("resnet50", "vgg19", "sockeye")
}


def _bytes(plan: plans.Plan) -> list[float]:
    return [layer["bytes"] for layer in plan["layers"]]


def _largest_share(plan: plans.Plan) -> float:
    return 100 * max(_bytes(plan)) / sum(_bytes(plan))


def _place_of_largest(plan: plans.Plan) -> float:
    return 1.0 + _bytes(plan).index(max(_bytes(plan)))


def _draw_f5(kept: Kept) -> list[str]:
    drawn = []
    for part in _SIZES.values():
        plan = kept.data(part)
        if plan is not None:
            points = [(place + 1.0, size / 4e6) for place, size in enumerate(_bytes(plan))]
            line = charts.Line("a layer", points, "#0072B2", is_joined=False)
            drawn.append(charts.lines(plan["profile"], "layer", "million parameters", [line]))
    return drawn


# ---- rows ----------------------------------------------------------------------------------------

_DRAWING = "the paper shows an idea without data"

ROWS = (
    Row("p3", "f1", "The order in which layers are computed and needed again", reason=_DRAWING,
        has_content=False),
    Row("p3", "f2", "A deep neural network", reason=_DRAWING, has_content=False),
    Row("p3", "f3", "Workers and parameter servers", reason=_DRAWING, has_content=False),
    Row(
        "p3", "f4", "Three layers: the delay between two iterations in order of generation and by "
        "priority",
        parts=(_F4,),
        claims=(
            Claim("Delay in order of generation, over the time to synchronise one layer",
                  exact(_F4, lambda plan: _delay_of(plan, "fifo") / _one_layer(plan)),
                  least=1.999, most=2.001, printed="2 (twice)"),
            Claim("Delay by priority, over the delay in order of generation",
                  exact(_F4, lambda plan: _delay_of(plan, "p3") / _delay_of(plan, "fifo")),
                  least=0.499, most=0.501, printed="0.5 (by half)"),
        ),
        substitute="The example itself, by the core's link model.",
        honest="Nothing is replaced.",
        draw=_draw_f4,
    ),
    Row(
        "p3", "f5", "Parameters of each layer of ResNet-50, VGG-19 and Sockeye",
        parts=tuple(_SIZES.values()),
        claims=(
            Claim("Largest layer of VGG-19, of all parameters",
                  exact(_SIZES["vgg19"], _largest_share), least=71.45, most=71.55,
                  printed="71.5", unit="%"),
            Claim("Place of Sockeye's heaviest layer",
                  exact(_SIZES["sockeye"], _place_of_largest), most=1.5,
                  printed="1 (the initial layer)"),
            Claim("Largest layer of ResNet-50, of all parameters",
                  exact(_SIZES["resnet50"], _largest_share), most=25.0,
                  printed="relatively small layers", unit="%"),
        ),
        substitute="The sizes of the built-in profiles; Sockeye's layers are reconstructed.",
        honest="Sizes of ResNet-50 and VGG-19 are exact. The paper prints no table of Sockeye.",
        draw=_draw_f5,
    ),
    Row(
        "p3", "f6", "Push, update and publish of three layers, whole and in slices",
        parts=(_F6,),
        claims=(
            Claim("Communication that slices save",
                  exact(_F6, lambda data: 100 * (1 - data["fine"]["units"]
                                                 / data["coarse"]["units"])),
                  least=30, printed="30", unit="%"),
            Claim("Last units in which whole layers are only received",
                  exact(_F6, _only_published), least=2.999, most=3.001, printed="3"),
        ),
        substitute="The example itself, by an event model of three stations in a row.",
        honest="Nothing is replaced. The paper rounds, or counts from another moment.",
        draw=_draw_f6,
    ),
)  # fmt: skip
