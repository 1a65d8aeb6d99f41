"""Frames and messages as text: tables, summaries, JSON, hexadecimal, for people, or by a template."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.dom import Node, minidom
from xml.parsers.expat import ExpatError

from rich import box
from rich.console import Console
from rich.highlighter import Highlighter, JSONHighlighter, ReprHighlighter
from rich.table import Table
from rich.text import Text

import stompcodec
from stompcodec import END_OF_BODY, HEARTBEAT, Frame, FrameError
from stompcodec.cli.inputs import FrameReader, Place, parsed
from stompcodec.cli.screen import COMMAND_STYLES, cut, header_value, hex_lines, pad, printable, screen, write_json
from stompcodec.content import decode_content, text_of
from stompcodec.errors import ContentError

if TYPE_CHECKING:
    from stompcodec.client import Message


class View:
    """An output format for frames."""

    #: True if `show` takes parser events, without positions.
    quick = False

    def title(self, file: str) -> None:
        """Begin a file. The name is "" if it is the only one."""

    def show(self, found: list[Any], reader: FrameReader) -> None:
        """Show the frames of one read."""

    def end(self, reader: FrameReader) -> None:
        """End a file."""

    def finish(self) -> None:
        """End the last file."""


def json_line(place: Place, file: str = "") -> bytes:
    """Return a frame as a line of JSON. Nothing is masked, so `encode --json` restores the frame.

    >>> from stompcodec import Frame
    >>> json_line(Place(Frame("ACK", {"id": "7"}), 0, 10, 11, None, b""))
    b'{"offset":0,"command":"ACK","headers":[["id","7"]],"body":""}\\n'
    """
    return json_of({"offset": place.start}, place.frame, {"file": file} if file else {})


def json_of(before: dict[str, Any], frame: Frame, after: dict[str, Any] | None = None) -> bytes:
    """Return a frame as a line of JSON, with other members before and after its own."""
    line = {**before, "command": frame.command, "headers": frame.headers.pairs()}
    try:
        line["body"] = frame.body.decode()
    except UnicodeDecodeError:
        line["body_b64"] = b64encode(frame.body).decode()
    line.update(after or {})
    try:
        return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates, from headers that are not UTF-8, must be escaped
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class JsonView(View):
    """Prints a line of JSON for each frame."""

    def title(self, file: str) -> None:
        self._file = file

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            write_json(json_line(place, self._file))


class HexView(View):
    """Prints all bytes of the frames with their offsets."""

    def title(self, file: str) -> None:
        if file:
            print(f"==> {file} <==")

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            print(f"{printable(place.frame.command)} at octet {place.start}, body at {place.body}, {place.size} bytes")
            print(*hex_lines(reader.octets(place.start, place.end), place.start), "", sep="\n")


_NAMES = ("OFFSET", "COMMAND", "DESTINATION", "HEADERS", "BODY", "BEGINS WITH")
#: Below this many columns, only the number of headers is shown.
_WIDE = 110
#: Headers with a column of their own, or of little interest.
_SAYS_LITTLE = frozenset((
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
        return f"{len(pairs):>2} {header_begin(frame, self._widths[3])}"


def header_begin(frame: Frame, width: int) -> str:
    """Return the first interesting headers on one line, at least `width` columns if there are so many."""
    short = ""
    for name, value in frame.headers.pairs():
        if len(short) >= width:
            break
        if name not in _SAYS_LITTLE:
            short += f"{printable(name[:width])}={header_value(name, value[:width])} "
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


#: Largest size to which a body is decompressed, in bytes.
_INFLATED = 16 * 2**20
#: Larger texts, in bytes, are not indented, and only their beginning is shown.
_INDENTED = 2**20
_SHOWN = 64 * 1024
_SHOWN_BINARY = 256
#: Maximum length of a header's value.
_VALUE = 2000
#: Deeper levels are indented like this one, which bounds the output.
_DEEPEST = 40
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+')
_HIGHLIGHTERS: dict[str, Highlighter] = {"json": JSONHighlighter(), "xml": ReprHighlighter()}


class Body(NamedTuple):
    """A body made readable."""

    notes: list[str]
    """What was done to it, and what failed."""
    form: str
    """"json", "xml", "text" or "binary"."""
    text: str


class PrettyView(View):
    """Shows one frame below the other."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, file: str) -> None:
        if file:
            self._console.print(Text(f"==> {file} <==\n", "bold"), soft_wrap=True)

    def show(self, found: list[Place], reader: FrameReader) -> None:
        for place in found:
            text = self._text(place)
            if self._console.color_system is None:  # much faster than the console
                sys.stdout.write(text.plain)
            else:
                self._console.print(text, soft_wrap=True, end="")

    def _text(self, place: Place) -> Text:
        frame = place.frame
        command = printable(frame.command)
        text = Text().append(command, COMMAND_STYLES.get(command, "yellow"))
        version = place.version or "1.2"
        line = f" at octet {place.start}: {place.size} bytes of body, read as {version} "
        text.append(line + "─" * max(0, self._console.width - len(command) - len(line)) + "\n", "dim")
        for name, value in frame.headers.pairs():
            text.append(printable(name), "bold").append(": ", "dim").append(
                cut(header_value(name, value), _VALUE) + "\n"
            )
        if place.size:
            notes, form, shown = body_of(frame)
            for note in notes:
                text.append(f"({note})\n", "dim italic")
            body = Text(f"\n{shown}\n")
            if self._console.color_system is not None and form in _HIGHLIGHTERS:
                _HIGHLIGHTERS[form].highlight(body)
            text.append_text(body)
        return text.append("\n")


