"""A content-length that counts something else than the bytes of the body, and those of frames without a body."""

import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec import FrameError, Limits

NEXT = b"MESSAGE\n\nnext\0"


def frame_of(length, body, command=b"MESSAGE"):
    return b"%b\nx:y\ncontent-length:%d\n\n%b\0" % (command, length, body)


def read(codec, data, cuts=(), version="1.2", lenient=True, **options):
    parser = codec.Parser(version, lenient=lenient, **options)
    found, at = [], 0
    try:
        for cut in [*cuts, len(data)]:
            for event in parser.feed(data[at:cut]):
                found += [(event.command, event.body) if isinstance(event, codec.Frame) else event]
            at = cut
        parser.close()
    except FrameError as error:
        found.append((error.kind, error.offset))
    return found


WRONG = {
    "units of UTF-16": (frame_of(3, "😀1".encode()), "😀1".encode()),
    "the NUL": (frame_of(6, b"hello"), b"hello"),
    "a long text": (frame_of(5000, ("é" * 5000).encode()), ("é" * 5000).encode()),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("after", [b"", NEXT])
def test_lenient_takes_a_wrong_length_for_what_it_means(codec, kind, after):
    data, body = WRONG[kind]
    expected = [("MESSAGE", body), ("MESSAGE", b"next")][: 2 if NEXT in after else 1]
    cuts = range(1, len(data + after)) if len(data) < 100 else (10, 4000, 5040, 6000)
    assert read(codec, data + after) == read(codec, data + after, cuts) == expected
    columns = codec.parse_columns(data + after, lenient=True)
    assert (columns.rows, columns.error) == (len(expected), None)
    (frame,) = list(codec.Parser("1.2", lenient=True).feed(data))  # at once: nothing behind it is there yet
    with pytest.raises(FrameError, match="bad-content-length"):  # it is not passed on
        codec.serialize(frame)
    assert b"content-length:%d\n" % len(body) in codec.serialize_tail(frame)
    assert read(codec, data + NEXT, version="legacy", lenient=False)[0][0] == "missing-null"
    for version in ("1.0", "1.1", "1.2", "legacy"):
        assert read(codec, data + NEXT, version=version, lenient="server")[0][0] == "missing-null"


def test_a_body_that_ends_in_a_nul_is_taken_at_once_and_what_contradicts_it_is_an_error(codec):
    """It cannot be told from one whose sender counts the NUL until the next byte is there. With other NULs, it can."""
    data, more = frame_of(6, b"hello\0"), frame_of(6, b"h\0llo\0")
    assert read(codec, data) == [("MESSAGE", b"hello\0")]
    assert read(codec, data, [len(data) - 1]) == [("MESSAGE", b"hello"), ("missing-null", len(data) - 1)]
    assert read(codec, data, [len(data) - 1], lenient=False) == [("MESSAGE", b"hello\0")]
    assert read(codec, more, range(1, len(more))) == read(codec, more) == [("MESSAGE", b"h\0llo\0")]


@pytest.mark.parametrize("most", [{"limits": Limits(max_body=12)}, {"stream_over": 12}])
def test_limits_hold_for_a_text_that_is_longer_than_announced(codec, most):
    for text, fits in (("é" * 6, True), ("é" * 6 + "1", False)):
        found = read(codec, frame_of(len(text), text.encode()), **most)
        assert (found == [("MESSAGE", text.encode())]) is fits, found
        assert fits or found[-1][0] == "missing-null"


def test_it_is_said_once(codec, caplog):
    with caplog.at_level(logging.WARNING, "stompcodec.codec"):
        caplog.clear()
        assert len(read(codec, WRONG["the NUL"][0] * 3)) == 3
        assert [record.message.count("content-length") for record in caplog.records] == [1]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_length_of_a_frame_without_a_body_is_ignored_by_servers_too(codec, version):
    idle, full = (frame_of(5, body, b"ACK") + NEXT for body in (b"", b"hello"))
    for cuts in ((), range(1, len(idle))):
        assert read(codec, idle, cuts, version, "server") == [("ACK", b""), ("MESSAGE", b"next")]
        kept = [("ACK", b"hello"), ("MESSAGE", b"next")]
        assert read(codec, full, cuts, version, True) == kept
        assert (read(codec, full, cuts, version, "server") == kept) is (version == "1.0")
    assert {codec.parse_columns(idle, version, lenient=lenient).rows for lenient in ("server", True)} == {2}
    (frame,) = list(codec.Parser(version, lenient="server").feed(idle[: -len(NEXT)]))
    with pytest.raises(FrameError, match="bad-content-length"):
        codec.serialize(frame, version)


def test_a_server_takes_a_login_as_it_is_and_no_other_header(codec):
    login = b"STOMP\naccept-version:1.2\nhost:/\nlogin:DOM\\user\npasscode:pa\\ss\nclient-id:a\\b\\\\\n\n\0"
    (frame,) = list(codec.Parser(None, lenient="server").feed(login))
    found = [frame.headers[name] for name in ("login", "passcode", "client-id")]
    assert found == ["DOM\\user", "pa\\ss", "a\\b\\"]
    for strict, data in (
        *((codec.Parser(None), login), (codec.Parser("1.2", lenient="server"), login)),
        (codec.Parser(None, lenient="server"), login.replace(b"host:/", b"host:\\v")),
    ):
        with pytest.raises(FrameError, match="bad-escape"):
            list(strict.feed(data))


@pytest.mark.c_only
@given(
    st.text(max_size=20),
    st.integers(-3, 3),
    st.sampled_from(["MESSAGE", "ACK", "CONNECTED"]),
    st.sampled_from([b"", b"\n", b"\0", b"A", b"b", NEXT]),
    st.lists(st.integers(0, 120), max_size=4),
    st.sampled_from(["1.0", "1.1", "1.2", "legacy", None]),
    st.sampled_from([True, "server", False]),
    st.sampled_from([None, 3, 10]),
)
@example("\0", 0, "MESSAGE", b"\0", [44], "1.2", True, None)
@example("\0\x80", -1, "MESSAGE", b"", [], "1.2", True, None)
def test_both_backends_agree(both, text, more, command, after, cuts, version, lenient, stream_over):
    data = frame_of(max(len(text) + more, 0), text.encode(), command.encode()) + after
    cuts = sorted(cut for cut in set(cuts) if cut < len(data))
    one, other = (read(c, data, cuts, version, lenient, stream_over=stream_over) for c in both)
    assert one == other
    one, other = (codec.parse_columns(data, version, lenient=lenient) for codec in both)
    assert (one.rows, one.consumed, one.error) == (other.rows, other.consumed, other.error)
