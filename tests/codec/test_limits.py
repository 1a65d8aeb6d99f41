"""Each limit, at it and one past it, in every cut: kind, offset and the name of the limit."""

import pytest
from codec.lockstep import answers_of, run, same_in_every_cut

from stompcodec.spec import Limits

pytestmark = pytest.mark.req("S12-LIM-05", "S11-LIM-05")
crlf_versions = pytest.mark.parametrize("version", ["1.2", None, "legacy"])
all_versions = pytest.mark.parametrize("version", ["1.2", "1.1", "1.0", "legacy", None])
eols = pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])


def passed(offset, limit):
    return ("error", "limit-exceeded", offset, limit)


def nul(offset):
    return ("error", "unexpected-nul", offset, None)


@crlf_versions
@eols
@pytest.mark.parametrize("limit", [4, 5, 63, 64, 65, 300])
def test_command_lines(codec, version, eol, limit):
    options = {"version": version, "limits": Limits(max_command_line=limit), "commands": ["C" * limit]}
    data = b"\n" + b"C" * limit + eol + eol + b"\0"
    assert same_in_every_cut(codec, data, **options) == [("frame", "C" * limit, [], b"")]
    assert same_in_every_cut(codec, b"\nC" + data[1:], **options) == [passed(1 + limit, "max_command_line")]


@crlf_versions
@eols
@pytest.mark.parametrize("limit", [2, 3, 15, 16, 61, 62, 63, 64, 65, 130])
def test_header_lines(codec, version, eol, limit):
    options = {"version": version, "limits": Limits(max_header_line=limit)}
    data = b"SEND" + eol + b"a:" + eol + b"n:%b" + eol + eol + b"\0"
    at = same_in_every_cut(codec, data % (b"v" * (limit - 2)), **options)
    assert at == [("frame", "SEND", [("a", ""), ("n", "v" * (limit - 2))], b"")]
    past = same_in_every_cut(codec, data % (b"v" * (limit - 1)), **options)
    assert past == [passed(data.index(b"n:") + limit, "max_header_line")]


@all_versions
@pytest.mark.parametrize("limit", [0, 1, 2, 31, 32, 33])
def test_headers_at_and_past_the_limit(codec, version, limit):
    limits, head = Limits(max_headers=limit), b"SEND\n" + b"a:b\n" * limit
    at = answers_of(codec, head + b"\n\0", version=version, limits=limits)
    assert at == [("frame", "SEND", [("a", "b")] * limit, b"")]
    blank = () if version == "legacy" else (b" \n", b"\r\r\n")
    for line in (b"a:b\n\n\0", b"x", b"a\0", b" x", *blank):
        for chunks in ([head + line], [head, line], [head + line[:1], line[1:]], [head[:-1], b"\n" + line]):
            got = answers_of(codec, chunks, version=version, limits=limits)
            assert got == [passed(len(head), "max_headers")], (line, chunks)


@all_versions
@pytest.mark.parametrize("limit", [0, 1, 2, 64, 100])
def test_bodies(codec, version, limit):
    options = {"version": version, "limits": Limits(max_body=limit)}
    counted, length = b"SEND\ncontent-length:%d\n\n", ("content-length", str(limit))
    for data, answer in (
        (counted % limit + b"\0" * limit + b"\0", ("frame", "SEND", [length], b"\0" * limit)),
        (counted % (limit + 1) + b"x", passed(20, "max_body")),
        (b"SEND\n\n" + b"x" * limit + b"\0", ("frame", "SEND", [], b"x" * limit)),
        (b"SEND\n\n" + b"x" * (limit + 1) + b"\0", passed(6 + limit, "max_body")),
    ):
        assert same_in_every_cut(codec, data, **options) == [answer]


@pytest.mark.parametrize("stream_over", [0, 1, 9, 10, 11])
def test_streamed_bodies_are_limited_too(codec, stream_over):
    options = {"limits": Limits(max_body=10), "stream_over": stream_over}
    begun = [("frame", "SEND", [], None), ("piece", b"x" * 10)] if stream_over < 10 else []
    at = [*begun, ("end",)] if begun else [("frame", "SEND", [], b"x" * 10)]
    assert same_in_every_cut(codec, b"SEND\n\n" + b"x" * 10 + b"\0", **options) == at
    past = same_in_every_cut(codec, b"SEND\n\n" + b"x" * 11 + b"\0", **options)
    assert past == [*begun, passed(16, "max_body")]
    counted = same_in_every_cut(codec, b"SEND\ncontent-length:11\n\n" + b"x" * 11 + b"\0", **options)
    assert counted == [passed(20, "max_body")]


@all_versions
@pytest.mark.parametrize(
    ("limits", "data", "answer"),
    [
        # The limit is noticed without a line end: as soon as one octet is too many, whatever follows.
        ({"max_command_line": 3}, b"SEN", ("error", "truncated", 3, None)),
        ({"max_command_line": 3}, b"SEND", passed(3, "max_command_line")),
        *(({"max_command_line": 4}, b"SEN\0", nul(3)), ({"max_command_line": 4}, b"SEND\0", nul(4))),
        ({"max_command_line": 4}, b"SENDX\0", passed(4, "max_command_line")),
        ({"max_headers": 1}, b"SEND\na:b\n\0", nul(9)),
        # It comes before what the line says.
        *[
            ({"max_header_line": len(line) - 1}, b"SEND\n" + line + b"\n\n\0", passed(4 + len(line), "max_header_line"))
            for line in (b"no colon here", b":no name", b"bad\xffutf8:", b"a:\\q\\", b"content-length:x")
        ],
    ],
)
def test_which_comes_first(codec, version, limits, data, answer):
    assert same_in_every_cut(codec, data, version=version, limits=Limits(**limits)) == [answer]


