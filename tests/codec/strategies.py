"""Hypothesis strategies: streams good and bad, how they are cut, and the options of a parser."""

from hypothesis import strategies as st

from stompcodec.spec import Limits

VERSIONS = ["1.2", "1.1", "1.0", "legacy", None]
versions = st.sampled_from(VERSIONS)
commands = st.sampled_from([(), ("PING",), ("PING", "café")])
_COMMAND_LINES = [
    *(b"SEND", b"MESSAGE", b"ERROR", b"CONNECT", b"CONNECTED", b"STOMP", b"ACK", b"BEGIN", b"RECEIPT", b"SUBSCRIBE"),
    *(b"PING", b"Send", b"SENDX", b"SEN", b"caf\xc3\xa9", b"\xff\xfe", b"X" * 20, b" ACK", b"\rACK", b""),
]
_FIELDS = [
    *(b"a", b"id", b"b" * 70, b"", b" ", b"\t", b":", b"\\", b"\\n", b"\\r", b"\\c", b"\\\\", b"\\q", b"\r", b"\0"),
    *(b"\x01", b"\xc3\xa9", b"\xc3", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"v" * 130),
    b"content-length",
]
_LENGTHS = b"0|1|2|3|03| 2 |\t1|2\t|+1|-1|1_0||70|111111111111111111111111111111|\xd9\xa3|2\r".split(b"|")
_EOLS = [b"\n", b"\n", b"\n", b"\n", b"\r\n", b"\r\n", b" \n", b"\r\r\n", b" \r\n"]
_GAPS = [b"", b"", b"", b"\n", b"\r\n", b"\n\n\n", b"\r", b"\0", b" ", b" \r\n", b"  \n"]
_header = st.one_of(
    st.sampled_from([b"destination:/queue/a", b"message-id:a\\cb", b"id:1", b"a:b:c", b"caf\xc3\xa9:\xe6\x9d\xb1"]),
    st.lists(st.sampled_from(_FIELDS), max_size=5).map(b"".join),
    st.builds(b"%b:%b".__mod__, st.tuples(st.sampled_from(_FIELDS), st.sampled_from(_FIELDS))),
    st.builds(
        b"%b:%b".__mod__,
        st.tuples(
            st.sampled_from([b"content-length", b"Content-Length", b" content-length "]), st.sampled_from(_LENGTHS)
        ),
    ),
)
_body = st.lists(st.sampled_from([b"\0", b"\n", b"a", b"abc", b"x" * 70, b"SEND\n\n\0"]), max_size=4).map(b"".join)


@st.composite
def wire_frames(draw: st.DrawFn) -> bytes:
    """A frame on the wire, often a good one, with one kind of line end or a mixture."""
    eols = st.sampled_from(_EOLS) if draw(st.booleans()) else st.just(draw(st.sampled_from([b"\n", b"\r\n"])))
    command = draw(st.sampled_from(_COMMAND_LINES[:8]) | st.sampled_from(_COMMAND_LINES))
    headers, body = draw(st.lists(_header, max_size=6)), draw(_body)
    if draw(st.booleans()):
        headers.insert(draw(st.integers(0, len(headers))), b"content-length:%d" % len(body))
    lines = b"".join(line + draw(eols) for line in [command, *headers, b""])
    return lines + body + b"\0"


@st.composite
def mutated(draw: st.DrawFn, streams: st.SearchStrategy[bytes]) -> bytes:
    """A stream with a few octets changed, dropped, added or doubled."""
    data = draw(streams)
    for _ in range(draw(st.integers(0, 3))):
        at, size = draw(st.integers(0, len(data))), draw(st.integers(0, 4))
        new = draw(st.one_of(st.binary(max_size=3), st.sampled_from([*_FIELDS, *_EOLS, *_GAPS])))
        data = data[:at] + new + data[at + size * draw(st.sampled_from([-2, 0, 1])) :]
    return data


