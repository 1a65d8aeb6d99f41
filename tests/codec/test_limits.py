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


# ---- lines ----


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
def test_the_limit_is_noticed_without_a_line_end(codec, version):
    """As soon as one octet is too many, whatever follows."""
    for data, answer in ((b"SEN", ("error", "truncated", 3, None)), (b"SEND", passed(3, "max_command_line"))):
        assert answers_of(codec, data, version=version, limits=Limits(max_command_line=3)) == [answer]


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"SEN\0", ("error", "unexpected-nul", 3, None)),
        (b"SEND\0", ("error", "unexpected-nul", 4, None)),
        (b"SENDX\0", passed(4, "max_command_line")),
        (b"SEND\r\0", passed(4, "max_command_line")),
    ],
)
def test_nul_or_limit_whatever_is_met_first(codec, data, answer):
    assert same_in_every_cut(codec, data, limits=Limits(max_command_line=4)) == [answer]


def test_spaces_of_a_legacy_gap_line_count(codec):
    options = {"version": "legacy", "limits": Limits(max_command_line=4)}
    for eol in (b"\n", b"\r\n"):
        assert same_in_every_cut(codec, b"    " + eol + b"ACK\n\n\0", **options) == [("frame", "ACK", [], b"")]
    assert same_in_every_cut(codec, b"     \nACK\n\n\0", **options) == [passed(4, "max_command_line")]


@all_versions
@pytest.mark.parametrize("line", [b"no colon here", b":no name", b"bad\xffutf8:", b"a:\\q\\", b"content-length:x"])
def test_the_limit_comes_before_what_the_line_says(codec, version, line):
    data = b"SEND\n" + line + b"\n\n\0"
    answers = same_in_every_cut(codec, data, version=version, limits=Limits(max_header_line=len(line) - 1))
    assert answers == [passed(5 + len(line) - 1, "max_header_line")]


# ---- number of headers ----


@all_versions
@pytest.mark.parametrize("limit", [0, 1, 2, 31, 32, 33])
def test_headers_at_and_past_the_limit(codec, version, limit):
    limits = Limits(max_headers=limit)
    head = b"SEND\n" + b"a:b\n" * limit
    at = answers_of(codec, head + b"\n\0", version=version, limits=limits)
    assert at == [("frame", "SEND", [("a", "b")] * limit, b"")]
    blank = () if version == "legacy" else (b" \n", b"\r\r\n")
    for line in (b"a:b\n\n\0", b"x", b"a\0", b" x", *blank):
        chunkings = ([head + line], [head, line], [head + line[:1], line[1:]], [head[:-1], b"\n" + line])
        for chunks in chunkings:
            got = answers_of(codec, chunks, version=version, limits=limits)
            assert got == [passed(len(head), "max_headers")], (line, chunks)


@all_versions
def test_nul_instead_of_one_header_more(codec, version):
    got = same_in_every_cut(codec, b"SEND\na:b\n\0", version=version, limits=Limits(max_headers=1))
    assert got == [("error", "unexpected-nul", 9, None)]


def test_lines_that_are_skipped_count(codec):
    limits = Limits(max_headers=2)
    for line, answer in ((b"", ("frame", "SEND", [("a", "b")], b"")), (b":\n", passed(16, "max_headers"))):
        data = b"SEND\nno colon\n%ba:b\n\n\0" % line
        assert same_in_every_cut(codec, data, limits=limits, lenient=True) == [answer]


# ---- bodies ----


@all_versions
@pytest.mark.parametrize("limit", [0, 1, 2, 64, 100])
def test_bodies(codec, version, limit):
    options = {"version": version, "limits": Limits(max_body=limit)}
    head, length = b"SEND\ncontent-length:%d\n\n", ("content-length", str(limit))
    at = same_in_every_cut(codec, head % limit + b"\0" * limit + b"\0", **options)
    assert at == [("frame", "SEND", [length], b"\0" * limit)]
    assert same_in_every_cut(codec, head % (limit + 1) + b"x", **options) == [passed(20, "max_body")]
    at = same_in_every_cut(codec, b"SEND\n\n" + b"x" * limit + b"\0", **options)
    assert at == [("frame", "SEND", [], b"x" * limit)]
    past = same_in_every_cut(codec, b"SEND\n\n" + b"x" * (limit + 1) + b"\0", **options)
    assert past == [passed(6 + limit, "max_body")]


