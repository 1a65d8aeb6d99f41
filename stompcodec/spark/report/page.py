"""The page of a report: the contents of report.json as one self-contained HTML file; and the verdict on a feed.

Pure functions. No text from a feed leaves them as markup. Whatever the numbers and labels are, the result is
well-formed, and its plots have bounded numbers of points and series.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from itertools import islice
from typing import Any, NamedTuple

from stompcodec.errors import ConfigError
from stompcodec.shown import compact, count, duration, finite, octets, plural, share
from stompcodec.spark.options import QUARANTINED

Found = Mapping[str, Any]

# ---- texts and times ----
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def visible(value: object, most: int = 120) -> str:
    """Return text from a feed as one line of at most `most` characters.

    Control and invisible characters become pictures or escapes; longer text ends in an ellipsis. Bytes are decoded as
    UTF-8, invalid ones become \\xNN.

    >>> visible("a\\nb\\u202e\\x00"), visible(b"\\xffok"), visible("abcdef", 4)
    ('a␊b\\\\u202e␀', '\\\\xffok', 'abc…')
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        # a cut inside a character would show as escapes, so leave room and cut again below
        value = bytes(value[: 4 * most + 4]).decode("utf-8", "backslashreplace")
    text = "" if value is None else str(value)[: most + 1]
    shown = "".join(map(_shown, text))
    return shown if len(text) <= most and len(shown) <= 6 * most else shown[: most - 1] + "…"


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return chr(0x2400 + min(code, 0x21))
    if character != " " and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return character


def escape(value: object, most: int = 120) -> str:
    """Return `visible` text, escaped for HTML and XML text and attributes."""
    return html.escape(visible(value, most), quote=True)


