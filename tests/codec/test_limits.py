"""Each limit, at it and one past it, in every cut: kind, offset and the name of the limit."""

import pytest
from codec.lockstep import answers_of, run, same_in_every_cut

from stompcodec.errors import FrameError
from stompcodec.spec import Limits

pytestmark = pytest.mark.req("S12-LIM-05", "S11-LIM-05")

crlf_versions = pytest.mark.parametrize("version", ["1.2", None, "legacy"])
all_versions = pytest.mark.parametrize("version", ["1.2", "1.1", "1.0", "legacy", None])
eols = pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])


def passed(offset, limit):
    return ("error", "limit-exceeded", offset, limit)


def commands(answers):
    return [answer[1] if answer[0] == "frame" else answer for answer in answers]


# ---- command line ----


@crlf_versions
@eols
@pytest.mark.parametrize("limit", [4, 5, 63, 64, 65, 300])
def test_command_line_at_the_limit(codec, version, eol, limit):
    command = "C" * limit
    data = command.encode() + eol + eol + b"\0"
    answers = same_in_every_cut(codec, data, version=version, limits=Limits(max_command_line=limit), commands=[command])
    assert commands(answers) == [command]


@crlf_versions
@eols
@pytest.mark.parametrize("limit", [0, 1, 3, 63, 64, 65])
def test_command_line_past_the_limit(codec, version, eol, limit):
    command = "C" * (limit + 1)
    data = b"\n" + command.encode() + eol + eol + b"\0"
    answers = same_in_every_cut(codec, data, version=version, limits=Limits(max_command_line=limit), commands=[command])
    assert answers == [passed(1 + limit, "max_command_line")]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_cr_counts_where_it_is_data(codec, version):
    limits = Limits(max_command_line=4)
    answers = same_in_every_cut(codec, b"SEND\r\n\n\0", version=version, limits=limits)
    assert answers == [passed(4, "max_command_line")]


@all_versions
def test_the_limit_is_noticed_without_a_line_end(codec, version):
    """As soon as one octet is too many, whatever follows."""
    limits = Limits(max_command_line=3)
    assert answers_of(codec, b"SEN", version=version, limits=limits) == [("error", "truncated", 3, None)]
    assert answers_of(codec, b"SEND", version=version, limits=limits) == [passed(3, "max_command_line")]


def test_a_cr_that_may_end_the_line_is_waited_for(codec):
    limits = Limits(max_command_line=4)
    assert run(codec, [b"SEND\r"], limits=limits, close=False) == ([], [5])
    assert answers_of(codec, [b"SEND\r", b"\n\n\0"], limits=limits) == [("frame", "SEND", [], b"")]
    assert answers_of(codec, [b"SEND\r", b"x"], limits=limits) == [passed(4, "max_command_line")]
    assert answers_of(codec, [b"SEND\r", b"\r\n"], limits=limits) == [passed(4, "max_command_line")]


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
    wanted = [("error", "limit-exceeded", at, "max_headers")]
    assert same_in_every_cut(codec, stream + b"y\n\0", version="legacy", limits=limits) == wanted
    wanted = [("error", "limit-exceeded", at + 5, "max_header_line")]
    assert same_in_every_cut(codec, stream + b"      \n", version="legacy", limits=limits) == wanted
    too_long = len(blank) > 5
    wanted = [
        ("error", "limit-exceeded", at + 5, "max_header_line")
        if too_long
        else ("error", "unexpected-nul", len(stream), None)
    ]
    assert same_in_every_cut(codec, stream + b"\0", version="legacy", limits=limits) == wanted


@pytest.mark.parametrize(("version", "blank"), [("1.2", b" "), ("1.2", b"\r\r"), ("1.1", b"\r"), ("1.0", b" ")])
def test_elsewhere_a_line_of_spaces_is_a_header(codec, version, blank):
    limits = Limits(max_headers=1)
    wanted = [("error", "limit-exceeded", 9, "max_headers")]
    assert same_in_every_cut(codec, b"SEND\nx:1\n" + blank + b"\n\0", version=version, limits=limits) == wanted


def test_a_long_command_in_lower_case(codec):
    """Legacy folds commands of any length."""
    name = "A-COMMAND-OF-SIXTEEN-OCTETS-AND-MORE"
    frame = ("frame", name, [], b"")
    stream = name.lower().encode() + b" \n\n\0"
    assert same_in_every_cut(codec, stream, version="legacy", commands=[name]) == [frame]
    wanted = [("error", "unknown-command", 0, None)]
    assert same_in_every_cut(codec, stream, version="legacy", commands=[name.lower()]) == wanted


