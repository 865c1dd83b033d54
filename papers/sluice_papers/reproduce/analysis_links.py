"""The analysis, figures 3 and 4: the parts of a step's time, and slow links with one server, with
whole layers on servers and with even servers."""

from __future__ import annotations

from sluice_papers.reproduce import plans, replays, trainings
from sluice_papers.reproduce.analysis_speed import FAIR, RATIOS, REPLAYED
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pictures import colour_of
from sluice_papers.reproduce.replays import Of
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.reproduce.trainings import Trained
from sluice_papers.study import algorithms, charts, figures
from sluice_papers.study.charts import Bar
from sluice_papers.study.results import Results
from sluice_papers.study.time_parts import PARTS

_NAMES = ("bsp", "asp", "ssp:3")


def _title(name: str) -> str:
    return algorithms.parse(name).title


# ---- figure 3: the parts of a step's time --------------------------------------------------------

# A step of N workers with even servers sends the perceptron's 4 MB 2 (N - 1) / N times over each
# link; the pace makes the ratio. All links together must not be more than two cores can carry.
_MEGABITS = {24: 50, 8: 100}  # a second, of each link
_STEPS_OF_EACH = 30
_N = 24


def _pace(workers: int, speed: str) -> float:
    """Returns the milliseconds of computing in a step."""
    wire = 2 * (workers - 1) / workers * 4.01 * 8 / _MEGABITS[workers]
    return 1e3 * wire / RATIOS[speed]


_PARTS = {
    (speed, workers): Part(
        f"analysis-f3-{speed}-n{workers}",
        Tier.LAB,
        "sluice study --data synthetic --model mlp --batch 8 --samples "
        f"{_STEPS_OF_EACH * 8 * workers} --algorithms {','.join(_NAMES)} --workers {workers} "
        f"--seeds 3 --epochs 1 --traces --lab --rate {_MEGABITS[workers]}mbit "
        f"--jitter 0.25:1.05x --pace {_pace(workers, speed):.0f} -o {{folder}}",
        seconds=seconds,
    )
    for speed, workers, seconds in (("10gbit", _N, 600), ("10gbit", 8, 240), ("56gbit", _N, 900))
}


def _share(name: str, *parts: str, speed: str = "10gbit", workers: int = _N) -> plans.Measure:
    return trainings.part_of_step(Trained(_PARTS[speed, workers], name, workers), *parts)


def _draw_f3(kept: Kept) -> list[str]:
    drawn = []
    for (_, workers), part in _PARTS.items():
        rows = kept.data(part)
        drawn.append(figures.breakdown(Results(rows), workers) if rows else "")
    return [picture for picture in drawn if picture]


F3 = Row(
    "analysis", "f3", "Parts of a step's time",
    parts=tuple(_PARTS.values()),
    claims=(
        Claim("Aggregation and waiting, of a step of BSP, 24 workers, 10 Gbit/s",
              _share("bsp", "aggregation", "waiting"), least=0.5,
              printed="aggregation is more than half"),
        Claim("Waiting, of BSP's aggregation and waiting",
              replays.over(_share("bsp", "waiting"), _share("bsp", "aggregation", "waiting")),
              printed="up to 0.8"),
        *(Claim(f"Wire, of a step of {_title(name)}, 24 workers, 10 Gbit/s", _share(name, "wire"),
                least=0.5, printed="communication is more than half")
          for name in _NAMES[1:]),
        *(Claim(f"{part.capitalize()}, of a step of {_title(name)}, {workers} workers, {speed}",
                _share(name, part, speed=speed, workers=workers))
          for speed, workers in _PARTS for name in _NAMES for part in PARTS[:-1]),
        *(Claim(f"Unexplained, of a step of {_title(name)}, {workers} workers, {speed}",
                _share(name, "unexplained", speed=speed, workers=workers), most=0.03,
                is_ours=True)
          for speed, workers in _PARTS for name in _NAMES),
    ),
    substitute="Processes on lab hosts train a perceptron of a million parameters over slow links; "
    "a step's computing is stretched, so that the ratios stand for 10 and 56 Gbit/s. One step in "
    "four takes longer by the paper's difference between workers.",
    honest="Each part comes from events of its own in traces of all hosts, and the rest is "
    "printed. Hosts sum nothing before they send, and servers are even; the paper's are not.",
    draw=_draw_f3,
)  # fmt: skip

# ---- figure 4: sharding, wait-free backward and DGC, and slow links ------------------------------

# One server has a host of its own: a worker beside it would have no network, and be far ahead.
_PLACES = {"one": "--servers dedicated:1 ", "layers": "--placement layers ", "even": ""}
# Where the network is the limit, workers that do not keep step get unequal shares of it: one must
# not end before all others have begun to count.
_ITERATIONS = {"10gbit": 8, "56gbit": 5}
_STEPS = {
    "plain": "--servers dedicated:1 --no-overlap ",
    "sharded": "--no-overlap ",
    "even": "",
    "dgc": "--dgc ",
}


