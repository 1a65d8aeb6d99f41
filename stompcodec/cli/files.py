"""Files of frames that are read: raw streams, captures, JSON lines, packets and Parquet."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stompcodec import Frame
from stompcodec.cli.inputs import Broken, FrameReader, Unreadable, complaint, name_of, opened
from stompcodec.cli.packets import Dissection, is_packets, packets
from stompcodec.errors import MissingExtraError, StompError, StoreError

if TYPE_CHECKING:
    from stompcodec.capture import Capture, Cursor, Piece, Segment


class Recorded(NamedTuple):
    """A frame with its metadata."""

    frame: Frame
    time: int
    """Time of arrival in µs since 1970, UTC; 0 if unknown."""
    offset: int
    """Its offset, or its number if the format has no offsets."""
    octets: bytes | None = None
    """Its original bytes, if they follow the rules of STOMP 1.2."""
    chain: str = "frames"


def frame_of(line: bytes) -> Frame:
    """Parse a frame from a line of JSON as `decode --json` writes it, or raise ValueError. Other members are ignored.

    >>> frame_of(b'{"command": "SEND", "headers": [["destination", "/queue/a"]], "body_b64": "AAE="}')
    <Frame SEND destination='/queue/a' body=2 bytes b'\\x00\\x01'>
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        raise ValueError('not a JSON object with a "command" key')
    headers = value.get("headers", [])
    try:
        frame = Frame(value["command"], headers)
    except TypeError as error:
        raise ValueError(f'"headers" must be pairs of strings: {error}') from None
    except ValueError:
        raise ValueError('"headers" must be pairs of strings') from None
    return Frame(frame.command, frame.headers.pairs(), _body(value))


def _body(value: dict[str, Any]) -> bytes:
    text, packed = value.get("body"), value.get("body_b64")
    if text is not None and packed is not None:
        raise ValueError('it has both "body" and "body_b64"')
    if not isinstance(text, (str, type(None))) or not isinstance(packed, (str, type(None))):
        raise ValueError('"body" and "body_b64" must be strings')
    try:
        return b64decode(packed, validate=True) if packed is not None else (text or "").encode()
    except ValueError:
        raise ValueError('"body" must be Unicode, "body_b64" base64') from None


def pyarrow_modules() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet; raise MissingExtraError if they are not installed."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("parquet", "pyarrow") from None


def read_parquet(path: Path) -> Iterator[tuple[int, Frame]]:
    """Yield time in µs (0 if unknown) and frame of each row; raise StompError unless it is Parquet with the columns."""
    arrow, parquet = pyarrow_modules()
    try:
        with parquet.ParquetFile(path) as file:
            wanted = [name for name in ("command", "headers", "body", "received_at") if name in file.schema_arrow.names]
            if wanted[:3] != ["command", "headers", "body"]:
                raise StompError(f"{path}: it lacks the columns command, headers and body")
            for batch in file.iter_batches(batch_size=1000, columns=wanted):
                for row in batch.to_pylist():
                    yield _micros(row.get("received_at")), _frame(row, path)
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise StompError(f"{path}: cannot be read: {error}") from error


def _frame(row: dict[str, Any], path: Path) -> Frame:
    try:
        body = row["body"] or b""
        return Frame(row["command"], row["headers"] or (), body.encode() if isinstance(body, str) else body)
    except (TypeError, ValueError) as error:
        raise StompError(f"{path}: a row is not a frame: {error}") from None


def _micros(time: Any) -> int:
    return round(time.timestamp() * 1e6) if hasattr(time, "timestamp") else 0


