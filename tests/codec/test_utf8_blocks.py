"""UTF-8 of header lines is checked in blocks: wherever a character lies in a line, and wherever the stream is cut."""

from __future__ import annotations

import itertools

import pytest
from codec.lockstep import answers_of

#: Surrogates, overlong forms, bytes that never occur, and cut characters.
ILL_FORMED = (
    *(b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe2\x82", b"\xe2"),
    *(
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x80\x80\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf0\x9f\x98",
        b"\xf0\x9f",
        b"\xf0",
    ),
    *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe"),
)
TAIL = b"\nlast:\\c\n\n" + b"\xff" * 70 + b"\0"  # a body, which need not be UTF-8


def head(*lines: bytes) -> bytes:
    return b"MESSAGE\n" + b"\n".join(lines) + TAIL


def offset_of(wire: bytes, line: bytes) -> int:
    """The offset of the first ill-formed sequence of a line, as Python's decoder reports it."""
    with pytest.raises(UnicodeDecodeError) as info:
        line.decode()
    return wire.index(line) + info.value.start


def is_utf8(line: bytes) -> bool:
    return line.decode(errors="replace").encode() == line


@pytest.mark.req("S12-UTF-01")
@pytest.mark.parametrize("bad", ILL_FORMED)
def test_ill_formed_at_every_place(codec, bad):
    for before in range(70):
        for size, character in enumerate("x\xe9\u6771", 1):
            line = b"name:" + (character * (before // size) + "x" * (before % size)).encode() + bad
            for after in (b"", b"y"):
                wire = head(b"first:1", line + after)
                want = ("error", "invalid-utf8", offset_of(wire, line + after), None)
                assert answers_of(codec, wire) == [want], (before, character)


@pytest.mark.req("S12-UTF-01")
@pytest.mark.parametrize("place", [3, 17, 49])
def test_leads_with_second_bytes_around_each_border(codec, place):
    leads = b"\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xf7\xf8\xff"
    seconds = b"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xf4"
    for lead, second, more in itertools.product(leads, seconds, (b"", b"\x80", b"\x80\x80")):
        line = b"name:" + b"x" * place + bytes((lead, second)) + more
        wire = head(b"first:1", line)
        (answer, *_) = answers_of(codec, wire)
        if is_utf8(line):
            assert answer[0] == "frame", line
        else:
            assert answer == ("error", "invalid-utf8", offset_of(wire, line), None)
