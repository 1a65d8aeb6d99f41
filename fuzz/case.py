"""What all fuzz targets share: atheris (libFuzzer), one input of theirs, and its seeds.

    fuzz_NAME.py [libFuzzer options] [CORPUS ...]     a FILE instead of a folder is run once

This is imported before stompcodec, whose Python code then reports its coverage, and before modules of the tests, which
are found by it. Without atheris a target can be imported and its check called, but not driven.

An input is four octets that choose the options, then what comes over the wire:

octet 0   version, lenient, heartbeats, commands
octet 1   limits
octet 2   stream_over; whether the version changes with the frames
octet 3   how the octets are cut and fed: a seed, 0 for all at once
the rest  the wire, in which 0xff 0xfe N C stands for 2 * N * N octets C, so that a small input makes a large frame
"""

from __future__ import annotations

import base64
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.append(str(TESTS))
if find_spec("atheris"):
    import atheris

    with atheris.instrument_imports(include=["stompcodec"]):
        for name in ("_codec_py", "connection", "transport.websocket", "broker.core", "broker.selectors"):
            with suppress(ImportError):  # some of it needs extras
                import_module(f"stompcodec.{name}")

from run_vectors import load
from run_vectors import wire as wire_of

from stompcodec.spec import CLIENT_1_1, SERVER, Limits

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
    """An input, read: arguments of Parser, the seed of the cuts (0: all at once), whether the version is set anew
    behind every frame, and the wire."""

    options: dict[str, Any]
    plan: int
    switches: bool
    wire: bytes


def case_of(data: bytes) -> Case:
    """Read an input; every octet string is one."""
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


def _stretched(match: re.Match[bytes]) -> bytes:
    return match[2] * (2 * match[1][0] ** 2)


def rolls(seed: int) -> Iterator[int]:
    """Numbers from 0 to 255 that depend on the seed alone."""
    dice = random.Random(seed)
    while True:
        yield from dice.randbytes(64)


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


def drive(check: Callable[[bytes], object]) -> None:
    """Run a check, which raises where its invariant does not hold, on as many inputs as the command line asks for."""
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


# ---- seeds ----

#: Octets of a seed at most: large ones only slow a fuzzer down, and `case_of` can stretch small ones.
LARGE = 4096
#: With the headers that decide.
SELECTORS = (
    "color = 'red' AND n > 9\ncolor:red\nn:10",
    "(a = 'x' OR b LIKE 'q%') AND c IN ('1', '2')\na:x\nc:2",
    "NOT (n BETWEEN 1 AND 2 OR n NOT IN (3, 4.5e1)) AND s IS NOT NULL\nn:3\ns:null",
    "s LIKE '%a!_b_%' ESCAPE '!' OR \"content-type\" <> 'it''s'\ns:xa_bc\ncontent-type:text/plain",
    "- n * (2 + 0x1F) / 017 >= -1.5e3 - AMQSize AND flag = TRUE\nn:7\nflag:true",
    "convert_string_expressions:n > '9' AND JMSRedelivered\nn:10",
    "hyphenated_props:content-type = 'a' AND JMSPriority < 5\ncontent-type:\"a\"",
)
#: Words of the wire for libFuzzer: lines of a frame, and others.
LINES = (
    *(*CLIENT_1_1, *SERVER, "PING", "send", "SEND\r", "", "\r", "a:b", "a:\n" * 16, ":b", "a", "content-length: 2 "),
    *(f"content-length:{number}" for number in ("0", "1", "5", "9999999999999999999999", str(2**64), "-1", "+1")),
    *("Content-Length:3", "content-type:text/plain;charset=utf-16", "content-encoding:gzip,base64"),
    *("destination:/queue/a", "heart-beat:0,0", "passcode:x"),
)
OTHERS = (
    b"\n\n\0|\r\n\r\n\0|\n\0|\0\n|\r|\0|:| |\t|\\n|\\r|\\c|\\\\|\\t|\\|\xc3\xa9|\xe2\x82\xac|\xf0\x9d\x84\x9e"
    b"|\xed\xa0\x80|\xc0\x80|\xf4\x90\x80\x80|\xff\xfe\x10a|\xff\xfe\x30b|\xff\xfe\xb6:|\xff\xfe\x40\n"
).split(b"|")


def dictionary() -> str:
    """Return the words as libFuzzer reads them."""
    words = (word.hex() for word in [*(f"{line}\n".encode() for line in LINES), *OTHERS])
    return "".join('"' + re.sub("..", r"\\x\g<0>", word) + '"\n' for word in words)


def seeds() -> list[bytes]:
    """Return the wires of all conformance vectors, each in the version and mode that it is meant for."""
    found = set()
    for number, (_, vector) in enumerate(load([TESTS / "vectors"])):
        written = base64.b64decode(vector.get("expect_wire_b64") or "")
        wire = wire_of(vector) if {"wire_parts", "wire_b64"} & vector.keys() else written
        if wire and len(wire) <= LARGE:
            how = VERSIONS.index(None if vector["version"] == "none" else vector["version"])
            strict, lenient = (how, 7, 0, 0), (how + 15, 7, 0, number * 37 % 256)  # with heart-beats
            found |= {bytes(strict) + wire, bytes(lenient) + wire}
    return sorted(found)


def selector_seeds() -> list[bytes]:
    """Return inputs in the form of `fuzz_selector.py`."""
    chosen = [bytes([how, 0, 0, 0]) + bytes(range(how, 256, 5)) for how in range(1, 4)]
    return [*chosen, *(bytes(4) + text.encode() + b"\n" for text in SELECTORS)]
