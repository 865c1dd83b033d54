"""Charts as SVG text, without a library: the page has to be one file, and the interpreter that has
Torch need not have matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

_WIDTH, _HEIGHT = 560, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 170, 34, 58  # margins; the legend is on the right
_FONT = 'font-family="sans-serif" font-size="11"'

# Colours that stay apart for the colour-blind (Okabe and Ito), by family; arguments of one family
# differ in their dashes.
COLOURS = {
    "bsp": "#000000",
    "arsgd": "#8c8c8c",
    "wfbp": "#5a5a5a",
    "asp": "#E69F00",
    "ssp": "#0072B2",
    "easgd": "#009E73",
    "gosgd": "#CC79A7",
    "adpsgd": "#D55E00",
}
DASHES = ("", "6 3", "2 2")


@dataclass(frozen=True)
class Line:
    label: str
    points: Sequence[tuple[float, float]]
    colour: str
    dash: str = ""
    spreads: Sequence[float] = ()  # half the length of a bar at each point
    is_joined: bool = True  # False: points without a line between them


@dataclass(frozen=True)
class Bar:
    """A bar of parts that stand on each other."""

    label: str
    parts: Sequence[float]
    spread: float = 0.0


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    ticks: list[float] = field(default_factory=list)

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


def axis_for(values: Sequence[float], from_zero: bool = False) -> Axis:
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 6)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(low, high, [low + step * n for n in range(round((high - low) / step) + 1)])


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Line],
    x_ticks: Sequence[float] | None = None,
) -> str:
    points = [point for line in series for point in line.points]
    if not points:
        return _empty(title)
    x = axis_for([p[0] for p in points], from_zero=x_ticks is None)
    if x_ticks is not None:
        room = 0.06 * (max(x_ticks) - min(x_ticks)) or 1.0
        x = Axis(min(x_ticks) - room, max(x_ticks) + room, list(x_ticks))
    reach = [p[1] + sign * s for line in series for p, s in _with_spreads(line) for sign in (-1, 1)]
    y = axis_for(reach)
    to_x, to_y = _scales(x, y)
    body = [_frame(title, x_label, y_label, y, to_y)]
    for tick in x.ticks:
        body.append(_text(to_x(tick), _HEIGHT - _BOTTOM + 16, f"{tick:g}", "middle"))
    for line in series:
        path = " ".join(f"{to_x(px):.1f},{to_y(py):.1f}" for px, py in line.points)
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        if line.is_joined:
            body.append(
                f'<polyline points="{path}" fill="none" stroke="{line.colour}" '
                f'stroke-width="1.8"{dash}/>'
            )
        for (px, py), spread in _with_spreads(line):
            body.append(
                f'<circle cx="{to_x(px):.1f}" cy="{to_y(py):.1f}" r="2.6" fill="{line.colour}"/>'
            )
            body.append(
                _whisker(to_x(px), to_y(py - spread), to_y(py + spread), line.colour)
                if spread
                else ""
            )
    body.append(_legend([(line.label, line.colour, line.dash) for line in series]))
    return _svg(body)


def bars(
    title: str,
    y_label: str,
    groups: Sequence[Bar],
    parts: Sequence[tuple[str, str]],
    *,
    is_stacked: bool = True,
) -> str:
    """`parts` are names and colours. If not `is_stacked`, the parts of a bar stand side by side."""
    if not groups:
        return _empty(title)
    heights = [sum(bar.parts) if is_stacked else max(bar.parts) for bar in groups]
    y = axis_for(
        [height + bar.spread for height, bar in zip(heights, groups, strict=True)], from_zero=True
    )
    to_x, to_y = _scales(Axis(0, len(groups)), y)
    body = [_frame(title, "", y_label, y, to_y)]
    for place, bar in enumerate(groups):
        base = 0.0
        for number, (value, (_, colour)) in enumerate(zip(bar.parts, parts, strict=True)):
            share = 0.7 if is_stacked else 0.8 / len(parts)
            left = to_x(place + (0.15 if is_stacked else 0.1 + number * share))
            wide = to_x(share) - to_x(0)
            top = to_y(base + value)
            body.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" '
                f'height="{to_y(base) - top:.1f}" fill="{colour}"/>'
            )
            base += value if is_stacked else 0.0
        if bar.spread:
            middle, height = to_x(place + 0.5), heights[place]
            body.append(
                _whisker(middle, to_y(height - bar.spread), to_y(height + bar.spread), "#333")
            )
        x, low = to_x(place + 0.5), _HEIGHT - _BOTTOM + 10
        body.append(
            f'<text x="{x:.1f}" y="{low}" font-family="sans-serif" font-size="9" text-anchor="end" '
            f'transform="rotate(-35 {x:.1f} {low})">{escape(bar.label)}</text>'
        )
    body.append(_legend([(name, colour, "") for name, colour in parts]))
    return _svg(body)


def _with_spreads(line: Line) -> list[tuple[tuple[float, float], float]]:
    spreads = list(line.spreads) or [0.0] * len(line.points)
    return list(zip(line.points, spreads, strict=True))


def _scales(x: Axis, y: Axis) -> tuple[Callable[[float], float], Callable[[float], float]]:
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return (
        lambda value: _LEFT + wide * x.share(value),
        lambda value: _TOP + high * (1 - y.share(value)),
    )


def _frame(title: str, x_label: str, y_label: str, y: Axis, to_y: Callable[[float], float]) -> str:
    right, bottom, middle = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, (_LEFT + _WIDTH - _RIGHT) / 2
    parts = [
        _text(middle, 18, title, "middle", bold=True),
        _text(middle, _HEIGHT - 10, x_label, "middle"),
    ]
    upright = _TOP + (bottom - _TOP) / 2
    parts.append(
        f'<text x="14" y="{upright}" {_FONT} text-anchor="middle" '
        f'transform="rotate(-90 14 {upright})">{escape(y_label)}</text>'
    )
    for tick in y.ticks:
        parts.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{to_y(tick):.1f}" y2="{to_y(tick):.1f}" '
            'stroke="#e4e4e4"/>'
        )
        parts.append(_text(_LEFT - 6, to_y(tick) + 4, f"{tick:.6g}", "end"))
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#555"/>')
    return "".join(parts)


def _legend(entries: Sequence[tuple[str, str, str]]) -> str:
    left = _WIDTH - _RIGHT + 14
    parts = []
    for place, (label, colour, dash) in enumerate(entries):
        y = _TOP + 8 + 17 * place
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<line x1="{left}" x2="{left + 22}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="4"{dashes}/>'
        )
        parts.append(_text(left + 28, y + 4, label, "start"))
    return "".join(parts)


def _whisker(x: float, low: float, high: float, colour: str) -> str:
    ends = "".join(f"M{x - 3:.1f} {y:.1f}h6" for y in (low, high))
    return (
        f'<path d="M{x:.1f} {low:.1f}V{high:.1f}{ends}" fill="none" stroke="{colour}" '
        'stroke-width="1"/>'
    )


def _text(x: float, y: float, text: str, anchor: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_FONT}{weight} '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    )
    return f'{head}<rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>'


def _empty(title: str) -> str:
    return _svg(
        [_text(_WIDTH / 2, _HEIGHT / 2, f"{title}: nothing has been measured yet", "middle")]
    )
