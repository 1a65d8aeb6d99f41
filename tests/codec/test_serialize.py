"""serialize, serialize_parts, serialize_many: what is written, and what is refused."""

import pytest

from stompcodec import _serialize_py
from stompcodec.codec import backend
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


@pytest.mark.req("S12-EOL-02", "S12-FRM-01", "S11-FRM-01", "S10-FRM-01", "LEG-FRM-04")
@pytest.mark.parametrize("version", ALL)
def test_canonical_form(codec, version):
    """LF line ends, headers in their order, content-length last, nothing before the command or behind the NUL."""
    frame = codec.Frame("SEND", [("b", "1"), ("a", "2"), ("b", "3")], b"hi")
    assert codec.serialize(frame, version) == b"SEND\nb:1\na:2\nb:3\ncontent-length:2\n\nhi\0"
    assert codec.serialize(frame, version=version) == codec.serialize(frame, version)


def test_the_version_is_1_2_if_nothing_is_said(codec):
    frame = codec.Frame("SEND", {"a": "\r"})
    assert codec.serialize(frame) == codec.serialize(frame, "1.2") == b"SEND\na:\\r\n\n\0"
    assert codec.serialize_many([frame]) == b"".join(codec.serialize_parts(frame)) == b"SEND\na:\\r\n\n\0"


@pytest.mark.req("S12-ESC-06", "S11-ESC-05", "S10-FRM-07")
@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("1.2", b"\\r\\n\\c\\\\:\\\\r\\r\\n\\c\n"),
        (None, b"\\r\\n\\c\\\\:\\\\r\\r\\n\\c\n"),
        ("1.1", b"\r\\n\\c\\\\:\\\\r\r\\n\\c\n"),
    ],
)
def test_escapes(codec, version, line):
    assert codec.serialize(codec.Frame("ACK", [("\r\n:\\", "\\r\r\n:")]), version) == b"ACK\n" + line + b"\n\0"


@pytest.mark.parametrize("version", ["1.2", "1.1", None])
@pytest.mark.parametrize("size", range(0, 40))
def test_an_escape_at_every_place(codec, version, size):
    """Texts are looked at 4 and 8 octets at a time: what needs an escape must be seen wherever it stands."""
    for at in range(size + 1):
        text = "a" * at + ":" + "b" * (size - at)
        written = b"a" * at + b"\\c" + b"b" * (size - at)
        assert codec.serialize(codec.Frame("ACK", [(text, "v"), ("n", text)]), version) == (
            b"ACK\n" + written + b":v\nn:" + written + b"\n\n\0"
        )
        for bad in ("\0", "\ud800"):
            wrong = text[:at] + bad + text[at + 1 :]
            assert refused(codec, codec.Frame("ACK", [("n", wrong)]), version) == "unencodable"
            assert refused(codec, codec.Frame("ACK", [(wrong, "v")]), version) == "unencodable"


@pytest.mark.parametrize("code", [*range(1, 300), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFEFF, 0xFFFF, 0x10000, 0x10FFFF])
def test_every_character(codec, code):
    text = chr(code)
    escaped = {"\r": "\\r", "\n": "\\n", ":": "\\c", "\\": "\\\\"}.get(text, text).encode()
    frame = codec.Frame("ACK", [(f"n{text}", f"{text}v{text}")])
    assert codec.serialize(frame) == b"ACK\nn%b:%bv%b\n\n\0" % (escaped, escaped, escaped)
    (read,) = codec.Parser("1.2").feed(codec.serialize(frame))
    assert read == frame


@pytest.mark.req("S12-ESC-07", "S11-ESC-06")
@pytest.mark.parametrize("version", [*VERSIONS, None])
@pytest.mark.parametrize("command", ["CONNECT", "CONNECTED"])
def test_connect_is_not_escaped(codec, version, command):
    frame = codec.Frame(command, {"a": "x:\\n\\"})
    assert codec.serialize(frame, version) == command.encode() + b"\na:x:\\n\\\n\n\0"
    for pair in [("a", "\n"), ("a", "\r"), ("\n", "a"), ("\r", "a"), (":", "a"), ("a:", "a")]:
        assert refused(codec, codec.Frame(command, [pair]), version) == "unencodable"


