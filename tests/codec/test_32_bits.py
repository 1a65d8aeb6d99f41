"""Sizes whose sum 32 bits cannot hold: a MemoryError, and no write past the room. They run on 32 bits."""

import sys

import pytest

from stompcodec.spec import Limits

pytestmark = [
    pytest.mark.c_only,
    pytest.mark.no_asan,
    pytest.mark.skipif(sys.maxsize > 2**32, reason="takes more memory than a test may where there are 64 bits"),
]
MIB = 2**20


@pytest.fixture
def codec(both):
    return both[0]


@pytest.mark.parametrize(
    "write",
    [
        # A writer makes room for an escape in place of each byte: here that is 2**32 bytes in all.
        lambda codec: codec.serialize(codec.Frame("SEND", [("a", "x" * (64 * MIB))] * 32)),
        lambda codec: codec.serialize(codec.Frame("SEND", [("a", "x" * (64 * MIB))] * 32), content_length="never"),
        lambda codec: codec.serialize_tail(codec.Frame("SEND", [("a", "x" * (64 * MIB))] * 32)),
        lambda codec: codec.serialize(codec.Frame("SEND", [("x" * (1024 * MIB),) * 2]), content_length="never"),
        lambda codec: codec.write_websocket([b"x" * (64 * MIB)] * 64),
    ],
    ids=["auto", "never", "tail", "one header", "websocket"],
)
def test_what_is_written(codec, write):
    with pytest.raises(MemoryError):
        write(codec)


def test_a_body(codec):
    parser, piece = codec.Parser("1.2", limits=Limits(max_body=2**62)), bytes(768 * MIB)
    list(parser.feed(b"SEND\ncontent-length:4000000000\n\n"))

    def fill():
        for _ in range(5):
            list(parser.feed(piece))

    with pytest.raises(MemoryError):
        fill()
    assert parser.buffered == 0


def test_frames_that_nobody_iterates_over(codec):
    """The parser asks for twice the bytes that it keeps, and the new ones: here that is more than 2**32 bytes."""
    parser = codec.Parser("1.2")
    parser.feed(memoryview(bytes(1400 * MIB)))
    piece = memoryview(bytes(1320 * MIB))
    with pytest.raises(MemoryError):
        parser.feed(piece)
    assert parser.buffered == 0
