"""get_buffer and buffer_updated: right use as asyncio does it, and wrong use, which must not crash."""

import gc
from contextlib import suppress

import pytest
from codec.lockstep import answer_of, answers_of, run

from stompcodec.errors import FrameError

BODY = bytes(range(256)) * 1000
STREAMS = {
    "small": b"SEND\n\nhello\0" * 50,
    "counted": b"SEND\ncontent-length:%d\n\n%b\0" % (len(BODY), BODY) * 2,
    "open": b"SEND\n\n" + BODY.replace(b"\0", b"x") + b"\0\n\n" + b"ACK\n\n\0",
    "head": b"SEND\n" + b"".join(b"h%d:%b\n" % (i, b"v" * 900) for i in range(100)) + b"\n\0",
}


@pytest.mark.parametrize("size", [1000, 65536, 10**6])
@pytest.mark.parametrize("stream_over", [None, 100])
@pytest.mark.parametrize("name", STREAMS)
def test_the_same_as_feed(codec, name, size, stream_over):
    stream = STREAMS[name]
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    wanted = answers_of(codec, stream, stream_over=stream_over)
    assert answers_of(codec, pieces, way="buffer", stream_over=stream_over) == wanted


@pytest.mark.parametrize("hint", [-1, 0, 1, 100, 65536, 10**9, -(10**9)])
def test_room(codec, hint):
    parser = codec.Parser("1.2")
    view = parser.get_buffer(hint)
    assert (type(view), view.readonly, view.itemsize, view.ndim, view.contiguous) == (memoryview, False, 1, 1, True)
    assert max(1, min(hint, 65536)) <= len(view) < 10**6
    assert parser.get_buffer() is not None


@pytest.mark.parametrize("count", [-1, -(2**70), 2**40, 2**70, 10**6, "1", 1.0, None])
def test_counts_out_of_range_or_no_numbers(codec, count):
    parser = codec.Parser("1.2")
    view = parser.get_buffer(10)
    for wrong in (count, len(view) + 1) if isinstance(count, int) else (count,):
        with pytest.raises((ValueError, OverflowError) if isinstance(count, int) else TypeError):
            parser.buffer_updated(wrong)
    view[:2] = b"SE"
    assert parser.buffered == 0
    parser.buffer_updated(2)
    assert parser.buffered == 2


def test_a_count_that_feeds(codec):
    """The buffer is void by the time that the count is known: no octet of it may be taken in."""

    class Count:
        def __index__(self):
            parser.feed(b"x")
            return 5

    parser = codec.Parser("1.2")
    parser.get_buffer()
    with pytest.raises((RuntimeError, TypeError)):
        parser.buffer_updated(Count())
    assert parser.buffered <= 1


def test_without_a_buffer(codec):
    parser = codec.Parser("1.2")
    with pytest.raises(RuntimeError):
        parser.buffer_updated(0)
    parser.get_buffer(2)[:2] = b"SE"
    parser.buffer_updated(2)
    with pytest.raises(RuntimeError):
        parser.buffer_updated(1)
    assert parser.buffered == 2


@pytest.mark.parametrize("head", [b"SEND\ncontent-length:9\n\n", b"SEND\n\n"])
def test_feed_into_a_body_makes_the_buffer_void(codec, head):
    """Whoever still has the buffer reaches nothing of the body."""
    parser = codec.Parser("1.2")
    assert list(parser.feed(head + b"ab")) == []
    view = parser.get_buffer()
    parser.feed(b"cd")
    with pytest.raises(RuntimeError):
        parser.buffer_updated(1)
    view[:] = b"\xaa" * len(view)
    (frame,) = parser.feed(b"efghi\0")
    assert frame.body == b"abcdefghi"


@pytest.mark.parametrize("hint", [1, 3, 5000])
@pytest.mark.parametrize(
    "before",
    [
        *(b"\n", b"SEND\n\na\0", b"SEND\n\na\0SEND\n", b"SEND\n\na"),
        *(b"SEND\n\n" + b"x" * 5000 + end for end in (b"\0", b"")),
        *(b"SEND\ncontent-length:9\n\n" + b"x" * count for count in (0, 1, 8)),
    ],
)
@pytest.mark.parametrize("begun", [0, 7])
def test_iterating_while_a_buffer_is_lent(codec, before, hint, begun):
    """A reader may take long; what was fed before can be taken meanwhile, and nothing is lost or read twice."""
    parser = codec.Parser("1.2")
    answers = list(parser.feed(before[:begun]))
    parser.feed(before[begun:])
    view = parser.get_buffer(hint)
    answers += parser
    left = parser.buffered
    data = (b"\n" * 9 + b"\0" + b"\n" * hint)[: min(hint, len(view))]
    view[: len(data)] = data
    parser.buffer_updated(len(data))
    assert parser.buffered == left + len(data)
    with suppress(FrameError):
        answers.extend(parser)
    wanted, buffered = run(codec, [before + data], close=False)
    assert [answer_of(frame) for frame in answers] == [answer for answer in wanted if answer[0] == "frame"]
    assert parser.buffered == buffered[-1]


@pytest.mark.parametrize("name", STREAMS)
def test_views_that_are_kept(codec, name):
    """Old views stay readable and writable, and reach no frame but one that was read in place."""
    stream = STREAMS[name]
    parser = codec.Parser("1.2")
    views, frames, at = [], [], 0
    while at < len(stream):
        views.append(parser.get_buffer(5000))
        piece = stream[at:][: min(len(views[-1]), 5000)]
        views[-1][: len(piece)] = piece
        frames += parser.buffer_updated(len(piece))
        at += len(piece)
    for view in views:
        view[:] = b"\xaa" * len(view)
        assert view[-1] == 0xAA
    del parser
    gc.collect()
    for view in views:
        view[0] = 1
        assert view[0] == 1
    if name != "counted":
        assert [answer_of(frame) for frame in frames] == answers_of(codec, stream)


def test_an_older_view_reaches_no_other_parser(codec):
    """Two buffers are asked for, and the view of the first is kept: its memory is not given to the next parser."""
    parser = codec.Parser("1.2")
    first, second = parser.get_buffer(), parser.get_buffer()
    head = b"SEND\ncontent-length:100000\n\nxxxx"
    second[: len(head)] = head
    list(parser.buffer_updated(len(head)))
    second.release()
    list(parser.feed(b"x" * 10))
    other = codec.Parser("1.2")
    other.feed(bytearray(b"SEND\nname:" + b"v" * 6000))
    first[:] = b"Z" * len(first)
    (frame,) = other.feed(b"\n\n\0")
    assert frame.get("name") == "v" * 6000
