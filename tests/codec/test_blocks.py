"""Heads are read by blocks of 64 bytes: what a line has may be at any place, in reads of any size, on both backends."""

import itertools

import pytest
from codec.lockstep import answers_of, run

from stompcodec import _codec_py, _scan_py
from stompcodec.spec import Limits

BLOCK = 64
#: Every place of a block, and those around the borders of the first blocks.
PLACES = (*range(BLOCK + 3), *range(2 * BLOCK - 6, 2 * BLOCK + 3))
#: Header lines; {} is padding of any length.
LINES = {
    **{"a line": b"{}a:\nid:1", "a line behind another": b"x:{}\na:\nid:1"},
    **{"a colon behind a name": b"b{}:value\nid:1", "a line without a colon": b"{}b\nid:1"},
    **{"a line without a colon, the last": b"{}b", "an empty name": b"x:{}\n:value\nid:1"},
    **{"two colons": b"x:{}\nx:y:z\nid:1", "a colon in a value": b"x:{}:\nid:1", "CR LF": b"x:{}\r\nx:y\r\nid:1\r"},
    **{"CR in a value": b"x:{}\ry\nid:1", "two CR": b"x:{}\r\r\nid:1", "CR LF, a name": b"x{}\r\nid:1"},
    **{"escapes": b"x:{}\\c\\\\\\n\nid:1", "escapes in a name": b"{}\\c\\\\\\n:x\nid:1"},
    **{"two backslashes": b"x:{}\\\\\\\\c\nid:1", "a bad escape": b"x:{}\\q\nid:1"},
    **{"a backslash at a line's end": b"x:{}\\\nid:1", "UTF-8": "x:{}é東\nid:ß".encode()},
    **{"not UTF-8": b"x:{}\xe6\x9d\nid:1", "UTF-8 over a colon": b"{}\xe6:\x9d\x9d\nid:1"},
    "UTF-8 and a length": "x:{}é\ncontent-length:3\nid:ß".encode(),
    "not UTF-8, then a length": b"x:{}\xe6\x9d\ncontent-length:3\nid:1",
    "a length, then not UTF-8": b"content-length:3\nx:{}\xe6\x9d\nid:1",
    **{"a length in a line that is not UTF-8": b"x:{}\ncontent-length:3\xff\nid:1", "a NUL": b"x:{}\0y\nid:1"},
    "a length": b"x:{}\ncontent-length:3\nid:1",
    "a length, then others": b"content-length:3\nx:{}\ncontent-length:x\nid:1",
    "a name like content-length": b"x:{}\ncontent-lengtg:3\nid:1",
    **{"a bad length": b"x:{}\ncontent-length:+3\nid:1", "a long length": b"x:{}\ncontent-length:0000000003\nid:1"},
    "short lines": b"x:{}\n" + b"a:\n" * 40 + b"id:1",
}


def streams(lines, padding):
    frame = b"SEND\n" + lines.replace(b"{}", b"p" * padding) + b"\n\nabc\0"
    return [frame, frame + b"\n" + frame, frame + b"SEND\nx:" + b"y" * 2 * BLOCK + b"\n\n\0"]


@pytest.mark.c_only
@pytest.mark.parametrize("version", ["1.2", "1.1", "1.0", None])
@pytest.mark.parametrize("name", LINES)
def test_backends_agree_wherever_a_line_lies(both, name, version):
    c, py = both
    for place in PLACES:
        for data in streams(LINES[name], place):
            for chunks in ([data], [data[:BLOCK], data[BLOCK:]]):
                assert run(c, chunks, version=version) == run(py, chunks, version=version), (place, chunks)


@pytest.mark.c_only
@pytest.mark.parametrize("most", [*range(5), 31, 32, 33, 63, 64, 65])
def test_the_limits_of_lines_hold_within_blocks(both, most):
    c, py = both
    for count in range(max(most - 2, 0), most + 3):
        many = b"SEND\n" + b"a:\n" * count + b"\n\0"
        long = b"SEND\na:1\nb:" + b"y" * count + b"\nc:1\n\n\0"
        for data in (many, long, many + b"\n" * 2 * BLOCK, long + b"\n" * 2 * BLOCK):
            for limits in (Limits(max_headers=most), Limits(max_header_line=most)):
                assert run(c, [data], limits=limits) == run(py, [data], limits=limits), (count, limits)


SIZES = (1, 2, 3, 4, 5, 7, 16, 64)


def pieces(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_a_frame_keeps_the_version_it_began_with(codec):
    """`\\r` at the end of a line is data in 1.1, and part of the line's end in 1.2."""
    parser = codec.Parser("1.1")
    for octet in pieces(b"SEND\nid:1\nname", 1):
        assert list(parser.feed(octet)) == []
    parser.version = "1.2"
    frames = [frame for octet in pieces(b":x\r\n\n\0SEND\nname:x\r\n\n\0", 1) for frame in parser.feed(octet)]
    assert [frame.get("name") for frame in frames] == ["x\r", "x"]


@pytest.mark.parametrize("size", SIZES)
def test_each_line_is_checked_once(monkeypatch, size):
    checked, inner = [], _scan_py.Lines.read

    def count(self, buf):
        checked.append(len(buf) - self.line)
        return inner(self, buf)

    monkeypatch.setattr(_scan_py.Lines, "read", count)
    headers = b"".join(b"name-%d:some value\n" % i for i in range(200))
    parser = _codec_py.Parser("1.2")
    assert [frame for piece in pieces(b"SEND\n" + headers, size) for frame in parser.feed(piece)] == []
    assert len(headers) - size <= sum(checked) <= 2 * len(headers)  # a line is looked at again when it is complete
    (frame,) = parser.feed(b"\nhello\0")
    assert (len(frame.headers.pairs()), frame.body) == (200, b"hello")


#: Surrogates, overlong forms, bytes that never occur, and cut characters.
ILL_FORMED = (
    *(b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xe2\x82", b"\xe2"),
    *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x9f\x98", b"\xf0\x9f"),
    *(b"\xf0", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe"),
)
TAIL = b"\nlast:\\c\n\n" + b"\xff" * 70 + b"\0"  # a body, which need not be UTF-8


def check(codec, line):
    wire = b"MESSAGE\nfirst:1\n" + line + TAIL
    (answer, *_) = answers_of(codec, wire)
    good = line.decode("utf-8", "ignore").encode() == line
    if good:
        assert answer[0] == "frame", line
    else:
        with pytest.raises(UnicodeDecodeError) as caught:
            line.decode()
        assert answer == ("error", "invalid-utf8", wire.index(line) + caught.value.start, None), line
    return good


@pytest.mark.req("S12-UTF-01")
@pytest.mark.parametrize("bad", ILL_FORMED)
def test_ill_formed_at_every_place(codec, bad):
    for before in range(70):
        for size, character in enumerate("x\xe9\u6771\U0001f600", 1):
            line = b"name:" + (character * (before // size) + "x" * (before % size)).encode() + bad
            assert not check(codec, line)
            assert not check(codec, line + b"y")


@pytest.mark.req("S12-UTF-01")
@pytest.mark.parametrize("place", [3, 17, 49])
def test_leads_with_second_bytes_around_each_border(codec, place):
    leads = b"\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xf7\xf8\xff"
    seconds = b"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xf4"
    for lead, second, more in itertools.product(leads, seconds, (b"", b"\x80", b"\x80\x80")):
        check(codec, b"name:" + b"x" * place + bytes((lead, second)) + more)
