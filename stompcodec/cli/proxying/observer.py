"""Observers of the bytes that pass: one for each direction of a connection, without I/O. Bytes in, events out.

Memory holds the current frame, up to `keep` bytes of its body. Larger bodies are only counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from stompcodec import END_OF_BODY, HEARTBEAT, Frame, FrameError, Limits, Parser
from stompcodec.cli.reader import Broken, Place, version_after

Direction = Literal["client", "broker"]
#: The direction is named for its sender.
DIRECTIONS: tuple[Direction, Direction] = ("client", "broker")
#: Bytes of a body that are kept; larger ones are streamed.
KEEP = 2**20
#: Bytes of a head. A frame with a larger one ends the reading of its direction, and passes unchanged.
_HEAD = 2**20
#: Bytes kept of a streamed body, and of data that is not STOMP.
_BEGIN = 256
_LIMITS = Limits(max_body=2**62)


class Passed(NamedTuple):
    """A frame that has passed completely."""

    place: Place
    """Its frame and position. A body that is not kept is None."""
    head: bytes
    """Its bytes up to the body."""
    octets: bytes
    """All its bytes; b"" if they came before as `Raw`."""

    @property
    def streamed(self) -> bool:
        """True if the body was too large to be kept."""
        return not self.octets


class Beats(NamedTuple):
    """Heart-beats: EOLs between frames."""

    octets: bytes


class Raw(NamedTuple):
    """Bytes that belong to no whole frame: of a streamed frame, or not STOMP."""

    octets: bytes


class Foreign(NamedTuple):
    """The point from which a direction is not STOMP. What follows is `Raw`."""

    broken: Broken
    """The error, and the first bytes from the broken frame on."""
    octets: bytes
    """The bytes from there on; b"" at the end of the stream if all came before."""


Event = Passed | Beats | Raw | Foreign


class Observer:
    """The observer of one direction. Invariant: the octets of all events, joined, are the bytes that were fed.

    Args:
        follow: called with the version of CONNECTED; it sets `version` of both directions.
        keep: bytes of a body that are kept.

    >>> observer = Observer()
    >>> [type(event).__name__ for event in observer.feed(b"ACK\\nid:7\\n\\n\\0\\nSEND")]
    ['Passed', 'Beats']
    >>> observer.between
    False
    >>> observer.feed(b" ?\\n")[0].broken.error.kind
    'unknown-command'
    """

    def __init__(self, follow: Callable[[str | None], None] = lambda version: None, keep: int = KEEP) -> None:
        self.fed = 0
        """Bytes so far."""
        self.foreign = 0
        """Those that are not STOMP."""
        self.broken: Broken | None = None
        """The error that ended the reading of frames."""
        self._follow = follow
        self._most = keep + _HEAD
        self._parser: Parser | None = Parser(None, limits=_LIMITS, heartbeats=True, stream_over=keep)
        self._at = 0  # the end of the last event
        self._kept = bytearray()  # the bytes from `_at` on
        self._beats = 0  # the end of heart-beats after `_at`, which become one event
        self._streamed: Place | None = None
        self._head = b""  # of the streamed frame

    @property
    def between(self) -> bool:
        """True between two frames."""
        return self._at == self.fed and self.may_write

    @property
    def may_write(self) -> bool:
        """True if another frame may be written after the last event."""
        return self._streamed is None and self.broken is None

    def set_version(self, version: str | None) -> None:
        """Read later frames by the rules of a version."""
        if self._parser is not None:
            self._parser.version = version

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes, and return the events that they complete."""
        self.fed += len(data)
        if self._parser is None:
            self.foreign += len(data)
            return [Raw(data)]
        self._kept += data
        events: list[Event] = []
        try:
            for event in self._parser.feed(data):
                self._take(event, self.fed - self._parser.buffered, events)
        except FrameError as error:
            self._add_beats(events)
            events.append(self._fail(error))
            return events
        self._add_beats(events)
        if len(self._kept) > self._most:
            events.append(self._fail(FrameError("limit-exceeded", self._at, limit="max_headers")))
        return events

    def end(self) -> list[Event]:
        """Note the end of the stream; return an event if it is in the middle of a frame."""
        if self._parser is None:
            return []
        try:
            self._parser.close()
        except FrameError as error:
            return [self._fail(error)]
        rest = self._cut(self.fed)
        return [Raw(rest)] if rest else []

    def _cut(self, at: int) -> bytes:
        """Return the bytes up to an offset, and forget them."""
        size = at - self._at
        octets = bytes(self._kept[:size])
        del self._kept[:size]
        self._at = at
        return octets

    def _take(self, event: object, at: int, events: list[Event]) -> None:
        assert self._parser is not None
        if event is HEARTBEAT:
            self._beats = at
            return
        self._add_beats(events)
        start = self._at
        octets = self._cut(at)
        if isinstance(event, Frame):
            version = self._parser.version
            body: bytes | None = event.body
            if body is None:
                self._streamed, self._head = Place(event, start, at, at + 1, version, b""), octets
                events.append(Raw(octets))
                return
            size = len(body)
            place = Place(event, start, at - 1 - size, at, version, body[:_BEGIN])
            events.append(Passed(place, octets[: place.body - start], octets))
            if event.command == "CONNECTED":
                self._follow(version_after(event))
        elif self._streamed is not None:
            self._stream(event, at, octets, events)

    def _add_beats(self, events: list[Event]) -> None:
        if self._beats > self._at:
            events.append(Beats(self._cut(self._beats)))

    def _stream(self, event: object, at: int, octets: bytes, events: list[Event]) -> None:
        place = self._streamed
        assert place is not None
        if octets:
            events.append(Raw(octets))
        if event is END_OF_BODY:
            events.append(Passed(place._replace(end=at), self._head, b""))
            self._streamed, self._head = None, b""
        elif len(place.begin) < _BEGIN:
            assert isinstance(event, bytes)
            self._streamed = place._replace(begin=(place.begin + event[:_BEGIN])[:_BEGIN])

    def _fail(self, error: FrameError) -> Foreign:
        start, begin = self._at, bytes(self._kept[:_BEGIN])
        if self._streamed is not None:
            start, begin = self._streamed.start, self._head[:_BEGIN]
        version = None if self._parser is None else self._parser.version
        self.broken = Broken(error, start, None, version, begin)
        octets = self._cut(self.fed)
        self.foreign += len(octets)
        self._parser = self._streamed = None
        self._head = b""
        return Foreign(self.broken, octets)


class Exchange:
    """Both directions of a connection, in the version that the broker has chosen.

    >>> exchange = Exchange()
    >>> _ = exchange.feed("broker", b"CONNECTED\\nversion:1.1\\n\\n\\0")
    >>> exchange.feed("client", b"ACK\\nmessage-id:7\\nsubscription:0\\n\\n\\0")[0].place.version
    '1.1'
    """

    def __init__(self, keep: int = KEEP) -> None:
        self.sides: dict[Direction, Observer] = {
            "client": Observer(keep=keep),
            "broker": Observer(self._follow, keep),
        }

    def feed(self, direction: Direction, data: bytes) -> list[Event]:
        """Take bytes of a direction, as `Observer.feed` does."""
        return self.sides[direction].feed(data)

    def end(self, direction: Direction) -> list[Event]:
        """Note the end of a direction, as `Observer.end` does."""
        return self.sides[direction].end()

    def _follow(self, version: str | None) -> None:
        for side in self.sides.values():
            side.set_version(version)
