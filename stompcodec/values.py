"""Values as people write them: sizes, durations, counts and booleans. The one spelling in broker.toml, on the command
line, in URIs and in the options of Spark.

| kind | written | also |
| --- | --- | --- |
| size | 64KiB, 128MiB, 1GiB | 128MB, 128M, 128m, 128 MiB: all of them count in 1024; a bare number is bytes |
| duration | 500ms, 30s, 5m, 2h, 1d | 5min, 10 seconds, 1 hour; a bare number is seconds |
| count | 10000, 10k, 2m | k is a thousand, m a million |
| boolean | true, false | True, FALSE |
"""

from __future__ import annotations

import math
import re
from typing import Any

SIZE = 'a size in bytes, such as 512, "64KiB" or "128MiB"'
DURATION = 'a time such as "500ms", "30s", "5m" or "2h"; a bare number is seconds'
COUNT = 'a whole number such as 10000, "10k" or "2m"'
BOOLEAN = "true or false"
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_THOUSANDS = {"": 1, "k": 1000, "m": 1_000_000}
#: Seconds of a unit of time.
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WORDS = {
    **dict.fromkeys(("milliseconds", "millisecond", "millis"), "ms"),
    **dict.fromkeys(("seconds", "second", "secs", "sec"), "s"),
    **dict.fromkeys(("minutes", "minute", "mins", "min"), "m"),
    **dict.fromkeys(("hours", "hour"), "h"),
    **dict.fromkeys(("days", "day"), "d"),
}
_SIZE = re.compile(r"([0-9]{1,19}) ?(?:([kmgt]?)b?|([kmgt])ib)", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,18})?) ?([a-z]*)", re.IGNORECASE | re.ASCII)
_COUNT = re.compile(r"([0-9]{1,15}) ?([km]?)", re.IGNORECASE | re.ASCII)


def size(value: Any) -> int:
    """Return the bytes that a size stands for. Raises ValueError if it is none.

    >>> [size(text) for text in ("128MiB", "128MB", "128M", "128m", "128 MiB", 134217728)] == [2**27] * 6
    True
    """
    if type(value) is int and value >= 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"it must be {SIZE}")
    return int(found[1]) * _BYTES[(found[2] or found[3] or "").lower()]


def duration(value: Any) -> float:
    """Return the seconds that a time stands for. Raises ValueError if it is none.

    >>> [duration(text) for text in ("500ms", "30s", "5m", "5 min", "2 hours", "1d", "0.5", 3)]
    [0.5, 30.0, 300.0, 300.0, 7200.0, 86400.0, 0.5, 3.0]
    """
    if type(value) in (int, float) and 0 <= value < math.inf:
        return float(value)
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = "" if found is None else found[2].lower()
    seconds = _SECONDS.get(_WORDS.get(unit, unit))
    if found is None or seconds is None:
        raise ValueError(f"it must be {DURATION}")
    return float(found[1]) * seconds if seconds >= 1 else float(found[1]) / round(1 / seconds)


def count(value: Any) -> int:
    """Return the number that a count stands for. Raises ValueError if it is none.

    >>> count("10k"), count("2m"), count(7)
    (10000, 2000000, 7)
    """
    if type(value) is int and value >= 0:
        return value
    found = _COUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"it must be {COUNT}")
    return int(found[1]) * _THOUSANDS[found[2].lower()]


def boolean(value: Any) -> bool:
    """Return a boolean. Raises ValueError if it is none.

    >>> boolean("true"), boolean("False"), boolean(True)
    (True, False, True)
    """
    if isinstance(value, bool):
        return value
    found = {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"it must be {BOOLEAN}")
    return found


def shown_size(octets: int) -> str:
    """Return the shortest spelling of a size that is exact.

    >>> shown_size(2**27), shown_size(65536), shown_size(1000)
    ('128MiB', '64KiB', '1000')
    """
    for unit in "TGMK":
        if octets and octets % _BYTES[unit.lower()] == 0:
            return f"{octets // _BYTES[unit.lower()]}{unit}iB"
    return str(octets)


def shown_duration(seconds: float) -> str:
    """Return the shortest spelling of a time, to the millisecond.

    >>> shown_duration(300), shown_duration(0.25), shown_duration(90)
    ('5m', '250ms', '90s')
    """
    millis = round(seconds * 1000)
    for unit, many in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if millis and millis % many == 0:
            return f"{millis // many}{unit}"
    return f"{millis}ms" if millis else "0s"