def _replay(name: str, more: str, workers: int, speed: str) -> Part:
    # One server takes seconds for an iteration.
    runs = 3 if "dedicated" in more else 5
    return Part(
        f"analysis-f4-{name}-n{workers}-{speed}",
        Tier.LAB,
        f"sluice bench replay --profile resnet50 --shrink 8 --workers {workers} --rate 1200mbit "
        f"--ratio {RATIOS[speed]:g} --algorithms {','.join(_NAMES)} {more}--runs {runs} "
        f"--iterations {_ITERATIONS[speed]} --lab --encrypt off --json {{out}}",
        seconds=60 * _minutes(more, workers, speed),
    )


def _minutes(more: str, workers: int, speed: str) -> float:
    """Returns about how long a replay takes. One server sends what N - 1 workers read; fast links
    are long computing."""
    if "dedicated" in more:
        return 10 if workers == 8 else 5
    return 4


# The slow links come first, since they tell most.
_LINKS = {
    (place, workers, speed): _replay(place, more, workers, speed)
    for speed in RATIOS
    for workers in (8, 4)
    for place, more in _PLACES.items()
}
_OPTIMISED = {
    (step, speed): _LINKS["even", 8, speed] if step == "even" else _replay(step, more, 8, speed)
    for speed in RATIOS
    for step, more in _STEPS.items()
}


def _over_bsp(name: str, place: str, workers: int, speed: str) -> plans.Measure:
    part = _LINKS[place, workers, speed]
    return replays.speedup(Of(part, "bsp"), Of(part, name))


def _helped(algorithm: str, before: str, after: str, speed: str) -> plans.Measure:
    return replays.speedup(
        Of(_OPTIMISED[before, speed], algorithm), Of(_OPTIMISED[after, speed], algorithm)
    )


def _draw_f4(kept: Kept) -> list[str]:
    drawn = []
    for speed in RATIOS:
        drawn.append(
            _bars(
                kept,
                f"8 workers, ratio of {speed}",
                [_OPTIMISED[step, speed] for step in _STEPS],
                ("one server", "+ sharding", "+ wait-free backward", "+ DGC"),
            )
        )
        for workers in (4, 8):
            drawn.append(
                _bars(
                    kept,
                    f"{workers} workers, ratio of {speed}",
                    [_LINKS[place, workers, speed] for place in _PLACES],
                    ("one server", "whole layers", "even servers"),
                )
            )
    return [picture for picture in drawn if picture]


def _bars(kept: Kept, title: str, parts: list[Part], names: tuple[str, ...]) -> str:
    """Draws what each algorithm reaches, of computing without a network. Empty if a part is
    missing."""
    bars = []
    for algorithm in _NAMES:
        rows = [Of(part, algorithm).figures(kept) for part in parts]
        values = [row["compute_s"] / row["iteration_s"] for row in rows if row is not None]
        if len(values) == len(parts):
            bars.append(Bar(algorithm, values))
    kinds = [(name, colour_of("", place + 1)) for place, name in enumerate(names)]
    return charts.bars(title, "of linear", bars, kinds, is_stacked=False) if bars else ""


F4 = Row(
    "analysis", "f4", "Throughput with sharding, wait-free backward and DGC",
    parts=(*_LINKS.values(), *(part for (step, _), part in _OPTIMISED.items() if step != "even")),
    claims=(
        Claim("ASP over BSP, one server, 8 workers, 10 Gbit/s",
              _over_bsp("asp", "one", 8, "10gbit"), most=1,
              printed="ASP is slower (24 workers, its servers)"),
        Claim("Gain of ASP by sharding over that of BSP, 10 Gbit/s",
              replays.over(_helped("asp", "plain", "sharded", "10gbit"),
                           _helped("bsp", "plain", "sharded", "10gbit")),
              least=1, printed="more effective for ASP"),
        *(Claim(f"Gain of {_title(name)} by wait-free backward, 10 Gbit/s",
                _helped(name, "sharded", "even", "10gbit"), printed="little") for name in _NAMES),
        Claim("Gain of ASP by DGC over that of BSP, 10 Gbit/s",
              replays.over(_helped("asp", "even", "dgc", "10gbit"),
                           _helped("bsp", "even", "dgc", "10gbit")),
              least=1, printed="larger in ASP"),
        Claim("Gain of ASP by DGC at 10 over that at 56 Gbit/s",
              replays.over(_helped("asp", "even", "dgc", "10gbit"),
                           _helped("asp", "even", "dgc", "56gbit")),
              least=1, printed="more effective on 10 Gbit/s"),
        *(Claim(f"{_title(name)} over BSP, {place}, {workers} workers, {speed}",
                _over_bsp(name, place, workers, speed), least=1, is_ours=True)
          for (place, workers, speed) in _LINKS for name in _NAMES[1:]),
    ),
    substitute=REPLAYED,
    honest=FAIR + " The paper's gain of BSP is smaller because of local aggregation, which is "
    "not here.",
    draw=_draw_f4,
)  # fmt: skip
