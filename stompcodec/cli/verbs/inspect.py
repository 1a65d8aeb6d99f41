"""stompcodec inspect: show frames byte by byte, on the terminal or as a self-contained page."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from typing import Any

import click

from stompcodec.cli.inputs import complain, stream_options
from stompcodec.cli.inspecting.data import Entry, Inspection
from stompcodec.cli.linting import title_of
from stompcodec.cli.screen import screen, write_json

#: Maximum number of entries, and of bytes, in a page.
_MOST = 2000
_PAGE = 2_000_000
#: Bytes reserved in a page for its numbers.
_SPARE = 100
#: Bytes of a body on the terminal.
_BODY = 512
#: Entries of the list before and after the chosen one.
_AROUND = 6


def json_object(entry: Entry) -> dict[str, Any]:
    """Return an entry for programs, with its parts and lint findings, but without header values or other content.

    Offsets are bytes from the start of the stream, or in packets from the first byte of that direction.
    """
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
        {
            **mark.record(),
            "title": title_of(mark.rule),
            "part": part,
        }
        for mark, part in ((mark, entry.part_of(mark)) for mark in entry.marks)
    ]
    return line


def _show_json(inspection: Inspection) -> None:
    for entry in inspection.entries():
        line = json.dumps(json_object(entry), separators=(",", ":"))
        write_json(line.encode() + b"\n")
        sys.stdout.flush()


def _write_page(inspection: Inspection, output: str, secrets: bool) -> bool:
    """Write the page, and return whether that succeeded."""
    from stompcodec.cli.inspecting.page import Book, page_of

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
        complain(f"{output}: cannot be written: {error.strerror}")
        return False
    why = f"a page has at most {_MOST:,} frames and {_PAGE / 1e6:g} MB"
    left = f", {inspection.left:,} left out ({why})" if inspection.left else ""
    click.echo(f"{len(book):,} entr{'y' if len(book) == 1 else 'ies'} written to {output}{left}", err=True)
    return True


def _show(inspection: Inspection, number: int | None, secrets: bool) -> bool:
    """Print an entry, by default the first MESSAGE, and return whether it exists."""
    from stompcodec.cli.inspecting.page import interest
    from stompcodec.cli.inspecting.screen import row_of, show_entry

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
            complain(f"{inspection.name}: no frame {number or 1}: it has {inspection.count}")
        return False
    around = [row for row in rows if abs(row.number - chosen.number) <= _AROUND]
    show_entry(screen(), around, chosen, _BODY, secrets)
    return True


@click.command("inspect")
@stream_options
@click.option("-o", "--output", metavar="PAGE", help="Write a page of HTML; - for standard output.")
@click.option(
    "--frame",
    type=click.IntRange(min=1),
    metavar="N",
    help="The frame to show on the terminal. Default: the first MESSAGE.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per frame, with the positions of its parts.")
@click.option("--secrets", is_flag=True, help="Show passcodes and other secrets.")
@click.option("--lenient", is_flag=True, help="Tolerate common mistakes of peers.")
@click.option("--resync", is_flag=True, help="Continue after a broken frame.")
def command(
    files: tuple[str, ...],
    output: str | None,
    frame: int | None,
    as_json: bool,
    secrets: bool,
    **options: Any,
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
    inspection = Inspection(file, complain, options)
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
