"""stompcodec inspect: show frames byte by byte, on the terminal or as a self-contained page.

An entry is a frame with the positions of its parts and the findings of `lint`, or a broken frame.

No content of a frame can break out of the page: it is embedded as JSON with `<` escaped, and the script inserts it as
text, never as markup. The page's policy allows only that script, by its hash.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from stompcodec.cli import inputs
from stompcodec.cli.files import Supply, capture_of, format_of, streams_of
from stompcodec.cli.linting import STYLES, Conversation, Finding, Subject, check_frame, finding_of, subject_of, title_of
from stompcodec.cli.packets import Dissection, Seen, is_packets, packets
from stompcodec.cli.screen import (
    COMMAND_STYLES,
    cut,
    header_value,
    hex_lines,
    mask_lines,
    pad,
    printable,
    screen,
    write_json,
)
from stompcodec.cli.show import Body, body_of
from stompcodec.errors import ERROR_KINDS, StompError

_READ = 256 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Largest size to which a body is decompressed, in bytes.
_INFLATED = 2**20
#: Characters of a header's value.
_VALUE = 2000
#: Bytes of a head and of a body on the terminal.
_HEAD, _BODY = 4096, 512
#: Entries of the list before and after the chosen one.
_AROUND = 6
_PARTS = {"command": "bold magenta", "body": "green", "end": "dim", "fault": "bold red reverse", "skipped": "red"}
_HEADERS = ("cyan", "bright_blue")
_ROW_OCTETS = 16
#: Maximum number of entries, and of bytes, in a page; and bytes reserved in it for its numbers.
_MOST, _PAGE, _SPARE = 2000, 2_000_000, 100
#: Bytes of a head in the page. Headers that begin after them are only counted.
_PAGE_HEAD = 16 * 1024
#: Bytes of a body, and of one when space is short.
_PAGE_BODY, _LEAN = 4096, 256
#: Findings per frame of the page.
_MARKS = 50
_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; \
script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="stompcodec">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1><p id="about"></p>
<input id="filter" type="search" placeholder="Filter: command, destination, header" aria-label="Filter" \
autocomplete="off" spellcheck="false">
<p class="keys"><kbd>↑</kbd> <kbd>↓</kbd> move, <kbd>/</kbd> filter, <kbd>Esc</kbd> back</p>
</header>
<main>
<section id="list" tabindex="0" aria-label="Frames"></section>
<section id="parts" aria-label="Headers"></section>
<section id="octets" aria-label="Bytes"></section>
<section id="body" aria-label="Body"></section>
</main>
<script type="application/json" id="book">{book}</script>
<script>{script}</script>
</body>
</html>
"""


class Part(NamedTuple):
    """A part of a frame. Offsets are bytes from the start of the stream."""

    kind: str
    """"command", "header", "skipped" (an ignored line), "body", "end" (the NUL), or "fault"."""
    name: str
    """The header's name, unescaped; otherwise the kind."""
    start: int
    end: int
    """The offset after it. A header does not include the end of its line."""
    value_at: int = 0
    """The offset of a header's value."""
    value: str = ""
    """The header's value, unescaped and not masked."""

    @property
    def secret(self) -> bool:
        return self.kind == "header" and header_value(self.name, "") != ""


class Entry(NamedTuple):
    """A frame or broken frame as an entry of the list."""

    number: int
    """Counted from 1."""
    seen: Seen
    parts: list[Part]
    marks: list[Finding]

    @property
    def fault(self) -> inputs.Broken | None:
        return self.seen.found if isinstance(self.seen.found, inputs.Broken) else None

    @property
    def place(self) -> inputs.Place | None:
        return self.seen.found if isinstance(self.seen.found, inputs.Place) else None

    @property
    def command(self) -> str:
        """The command, or the kind of error, safe to print."""
        found = self.seen.found
        return printable(found.frame.command) if isinstance(found, inputs.Place) else found.error.kind

    @property
    def time(self) -> str:
        micros = self.seen.time
        try:
            return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S.%f") if micros else ""
        except OverflowError:
            return f"{micros} us"

    @property
    def is_message(self) -> bool:
        return self.place is not None and self.place.frame.command == "MESSAGE"

    @property
    def destination(self) -> str:
        found = self.seen.found
        return printable((found.frame.get("destination") or "")[:400]) if isinstance(found, inputs.Place) else ""

    def part_of(self, mark: Finding) -> int | None:
        for index, part in enumerate(self.parts):
            if part.kind != "command" and part.start <= mark.offset < max(part.end, part.start + 1):
                return index
        return None

    def fault_text(self) -> tuple[str, str]:
        assert self.fault is not None
        return ERROR_KINDS[self.fault.error.kind].what, inputs.remedy_of(self.fault.error)


