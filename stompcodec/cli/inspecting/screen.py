"""The terminal output of `inspect`: the surrounding list, the frame's headers with findings, its bytes, its body."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from stompcodec.cli.inspecting.data import Entry, Part, masked, shown_body, shown_runs
from stompcodec.cli.linting import STYLES, Finding, title_of
from stompcodec.cli.screen import COMMAND_STYLES, cut, header_value, hex_lines, pad, printable

#: Bytes of a head, and characters of a header's value.
_HEAD = 4096
_VALUE = 2000
_PARTS = {"command": "bold magenta", "body": "green", "end": "dim", "fault": "bold red reverse", "skipped": "red"}
_HEADERS = ("cyan", "bright_blue")
_ROW_OCTETS = 16


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
    """Return the line of an entry."""
    severities = [mark.severity for mark in entry.marks]
    worst = next((severity for severity in STYLES if severity in severities), "")
    size = "-" if entry.place is None else str(entry.place.size)
    ids = list(dict.fromkeys(mark.rule for mark in entry.marks))
    texts = entry.time[11:23], entry.seen.flow, entry.command, entry.destination or "-"
    return Row(entry.number, entry.seen.found.start, *texts, size, ids, worst)


def show_entry(console: Console, rows: Iterable[Row], entry: Entry, most: int, secrets: bool) -> None:
    """Print an entry below the rows of the list around it. `most` bytes of the body are shown."""
    text = _list(list(rows), entry.number, console.width)
    text.append_text(_headers(entry, secrets, console.width))
    text.append_text(_octets(entry, most, secrets, console.width))
    text.append_text(_body(entry, most, console.width))
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


def _octets(entry: Entry, most: int, secrets: bool, width: int) -> Text:
    octets = entry.seen.octets if secrets else masked(entry)
    start = entry.seen.found.start
    cuts = shown_runs(octets, entry, _HEAD, most)
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
    """Return the column of a byte in its row, which has an extra space in the middle."""
    return 3 * octet + (octet >= _ROW_OCTETS // 2)


def _body(entry: Entry, most: int, width: int) -> Text:
    if entry.place is None or not entry.place.size:
        return Text()
    notes, form, shown = shown_body(entry.place, most)
    text = _rule(f"body as {form}", width)
    for note in notes:
        text.append(f"({note})\n", "dim italic")
    return text.append(shown + "\n")