@pytest.mark.parametrize("stream_over", [0, 1, 9, 10, 11])
def test_streamed_bodies_are_limited_too(codec, stream_over):
    options = {"limits": Limits(max_body=10), "stream_over": stream_over}
    at = same_in_every_cut(codec, b"SEND\n\n" + b"x" * 10 + b"\0", **options)
    past = same_in_every_cut(codec, b"SEND\n\n" + b"x" * 11 + b"\0", **options)
    begun = [("frame", "SEND", [], None), ("piece", b"x" * 10)] if stream_over < 10 else []
    assert at == ([*begun, ("end",)] if begun else [("frame", "SEND", [], b"x" * 10)])
    assert past == [*begun, passed(16, "max_body")]
    counted = same_in_every_cut(codec, b"SEND\ncontent-length:11\n\n" + b"x" * 11 + b"\0", **options)
    assert counted == [passed(20, "max_body")]


@pytest.mark.parametrize("digits", ["9" * 18, "9" * 19, "18446744073709551616", "18446744073709551617", "9" * 5000])
def test_numbers_of_any_length(codec, digits):
    """No number from the wire overflows or is converted without a look at its length."""
    data = f"SEND\ncontent-length:{digits}\n\n".encode()
    for limits in (None, Limits(max_body=2**62 if len(digits) > 18 else 10**17)):
        assert answers_of(codec, data, limits=limits) == [passed(20, "max_body")]
    zeros = f"SEND\ncontent-length:{'0' * len(digits)}3\n\nabc\0".encode()
    assert answers_of(codec, zeros) == [("frame", "SEND", [("content-length", "0" * len(digits) + "3")], b"abc")]


@pytest.mark.parametrize("length", [2**32, 2**32 + 3, 2**62])
@pytest.mark.parametrize("way", ["feed", "buffer"])
def test_a_length_that_32_bits_cannot_hold(codec, length, way):
    """The frame is not complete after the rest that 32 bits leave of its length, and it is not streamed."""
    head, options = b"SEND\ncontent-length:%d\n\n" % length, {"limits": Limits(max_body=2**62), "way": way}
    for pieces in ([head + b"abc\0"], [head, b"abc\0"], [head, b"abc", b"\0", b"ACK\n\n\0"]):
        size = len(b"".join(pieces))
        answers, buffered = run(codec, pieces, **options)
        assert (answers, buffered[len(pieces) - 1]) == ([("error", "truncated", size, None)], size)


# ---- Limits ----


@pytest.mark.parametrize("name", Limits._fields)
def test_limits_are_checked(codec, name):
    for wrong in (-1, -(2**70)):
        with pytest.raises(ValueError, match=name):
            codec.Parser("1.2", limits=Limits(**{name: wrong}))
    for wrong in (1.5, "1", None, True):
        with pytest.raises(TypeError, match=name):
            codec.Parser("1.2", limits=Limits(**{name: wrong}))


def test_limits_that_offsets_cannot_hold(codec):
    with pytest.raises(ValueError, match="4 GiB"):
        codec.Parser(limits=Limits(max_headers=10**6))
    with pytest.raises(ValueError, match=r"2\*\*62"):
        codec.Parser(limits=Limits(max_body=2**62 + 1))
    codec.Parser(limits=Limits(max_body=2**62))


def test_a_line_of_any_length_where_no_header_is_allowed(codec):
    """Without headers their size has no bound, so the limit may be larger than a size_t."""
    limits = Limits(max_headers=0, max_header_line=2**70)
    assert answers_of(codec, b"ACK\n\n\0", limits=limits) == [("frame", "ACK", [], b"")]
    assert answers_of(codec, b"ACK\na:b\n", limits=limits) == [passed(4, "max_headers")]


@pytest.mark.req("LEG-FRM-01", "LEG-FRM-03")
@pytest.mark.parametrize("blank", [b"", b" ", b"\r", b"\r\r", b"    ", b"   \r\r", b"     \r", b" \r \r "])
@pytest.mark.parametrize("count", [0, 2])
def test_a_blank_line_of_spaces_is_no_header(codec, blank, count):
    """In the legacy dialect a blank line may hold spaces and CRs, behind the last header that the limit allows, too."""
    limits = Limits(max_header_line=5, max_headers=count)
    headers = [("x", str(number)) for number in range(count)]
    stream = b"send\n" + b"".join(b"x: %b\n" % value.encode() for _, value in headers) + blank
    frame = ("frame", "SEND", headers, b"hi")
    assert same_in_every_cut(codec, stream + b"\nhi\0", version="legacy", limits=limits) == [frame]
    # Anything else in it makes it a header too many, as does a blank line that is too long.
    at = len(stream) - len(blank)
    long, nul = passed(at + 5, "max_header_line"), ("error", "unexpected-nul", len(stream), None)
    for more, wanted in (
        (b"y\n\0", passed(at, "max_headers")),
        (b"      \n", long),
        (b"\0", long if len(blank) > 5 else nul),
    ):
        assert same_in_every_cut(codec, stream + more, version="legacy", limits=limits) == [wanted]
