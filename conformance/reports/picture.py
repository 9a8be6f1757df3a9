"""The picture of where a kernel differs, as inline SVG: input value against code, expected and observed.

Both axes count codes, so that neighbours of a format are equally far apart everywhere: a tie is half-way between two
lines, on either axis. Colours come from the style sheet of the page, by class.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from refnum.codec import value
from refnum.formats import get_format

from .number import number_text

WIDTH, HEIGHT = 680, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 12, 14, 56
_NARROWEST, _LABELS, _LONGEST = 4.0, 20, 7


def picture(grid: Mapping[str, Any]) -> str:
    """Return the SVG of the points of a failing case (`refnum.conformance.mismatches.grid`); empty without points."""
    if not grid:
        return ""
    axis = _Axis(grid["element"])
    points = [(axis.at(x), axis.at(expected), axis.at(observed)) for x, expected, observed in grid["points"]]
    wrong = [i for i, (_, expected, observed) in enumerate(grid["points"]) if expected != observed]
    window = _window([points[i] for i in wrong])
    chart = _Chart(axis, *window, undefined=any(points[i][2] is None or points[i][1] is None for i in wrong))
    drawn = [chart.frame()]
    for i, (x, expected, _) in enumerate(points):
        if i not in wrong and x is not None and expected is not None and window[0] <= x <= window[1]:
            drawn.append(f'<circle class="right" cx="{chart.x(x)}" cy="{chart.y(expected)}" r="2.5"/>')
    drawn += [chart.pair(points[i], grid["points"][i]) for i in wrong]
    words = f"{len(wrong)} elements that differ, by input in units of the scale and by {grid['element']} value"
    return (
        f'<svg class="grid" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">'
        + "".join(drawn)
        + "</svg>"
    )


class _Axis:
    """Places of values among a format's codes: 0 is zero, 1 the smallest positive value, -1 the smallest negative."""

    def __init__(self, element: str) -> None:
        fmt = get_format(element)
        exact = [value(fmt, code) for code in range(1 << (fmt.bits - 1))]
        self.values = sorted({float(one) for one in exact if not isinstance(one, str)})
        self.texts = {float(one): number_text(one) for one in exact if not isinstance(one, str)}

    def at(self, number: float | None) -> float | None:
        """Return a value's place; beyond the largest value at most one and a half codes further."""
        if number is None:
            return None
        size, values = abs(number), self.values
        if size >= values[-1]:
            place = len(values) - 1 + min(1.5, (size - values[-1]) / (values[-1] - values[-2]))
        else:
            low = bisect.bisect_right(values, size) - 1
            place = low + (size - values[low]) / (values[low + 1] - values[low])
        return -place if number < 0 else place

    def label(self, place: int) -> str:
        """Return the value at a whole place."""
        if abs(place) >= len(self.values):
            return ""
        number = self.values[abs(place)]
        text = self.texts[number] if len(self.texts[number]) <= _LONGEST else f"{number:.3g}"
        return ("-" if place < 0 else "") + text


def _window(points: Sequence[tuple[float | None, ...]]) -> tuple[float, float]:
    """Return the range of places that holds all that differs, on both axes."""
    places = [place for point in points for place in point if place is not None]
    low, high = min(places, default=0.0) - 1, max(places, default=0.0) + 1
    spare = max(0.0, _NARROWEST - (high - low)) / 2
    return low - spare, high + spare


class _Chart:
    """A square of places mapped to a rectangle of pixels; codes without a value lie on a line above it."""

    def __init__(self, axis: _Axis, low: float, high: float, undefined: bool) -> None:
        self.axis, self.low, self.high = axis, low, high
        self.top = _TOP + (22 if undefined else 0)
        self.undefined = undefined

    def x(self, place: float) -> str:
        """Return the pixel of a place on the input's axis."""
        share = (place - self.low) / (self.high - self.low)
        return f"{_LEFT + share * (WIDTH - _LEFT - _RIGHT):.1f}"

    def y(self, place: float | None) -> str:
        """Return the pixel of a place on the codes' axis; None is a code without a value."""
        if place is None:
            return f"{_TOP + 6:.1f}"
        share = (place - self.low) / (self.high - self.low)
        return f"{HEIGHT - _BOTTOM - share * (HEIGHT - _BOTTOM - self.top):.1f}"

    def frame(self) -> str:
        """Return lines at the codes with their values, the line of unrounded values, and the legend."""
        whole = range(-int(-self.low // 1), int(self.high // 1) + 1)
        step = -(-len(whole) // _LABELS)
        lines = []
        for place in whole:
            if not self.axis.label(place):
                continue
            x, y = self.x(place), self.y(place)
            if len(whole) <= 48:
                lines.append(f'<path class="rule" d="M{x} {self.y(self.high)}V{self.y(self.low)}"/>')
                lines.append(f'<path class="rule" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>')
            if place % step == 0:
                text = escape(self.axis.label(place))
                lines.append(f'<text x="{x}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text}</text>')
                lines.append(f'<text x="{_LEFT - 6}" y="{y}" dy="4" text-anchor="end">{text}</text>')
        if self.undefined:
            lines.append(f'<text x="{_LEFT - 6}" y="{_TOP + 6}" dy="4" text-anchor="end">NaN</text>')
        exact = f"M{self.x(self.low)} {self.y(self.low)}L{self.x(self.high)} {self.y(self.high)}"
        lines.append(f'<path class="exact" d="{exact}"/>')
        return "".join(lines) + _legend()

    def pair(self, places: tuple[float | None, ...], numbers: Sequence[float | None]) -> str:
        """Return one element that differs: a ring where it should be, a cross where it is."""
        place, expected, observed = places
        if place is None:
            return ""
        x, ring, cross = self.x(place), self.y(expected), self.y(observed)
        names = ("input / scale", "expected", "observed")
        words = ", ".join(
            f"{name} {'NaN' if number is None else f'{number:g}'}" for name, number in zip(names, numbers, strict=True)
        )
        return (
            f'<g><title>{escape(words)}</title><path class="apart" d="M{x} {ring}V{cross}"/>'
            f'<circle class="expected" cx="{x}" cy="{ring}" r="5"/>{_cross(x, cross)}</g>'
        )


def _cross(x: str, y: str) -> str:
    return f'<path class="observed" d="M{x} {y}m-4 -4l8 8m0 -8l-8 8"/>'


def _legend() -> str:
    """Return the axis title and the marks, in one line under the chart."""
    y = HEIGHT - 12
    parts = [f'<text x="{_LEFT}" y="{y}">input / scale →</text>', f'<text x="4" y="{_TOP - 2}">code ↑</text>']
    marks = (
        (240, '<circle class="expected" cx="{x}" cy="{y}" r="5"/>', "expected"),
        (340, "", "observed"),
        (440, '<circle class="right" cx="{x}" cy="{y}" r="2.5"/>', "agrees"),
        (530, '<path class="exact" d="M{left} {y}h16"/>', "not rounded"),
    )
    for x, mark, name in marks:
        drawn = mark.format(x=x, y=y - 4, left=x - 8) if mark else _cross(str(x), str(y - 4))
        parts.append(f'{drawn}<text x="{x + 12}" y="{y}">{name}</text>')
    return "".join(parts)
