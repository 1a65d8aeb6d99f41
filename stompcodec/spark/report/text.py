"""Texts and times of a report. Pure functions: no text from a feed leaves them as markup."""

from __future__ import annotations

import html
import unicodedata
from datetime import datetime, timedelta, timezone

from stompcodec.shown import finite

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def visible(value: object, most: int = 120) -> str:
    """Return text from a feed as one line of at most `most` characters.

    Control and invisible characters become pictures or escapes; longer text ends in an ellipsis. Bytes are decoded as
    UTF-8, invalid ones become \\xNN.

    >>> visible("a\\nb\\u202e\\x00"), visible(b"\\xffok"), visible("abcdef", 4)
    ('a␊b\\\\u202e␀', '\\\\xffok', 'abc…')
    """
    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        # a cut inside a character would show as escapes, so leave room and cut again below
        text = bytes(value[: 4 * most + 4]).decode("utf-8", "backslashreplace")
    else:
        text = str(value)[: most + 1]
    shown = "".join(map(_shown, text[: most + 1]))
    return shown if len(text) <= most and len(shown) <= 6 * most else shown[: most - 1] + "…"


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if character != " " and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return character


def escape(value: object, most: int = 120) -> str:
    """Return `visible` text, escaped for HTML and XML text and attributes.

    >>> escape('<b onclick="x">&')
    '&lt;b onclick=&quot;x&quot;&gt;&amp;'
    """
    return html.escape(visible(value, most), quote=True)


def moment(micros: object, spec: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in µs since 1970 as UTC; "–" if it is None or outside the calendar.

    >>> moment(1_700_000_000_000_000), moment(None), moment(10**30)
    ('2023-11-14 22:13:20', '–', '–')
    """
    number = finite(micros)
    if number is None:
        return "–"
    try:
        at = _EPOCH + timedelta(microseconds=number)
    except OverflowError:
        return "–"
    # strftime of some C libraries does not pad years before 1000
    return at.strftime(spec.replace("%Y", f"{at.year:04d}"))