def body_of(frame: Frame, most: int = _INFLATED) -> Body:
    """Return the body of a frame, made readable and inflated to at most `most` bytes. Never raises.

    >>> body_of(Frame("SEND", {}, b'{"a":[1,{}]}')).text
    '{\\n  "a": [\\n    1,\\n    {}\\n  ]\\n}'
    """
    notes: list[str] = []
    data = _inflated(frame, notes, most)
    try:
        if frame.get("content-type") is None:
            text = data.decode()
        else:
            text = text_of(Frame("MESSAGE", {"content-type": frame.headers["content-type"]}, data))
    except (UnicodeDecodeError, ContentError):
        text = data.decode("utf-8", "replace")
        if "\ufffd" in text or "\0" in text:
            more = f", {len(data) - _SHOWN_BINARY} more bytes" if len(data) > _SHOWN_BINARY else ""
            return Body([*notes, f"binary{more}"], "binary", "\n".join(hex_lines(data[:_SHOWN_BINARY], 0)))
    if len(data) > _INDENTED:
        notes.append(f"the first {_SHOWN} of {len(text)} characters")
        return Body(notes, "text", printable(text[:_SHOWN], keep="\n\t"))
    form, text = _indented(text)
    return Body(notes, form, printable(text.replace("\r\n", "\n"), keep="\n\t").rstrip("\n"))


def _inflated(frame: Frame, notes: list[str], most: int) -> bytes:
    coding = frame.get("content-encoding")
    packed = frame.body.startswith(b"\x1f\x8b")
    if coding is None and not packed:
        return frame.body
    try:
        data = decode_content(coding or "gzip", frame.body, most)
    except FrameError as error:
        reason = f"more than {most} bytes" if error.limit else error.detail
        notes.append(f"content-encoding {cut(printable(coding or 'gzip'), 40)}: not decoded: {reason}")
        return frame.body
    if len(data) != len(frame.body):
        notes.append(f"content-encoding {cut(printable(coding or 'gzip'), 40)}: decompressed to {len(data)} bytes")
    return data


def _indented(text: str) -> tuple[str, str]:
    """Return the form of a text, and the text, indented if it is JSON or XML."""
    begin = text.lstrip()[:1]
    try:
        if begin in ("{", "["):
            return "json", indent_json(text)
        if begin == "<":
            return "xml", indent_xml(text)
    except (ValueError, RecursionError, ExpatError):
        pass
    return "text", text