def parts_of(subject: Subject, octets: bytes) -> list[Part]:
    """Return the parts of a frame with their positions.

    >>> from stompcodec import Frame
    >>> place = inputs.Place(Frame("ACK", {"id": "7"}), 3, 13, 14, "1.2", b"")
    >>> octets = b"ACK\\nid:7\\n\\n\\0"
    >>> [(part.name, part.start, part.end) for part in parts_of(subject_of(place, octets[:10], None, 0), octets)]
    [('command', 3, 6), ('id', 7, 11), ('end', 13, 14)]
    """
    place, start = subject.place, subject.place.start
    parts = [Part("command", "command", start, start + len(subject.command_line.rstrip(b"\r")))]
    pairs = deque(place.frame.headers.pairs())
    for line in subject.lines:
        colon = octets[line.at - start + len(line.name) :][:1] == b":"
        # If spaces around a name are stripped, a name of spaces is ignored; otherwise it is a name.
        named = line.name.strip(b" ") or (line.name and pairs and not pairs[0][0].strip(" "))
        if colon and named and pairs:
            name, value = pairs.popleft()
            # In lenient mode, a CR belongs to the line end in every version.
            size = len(line.value) - (line.value.endswith(b"\r") and not value.endswith("\r"))
            parts.append(Part("header", name, line.at, line.value_at + size, line.value_at, value))
        elif octets.find(b"\n", line.at - start) != place.body - start - 1:  # the blank line may contain spaces or a CR
            parts.append(Part("skipped", "skipped", line.at, line.at + len(line.name) + colon + len(line.value)))
    if place.size:
        parts.append(Part("body", "body", place.body, place.end - 1))
    return [*parts, Part("end", "end", place.end - 1, place.end)]


def masked(entry: Entry) -> bytes:
    """Return the bytes of an entry with secrets replaced by stars of the same length, which keeps all offsets."""
    data, base = bytearray(entry.seen.octets), entry.seen.found.start
    if entry.fault is not None:
        return mask_lines(bytes(data))
    for part in entry.parts:
        start, end = part.start - base, part.end - base
        if part.secret:
            start = part.value_at - base
            data[start:end] = b"*" * (end - start)
        elif part.kind == "skipped":
            data[start:end] = mask_lines(bytes(data[start:end]))
    return bytes(data)


def shown_runs(octets: bytes, entry: Entry, head: int, most: int) -> list[tuple[int, int]]:
    """Return which bytes of an entry are shown: `head` of its head, and `most` of its body; with the NUL if all."""
    body = len(octets) if entry.place is None else entry.place.body - entry.seen.found.start
    end = body + most
    end = len(octets) if end >= len(octets) - 1 else end
    runs = [(0, end)] if body <= head else [(0, head), (body, end)]
    return [(start, stop) for start, stop in runs if start < stop]


def shown_body(place: inputs.Place, most: int) -> Body:
    """Return the body of a frame made readable: twice as many characters as `most`, the bytes that are shown."""
    notes, form, text = body_of(place.frame, _INFLATED)
    if len(text) > 2 * most:
        notes = [*notes, f"the first {2 * most} of {len(text)} characters"]
    return Body(notes, form, text[: 2 * most])