@pytest.mark.parametrize(
    ("limits", "options", "data", "answer"),
    [
        ({"max_command_line": 4}, {}, b"SEND\r\0", passed(4, "max_command_line")),
        # Spaces of a line between frames count, and header lines that are skipped.
        ({"max_command_line": 4}, {"version": "legacy"}, b"    \nACK\n\n\0", ("frame", "ACK", [], b"")),
        ({"max_command_line": 4}, {"version": "legacy"}, b"    \r\nACK\n\n\0", ("frame", "ACK", [], b"")),
        ({"max_command_line": 4}, {"version": "legacy"}, b"     \nACK\n\n\0", passed(4, "max_command_line")),
        ({"max_headers": 2}, {"lenient": True}, b"SEND\nx\na:b\n\n\0", ("frame", "SEND", [("a", "b")], b"")),
        ({"max_headers": 2}, {"lenient": True}, b"SEND\nx\n:\na:b\n\n\0", passed(9, "max_headers")),
        # Without headers their size has no bound, so the limit may be larger than a size_t.
        ({"max_headers": 0, "max_header_line": 2**70}, {}, b"ACK\n\n\0", ("frame", "ACK", [], b"")),
        ({"max_headers": 0, "max_header_line": 2**70}, {}, b"ACK\na:b\n", passed(4, "max_headers")),
    ],
)
def test_what_counts(codec, limits, options, data, answer):
    assert same_in_every_cut(codec, data, limits=Limits(**limits), **options) == [answer]


@pytest.mark.req("LEG-FRM-01", "LEG-FRM-03")
@pytest.mark.parametrize("blank", [b"", b" ", b"\r", b"\r\r", b"    ", b"   \r\r", b"     \r", b" \r \r "])
@pytest.mark.parametrize("count", [0, 2])
def test_a_blank_line_of_spaces_is_no_header(codec, blank, count):
    """In the legacy dialect a blank line may hold spaces and CRs, behind the last header that the limit allows, too.
    Anything else in it makes it a header too many, as does a blank line that is too long."""
    stream = b"send\n" + b"".join(b"x: %d\n" % number for number in range(count)) + blank
    at, limits = len(stream) - len(blank), Limits(max_header_line=5, max_headers=count)
    long = passed(at + 5, "max_header_line")
    for more, answer in (
        (b"\nhi\0", ("frame", "SEND", [("x", str(number)) for number in range(count)], b"hi")),
        *((b"y\n\0", passed(at, "max_headers")), (b"      \n", long)),
        (b"\0", long if len(blank) > 5 else nul(len(stream))),
    ):
        assert same_in_every_cut(codec, stream + more, version="legacy", limits=limits) == [answer]


@pytest.mark.parametrize("digits", ["9" * 18, "9" * 19, "18446744073709551616", "18446744073709551617", "9" * 5000])
def test_numbers_of_any_length(codec, digits):
    """No number from the wire overflows or is converted without a look at its length."""
    data = f"SEND\ncontent-length:{digits}\n\n".encode()
    for limits in (None, Limits(max_body=2**62 if len(digits) > 18 else 10**17)):
        assert answers_of(codec, data, limits=limits) == [passed(20, "max_body")]
    zeros = "0" * len(digits) + "3"
    frame = ("frame", "SEND", [("content-length", zeros)], b"abc")
    assert answers_of(codec, f"SEND\ncontent-length:{zeros}\n\nabc\0".encode()) == [frame]


@pytest.mark.parametrize("length", [2**32, 2**32 + 3, 2**62])
@pytest.mark.parametrize("way", ["feed", "buffer"])
def test_a_length_that_32_bits_cannot_hold(codec, length, way):
    """The frame is not complete after the rest that 32 bits leave of its length, and it is not streamed."""
    head, options = b"SEND\ncontent-length:%d\n\n" % length, {"limits": Limits(max_body=2**62), "way": way}
    for pieces in ([head + b"abc\0"], [head, b"abc\0"], [head, b"abc", b"\0", b"ACK\n\n\0"]):
        size = len(b"".join(pieces))
        answers, buffered = run(codec, pieces, **options)
        assert (answers, buffered[len(pieces) - 1]) == ([("error", "truncated", size, None)], size)


@pytest.mark.parametrize("name", Limits._fields)
def test_limits_are_checked_and_may_not_be_more_than_offsets_hold(codec, name):
    for wrong in (-1, -(2**70), True):
        with pytest.raises((TypeError, ValueError), match=name):
            codec.Parser("1.2", limits=Limits(**{name: wrong}))
    codec.Parser(limits=Limits(max_body=2**62))
    for said, limits in (("4 GiB", {"max_headers": 10**6}), (r"2\*\*62", {"max_body": 2**62 + 1})):
        with pytest.raises(ValueError, match=said):
            codec.Parser(limits=Limits(**limits))