def indent_json(text: str) -> str:
    """Return JSON with a line for each item. Only white space changes: numbers, escapes and repeated keys are kept.

    Raises ValueError if it is not JSON, or RecursionError.

    >>> print(indent_json('{"a":1.10}'))
    {
      "a": 1.10
    }
    """
    json.loads(text, parse_int=str, parse_float=str)
    parts: list[str] = []
    depth, before = 0, ""
    for token in _JSON_TOKEN.findall(text):
        closes, after_open = token in "]}", before in ("[", "{")
        depth -= closes
        if before == "," or closes != after_open:  # no line break in an empty array or object
            parts.append("\n" + "  " * min(depth, _DEEPEST))
        parts.append(": " if token == ":" else token)
        depth += token in "[{"
        before = token
    return "".join(parts)


def indent_xml(text: str) -> str:
    """Return XML with a line for each element; raise if it is not XML, has a document type, or is nested too deeply."""
    if "<!DOCTYPE" in text:
        raise ValueError("a document type may hold entities that grow without bound")
    document = minidom.parseString(text)
    _strip(document)
    return document.toprettyxml(indent="  ")


def _strip(node: Any) -> None:
    """Remove white space between elements."""
    for child in list(node.childNodes):
        if child.nodeType == Node.TEXT_NODE and not child.data.strip() and len(node.childNodes) > 1:
            node.removeChild(child)
        else:
            _strip(child)


#: Sizes are exact up to this many different ones; then they are rounded down to 8 bits, by less than 1 %.
_EXACT = 4096
#: Further destinations are counted together.
_MOST_GROUPS = 500
#: Rows of the table; the others are summed up in one row.
_MOST_ROWS = 40


class Sizes:
    """A distribution of sizes.

    >>> sizes = Sizes()
    >>> for size in (5, 1, 9):
    ...     sizes.add(size)
    >>> sizes.smallest, sizes.percentile(50), sizes.percentile(99), sizes.largest, sizes.total
    (1, 5, 9, 9, 15)
    """

    def __init__(self) -> None:
        self.total = self.number = self.largest = 0
        self.smallest = 2**63
        self._counts: Counter[int] = Counter()
        self._exact = True

    def add(self, size: int, number: int = 1) -> None:
        self.total += size * number
        self.number += number
        self.smallest = min(self.smallest, size)
        self.largest = max(self.largest, size)
        self._counts[size if self._exact else _rounded(size)] += number
        if self._exact and len(self._counts) > _EXACT:
            self._exact = False
            exact, self._counts = self._counts, Counter()
            for size, number in exact.items():
                self._counts[_rounded(size)] += number

    def merge(self, other: Sizes) -> None:
        """Add all sizes of another distribution."""
        total, smallest, largest = self.total + other.total, other.smallest, other.largest
        for size, number in other._counts.items():
            self.add(size, number)
        self.total = total
        self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)

    def percentile(self, percent: int) -> int:
        """Return the smallest size that is at least as large as this percentage of all sizes."""
        sizes = sorted(self._counts)
        for size, upto in zip(sizes, accumulate(self._counts[size] for size in sizes)):
            if upto * 100 >= self.number * percent:
                return size
        return 0


def _rounded(size: int) -> int:
    shift = max(size.bit_length() - 8, 0)
    return size >> shift << shift


