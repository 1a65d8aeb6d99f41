"""STOMP in packets, layer by layer: pcap and pcapng, TCP put together, WebSocket and frames in it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address
from typing import Any, NamedTuple

from stompcodec import Frame, FrameError, Limits, Parser
from stompcodec.cli.inputs import Broken, Place, version_after
from stompcodec.errors import ERROR_KINDS, moved
from stompcodec.spec import dialect_of
from stompcodec.transport.owner import name_of

_SECTION, _INTERFACE, _PACKET, _SIMPLE = 0x0A0D0D0A, 1, 6, 3
_ORDER = 0x1A2B3C4D
#: Byte order and digits of the fraction, by the magic number of pcap.
_OLD = {
    b"\xd4\xc3\xb2\xa1": ("<", 6),
    b"\xa1\xb2\xc3\xd4": (">", 6),
    b"\x4d\x3c\xb2\xa1": ("<", 9),
    b"\xa1\xb2\x3c\x4d": (">", 9),
}
#: Largest block that is read, in bytes. No packet is larger.
_LARGEST = 2**20
_PIECE = 64 * 1024
_TIME_UNIT, _TIME_OFFSET = 9, 14


class Packet(NamedTuple):
    """A captured packet."""

    time: int
    """In µs since 1970, UTC; 0 if unknown."""
    link: int
    """The link type (LINKTYPE), such as 1 for Ethernet."""
    data: bytes


class _Interface(NamedTuple):
    link: int
    unit: int
    offset: int

    def micros(self, ticks: int) -> int:
        """Return a time in µs. The highest bit of the unit distinguishes powers of 2 and 10."""
        parts = 2 ** (self.unit & 127) if self.unit & 128 else 10**self.unit
        time = ticks * 10**6 // parts + self.offset * 10**6
        return time if 0 <= time < 2**62 else 0


class _Broken(Exception):
    """Raised for a damaged file."""


def is_packets(begin: bytes) -> bool:
    """Return whether a file with this beginning holds packets.

    >>> is_packets(bytes.fromhex("0a0d0d0ab8000000 4d3c2b1a")), is_packets(b"\\n\\r\\r\\nSEND\\n\\n\\0")
    (True, False)
    """
    return begin[:4] in _OLD or (begin[:4] == b"\n\r\r\n" and begin[8:12] in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"))


def packets(read: Callable[[int], bytes], problem: Callable[[str], object]) -> Iterator[Packet]:
    """Yield the packets of a file, up to the first problem. `read` returns up to this many bytes, b"" at the end.

    >>> list(packets(lambda size: b"", print))
    it holds no packets
    []
    """
    source = _Source(read)
    begin = source.take(4)
    try:
        if begin in _OLD:
            yield from _old(source, *_OLD[begin])
        elif begin == b"\n\r\r\n":
            yield from _blocks(source)
        else:
            problem("it holds no packets")
    except _Broken as error:
        problem(f"octet {source.at}: {error}")


class _Source:
    """Reads bytes in order, allocating no more than there are."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self.at = 0

    def take(self, size: int) -> bytes:
        parts = []
        while size > 0:
            data = self._read(min(size, _PIECE))
            if not data:
                break
            parts.append(data)
            size -= len(data)
            self.at += len(data)
        return b"".join(parts)

    def exactly(self, size: int) -> bytes:
        data = self.take(size)
        if len(data) < size:
            raise _Broken("the file ends inside a packet")
        return data

    def skip(self, size: int) -> None:
        while size > 0:
            data = self.take(min(size, _PIECE))
            if not data:
                raise _Broken("the file ends inside a block")
            size -= len(data)


def _old(source: _Source, order: str, unit: int) -> Iterator[Packet]:
    link = struct.unpack(order + "20xI", b"\0\0\0\0" + source.exactly(20))[0] & 0xFFFF
    interface = _Interface(link, unit, 0)
    while head := source.take(16):
        if len(head) < 16:
            raise _Broken("the file ends inside a packet")
        seconds, fraction, size, _ = struct.unpack(order + "IIII", head)
        if size > _LARGEST:
            raise _Broken(f"a packet of {size} bytes is impossible")
        yield Packet(interface.micros(seconds * 10**unit + fraction), link, source.exactly(size))