class Inspection:
    """The entries of a file ("-": standard input)."""

    def __init__(self, file: str, say: Callable[[str], object], options: dict[str, Any]) -> None:
        self.name = inputs.name_of(file)
        self.problems = 0  #: problems reported
        self.left = 0  #: entries left out
        self.count = 0  #: entries found
        self.full = False  #: set it to leave out all further entries
        self._file = file
        self._form = format_of(file, reading=True)
        self._say = say
        self._options = options
        self._judged_as = None if options["version"] == "auto" or self._form == "capture" else options["version"]
        self._conversations: dict[str, Conversation] = {}
        if self._form not in ("raw", "capture", "pcapng"):
            raise click.UsageError(f"{self._form} has no frames in their original bytes: convert it first")

    def entries(self, most: int | None = None) -> Iterator[Entry]:
        """Yield at most `most` entries in order, and count the others. After reported problems some may be missing."""
        try:
            for seen in self._seen():
                self.count += 1
                self.full = self.full or (most is not None and self.count > most)
                if self.full:
                    self.left += 1
                else:
                    yield self._entry(seen)
        except inputs.Unreadable as error:
            self._problem(f"cannot be read: {error}")
        except StompError as error:
            self._problem(str(error))

    def _entry(self, seen: Seen) -> Entry:
        found = seen.found
        if isinstance(found, inputs.Broken):
            at = found.error.offset or 0
            # without resync, the finding must not claim that no later frame was found
            mark = finding_of(found if self._options.get("resync") else found._replace(resumed=found.start))
            return Entry(self.count, seen, [Part("fault", "fault", at, at + 1)], [mark])
        head = seen.octets[: found.body - found.start]
        subject = subject_of(found, head, self._judged_as, self._options["limits"].max_body)
        conversation = self._conversations.setdefault(seen.flow, Conversation())
        marks = [*check_frame(subject), *conversation.check(subject)]
        return Entry(self.count, seen, parts_of(subject, seen.octets), marks)

    def _problem(self, text: str) -> None:
        self.problems += 1
        self._say(text if text.startswith(self.name) else f"{self.name}: {text}")

    def _seen(self) -> Iterator[Seen]:
        if self._form == "capture":
            yield from self._capture()
            return
        with inputs.opened(self._file) as read:
            supply = _Peekable(read)
            if self._form == "pcapng" or is_packets(supply.peek()):
                options = {name: value for name, value in self._options.items() if name != "resync"}
                yield from Dissection(self._problem, **options).seen(packets(supply.read, self._problem))
            else:
                yield from self._frames(inputs.FrameReader(supply.read, **self._options))

    def _frames(self, reader: inputs.FrameReader, supply: Supply | None = None, flow: str = "") -> Iterator[Seen]:
        for found in reader.places():
            time = supply.time if supply else 0
            if isinstance(found, inputs.Broken):
                self._problem(inputs.complaint(self.name, found, reader.begin, bool(self._options.get("resync"))))
                yield Seen(time, flow, found, found.head)
                continue
            for place in found:
                yield Seen(time, flow, place, reader.octets(place.start, place.end))

    def _capture(self) -> Iterator[Seen]:
        capture = capture_of(self._file, self._problem)
        several = len(capture.chains()) > 1
        for chain, supply, reader in streams_of(capture, self._options):
            yield from self._frames(reader, supply, chain if several else "")