def test_spaces_of_a_legacy_gap_line_count(codec):
    limits = Limits(max_command_line=4)
    frame = ("frame", "ACK", [], b"")
    assert same_in_every_cut(codec, b"    \nACK\n\n\0", version="legacy", limits=limits) == [frame]
    assert same_in_every_cut(codec, b"    \r\nACK\n\n\0", version="legacy", limits=limits) == [frame]
    assert same_in_every_cut(codec, b"     \nACK\n\n\0", version="legacy", limits=limits) == [
        passed(4, "max_command_line")
    ]


# ---- header lines ----


@crlf_versions
@eols
@pytest.mark.parametrize("limit", [2, 3, 15, 16, 61, 62, 63, 64, 65, 130])
def test_header_line_at_the_limit(codec, version, eol, limit):
    line = b"n:" + b"v" * (limit - 2)
    data = b"SEND" + eol + line + eol + eol + b"\0"
    answers = same_in_every_cut(codec, data, version=version, limits=Limits(max_header_line=limit))
    assert answers == [("frame", "SEND", [("n", "v" * (limit - 2))], b"")]


@crlf_versions
@eols
@pytest.mark.parametrize("limit", [2, 3, 15, 16, 61, 62, 63, 64, 65, 130])
def test_header_line_past_the_limit(codec, version, eol, limit):
    line = b"n:" + b"v" * (limit - 1)
    data = b"SEND" + eol + b"a:" + eol + line + eol + eol + b"\0"
    start = data.index(b"n:")
    answers = same_in_every_cut(codec, data, version=version, limits=Limits(max_header_line=limit))
    assert answers == [passed(start + limit, "max_header_line")]


@all_versions
@pytest.mark.parametrize("line", [b"no colon here", b":no name", b"bad\xffutf8:", b"a:\\q\\", b"content-length:x"])
def test_the_limit_comes_before_what_the_line_says(codec, version, line):
    data = b"SEND\n" + line + b"\n\n\0"
    answers = same_in_every_cut(codec, data, version=version, limits=Limits(max_header_line=len(line) - 1))
    assert answers == [passed(5 + len(line) - 1, "max_header_line")]


def test_a_raw_line_is_measured(codec):
    """An escape counts as it stands on the wire, and so does UTF-8."""
    for line, value in ((b"n:\\n\\n", "\n\n"), ("n:éé".encode(), "éé")):
        data = b"SEND\n" + line + b"\n\n\0"
        assert answers_of(codec, data, limits=Limits(max_header_line=6)) == [("frame", "SEND", [("n", value)], b"")]
        assert answers_of(codec, data, limits=Limits(max_header_line=5)) == [passed(10, "max_header_line")]


def test_a_header_line_may_wait_for_its_lf(codec):
    limits = Limits(max_header_line=4)
    assert run(codec, [b"SEND\nab:c\r"], limits=limits, close=False) == ([], [10])
    assert answers_of(codec, [b"SEND\nab:c\r", b"\n\n\0"], limits=limits) == [("frame", "SEND", [("ab", "c")], b"")]
    assert answers_of(codec, [b"SEND\nab:c\r", b"c"], limits=limits) == [passed(9, "max_header_line")]
    assert answers_of(codec, b"SEND\nab:c\r", limits=limits, version="1.1") == [passed(9, "max_header_line")]


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
    data = b"SEND\na:b\n\0"
    assert same_in_every_cut(codec, data, version=version, limits=Limits(max_headers=1)) == [
        ("error", "unexpected-nul", 9, None)
    ]


@crlf_versions
def test_crlf_instead_of_one_header_more(codec, version):
    limits = Limits(max_headers=1)
    data = b"SEND\r\na:b\r\n\r\n\0"
    assert same_in_every_cut(codec, data, version=version, limits=limits) == [("frame", "SEND", [("a", "b")], b"")]
    if version == "legacy":
        return
    for tail in (b"\rx", b"\r\r\n", b"\r\0"):
        answers = same_in_every_cut(codec, b"SEND\r\na:b\r\n" + tail, version=version, limits=limits)
        assert answers == [passed(11, "max_headers")]


