"""Reads of a few bytes: the Python backend checks each line as it arrives, and answers each read as C does."""

import pytest
from codec.lockstep import run

from stompcodec import _codec_py, _scan_py
from stompcodec.errors import FrameError
from stompcodec.spec import Limits

SIZES = (1, 2, 3, 4, 5, 7, 16, 64)

USUAL = b"SEND\ndestination:/queue/a\nid:7\n\nhello\0"
CRLF_COUNTED = b"MESSAGE\r\nid:a\\c1\r\ncontent-length:5\r\n\r\n\0\n\0\n\0\0\r\n"
SMALL = _scan_py.SMALL

STREAMS = {
    "text": b"MESSAGE\ndestination:/q\nname:x\n\n" + b"line one\nline two\n" * 3 + b"\0" + USUAL,
    "counted": b"MESSAGE\nid:a\\c1\ncontent-length:5\n\n\0\n\0\n\0\0\n\n" + USUAL,
    "no body": b"ACK\nid:1\n\n\0\nACK\nid:2\n\n\0RECEIPT\nreceipt-id:3\n\n\0",
    "a body that is not allowed": b"ACK\nid:1\n\nx\0",
    "a body behind the small ones": b"SEND\n\n" + b"b" * (SMALL + 1) + b"\0" + USUAL,
    "counted, larger": b"SEND\ncontent-length:%d\n\n" % (SMALL + 1) + b"b" * (SMALL + 1) + b"\0" + USUAL,
    "no NUL behind the body": b"SEND\ncontent-length:3\n\nabcd\0",
    "two lengths": b"SEND\ncontent-length:3\ncontent-length:4\n\nabc\0" + USUAL,
    "a length without a body": b"ACK\ncontent-length:1\n\n\0",
    "CR LF": USUAL.replace(b"\n", b"\r\n") * 2,
    "CR LF, counted": CRLF_COUNTED * 2,
    "CR LF, a body with blank lines": b"SEND\r\ncontent-length:6\r\n\r\n\n\n\n\r\n\0\0" + USUAL,
    "CR LF, a blank line of LF": b"SEND\r\nid:1\r\n\nbody\n\r\nbody\0" + USUAL,
    "LF, then CR LF": b"SEND\nid:1\r\nname:x\n\r\n\n\n\0" + CRLF_COUNTED,
    "CR LF, a blank line of two CR": b"SEND\r\nid:1\r\n\r\r\n\0",
    "CR LF, a length with CR": b"SEND\r\nid:1\r\ncontent-length:1\r\r\n\r\nx\0",
    "CR LF, two lengths": b"SEND\r\ncontent-length:3\r\ncontent-length:4\r\n\r\nabc\0" + USUAL,
    "CR LF, an end in the blank line": b"SEND\r\nid:1\r\n\r",
    "CR in a value": b"SEND\nid:a\rb\nx:y\r\n\n\0" + USUAL,
    "an unknown command": b"SENT\nid:1\n\n\0",
    "a bad escape in a name": b"SEND\nid:1\nna\\\\m\\qe:ab\n\n\0",
    "UTF-8": "SEND\nname:東京\nid:ß\n\nstraße\0".encode() + USUAL,
    "NUL in a header": b"SEND\nid:1\nna\0me:x\n\n\0",
    "blank lines between frames": b"\n\n\r\n" + USUAL + b"\n\n\n" + USUAL,
    "blank lines behind an error": b"SENT\n\n\0\n\n\n" + USUAL,
    "a blank line with CR": USUAL + b"\n\r\n\n\r\n\r\r\n",
    "an end in a header": b"SEND\nid:1\nna",
    "an end in a body": b"SEND\nid:1\n\nna",
}


def pieces(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.c_only
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("version", ["1.2", "1.1", "1.0", None])
def test_backends_agree_after_each_read(both, version, name):
    """Answers, and `buffered` after each read: so each event comes with the read that C answers it with."""
    c, py = both
    for size in SIZES:
        chunks = pieces(STREAMS[name], size)
        for options in ({}, {"lenient": True}, {"heartbeats": True}, {"stream_over": 4}):
            options = {"version": version, "limits": Limits(max_body=4000), **options}
            assert run(py, chunks, **options) == run(c, chunks, **options), (size, options)


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
    """The work for a head grows with its size, not with the number of reads times its size."""
    checked = []
    inner = _scan_py.Lines.read

    def count(self, buf):
        checked.append(len(buf) - self.line)
        return inner(self, buf)

    monkeypatch.setattr(_scan_py.Lines, "read", count)
    headers = b"".join(b"name-%d:some value\n" % i for i in range(200))
    parser = _codec_py.Parser("1.2")
    assert [frame for piece in pieces(b"SEND\n" + headers, size) for frame in parser.feed(piece)] == []
    assert sum(checked) <= 2 * len(headers)  # a line is looked at again when it is complete
    assert sum(checked) >= len(headers) - size
    (frame,) = parser.feed(b"\nhello\0")
    assert len(frame.headers.pairs()) == 200
    assert frame.body == b"hello"


@pytest.mark.parametrize("data", [b"\n", b"S", b"SE", b"SEND\n"])
def test_an_error_is_raised_again_by_first_bytes(codec, data):
    parser = codec.Parser("1.2")
    for _ in range(2):
        with pytest.raises(FrameError, match="unknown-command"):
            list(parser.feed(b"SENT\n\n\0"))
        with pytest.raises(FrameError, match="unknown-command"):
            list(parser.feed(data))
        assert parser.buffered == 0