_streams = st.lists(st.tuples(st.sampled_from(_GAPS), wire_frames()).map(b"".join), max_size=4).map(b"".join)
_tokens = st.lists(st.sampled_from([*_COMMAND_LINES, *_FIELDS, *_EOLS, *_EOLS, b"\n\n", b"\0", b"abc"]), max_size=30)
_body_less = st.sampled_from(
    [b"ACK\nid:1\n\n\0", b"BEGIN\ntransaction:a\\cb\n\n\0", b"\n", b"\r\n", b"RECEIPT\r\nreceipt-id:7\r\n\r\n\0"]
)
_with_body = st.builds(
    lambda head, body, counts: b"%b\n%b\n%b\0" % (head, b"content-length:%d\n" % len(body) if counts else b"", body),
    st.sampled_from([b"SEND", b"MESSAGE\ndestination:/topic/a", b"ERROR\nmessage:\xc3\xa9\\n"]),
    st.sampled_from([b"", b"x", b"hello", b"y" * 60, b"z" * 5000]),
    st.booleans(),
)
#: Streams without a fault in 1.2.
good_streams = st.lists(_body_less | _with_body, min_size=1, max_size=8).map(b"".join)
#: Octets that look like STOMP, more or less.
wires = st.one_of(
    good_streams, mutated(good_streams), _streams, mutated(_streams), _tokens.map(b"".join), st.binary(max_size=40)
)


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in pieces: each octet, equal pieces, or wherever; empty ones among them."""
    size = draw(st.sampled_from([1, 2, 3, 7, 64, 0]))
    if size:
        return [data[i : i + size] for i in range(0, len(data), size)]
    edges = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)])]


#: Small limits, so that they are met often.
limits = st.none() | st.builds(
    Limits,
    max_command_line=st.sampled_from([0, 1, 4, 5, 9, 256]),
    max_header_line=st.sampled_from([0, 1, 3, 16, 17, 65536]),
    max_headers=st.sampled_from([0, 1, 2, 1000]),
    max_body=st.sampled_from([0, 1, 2, 3, 70, 10**6]),
)


@st.composite
def parser_options(draw: st.DrawFn) -> dict[str, object]:
    return {
        **{"version": draw(versions), "limits": draw(limits), "lenient": draw(st.booleans())},
        **{"heartbeats": draw(st.booleans()), "commands": draw(commands)},
        "stream_over": draw(st.sampled_from([None, None, 0, 1, 2, 3, 50])),
    }


_COMMANDS = ["SEND", "MESSAGE", "ERROR", "CONNECT", "CONNECTED", "STOMP", "ACK", "BEGIN", "DISCONNECT"]
_texts = st.lists(
    st.sampled_from(["a", "id", "b" * 70, ":", "\\", "\n", "\r", " ", "\t", "\\n", "é", "東", "\U0001f600", "A"])
    | st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    max_size=5,
).map("".join)
#: Bodies, with sizes around the one from which `serialize_parts` does not copy.
bodies = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\0", b"hello", b"x" * 8191, b"x" * 8192, b"\0" * 9000, b"y" * 70000]),
)
_odd_texts = st.lists(
    st.sampled_from(["\0", "\ud800", "\udcff", "\x01", "Content-Length", "content-length", "1", "5"]) | _texts,
    max_size=4,
).map("".join)


@st.composite
def any_frames(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes]:
    """What `Frame` takes, good or not to be written."""
    command = draw(
        st.sampled_from(_COMMANDS) | st.sampled_from(["PING", "send", "é", "\udcff", "", "SEND\n", "X" * 300])
    )
    pairs = draw(st.lists(st.tuples(_texts | _odd_texts, _texts | _odd_texts), max_size=5))
    body = draw(bodies)
    if draw(st.booleans()):
        name = draw(st.sampled_from(["content-length", "content-length", "Content-Length"]))
        around = draw(st.sampled_from(["%d", "%d", " %d ", "\t%d", "0%d", "+%d", "%d1"]))
        pairs.insert(draw(st.integers(0, len(pairs))), (name, around % len(body)))
    return command, pairs, body


@st.composite
def edged_frames(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes]:
    """Frames whose texts begin and end in what readers may strip."""
    edges = st.sampled_from(["", draw(st.sampled_from([" ", "  ", "\r", "\t", "\r ", " \r", "\n", "\0", ":"]))])
    texts = st.builds("{}{}{}".format, edges, st.sampled_from(["", "a", "A b", "é"]), edges)
    command = draw(st.sampled_from([*_COMMANDS[:3], "ACK", "PING", "PING ", " PING", "send"]))
    pairs = draw(st.lists(st.tuples(texts, texts), max_size=3))
    if draw(st.booleans()):
        pairs.insert(0, (draw(st.sampled_from(["content-length", "Content-Length"])), draw(edges) + "5" + draw(edges)))
    return command, pairs, draw(st.sampled_from([b"", b"hello", b"\0\n\r "]))


#: That no frame here passes.
ROOMY = Limits(max_command_line=2000, max_header_line=2**20)
writer_options = st.fixed_dictionaries(
    {
        **{"version": versions, "content_length": st.sampled_from(["auto", "always", "never"])},
        "lenient": st.booleans(),
        "commands": st.sampled_from([(), ("PING", "é", "send"), ("PING ", " PING", "PING")]),
    }
)