def _blocks(source: _Source) -> Iterator[Packet]:
    """Yield the packets of the rest of a pcapng file, after the type of its first block."""
    order, interfaces = "<", list[_Interface]()
    kind = _SECTION
    while True:
        size_octets = source.exactly(4)
        if kind == _SECTION:
            mark = source.exactly(4)
            order = "<" if struct.unpack("<I", mark)[0] == _ORDER else ">"
            if struct.unpack(order + "I", mark)[0] != _ORDER:
                raise _Broken("a section begins without its byte-order mark")
            interfaces = []
        size = struct.unpack(order + "I", size_octets)[0] - (16 if kind == _SECTION else 12)
        if size < 0 or size % 4:
            raise _Broken("a block has an impossible size")
        if kind in (_INTERFACE, _PACKET, _SIMPLE):
            if size > _LARGEST:
                raise _Broken(f"a packet of {size} bytes is impossible")
            body = source.exactly(size)
            if kind == _INTERFACE:
                interfaces.append(_interface(body, order))
            else:
                yield from _packet(body, order, kind, interfaces)
        else:
            source.skip(size)
        source.exactly(4)  # its size again
        head = source.take(4)
        if not head:
            return
        if len(head) < 4:
            raise _Broken("the file ends inside a block")
        kind = struct.unpack(order + "I", head)[0]


def _interface(body: bytes, order: str) -> _Interface:
    if len(body) < 8:
        raise _Broken("a description of an interface is too short")
    unit, offset, at = 6, 0, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if code == _TIME_UNIT and len(value) == 1:
            unit = value[0]
        elif code == _TIME_OFFSET and len(value) == 8:
            offset = struct.unpack(order + "q", value)[0]
        elif code == 0:
            break
        at += 4 + size + -size % 4
    return _Interface(struct.unpack_from(order + "H", body)[0], unit, offset)


def _packet(body: bytes, order: str, kind: int, interfaces: list[_Interface]) -> Iterator[Packet]:
    if kind == _SIMPLE:
        if len(body) < 4 or not interfaces:
            raise _Broken("a packet has no interface")
        yield Packet(0, interfaces[0].link, body[4 : 4 + struct.unpack_from(order + "I", body)[0]])
        return
    if len(body) < 20:
        raise _Broken("a packet is too short")
    number, high, low, size, _ = struct.unpack_from(order + "IIIII", body)
    if number >= len(interfaces) or size > len(body) - 20:
        raise _Broken("a packet has no interface, or says that it is longer than it is")
    interface = interfaces[number]
    yield Packet(interface.micros(high << 32 | low), interface.link, body[20 : 20 + size])


_TCP = 6
#: Bytes and segments of a direction that may wait for a missing one.
_MOST_OCTETS, _MOST_SEGMENTS = 2**20, 1000
#: IP versions by EtherType, and the tags 802.1Q and 802.1ad, which put 4 bytes before it.
_ETHER = {0x0800: 4, 0x86DD: 6}
_TAGS = (0x8100, 0x88A8)
#: Bytes before the EtherType, by LINKTYPE.
_LINKS = {1: 12, 113: 14}
_SLL2, _NULL, _LOOP, _RAW = 276, 0, 108, (12, 101, 228, 229)
#: IPv6 headers that may precede TCP.
_EXTENSIONS = (0, 43, 60)


class Segment(NamedTuple):
    """A TCP segment."""

    source: tuple[bytes, int]
    """Address and port."""
    target: tuple[bytes, int]
    number: int
    syn: bool
    fin: bool
    rst: bool
    data: bytes


def segment_of(link: int, data: bytes) -> Segment | None:
    ip = _network(link, data)
    if not ip:
        return None
    version = ip[0] >> 4
    found = _ipv4(ip) if version == 4 else _ipv6(ip) if version == 6 else None
    if found is None:
        return None
    source, target, tcp = found
    if len(tcp) < 20:
        return None
    from_port, to_port, number, _, offset, flags = struct.unpack_from(">HHIIBB", tcp)
    head = (offset >> 4) * 4
    if head < 20:
        return None
    body = tcp[head:]
    return Segment(
        (source, from_port), (target, to_port), number, bool(flags & 2), bool(flags & 1), bool(flags & 4), body
    )