@pytest.mark.req("S10-FRM-02", "S10-FRM-05", "S10-FRM-06", "S10-FRM-07")
def test_1_0_writes_raw(codec):
    frame = codec.Frame("SEND", {"a": "x:\\n\\\r "})
    assert codec.serialize(frame, "1.0") == b"SEND\na:x:\\n\\\r \n\n\0"
    for pair in [("a", "\n"), ("\n", "a"), ("a:", "a")]:
        assert refused(codec, codec.Frame("SEND", [pair]), "1.0") == "unencodable"


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


@pytest.mark.req("S12-FRM-04", "S11-FRM-06")
@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    "pair", [("", "v"), ("a\0", "v"), ("a", "\0"), ("a", "\ud800"), ("\udcff", "v"), ("a", "x" * 50 + "\0")]
)
def test_headers_that_no_version_carries(codec, version, pair):
    assert refused(codec, codec.Frame("SEND", [("good", "1"), pair], b"x"), version) == "unencodable"


@pytest.mark.req("S12-UTF-01", "S11-UTF-01", "LEG-UTF-01")
@pytest.mark.parametrize("version", ALL)
def test_lenient_writes_what_lenient_read(codec, version):
    frame = codec.Frame("ACK", [("a\udcff", "\udcc3x")])
    assert codec.serialize(frame, version, lenient=True) == b"ACK\na\xff:\xc3x\n\n\0"
    for lone in ("\ud800", "\udc00", "\udc7f", "\udfff"):
        assert refused(codec, codec.Frame("ACK", [("a", lone)]), version, lenient=True) == "unencodable"


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    "command", ["", "NONSENSE", "SENDX", "SEN", "SEND\nx:y", "SEND\0", "SEND ", "\udcff", "É", "X" * 1000]
)
def test_unknown_commands(codec, version, command):
    """In the lenient mode too: nothing is written that a strict reader refuses."""
    for lenient in (False, True):
        assert refused(codec, codec.Frame(command, [("", "")], b"\0"), version, lenient=lenient) == "unknown-command"


def test_commands_of_versions(codec):
    assert refused(codec, codec.Frame("NACK"), "1.0") == "unknown-command"
    assert refused(codec, codec.Frame("STOMP"), "legacy") == "unknown-command"
    assert refused(codec, codec.Frame("send"), "1.2") == "unknown-command"
    assert codec.serialize(codec.Frame("RECEIVE"), commands=["RECEIVE"]) == b"RECEIVE\n\n\0"
    assert codec.serialize(codec.Frame("é"), commands=["é"]) == "é\n\n\0".encode()
    assert codec.serialize(codec.Frame("receive"), "legacy", commands=["RECEIVE"]) == b"RECEIVE\n\n\0"
    assert refused(codec, codec.Frame("RECEIVE", body=b"x"), commands=["RECEIVE"]) == "body-not-allowed"


@pytest.mark.req("S12-BDY-01", "S11-BDY-01", "S11-RCP-03", "S10-FRM-11")
@pytest.mark.parametrize("command", ["ACK", "BEGIN", "CONNECT", "RECEIPT", "SUBSCRIBE", "DISCONNECT"])
def test_bodies_where_none_is_allowed(codec, command):
    frame = codec.Frame(command, body=b"x")
    for version in ("1.1", "1.2", None):
        assert refused(codec, frame, version) == "body-not-allowed"
        assert refused(codec, frame, version, lenient=True) == "body-not-allowed"
    for version in ("1.0", "legacy"):
        assert codec.serialize(frame, version).endswith(b"\ncontent-length:1\n\nx\0")


def test_the_order_of_checks(codec):
    """Command, body, headers in their order, content-length."""
    bad_length = ("content-length", "7")
    assert refused(codec, codec.Frame("X", [("", ""), bad_length], b"x")) == "unknown-command"
    assert refused(codec, codec.Frame("ACK", [("", ""), bad_length], b"x")) == "body-not-allowed"
    assert refused(codec, codec.Frame("SEND", [bad_length, ("", "")], b"x")) == "unencodable"
    assert refused(codec, codec.Frame("SEND", [bad_length], b"x")) == "bad-content-length"


