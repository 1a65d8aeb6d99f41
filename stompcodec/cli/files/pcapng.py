"""A reader of packet captures from Wireshark, tcpdump and similar tools: pcapng, and the older pcap.

The input is not trusted: an impossible block size ends the reading, and is reported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
        """Return this many bytes, or fewer at the end."""
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
    """Yield the packets of the rest of a pcap file."""
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