class _Peekable:
    """A source of bytes whose beginning can be peeked at."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = b""

    def peek(self) -> bytes:
        self._held = self._held or self._read(_READ)
        return self._held

    def read(self, size: int) -> bytes:
        if not self._held:
            return self._read(size)
        data, self._held = self._held[:size], self._held[size:]
        return data


class Book:
    """The entries of a page, limited to `room` bytes. Bodies of later entries are cut before entries are left out."""

    def __init__(self, secrets: bool, room: int) -> None:
        self._secrets, self._room = secrets, room
        self._kept = room // 4  # reserved for whole bodies if some do not fit
        self._cut = False
        self._lean: list[str] = []
        self._whole: list[str] = []  # "" if equal to the lean entry, or if there is no space left
        self._held = 0  # bytes of whole entries, to limit memory
        self._rules: dict[str, str] = {}
        self._first = (-1, 0)  # score and index of the entry to open first

    def __len__(self) -> int:
        return len(self._lean)

    def add(self, entry: Entry) -> bool:
        """Add an entry, and return whether there was space for it. The first one is always added."""
        lean = script_text(entry_data(entry, _LEAN, self._secrets))
        whole = ""
        if entry.place is not None and entry.place.size > _LEAN:
            whole = script_text(entry_data(entry, _PAGE_BODY, self._secrets))
        new = {mark.rule: title_of(mark.rule) for mark in entry.marks if mark.rule not in self._rules}
        size = len(lean) + 1 + len(script_text(new))
        self._cut = self._cut or bool(whole)
        if size > self._room - self._kept * self._cut and self._lean:
            return False
        self._room -= size
        self._held += len(whole)
        self._rules.update(new)
        self._lean.append(lean)
        best = max(self._first, (interest(entry), len(self._lean) - 1), key=lambda choice: choice[0])
        self._whole.append(whole if self._held < self._room or best != self._first else "")
        self._first = best
        return True

    def text(self, left: int) -> str:
        entries, room = list(self._lean), self._room
        for index in (self._first[1], *range(len(entries))):  # the entry that is opened comes first
            more = len(self._whole[index]) - len(entries[index]) if self._whole else 0
            if 0 < more <= room:
                entries[index] = self._whole[index]
                room -= more
        about = f'"left":{left:d},"first":{self._first[1]:d},"rules":{script_text(self._rules)}'
        return f'{{{about},"entries":[{",".join(entries)}]}}'


def interest(entry: Entry) -> int:
    return 2 if entry.is_message else int(entry.place is not None and entry.place.size > 0)


def page_of(name: str, book: str) -> str:
    style, script = _asset("inspect.css"), _asset("inspect.js")
    return _TEMPLATE.format(
        title=escape(cut(printable(name), 200)),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        book=book,
    )


@cache
def _asset(name: str) -> str:
    return files("stompcodec.cli").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def script_text(data: Any) -> str:
    """Return JSON that is safe inside an HTML element: ASCII, without markup.

    >>> script_text("</script>&\\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u0026\\\\u2028"'
    """
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def entry_data(entry: Entry, most: int, secrets: bool) -> dict[str, Any]:
    """Return an entry as the page shows it, with `most` bytes of its body. Offsets of its parts are relative to it."""
    found = entry.seen.found
    octets = entry.seen.octets if secrets else masked(entry)
    shown = [part for part in entry.parts if part.start - found.start < _PAGE_HEAD or part.kind in ("body", "end")]
    data: dict[str, Any] = {
        "n": entry.number,
        "at": found.start,
        "time": entry.time,
        "flow": entry.seen.flow,
        "command": cut(entry.command, 80),
        "destination": entry.destination,
        "version": found.version or "1.2",
        "size": None if entry.place is None else entry.place.size,
        "parts": [_part(part, found.start, octets, secrets) for part in shown],
        "more": len(entry.parts) - len(shown),
        "runs": [(at, b64encode(octets[at:end]).decode()) for at, end in shown_runs(octets, entry, _PAGE_HEAD, most)],
        "length": None if entry.place is None else entry.place.end - found.start,
        "marks": _marks(entry, shown),
    }
    if entry.fault is not None:
        what, remedy = entry.fault_text()
        data["fault"] = {"at": entry.fault.error.offset, "what": what, "remedy": remedy, "on": entry.fault.resumed}
    if entry.place is not None and entry.place.size:
        data["body"] = shown_body(entry.place, most)._asdict()
    return data


def _part(part: Part, base: int, octets: bytes, secrets: bool) -> dict[str, Any]:
    start, end = part.start - base, part.end - base
    data: dict[str, Any] = {"kind": part.kind, "name": cut(printable(part.name), 200), "start": start, "end": end}
    if part.kind in ("header", "skipped"):
        written = octets[start:end].decode("utf-8", "replace")
        hidden = part.secret and not secrets
        meant = header_value(part.name, "") if hidden else printable(part.value, keep="\n")
        data["meant"] = cut(meant, _VALUE)
        data["plain"] = hidden or written == f"{part.name}:{part.value}"
        if part.kind == "skipped" or not data["plain"]:
            data["written"] = cut(printable(written), _VALUE)
    return data


def _marks(entry: Entry, shown: list[Part]) -> list[dict[str, Any]]:
    marks: list[dict[str, Any]] = []
    for mark in entry.marks[:_MARKS]:
        index = entry.part_of(mark)
        part = shown.index(entry.parts[index]) if index is not None and entry.parts[index] in shown else None
        texts = {"text": cut(printable(mark.text), 400), "remedy": mark.remedy}
        marks.append({"rule": mark.rule, "severity": mark.severity, "part": part, **texts})
    if len(entry.marks) > _MARKS:
        text = f"{len(entry.marks) - _MARKS} more findings"
        marks.append({"rule": "…", "severity": "note", "part": None, "text": text, "remedy": "see lint"})
    return marks


class Row(NamedTuple):
    """A line of the list, without the frame's bytes."""

    number: int
    offset: int
    time: str
    flow: str
    command: str
    destination: str
    size: str
    marks: list[str]
    """Rule ids."""
    worst: str
    """The worst severity; "" without findings."""


def row_of(entry: Entry) -> Row:
    severities = [mark.severity for mark in entry.marks]
    worst = next((severity for severity in STYLES if severity in severities), "")
    size = "-" if entry.place is None else str(entry.place.size)
    ids = list(dict.fromkeys(mark.rule for mark in entry.marks))
    texts = entry.time[11:23], entry.seen.flow, entry.command, entry.destination or "-"
    return Row(entry.number, entry.seen.found.start, *texts, size, ids, worst)


def show_entry(console: Console, rows: Iterable[Row], entry: Entry, secrets: bool) -> None:
    text = _list(list(rows), entry.number, console.width)
    text.append_text(_headers(entry, secrets, console.width))
    text.append_text(_octets(entry, secrets, console.width))
    text.append_text(_body(entry, console.width))
    if console.color_system is None:  # much faster than the console
        sys.stdout.write(text.plain)
    else:
        console.print(text, soft_wrap=True, end="")


def _rule(title: str, width: int) -> Text:
    return Text().append(f"── {title} ".ljust(min(width, 120), "─") + "\n", "dim")


def _list(rows: list[Row], chosen: int, width: int) -> Text:
    times = 14 if any(row.time for row in rows) else 0
    # Each connection has a letter, because addresses are long; the lines below explain them.
    flows = list(dict.fromkeys(row.flow for row in rows if row.flow))
    room = max(width - 7 - 11 - times - 13 - 10 - 4 * bool(flows) - 2, 20)
    destination = room * 6 // 10
    text = Text()
    for row in rows:
        text.append("> " if row.number == chosen else "  ", "bold")
        text.append(f"{row.number:>5} {row.offset:>10}  ", "dim")
        if times:
            text.append(pad(row.time, times), "dim")
        if flows:
            text.append(pad(chr(65 + flows.index(row.flow)), 4), "dim")
        style = COMMAND_STYLES.get(row.command, "yellow") if row.size != "-" else STYLES["error"]
        text.append(pad(row.command, 13), style)
        text.append(pad(row.destination, destination) + f"{row.size:>8}")
        marks = "".join("  " * (not index) + rule + " " for index, rule in enumerate(row.marks)).rstrip()
        text.append(cut(marks, max(room - destination, 10)) + "\n", STYLES.get(row.worst, ""))
    for index, flow in enumerate(flows):
        text.append(f"  {chr(65 + index)} {flow}\n", "dim")
    return text


def _headers(entry: Entry, secrets: bool, width: int) -> Text:
    found = entry.seen.found
    size = "" if entry.place is None else f", {entry.place.size} bytes of body"
    text = _rule(f"{entry.number}: {cut(entry.command, 60)} at octet {found.start}{size}", width)
    if entry.fault is not None:
        what, remedy = entry.fault_text()
        text.append(f"octet {entry.fault.error.offset}: {what}", STYLES["error"]).append(f" ({remedy})\n")
        if entry.fault.resumed is not None:
            text.append(f"reading continued at octet {entry.fault.resumed}\n")
    by_part: dict[int | None, list[Finding]] = {}
    for mark in entry.marks:
        by_part.setdefault(entry.part_of(mark), []).append(mark)
    for mark in by_part.get(None, []):
        _mark(text, mark)
    octets = entry.seen.octets if secrets else masked(entry)
    names = [cut(printable(part.name), 40) for part in entry.parts if part.kind == "header"]
    longest = max(map(len, names), default=0)
    headers = 0
    for index, part in enumerate(entry.parts):
        if part.kind in ("header", "skipped"):
            _header(text, part, octets[part.start - found.start : part.end - found.start], secrets, longest, headers)
            headers += part.kind == "header"
        for mark in by_part.get(index, []):
            _mark(text, mark)
    return text


def _header(text: Text, part: Part, octets: bytes, secrets: bool, longest: int, number: int) -> None:
    written = octets.decode("utf-8", "replace")
    if part.kind == "skipped":
        text.append(f"{part.start:>8}  (ignored) {cut(printable(written), _VALUE)}\n", "red")
        return
    value = printable(part.value) if secrets else header_value(part.name, part.value)
    text.append(f"{part.start:>8}  ", "dim").append(pad(printable(part.name), min(longest, 40)), _HEADERS[number % 2])
    text.append(f"  {cut(value, _VALUE)}\n")
    if written != f"{part.name}:{part.value}" and (secrets or not part.secret):
        text.append(f"{'':>8}  written as {cut(printable(written), _VALUE)}\n", "dim")


def _mark(text: Text, mark: Finding) -> None:
    text.append(f"{'':>8}  {mark.severity} {mark.rule}: ", STYLES[mark.severity])
    text.append(f"{printable(mark.text)} ({mark.remedy})\n")
    title = title_of(mark.rule)
    if title and title != mark.text:
        text.append(f"{'':>8}    rule: {title}\n", "dim")


def _octets(entry: Entry, secrets: bool, width: int) -> Text:
    octets = entry.seen.octets if secrets else masked(entry)
    start = entry.seen.found.start
    cuts = shown_runs(octets, entry, _HEAD, _BODY)
    text = _rule("bytes", width)
    for first, last in cuts:
        text.append_text(_hex(octets[first:last], start + first, entry.parts))
    left = len(octets) - sum(last - first for first, last in cuts)
    if left:
        text.append(f"({left} more bytes)\n", "dim italic")
    return text


def _hex(octets: bytes, start: int, parts: list[Part]) -> Text:
    text, begins = Text(), []
    for line in hex_lines(octets, start):
        begins.append(len(text))
        offset, _, rest = line.partition(" ")
        text.append(offset, "dim").append(f" {rest}\n")
    headers = 0
    for part in parts:
        style = _PARTS.get(part.kind, _HEADERS[headers % 2])
        headers += part.kind == "header"
        at = max(part.start - start, 0)
        while at < min(part.end - start, len(octets)):
            # The part up to the end of the row.
            row, column = divmod(at, _ROW_OCTETS)
            last = min(part.end - start, len(octets), (row + 1) * _ROW_OCTETS) - row * _ROW_OCTETS - 1
            hex_at = begins[row] + len(f"{start + row * _ROW_OCTETS:08x}") + 2
            text.stylize(style, hex_at + _column(column), hex_at + _column(last) + 2)
            text.stylize(style, hex_at + 51 + column, hex_at + 51 + last + 1)
            at = (row + 1) * _ROW_OCTETS
    return text


def _column(octet: int) -> int:
    return 3 * octet + (octet >= _ROW_OCTETS // 2)


def _body(entry: Entry, width: int) -> Text:
    if entry.place is None or not entry.place.size:
        return Text()
    notes, form, shown = shown_body(entry.place, _BODY)
    text = _rule(f"body as {form}", width)
    for note in notes:
        text.append(f"({note})\n", "dim italic")
    return text.append(shown + "\n")


def json_object(entry: Entry) -> dict[str, Any]:
    """Return an entry for programs, with parts and findings, without content. Offsets are those of its direction."""
    found = entry.seen.found
    line: dict[str, Any] = {"number": entry.number, "offset": found.start}
    if entry.place is not None:
        line |= {"end": entry.place.end, "command": entry.place.frame.command}
    if entry.fault is not None:
        what, remedy = entry.fault_text()
        error = entry.fault.error
        line["fault"] = {"kind": error.kind, "offset": error.offset, "text": what, "remedy": remedy}
        line["fault"]["resumed"] = entry.fault.resumed
    if entry.seen.time:
        line["time"] = entry.seen.time
    if entry.seen.flow:
        line["flow"] = entry.seen.flow
    line["version"] = found.version
    line["parts"] = [
        {"part": part.kind, "name": part.name, "start": part.start, "end": part.end} for part in entry.parts
    ]
    line["lint"] = [
        {**mark.record(), "title": title_of(mark.rule), "part": part}
        for mark, part in ((mark, entry.part_of(mark)) for mark in entry.marks)
    ]
    return line


def _show_json(inspection: Inspection) -> None:
    for entry in inspection.entries():
        line = json.dumps(json_object(entry), separators=(",", ":"))
        write_json(line.encode() + b"\n")
        sys.stdout.flush()


def _write_page(inspection: Inspection, output: str, secrets: bool) -> bool:
    frame = len(page_of(inspection.name, Book(secrets, 0).text(0)).encode()) + _SPARE
    book = Book(secrets, _PAGE - frame)
    for entry in inspection.entries(_MOST):
        if not book.add(entry):
            inspection.full = True
            inspection.left += 1
    if not len(book) and inspection.problems:
        return False  # which was reported
    page = page_of(inspection.name, book.text(inspection.left)).encode()
    if output == "-":
        sys.stdout.buffer.write(page)
        return True
    try:
        with open(output, "wb") as stream:
            stream.write(page)
    except OSError as error:
        inputs.complain(f"{output}: cannot be written: {error.strerror}")
        return False
    why = f"a page has at most {_MOST:,} frames and {_PAGE / 1e6:g} MB"
    left = f", {inspection.left:,} left out ({why})" if inspection.left else ""
    click.echo(f"{len(book):,} entr{'y' if len(book) == 1 else 'ies'} written to {output}{left}", err=True)
    return True


def _show(inspection: Inspection, number: int | None, secrets: bool) -> bool:
    """Print an entry, by default the first MESSAGE, and return whether it exists."""
    most = _MOST if number is None else number + _AROUND
    rows = deque[Any](maxlen=_MOST if number is None else 2 * _AROUND + 1)
    chosen, best = None, -1
    for entry in inspection.entries(most):
        rows.append(row_of(entry))
        if number is None:
            if interest(entry) > best:
                chosen, best = entry, interest(entry)
            if chosen is not None and chosen.is_message and entry.number >= chosen.number + _AROUND:
                inspection.full = True  # the rest is only counted
        elif entry.number == number:
            chosen = entry
    if chosen is None:
        if not inspection.problems or inspection.count:
            inputs.complain(f"{inspection.name}: no frame {number or 1}: it has {inspection.count}")
        return False
    around = [row for row in rows if abs(row.number - chosen.number) <= _AROUND]
    show_entry(screen(), around, chosen, secrets)
    return True


@click.command("inspect")
@inputs.stream_options
@click.option("-o", "--output", metavar="PAGE", help="Write a page of HTML; - for standard output.")
@inputs.number_option(
    "--frame", kind=click.IntRange(1), help="The frame to show on the terminal. Default: the first MESSAGE."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per frame, with the positions of its parts.")
@click.option("--secrets", is_flag=True, help="Show passcodes and other secrets.")
@click.option("--lenient", is_flag=True, help="Tolerate common mistakes of peers.")
@click.option("--resync", is_flag=True, help="Continue after a broken frame.")
def command(
    files: tuple[str, ...], output: str | None, frame: int | None, as_json: bool, secrets: bool, **options: Any
) -> None:
    """Inspect the frames of FILE, or of standard input: list, headers with findings of lint, bytes, body.

    FILE is a raw stream, perhaps compressed with gzip, a capture (.stompcap), or packets (.pcapng, .pcap). With -o, the
    output is one page of at most 2 MB that needs no network and opens at the first MESSAGE. Broken frames are entries,
    too.

    \b
      stompcodec inspect frames.stomp
      stompcodec inspect frames.stomp --frame 7
      stompcodec inspect feed.stompcap -o page.html
    """
    if len(files) > 1:
        raise click.UsageError("name one file")
    if (output is not None) + (frame is not None) + as_json > 1:
        raise click.UsageError("--output, --frame and --json exclude each other")
    file = files[0] if files else "-"
    if output not in (None, "-") and file != "-" and _same(file, output):
        raise click.UsageError("the page would overwrite the file")
    inspection = Inspection(file, inputs.complain, options)
    good = True
    if as_json:
        _show_json(inspection)
    elif output is not None:
        good = _write_page(inspection, output, secrets)
    else:
        good = _show(inspection, frame, secrets)
    sys.exit(0 if good and not inspection.problems else 1)


def _same(file: str, output: str | None) -> bool:
    try:
        return os.path.samefile(file, output or "")
    except OSError:
        return False
