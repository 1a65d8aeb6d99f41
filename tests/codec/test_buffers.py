"""get_buffer and buffer_updated: right use as asyncio does it, and wrong use, which must not crash."""

import pytest


@pytest.mark.parametrize("hint", [-1, 0, 1, 100, 65536, 10**9, -(10**9)])
def test_room(codec, hint):
    parser = codec.Parser("1.2")
    view = parser.get_buffer(hint)
    assert (type(view), view.readonly, view.itemsize, view.ndim, view.contiguous) == (memoryview, False, 1, 1, True)
    assert max(1, min(hint, 65536)) <= len(view) < 10**6
    assert parser.get_buffer() is not None


@pytest.mark.parametrize("count", [-1, -(2**70), 2**40, 2**70, 10**6, "1", 1.0, None])
def test_counts_out_of_range_or_no_numbers_or_without_a_buffer(codec, count):
    parser = codec.Parser("1.2")
    with pytest.raises(RuntimeError):
        parser.buffer_updated(0)
    view = parser.get_buffer(10)
    for wrong in (count, len(view) + 1) if isinstance(count, int) else (count,):
        with pytest.raises((ValueError, OverflowError) if isinstance(count, int) else TypeError):
            parser.buffer_updated(wrong)
    view[:2] = b"SE"
    assert parser.buffered == 0
    parser.buffer_updated(2)
    with pytest.raises(RuntimeError):
        parser.buffer_updated(1)
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


@pytest.mark.parametrize("head", [b"SEND\ncontent-length:9\n\n", b"SEND\n\n"])
def test_feed_into_a_body_makes_the_buffer_void(codec, head):
    parser = codec.Parser("1.2")
    assert list(parser.feed(head + b"ab")) == []
    view = parser.get_buffer()
    parser.feed(b"cd")
    with pytest.raises(RuntimeError):
        parser.buffer_updated(1)
    view[:] = b"\xaa" * len(view)
    (frame,) = parser.feed(b"efghi\0")
    assert frame.body == b"abcdefghi"


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
