"""Plots as SVG: pure functions from numbers to text. Classes refer to colours of the page: s0 is "other", s1 to s6 are
series.

Whatever the numbers and labels are, the result is well-formed and has bounded numbers of points, series and rows.
Values that are not finite numbers are left out.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from stompcodec.spark.report.axis import Scale, Tick, time_ticks, top_of, value_ticks
from stompcodec.spark.report.text import count, duration, escape, finite, moment, visible

MOST_POINTS = 400
MOST_SERIES = 8
MOST_ROWS = 20

_LEFT, _RIGHT, _TOP, _FOOT = 62, 14, 12, 40
#: Pixels of a digit in a tick's label.
_DIGIT = 6.9


class Series(NamedTuple):
    """A sequence of numbers with a name, and with the class that sets its colour."""

    label: object
    values: Sequence[Any]
    style: str = "s1"


class _Box(NamedTuple):
    """Area of a plot between its axes."""

    x0: float
    x1: float
    y0: float
    y1: float
    """Lower end: y grows downward."""


def _svg(width: int, height: int, title: str, text: str, body: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"<desc>{escape(text, 400)}</desc>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, words: object, anchor: str = "start", style: str = "tick", most: int = 60) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{escape(style)}">{_fitted(words, most)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{style}"/>'


def _rect(x: float, y: float, width: float, height: float, style: str, tip: str = "") -> str:
    inner = f"<title>{tip}</title></rect>" if tip else "</rect>"
    return f'<rect x="{x:g}" y="{y:g}" width="{max(0, width):g}" height="{max(0, height):g}" class="{style}">{inner}'


def _empty(width: int, height: int, title: str) -> str:
    body = _text(width / 2, height / 2, "nothing to draw", "middle", "none")
    return _svg(width, height, title, "No data.", [body])


def _value_axis(box: _Box, scale: Scale, ticks: list[Tick]) -> list[str]:
    found = []
    for tick in ticks:
        y = scale(tick.value)
        found.append(_line(box.x0, y, box.x1, y, "grid"))
        found.append(_text(box.x0 - 8, y + 4, tick.label, "end"))
    return found


def _time_axis(box: _Box, scale: Scale, start: float, end: float) -> list[str]:
    found = [_line(box.x0, box.y1, box.x1, box.y1, "axis")]
    free = -math.inf  # end of the previous label
    for tick in time_ticks(start, end, max(2, int((box.x1 - box.x0) / 90))):
        x = scale(tick.value)
        found.append(_line(x, box.y1, x, box.y1 + 4, "axis"))
        anchor = "middle" if box.x0 + 26 <= x <= box.x1 - 20 else "start" if x < box.x1 - 60 else "end"
        wide = _DIGIT * len(tick.label)
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if left < free:
            continue
        free = left + wide + _DIGIT
        found.append(_text(x, box.y1 + 17, tick.label, anchor))
        if tick.below and x < box.x1 - 40:
            found.append(_text(x, box.y1 + 31, tick.below, anchor, "tick day"))
    found.append(_text(box.x1, box.y1 + 31, "UTC", "end", "tick day"))
    return found


def _clean(values: Iterable[Any], points: int) -> list[float | None]:
    """Return exactly `points` values: finite numbers, and None for missing ones."""
    found = [finite(value) for value in islice(values, points)]
    return found + [None] * (points - len(found))


def _points(series: Sequence[Series]) -> int:
    return min(MOST_POINTS, max((len(each.values) for each in series), default=0))


def _hover(box: _Box, points: int, start: float, step: float, say: Callable[[int], str]) -> list[str]:
    """Return a strip over each point, with a text shown while the pointer is over it."""
    wide = (box.x1 - box.x0) / points
    found = []
    for index in range(points):
        words = say(index)
        if words:
            at = f"{moment(start + index * step)} UTC"
            found.append(
                _rect(round(box.x0 + index * wide, 1), box.y0, round(wide, 2), box.y1 - box.y0, "hover", at + words)
            )
    return found


def stacked(
    series: Sequence[Series], start: float, step: float, *, title: str, unit: str, width: int = 1032, height: int = 250
) -> str:
    """Return stacked bars over time, `start` and `step` in µs. Numbers below 0 count as 0."""
    series, points = series[:MOST_SERIES], _points(series)
    a, b = finite(start), finite(step)
    if not points or a is None or b is None or b <= 0:
        return _empty(width, height, title)
    columns = [[min(max(0.0, value or 0.0), 1e300) for value in _clean(each.values, points)] for each in series]
    totals = [min(sum(column), 1e300) for column in zip(*columns)]
    box = _Box(_LEFT, width - _RIGHT, _TOP + 14, height - _FOOT)
    top = top_of(totals)
    across, up = Scale(a, a + b * points, box.x0, box.x1), Scale(0, top, box.y1, box.y0)
    body = [_text(0, 12, unit, style="unit"), *_value_axis(box, up, value_ticks(0, top))]
    bases = [0.0] * points
    for each, column in zip(series, columns):
        body.append(f'<path class="bar {escape(each.style)}" d="{_columns_path(box, up, bases, column)}"/>')
        bases = [base + value for base, value in zip(bases, column)]
    body += _time_axis(box, across, a, a + b * points)

    def say(index: int) -> str:
        many = [(each.label, column[index]) for each, column in zip(series, columns) if column[index]]
        return "".join(f"\n{escape(label, 60)}: {count(value)} {escape(unit)}" for label, value in many)

    body += _hover(box, points, a, b, say)
    text = f"{points} bars from {moment(a)} to {moment(a + b * points)} UTC; highest {count(max(totals))} {unit}."
    return _svg(width, height, title, text, body)


def _columns_path(box: _Box, up: Scale, bases: list[float], values: list[float]) -> str:
    wide = (box.x1 - box.x0) / len(values)
    gap = 1.0 if wide >= 5 else 0.0
    found = []
    for index, (base, value) in enumerate(zip(bases, values)):
        low, high = up(base), up(base + value)
        if value > 0 and low == high and base == 0:
            high = low - 0.6  # small values stay visible
        if low > high:
            found.append(f"M{box.x0 + index * wide + gap / 2:.1f} {low:g}h{wide - gap:.1f}V{high:g}h{gap - wide:.1f}z")
    return "".join(found)


def lines(
    series: Sequence[Series], start: float, step: float, *, title: str, kind: str, width: int = 1032, height: int = 250
) -> str:
    """Return lines over time, `start` and `step` in µs, broken where numbers are missing.

    The axis is logarithmic if values differ a lot. `kind` is "seconds", "octets" or "count".
    """
    series, points = series[:MOST_SERIES], _points(series)
    columns = [_clean(each.values, points) for each in series]
    known = [min(max(value, 0.0), 1e300) for column in columns for value in column if value is not None]
    a, b = finite(start), finite(step)
    if not known or a is None or b is None or b <= 0:
        return _empty(width, height, title)
    box = _Box(_LEFT, width - _RIGHT - 34, _TOP, height - _FOOT)
    across = Scale(a, a + b * points, box.x0, box.x1)
    up, ticks = _upward(box, known, kind)
    body = _value_axis(box, up, ticks)
    ends: list[tuple[float, object, str]] = []
    for each, column in zip(series, columns):
        body.append(_broken(each, column, across, up, a, b))
        last = next((value for value in reversed(column) if value is not None), None)
        if last is not None:
            ends.append((up(max(last, 0.0)), each.label, each.style))
    body += _labels(box, ends)
    body += _time_axis(box, across, a, a + b * points)
    write = duration if kind == "seconds" else count

    def say(index: int) -> str:
        many = [(each.label, column[index]) for each, column in zip(series, columns) if column[index] is not None]
        return "".join(f"\n{escape(label, 60)}: {write(value)}" for label, value in many)

    body += _hover(box, points, a, b, say)
    text = f"{points} points from {moment(a)} to {moment(a + b * points)} UTC, highest {write(max(known))}."
    return _svg(width, height, title, text + (" The axis is logarithmic." if up.log else ""), body)


def _upward(box: _Box, known: list[float], kind: str) -> tuple[Scale, list[Tick]]:
    least = {"seconds": 0.001}.get(kind, 1.0)
    high = max(known)
    low = min((value for value in known if value >= least), default=least)
    if high > 50 * low:
        first = next(10.0**power for power in range(-3, 301) if 10.0 ** (power + 1) > low or power == 300)
        last = next(10.0**power for power in range(-2, 302) if 10.0**power >= high * (1 - 1e-9))
        return Scale(first, last, box.y1, box.y0, log=True), value_ticks(first, last, kind, log=True)
    top = top_of(known, kind, least)
    return Scale(0, top, box.y1, box.y0), value_ticks(0, top, kind)


def _broken(each: Series, column: list[float | None], across: Scale, up: Scale, start: float, step: float) -> str:
    parts, dots, previous = [], [], False
    for index, value in enumerate(column):
        if value is not None:
            x, y = across(start + (index + 0.5) * step), up(max(value, 0.0))
            parts.append(f"{'L' if previous else 'M'}{x:g} {y:g}")
            alone = not previous and (index + 1 == len(column) or column[index + 1] is None)
            if alone:
                dots.append(f'<circle cx="{x:g}" cy="{y:g}" r="2.5" class="dot {escape(each.style)}"/>')
        previous = value is not None
    return f'<path class="line {escape(each.style)}" d="{"".join(parts)}"/>{"".join(dots)}'


def _labels(box: _Box, ends: list[tuple[float, object, str]]) -> list[str]:
    """Return names of lines behind their ends, moved apart; of two equal ends the later line is higher."""
    found, least = [], -1e9
    for _, (y, label, style) in sorted(enumerate(ends), key=lambda each: (each[1][0], -each[0])):
        least = max(y + 4, least + 14)
        found.append(_text(box.x1 + 6, least, label, style=f"end {style}", most=8))
    return found


def histogram(
    labels: Sequence[object], values: Sequence[Any], *, title: str, unit: str, width: int = 488, height: int = 250
) -> str:
    """Return upright bars, one per class; `labels` are the bounds of the classes, one more than classes."""
    points = min(MOST_POINTS, len(values))
    heights = [min(max(0.0, value or 0.0), 1e300) for value in _clean(values, points)]
    if not any(heights):
        return _empty(width, height, title)
    box = _Box(_LEFT, width - _RIGHT, _TOP + 14, height - _FOOT)
    top = top_of(heights)
    up, wide = Scale(0, top, box.y1, box.y0), (box.x1 - box.x0) / points
    gap = 2.0 if wide >= 8 else 0.0
    body = [_text(0, 12, unit, style="unit"), *_value_axis(box, up, value_ticks(0, top))]
    for index, value in enumerate(heights):
        name = f"{_at(labels, index)} to {_at(labels, index + 1)}"
        y = min(up(value), box.y1 - 0.6) if value else box.y1
        tip = f"{escape(name)}: {count(value)} {escape(unit)}"
        body.append(
            _rect(round(box.x0 + index * wide + gap / 2, 1), y, round(wide - gap, 1), box.y1 - y, "bar s1", tip)
        )
    body.append(_line(box.x0, box.y1, box.x1, box.y1, "axis"))
    every = max(1, -(-points // max(1, int((box.x1 - box.x0) / 62))))
    for index in range(0, points + 1, every):
        x = round(box.x0 + index * wide, 1)
        body.append(_line(x, box.y1, x, box.y1 + 4, "axis"))
        body.append(_text(x, box.y1 + 17, _at(labels, index), "end" if x > box.x1 - 8 else "middle", most=10))
    text = f"{points} classes; the fullest holds {count(max(heights))} {unit}."
    return _svg(width, height, title, text, body)


def _at(labels: Sequence[object], index: int) -> object:
    return labels[index] if index < len(labels) else ""


def bars(
    rows: Sequence[tuple[object, Any, str]],
    *,
    title: str,
    unit: str,
    styles: Sequence[str] = (),
    width: int = 488,
    label: int = 190,
) -> str:
    """Return horizontal bars for rows of (label, number, text behind the bar), sorted as given.

    `styles` are the classes of the rows, else s1; `label` is the width of the labels in pixels.
    """
    rows = rows[:MOST_ROWS]
    label = _label_width([row[0] for row in rows], label)
    values = [min(max(0.0, finite(value) or 0.0), 1e300) for _, value, _ in rows]
    if not any(values):
        return _empty(width, 120, title)
    high, height = 24, 24 * len(rows) + 6
    behinds = max(60, min(24, max(len(str(behind)) for _, _, behind in rows)) * 7 + 12)  # wide enough for all
    box = _Box(label + 8, width - behinds, 0, height)
    across = Scale(0, max(values), 0, box.x1 - box.x0)
    body = []
    for index, ((name, _, behind), value) in enumerate(zip(rows, values)):
        y, long = 4 + index * high, max(across(value), 1.0 if value else 0.0)
        style = styles[index] if index < len(styles) else "s1"
        tip = f"{escape(name, 200)}: {count(value)} {escape(unit)}"
        body.append(_text(label, y + 13, name, "end", "label", most=max(4, label // 7)))
        body.append(_rect(box.x0, y, long, high - 7, f"bar {escape(style)}", tip))
        body.append(_text(round(box.x0 + long + 6, 1), y + 13, behind, most=24))
    return _svg(width, height, title, f"{len(rows)} rows; the largest is {count(max(values))} {unit}.", body)


def timeline(
    rows: Sequence[Series],
    start: float,
    step: float,
    *,
    title: str,
    silences: Sequence[tuple[Any, Any]] = (),
    width: int = 1032,
    label: int = 190,
) -> str:
    """Return a row per series, filled where its number is above 0. Silences are marked in the first row.

    Times are in µs; starts and ends are counted from 1970.
    """
    rows, points = rows[:MOST_ROWS], _points(rows)
    label = _label_width([row.label for row in rows], label)
    a, b = finite(start), finite(step)
    if not points or a is None or b is None or b <= 0:
        return _empty(width, 120, title)
    high = 24
    box = _Box(label + 8, width - _RIGHT, 4, 8 + high * len(rows))
    across = Scale(a, a + b * points, box.x0, box.x1)
    body = []
    for index, row in enumerate(rows):
        y = box.y0 + index * high
        body.append(_text(label, y + 13, row.label, "end", "label", most=max(4, label // 7)))
        body.append(_rect(box.x0, y + 2, box.x1 - box.x0, high - 9, "track"))
        path = _runs(_clean(row.values, points), across, a, b, y + 2, high - 9)
        body.append(f'<path class="bar {escape(row.style)}" d="{path}"/>')
    drawn = 0
    for begin, end in islice(silences, 200):
        c, d = finite(begin), finite(end)
        if c is None or d is None or d < c:
            continue
        x, tip = across(c), f"silent for {duration((d - c) / 1e6)}: {moment(c)} to {moment(d)} UTC"
        wide = max(round(across(d) - x, 1), 2.0)
        body.append(_rect(x, box.y0 + 2, wide, high - 9, "silence"))
        body.append(_rect(x, box.y0, wide, box.y1 - box.y0, "silent", tip))
        drawn += 1
    body += _time_axis(box, across, a, a + b * points)
    text = f"{len(rows)} rows from {moment(a)} to {moment(a + b * points)} UTC; {drawn} silences are marked."
    return _svg(width, int(box.y1 + _FOOT), title, text, body)


def _label_width(labels: Iterable[object], most: int) -> int:
    """Return the pixels that labels need, so that short labels leave no empty space."""
    return min(most, 12 + 7 * max((_columns_of(visible(label)) for label in labels), default=0))


def _columns_of(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _fitted(words: object, most: int) -> str:
    """Return the part of a text that fits in `most` columns, escaped; ideographs take two columns."""
    text = visible(words, most)
    if _columns_of(text) > most:
        while _columns_of(text) > most - 1:
            text = text[:-1]
        text += "…"
    return html.escape(text, quote=True)


def _runs(values: list[float | None], across: Scale, start: float, step: float, y: float, high: float) -> str:
    """Return rectangles over runs of values above 0."""
    found, first = [], None
    for index, value in enumerate([*values, None]):
        if value is not None and value > 0:
            first = index if first is None else first
        elif first is not None:
            x, end = across(start + first * step), across(start + index * step)
            found.append(f"M{x:g} {y:g}H{max(end, x + 1):g}v{high:g}H{x:g}z")
            first = None
    return "".join(found)
