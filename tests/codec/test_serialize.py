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


# ---- what is written ----


@pytest.mark.req("LEG-CMD-02", "LEG-HDR-05", "LEG-HDR-06")
def test_legacy_folds_case(codec):
    frame = codec.Frame("send", [("Content-Type", "Text"), ("ÄB", "v w")], b"")
    assert codec.serialize(frame, "legacy") == "SEND\ncontent-type:Text\nÄb:v w\ncontent-length:0\n\n\0".encode()
    for value in (" v", "v ", " ", "  v  "):  # would not be given back
        assert refused(codec, codec.Frame("ACK", {"a": value}), "legacy") == "unencodable"
    for code in range(32):
        assert refused(codec, codec.Frame("ACK", {"a": f"x{chr(code)}y" * 3}), "legacy") == "unencodable"
        assert refused(codec, codec.Frame("ACK", {f"x{chr(code)}y" * 3: "a"}), "legacy") == "unencodable"
    assert refused(codec, codec.Frame("ACK", {"a:": "b"}), "legacy") == "unencodable"
    assert codec.serialize(codec.Frame("ACK", {"a": "b:c\x7f"}), "legacy") == b"ACK\na:b:c\x7f\n\n\0"


@pytest.mark.req("S12-UTF-01", "S11-UTF-01", "LEG-UTF-01")
@pytest.mark.parametrize("version", ALL)
def test_lenient_writes_what_lenient_read(codec, version):
    frame = codec.Frame("ACK", [("a\udcff", "\udcc3x")])
    assert codec.serialize(frame, version, lenient=True) == b"ACK\na\xff:\xc3x\n\n\0"
    for lone in ("\ud800", "\udc00", "\udc7f", "\udfff"):
        assert refused(codec, codec.Frame("ACK", [("a", lone)]), version, lenient=True) == "unencodable"


BAD_LENGTH = ("content-length", "7")


@pytest.mark.parametrize(
    ("frame", "version", "kind"),
    [
        *[(("NACK",), "1.0", "unknown-command"), (("STOMP",), "legacy", "unknown-command")],
        *[(("send",), "1.2", "unknown-command"), (("RECEIVE", {}, b"x"), "1.2", "body-not-allowed")],
        # The order of checks: command, body, headers in their order, content-length.
        (("X", [("", ""), BAD_LENGTH], b"x"), "1.2", "unknown-command"),
        (("ACK", [("", ""), BAD_LENGTH], b"x"), "1.2", "body-not-allowed"),
        (("SEND", [BAD_LENGTH, ("", "")], b"x"), "1.2", "unencodable"),
        (("SEND", [BAD_LENGTH], b"x"), "1.2", "bad-content-length"),
    ],
)
def test_what_is_refused(codec, frame, version, kind):
    assert refused(codec, codec.Frame(*frame), version, commands=["RECEIVE"]) == kind


# ---- content-length ----


@pytest.mark.req("LEG-CL-03")
@pytest.mark.parametrize("version", ALL)
def test_always_and_never(codec, version):
    assert codec.serialize(codec.Frame("ACK"), version, content_length="always") == b"ACK\ncontent-length:0\n\n\0"
    given = [("a", "1"), ("content-length", "1"), ("b", "2"), ("content-length", "9")]
    (parsed,) = codec.Parser(version).feed(b"SEND\na:1\ncontent-length:1\nb:2\n\nx\0")
    for frame in (codec.Frame("SEND", given, b"x"), parsed):
        assert codec.serialize(frame, version, content_length="never") == b"SEND\na:1\nb:2\n\nx\0"
    assert refused(codec, codec.Frame("SEND", body=b"x\0y"), version, content_length="never") == "unencodable"


@pytest.mark.parametrize(
    "value", ["", "4", "6", "+5", "-5", "5.0", "5x", "x5", "٥", "0x5", "5 5", "1_0", "9" * 400, "5\n", "5\t"]
)
@pytest.mark.parametrize("version", [*VERSIONS, None])
def test_a_wrong_length_is_refused(codec, value, version):
    for mode in ("auto", "always"):
        frame = codec.Frame("SEND", [("content-length", value)], b"hello")
        kind = refused(codec, frame, version, content_length=mode)
        assert kind == ("unencodable" if version == "1.0" and "\n" in value else "bad-content-length")


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
    assert refused(codec, codec.Frame("SEND", {"content-length": "5"})) == "bad-content-length"


def test_content_length_in_other_letters(codec):
    """Names are case sensitive, but in the legacy dialect."""
    frame = codec.Frame("SEND", {"Content-Length": "9"}, b"x")
    assert codec.serialize(frame) == b"SEND\nContent-Length:9\ncontent-length:1\n\nx\0"
    assert refused(codec, frame, "legacy") == "bad-content-length"
    right = codec.Frame("SEND", {"Content-Length": "1"}, b"x")
    assert codec.serialize(right, "legacy") == b"SEND\ncontent-length:1\n\nx\0"
    assert codec.serialize(right, "legacy", content_length="never") == b"SEND\n\nx\0"


# ---- parts and many ----


def test_tail(codec):
    """Headers that are named are left out, however the frame came to be; content-length is written last, and right."""
    pairs = [("content-length", "2"), ("receipt", "7"), ("a", "b"), ("content-length", "9"), ("receipt", "8")]
    (read,) = codec.Parser("1.2").feed(b"SEND\ncontent-length:2\nreceipt:7\na:b\ncontent-length:9\nreceipt:8\n\nhi\0")
    for frame in (read, codec.Frame("SEND", pairs, b"hi")):
        assert codec.serialize_tail(frame, without=("receipt",)) == b"a:b\ncontent-length:2\n\nhi\0"
        assert codec.serialize_tail(frame, without=["a"]) == b"receipt:7\nreceipt:8\ncontent-length:2\n\nhi\0"
    assert codec.serialize_tail(codec.Frame("SEND")) == b"\n\0"
    wrong = codec.Frame("SEND", {"content-length": "5"}, b"hi")
    assert codec.serialize_tail(wrong) == b"content-length:2\n\nhi\0"


@pytest.mark.req("S12-ESC-07")
def test_tail_never_writes_what_the_version_cannot_carry(codec):
    frame = codec.Frame("SEND", [("a", "x\nforged:1"), ("b:c", "d"), ("e", "f"), ("nul", "\0"), ("s", "\ud800")], b"")
    odd = codec.Frame("SEND", {"content-length": "\0 2"})
    assert codec.serialize_tail(odd) == b"content-length:0\n\n\0"
    assert codec.serialize_tail(frame, "1.0") == b"e:f\n\n\0"
    assert codec.serialize_tail(frame, "1.2") == b"a:x\\nforged\\c1\nb\\cc:d\ne:f\n\n\0"


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
