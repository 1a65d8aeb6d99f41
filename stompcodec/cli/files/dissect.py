"""Dissection of packets: finds the STOMP frames in both directions of each TCP connection, with their times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address
from typing import Any, NamedTuple

from stompcodec import Frame, FrameError, Limits, Parser
from stompcodec.cli.files.pcapng import Packet
from stompcodec.cli.files.tcp import Flow, Segment, segment_of
from stompcodec.cli.reader import Broken, Place, version_after
from stompcodec.errors import ERROR_KINDS, moved
from stompcodec.spec import dialect_of

_KNOWN = dialect_of("1.2").commands
_NAMES = "|".join(sorted(_KNOWN)).encode()
_BEGIN = re.compile(rb"[\r\n]*(?:%s) *\r?\n" % _NAMES)
_LATER = re.compile(rb"\0[\r\n]*(?=(?:%s) *\r?\n)" % _NAMES)
#: Bytes examined to decide whether a direction begins with STOMP, and kept while searching for a frame.
_LOOK = 300
_LONGEST = max(map(len, _KNOWN)) + 3
#: Bytes kept of a broken frame.
_HEAD = 256
Found = tuple[int, Frame]


class Seen(NamedTuple):
    """A frame or broken frame found in one direction of a connection."""

    time: int
    """Time of the packet that completed it, in µs since 1970, UTC; 0 if unknown."""
    flow: str
    """The direction, as in "10.0.0.1:50000 to 10.0.0.2:61613"."""
    found: Place | Broken
    """Its offsets are bytes from the first captured one of the direction, not counting missing ones."""
    octets: bytes
    """The bytes of the frame, or the first ones of a broken frame."""


Piece = tuple[Place | Broken, bytes]


class _Direction:
    """One direction of a conversation. `say` is called once with the first problem."""

    def __init__(self, new_parser: Callable[[], Parser], say: Callable[[str], object]) -> None:
        self.flow = Flow()
        self.parser: Parser | None = None
        self.other = False  # not STOMP
        self.ended = False
        self._new_parser = new_parser
        self._say = say
        self._said = False
        self._held = b""
        self._searching = False
        self._fed = 0  # bytes captured
        self._base = 0  # start of the parser's stream
        self._at = 0  # end of the frames returned so far
        self._kept = bytearray()  # the bytes from `_at` on, while there is a parser

    def restart(self) -> None:
        """Begin a new connection with the same addresses."""
        self.parser, self.other, self._held, self._searching = None, False, b"", False
        self._fed = 0

    def feed(self, data: bytes | None, whole: bool) -> Iterator[Piece]:
        """Yield frames and broken frames. `whole`: the direction was captured from its first byte on."""
        if data is None:
            if self.parser is not None:
                self._complain("bytes are missing")
            self._search()
            return
        self._fed += len(data)
        if self.other:
            return
        if self.parser is None:
            data = self._find(data, whole)
        while data and self.parser is not None:
            self._kept += data
            try:
                for event in self.parser.feed(data):
                    octets, version = self._taken(self.parser), self.parser.version
                    if isinstance(event, Frame):
                        end, size = self._at, len(event.body)
                        place = Place(event, end - len(octets), end - 1 - size, end, version, event.body)
                        yield place, octets
                return
            except FrameError as error:
                failure = error
            self._complain(f"{failure.kind}: {ERROR_KINDS[failure.kind].what}")
            yield self._broken(failure, self.parser.version)
            data = bytes(self._kept)  # the frames before it were yielded
            self._search()
            data = self._find(data, whole)

    def _taken(self, parser: Parser) -> bytes:
        """Return the bytes of the latest event. A lenient parser skips NULs before it."""
        size = len(self._kept) - parser.buffered
        octets = bytes(self._kept[:size])
        del self._kept[:size]
        self._at += size
        return octets.lstrip(b"\0")

    def _broken(self, error: FrameError, version: str | None) -> Piece:
        assert error.offset is not None
        head = bytes(self._kept)
        start = self._at + len(head) - len(head.lstrip(b"\r\n"))
        head = head.lstrip(b"\r\n")[:_HEAD]
        return Broken(moved(error, self._base), start, None, version, head), head

    def _search(self) -> None:
        self.parser, self._searching, self._held = None, True, b""

    def _find(self, data: bytes, whole: bool) -> bytes:
        """Start a parser at the next frame, and return the bytes from there on."""
        data = self._held + data
        if not self._searching and _BEGIN.match(data):
            return self._found(data)
        self._searching = self._searching or not whole
        if not self._searching:
            self._held = data
            # Without EOLs, a possible beginning of a command line.
            rest = data.strip(b"\r\n ")
            self.other = len(data) > _LOOK or not any(name.encode().startswith(rest[:_LONGEST]) for name in _KNOWN)
            if self.other:
                self._held = b""
            return b""
        match = _LATER.search(data)
        if match:
            return self._found(data[match.end() :])
        self._held = data[-_LOOK:]
        return b""

    def _found(self, data: bytes) -> bytes:
        self.parser, self._held, self._searching = self._new_parser(), b"", False
        self._base = self._at = self._fed - len(data)
        self._kept.clear()
        return data

    def _complain(self, text: str) -> None:
        if not self._said:
            self._said = True
            self._say(text)


class _TcpConversation:
    """Both directions of a TCP connection."""

    def __init__(self, dissection: Dissection, segment: Segment) -> None:
        first, second = (f"{_host(address)}:{port}" for address, port in (segment.source, segment.target))
        self._dissection = dissection
        self.names = {segment.source: f"{first} to {second}", segment.target: f"{second} to {first}"}
        self.version: str | None = None
        self.whole = {segment.source: False, segment.target: False}
        self.sides = {source: self._side(name) for source, name in self.names.items()}

    def _side(self, name: str) -> _Direction:
        dissection = self._dissection
        return _Direction(
            lambda: Parser(self.version, heartbeats=True, **dissection.options),
            lambda text: dissection.problem(f"{name}: {text}"),
        )

    @property
    def over(self) -> bool:
        return all(side.ended for side in self.sides.values())

    def feed(self, segment: Segment, time: int) -> Iterator[Seen]:
        side = self.sides[segment.source]
        if segment.syn:
            side.flow.start(segment.number)
            side.restart()
            self.whole[segment.source] = True
            return
        yield from self._seen(segment.source, side.flow.feed(segment.number, segment.data), time)
        if segment.fin or segment.rst:
            side.ended = True
            if segment.rst:
                for each in self.sides.values():
                    each.ended = True

    def _seen(self, source: tuple[bytes, int], pieces: Iterable[bytes | None], time: int) -> Iterator[Seen]:
        side = self.sides[source]
        for piece in pieces:
            for found, octets in side.feed(piece, self.whole[source]):
                yield Seen(time, self.names[source], found, octets)
                # packets out of order may make CONNECT seem later
                if isinstance(found, Place) and found.frame.command == "CONNECTED":
                    self._follow(found.frame)

    def _follow(self, frame: Frame) -> None:
        if self._dissection.auto:
            self.version = version_after(frame)
            for side in self.sides.values():
                if side.parser is not None:
                    side.parser.version = self.version

    def rest(self, time: int) -> Iterator[Seen]:
        """Yield the frames that were waiting for missing bytes."""
        for source, side in self.sides.items():
            yield from self._seen(source, side.flow.end(), time)


def _host(address: bytes) -> str:
    text = str(ip_address(address))
    return f"[{text}]" if ":" in text else text


class Dissection:
    """A finder of frames in packets; it goes on after a problem. Options as for `FrameReader`."""

    def __init__(
        self,
        problem: Callable[[str], object],
        version: str = "auto",
        *,
        lenient: bool = False,
        limits: Limits | None = None,
        commands: tuple[str, ...] = (),
    ) -> None:
        self.problem = problem
        self.auto = version == "auto"
        self._version = None if self.auto else version
        self.options: dict[str, Any] = {"lenient": lenient, "limits": limits, "commands": commands}
        self._conversations: dict[frozenset[tuple[bytes, int]], _TcpConversation] = {}

    def frames(self, packets: Iterable[Packet]) -> Iterator[Found]:
        """Yield time in µs (0 if unknown) and frame, in the order of completion."""
        for each in self.seen(packets):
            if isinstance(each.found, Place):
                yield each.time, each.found.frame

    def seen(self, packets: Iterable[Packet]) -> Iterator[Seen]:
        """Yield frames and broken frames with their bytes and directions."""
        time = 0
        for packet in packets:
            time = packet.time
            segment = segment_of(packet.link, packet.data)
            if segment is not None:
                yield from self._conversation(segment).feed(segment, time)
        for talk in self._conversations.values():
            yield from talk.rest(time)

    def _conversation(self, segment: Segment) -> _TcpConversation:
        key = frozenset((segment.source, segment.target))
        talk = self._conversations.get(key)
        if talk is None or (segment.syn and talk.over) or segment.source not in talk.sides:
            talk = self._conversations[key] = _TcpConversation(self, segment)
            talk.version = self._version
        return talk
