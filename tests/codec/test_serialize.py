"""serialize, serialize_parts, serialize_many: what is written, and what is refused."""

import pytest

from stompcodec.errors import FrameError
from stompcodec.spec import VERSIONS

ALL = [*VERSIONS, "legacy", None]
WRITERS = ["serialize", "serialize_parts", "serialize_many"]


def refused(codec, frame, *args, **named):
    with pytest.raises(FrameError) as raised:
        codec.serialize(frame, *args, **named)
    assert raised.value.offset is None
    assert raised.value.limit is None
    return raised.value.kind


@pytest.mark.req("S12-UTF-01", "S11-UTF-01", "LEG-UTF-01")
@pytest.mark.parametrize("version", ALL)
def test_lenient_writes_what_lenient_read(codec, version):
    frame = codec.Frame("ACK", [("a\udcff", "\udcc3x")])
    assert codec.serialize(frame, version, lenient=True) == b"ACK\na\xff:\xc3x\n\n\0"
    for lone in ("\ud800", "\udc00", "\udc7f", "\udfff"):
        assert refused(codec, codec.Frame("ACK", [("a", lone)]), version, lenient=True) == "unencodable"


@pytest.mark.req("LEG-HDR-05")
def test_legacy_writes_no_control_characters(codec):
    for code in range(32):
        for pair in (("a", f"x{chr(code)}y" * 3), (f"x{chr(code)}y" * 3, "a")):
            assert refused(codec, codec.Frame("ACK", [pair]), "legacy") == "unencodable"


@pytest.mark.req("LEG-CL-03")
@pytest.mark.parametrize("version", ALL)
def test_always_and_never(codec, version):
    assert codec.serialize(codec.Frame("ACK"), version, content_length="always") == b"ACK\ncontent-length:0\n\n\0"
    given = [("a", "1"), ("content-length", "1"), ("b", "2"), ("content-length", "9")]
    (parsed,) = codec.Parser(version).feed(b"SEND\na:1\ncontent-length:1\nb:2\n\nx\0")
    for frame in (codec.Frame("SEND", given, b"x"), parsed):
        assert codec.serialize(frame, version, content_length="never") == b"SEND\na:1\nb:2\n\nx\0"
    assert refused(codec, codec.Frame("SEND", body=b"x\0y"), version, content_length="never") == "unencodable"


def test_a_right_length_is_kept_as_it_is(codec):
    for version in ALL:
        for value in ("5", "005", "0" * 100 + "5"):
            frame = codec.Frame("SEND", [("content-length", value), ("content-length", "nonsense")], b"hello")
            wire = f"SEND\ncontent-length:{value}\ncontent-length:nonsense\n\nhello\0".encode()
            assert codec.serialize(frame, version) == wire
    padded = codec.Frame("SEND", [("content-length", " 5 ")], b"hello")
    assert b"content-length: 5 \n" in codec.serialize(padded, "1.0")
    assert refused(codec, padded, "legacy") == "unencodable"  # the spaces would not be given back
    for version in ("1.1", "1.2", None):
        assert refused(codec, padded, version) == "bad-content-length"
        for value in ("٥", "0x5", "1_0", "5.0", "9" * 400):
            frame = codec.Frame("SEND", {"content-length": value}, b"hello")
            assert refused(codec, frame, version) == "bad-content-length"
    assert refused(codec, codec.Frame("SEND", {"content-length": "5"})) == "bad-content-length"


def test_tail(codec):
    pairs = [("content-length", "2"), ("receipt", "7"), ("a", "b"), ("content-length", "9"), ("receipt", "8")]
    (read,) = codec.Parser("1.2").feed(b"SEND\ncontent-length:2\nreceipt:7\na:b\ncontent-length:9\nreceipt:8\n\nhi\0")
    for frame in (read, codec.Frame("SEND", pairs, b"hi")):
        assert codec.serialize_tail(frame, without=("receipt",)) == b"a:b\ncontent-length:2\n\nhi\0"
        assert codec.serialize_tail(frame, without=["a"]) == b"receipt:7\nreceipt:8\ncontent-length:2\n\nhi\0"
    assert codec.serialize_tail(codec.Frame("SEND")) == b"\n\0"
    wrong = codec.Frame("SEND", {"content-length": "5"}, b"hi")
    assert codec.serialize_tail(wrong) == b"content-length:2\n\nhi\0"


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_many(codec, count):
    frames = [codec.Frame("SEND", {"n": str(i)}, b"x" * (i * 997)) for i in range(count)]
    wanted = b"".join(codec.serialize(frame) for frame in frames)
    for given in (frames, iter(frames), tuple(frames), (frame for frame in frames)):
        assert codec.serialize_many(given) == wanted


def test_many_with_an_error(codec):
    good, bad = codec.Frame("ACK"), codec.Frame("NONSENSE")
    with pytest.raises(FrameError, match="unknown-command"):
        codec.serialize_many([good, good, bad, good])

    def failing():
        yield good
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        codec.serialize_many(failing())


@pytest.mark.c_only
@pytest.mark.parametrize("write", WRITERS)
def test_a_frame_of_the_other_backend(both, write):
    for one, other in (both, both[::-1]):
        frame = one.Frame("ACK")
        with pytest.raises(TypeError, match="Frame"):
            getattr(other, write)([frame] if write == "serialize_many" else frame)
