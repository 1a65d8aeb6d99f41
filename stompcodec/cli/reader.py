"""A reader of the frames of a file, with offsets. It follows the version, and can continue after broken frames.

Memory holds one read and the current frame, never the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

from stompcodec import HEARTBEAT, Frame, FrameError, Limits, Parser
from stompcodec.errors import moved
from stompcodec.spec import VERSIONS, dialect_of

_READ = 256 * 1024
#: Bytes kept of a streamed body.
_BEGIN = 256
#: Frames that begin a conversation or set its version.
HANDSHAKE = frozenset(("CONNECT", "STOMP", "CONNECTED"))


class Place(NamedTuple):
    """A complete frame and its position. Offsets are bytes from the start of the stream."""

    frame: Frame
    """Its body is None if bodies of this size are skipped."""
    start: int
    """Offset of the command."""
    body: int
    """Offset of the body."""
    end: int
    """Offset after the NUL."""
    version: str | None
    """The version it was parsed with; None before negotiation."""
    begin: bytes
    """The body, or the first bytes of a skipped one."""

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return self.end - 1 - self.body


class Broken(NamedTuple):
    """A broken frame."""

    error: FrameError
    """Its offset is from the start of the stream."""
    start: int
    """Where the broken frame begins."""
    resumed: int | None
    """Where reading continued; None if it ended."""
    version: str | None
    """The version it was parsed with; None before negotiation."""
    head: bytes = b""
    """Its first bytes."""


def version_after(handshake: Frame) -> str | None:
    """Return the version of the frames after CONNECTED; None after CONNECT and STOMP, or for an unknown version.

    >>> version_after(Frame("CONNECTED", {"version": "1.1"})), version_after(Frame("CONNECTED"))
    ('1.1', '1.0')
    """
    version = handshake.get("version", "1.0") if handshake.command == "CONNECTED" else None
    return version if version in VERSIONS else None


class FrameReader:
    """A reader of a stream of frames.

    Args:
        read: returns up to this many bytes, and b"" at the end, as `io.BufferedReader.read1` does.
        version: "1.0", "1.1", "1.2", "legacy", or "auto" to follow CONNECTED.
        lenient, limits, commands: see `Parser`.
        resync: continue after a broken frame, at the next known command after a NUL.
        stream_over: larger bodies, in bytes, are not kept. Has no effect with `resync`, which may have to search them.
        base: the offset of the first byte.

    >>> import io
    >>> reader = FrameReader(io.BytesIO(b"\\nSEND\\ndestination:/queue/a\\n\\nhello\\0").read)
    >>> [[place]] = list(reader.places())
    >>> place.frame.command, place.start, place.body, place.size
    ('SEND', 1, 28, 5)
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        version: str = "auto",
        *,
        lenient: bool = False,
        limits: Limits | None = None,
        commands: tuple[str, ...] = (),
        resync: bool = False,
        stream_over: int | None = None,
        base: int = 0,
    ) -> None:
        self.fed = base  #: offset behind the bytes read
        self.heartbeats = 0  #: EOLs between frames
        self.seconds = 0.0  #: parsing time
        self.begin = b""  #: the first bytes
        self._read_from = read
        self._auto = version == "auto"
        self._options: dict[str, Any] = {"lenient": lenient, "limits": limits, "commands": commands, "heartbeats": True}
        self._options["stream_over"] = None if resync else stream_over
        self._resync = resync
        known = sorted(dialect_of("1.2").commands.union(commands))
        names = b"|".join(re.escape(name.encode()) for name in known)
        self._plausible = re.compile(rb"\0[\r\n]*(?=(?:%s) *\r?\n)" % names, re.I if version == "legacy" else 0)
        self._longest = max(map(len, known)) + 2
        self._parser = Parser(None if self._auto else version, **self._options)
        self._base = base  # start of the parser's stream
        self._at = base  # end of the frames returned so far
        self._window = bytearray()  # the bytes from `_window_at` on
        self._window_at = base
        self._streamed: Place | None = None
        self._ended = False

    def octets(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, of a frame in the latest batch."""
        return bytes(self._window[start - self._window_at : end - self._window_at])

    def places(self) -> Iterator[list[Place] | Broken]:
        """Yield the frames of each read, and broken frames. Stop after a broken frame unless `resync` is set."""
        while True:
            batch: list[Place] = []
            failure = self._timed(self._drain, batch)
            if batch:
                yield batch
            failure = failure or self._take_in()
            if failure is not None:
                broken = self._broken(failure)
                yield broken
                if broken.resumed is None:
                    return
            elif self._ended:
                return

    def events(self) -> Iterator[list[Any] | Broken]:
        """Yield the parser's events without positions, which is faster. Stop at a broken frame."""
        while True:
            batch: list[Any] = []
            failure = self._timed(self._drain_quickly, batch)
            yield batch
            failure = failure or self._take_in()
            if failure is not None:
                yield self._located(failure)
            if failure is not None or self._ended:
                return

    def _timed(self, drain: Callable[[list[Any]], None], batch: list[Any]) -> FrameError | None:
        began = perf_counter()
        try:
            drain(batch)
        except FrameError as error:
            return error
        finally:
            self.seconds += perf_counter() - began
        return None

    def _drain_quickly(self, batch: list[Any]) -> None:
        for event in self._parser:
            batch.append(event)
            if type(event) is Frame and event.command in HANDSHAKE:
                self._follow(event)
        self._at = self.fed

    def _take_in(self) -> FrameError | None:
        """Feed the next bytes. At the end of the stream, return the error if it is incomplete."""
        used = self._at - self._window_at
        del self._window[:used]
        self._window_at += used
        data = self._read_from(_READ)
        self.begin = self.begin or data[:8]
        self.fed += len(data)
        self._window += data
        self._parser.feed(data)
        self._ended = not data
        try:
            if self._ended:
                self._parser.close()
        except FrameError as error:
            return error
        return None

    def _drain(self, batch: list[Place]) -> None:
        parser = self._parser
        for event in parser:
            at = self.fed - parser.buffered
            if event is HEARTBEAT:
                self.heartbeats += 1
            elif isinstance(event, Frame):
                self._found(event, at, batch)
            elif isinstance(event, bytes):
                self._piece(event)
            elif self._streamed is not None:
                batch.append(self._streamed._replace(body=at - 1 - self._streamed.size, end=at))
                self._streamed = None
            self._at = at
        if self._streamed is None:
            self._at = self.fed - parser.buffered

    def _found(self, frame: Frame, at: int, batch: list[Place]) -> None:
        start = self._frame_start()
        body: bytes | None = frame.body
        version = self._parser.version
        if body is None:
            self._streamed = Place(frame, start, start, start + 1, version, b"")  # its body is still empty
        else:
            batch.append(Place(frame, start, at - 1 - len(body), at, version, body))
        if frame.command in HANDSHAKE:
            self._follow(frame)

    def _frame_start(self) -> int:
        start = self._at - self._window_at
        if self._options["lenient"]:
            # EOLs are events of their own; only NULs are skipped silently.
            while self._window[start : start + 1] == b"\0":
                start += 1
        return self._window_at + start

    def _piece(self, data: bytes) -> None:
        place = self._streamed
        assert place is not None
        begin = (place.begin + data[:_BEGIN])[:_BEGIN]
        self._streamed = place._replace(end=place.end + len(data), begin=begin)

    def _follow(self, frame: Frame) -> None:
        if self._auto:
            self._parser.version = version_after(frame)

    def _broken(self, error: FrameError) -> Broken:
        """Return the broken frame, and where reading continues."""
        broken = self._located(error)
        if self._resync:
            began = perf_counter()
            broken = broken._replace(resumed=self._find_start())
            self.seconds += perf_counter() - began
        return broken

    def _located(self, error: FrameError) -> Broken:
        assert error.offset is not None
        start = self._frame_start() if self._streamed is None else self._streamed.start
        broken = Broken(moved(error, self._base), start, None, self._parser.version, self.octets(start, start + _BEGIN))
        if not self._resync:
            self.fed = self._base + error.offset
        return broken

    def _find_start(self) -> int | None:
        """Restart the parser at the next command line after a NUL, and return its offset, or None if there is none."""
        tail, data = b"", self.octets(self._at, self.fed)
        while True:
            data = tail + data
            found = self._plausible.search(data)
            if found:
                rest = data[found.end() :]
                self._begin(self.fed - len(rest), rest)
                return self._base
            # Keep a possible beginning of a match. Its EOLs are dropped, because offsets are counted from the end.
            nul = data.rfind(b"\0")
            line = data[nul + 1 :].lstrip(b"\r\n")
            tail = b"\0" + line if nul >= 0 and len(line) < self._longest else b""
            data = self._read_from(_READ)
            self.fed += len(data)
            if not data:
                return None

    def _begin(self, at: int, data: bytes) -> None:
        self._parser = Parser(self._parser.version, **self._options)
        self._parser.feed(data)
        self._base = self._at = self._window_at = at
        self._window = bytearray(data)
