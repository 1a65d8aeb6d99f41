"""One input of a fuzz target: four octets that choose the options, then what comes over the wire.

octet 0   version, lenient, heartbeats, commands
octet 1   limits
octet 2   stream_over; whether the version changes with the frames
octet 3   how the octets are cut and fed: a seed, 0 for all at once
the rest  the wire, in which 0xff 0xfe N C stands for 2 * N * N octets C, so that a small input makes a large frame
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import engine  # noqa: F401 - it has to come before stompcodec

from stompcodec.spec import Limits

VERSIONS = ("1.2", "1.1", "1.0", "legacy", None)
#: Small numbers, so that short inputs reach each limit and pass it by one. The last is the default.
LIMITS = (
    Limits(max_command_line=7, max_header_line=24, max_headers=3, max_body=12),
    Limits(max_command_line=4, max_header_line=8, max_headers=1, max_body=0),
    Limits(max_command_line=0, max_header_line=0, max_headers=0, max_body=1),
    Limits(max_command_line=16, max_header_line=64, max_headers=2, max_body=100),
    Limits(max_command_line=9, max_header_line=17, max_headers=40, max_body=5),
    Limits(max_command_line=64, max_header_line=16, max_headers=8, max_body=3000),
    Limits(max_command_line=300, max_header_line=150, max_headers=70, max_body=70000),
    Limits(),
)
STREAM_OVER = (None, None, 0, 1, 4, 30, 2000, 2**70)
COMMANDS = ((), ("PING", "caf\xe9"))
HEAD = 4  # octets before the wire
MOST = 1 << 18  # octets of the wire: more only takes time

_STRETCH = re.compile(rb"\xff\xfe(.)(.)", re.DOTALL)


class Case(NamedTuple):
    """An input, read."""

    options: dict[str, Any]
    """Arguments of Parser."""
    plan: int
    """Seed of the cuts; 0: all at once."""
    switches: bool
    """The version is set anew behind every frame."""
    wire: bytes


def case_of(data: bytes) -> Case:
    """Read an input; every octet string is one.

    >>> case_of(bytes([0, 7, 0, 0]) + b"SEND").wire
    b'SEND'
    """
    how, limits, stream, plan = data[:HEAD].ljust(HEAD, b"\0")
    wire = data[HEAD:]
    if b"\xff\xfe" in wire:
        wire = _STRETCH.sub(_stretched, wire)[:MOST]
    options = {
        "version": VERSIONS[how % 5],
        "lenient": how // 5 % 2 == 1,
        "heartbeats": how // 10 % 2 == 1,
        "commands": COMMANDS[how // 20 % 2],
        "limits": LIMITS[limits % 8],
        "stream_over": STREAM_OVER[stream % 8],
    }
    return Case(options, plan, stream // 8 % 8 == 1, wire)


def data_of(version: str | None, wire: bytes, *, lenient: bool = False, plan: int = 0) -> bytes:
    """The input that reads as this; with the default limits, and with heart-beats where it is lenient."""
    how = VERSIONS.index(version) + 5 * lenient + 10 * lenient
    return bytes((how, len(LIMITS) - 1, 0, plan)) + wire


def _stretched(match: re.Match[bytes]) -> bytes:
    return match[2] * (2 * match[1][0] ** 2)


def rolls(seed: int) -> Iterator[int]:
    """Numbers from 0 to 255 that depend on the seed alone."""
    state = seed * 2654435761 + 1
    while True:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        yield state >> 16 & 255


_SIZES = (0, 1, 1, 2, 3, 5, 8, 17, 63, 64, 65, 200, 1000, 4096, 5000, 70000)


def pieces(wire: bytes, plan: int) -> Iterator[bytes]:
    """The wire, cut as the plan says; some pieces are empty."""
    if plan == 0 or not wire:
        yield wire
        return
    at, roll = 0, rolls(plan)
    # Long wires get no tiny pieces, which would only take time.
    least = 0 if len(wire) < 600 else len(wire) // 200
    while at < len(wire):
        size = max(_SIZES[next(roll) % 16], least)
        yield wire[at : at + size]
        at += size


def feed(parser: Any, piece: bytes, roll: int, between: Callable[[], object] | None = None) -> Any:
    """Give a piece to a parser in one of the ways there are; the iterator comes back. `between` is called while a
    buffer is lent."""
    if roll < 96:
        return parser.feed(piece)
    if roll < 128:
        return parser.feed(bytearray(piece))
    if roll < 160:
        return parser.feed(memoryview(b"<" + piece + b">")[1:-1])
    while True:
        room = parser.get_buffer(len(piece) if roll % 2 else -1)
        size = min(len(room), len(piece))
        if between and roll > 210:
            between()
        if roll % 4 == 0:
            with suppress(ValueError):
                parser.buffer_updated(len(room) + 1)
                raise AssertionError("more than the room was taken")
        room[:size] = piece[:size]
        piece = piece[size:]
        parser.buffer_updated(size)
        if not piece:
            return parser
