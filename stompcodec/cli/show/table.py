"""The table of `decode`: one line per frame, printed at once, so that no frames are kept."""

from __future__ import annotations

import re
import sys

from rich.console import Console
from rich.text import Text

from stompcodec import Frame
from stompcodec.cli.reader import FrameReader, Place
from stompcodec.cli.screen import COMMAND_STYLES, cut, header_value, pad, printable
from stompcodec.cli.show.view import View

_NAMES = ("OFFSET", "COMMAND", "DESTINATION", "HEADERS", "BODY", "BEGINS WITH")
#: Below this many columns, only the number of headers is shown.
_WIDE = 110
#: Headers with a column of their own, or of little interest.
SAYS_LITTLE = frozenset((
    "destination", "content-length", "content-type", "persistent", "priority", "transformation", "timestamp", "expires",
))  # fmt: skip
#: Characters that do not occur in text.
_CONTROL = re.compile(r"[^\t\r\n -\U0010ffff]")


class TableView(View):
    """Shows offset, command, destination, headers, size of the body, and its beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._frames = self._octets = 0
        width = console.width
        wide = width >= _WIDE
        rest = max(width - 10 - 11 - 10 - 5 * 2, 30)
        destination = min(rest * 34 // 100 if wide else rest // 2, 40)
        headers = rest * 3 // 10 if wide else 7
        self._widths = (10, 11, destination, headers, 10, max(rest - destination - headers, 1))
        self._wide = wide

    def title(self, file: str) -> None:
        """Print the head of a file's table."""
        self._frames = self._octets = 0
        if file:
            self._console.print(Text(f"==> {file} <==", "bold"), soft_wrap=True)
        self._console.print(Text(self._row(_NAMES), "bold"), soft_wrap=True)

    def show(self, found: list[Place], reader: FrameReader) -> None:
        """Print a line for each frame."""
        rows = [self._line(place) for place in found]
        self._frames += len(found)
        self._octets += sum(place.size for place in found)
        if self._console.color_system is None:  # much faster than the console
            sys.stdout.write("".join(rows))
            return
        lines = Text()
        for place, row in zip(found, rows):
            at = len(lines) + max(self._widths[0], len(str(place.start)))
            lines.append(row)
            lines.stylize("dim", at - self._widths[0], at)
            command = printable(place.frame.command)
            lines.stylize(COMMAND_STYLES.get(command, "yellow"), at + 2, at + 2 + len(command))
        self._console.print(lines, soft_wrap=True, end="")

    def _line(self, place: Place) -> str:
        cells = (
            str(place.start),
            printable(place.frame.command),
            printable(place.frame.get("destination", "-")[:200]),
            self._headers(place.frame),
            str(place.size),
            body_begin(place.begin, self._widths[-1]),
        )
        return self._row(cells) + "\n"

    def end(self, reader: FrameReader) -> None:
        """Print the last line of a file's table."""
        text = f"frames {self._frames}, bytes in bodies {self._octets}, heart-beats {reader.heartbeats}"
        self._console.print(Text(text, "dim"), soft_wrap=True)

    def _row(self, cells: tuple[str, ...]) -> str:
        offset, command, destination, headers, body, begin = self._widths
        line = (
            f"{cells[0]:>{offset}}  {pad(cells[1], command)}  {pad(cells[2], destination)}  "
            f"{pad(cells[3], headers)}  {cells[4]:>{body}}  {cut(cells[5], begin)}"
        )
        return line.rstrip()

    def _headers(self, frame: Frame) -> str:
        """Return the number of headers, and the first interesting ones."""
        pairs = frame.headers.pairs()
        if not self._wide:
            return f"{len(pairs):>7}"
        room = self._widths[3]
        short = f"{len(pairs):>2}"
        for name, value in pairs:
            if len(short) >= room:
                break
            if name not in SAYS_LITTLE:
                short += f" {printable(name[:room])}={header_value(name, value[:room])}"
        return short


def body_begin(data: bytes, width: int) -> str:
    """Return the beginning of a body on one line.

    >>> body_begin(b'{"a": 1}\\n', 20), body_begin(b"\\x1f\\x8b\\x08\\x00", 20), body_begin(b"\\x00\\xff", 20)
    ('{"a": 1}', 'gzip', '00 ff')
    """
    if data.startswith(b"\x1f\x8b"):
        return "gzip"
    data = data[: 4 * width]
    text = data.decode("utf-8", "ignore")
    # Up to three bytes of the last character may be cut off; more means that it is not text.
    if len(text.encode()) < len(data) - 3 or _CONTROL.search(text):
        return data[: width // 3 + 1].hex(" ")
    return printable(" ".join(text.split()))
