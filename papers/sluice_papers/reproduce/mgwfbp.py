"""All rows of MG-WFBP: S. Shi et al., Efficient Data Communication for Distributed Synchronous SGD
Algorithms. Figures 5b to 8 are replays in a lab."""

from __future__ import annotations

from sluice_papers.reproduce import mgwfbp_formulas, plans, replays
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.replays import Of
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.study import charts
from sluice_papers.study.charts import Bar, Line

_HOSTS = (2, 4, 8)
_RATES = {2: "2gbit", 4: "2gbit", 8: "1gbit"}  # that two cores can carry
_SHRINK = 8
_STARTS = {2: "100us", 4: "250us", 8: "550us"}  # of a ring in this lab
# 10GbE of the paper and 0.5 s of computing: wire time / compute time of N nodes, over (N-1)/N.
_RATIO = {"resnet50": 0.327, "googlenet": 0.166}
_ALGORITHMS = {"wfbp": "WFBP", "allreduce": "SyncEASGD", "kvstore": "TensorFlow"}

_COLLECTIVE = {
    n: tuple(
        Part(
            f"mgwfbp-f5b-{n}-{round_}",
            Tier.LAB,
            f"sluice bench collective --lab {n} --rate {_RATES[n]} --methods ring "
            "--sizes 4KB,16KB,64KB,256KB,1MB,4MB --encrypt off --json {out}",
            seconds=8,
        )
        for round_ in (1, 2, 3)
    )
    for n in _HOSTS
}


def _before_shrinking(rate: str) -> str:
    """Returns the rate that the program divides to this one."""
    return f"{_SHRINK * int(rate.removesuffix('gbit'))}gbit"


def _replay(profile: str, hosts: int) -> Part:
    ratio = _RATIO[profile] * (hosts - 1) / hosts
    return Part(
        f"mgwfbp-{'f7' if profile == 'resnet50' else 'f6'}-{hosts}",
        Tier.LAB,
        f"sluice bench replay --profile {profile} --shrink {_SHRINK} --workers {hosts} "
        f"--rate {_before_shrinking(_RATES[hosts])} --ratio {ratio:.3g} --collective ring "
        f"--merge paper --reduction-start {_STARTS[hosts]} "
        "--algorithms kvstore,allreduce,wfbp,mgwfbp --runs 5 --iterations 5 --lab --encrypt off "
        "--json {out}",
        seconds=90,
    )


_REPLAYS = {profile: {n: _replay(profile, n) for n in _HOSTS} for profile in _RATIO}
# The whole model, where 8-bit gradients make start-up costs matter.
_WHOLE = Part(
    "mgwfbp-f7-whole",
    Tier.LAB,
    "sluice bench replay --profile resnet50 --workers 4 --rate 2gbit --ratio 3 --codec int8 "
    "--reduction-start 258us --algorithms allreduce,wfbp,mgwfbp --runs 3 --iterations 5 --lab "
    "--encrypt off --json {out}",
    seconds=60,
)


def _start_us(rows: list[dict[str, float]]) -> float:
    return 1e3 * rows[0]["start_ms"]


def _misfit(rows: list[dict[str, float]]) -> float:
    """The greatest distance of a size from the line, of its time."""
    return max(
        abs(row["start_ms"] + row["ms_per_byte"] * row["bytes"] - row["p50_ms"]) / row["p50_ms"]
        for row in rows
    )


def _grows(fewer: int, more: int) -> plans.Measure:
    return replays.over(
        replays.repeated(_COLLECTIVE[more], _start_us),
        replays.repeated(_COLLECTIVE[fewer], _start_us),
    )


def _draw_f5b(kept: Kept) -> list[str]:
    lines = []
    for (n, parts), colour in zip(
        _COLLECTIVE.items(), ("#0072B2", "#E69F00", "#009E73"), strict=True
    ):
        rows = kept.data(parts[0])
        if not rows:
            continue
        small = [row for row in rows if row["bytes"] <= 1_000_000]
        lines.append(
            Line(f"{n}, measured", [(row["bytes"] / 1e3, row["p50_ms"]) for row in small], colour)
        )
        fitted = [
            (row["bytes"] / 1e3, row["start_ms"] + row["ms_per_byte"] * row["bytes"])
            for row in small
        ]
        lines.append(Line(f"{n}, a + bM", fitted, colour, "6 3"))
    return [charts.lines("All-reduce by size", "KB", "ms", lines)] if lines else []


def _faster(part: Part, slow: str) -> plans.Measure:
    return replays.speedup(Of(part, slow), Of(part, "mgwfbp"))


