"""The data of `inspect`: frames with the positions of their parts, findings of `lint`, and broken frames as entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import click

from stompcodec.cli.files.packets import Dissection, Seen, is_packets, packets
from stompcodec.cli.files.sources import Supply, capture_of, format_of, streams_of
from stompcodec.cli.inputs import Broken, FrameReader, Place, Unreadable, complaint, name_of, opened, remedy_of
from stompcodec.cli.linting import Conversation, Finding, Subject, check_frame, finding_of, subject_of
from stompcodec.cli.screen import header_value, mask_lines, printable
from stompcodec.cli.show.views import Body, body_of
from stompcodec.errors import ERROR_KINDS, StompError

_READ = 256 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Largest size to which a body is decompressed, in bytes.
_INFLATED = 2**20


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
        """True if the value is masked in output."""
        return self.kind == "header" and header_value(self.name, "") != ""


class Entry(NamedTuple):
    """A frame or broken frame as an entry of the list."""

    number: int
    """Counted from 1."""
    seen: Seen
    parts: list[Part]
    marks: list[Finding]

    @property
    def fault(self) -> Broken | None:
        return self.seen.found if isinstance(self.seen.found, Broken) else None

    @property
    def place(self) -> Place | None:
        return self.seen.found if isinstance(self.seen.found, Place) else None

    @property
    def command(self) -> str:
        """The command, or the kind of error, safe to print."""
        found = self.seen.found
        return printable(found.frame.command) if isinstance(found, Place) else found.error.kind

    @property
    def time(self) -> str:
        """When it passed, in UTC; "" if unknown."""
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
        """The destination, safe to print; "" if there is none."""
        found = self.seen.found
        return printable((found.frame.get("destination") or "")[:400]) if isinstance(found, Place) else ""

    def part_of(self, mark: Finding) -> int | None:
        """Return the index of the part that a finding belongs to; None for the whole frame."""
        for index, part in enumerate(self.parts):
            if part.kind != "command" and part.start <= mark.offset < max(part.end, part.start + 1):
                return index
        return None

    def fault_text(self) -> tuple[str, str]:
        """Return the error and its remedy."""
        assert self.fault is not None
        return ERROR_KINDS[self.fault.error.kind].what, remedy_of(self.fault.error)


def parts_of(subject: Subject, octets: bytes) -> list[Part]:
    """Return the parts of a frame with their positions.

    >>> from stompcodec import Frame
    >>> place = Place(Frame("ACK", {"id": "7"}), 3, 13, 14, "1.2", b"")
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


def shown_body(place: Place, most: int) -> Body:
    """Return the body of a frame made readable: twice as many characters as `most`, the bytes that are shown."""
    notes, form, text = body_of(place.frame, _INFLATED)
    if len(text) > 2 * most:
        notes = [*notes, f"the first {2 * most} of {len(text)} characters"]
    return Body(notes, form, text[: 2 * most])


class Inspection:
    """The entries of a file ("-": standard input)."""

    def __init__(self, file: str, say: Callable[[str], object], options: dict[str, Any]) -> None:
        self.name = name_of(file)
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
        """Yield the entries in order, at most `most`; the others are only counted.

        Problems are reported, and may mean that entries are missing.
        """
        try:
            for seen in self._seen():
                self.count += 1
                self.full = self.full or (most is not None and self.count > most)
                if self.full:
                    self.left += 1
                else:
                    yield self._entry(seen)
        except Unreadable as error:
            self._problem(f"cannot be read: {error}")
        except StompError as error:
            self._problem(str(error))

    def _entry(self, seen: Seen) -> Entry:
        found = seen.found
        if isinstance(found, Broken):
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
        with opened(self._file) as read:
            supply = _Peekable(read)
            if self._form == "pcapng" or is_packets(supply.peek()):
                options = {name: value for name, value in self._options.items() if name != "resync"}
                yield from Dissection(self._problem, **options).seen(packets(supply.read, self._problem))
            else:
                yield from self._frames(FrameReader(supply.read, **self._options))

    def _frames(self, reader: FrameReader, supply: Supply | None = None, flow: str = "") -> Iterator[Seen]:
        for found in reader.places():
            time = supply.time if supply else 0
            if isinstance(found, Broken):
                self._problem(complaint(self.name, found, reader.begin, bool(self._options.get("resync"))))
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
