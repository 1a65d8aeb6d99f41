"""Heads are read by blocks of 64 bytes: whatever a line has, it may have at any place of a block."""

from __future__ import annotations

from typing import Any

import pytest
from codec.lockstep import run

from stompcodec.spec import Limits

BLOCK = 64
#: Every place of a block, and those around the borders of the first blocks.
PLACES = (*range(BLOCK + 3), *range(2 * BLOCK - 6, 2 * BLOCK + 3))
#: Header lines; {} is padding of any length.
LINES = {
    "a line": b"{}a:\nid:1",
    "a line behind another": b"x:{}\na:\nid:1",
    "a colon behind a name": b"b{}:value\nid:1",
    "a line without a colon": b"{}b\nid:1",
    "a line without a colon, the last": b"{}b",
    "an empty name": b"x:{}\n:value\nid:1",
    "two colons": b"x:{}\nx:y:z\nid:1",
    "a colon in a value": b"x:{}:\nid:1",
    "CR LF": b"x:{}\r\nx:y\r\nid:1\r",
    "CR in a value": b"x:{}\ry\nid:1",
    "two CR": b"x:{}\r\r\nid:1",
    "CR LF, a name": b"x{}\r\nid:1",
    "escapes": b"x:{}\\c\\\\\\n\nid:1",
    "escapes in a name": b"{}\\c\\\\\\n:x\nid:1",
    "two backslashes": b"x:{}\\\\\\\\c\nid:1",
    "a bad escape": b"x:{}\\q\nid:1",
    "a backslash at a line's end": b"x:{}\\\nid:1",
    "UTF-8": "x:{}é東\nid:ß".encode(),
    "not UTF-8": b"x:{}\xe6\x9d\nid:1",
    "UTF-8 over a colon": b"{}\xe6:\x9d\x9d\nid:1",
    "UTF-8 and a length": "x:{}é\ncontent-length:3\nid:ß".encode(),
    "not UTF-8, then a length": b"x:{}\xe6\x9d\ncontent-length:3\nid:1",
    "a length, then not UTF-8": b"content-length:3\nx:{}\xe6\x9d\nid:1",
    "a length in a line that is not UTF-8": b"x:{}\ncontent-length:3\xff\nid:1",
    "a NUL": b"x:{}\0y\nid:1",
    "a length": b"x:{}\ncontent-length:3\nid:1",
    "a length, then others": b"content-length:3\nx:{}\ncontent-length:x\nid:1",
    "a name like content-length": b"x:{}\ncontent-lengtg:3\nid:1",
    "a bad length": b"x:{}\ncontent-length:+3\nid:1",
    "a long length": b"x:{}\ncontent-length:0000000003\nid:1",
    "short lines": b"x:{}\n" + b"a:\n" * 40 + b"id:1",
}


def streams(lines: bytes, padding: int) -> list[bytes]:
    """Return a frame of these lines: as the last one that was read, and before others."""
    frame = b"SEND\n" + lines.replace(b"{}", b"p" * padding) + b"\n\nabc\0"
    return [frame, frame + b"\n" + frame, frame + b"SEND\nx:" + b"y" * 2 * BLOCK + b"\n\n\0"]


@pytest.mark.c_only
@pytest.mark.parametrize("version", ["1.2", "1.1", "1.0", None])
@pytest.mark.parametrize("name", LINES)
def test_backends_agree_wherever_a_line_lies(both: Any, name: str, version: str | None) -> None:
    c, py = both
    for place in PLACES:
        for data in streams(LINES[name], place):
            for chunks in ([data], [data[:BLOCK], data[BLOCK:]]):
                assert run(c, chunks, version=version) == run(py, chunks, version=version), (place, chunks)


@pytest.mark.c_only
@pytest.mark.parametrize("most", [*range(5), 31, 32, 33, 63, 64, 65])
def test_the_limits_of_lines_hold_within_blocks(both: Any, most: int) -> None:
    """Many lines end in one block, at any limit of their number; a line of any length crosses its limit."""
    c, py = both
    for count in range(max(most - 2, 0), most + 3):
        many = b"SEND\n" + b"a:\n" * count + b"\n\0"
        long = b"SEND\na:1\nb:" + b"y" * count + b"\nc:1\n\n\0"
        for data in (many, long, many + b"\n" * 2 * BLOCK, long + b"\n" * 2 * BLOCK):
            for limits in (Limits(max_headers=most), Limits(max_header_line=most)):
                assert run(c, [data], limits=limits) == run(py, [data], limits=limits), (count, limits)
