"""Text for people: safe for terminals, cut to a width, with secrets masked."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompcodec.errors import SECRET_WORDS, may_be_secret

if TYPE_CHECKING:
    from rich.console import Console

#: Width in columns if the output is not a terminal.
_WIDTH = 120
#: To the end of the line, because a broken frame has no parsed headers.
_SECRET_LINE = re.compile(b"(?i)(%s)([^\n\0]*)" % "|".join(SECRET_WORDS).encode())
COMMAND_STYLES = {"MESSAGE": "cyan", "SEND": "green", "ERROR": "bold red", "CONNECTED": "magenta", "CONNECT": "magenta"}


def screen() -> Console:
    """Return a console for standard output, with colours only on a terminal, and no escape sequences with NO_COLOR."""
    from rich.console import Console

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # encoding errors must not end the program
    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(highlight=False, markup=False, emoji=False, color_system=None if plain else "auto")
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH
    return console


class StatusLine:
    """A line of progress on standard error, each `interval` seconds, if that is a terminal that can clear lines."""

    def __init__(self, shown: bool, interval: float = 0.0) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.live = shown and sys.stderr.isatty() and not plain
        self._interval = interval
        self._drawn = time.monotonic()
        self._visible = False

    def update(self, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if self.live and now - self._drawn >= self._interval:
            self._drawn, self._visible = now, True
            self._write(f"\r\x1b[K{text()}")

    def clear(self) -> None:
        if self._visible:
            self._visible = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal was closed, which must not end the work
            self.live = False


def pace_of(number: int, octets: int, since: float) -> str:
    """Return megabytes, seconds and the rate of a number of things since a time of `time.monotonic`."""
    seconds = max(time.monotonic() - since, 1e-6)
    return f"{octets / 1e6:,.1f} MB, {seconds:.0f} s, {number / seconds:,.0f}/s"


def printable(text: str, keep: str = "") -> str:
    """Return text with control characters escaped.

    >>> printable("a\\x1b[2Jb"), printable("a\\n\\x07", keep="\\n")
    ('a\\\\x1b[2Jb', 'a\\n\\\\x07')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def escape_json(text: str) -> str:
    """Return equivalent JSON with control characters escaped.

    >>> escape_json('{"a":"\\x9b2J caf\xe9 \u202e"}')
    '{"a":"\\\\u009b2J caf\xe9 \\\\u202e"}'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text).replace(
        "\x7f", "\\u007f"
    )


def write_json(line: bytes) -> None:
    """Write a line of JSON to standard output: unchanged to a file or pipe, escaped to a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(escape_json(line.decode().rstrip("\n")) + "\n")
    else:
        sys.stdout.buffer.write(line)


def header_value(name: str, value: str) -> str:
    return "***" if may_be_secret(name) else printable(value)


def mask_lines(octets: bytes) -> bytes:
    """Return bytes that are not a whole frame with possible secrets replaced by as many stars, each up to its line end.

    >>> mask_lines(b"CONNECT\\npasscode:hunter2\\n")
    b'CONNECT\\npasscode********\\n'
    """
    return _SECRET_LINE.sub(lambda found: found[1] + b"*" * len(found[2]), octets)


def cut(text: str, width: int) -> str:
    """Return text cut to a number of columns.

    >>> cut("/queue/orders", 8), cut("/queue/a", 8)
    ('/queue/…', '/queue/a')
    """
    if text.isascii():
        return text if len(text) <= width else text[: max(0, width - 1)] + "…"
    from rich.cells import cell_len, set_cell_size

    text = text[: width + 1]
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def pad(text: str, width: int) -> str:
    text = cut(text, width)
    if text.replace("…", "").isascii():
        return text.ljust(width)
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def hex_lines(data: bytes, start: int) -> list[str]:
    """Return bytes in the format of `hexdump -C`.

    >>> hex_lines(b"SEND\\n", 16)
    ['00000010  53 45 4e 44 0a                                    |SEND.|']
    """
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        octets = row[:8].hex(" ") + "  " + row[8:].hex(" ")
        letters = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in row)
        lines.append(f"{start + at:08x}  {octets:<48}  |{letters}|")
    return lines