FORMATS = ("capture", "raw", "json", "pcapng", "parquet")
_SUFFIXES = {
    "": "raw",
    ".stomp": "raw",
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
    """Return the format of a file by its name, and for reading by its content; for writing, "" if its name tells none.

    >>> [format_of(name, reading=False) for name in ("a.jsonl", "a.stomp", "-", "a.csv", "a.stomp.gz")]
    ['json', 'raw', 'json', '', '']
    """
    if file == "-":
        return "raw" if reading else "json"
    name = file.removesuffix(".gz") if reading else file
    form = _SUFFIXES.get(os.path.splitext(name.rstrip("/"))[1].lower(), "raw" if reading else "")
    if not reading:
        return form
    if os.path.isdir(file):
        return "parquet" if form == "parquet" else "capture"
    if form == "capture" and name != file:
        return "raw"  # compressed: its index cannot be used
    return _format_inside(file) if form == "raw" else form


def _format_inside(file: str) -> str:
    """Return the format of a file by its content. Only regular files are opened: a pipe gives its bytes only once."""
    from stompcodec.capture import is_sealed

    if not os.path.isfile(file):
        return "raw"
    if is_sealed(file):
        return "capture"
    try:
        with opened(file) as read:
            return "pcapng" if is_packets(read(12)) else "raw"
    except Unreadable:
        return "raw"


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
        except MissingExtraError:
            raise
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
        options = {name: value for name, value in self._options.items() if name != "resync"}
        dissection = Dissection(self.problem, **options)
        with opened(self.file) as read:
            for number, (time, frame) in enumerate(dissection.frames(packets(read, self.problem)), 1):
                yield Recorded(frame, time, number)

    def _parquet(self) -> Iterator[Recorded]:
        if self.file == "-":
            raise click.UsageError("Parquet is a file: it cannot come from standard input")
        for number, (time, frame) in enumerate(read_parquet(Path(self.file)), 1):
            yield Recorded(frame, time, number)


def capture_of(file: str, problem: Callable[[str], object]) -> Capture:
    from stompcodec.capture import Capture

    if file == "-":
        raise click.UsageError("a capture is a file or folder: it cannot come from standard input")
    capture = Capture(file, on_problem=problem)
    if not capture.single and not capture.segments() and not (capture.path / "lock").exists():
        raise StoreError(f"{name_of(file)}: cannot be read: a folder without segments is not a capture")
    return capture


def streams_of(capture: Capture, options: dict[str, Any]) -> Iterator[tuple[str, Supply, FrameReader]]:
    """Yield the streams between the gaps of a capture, each with its chain and a reader, which has these options."""
    for chain in capture.chains():
        supply = Supply(capture.cursor(chain))
        while supply.more():
            yield chain, supply, _reader_of(supply, options, supply.base)


def _reader_of(supply: Supply, options: dict[str, Any], base: int) -> FrameReader:
    version = "1.2"  # as captures keep frames
    return FrameReader(supply.read, **{**options, "version": version}, base=base)


class Stream(NamedTuple):
    """A file, or a segment of a capture, as a stream of frames."""

    name: str
    """The name of the file in which offsets are counted."""
    reader: FrameReader
    version: str | None
    """The version that the user gave for its frames; None if each has the one it was parsed with."""
    goes_on: bool = False
    """It follows the stream before it without a gap, as the next segment of a chain does."""


def streams(
    file: str, options: dict[str, Any], problem: Callable[[str], object], *, bar: bool = False
) -> Iterator[Stream]:
    """Yield the streams of a file ("-" for standard input): one for each segment of a capture, otherwise a single one.
    `options` are those of `FrameReader`; the version has no effect on captures. `problem` is called with a line of text
    for each problem of a capture, after which frames may be missing. `bar` shows the progress in a large raw stream.
    Raise Unreadable if a raw stream cannot be opened.
    """
    if format_of(file, reading=True) == "capture":
        try:
            yield from _segments(file, capture_of(file, problem), options)
        except StompError as error:
            problem(str(error))
        return
    with opened(file, bar=bar) as read:
        given = options.get("version", "auto")
        yield Stream(name_of(file), FrameReader(read, **options), None if given == "auto" else given)


def _segments(file: str, capture: Capture, options: dict[str, Any]) -> Iterator[Stream]:
    empty = True
    for chain in capture.chains():
        supply, end = Supply(capture.cursor(chain), by_segment=True), None
        while supply.more():
            empty, segment = False, supply.segment
            name = name_of(file) if capture.single else os.fspath(segment.path)
            yield Stream(name, _reader_of(supply, options, supply.base - segment.base), None, supply.base == end)
            while supply.read(_READ):
                pass  # the rest of the segment, if its reader has stopped at a broken frame
            end = supply.end
    if empty:
        yield Stream(name_of(file), FrameReader(lambda _size: b""), None)


class Supply:
    """The pieces of a capture as a stream up to the next gap, or by segment up to the end of one."""

    segment: Segment
    """The segment in which the stream begins."""

    def __init__(self, cursor: Cursor, *, by_segment: bool = False) -> None:
        self._cursor = cursor
        self._pieces = cursor.pieces()
        self._by_segment = by_segment
        self._error: StompError | None = None
        self._fetch()
        self.base = self.end = self.time = 0

    def _fetch(self) -> None:
        """Read the next piece. An error waits until the pieces before it were used."""
        self._next: Piece | None = None
        try:
            self._next = next(self._pieces, None)
        except StompError as error:
            self._error = error

    def more(self) -> bool:
        """Return whether there is a stream, which begins at `base`. Raises StompError if it cannot be read."""
        if self._next is None:
            if self._error is not None:
                raise self._error
            return False
        self.base = self.end = self._next.offset
        assert self._cursor.segment is not None
        self.segment = self._cursor.segment
        return True

    def read(self, size: int) -> bytes:
        piece = self._next
        if piece is None or piece.offset != self.end or (self._by_segment and self._cursor.segment != self.segment):
            return b""
        self.time, self.end = piece.time, piece.end
        self._fetch()
        return bytes(piece.data)


def lines_of(file: str) -> Iterator[bytes]:
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
    if b'"received_at"' not in line:
        return 0
    time = json.loads(line).get("received_at")
    return time if type(time) is int and 0 <= time < 2**62 else 0