def _draw_scaling(kept: Kept, profile: str) -> list[str]:
    points: dict[str, list[tuple[float, float]]] = {}
    for n, part in _REPLAYS[profile].items():
        for row in kept.data(part) or []:
            share = row["compute_s"] / row["iteration_s"]
            points.setdefault(row["algorithm"], []).append((n, n * share))
    colours = {"kvstore": "#009E73", "allreduce": "#8c8c8c", "wfbp": "#E69F00"}
    lines = [Line(name, all_, colours.get(name, "#0072B2")) for name, all_ in points.items()]
    return (
        [charts.lines(profile, "nodes", "speed-up", lines, x_ticks=list(_HOSTS))] if lines else []
    )


def _draw_f8(kept: Kept) -> list[str]:
    drawn = []
    for profile, parts in _REPLAYS.items():
        bars = [
            Bar(f"{row['algorithm']}, {n}",
                [row["compute_s"], max(0.0, row["iteration_s"] - row["compute_s"])],
                row["spread_s"] / 2)
            for n, part in parts.items() for row in kept.data(part) or []
        ]  # fmt: skip
        if bars:
            kinds = [("computing", "#8c8c8c"), ("not hidden", "#D55E00")]
            drawn.append(charts.bars(profile, "seconds", bars, kinds))
    return drawn


_SUBSTITUTE = (
    "Lab hosts replay computing, with tensors of an eighth: so the start-up costs of all messages "
    "are to computing about as on the paper's cluster. KVStore stands for TensorFlow."
)
_FAIR = (
    "All-reduces, their start-up costs and their overlap are real. One GPU is replayed for a node, "
    "and absolute times cannot be compared."
)


def _speed_row(name: str, profile: str, more: tuple[Claim, ...], parts: tuple[Part, ...]) -> Row:
    of_8 = _REPLAYS[profile][8]
    printed = {"wfbp": "about 1.2", "allreduce": "1.36", "kvstore": "MG-WFBP is ahead"}
    return Row(
        "mgwfbp", name, f"Speed of {profile} on 2 to 8 nodes",
        parts=(*_REPLAYS[profile].values(), *parts),
        claims=(
            *(Claim(f"MG-WFBP over {title}, 8 nodes", _faster(of_8, slow), least=1,
                    printed=printed[slow]) for slow, title in _ALGORITHMS.items()),
            *more,
        ),
        substitute=_SUBSTITUTE, honest=_FAIR,
        draw=lambda kept: _draw_scaling(kept, profile),
    )  # fmt: skip


_F8_CLAIMS = tuple(
    Claim(f"Not hidden with {_ALGORITHMS[slow]} minus with MG-WFBP, 8 nodes, {profile}",
          replays.difference(replays.exposed(Of(parts[8], slow)),
                             replays.exposed(Of(parts[8], "mgwfbp"))),
          least=0, printed="MG-WFBP has very little", unit="s")
    for profile, parts in _REPLAYS.items() for slow in ("wfbp", "allreduce")
)  # fmt: skip

ROWS = (
    *mgwfbp_formulas.ROWS,
    Row("mgwfbp", "f5b", "Time of an all-reduce by size, 2, 4 and 8 nodes",
        parts=tuple(part for parts in _COLLECTIVE.values() for part in parts),
        claims=(
            *(Claim(f"Greatest distance from a + bM, {n} nodes", replays.repeated(parts, _misfit),
                    most=0.25, printed="the prediction fits") for n, parts in _COLLECTIVE.items()),
            Claim("Start-up of 4 nodes over that of 2", _grows(2, 4), least=1, printed="3.00"),
            Claim("Start-up of 8 nodes over that of 4", _grows(4, 8), least=1, printed="2.33"),
        ),
        substitute="Rings on lab hosts, on links that two cores can carry.",
        honest="The model of cost is tested on real all-reduces. The numbers are of other links.",
        draw=_draw_f5b),
    _speed_row("f6", "googlenet", (), ()),
    _speed_row("f7", "resnet50", (
        Claim("MG-WFBP over WFBP, 4 nodes, whole model, 8-bit gradients", _faster(_WHOLE, "wfbp"),
              least=1, printed="not printed"),
        Claim("MG-WFBP over SyncEASGD, 4 nodes, whole model, 8-bit gradients",
              _faster(_WHOLE, "allreduce"), least=1, printed="not printed"),
    ), (_WHOLE,)),
    Row("mgwfbp", "f8", "Computing, and communication that is not hidden",
        parts=tuple(part for parts in _REPLAYS.values() for part in parts.values()),
        claims=_F8_CLAIMS, substitute=_SUBSTITUTE, honest=_FAIR, draw=_draw_f8),
    mgwfbp_formulas.ROW_F9,
)  # fmt: skip