class SummaryView(View):
    """Sums up one or more streams."""

    quick = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._octets = self._heartbeats = 0
        self._seconds = 0.0
        self._groups: dict[tuple[str, str], Sizes] = {}
        self._streamed: tuple[Frame, int] | None = None

    def show(self, found: list[Any], reader: FrameReader) -> None:
        """Count places or parser events."""
        for event in found:
            if isinstance(event, Frame):
                body: bytes | None = event.body
                if body is None:
                    self._streamed = event, 0
                else:
                    self._count(event, len(body))
            elif isinstance(event, Place):
                self._count(event.frame, event.size)
            elif event is HEARTBEAT:
                self._heartbeats += 1
            elif self._streamed is not None:
                frame, size = self._streamed
                if event is END_OF_BODY:
                    self._count(frame, size)
                else:
                    self._streamed = frame, size + len(event)

    def end(self, reader: FrameReader) -> None:
        self._octets += reader.fed
        self._heartbeats += reader.heartbeats
        self._seconds += reader.seconds

    def finish(self) -> None:
        everything = Sizes()
        for sizes in self._groups.values():
            everything.merge(sizes)
        console = self._console
        console.print(self._table(everything, console.width))
        console.print(f"bytes {self._octets:,}, frames {everything.number:,}, heart-beats {self._heartbeats:,}")
        seconds = max(self._seconds, 1e-9)
        rate = f"{self._octets / seconds / 1e6:,.1f} MB/s, {everything.number / seconds:,.0f} frames/s"
        line = Text(f"decoded in {self._seconds:.4f} s: ").append(rate, "bold green")
        console.print(line.append(f" (the parser alone, backend {stompcodec.BACKEND})"), soft_wrap=True)

    def _count(self, frame: Frame, size: int) -> None:
        key = frame.command, frame.get("destination", "-")
        sizes = self._groups.get(key)
        if sizes is None:
            if len(self._groups) >= _MOST_GROUPS:
                key = "…", "(others)"
            sizes = self._groups.setdefault(key, Sizes())
        sizes.add(size)

    def _table(self, everything: Sizes, width: int) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_footer=False, pad_edge=False, width=min(width, 120))
        table.add_column("command", no_wrap=True, overflow="ellipsis", max_width=20)
        table.add_column("destination", no_wrap=True, overflow="ellipsis", ratio=1)
        for name in ("frames", "bytes in bodies", "min", "p50", "p99", "max"):
            table.add_column(name, justify="right", no_wrap=True)
        rows = sorted(self._groups.items(), key=lambda row: (-row[1].number, row[0]))
        for (command, destination), sizes in rows[:_MOST_ROWS]:
            table.add_row(printable(command[:40]), Text(printable(destination[:width])), *_figures(sizes))
        if rows[_MOST_ROWS:]:
            rest = Sizes()
            for _key, sizes in rows[_MOST_ROWS:]:
                rest.merge(sizes)
            table.add_row("…", f"({len(rows) - _MOST_ROWS} more)", *_figures(rest))
        table.add_section()
        table.add_row("all", "", *_figures(everything), style="bold")
        return table


def _figures(sizes: Sizes) -> list[str]:
    if not sizes.number:
        return ["0"] * 6
    spread = sizes.smallest, sizes.percentile(50), sizes.percentile(99), sizes.largest
    return [f"{figure:,}" for figure in (sizes.number, sizes.total, *spread)]


