"""Numbers, sizes, durations and shares for people: one spelling for the command line and for reports."""

from __future__ import annotations

import math
from collections.abc import Sequence


def finite(value: object) -> float | None:
    """Return a number that can be shown; None for NaN, infinities, None, and anything that is not a number.

    >>> finite(3), finite(float("nan")), finite(10**400), finite("3")
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def count(value: object) -> str:
    """Return a number with thousands separators.

    >>> count(20000), count(None), count(1234.5), count(0.25)
    ('20,000', '–', '1,234', '0.25')
    """
    number = finite(value)
    if number is None:
        return "–"
    if abs(number) >= 1e15:
        return f"{number:.3g}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else significant(number)


def plural(number: object, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "frame"), plural(2, "frame")
    ('1 frame', '2 frames')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def compact(value: object) -> str:
    """Return a `count` short enough for an axis.

    >>> compact(500_000), compact(2_500_000), compact(8e11)
    ('500,000', '2.5 M', '800 G')
    """
    number = finite(value)
    if number is None or not 1e6 <= abs(number) < 1e15:
        return count(value)
    return _scaled(number / 1e6, 1000, ("M", "G", "T"))


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        if abs(number) < base - 0.5:
            return f"{significant(number)} {unit}"
        number /= base
    return f"{significant(number)} {units[-1]}"


def significant(number: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits.

    >>> significant(0.012345), significant(12.0), significant(99.96)
    ('0.0123', '12', '100')
    """
    if number == 0 or not math.isfinite(number):
        return "0" if number == 0 else "–"
    places = digits - 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, places)
    if abs(rounded) >= 1e15 or abs(rounded) < 1e-6:
        return f"{rounded:.{digits - 1}e}"
    text = f"{rounded:,.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def octets(value: object) -> str:
    """Return a size with a binary unit.

    >>> octets(512), octets(1536), octets(3 * 1024**3), octets(None)
    ('512 B', '1.5 KiB', '3 GiB', '–')
    """
    number = finite(value)
    return "–" if number is None else _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def duration(seconds: object) -> str:
    """Return a duration in its two largest units, or as a fraction of a second.

    >>> duration(4320), duration(0.0123), duration(59.99), duration(-3), duration(None), duration(2e-7)
    ('1 h 12 min', '12.3 ms', '1 min', '−3 s', '–', '0 s')
    """
    number = finite(seconds)
    if number is None:
        return "–"
    if number < 0:
        return "−" + duration(-number)
    if number < 5e-7:
        return "0 s"
    if number < 0.9995:
        return f"{significant(number * 1e3)} ms" if number >= 1e-3 else f"{significant(number * 1e6)} µs"
    if number < 10:
        return f"{significant(number)} s"
    if number >= 1e6 * 86400:
        return f"{number / 86400:.3g} d"
    for index, (size, name) in enumerate(_UNITS):
        smaller = _UNITS[index + 1] if index + 1 < len(_UNITS) else None
        step = smaller[0] if smaller else 1.0
        if round(number / step) * step >= size:
            whole, rest = divmod(round(number / step) * step, size)
            parts = f"{whole:,.0f} {name}"
            return f"{parts} {rest / smaller[0]:.0f} {smaller[1]}" if smaller and rest else parts
    return f"{number:.0f} s"


def share(part: object, whole: object) -> str:
    """Return a part of a whole as a percentage.

    >>> share(100, 20000), share(0, 5), share(1, 10**9), share(3, 0), share(999_999, 10**6)
    ('0.5 %', '0 %', '< 0.001 %', '–', '> 99.9 %')
    """
    a, b = finite(part), finite(whole)
    if a is None or not b:
        return "–"
    percent = 100 * a / b
    if 0 < percent < 0.001:
        return "< 0.001 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{significant(percent, 3 if percent >= 10 else 2)} %"