def test_errors_name_the_header_and_show_no_value(codec):
    with pytest.raises(FrameError, match="passcode") as raised:
        codec.serialize(codec.Frame("CONNECT", [("login", "ann"), ("passcode", "s3cret\n")]))
    assert "s3cret" not in str(raised.value)


# ---- content-length ----


@pytest.mark.req("S12-CL-04", "S12-CL-05", "S12-CL-06", "S11-CL-01", "S11-CL-02", "S11-CL-05", "S10-CL-01", "LEG-CL-02")
@pytest.mark.parametrize("version", ALL)
def test_added_when_there_is_a_body(codec, version):
    for body in (b"x", b"\0", "ü".encode(), b"x" * 123_456):
        lines = codec.serialize(codec.Frame("MESSAGE", {"a": "b"}, body), version).split(b"\n\n")[0]
        assert lines == b"MESSAGE\na:b\ncontent-length:%d" % len(body)
    assert codec.serialize(codec.Frame("MESSAGE"), version) == b"MESSAGE\n\n\0"
    empty = b"SEND\ncontent-length:0\n\n\0" if version == "legacy" else b"SEND\n\n\0"
    assert codec.serialize(codec.Frame("SEND"), version) == empty


@pytest.mark.parametrize("version", ALL)
def test_always(codec, version):
    for command in ("SEND", "ACK", "CONNECT"):
        data = codec.serialize(codec.Frame(command, {"a": "b"}), version, content_length="always")
        assert data == command.encode() + b"\na:b\ncontent-length:0\n\n\0"
    given = codec.Frame("SEND", [("content-length", "1"), ("a", "b")], b"x")
    assert codec.serialize(given, version, content_length="always") == b"SEND\ncontent-length:1\na:b\n\nx\0"


@pytest.mark.req("LEG-CL-03")
@pytest.mark.parametrize("version", ALL)
def test_never(codec, version):
    given = [("a", "1"), ("content-length", "1"), ("b", "2"), ("content-length", "9")]
    for pairs in (given, given[::2]):
        frame = codec.Frame("SEND", pairs, b"x")
        assert codec.serialize(frame, version, content_length="never") == b"SEND\na:1\nb:2\n\nx\0"
    assert refused(codec, codec.Frame("SEND", body=b"x\0y"), version, content_length="never") == "unencodable"
    parsed = list(codec.Parser(version).feed(b"SEND\na:1\ncontent-length:1\nb:2\n\nx\0"))
    assert codec.serialize_many(parsed, version, content_length="never") == b"SEND\na:1\nb:2\n\nx\0"


@pytest.mark.parametrize("mode", ["", "Auto", "sometimes", None, 1, b"auto", True])
@pytest.mark.parametrize("write", WRITERS)
def test_other_modes(codec, mode, write):
    frame = codec.Frame("ACK")
    with pytest.raises(ValueError, match="content_length"):
        getattr(codec, write)([frame] if write == "serialize_many" else frame, content_length=mode)


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
            assert f"\ncontent-length:{value}\ncontent-length:nonsense\n\nhello".encode() in codec.serialize(
                frame, version
            )
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


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 10**6])
def test_parts(codec, size):
    body = b"\0" * size
    for frame in (
        codec.Frame("SEND", {"a": "b"}, body),
        *codec.Parser("1.2").feed(b"SEND\ncontent-length:%d\n\n%b\0" % (size, body)),
    ):
        parts = codec.serialize_parts(frame)
        assert type(parts) is list
        assert all(type(part) is bytes for part in parts)
        assert b"".join(parts) == codec.serialize(frame)
        assert len(parts) == (1 if size < 8192 else 3)
        if size >= 8192:
            assert parts[1] is frame.body
            assert parts[2] == b"\0"


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


