"""Pictures as SVG text: time-lines, the tiles of all rows, and charts of result files. Lines and
bars are those of the study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.replays import Figures
from sluice_papers.reproduce.rows import Part
from sluice_papers.reproduce.timeline import Piece
from sluice_papers.reproduce.verdicts import Verdict, interval
from sluice_papers.study import charts
from sluice_papers.study.charts import Line

# Colours that stay apart for the colour-blind (Okabe and Ito).
PALETTE = ("#000000", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8c8c8c")
_KNOWN = {
    "kvstore": "#8c8c8c",
    "slicing": "#E69F00",
    "p3": "#0072B2",
    "sluice": "#D55E00",
    "wfbp": "#E69F00",
    "allreduce": "#8c8c8c",
    "mgwfbp": "#0072B2",
    "pipe": "#0072B2",
    **charts.COLOURS,
}
VERDICT_COLOURS = {
    Verdict.AS: "#009E73",
    Verdict.NOT_SEPARABLE: "#F0E442",
    Verdict.OTHERWISE: "#D55E00",
    Verdict.NOT_HERE: "#8c8c8c",
    Verdict.MISSING: "#ffffff",
    Verdict.NO_CONTENT: "#e4e4e4",
}


def colour_of(algorithm: str, place: int) -> str:
    return _KNOWN.get(algorithm.split(":")[0], PALETTE[place % len(PALETTE)])


def gantt(title: str, lanes: Sequence[tuple[str, Sequence[Piece]]], unit: str = "s") -> str:
    """Draws pieces of work as boxes, one lane below the other. Pieces of one layer have one
    colour."""
    left, wide, high, top = 92, 520, 26, 30
    end = max((piece.end for _, pieces in lanes for piece in pieces), default=1.0)
    axis = charts.axis_for([0.0, end], from_zero=True)
    scale = wide / axis.high
    height = top + high * len(lanes) + 34
    body = [_text(left + wide / 2, 16, title, "middle", bold=True)]
    for tick in axis.ticks:
        x = left + tick * scale
        body.append(f'<path d="M{x:.1f} {top}V{height - 30}" stroke="#e4e4e4"/>')
        body.append(_text(x, height - 16, f"{tick:g} {unit}", "middle"))
    for place, (label, pieces) in enumerate(lanes):
        y = top + high * place
        body.append(_text(left - 8, y + 16, label, "end"))
        for piece in pieces:
            x, length = left + piece.begin * scale, (piece.end - piece.begin) * scale
            body.append(
                f'<rect x="{x:.1f}" y="{y + 2}" width="{length:.1f}" height="{high - 6}" '
                f'fill="{_of_layer(piece.name)}" stroke="white" stroke-width="0.7"/>'
            )
            if length > 7 * len(piece.name):
                body.append(
                    _text(x + length / 2, y + 16, piece.name, "middle", fill=_ink(piece.name))
                )
    return _svg(left + wide + 30, height, body)


def _layer(name: str) -> int:
    digits = "".join(char if char.isdigit() else " " for char in name).split()
    return int(digits[0]) if digits else 0


def _of_layer(name: str) -> str:
    return ("#8c8c8c", "#0072B2", "#E69F00", "#009E73", "#CC79A7")[min(_layer(name), 4)]


def _ink(name: str) -> str:
    return "black" if _layer(name) in (2, 4) else "white"


def tiles(rows: Sequence[tuple[str, Sequence[tuple[str, Verdict]]]]) -> str:
    """Draws a tile for each figure and table, one line for each paper. A cell is a row's key, which
    the tile leads to on the page, and its verdict."""
    left, size, gap, top = 210, 42, 5, 12
    most = max(len(cells) for _, cells in rows)
    width, height = left + most * (size + gap) + 20, top + len(rows) * (size + gap) + 60
    body = []
    for number, (paper, cells) in enumerate(rows):
        y = top + number * (size + gap)
        body.append(_text(left - 12, y + size / 2 + 4, paper, "end"))
        for place, (key, verdict) in enumerate(cells):
            x = left + place * (size + gap)
            ink = (
                "white" if verdict in (Verdict.AS, Verdict.OTHERWISE, Verdict.NOT_HERE) else "#222"
            )
            body.append(
                f'<a href="#{key}"><rect x="{x}" y="{y}" width="{size}" height="{size}" rx="4" '
                f'stroke="#999" fill="{VERDICT_COLOURS[verdict]}"><title>'
                f"{escape(f'{key}: {verdict}')}</title></rect></a>"
            )
            first, _, second = key.split("/")[-1].partition("-")
            middle = y + size / 2 + (0 if second else 4)
            body.append(_text(x + size / 2, middle, first.upper(), "middle", fill=ink))
            body.append(_text(x + size / 2, middle + 12, second, "middle", fill=ink, size=8))
    key_x, key_y = 20.0, height - 28
    for verdict, colour in VERDICT_COLOURS.items():
        body.append(
            f'<rect x="{key_x}" y="{key_y}" width="14" height="14" fill="{colour}" stroke="#999"/>'
        )
        body.append(_text(key_x + 19, key_y + 11, verdict, "start"))
        key_x += 34 + 6.2 * len(verdict)
    return _svg(max(width, key_x), height, body)


def series(
    kept: Kept,
    part: Part,
    title: str,
    along: str,
    x_label: str,
    x_of: Callable[[float], float] = lambda value: value,
) -> list[str]:
    """Draws throughput of a replayed series, over that of workers without a network."""
    rows: list[Figures] = kept.data(part) or []
    if not rows:
        return []
    lines = []
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    for place, name in enumerate(names):
        points, spreads = [], []
        for row in sorted(
            (row for row in rows if row["algorithm"] == name), key=lambda r: r[along]
        ):
            share = [row["compute_s"] / run for run in row["runs_s"]]
            points.append((x_of(row[along]), sum(share) / len(share)))
            margin = interval(share).margin
            spreads.append(0.0 if math.isinf(margin) else margin)
        lines.append(Line(name, points, colour_of(name, place), spreads=spreads))
    ticks = sorted({x_of(row[along]) for row in rows})
    label = "throughput, of linear"
    return [charts.lines(title, x_label, label, lines, x_ticks=[_round(tick) for tick in ticks])]


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def link_use(kept: Kept, part: Part, algorithms: Sequence[str], seconds: float = 4.0) -> list[str]:
    """Draws what the first host sends and receives, over its link's rate."""
    drawn = []
    for row in kept.data(part) or []:
        use = row.get("utilisation")
        if row["algorithm"] not in algorithms or use is None:
            continue
        rate, step = row["rate_bits_per_s"], use["step_s"]
        lines = []
        for label, key, colour in (
            ("sent", "sent_bits_per_s", "#0072B2"),
            ("received", "received_bits_per_s", "#E69F00"),
        ):
            values = use[key][: int(seconds / step)]
            points = [(place * step, value / rate) for place, value in enumerate(values)]
            lines.append(Line(label, _thinned(points), colour))
        title = f"{row['profile']}, {row['algorithm']}"
        drawn.append(charts.lines(title, "seconds", "use of the link", lines))
    return drawn


def _thinned(points: Sequence[tuple[float, float]], to: int = 130) -> list[tuple[float, float]]:
    """Returns means of neighbours, so that a line can be told from the next."""
    size = max(1, len(points) // to)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        (group[0][0], sum(value for _, value in group) / len(group)) for group in groups if group
    ]


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str,
    *,
    bold: bool = False,
    fill: str = "#222",
    size: int = 11,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" '
        f'font-size="{size}"{weight} fill="{fill}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(width: float, height: float, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
    )
    return f'{head}<rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>'
