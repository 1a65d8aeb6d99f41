"""Inputs of frames: captures, raw streams, JSON lines, packets, Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.files.pcapng import is_packets
from stompcodec.cli.files.recorded import Recorded, frame_of
from stompcodec.cli.inputs import Unreadable, complaint, name_of, opened
from stompcodec.cli.reader import Broken, FrameReader
from stompcodec.errors import StompError

if TYPE_CHECKING:
    from stompcodec.capture import Capture

FORMATS = ("capture", "raw", "json", "pcapng", "parquet")
_SUFFIXES = {
    ".stompcap": "capture",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".pcapng": "pcapng",
    ".pcap": "pcapng",
    ".parquet": "parquet",
}
#: Versions whose frames can be copied unchanged into a capture.
_SAME = (None, "1.2")
_READ = 256 * 1024


def format_of(file: str, *, reading: bool) -> str:
    """Return the format of a file by its name, and for reading by its content.

    >>> format_of("a.jsonl", reading=False), format_of("a.stomp", reading=False), format_of("-", reading=False)
    ('json', 'raw', 'json')
    """
    if file == "-":
        return "raw" if reading else "json"
    name = file.removesuffix(".gz")
    form = _SUFFIXES.get(os.path.splitext(name.rstrip("/"))[1].lower(), "raw")
    if not reading:
        return form
    if os.path.isdir(file):
        return "parquet" if form == "parquet" else "capture"
    if form == "raw":
        try:
            with opened(file) as read:
                return "pcapng" if is_packets(read(12)) else "raw"
        except Unreadable:
            return "raw"
    return form


class Source:
    """The frames of a file, "-" for standard input, in one of `FORMATS` (None: detected). Options of `FrameReader`."""

    def __init__(
        self, file: str, form: str | None, problem: Callable[[str], object], options: dict[str, Any] | None = None
    ) -> None:
        self.file = file
        self.form = form or format_of(file, reading=True)
        self.name = name_of(file)
        self._say = problem
        self._options = options or {}

    def problem(self, text: str) -> None:
        self._say(text if text.startswith(self.name) else f"{self.name}: {text}")

    def __iter__(self) -> Iterator[Recorded]:
        """Yield the frames in order. Problems are reported, and may mean that frames are missing."""
        read: dict[str, Callable[[], Iterator[Recorded]]] = {
            "capture": self._capture,
            "raw": self._raw,
            "json": self._json,
            "pcapng": self._packets,
            "parquet": self._parquet,
        }
        try:
            yield from read[self.form]()
        except Unreadable as error:
            self.problem(f"cannot be read: {error}")
        except StompError as error:
            self.problem(str(error))

    def _raw(self) -> Iterator[Recorded]:
        with opened(self.file) as read:
            reader = FrameReader(read, **self._options)
            for places in self._places(reader):
                yield from places

    def _places(
        self, reader: FrameReader, supply: Supply | None = None, chain: str = "frames"
    ) -> Iterator[list[Recorded]]:
        for found in reader.places():
            if isinstance(found, Broken):
                self.problem(complaint(self.name, found, reader.begin, bool(self._options.get("resync"))))
                continue
            yield [
                Recorded(
                    place.frame,
                    supply.time if supply else 0,
                    place.start,
                    reader.octets(place.start, place.end) if place.version in _SAME else None,
                    chain,
                )
                for place in found
            ]

    def _capture(self) -> Iterator[Recorded]:
        for chain, supply, reader in streams_of(capture_of(self.file, self.problem), self._options):
            for places in self._places(reader, supply, chain):
                yield from places

    def _json(self) -> Iterator[Recorded]:
        for number, line in enumerate(lines_of(self.file), 1):
            if not line.strip():
                continue
            try:
                yield Recorded(frame_of(line), _time_of(line), number)
            except ValueError as error:
                self.problem(f"line {number}: {error}")

    def _packets(self) -> Iterator[Recorded]:
        from stompcodec.cli.files.dissect import Dissection
        from stompcodec.cli.files.pcapng import packets

        options = {name: value for name, value in self._options.items() if name != "resync"}
        dissection = Dissection(self.problem, **options)
        with opened(self.file) as read:
            for number, (time, frame) in enumerate(dissection.frames(packets(read, self.problem)), 1):
                yield Recorded(frame, time, number)

    def _parquet(self) -> Iterator[Recorded]:
        from stompcodec.cli.files.parquet import read_parquet

        if self.file == "-":
            raise click.UsageError("Parquet is a file: it cannot come from standard input")
        for number, (time, frame) in enumerate(read_parquet(Path(self.file)), 1):
            yield Recorded(frame, time, number)


def capture_of(file: str, problem: Callable[[str], object]) -> Capture:
    """Open a capture."""
    from stompcodec.capture import Capture

    if file == "-":
        raise click.UsageError("a capture is a file or folder: it cannot come from standard input")
    return Capture(file, on_problem=problem)


def streams_of(capture: Capture, options: dict[str, Any]) -> Iterator[tuple[str, Supply, FrameReader]]:
    """Yield the streams between the gaps of a capture, each with its chain and a reader, which has these options."""
    for chain in capture.chains():
        supply = Supply(capture.pieces(chain))
        while supply.more():
            version = "1.2"  # as captures keep frames
            yield chain, supply, FrameReader(supply.read, **{**options, "version": version}, base=supply.base)


class Supply:
    """The pieces of a capture as a stream up to the next gap."""

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._next = next(pieces, None)
        self._end = 0
        self.base = 0
        self.time = 0

    def more(self) -> bool:
        """Return whether there is a stream, which begins at `base`."""
        if self._next is None:
            return False
        self.base = self._end = self._next.offset
        return True

    def read(self, size: int) -> bytes:
        piece = self._next
        if piece is None or piece.offset != self._end:
            return b""
        self.time, self._end = piece.time, piece.end
        self._next = next(self._pieces, None)
        return bytes(piece.data)


def lines_of(file: str) -> Iterator[bytes]:
    """Yield the lines of a file."""
    with opened(file) as read:
        parts: list[bytes] = []  # of the current line
        while data := read(_READ):
            first, *more = data.split(b"\n")
            parts.append(first)
            for each in more:
                yield b"".join(parts)
                parts = [each]
        yield b"".join(parts)


def _time_of(line: bytes) -> int:
    """Return the time in a line of JSON; 0 if missing."""
    if b'"received_at"' not in line:
        return 0
    time = json.loads(line).get("received_at")
    return time if type(time) is int and 0 <= time < 2**62 else 0
