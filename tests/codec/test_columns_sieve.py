"""Frames that fail a condition are told before their heads are taken apart: that changes neither rows nor errors,
whatever a head has, wherever it lies, and wherever the data ends."""

from __future__ import annotations

import random
from typing import Any

import pytest
from codec.test_blocks import LINES
from codec.test_columns import taken

from stompcodec.spec import Limits

pytest.importorskip("pyarrow")

#: Conditions that most frames fail, on headers that come early or late, have many entries or none.
CONDITIONS = {
    "a name of one byte": ("x", "in", ["none"]),
    "a name of one byte, which often begins so": ("x", "prefix", ["p"]),
    "no value": ("a", "in", [""]),
    "the last line": ("id", "in", ["1", "\u00df"]),
    "a longer name": ("destination", "in", ["/queue/\u00e9", "/queue/b", "a:b"]),
    "content-length": ("content-length", "in", ["3"]),
    "a name of 63 bytes": ("n" * 63, "in", ["1"]),
    "a name of 64 bytes": ("n" * 64, "in", ["1"]),
    "a name with an escape": ("n:", "in", ["1"]),
}
OTHER = b"MESSAGE\ndestination:/queue/a\nx:p\nsubscription:0\ncontent-length:5\n\na\0b\0c\0\n"
PLACES = (0, 1, 20, 43, 44, 45, 46, 47, 48, 49, 50, 51, 55, 60, 64)


def read(codec: Any, data: bytes, where: Any, **options: Any) -> tuple[Any, ...]:
    columns = codec.parse_columns(data, where=[where], columns=["offset", "length", "error"], **options)
    return columns.rows, columns.consumed, columns.error, taken(columns)


@pytest.mark.c_only
@pytest.mark.parametrize("name", LINES)
def test_backends_agree_wherever_a_line_lies(both: Any, name: str) -> None:
    c, py = both
    dice = random.Random(name)
    for place in PLACES:
        frame = b"SEND\n" + LINES[name].replace(b"{}", b"p" * place) + b"\n\nabc\0"
        for condition in dice.sample(sorted(CONDITIONS), 3):
            for data in (frame + OTHER * 2, OTHER + frame + OTHER):
                where = CONDITIONS[condition]
                assert read(c, data, where) == read(py, data, where), (place, condition, data)


@pytest.mark.c_only
@pytest.mark.parametrize("condition", CONDITIONS)
def test_backends_agree_on_values(both: Any, condition: str) -> None:
    """The header of the condition at many places, with values that are wanted, nearly so, or so behind an escape."""
    c, py = both
    where = CONDITIONS[condition]
    name = where[0].replace(":", "\\c")
    values = [*where[2], "none", "nonesuch", "non", "no\\\\ne", "a\\cb", "\u6771", "y" * 70, "3"]
    for value in values:
        for place in range(0, 70, 6):
            line = f"y:{'p' * place}\n{name}:{value}\n{name}:{where[2][0]}\n".encode()
            data = b"".join((OTHER, b"SEND\n" + line + b"\nabc\0", OTHER, OTHER))
            assert read(c, data, where) == read(py, data, where), (place, value)


@pytest.mark.c_only
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_backends_agree_however_many_frames_fail(both: Any, share: float) -> None:
    c, py = both
    dice = random.Random(4711)
    data = b"".join(OTHER if dice.random() < share else OTHER.replace(b"/a", b"/b") for _ in range(400))
    for end in (b"", b"ACK\nid:\\q\n\n\0" + OTHER):
        where = CONDITIONS["a longer name"]
        got = read(c, data + end, where)
        assert got == read(py, data + end, where)
        assert got[0] == data.count(b"/b") + bool(end)


@pytest.mark.c_only
@pytest.mark.parametrize("most", range(30, 80))
def test_limits_hold_for_frames_that_make_no_row(both: Any, most: int) -> None:
    c, py = both
    data = OTHER + b"SEND\n" + b"a:\n" * 55 + b"b:" + b"y" * 52 + b"\n\n" + b"b" * 54 + b"\0" + OTHER * 2
    for limits in (Limits(max_headers=most), Limits(max_header_line=most), Limits(max_body=most)):
        where = CONDITIONS["a longer name"]
        assert read(c, data, where, limits=limits) == read(py, data, where, limits=limits), limits