def test_lines_that_are_skipped_count(codec):
    limits = Limits(max_headers=2)
    good = same_in_every_cut(codec, b"SEND\nno colon\na:b\n\n\0", limits=limits, lenient=True)
    assert good == [("frame", "SEND", [("a", "b")], b"")]
    bad = same_in_every_cut(codec, b"SEND\nno colon\n:\na:b\n\n\0", limits=limits, lenient=True)
    assert bad == [passed(16, "max_headers")]


# ---- bodies ----


@all_versions
@pytest.mark.parametrize("limit", [0, 1, 2, 64, 100])
def test_counted_bodies(codec, version, limit):
    limits = Limits(max_body=limit)
    head = b"SEND\ncontent-length:%d\n\n"
    body = b"\0" * limit
    at = same_in_every_cut(codec, head % limit + body + b"\0", version=version, limits=limits)
    assert at == [("frame", "SEND", [("content-length", str(limit))], body)]
    past = same_in_every_cut(codec, head % (limit + 1) + b"x", version=version, limits=limits)
    assert past == [passed(20, "max_body")]


@all_versions
@pytest.mark.parametrize("limit", [0, 1, 2, 64, 100])
def test_bodies_without_a_count(codec, version, limit):
    limits = Limits(max_body=limit)
    at = same_in_every_cut(codec, b"SEND\n\n" + b"x" * limit + b"\0", version=version, limits=limits)
    assert at == [("frame", "SEND", [], b"x" * limit)]
    past = same_in_every_cut(codec, b"SEND\n\n" + b"x" * (limit + 1) + b"\0", version=version, limits=limits)
    assert past == [passed(6 + limit, "max_body")]


@pytest.mark.parametrize("stream_over", [0, 1, 9, 10, 11])
def test_streamed_bodies_are_limited_too(codec, stream_over):
    options = {"limits": Limits(max_body=10), "stream_over": stream_over}
    at = same_in_every_cut(codec, b"SEND\n\n" + b"x" * 10 + b"\0", **options)
    past = same_in_every_cut(codec, b"SEND\n\n" + b"x" * 11 + b"\0", **options)
    if stream_over < 10:
        assert at == [("frame", "SEND", [], None), ("piece", b"x" * 10), ("end",)]
        assert past == [("frame", "SEND", [], None), ("piece", b"x" * 10), passed(16, "max_body")]
    else:
        assert at == [("frame", "SEND", [], b"x" * 10)]
        assert past == [passed(16, "max_body")]
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
def test_a_length_that_32_bits_cannot_hold(codec, length):
    """The frame is not complete after the rest that 32 bits leave of its length, and it is not streamed."""
    head = b"SEND\ncontent-length:%d\n\n" % length
    for pieces in ([head + b"abc\0"], [head, b"abc\0"], [head, b"abc", b"\0", b"ACK\n\n\0"]):
        for way in ("feed", "buffer"):
            parser = codec.Parser("1.2", limits=Limits(max_body=2**62))
            for piece in pieces:
                if way == "feed":
                    assert list(parser.feed(piece)) == []
                    continue
                with memoryview(parser.get_buffer(100)) as view:
                    view[: len(piece)] = piece
                assert list(parser.buffer_updated(len(piece))) == []
            assert parser.buffered == len(b"".join(pieces))
            with pytest.raises(FrameError, match="truncated"):
                parser.close()


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


def test_the_message_names_the_limit(codec):
    with pytest.raises(FrameError, match="max_header_line is exceeded"):
        list(codec.Parser(limits=Limits(max_header_line=3)).feed(b"SEND\nabcd"))


def test_defaults(codec):
    assert Limits() == (256, 65536, 1000, 100 * 2**20)
    line = b"n:" + b"v" * 65534
    assert len(answers_of(codec, b"SEND\n" + line + b"\n\n\0")) == 1
    assert answers_of(codec, b"SEND\n" + line + b"v\n\n\0") == [passed(5 + 65536, "max_header_line")]
    assert answers_of(codec, b"C" * 257) == [passed(256, "max_command_line")]
    many = b"SEND\n" + b"a:b\n" * 1000
    assert len(answers_of(codec, many + b"\n\0")[0][2]) == 1000
    assert answers_of(codec, many + b"a") == [passed(len(many), "max_headers")]
    assert answers_of(codec, b"SEND\ncontent-length:104857601\n") == [passed(20, "max_body")]