def test_tail_refuses_what_is_no_frame(codec):
    for frame in ("SEND", None, codec.HEARTBEAT):
        with pytest.raises(TypeError):
            codec.serialize_tail(frame)
    streamed = next(iter(codec.Parser("1.2", stream_over=0).feed(b"SEND\n\nx")))
    with pytest.raises(TypeError, match="streamed"):
        codec.serialize_tail(streamed)
    for version in ("1.3", "legacy", None):
        with pytest.raises(ValueError, match="version"):
            codec.serialize_tail(codec.Frame("SEND"), version)
    with pytest.raises(TypeError):
        codec.serialize_tail(codec.Frame("SEND"), without="receipt")


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_many(codec, count):
    frames = [codec.Frame("SEND", {"n": str(i)}, b"x" * (i * 997)) for i in range(count)]
    wanted = b"".join(codec.serialize(frame) for frame in frames)
    assert (
        codec.serialize_many(frames)
        == codec.serialize_many(iter(frames))
        == codec.serialize_many(tuple(frames))
        == wanted
    )
    assert codec.serialize_many(frame for frame in frames) == wanted


NAMES = ["a", "b:", "c\n", "\\", "é", "", "content-length"]
VALUES = ["x", "", "ID:7:1", "two\nlines", "\r", "\1", "\1\n", "\0", "\udc80", "5", "05", "0"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_quick_road_in_python_only_skips_work(monkeypatch, version):
    """It writes what the other road writes, or nothing."""
    codec = backend("python")
    frames = [
        codec.Frame(command, pairs, body)
        for command in ("SEND", "ACK", "CONNECT", "NONSENSE")
        for name in NAMES
        for value in VALUES
        for pairs in ({name: value}, {"k": "v", name: value, "z": "1"}, [(name, value), (name, value)])
        for body in (b"", b"hello")
    ]
    quick = [_serialize_py._quickly(frame, version) for frame in frames]
    assert sum(octets is not None for octets in quick) > 100
    monkeypatch.setattr(_serialize_py, "_quickly", lambda frame, version: None)
    for frame, octets in zip(frames, quick):
        if octets is not None:
            assert octets == codec.serialize(frame, version)


@pytest.mark.parametrize("value", ["x", ":" * 50, "é" * 50, "", "\n" * 3000])
def test_many_of_unlikely_sizes(codec, value):
    """The room that is made first may be too small for all escapes, or too large."""
    frames = [codec.Frame("SEND", {f"n{i}": value, "content-length": "7"}, b"content") for i in range(40)]
    read = list(codec.Parser("1.2").feed(b"".join(map(codec.serialize, frames))))
    for each in (frames, read, frames + read, [*frames, codec.Frame("SEND", body=b"x" * 300_000)]):
        for version in ("1.2", "1.1"):
            wanted = b"".join(codec.serialize(frame, version) for frame in each)
            assert codec.serialize_many(each, version) == codec.serialize_many(iter(each), version) == wanted


def test_many_with_an_error(codec):
    good, bad = codec.Frame("ACK"), codec.Frame("NONSENSE")
    with pytest.raises(FrameError, match="unknown-command"):
        codec.serialize_many([good, good, bad, good])

    def failing():
        yield good
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        codec.serialize_many(failing())


@pytest.mark.parametrize("wrong", [None, 5, "SEND", b"SEND\n\n\0", ("SEND", [], b""), object()])
@pytest.mark.parametrize("write", WRITERS)
def test_what_is_no_frame(codec, wrong, write):
    with pytest.raises(TypeError):
        getattr(codec, write)([wrong] if write == "serialize_many" else wrong)


@pytest.mark.c_only
@pytest.mark.parametrize("write", WRITERS)
def test_a_frame_of_the_other_backend(both, write):
    for one, other in (both, both[::-1]):
        frame = one.Frame("ACK")
        with pytest.raises(TypeError, match="Frame"):
            getattr(other, write)([frame] if write == "serialize_many" else frame)


@pytest.mark.parametrize("write", WRITERS)
def test_arguments(codec, write):
    frame = codec.Frame("ACK")
    given = [frame] if write == "serialize_many" else frame
    function = getattr(codec, write)
    for wrong in ("1.3", "", 1.2, b"1.2", [], "none"):
        with pytest.raises(ValueError, match="version"):
            function(given, wrong)
    for args, named in (((), {}), ((given, "1.2", "auto"), {}), ((given,), {"nothing": 1})):
        with pytest.raises(TypeError):
            function(*args, **named)
