"""Numbers as short texts for narrow columns, sparklines and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from stompcodec.cli.screen import printable

#: What stands for a number that the broker does not know.
UNKNOWN = "–"
_BLOCKS = "▁▂▃▄▅▆▇█"
_LARGE = 10_000_000
#: A text in a place for a number is cut to so many characters before it is escaped.
_LONGEST = 200


def number_of(value: Any) -> float | None:
    """Return a value as a finite number, or None.

    >>> number_of(5), number_of("5"), number_of(float("nan")), number_of(True)
    (5.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def text(value: Any) -> str:
    """Return a name or another text of the broker, made harmless for terminals.

    >>> text("/queue/\\x1b[2J"), text(None), text(True)
    ('/queue/\\\\x1b[2J', '–', 'yes')
    """
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value)[:_LONGEST])


def count(value: Any) -> str:
    """Return a number of things.

    >>> count(1234567), count(12345678), count(None)
    ('1,234,567', '12.3 M', '–')
    """
    number = number_of(value)
    if number is None:
        return UNKNOWN
    if abs(number) < _LARGE:
        return f"{number:,.0f}"
    for unit, factor in (("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if abs(number) < 1000 * factor:
            return f"{number / factor:,.1f} {unit}"
    return f"{number:.1e}"


def rate(value: Any) -> str:
    """Return a number per second.

    >>> rate(0.0), rate(2.54), rate(12345.6), rate(None)
    ('0', '2.5', '12,346', '–')
    """
    number = number_of(value)
    if number is not None and 0 < abs(number) < 10:
        return f"{number:.1f}"
    return count(number)


def size(value: Any) -> str:
    """Return a number of bytes.

    >>> size(100), size(2048), size(512 * 2**20)
    ('100 B', '2.0 KiB', '512 MiB')
    """
    number = number_of(value)
    if number is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024 or unit == "TiB":
            break
        number /= 1024
    digits = 1 if unit != "B" and abs(number) < 100 else 0
    return f"{number:,.{digits}f} {unit}"


def seconds(value: Any) -> str:
    """Return an age.

    >>> seconds(0.4), seconds(119), seconds(125), seconds(7200), seconds(3 * 86400)
    ('0 s', '119 s', '2 min', '120 min', '3.0 d')
    """
    number = number_of(value)
    if number is None:
        return UNKNOWN
    for unit, factor, least in (("d", 86400, 172800), ("h", 3600, 10800), ("min", 60, 120)):
        if number >= least:
            return f"{number / factor:,.{0 if unit == 'min' else 1}f} {unit}"
    return f"{number:.0f} s"


def milliseconds(value: Any) -> str:
    """Return a short time, given in seconds.

    >>> milliseconds(0.00123), milliseconds(0.5), milliseconds(None)
    ('1.2 ms', '500 ms', '–')
    """
    number = number_of(value)
    if number is None:
        return UNKNOWN
    return f"{number * 1000:,.1f} ms" if number < 0.1 else f"{number * 1000:,.0f} ms"


def sparkline(values: Iterable[float], width: int) -> str:
    """Return the last numbers as a row of blocks, the highest of them as a full one.

    >>> sparkline([0, 4, 8], 4), sparkline([0, 0], 2), sparkline([], 2)
    (' ▁▅█', '▁▁', '  ')
    """
    last = list(values)[-width:]
    most = max(last, default=0.0)
    blocks = "".join(_BLOCKS[round(max(value, 0.0) / most * 7) if most > 0 else 0] for value in last)
    return blocks.rjust(width)


def bar(used: Any, limit: Any, width: int) -> str:
    """Return a bar that is filled as far as the limit is used.

    >>> bar(50, 100, 4), bar(500, 100, 4), bar(None, 100, 4)
    ('██░░', '████', '░░░░')
    """
    number, most = number_of(used) or 0.0, number_of(limit) or 0.0
    full = round(min(1.0, max(0.0, number / most)) * width) if most > 0 else 0
    return "█" * full + "░" * (width - full)
