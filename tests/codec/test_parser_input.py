"""What a Parser takes: octets of all kinds, its arguments, and what it refuses."""

import array
import copy
import gc
import io
import pickle
import weakref

import pytest
from codec.lockstep import answers_of, same_in_every_cut
from codec.samples import SEND

from stompcodec.spec import Limits


def bodies(parser):
    return [frame.body for frame in parser]


# ---- input of all kinds ----


@pytest.mark.parametrize(
    "kind",
    [bytes, bytearray, memoryview, lambda data: array.array("B", data), lambda data: memoryview(data).cast("b")],
    ids=["bytes", "bytearray", "memoryview", "array", "signed"],
)
def test_bytes_like_input(codec, kind):
    assert bodies(codec.Parser("1.2").feed(kind(SEND))) == [b"hello"]


def test_wide_items_are_taken_as_octets(codec):
    data = b"\n" * ((8 - len(SEND)) % 8) + SEND
    assert bodies(codec.Parser("1.2").feed(array.array("Q", data))) == [b"hello"]
    assert bodies(codec.Parser("1.2").feed(memoryview(data).cast("B", shape=[2, len(data) // 2]))) == [b"hello"]


def test_a_subclass_of_bytes(codec):
    class Bytes(bytes):
        pass

    (frame,) = codec.Parser("1.2").feed(Bytes(SEND))
    assert type(frame.body) is bytes


@pytest.mark.parametrize("wrong", ["SEND", 5, None, [83], io.BytesIO(b"x"), object()])
def test_input_that_is_not_bytes_like(codec, wrong):
    parser = codec.Parser("1.2")
    parser.feed(b"SE")
    with pytest.raises(TypeError):
        parser.feed(wrong)
    assert bodies(parser.feed(b"ND\n\na\0")) == [b"a"]


def test_input_that_is_not_contiguous(codec):
    parser = codec.Parser("1.2")
    parser.feed(b"SE")
    with pytest.raises((BufferError, TypeError)):
        parser.feed(memoryview(b"NxDx\nx")[::2])
    assert bodies(parser.feed(b"ND\n\na\0")) == [b"a"]


def test_a_bytearray_can_be_resized_after_feed(codec):
    data = bytearray(SEND[:20])
    parser = codec.Parser("1.2")
    parser.feed(data)
    data.extend(b"x" * 1000)
    data.clear()
    assert bodies(parser.feed(SEND[20:])) == [b"hello"]


# ---- the class ----


def test_parser_is_final_and_closed(codec):
    with pytest.raises(TypeError):
        type("Sub", (codec.Parser,), {})
    parser = codec.Parser("1.2")
    with pytest.raises(AttributeError):
        parser.anything = 1
    with pytest.raises(AttributeError):
        parser.buffered = 1
    assert not hasattr(parser, "__dict__")
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(parser)


def test_arguments(codec):
    with pytest.raises(TypeError):
        codec.Parser("1.2", None)
    with pytest.raises(TypeError):
        codec.Parser(nothing=1)
    for wrong in (-1, 1.5, "5", True):
        with pytest.raises(ValueError, match="stream_over"):
            codec.Parser(stream_over=wrong)
    codec.Parser(stream_over=2**70)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [("PING", TypeError), (b"PING", TypeError), ([1], TypeError), ([b"PING"], TypeError), ([""], ValueError)]
    + [([f"PI{octet}NG"], ValueError) for octet in ("\n", "\r", "\0")]
    + [(["\ud800"], ValueError), (5, TypeError)],
)
def test_further_commands_are_checked(codec, wrong, error):
    with pytest.raises(error):
        codec.Parser(commands=wrong)
    with pytest.raises(error):
        codec.serialize(codec.Frame("SEND"), commands=wrong)


def test_further_commands(codec):
    stream = "RECEIVE\n\n\0été\na:b\n\n\0".encode()
    commands = (name for name in ["RECEIVE", "été"])
    got = same_in_every_cut(codec, stream, commands=list(commands))
    assert got == [("frame", "RECEIVE", [], b""), ("frame", "été", [("a", "b")], b"")]
    assert answers_of(codec, b"RECEIVE\n\nx\0", commands=["RECEIVE"]) == [("error", "body-not-allowed", 9, None)]
    assert answers_of(codec, b"receive\n\n\0", commands=["RECEIVE"], version="legacy") == [
        ("frame", "RECEIVE", [], b"")
    ]
    assert answers_of(codec, b"RECEIVX\n\n\0", commands=["RECEIVE"]) == [("error", "unknown-command", 0, None)]


def test_limits_of_another_kind_of_tuple(codec):
    codec.Parser(limits=Limits(1, 2, 3, 4))
    with pytest.raises((TypeError, AttributeError, ValueError)):
        codec.Parser(limits=5)


def test_the_last_reference_frees_it(codec):
    parser = codec.Parser("1.2")
    try:
        watched = weakref.ref(parser)
    except TypeError:
        return
    del parser
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("head", [b"SEND\n\n", b"SEND\ncontent-length:30000\n\n"], ids=["open", "counted"])
@pytest.mark.parametrize("first", [1, 5000, 29_999, 30_000])
@pytest.mark.parametrize("behind", [0, 1, 100, 4094, 4095, 4096, 20_000])
@pytest.mark.parametrize("wrong", [b"", b"NONSENSE\n"])
def test_a_large_chunk_that_ends_a_body(codec, head, first, behind, wrong):
    """Its beginning goes to the body, and the rest of it is read where it lies: each octet once, at its offset."""
    rest = b"".join(b"ACK\nid:%06d\n\n\0" % number for number in range(behind // 16))
    data = head + b"x" * 30_000 + b"\0" + rest + b"\n" * (behind - len(rest)) + wrong
    at = len(head) + first
    assert answers_of(codec, [data[:at], data[at:]]) == answers_of(codec, data)
    parser = codec.Parser("1.2")
    list(parser.feed(data[:at]))
    parser.feed(data[at:])
    assert parser.buffered == len(data)


@pytest.mark.parametrize("length", [b"content-length:9\n", b""])
def test_a_body_has_nothing_of_the_one_before(codec, length):
    """Each comes in pieces, which begin and end where the others do, or not."""
    head = b"SEND\n" + length + b"\n"
    pieces = [head, b"abc", b"defghi\0" + head, b"jkl", b"mnopqr", b"\0" + head + b"s", b"tuvwxyz01", b"\0"]
    pieces = pieces if not length else [*pieces[:6], b"tuvwxyz0", b"\0"]
    parser = codec.Parser("1.2")
    bodies = [frame.body for piece in pieces for frame in parser.feed(piece)]
    assert bodies == [b"abcdefghi", b"jklmnopqr", b"stuvwxyz01" if not length else b"stuvwxyz0"]
