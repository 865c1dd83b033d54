"""Rows of Pipe-SGD: Y. Li et al., A Decentralized Pipelined SGD Framework for Distributed Deep Net
Training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluice_papers.reproduce import inputs, pipesgd_formulas, plans, replays, trainings
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pictures import colour_of
from sluice_papers.reproduce.replays import Of
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.study import charts
from sluice_papers.study.charts import Bar, Line

# ---- figure 3: pipelining within an all-reduce ---------------------------------------------------

_CODECS = {"none": "", "int8": ", 8 bits"}
_KINDS = {"one": 1, "many": 0}  # strips; 0: as many as suit the size
# Rounds follow each other, so that a machine that becomes slower slows down all.
_STRIPS = {
    (codec, kind, round_): Part(
        f"pipesgd-f3-{codec}-{kind}-{round_}",
        Tier.LAB,
        "sluice bench collective --lab 4 --rate 1gbit --methods ring --sizes 4MB,25MB "
        f"--strips {strips} --codec {codec} --encrypt off --json {{out}}",
        seconds=6,
    )
    for round_ in (1, 2, 3)
    for codec in _CODECS
    for kind, strips in _KINDS.items()
}


def _of_25_mb(rows: list[dict[str, float]]) -> float:
    return next(row["p50_ms"] for row in rows if row["bytes"] == 25_000_000)


def _strips(codec: str, kind: str) -> plans.Measure:
    parts = [_STRIPS[codec, kind, round_] for round_ in (1, 2, 3)]
    return replays.repeated(parts, _of_25_mb)


def _draw_f3(kept: Kept) -> list[str]:
    found = {(codec, kind): _strips(codec, kind)(kept) for codec in _CODECS for kind in _KINDS}
    bars = [
        Bar(
            f"strips: {kind}{_CODECS[codec]}",
            [one.value],
            one.margin if one.margin < one.value else 0.0,
        )
        for (codec, kind), one in found.items()
        if one is not None
    ]
    if not bars:
        return []
    return [charts.bars("All-reduce of 25 MB", "ms", bars, [("in strips", "#0072B2")])]


_F3 = Row(
    "pipesgd", "f3", "Pipelining within an all-reduce",
    parts=tuple(_STRIPS.values()),
    claims=tuple(
        Claim(f"One strip over many strips, 25 MB{more}",
              replays.over(_strips(codec, "one"), _strips(codec, "many")), least=1,
              printed="the sum is hidden" if codec == "none" else "light compression is hidden")
        for codec, more in _CODECS.items()
    ),
    substitute="A ring of four lab hosts, in one strip and in as many as are usual here.",
    honest="Sums and bytes are real. The paper draws the idea and prints no time.",
    draw=_draw_f3,
)  # fmt: skip

# ---- figure 4: speed -----------------------------------------------------------------------------

MLP = inputs.perceptron("MNIST-MLP", (784, 500, 500, 10))
# By equation 4 the printed 2.0 and 3.2 over D-Sync are 1 + r with r of wire to compute time.
_RATIOS = {"mnist": 2.2, "alexnet": 2.2, "resnet18": 1.0}


def _speed(name: str, profile: str, more: str, seconds: float) -> tuple[Part, Part, Part]:
    """Parts for D-Sync and Pipe-SGD, for both with 8-bit gradients, and for PS-Sync."""
    files = {"mnist-mlp.json": MLP} if name == "mnist" else {}
    runs = (
        f"--profile {profile} --ratio {_RATIOS[name]:g} --workers 4 {more}--runs 3 --lab "
        "--encrypt off --json {out}"
    )
    return (
        Part(f"pipesgd-f4-{name}", Tier.LAB,
             f"sluice bench replay --algorithms allreduce,pipe {runs}", inputs=files,
             seconds=seconds),
        Part(f"pipesgd-f4-{name}-int8", Tier.LAB,
             f"sluice bench replay --algorithms allreduce,pipe --codec int8 {runs}", inputs=files,
             seconds=seconds),
        Part(f"pipesgd-f4-{name}-server", Tier.LAB,
             "sluice bench replay --algorithms kvstore --servers dedicated:1 --no-overlap " + runs,
             inputs=files, seconds=seconds),
    )  # fmt: skip


_SPEED = {
    "mnist": _speed("mnist", "{inputs}/mnist-mlp.json", "--rate 100mbit --iterations 20 ", 60),
    "alexnet": _speed("alexnet", "alexnet", "--shrink 8 --iterations 5 ", 120),
    "resnet18": _speed("resnet18", "resnet18", "--iterations 3 ", 60),
}


def _speed_claims(name: str) -> tuple[Claim, ...]:
    plain, small, server = _SPEED[name]
    return (
        Claim("Pipe-SGD over D-Sync", replays.speedup(Of(plain, "allreduce"), Of(plain, "pipe")),
              least=1, printed="not printed"),
        Claim("Pipe-SGD with 8 bits over D-Sync",
              replays.speedup(Of(plain, "allreduce"), Of(small, "pipe")), least=1,
              printed="2.0 to 3.2"),
        Claim("Pipe-SGD with 8 bits over PS-Sync",
              replays.speedup(Of(server, "kvstore"), Of(small, "pipe")), least=1,
              printed="4.0 to 5.4"),
        Claim("Communication of D-Sync over that of PS-Sync",
              replays.over(replays.exposed(Of(plain, "allreduce")),
                           replays.exposed(Of(server, "kvstore"))),
              most=0.75, printed="0.5 (50 % less)"),
    )  # fmt: skip


def _draw_speed(name: str) -> Callable[[Kept], list[str]]:
    def draw(kept: Kept) -> list[str]:
        bars = []
        for part, more in zip(_SPEED[name], ("", ", 8 bits", ""), strict=True):
            for row in kept.data(part) or []:
                title = {"allreduce": "D-Sync", "pipe": "Pipe-SGD", "kvstore": "PS-Sync"}
                rest = max(0.0, row["iteration_s"] - row["compute_s"])
                bars.append(Bar(title[row["algorithm"]] + more, [row["compute_s"], rest],
                                row["spread_s"] / 2))  # fmt: skip
        kinds = [("computing", "#8c8c8c"), ("communication", "#D55E00")]
        return [charts.bars(name, "seconds of an iteration", bars, kinds)] if bars else []

    return draw


# ---- figure 4: accuracy by wall-clock ------------------------------------------------------------

Trained = dict[str, Any]  # one training
_WAYS = ("ps-sync", "d-sync", "d-sync+t", "d-sync+q", "pipe", "pipe+t", "pipe+q")


def _trained(model: str, rate: str, pace: float, seconds: float) -> tuple[Part, ...]:
    """A part for each seed, so that a training that is ended loses little."""
    return tuple(
        Part(
            f"pipesgd-f4-{model}-trained-{seed}",
            Tier.TRAIN,
            f"python -m sluice_papers.reproduce.pipe_training --model {model} --data-dir {{data}} "
            f"--seed {seed} --epochs 2 --rate {rate} --pace {pace:g} --json {{out}}",
            seconds=seconds,
        )
        for seed in (1, 2, 3)
    )


# The pace makes wire time / compute time 2.2 and 1.
_TRAINED = {
    "mlp": _trained("mlp", "1gbit", 14, 900),
    "convex": _trained("convex", "400mbit", 25, 420),
}


def _by_seed(kept: Kept, model: str, way: str) -> dict[int, Trained]:
    rows = [row for part in _TRAINED[model] for row in kept.data(part) or []]
    return {row["seed"]: row for row in rows if row["way"] == way}


def _compared(
    model: str, one: str, other: str, take: Callable[[Trained, Trained], float]
) -> plans.Measure:
    return trainings.paired(
        lambda kept: _by_seed(kept, model, one), lambda kept: _by_seed(kept, model, other), take
    )


def _points(model: str, one: str, other: str) -> plans.Measure:
    return _compared(model, one, other, lambda a, b: 100 * (a["accuracy"] - b["accuracy"]))


def _quicker(model: str, slow: str, fast: str) -> plans.Measure:
    return _compared(model, slow, fast, lambda a, b: a["seconds"] / b["seconds"])


def _draw_trained(model: str) -> Callable[[Kept], list[str]]:
    def draw(kept: Kept) -> list[str]:
        lines = []
        for place, way in enumerate(_WAYS):
            row = _by_seed(kept, model, way).get(1)
            if row is not None:
                points = [(one["seconds"], one["accuracy"]) for one in row["epochs"]]
                lines.append(Line(way, points, colour_of("", place)))
        return [charts.lines(model, "seconds", "accuracy", lines)] if lines else []

    return draw


_SETTING = "Four lab hosts; the ratio of wire to compute time follows from the printed speed-ups."
_FAIR = (
    "All-reduce, codec and servers are real, and computing is replayed. Codecs here feed back "
    "their error, which the paper's do not."
)

ROWS = (
    Row("pipesgd", "f1", "Frameworks of training", has_content=False,
        reason="the paper shows an idea without data"),
    pipesgd_formulas.ROW,
    _F3,
    Row("pipesgd", "f4-mnist", "MNIST-MLP, 500-500, batch 100, four nodes",
        parts=(*_SPEED["mnist"], *_TRAINED["mlp"]),
        claims=(*_speed_claims("mnist"),
                Claim("Time of D-Sync over Pipe-SGD with 8 bits, trained",
                      _quicker("mlp", "d-sync", "pipe+q"), least=1, printed="2.0 to 3.2"),
                Claim("Time of PS-Sync over Pipe-SGD with 8 bits, trained",
                      _quicker("mlp", "ps-sync", "pipe+q"), least=1, printed="4.0 to 5.4")),
        substitute=_SETTING + " Model, batch and number of nodes are the paper's.", honest=_FAIR,
        draw=lambda kept: [*_draw_speed("mnist")(kept), *_draw_trained("mlp")(kept)]),
    Row("pipesgd", "f4-alexnet", "AlexNet on ImageNet, speed", parts=_SPEED["alexnet"],
        claims=_speed_claims("alexnet"),
        substitute=_SETTING + " Only speed: ImageNet is not here.", honest=_FAIR,
        draw=_draw_speed("alexnet")),
    Row("pipesgd", "f4-resnet18", "ResNet-18 on ImageNet, speed", parts=_SPEED["resnet18"],
        claims=_speed_claims("resnet18"),
        substitute=_SETTING + " Only speed: ImageNet is not here.", honest=_FAIR,
        draw=_draw_speed("resnet18")),
    Row("pipesgd", "f4-convex", "CIFAR100-Convex: only the last layer is trained",
        parts=_TRAINED["convex"],
        claims=(
            Claim("Time of PS-Sync over D-Sync", _quicker("convex", "ps-sync", "d-sync"), least=1,
                  printed="around 40 % faster"),
            Claim("Time of D-Sync over Pipe-SGD", _quicker("convex", "d-sync", "pipe"), least=1,
                  printed="37 % faster"),
            Claim("Time of D-Sync over Pipe-SGD, both truncated",
                  _quicker("convex", "d-sync+t", "pipe+t"), least=1, printed="46 % faster"),
            Claim("Accuracy of Pipe-SGD, truncated, minus D-Sync", _points("convex", "pipe+t",
                  "d-sync"), least=-0.5, printed="slightly improved", unit="points"),
        ),
        substitute="The last layer of a network with fixed random features, on Fashion-MNIST.",
        honest="The problem is convex, as theirs. Times on the wire are of a slower link.",
        draw=_draw_trained("convex")),
    Row("pipesgd", "f4-accuracy", "Final accuracies", parts=(*_TRAINED["mlp"], *_TRAINED["convex"]),
        claims=tuple(
            Claim(f"Accuracy of {way} minus D-Sync, {model}", _points(model, way, "d-sync"),
                  least=-0.5, printed="slightly improved; -0.5 for AlexNet", unit="points")
            for model in _TRAINED for way in ("pipe+t", "pipe+q")
        ),
        substitute="MNIST-MLP as printed, and a convex problem; ImageNet and CIFAR-100 are not "
        "here.",
        honest="Training is real. AlexNet and ResNet cannot be shown."),
)  # fmt: skip
