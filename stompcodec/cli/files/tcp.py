"""TCP reassembly: the bytes of each direction of each connection, in order and without repetition."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

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
    """Return the TCP segment in a packet; None if there is none, or its header is cut off."""
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
    """Return the IP packet in a link-layer packet, or b""."""
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

    @property
    def begun(self) -> bool:
        return self._next is not None

    def start(self, number: int) -> None:
        """Note a SYN: bytes are counted from here."""
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
        """Yield the waiting bytes at the end, with None for each gap."""
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
        """Give up waiting for missing bytes."""
        self._next = min(self._waiting, key=self._ahead)
        yield None
        yield from self._drain()
