"""Scales, and ticks at round numbers: of counts, bytes, durations and UTC time."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timezone
from typing import NamedTuple

from stompcodec.spark.report.text import compact, duration, finite, moment, octets

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
#: Steps between ticks of time, in µs; longer steps are months.
_STEPS: list[int] = [
    *(step for power in range(6) for step in (10**power, 2 * 10**power, 5 * 10**power)),
    *(step * _SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * 60 * _SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * 3600 * _SECOND for step in (1, 2, 3, 6, 12)),
    *(step * _DAY for step in (1, 2, 7, 14)),
]
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12000, 24000)
_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
#: Years 1 to 9999, in µs since 1970, the range of datetime.
_FIRST, _LAST = -62_135_596_800 * _SECOND, 253_402_300_799 * _SECOND


class Tick(NamedTuple):
    """A position on an axis, and its label."""

    value: float
    label: str
    below: str = ""
    """Second line of the label: the day, if it changes."""


class Scale:
    """A map from numbers to pixels; numbers outside go to the border.

    >>> scale = Scale(0, 10, 100, 200)
    >>> scale(5), scale(-1), scale(float("nan"))
    (150.0, 100.0, 100.0)
    >>> Scale(1, 1000, 0, 300, log=True)(10)
    100.0
    """

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool = False) -> None:
        low, high = (min(max(value, -1e300), 1e300) for value in (low, high))  # so that differences stay finite
        self.log = log and low > 0
        self.low, self.high = low, high if high > low else low + max(1.0, abs(low))
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high) if math.isfinite(value) else self.low
        if self.log:
            part = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self._start + part * (self._end - self._start), 1)


def _step(span: float, most: int, kind: str) -> float:
    """Return the smallest round step that makes at most `most` steps."""
    raw = span / most
    if kind == "seconds":
        step = next((step / _SECOND for step in _STEPS if step / _SECOND >= raw * (1 - 1e-9)), None)
        if step is not None:
            return step
        raw, one = raw / 86400, 86400.0
    else:
        powers = range(6 if kind == "octets" else 1)
        one = max((1024.0**power for power in powers if 1024**power <= span), default=1.0)
        raw /= one
    power = 10.0 ** math.floor(math.log10(raw))
    return one * next((base * power for base in (1, 2, 5) if base * power >= raw * (1 - 1e-9)), 10 * power)


def top_of(values: list[float], kind: str = "count", least: float = 1.0) -> float:
    """Return a round end for an axis from 0 that holds all values.

    >>> top_of([3.0, 17.0]), top_of([]), top_of([80.0], "seconds")
    (20.0, 1.0, 90.0)
    """
    high = min(max([least, *values]), 1e300)
    top = high
    for _ in range(3):  # a rounder top may have larger steps
        step = _step(top, 5, kind)
        top = step * math.ceil(high / step - 1e-9)
    return top


#: Most steps between ticks of values.
_MOST_TICKS = 5
#: Ticks of a logarithmic axis of durations.
_ROUND = [1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, *(86400.0 * 10**power for power in range(10))]
#: Kind of values -> function that writes them.
_WRITTEN: dict[str, Callable[[object], str]] = {"count": compact, "octets": octets, "seconds": duration}


def value_ticks(low: float, high: float, kind: str = "count", *, log: bool = False) -> list[Tick]:
    """Return ticks at round numbers between two, or at powers of ten or round durations with `log`.

    `kind` says how to write them: "count", "octets" or "seconds".

    >>> [tick.label for tick in value_ticks(0, 20)]
    ['0', '5', '10', '15', '20']
    >>> [tick.label for tick in value_ticks(0.01, 1000, "seconds", log=True)]
    ['10 ms', '100 ms', '1 s', '10 s', '1 min', '10 min']
    """
    write = _WRITTEN[kind]
    a, b = finite(low), finite(high)
    if a is None or b is None or b <= a or b - a > 1e300:
        return [Tick(a, write(a))] if a is not None else []
    if log and a > 0 and kind == "seconds":
        return [Tick(value, write(value)) for value in _ROUND if a * (1 - 1e-9) <= value <= b * (1 + 1e-9)]
    if log and a > 0:
        first, last = math.ceil(math.log10(a) - 1e-9), math.floor(math.log10(b) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / 8))
        return [Tick(10.0**power, write(10.0**power)) for power in range(first, last + 1, every)]
    step = _step(b - a, _MOST_TICKS, kind)
    first = math.ceil(a / step - 1e-9)
    values = [(first + index) * step for index in range(_MOST_TICKS + 2)]
    return [Tick(value, write(value)) for value in values if value <= b * (1 + 1e-9)]


def time_ticks(start: float, end: float, most: int = 8) -> list[Tick]:
    """Return ticks at round UTC times between two times in µs since 1970, with the day below its first tick.

    >>> time_ticks(1_700_000_000_000_000, 1_700_000_060_000_000, 4)[1]
    Tick(value=1700000025000000.0, label='22:13:45', below='')
    >>> [(tick.label, tick.below) for tick in time_ticks(1_699_990_000_000_000, 1_700_020_000_000_000, 3)]
    [('21:00', '14 Nov 2023'), ('00:00', '15 Nov 2023'), ('03:00', '')]
    """
    a, b = finite(start), finite(end)
    if a is None or b is None:
        return []
    low, high = int(min(max(a, _FIRST), _LAST)), int(min(max(b, _FIRST), _LAST))
    if high < low:
        return []
    step = next((step for step in _STEPS if (high - low) // step <= most), None)
    if step is None:
        return _months(low, high, most)
    values = [value for index in range(most + 2) if (value := (-(-low // step) + index) * step) <= high]
    return _with_days(values, step)


def _with_days(values: list[int], step: int) -> list[Tick]:
    found, day = [], ""
    for value in values:
        if step >= _DAY:
            label, below = _day(value), moment(value, "%Y")
        elif step >= 60 * _SECOND:
            label, below = moment(value, "%H:%M"), f"{_day(value)} {moment(value, '%Y')}"
        else:
            label, below = moment(value, "%H:%M:%S"), f"{_day(value)} {moment(value, '%Y')}"
            if step < _SECOND:
                digits = max(1, 6 - int(math.log10(step)))
                label += f"{value % _SECOND / _SECOND:.{digits}f}"[1:]
        found.append(Tick(float(value), label, below if below != day else ""))
        day = below
    return found


def _day(value: float) -> str:
    return f"{int(moment(value, '%d'))} {_NAMES[int(moment(value, '%m')) - 1]}"


def _months(low: int, high: int, most: int) -> list[Tick]:
    first, last = (int(moment(at, "%Y")) * 12 + int(moment(at, "%m")) - 1 for at in (low, high))
    step = next((step for step in _MONTHS if (last - first) // step <= most), 120_000)
    found, year = [], ""
    for index in range(most + 2):
        month = (-(-first // step) + index) * step
        if month < 12 or month > last:
            continue
        value = _month(month)
        if not low <= value <= high:
            continue
        name = f"{month // 12:04d}"
        if step % 12:
            found.append(Tick(value, _NAMES[month % 12], name if name != year else ""))
        else:
            found.append(Tick(value, name))
        year = name
    return found


def _month(month: int) -> float:
    """Return the start of a month, counted from year 0, in µs since 1970."""
    at = datetime(month // 12, month % 12 + 1, 1, tzinfo=timezone.utc)
    return (at - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * _SECOND