def moment(micros: object, spec: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in µs since 1970 as UTC; "–" if it is None or outside the calendar."""
    number = finite(micros)
    try:
        at = None if number is None else _EPOCH + timedelta(microseconds=number)
    except OverflowError:
        at = None
    # strftime of some C libraries does not pad years before 1000
    return "–" if at is None else at.strftime(spec.replace("%Y", f"{at.year:04d}"))


# ---- the verdict ----
#: Levels from good to bad, with the word that the page shows.
LEVELS = {"healthy": "Healthy", "look": "Look here", "unhealthy": "Unhealthy"}


class Threshold(NamedTuple):
    """Two upper limits of a figure: above `look` it needs a look, above `bad` it is unhealthy; None for never."""

    name: str
    meaning: str
    unit: str
    """"count", "share" (of 1), "seconds", "octets"."""
    look: float | None
    bad: float | None


#: Default thresholds. `report(thresholds={"lag_p95_seconds": (10, 60)})` replaces some.
THRESHOLDS: tuple[Threshold, ...] = (
    Threshold("backlog_octets", "bytes in the spool that the query has not read yet", "octets", 64 * 2**20, 2**30),
    Threshold("age_seconds", "from the newest frame to the time of this page", "seconds", None, None),
    Threshold("missing", "messages that were produced and are not in the sink (proof)", "count", 0, 0),
    Threshold("sink_duplicates", "messages that are in the sink twice (proof)", "count", 0, 0),
    Threshold(
        "duplicates", "frames in the archive with a destination, message-id and body seen before", "share", 0, 0.01
    ),
    Threshold("redelivered", "frames the broker marked as redelivered", "share", 0.05, 0.5),
    Threshold("malformed", "frames that break the STOMP protocol (malformed)", "share", 0, 0.01),
    Threshold("quarantined", "records whose body did not fit the schema (quarantined)", "share", 0.001, QUARANTINED),
    Threshold("lag_p95_seconds", "p95 lag: 95 % of the frames came so soon after they were sent", "seconds", 15, 120),
    Threshold("sent_ahead", "frames that came before they were sent: clocks disagree", "share", 0.01, None),
    Threshold("silences", "silences: long times without any frame", "count", 0, None),
    Threshold("longest_silence_seconds", "the longest time without any frame", "seconds", None, 300),
    Threshold("sequence_gaps", "numbers left out in the sequence of a destination (metrics)", "count", 0, None),
    Threshold("stale_seconds", "since the last frame, while the spool is still open", "seconds", 600, 3600),
)
#: Texts for crossed thresholds: `n` is the figure, `s` the ending of its noun.
_SAY = {
    "backlog_octets": "backlog: {n} in the spool are not read yet",
    "age_seconds": "the newest frame is {n} old",
    "missing": "{n} message{s} missing in the sink",
    "sink_duplicates": "{n} message{s} more than once in the sink",
    "duplicates": "{n} duplicate{s} in the archive ({share})",
    "redelivered": "{n} frame{s} redelivered ({share})",
    "malformed": "{n} frame{s} malformed ({share})",
    "quarantined": "{n} record{s} in quarantine ({share})",
    "lag_p95_seconds": "p95 lag {n}: 5 % of the frames took longer",
    "sent_ahead": "{n} frame{s} that came before they were sent: clocks disagree ({share})",
    "silences": "{n} silence{s} longer than {least}",
    "longest_silence_seconds": "nothing came for {n}",
    "sequence_gaps": "{n} left out in sequences: messages may be lost",
    "stale_seconds": "the spool is open, and nothing came for {n}",
}
_UNITS = {"seconds": duration, "octets": octets}


def thresholds_of(changed: Mapping[str, tuple[float | None, float | None]] | None = None) -> tuple[Threshold, ...]:
    """Return the thresholds with some limits replaced; raise ConfigError for unknown names and non-numeric limits."""
    known = {threshold.name: threshold for threshold in THRESHOLDS}
    for name, limits in (changed or {}).items():
        if name not in known:
            raise ConfigError(f"threshold {visible(name)}: unknown; use one of {', '.join(known)}")
        if len(limits) != 2 or any(limit is not None and finite(limit) is None for limit in limits):
            raise ConfigError(f"threshold {name}: must be two numbers (look, bad), or None for never")
        known[name] = known[name]._replace(look=finite(limits[0]), bad=finite(limits[1]))
    return tuple(known.values())


def verdict_of(figures: Found, thresholds: tuple[Threshold, ...] = THRESHOLDS) -> dict[str, Any]:
    """Return `level` (a key of `LEVELS`), `word`, and `reasons`, the worst first, each with level, name, text and
    limit.

    A figure that is None or missing is unknown and crosses no threshold.

    >>> verdict_of({"frames": 100, "malformed": 0})["level"]
    'healthy'
    >>> verdict_of({"frames": 100, "malformed": 2})["reasons"]
    [{'level': 'unhealthy', 'name': 'malformed', 'text': '2 frames malformed (2 %)', 'limit': 'unhealthy above 1 %'}]
    """
    reasons = []
    if not figures.get("frames"):
        reasons.append({"level": "unhealthy", "name": "frames", "text": "there are no frames at all", "limit": ""})
    for threshold in thresholds:
        name, level = threshold.name, level_of(threshold, figures)
        if level != "healthy":
            value = figures[name]
            text = _SAY[name].format(
                n=_UNITS.get(threshold.unit, count)(value),
                s="" if value == 1 else "s",
                share=share(value, _whole(name, figures)),
                least=duration(figures.get("silence_seconds")),
            )
            reasons.append({"level": level, "name": name, "text": text, "limit": limit_of(threshold, level)})
    reasons.sort(key=lambda reason: -[*LEVELS].index(reason["level"]))
    level = reasons[0]["level"] if reasons else "healthy"
    return {"level": level, "word": LEVELS[level], "reasons": reasons}


def written(threshold: Threshold, value: float | None, unknown: str = "–") -> str:
    """Return a figure or limit of a threshold in its unit."""
    if value is None:
        return unknown
    return share(value, 1) if threshold.unit == "share" else _UNITS.get(threshold.unit, count)(value)


def limit_of(threshold: Threshold, level: str) -> str:
    """Return a text that says where a level begins, such as "look here above 0"."""
    limit = threshold.bad if level == "unhealthy" else threshold.look
    return "" if limit is None else f"{LEVELS[level].lower()} above {written(threshold, limit)}"


def _whole(name: str, figures: Found) -> Any:
    return figures.get("records" if name == "quarantined" else "frames")


def value_of(threshold: Threshold, figures: Found) -> float | None:
    """Return a figure as its threshold sees it, as a share of 1 for that unit; None if unknown."""
    value = finite(figures.get(threshold.name))
    if value is None or threshold.unit != "share":
        return value
    whole = finite(_whole(threshold.name, figures))
    return value / whole if whole else 0.0


def level_of(threshold: Threshold, figures: Found) -> str:
    value = value_of(threshold, figures)
    for level, limit in (("unhealthy", threshold.bad), ("look", threshold.look)):
        if value is not None and limit is not None and value > limit:
            return level
    return "healthy"


# ---- plots, as SVG: bars or lines over time ----
MOST_POINTS, MOST_SERIES, MOST_MARKS = 400, 8, 200
#: Widths of a plot on a desk and on a phone, in pixels.
WIDE, NARROW = 1032, 348
_LEFT, _RIGHT, _TOP, _FOOT = 62, 14, 26, 40
#: Pixels of a digit in a tick's label, and of the name behind the end of a line.
_DIGIT, _NAME = 6.9, 34
_DAY = 86400.0
#: Round durations in seconds: ticks are these apart, or 1, 2 or 5 times a power of ten of days.
_STEPS = (
    *(step * 10.0**power for power in range(-6, 0) for step in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
)
#: Ticks of a logarithmic axis, in seconds.
_DECADES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, *(_DAY * 10**power for power in range(10)))


class Series(NamedTuple):
    """A sequence of numbers with a name, and with the class that sets its colour: s0 for others, s1 to s6."""

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
    """Return the smallest round step that makes at most `most` steps of a span: of durations, or of other numbers."""
    raw, unit = span / most * (1 - 1e-9), 1.0
    if kind != "count":
        if step := next((step for step in _STEPS if step >= raw), None):
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
    spec = "%d %b" if step >= _DAY else "%H:%M" if step >= 60 else "%H:%M:%S"
    found: list[Tick] = []
    day = ""
    for value in values:
        label = moment(round(value * 1e6), spec).lstrip() + (f"{value % 1:.{digits}f}"[1:] if digits else "")
        below = moment(round(value * 1e6), "%Y" if step >= _DAY else "%d %b %Y")
        found.append(Tick(value, label, below if below != day else ""))
        day = below
    return found


def _scale(low: float, high: float, start: float, end: float, log: bool = False) -> Callable[[float], float]:
    """Return a map from numbers to pixels; numbers outside go to the border."""
    high = high if high > low else low + max(1.0, abs(low))

    def pixels(value: float) -> float:
        value = min(max(value, low), high) if math.isfinite(value) else low
        part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        return round(start + part * (end - start), 1)

    return pixels


def _upward(values: Sequence[float], kind: str, top: float, bottom: float) -> tuple[list[Tick], Any, bool]:
    """Return ticks and scale of an axis from 0 to a round number, or, and True, of a logarithmic one of durations that
    differ a lot."""
    known = [value for value in values if value > 0]
    least = 0.001 if kind == "seconds" else 1.0
    high, low = max([least, *known]), max(least, min(known, default=least))
    if kind == "seconds" and high > 50 * low:
        first = max(value for value in _DECADES if value <= low)
        last = next((value for value in _DECADES if value >= high), high)
        decades = [Tick(value, duration(value)) for value in _DECADES if first <= value <= last]
        return decades, _scale(first, last, bottom, top, True), True
    end = high
    for _ in range(3):  # a rounder end may have larger steps
        step = step_of(end, 5, kind)
        end = step * math.ceil(high / step - 1e-9)
    return ticks(0, end, kind), _scale(0, end, bottom, top), False


def plot(
    series: Sequence[Series],
    *,
    title: str,
    start: object,
    step: object,
    unit: str = "",
    kind: str = "count",
    as_lines: bool = False,
    silences: Sequence[tuple[Any, Any]] = (),
    height: int = 250,
) -> str:
    """Return stacked bars, or lines that break where numbers are missing, twice: for a desk and for a phone.

    They are over time, from `start` on with a point each `step`, both in µs. `silences` are starts and ends in µs,
    marked in red. The style sheet shows one of the two plots. The small one has no texts under the pointer, and screen
    readers skip it.
    """
    shown = series[:MOST_SERIES]
    points = min(MOST_POINTS, max((len(each.values) for each in shown), default=0))
    clean = [Series(each.label, _clean(each.values, points), each.style) for each in shown]
    a, b = finite(start), finite(step)
    if a is None or b is None or not 0 < b < 1e300 or abs(a) >= 1e300:
        a = b = 0.0
        points = 0
    marks = [pair for pair in islice(silences, MOST_MARKS) if None not in map(finite, pair)]
    drawing = _Drawing(title, clean, points, a, b, escape(unit), kind, as_lines, marks)
    return f'<div class="scroll">{drawing.svg(WIDE, height, True)}{drawing.svg(NARROW, height, False)}</div>'


def _clean(values: Iterable[Any], points: int) -> list[float | None]:
    """Return exactly `points` values: finite numbers from 0 on, and None for missing ones."""
    numbers = map(finite, islice(values, points))
    found = [None if number is None else min(max(0.0, number), 1e300) for number in numbers]
    return found + [None] * (points - len(found))


@dataclass
class _Drawing:
    """One plot, at any width."""

    title: str
    series: list[Series]
    points: int
    start: float
    step: float
    unit: str
    kind: str
    as_lines: bool
    silences: Sequence[tuple[Any, Any]]

    def svg(self, width: int, height: int, whole: bool) -> str:
        known = [value for each in self.series for value in each.values if value is not None]
        if self.points and any(known):
            body, text = self._drawn(known, width, height, whole)
        else:
            body, text = [_text(width / 2, height / 2, "nothing to draw", "middle", "none")], "No data."
        style, told = 'class="plot narrow" aria-hidden="true"', ""
        if whole:
            style, told = 'class="plot"', f"<desc>{escape(text, 400)}</desc>"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {style} viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="{escape(self.title)}"><title>{escape(self.title)}</title>{told}'
            f"{''.join(body)}</svg>"
        )

    def _drawn(self, known: list[float], width: int, height: int, whole: bool) -> tuple[list[str], str]:
        """Return the parts of the plot, and what it says in words."""
        self.x0, self.x1 = _LEFT, width - _RIGHT - (_NAME if self.as_lines else 0)
        self.y0, self.y1 = _TOP, height - _FOOT
        self.wide = (self.x1 - self.x0) / self.points
        columns = zip(*(each.values for each in self.series))
        tops = known if self.as_lines else [min(1e300, sum(value or 0.0 for value in column)) for column in columns]
        marks, to, log = _upward(tops, self.kind, self.y0, self.y1)
        body = [_text(0, 12, self.unit, style="unit")]
        for tick in marks:
            y = to(tick.value)
            body += [_line(self.x0, y, self.x1, y, "grid"), _text(self.x0 - 8, y + 4, tick.label, "end")]
        body += self._lines(to) if self.as_lines else self._bars(to)
        body += [*self._marks(), *self._across(), *(self._hover() if whole else [])]
        text = f"{self.points} points, {self._at(0)} to {self._at(self.points - 1)}; highest {self._value(max(tops))}."
        return body, text + (" The axis is logarithmic." if log else "")

    def _value(self, value: float) -> str:
        return f"{(duration if self.kind == 'seconds' else count)(value)} {self.unit}"

    def _bars(self, to: Callable[[float], float]) -> list[str]:
        gap = 1.0 if self.wide >= 5 else 0.0
        bases, found = [0.0] * self.points, []
        for each in self.series:
            path = []
            for index, value in enumerate(each.values):
                low, high = to(bases[index]), to(bases[index] + (value or 0.0))
                if value and low == high and not bases[index]:
                    high = low - 0.6  # small values stay visible
                if low > high:
                    x = self.x0 + index * self.wide + gap / 2
                    path.append(f"M{x:.1f} {low:g}h{self.wide - gap:.1f}V{high:g}h{gap - self.wide:.1f}z")
                bases[index] += value or 0.0
            found.append(f'<path class="bar {escape(each.style)}" d="{"".join(path)}"/>')
        return found

    def _lines(self, to: Callable[[float], float]) -> list[str]:
        found, ends = [], []
        for order, each in enumerate(self.series):
            path, before = [], False
            for index, value in enumerate(each.values):
                if value is not None:
                    x, y = self.x0 + (index + 0.5) * self.wide, to(value)
                    path.append(f"{'L' if before else 'M'}{x:.1f} {y:g}")
                    if not before and (index + 1 == self.points or each.values[index + 1] is None):
                        found.append(f'<circle cx="{x:.1f}" cy="{y:g}" r="2.5" class="dot {escape(each.style)}"/>')
                before = value is not None
            found.append(f'<path class="line {escape(each.style)}" d="{"".join(path)}"/>')
            if path:
                ends.append((y, -order, each))
        least = -math.inf
        for y, _, each in sorted(ends):  # names behind the ends, moved apart
            least = max(y + 4, least + 14)
            found.append(_text(self.x1 + 6, least, each.label, style=f"end {escape(each.style)}", most=8))
        return found

    def _marks(self) -> list[str]:
        to, found = _scale(self.start, self.start + self.step * self.points, self.x0, self.x1), []
        for begin, end in self.silences:
            if begin <= end:
                long = max(2.0, round(to(end) - to(begin), 1))
                tip = f"silent for {duration((end - begin) / 1e6)}: {moment(begin)} to {moment(end)} UTC"
                found.append(_rect(min(to(begin), self.x1 - 2), self.y0, long, self.y1 - self.y0, "silent", tip))
        return found

    def _across(self) -> list[str]:
        """Return the axis of time, with labels that do not overlap."""
        found, free = [_line(self.x0, self.y1, self.x1, self.y1, "axis")], -math.inf
        start, end = self.start / 1e6, (self.start + self.step * self.points) / 1e6
        marks = ticks(start, end, "time", max(2, int((self.x1 - self.x0) / 90)))
        found.append(_text(self.x1, self.y1 + 31, "UTC", "end", "tick day"))
        to = _scale(start, end, self.x0, self.x1)
        for tick in marks:
            x, long = to(tick.value), _DIGIT * len(tick.label)
            anchor = "middle" if self.x0 + 26 <= x <= self.x1 - 20 else "start" if x < self.x1 - 60 else "end"
            left = x - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
            if left < free:
                continue
            free = left + long + _DIGIT
            found += [_line(x, self.y1, x, self.y1 + 4, "axis"), _text(x, self.y1 + 17, tick.label, anchor)]
            if tick.below and x < self.x1 - 40:
                found.append(_text(x, self.y1 + 31, tick.below, anchor, "tick day"))
        return found

    def _at(self, index: int) -> str:
        return f"{moment(self.start + index * self.step)} UTC"

    def _hover(self) -> list[str]:
        """Return a strip over each point, with a text that is shown while the pointer is over it."""
        found = []
        for index in range(self.points):
            known = [(escape(each.label, 60), each.values[index]) for each in self.series if each.values[index]]
            if known:
                tip = "\n".join(
                    [self._at(index), *(f"{label}: {self._value(value)}".rstrip() for label, value in known)]
                )
                x = round(self.x0 + index * self.wide, 1)
                found.append(_rect(x, self.y0, round(self.wide, 2), self.y1 - self.y0, "hover", tip))
        return found


def _text(x: float, y: float, words: object, anchor: str = "start", style: str = "tick", most: int = 60) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{style}">{escape(words, most)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{style}"/>'


def _rect(x: float, y: float, width: float, height: float, style: str, tip: str) -> str:
    title = f"<title>{tip}</title>"
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{max(0, height):g}" class="{style}">{title}</rect>'


# ---- the page: each section is a sentence, a plot, a table, or "" if it has nothing to say ----
_MICRO = 1e6
_MARKS = {"healthy": "M11.5 20l5.5 5.5 10-11", "look": "M19 10v11M19 27v.6", "unhealthy": "M13 13l12 12M25 13l-12 12"}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="generator" content="stompcodec">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p>{span}</p><p class="made">As of <b>{made} UTC</b>, when this page was made{old}.</p></header>
{verdict}{tiles}<div class="cards">{cards}</div>
<footer><p>Made {made} UTC from {archive}. All times are UTC. The same figures stand in report.json.</p></footer>
</main>
</body>
</html>
"""


def page_of(found: Found) -> str:
    """Return the whole page, below 1 MB, for the contents of report.json. Every text is escaped and cut."""
    figures, age, span = found["figures"], found["figures"].get("age_seconds"), "no times are known"
    if figures["first"] is not None:
        span = f"{moment(figures['first'])} to {moment(figures['last'])} UTC, {duration(figures['seconds'])}"
    return _PAGE.format(
        title=escape(found["title"]),
        css=files("stompcodec.spark.report").joinpath("report.css").read_text(encoding="utf-8"),
        span=span,
        made=moment(found["generated"]),
        old="" if age is None else f"; the newest frame was {duration(age)} old then",
        verdict=_verdict(found),
        tiles=_tiles(found),
        cards="".join(section(found) for section in SECTIONS),
        archive=escape(found["archive"], 200),
    )


def _verdict(found: Found) -> str:
    verdict, figures = found["verdict"], found["figures"]
    level = verdict["level"]
    said = "".join(
        f'<li class="{escape(each["level"])}"><span>{escape(each["text"])}'
        f"<small>{escape(each.get('limit', ''))}</small></span></li>"
        for each in verdict["reasons"]
    )
    proof = "nothing is missing, " if found.get("proof") else ""
    healthy = (
        f"<p>{count(figures['frames'])} frames in {duration(figures['seconds'])}: {proof}no threshold was crossed.</p>"
        '<p class="note">Each limit stands below its figure, and all of them under “What the verdict looks at”.</p>'
    )
    return (
        f'<section class="verdict {level}" aria-label="Verdict"><svg class="mark" viewBox="0 0 38 38" '
        f'aria-hidden="true"><circle cx="19" cy="19" r="18"/><path d="{_MARKS[level]}"/></svg><div>'
        f'<h2 class="word">{LEVELS[level]}</h2>{f"<ul>{said}</ul>" if said else healthy}</div></section>\n'
    )


def _tiles(found: Found) -> str:
    f = found["figures"]
    width = duration(found["rate"]["bucket_seconds"]) if found["rate"] else ""
    no_time = f"{plural(f['without_time'], 'frame')} without time" if f["without_time"] else f"{moment(f['last'])} UTC"
    named = (f"p{name} {duration(f[f'lag_p{name}_seconds'])}" for name in (50, 99))
    quantiles = " · ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in named)
    bad = f"{share(f['quarantined'], f['records'])} of {count(f['records'])} records"
    silent = f"over {duration(f['silence_seconds'])}; longest {duration(f['longest_silence_seconds'])}"

    def part(name: str) -> str:
        return f"{share(f[name], f['frames'])} of frames"

    def known(name: str, text: str, unknown: str) -> str:
        return unknown if f.get(name) is None else text

    rows: list[tuple[str, str, str, tuple[str, ...]]] = [
        ("Backlog", octets(f.get("backlog_octets")),
         known("backlog_octets", "in the spool, not read yet", "no spool and checkpoint given"), ("backlog_octets",)),
        ("Age of the newest frame", duration(f.get("age_seconds")), no_time, ("stale_seconds", "age_seconds")),
        ("Lag p95", duration(f["lag_p95_seconds"]), known("lag_p50_seconds", quantiles, "no sending times"),
         ("lag_p95_seconds", "sent_ahead")),
        ("Missing", count(f["missing"]), known("missing", "sent, and not in the sink", "the sender gave no account"),
         ("missing", "sink_duplicates")),
        ("Frames", count(f["frames"]), f"{octets(f['octets'])} · {plural(f['destinations'], 'destination')}", ()),
        ("Frames per second", count(f["per_second"]), f"{count(f['per_second_peak'])} at most (in {width})", ()),
        ("Silences", count(f["silences"]), silent, ("silences", "longest_silence_seconds")),
        ("Sequence gaps", count(f["sequence_gaps"]),
         known("sequence_gaps", "numbers left out", "no sequence is known"), ("sequence_gaps",)),
        ("Duplicates", count(f["duplicates"]), f"same id and body, {part('duplicates')}", ("duplicates",)),
        ("Redelivered", count(f["redelivered"]), f"by the broker, {part('redelivered')}", ("redelivered",)),
        ("Malformed", count(f["malformed"]), f"break the protocol, {part('malformed')}", ("malformed",)),
        ("Quarantined", count(f["quarantined"]),
         known("quarantined", f"invalid body, {bad}", "nothing was exploded"), ("quarantined",)),
    ]  # fmt: skip
    drawn = "".join(_tile(found, *row) for row in rows)
    return f'<ul class="tiles" aria-label="Key figures">{drawn}</ul>\n'


def _tile(found: Found, name: str, value: str, below: str, names: Sequence[str]) -> str:
    """Return a figure, with the level of the worst of these thresholds, and the limits of the first known one."""
    levels = [each["level"] for each in found["verdict"]["reasons"] if each["name"] in names]
    worst, limit = max(levels, key=[*LEVELS].index, default=""), ""
    for threshold in (Threshold(**each) for each in found["thresholds"] if each["name"] in names):
        limits = [limit_of(threshold, level) for level in ("look", "unhealthy")]
        if any(limits) and not limit and found["figures"].get(threshold.name) is not None:
            shown = limits[1:] if threshold.look == threshold.bad else filter(None, limits)
            limit = f'<small class="limit">{", ".join(shown)}</small>'
    return f'<li class="tile {worst}"><span>{name}</span><b>{value}</b><small>{below}</small>{limit}</li>'


def _card(title: str, *inner: str, note: str = "") -> str:
    said = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="card"><h2>{title}</h2>{said}{"".join(inner)}</section>\n'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), folded: str = "") -> str:
    """Return a table, `folded` behind that summary; `numbers` are right-aligned columns. Cells are HTML: escape it."""
    right = set(numbers)

    def line(tag: str, row: Sequence[str]) -> str:
        styles = (' class="num"' if at in right else "" for at in range(len(row)))
        cells = (f"<{tag}{style}>{cell}</{tag}>" for style, cell in zip(styles, row))
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    table = f'<div class="scroll"><table><thead>{line("th", heads)}</thead><tbody>{body}</tbody></table></div>'
    return f"<details><summary>{folded}</summary>{table}</details>" if folded else table


def _bar(value: object, whole: object, style: str) -> str:
    """Return a bar for a cell of a table, as long as a part of the largest."""
    a, b = finite(value), finite(whole)
    part = 100 * min(a / b, 1.0) if a and b and a > 0 and b > 0 else 0.0
    return f'<i class="bar" style="--w:{part:.1f}%;--c:var(--{style})"></i>'


def _when(micros: object) -> str:
    return f'<span class="when">{moment(micros)}</span>'


def _name(destination: Any) -> str:
    return "(no destination)" if destination is None else str(destination)


def _over_time(rate: Found, series: Sequence[Series], **how: Any) -> str:
    return plot(series, start=rate["start"], step=rate["bucket_seconds"] * _MICRO, **how)


def _covered(found: Found) -> list[float]:
    """Return the seconds of each bar in which the feed ran, so that an incomplete bar does not seem to be its end."""
    rate, figures = found["rate"], found["figures"]
    width, many = rate["bucket_seconds"], rate["buckets"]
    spans = [width] * many
    if many >= 10:
        begin = (figures["first"] - rate["start"]) / _MICRO
        end = (figures["last"] - rate["start"]) / _MICRO - (many - 1) * width
        peak = figures["per_second_peak"] or 0
        for index, span in ((0, width - begin), (-1, end)):
            frames = sum(column[index] for column in rate["frames"])
            spans[index] = min(width, max(width / 10, span, frames / peak if peak > 0 else width))
    return spans


#: Figures of a sender's account, by group: name -> meaning.
_PROOF: dict[str, dict[str, str]] = {
    "Delivered": {
        "produced": "different messages confirmed to the sender",
        "in_sink": "messages in the sink",
        "missing": "confirmed, and not in the sink",
        "duplicates": "more than once in the sink",
        "damaged": "in the sink with another body",
        "left_in_broker": "still in the broker at the end",
    },
    "Done by the sender": {
        "sent_twice": "sent once more on purpose",
        "late": "sent with an old time",
        "malformed": "sent with an invalid body",
    },
    "Found on the way": {
        "redelivered": "redelivered by the broker",
        "quarantined": "messages in quarantine",
        "events": "records in valid bodies",
        "typed_rows": "rows of the typed tables",
    },
}
#: Figures that must be 0.
_FAULTS = ("missing", "duplicates", "damaged", "left_in_broker")


def _proof(found: Found) -> str:
    proof = found["proof"]
    if not proof:
        return ""
    known = {name for group in _PROOF.values() for name in group}
    others = {name: escape(name.replace("_", " "), 60) for name in proof if name not in known}
    level = {name: "unhealthy" if proof.get(name) else "healthy" for name in _FAULTS}
    groups = ""
    for title, names in {**_PROOF, "Others": others}.items():
        items = "".join(
            f'<div class="{level.get(name, "")}"><dt>{label}</dt><dd>{count(proof[name])}</dd></div>'
            for name, label in names.items()
            if name in proof
        )
        groups += f'<div><p class="group">{title}</p><dl class="proof">{items}</dl></div>' if items else ""
    said = f"{'Not every' if 'unhealthy' in level.values() else 'Every'} message is in the sink exactly once."
    told = {"missing", "duplicates"} <= proof.keys()
    note = f"{said} The sender’s account against the files of the sink." if told else ""
    return _card("Proof", f'<div class="groups">{groups}</div>', note=note)


def _rate(found: Found) -> str:
    rate = found["rate"]
    if not rate:
        return _card("Rate", note="No frame says when it came.")
    width, spans = duration(rate["bucket_seconds"]), _covered(found)
    series = [
        Series(_name(name), [value / span for value, span in zip(column, spans)], f"s{number}")
        for number, (name, column) in enumerate(zip(rate["destinations"], rate["frames"]), 1)
    ]
    if rate["other"]:
        series[-1] = series[-1]._replace(style="s0")
    named = (f'<li><i style="--c:var(--{each.style})"></i>{escape(each.label, 60)}</li>' for each in series)
    legend = f'<ul class="legend">{"".join(named)}</ul>' if len(series) > 1 else ""
    drawn = _over_time(rate, series, title="Frames per second over time", unit="frames/s")
    return _card("Rate", legend, drawn, note=f"Frames per second by destination; a bar is {width}.")


def _lag(found: Found) -> str:
    lag, rate, figures = found["lag"], found["rate"], found["figures"]
    if not lag:
        return _card("Lag", note="No frame says when it was sent and when it came.")
    few = _covered(found)[-1] < rate["bucket_seconds"] / 5  # too few frames: their quantiles would look like a change
    series = [
        Series(name, [*lag[name][:-1], None] if few else lag[name], f"q{number}") for number, name in enumerate(lag, 1)
    ]
    known = " · ".join(f"{name} {duration(figures[f'lag_{name}_seconds'])}" for name in lag)
    note = f"From sending to arrival: {known}. The longest is {duration(figures['lag_max_seconds'])}"
    if figures["sent_ahead"]:
        note += f"; {count(figures['sent_ahead'])} frames came over a second before they were sent: clocks disagree"

    drawn = _over_time(rate, series, title="Lag over time: p50, p95 and p99", kind="seconds", as_lines=True)
    return _card("Lag", drawn, note=note + ".")


def _silences(found: Found) -> str:
    rate, figures = found["rate"], found["figures"]
    if not rate:
        return ""
    total = Series("all", [sum(column) for column in zip(*rate["frames"])], "all")
    spans = [(each["start"], each["end"]) for each in found["silences"]]
    drawn = _over_time(rate, [total], title="When frames came", unit="frames", silences=spans, height=150)
    long = duration(figures["silence_seconds"])
    note = f"No silence was longer than {long}; the longest was {duration(figures['longest_silence_seconds'])}."
    if figures["silences"]:
        many, whole = plural(figures["silences"], "silence"), duration(figures["silent_seconds"])
        note = f"{many} longer than {long}, {whole} in all: marked in red."
    listed = [(_when(each["start"]), _when(each["end"]), duration(each["seconds"])) for each in found["silences"]]
    gaps = [
        [escape(_name(each["destination"]), 80), escape(each["name"], 80), _when(each["at"])]
        + [count(each[name]) for name in ("after", "before", "missing")]
        for each in found["gaps"]
    ]
    heads = ["Destination", "Sequence", "Until (UTC)", "After", "Before", "Missing"]
    table = _table(["From (UTC)", "To (UTC)", "For"], listed, (2,), "The longest silences") if listed else ""
    left_out = _table(heads, gaps, (3, 4, 5), "The largest gaps between windows") if gaps else ""
    return _card("Gaps and silences", drawn, table, left_out, note=note)


def _destinations(found: Found) -> str:
    top, figures = found["destinations"], found["figures"]
    if not top:
        return ""
    coloured = len(found["rate"]["destinations"]) - found["rate"]["other"] if found["rate"] else 0
    rows = [
        [
            escape(_name(each["destination"]), 100)
            + _bar(each["frames"], top[0]["frames"], f"s{index + 1}" if index < coloured else "s0"),
            f"{count(each['frames'])} · {share(each['frames'], figures['frames'])}",
            *(octets(each["octets"]), count(each["redelivered"]), count(each["malformed"])),
            *(duration(each["lag_p95_seconds"]), _when(each["first"]), _when(each["last"])),
        ]
        for index, each in enumerate(top)
    ]
    heads = ["Destination", "Frames", "Bytes", "Redelivered", "Malformed", "Lag p95", "First (UTC)", "Last (UTC)"]
    many = figures["destinations"]
    note = f"The largest {len(rows)} of {count(many)}." if many > len(rows) else ""
    return _card("Destinations", _table(heads, rows, range(1, 8)), note=note)


def _reasons(found: Found, key: str, title: str, what: str, heads: Sequence[str], empty: str = "") -> str:
    """Return reasons with their counts, and samples, which are raw bytes of a feed: cut and escaped."""
    bad = found[key]
    if not bad or not bad["total"]:
        return _card(title, note=empty) if bad and empty else ""
    most = bad["reasons"][0]["count"] if bad["reasons"] else 0
    rows = [[escape(each["reason"]) + _bar(each["count"], most, "s2"), count(each["count"])] for each in bad["reasons"]]
    samples = [
        [
            *(escape(each["reason"], 80), _when(each["time"]), escape(_name(each["destination"]), 60)),
            *(escape(each["id"], 80), f"<code>{escape(each['raw'], 240)}</code>"),
        ]
        for each in bad["samples"]
    ]
    more = bad["kinds"] - len(rows)
    note = f"{count(bad['total'])} {what} ({share(bad['total'], found['figures'][what])})"
    note += f"; {count(more)} more reasons are not shown." if more > 0 else "."
    table = _table([heads[0], what.capitalize()], rows, (1,))
    return _card(title, table, _table(heads, samples, folded="The first and the last of each"), note=note)


def _quarantine(found: Found) -> str:
    heads = ["Reason", "Came (UTC)", "Destination", "Message-id", "Record"]
    return _reasons(found, "quarantine", "Quarantine", "records", heads, "It is empty: every record fitted its schema.")


def _malformed(found: Found) -> str:
    heads = ["Kind", "Came (UTC)", "Destination", "Error", "Bytes"]
    return _reasons(found, "malformed", "Malformed frames", "frames", heads)


def _spool(found: Found) -> str:
    spool = found["spool"]
    if not spool:
        return ""
    is_read, note = spool["behind"] is not None, escape(spool["path"], 200)
    problems = "".join(f'<p class="note">{escape(each, 300)}</p>' for each in spool["problems"])
    heads = ["Chain", "Segments", "Bytes", "Oldest (UTC)", "Newest (UTC)", "State", "Committed", "Not yet read"]
    rows = [
        [
            *(escape(chain["chain"]), count(chain["segments"]), octets(chain["octets"]), _when(chain["oldest"])),
            *(_when(chain["newest"]), "open" if chain["open"] else "sealed"),
            *((count(chain["committed"]), octets(chain["behind"])) if is_read else ()),
        ]
        for chain in spool["chains"]
    ]
    if is_read and rows:
        ahead = f"{octets(spool['behind'])} are not read yet" if spool["behind"] else "The query has read everything"
        note = f"{ahead}, of {octets(spool['octets'])} in {note}."
    table = _table(heads if is_read else heads[:6], rows, (1, 2, 6, 7), "The chains") if rows else ""
    return _card("Backlog" if is_read else "Spool", problems, table, note=note)


def _thresholds(found: Found) -> str:
    rows = []
    for threshold in (Threshold(**each) for each in found["thresholds"]):
        value, level = value_of(threshold, found["figures"]), level_of(threshold, found["figures"])
        limits = [written(threshold, limit, "never") for limit in (threshold.look, threshold.bad)]
        state = "not known" if value is None else f'<span class="level {level}">{LEVELS[level]}</span>'
        state = "for information" if threshold.look is threshold.bad is None else state
        rows.append([escape(threshold.meaning), written(threshold, value), *limits, state])
    heads = ["Figure", "Here", "Look here above", "Unhealthy above", "So"]
    return _card("What the verdict looks at", _table(heads, rows, (1, 2, 3)))


#: In page order.
SECTIONS: tuple[Callable[[Found], str], ...] = (
    *(_spool, _proof, _rate, _lag, _silences, _destinations, _quarantine, _malformed, _thresholds),
)