_BRACE = re.compile(r"(\{\{|\}\})|\{([^{}]*)\}|([{}])|\\(.)", re.DOTALL)
_HEADER = re.compile(r"headers\[([^\[\]]+)\]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
Part = Callable[["Message", int], bytes]


def _text(field: Callable[[Message, int], str]) -> Part:
    return lambda message, number: field(message, number).encode("utf-8", "surrogateescape")


#: The fields by name.
_FIELDS: dict[str, Part] = {
    "body": lambda message, _number: message.body,
    "destination": _text(lambda message, _number: message.destination),
    "id": _text(lambda message, _number: message.id),
    "size": _text(lambda message, _number: str(len(message.body))),
    "number": _text(lambda _message, number: str(number)),
    "time": _text(lambda _message, _number: time.strftime("%Y-%m-%dT%H:%M:%S%z")),
    "headers": _text(lambda message, _number: " ".join(f"{k}:{v}" for k, v in message.headers.pairs())),
}
FIELDS = ", ".join([*(f"{{{name}}}" for name in _FIELDS), "{headers[NAME]}"])


class Template:
    """A parsed format.

    >>> from stompcodec.client.messages import Subscription
    >>> from types import SimpleNamespace as Fake
    >>> frame = Fake(pairs=lambda: [("n", "1")])
    >>> Template("{body} is {number}\\\\n").render(Fake(body=b"red"), 7)
    b'red is 7\\n'

    Raises:
        ValueError: it names an unknown field. The message lists those that exist.
    """

    def __init__(self, form: str) -> None:
        self._parts: list[Part] = []
        at = 0
        for found in _BRACE.finditer(form):
            self._literal(form[at : found.start()])
            at = found.end()
            self._parts.append(_part(found))
        self._literal(form[at:])

    def _literal(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        if data:
            self._parts.append(lambda _message, _number: data)

    def render(self, message: Message, number: int) -> bytes:
        """Return a message in this format. `number` counts messages from 1 on."""
        return b"".join([part(message, number) for part in self._parts])


def _part(found: re.Match[str]) -> Part:
    doubled, name, single, escape = found.groups()
    if doubled is not None or escape in _ESCAPES:
        text = (doubled[0] if doubled else _ESCAPES[escape]).encode()
        return lambda _message, _number: text
    if name in _FIELDS:
        return _FIELDS[name]
    header = None if name is None else _HEADER.fullmatch(name)
    if header is not None:
        key = header[1]
        return _text(lambda message, _number: message.get(key) or "")
    if single is not None:
        raise ValueError(f"a single {single}: write {single}{single} for itself")
    raise ValueError(f"{found.group()} is unknown: use {FIELDS}, {{{{ }}}} for braces, \\n \\t \\0")


@parsed
def template_of(form: str | None) -> Template | None:
    """Parse a format."""
    return None if form is None else Template(form)


class CommandError(Exception):
    """A command has failed for a message, and may be run again."""


#: A handler of messages, called with a message and its number. It returns when it is done, or raises CommandError.
Handler = Callable[["Message", int], object]


def message_line(message: Message) -> bytes:
    """Return a message as a line of JSON, which `pub --json` and `encode --json` accept."""
    return json_of({}, message.frame)


def _write(data: bytes) -> None:
    """Write to standard output, with control characters escaped on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(data.decode("utf-8", "replace"), keep="\n\t"))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _show_json(message: Message, number: int) -> None:
    write_json(message_line(message))
    sys.stdout.flush()


def run_command(shell_command: str, message: Message, number: int, output: int | None = None) -> bytes:
    """Run a command for a message, which is its input. Return its output; raise CommandError if it fails."""
    environment = {
        **os.environ,
        "STOMP_DESTINATION": message.destination,
        "STOMP_MESSAGE_ID": message.id,
        "STOMP_NUMBER": str(number),
        "STOMP_HEADERS": json.dumps(message.headers.pairs()),
    }
    sys.stdout.flush()
    try:
        done = subprocess.run(
            shell_command, shell=True, input=message.body, stdout=output, env=environment, check=False
        )
    except OSError as error:  # the pipe, or too many headers for an environment
        raise CommandError(f"message {printable(message.id)}: cannot run the command: {error.strerror}") from error
    if done.returncode:
        raise CommandError(f"message {printable(message.id)}: the command ended with status {done.returncode}")
    return done.stdout or b""


def _show_pretty(message: Message, number: int) -> None:
    console = screen()
    text = Text().append(f"{number} ", "dim").append(printable(message.destination), COMMAND_STYLES["MESSAGE"])
    text.append(f", {len(message.body)} bytes\n", "dim")
    for name, value in message.headers.pairs():
        text.append(printable(name), "bold").append(": ", "dim").append(header_value(name, value) + "\n")
    notes, _form, shown = body_of(message.frame)
    for note in notes:
        text.append(f"({note})\n", "dim italic")
    console.print(text.append(f"\n{shown}\n"), soft_wrap=True)
    sys.stdout.flush()


def handler(form: Template, view: str | None, shell_command: str | None) -> Handler:
    handlers: list[Handler] = []
    if shell_command is not None:
        handlers.append(partial(run_command, shell_command))
    if view is not None or not handlers:
        views: dict[str, Handler] = {"json": _show_json, "pretty": _show_pretty}
        handlers.append(views.get(view or "", lambda message, number: _write(form.render(message, number))))

    at = (0, 0)  # a number, and the index of its handler: what precedes that is not repeated

    def handle(message: Message, number: int) -> None:
        nonlocal at
        first = at[1] if at[0] == number else 0
        for index, each in enumerate(handlers[first:], first):
            at = (number, index)
            each(message, number)

    return handle
