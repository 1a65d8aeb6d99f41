"""The plot of a report, as SVG: bars or lines over time, or bars by class. Pure functions from numbers to text.

Classes refer to colours of the page: s0 is "other", s1 to s6 are series. Whatever the numbers and labels are, the
result is well-formed and has bounded numbers of points and series. Values that are not finite numbers are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from stompcodec.shown import compact, count, duration, finite
from stompcodec.spark.report.text import escape, moment

MOST_POINTS, MOST_SERIES, MOST_MARKS = 400, 8, 200
#: Widths of a plot on a desk, on half of one, and on a phone, in pixels.
WIDE, HALF, NARROW = 1032, 488, 348

_LEFT, _RIGHT, _TOP, _FOOT = 62, 14, 26, 40
#: Pixels of a digit in a tick's label, and of the name behind the end of a line.
_DIGIT, _NAME = 6.9, 34
#: Round durations in seconds: ticks are these apart, or 1, 2 or 5 times a power of ten of days.
_STEPS = (
    *(step * 10.0**power for power in range(-6, 0) for step in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
)
#: Ticks of a logarithmic axis, in seconds.
_DECADES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, *(86400.0 * 10**power for power in range(10)))
_DAY = 86400.0


class Series(NamedTuple):
    """A sequence of numbers with a name, and with the class that sets its colour."""

    label: object
    values: Sequence[Any]
    style: str = "s1"


class Tick(NamedTuple):
    """A place on an axis, and its label."""

    value: float
    label: str
    below: str = ""
    """Second line of the label: the day, if it changes."""


def step_of(span: float, most: int, kind: str) -> float:
    """Return the smallest round step that makes at most `most` steps of a span: of durations, or of other numbers.

    >>> step_of(100.0, 5, "count"), step_of(100.0, 5, "seconds"), step_of(1e7, 4, "time")
    (20.0, 30, 4320000.0)
    """
    raw, unit = span / most * (1 - 1e-9), 1.0
    if kind != "count":
        step = next((step for step in _STEPS if step >= raw), None)
        if step is not None:
            return step
        unit = _DAY
    power = 10.0 ** math.floor(math.log10(max(raw / unit, 5e-324)))
    return unit * next((base * power for base in (1, 2, 5) if base * power >= raw / unit), 10 * power)


def ticks(low: object, high: object, kind: str = "count", most: int = 5) -> list[Tick]:
    """Return ticks at round numbers between two; `kind` is "count", "seconds", or "time": seconds since 1970.

    >>> [tick.label for tick in ticks(0, 20)], [tick.label for tick in ticks(0, 80, "seconds")]
    (['0', '5', '10', '15', '20'], ['0 s', '30 s', '1 min'])
    >>> [(tick.label, tick.below) for tick in ticks(1_699_990_000, 1_700_020_000, "time", 3)]
    [('21:00', '14 Nov 2023'), ('00:00', '15 Nov 2023'), ('03:00', '')]
    """
    a, b = finite(low), finite(high)
    if a is None or b is None or b <= a or b - a > 1e300:
        return []
    step = step_of(b - a, most, kind)
    first = math.ceil(a / step - 1e-9)
    values = [value for index in range(most + 2) if (value := (first + index) * step) <= b * (1 + 1e-9)]
    if kind != "time":
        return [Tick(value, (duration if kind == "seconds" else compact)(value)) for value in values]
    digits = max(0, math.ceil(-math.log10(step) - 1e-9))
    found: list[Tick] = []
    day = ""
    for value in values:
        label = moment(round(value * 1e6), "%d %b" if step >= _DAY else "%H:%M" if step >= 60 else "%H:%M:%S").lstrip()
        label += f"{value % 1:.{digits}f}"[1:] if digits else ""
        below = moment(round(value * 1e6), "%Y" if step >= _DAY else "%d %b %Y")
        found.append(Tick(value, label, below if below != day else ""))
        day = below
    return found


def scale(low: float, high: float, start: float, end: float, log: bool = False) -> Callable[[float], float]:
    """Return a map from numbers to pixels; numbers outside go to the border.

    >>> scale(0, 10, 100, 200)(5), scale(0, 10, 100, 200)(float("nan")), scale(1, 1000, 0, 300, True)(10)
    (150.0, 100.0, 100.0)
    """
    high = high if high > low else low + max(1.0, abs(low))

    def pixels(value: float) -> float:
        value = min(max(value, low), high) if math.isfinite(value) else low
        part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        return round(start + part * (end - start), 1)

    return pixels


class _Upward(NamedTuple):
    """The axis of values: its ticks, and the pixels of a value."""

    ticks: list[Tick]
    to: Callable[[float], float]
    log: bool


def _upward(values: Iterable[float], kind: str, top: float, bottom: float) -> _Upward:
    """Return an axis from 0 to a round number, or a logarithmic one of durations that differ a lot."""
    known = [value for value in values if value > 0]
    least = 0.001 if kind == "seconds" else 1.0
    high = max([least, *known])
    low = max(least, min(known, default=least))
    if kind == "seconds" and high > 50 * low:
        first = max(value for value in _DECADES if value <= low)
        last = next((value for value in _DECADES if value >= high), high)
        decades = [Tick(value, duration(value)) for value in _DECADES if first <= value <= last]
        return _Upward(decades, scale(first, last, bottom, top, True), True)
    end = high
    for _ in range(3):  # a rounder end may have larger steps
        step = step_of(end, 5, kind)
        end = step * math.ceil(high / step - 1e-9)
    return _Upward(ticks(0, end, kind), scale(0, end, bottom, top), False)


def plot(
    series: Sequence[Series],
    *,
    title: str,
    start: object = None,
    step: object = None,
    classes: Sequence[object] = (),
    unit: str = "",
    kind: str = "count",
    as_lines: bool = False,
    silences: Sequence[tuple[Any, Any]] = (),
    width: int = WIDE,
    height: int = 250,
) -> str:
    """Return stacked bars, or lines that break where numbers are missing, twice: for a desk and for a phone.

    They are over time, from `start` on with a point each `step`, both in µs; or there is one for each of `classes`,
    given by their bounds. `silences` are starts and ends in µs, marked in red. The style sheet shows one of the two
    plots. The small one has no texts under the pointer, and screen readers skip it.
    """
    shown = series[:MOST_SERIES]
    points = min(MOST_POINTS, max((len(each.values) for each in shown), default=0))
    clean = [Series(each.label, _clean(each.values, points), each.style) for each in shown]
    a, b = finite(start), finite(step)
    drawing = _Drawing(clean, points, unit, kind, as_lines, classes)
    if a is not None and b is not None and 0 < b < 1e300 and abs(a) < 1e300:
        drawing.start, drawing.step = a, b
    elif not classes:
        drawing.points = 0
    drawing.silences = [pair for pair in islice(silences, MOST_MARKS) if None not in map(finite, pair)]
    both = drawing.svg(title, width, height, True) + drawing.svg(title, NARROW, height, False)
    return f'<div class="scroll">{both}</div>'


def _clean(values: Iterable[Any], points: int) -> list[float | None]:
    """Return exactly `points` values: finite numbers from 0 on, and None for missing ones."""
    found = [
        None if (number := finite(value)) is None else min(max(0.0, number), 1e300) for value in islice(values, points)
    ]
    return found + [None] * (points - len(found))


class _Drawing:
    """One plot, at any width."""

    start = step = 0.0
    silences: Sequence[tuple[Any, Any]] = ()

    def __init__(
        self, series: list[Series], points: int, unit: str, kind: str, as_lines: bool, classes: Sequence[object]
    ) -> None:
        self.series, self.points, self.unit, self.kind = series, points, unit, kind
        self.as_lines, self.classes = as_lines, classes
        self._write = duration if kind == "seconds" else count

    def svg(self, title: str, width: int, height: int, whole: bool) -> str:
        """Return the plot, `whole` or for a phone."""
        known = [value for each in self.series for value in each.values if value is not None]
        if not self.points or not any(known):
            body = [_text(width / 2, height / 2, "nothing to draw", "middle", "none")]
            return _svg(width, height, title, "No data." if whole else "", body, whole)
        self.x0, self.x1 = _LEFT, width - _RIGHT - (_NAME if self.as_lines else 0)
        self.y0, self.y1 = _TOP, height - _FOOT
        self.wide = (self.x1 - self.x0) / self.points
        sums = [
            min(1e300, sum(value or 0.0 for value in column)) for column in zip(*(each.values for each in self.series))
        ]
        up = _upward(known if self.as_lines else sums, self.kind, self.y0, self.y1)
        body = [_text(0, 12, self.unit, style="unit")]
        for tick in up.ticks:
            y = up.to(tick.value)
            body += [_line(self.x0, y, self.x1, y, "grid"), _text(self.x0 - 8, y + 4, tick.label, "end")]
        body += self._lines(up) if self.as_lines else self._bars(up)
        body += self._marks() if self.silences else []
        body += self._across()
        highest = self._write(max(known if self.as_lines else sums))
        text = f"{self.points} points, {self._at(0)} to {self._at(self.points - 1)}; highest {highest} {self.unit}."
        text += " The axis is logarithmic." if up.log else ""
        return _svg(width, height, title, text if whole else "", [*body, *(self._hover() if whole else [])], whole)

    def _bars(self, up: _Upward) -> list[str]:
        gap = 1.0 if self.wide >= 5 else 0.0
        bases, found = [0.0] * self.points, []
        for each in self.series:
            path = []
            for index, value in enumerate(each.values):
                low, high = up.to(bases[index]), up.to(bases[index] + (value or 0.0))
                if value and low == high and not bases[index]:
                    high = low - 0.6  # small values stay visible
                if low > high:
                    x = self.x0 + index * self.wide + gap / 2
                    path.append(f"M{x:.1f} {low:g}h{self.wide - gap:.1f}V{high:g}h{gap - self.wide:.1f}z")
                bases[index] += value or 0.0
            found.append(f'<path class="bar {escape(each.style)}" d="{"".join(path)}"/>')
        return found

    def _lines(self, up: _Upward) -> list[str]:
        found, ends = [], []
        for order, each in enumerate(self.series):
            path, before = [], False
            for index, value in enumerate(each.values):
                if value is not None:
                    x, y = self.x0 + (index + 0.5) * self.wide, up.to(value)
                    path.append(f"{'L' if before else 'M'}{x:.1f} {y:g}")
                    if not before and (index + 1 == self.points or each.values[index + 1] is None):
                        found.append(f'<circle cx="{x:.1f}" cy="{y:g}" r="2.5" class="dot {escape(each.style)}"/>')
                    last = y
                before = value is not None
            found.append(f'<path class="line {escape(each.style)}" d="{"".join(path)}"/>')
            if path:
                ends.append((last, -order, each))
        least = -math.inf
        for y, _, each in sorted(ends):  # names behind the ends, moved apart
            least = max(y + 4, least + 14)
            found.append(_text(self.x1 + 6, least, each.label, style=f"end {escape(each.style)}", most=8))
        return found

    def _marks(self) -> list[str]:
        to, found = scale(self.start, self.start + self.step * self.points, self.x0, self.x1), []
        for begin, end in self.silences:
            if begin <= end:
                long = max(2.0, round(to(end) - to(begin), 1))
                tip = f"silent for {duration((end - begin) / 1e6)}: {moment(begin)} to {moment(end)} UTC"
                found.append(_rect(min(to(begin), self.x1 - 2), self.y0, long, self.y1 - self.y0, "silent", tip))
        return found

    def _across(self) -> list[str]:
        """Return the axis of time or classes, with labels that do not overlap."""
        found, free = [_line(self.x0, self.y1, self.x1, self.y1, "axis")], -math.inf
        if self.step:
            end = self.start + self.step * self.points
            marks = ticks(self.start / 1e6, end / 1e6, "time", max(2, int((self.x1 - self.x0) / 90)))
            to = scale(self.start / 1e6, end / 1e6, self.x0, self.x1)
            found.append(_text(self.x1, self.y1 + 31, "UTC", "end", "tick day"))
        else:
            marks = [Tick(float(at), escape(label, 10)) for at, label in enumerate(self.classes[: self.points + 1])]
            to = scale(0, self.points, self.x0, self.x1)
        for tick in marks:
            x, long = to(tick.value), _DIGIT * len(tick.label)
            anchor = "middle" if self.x0 + 26 <= x <= self.x1 - 20 else "start" if x < self.x1 - 60 else "end"
            left = x - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
            if left < free:
                continue
            free = left + long + _DIGIT
            found += [_line(x, self.y1, x, self.y1 + 4, "axis"), _text(x, self.y1 + 17, tick.label, anchor, raw=True)]
            if tick.below and x < self.x1 - 40:
                found.append(_text(x, self.y1 + 31, tick.below, anchor, "tick day"))
        return found

    def _at(self, index: int) -> str:
        if self.step:
            return f"{moment(self.start + index * self.step)} UTC"
        return " to ".join(escape(label, 20) for label in self.classes[index : index + 2])

    def _hover(self) -> list[str]:
        """Return a strip over each point, with a text that is shown while the pointer is over it."""
        found = []
        for index in range(self.points):
            known = [(each.label, each.values[index]) for each in self.series if each.values[index]]
            if known:
                tip = self._at(index) + "".join(
                    f"\n{escape(label, 60)}: {self._write(value)} {escape(self.unit)}".rstrip()
                    for label, value in known
                )
                x = round(self.x0 + index * self.wide, 1)
                found.append(_rect(x, self.y0, round(self.wide, 2), self.y1 - self.y0, "hover", tip))
        return found


def _svg(width: int, height: int, title: str, text: str, body: Iterable[str], whole: bool) -> str:
    kind = 'class="plot"' if whole else 'class="plot narrow" aria-hidden="true"'
    told = f"<desc>{escape(text, 400)}</desc>" if whole else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {kind} viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>{told}'
        f"{''.join(body)}</svg>"
    )


def _text(
    x: float, y: float, words: object, anchor: str = "start", style: str = "tick", most: int = 60, *, raw: bool = False
) -> str:
    said = words if raw else escape(words, most)
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{style}">{said}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{style}"/>'


def _rect(x: float, y: float, width: float, height: float, style: str, tip: str) -> str:
    title = f"<title>{tip}</title>"
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{max(0, height):g}" class="{style}">{title}</rect>'