def _network(link: int, data: bytes) -> bytes:
    if link in _RAW:
        return data
    if link in (_NULL, _LOOP):
        return data[4:]
    if link == _SLL2:
        return data[20:] if data[:2] in (b"\x08\x00", b"\x86\xdd") else b""
    at = _LINKS.get(link)
    if at is None:
        return b""
    kind = int.from_bytes(data[at : at + 2], "big")
    while kind in _TAGS:
        at += 4
        kind = int.from_bytes(data[at : at + 2], "big")
    return data[at + 2 :] if kind in _ETHER else b""


def _ipv4(ip: bytes) -> tuple[bytes, bytes, bytes] | None:
    if len(ip) < 20 or ip[9] != _TCP:
        return None
    head, total = (ip[0] & 15) * 4, int.from_bytes(ip[2:4], "big")
    fragment = int.from_bytes(ip[6:8], "big") & 0x3FFF
    if head < 20 or fragment:
        return None
    return ip[12:16], ip[16:20], ip[head : total or None]  # 0 if the network card should fill it in


def _ipv6(ip: bytes) -> tuple[bytes, bytes, bytes] | None:
    if len(ip) < 40:
        return None
    kind, at, size = ip[6], 40, int.from_bytes(ip[4:6], "big")
    end = 40 + size if size else len(ip)
    while kind in _EXTENSIONS and at + 8 <= len(ip):
        kind, at = ip[at], at + 8 + ip[at + 1] * 8
    return (ip[8:24], ip[24:40], ip[at:end]) if kind == _TCP else None


class Flow:
    """One direction of a connection, with its bytes in order.

    >>> flow = Flow()
    >>> [list(flow.feed(number, data)) for number, data in ((10, b"ab"), (14, b"ef"), (11, b"bcd"), (10, b"ab"))]
    [[b'ab'], [], [b'cd', b'ef'], []]
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._waiting: dict[int, bytes] = {}
        self._octets = 0

    def start(self, number: int) -> None:
        self._next = number + 1 & 0xFFFFFFFF
        self._waiting.clear()
        self._octets = 0

    def feed(self, number: int, data: bytes) -> Iterator[bytes | None]:
        """Yield the bytes that can be read now, and None for a gap that will not be filled."""
        if not data:
            return
        if self._next is None:
            self._next = number
        if self._ahead(number) > 0:
            if len(data) > len(self._waiting.get(number, b"")):
                self._octets += len(data) - len(self._waiting.get(number, b""))
                self._waiting[number] = data
            if self._octets > _MOST_OCTETS or len(self._waiting) > _MOST_SEGMENTS:
                yield from self._jump()
            return
        yield from self._deliver(number, data)
        yield from self._drain()

    def end(self) -> Iterator[bytes | None]:
        while self._waiting:
            yield from self._jump()

    def _ahead(self, number: int) -> int:
        assert self._next is not None
        distance = number - self._next & 0xFFFFFFFF
        return distance - 2**32 if distance >= 2**31 else distance

    def _deliver(self, number: int, data: bytes) -> Iterator[bytes]:
        assert self._next is not None
        new = data[-self._ahead(number) :]
        if new:
            self._next = self._next + len(new) & 0xFFFFFFFF
            yield new

    def _drain(self) -> Iterator[bytes]:
        while self._waiting:
            number = min(self._waiting, key=self._ahead)
            if self._ahead(number) > 0:
                return
            data = self._waiting.pop(number)
            self._octets -= len(data)
            yield from self._deliver(number, data)

    def _jump(self) -> Iterator[bytes | None]:
        self._next = min(self._waiting, key=self._ahead)
        yield None
        yield from self._drain()


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
        first, second = (name_of((str(ip_address(at)), port)) for at, port in (segment.source, segment.target))
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
        for source, side in self.sides.items():
            yield from self._seen(source, side.flow.end(), time)


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
