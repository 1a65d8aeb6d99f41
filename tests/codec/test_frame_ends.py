"""frame_ends: the ends of every frame that a parser hands out, and where to go on behind one that is malformed."""

from contextlib import nullcontext

import pytest
from codec import strategies as some
from hypothesis import example, given
from hypothesis import strategies as st
from model.reference import Reference
from traced import peak, tracing

from stompcodec.spec import DEFAULT_LIMITS, VERSIONS, Limits


def light_end(data, at, max_body):
    while data[at : at + 1] == b"\n" or data[at : at + 2] == b"\r\n":
        at += 1
    lines, line = [], b""
    while True:
        if at == len(data):
            return None
        octet, at = data[at : at + 1], at + 1
        if octet == b"\0":
            return at
        line += octet
        if octet == b"\n":
            lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
            if not lines[-1] and len(lines) > 1:
                break
            line = b""
    lengths = [line.partition(b":")[2] for line in lines[1:] if line.startswith(b"content-length:")]
    if lengths and lengths[0].strip(b" \t").isdigit() and int(lengths[0].strip(b" \t")) <= max_body:
        nul = at + int(lengths[0].strip(b" \t"))
        if nul >= len(data):
            return None
        if not data[nul]:
            return nul + 1
    return data.find(b"\0", at) + 1 or None


def light_ends(data, every=1, most=None, max_body=DEFAULT_LIMITS.max_body):
    given, at = [], 0
    while most is None or len(given) < most:
        end = light_end(data, at, max_body)
        if end is None:
            if at > (given[-1] if given else 0):
                given.append(at)
            break
        at = end
        if at - (given[-1] if given else 0) >= every:
            given.append(at)
    return given


_PIECES = [
    *(b"\n", b"\n", b"\r\n", b"\n\n", b"\r", b"\0", b"SEND", b"a:b", b"c", b"x" * 31, b"x" * 32, b"y" * 33, b":"),
    *(b"content-length:", b"\ncontent-length:", b"content-length", b"0", b"3", b" 2", b"\t1 ", b"70", b"9" * 25, b"-1"),
]
_pieces = st.lists(st.sampled_from(_PIECES), max_size=25).map(b"".join)


@given(
    data=some.wires | _pieces,
    every=st.sampled_from([1, 2, 5, 20, 100]),
    most=st.sampled_from([None, 0, 1, 2, 3]),
    max_body=st.sampled_from([0, 2, 70, 10**6]),
)
@example(data=b"SEND\ncontent-length:3\n\na\0b", every=1, most=None, max_body=3)
@example(data=b"SEND\ncontent-length:4\n\na\0b\0\0", every=1, most=None, max_body=3)
@example(data=b"SEND\n" + b"c" * 25 + b"\n\r\n\0", every=1, most=None, max_body=3)
def test_any_octets(codec, data, every, most, max_body):
    got = codec.frame_ends(data, every, most, limits=Limits(max_body=max_body))
    assert list(got) == light_ends(data, every, most, max_body)
    assert list(got) == sorted(set(got))


@pytest.mark.parametrize("before", range(70))
def test_every_place_in_a_window(codec, before):
    """A head is read 32 octets at once: what ends it, or counts, stands at each place of them, and at the end."""
    counted = b"a\ncontent-length:2\n\n"
    for head in (b"a\n\n", b"a\n\r\n", counted, counted.replace(b"\n", b"\r\n"), counted.replace(b"h", b"i")):
        data = b"S" * before + head + b"\0x\0"
        for stop in range(len(data) + 1):
            assert list(codec.frame_ends(data[:stop])) == light_ends(data[:stop])
            assert list(codec.frame_ends(data[:stop] + b" " * 40)) == light_ends(data[:stop] + b" " * 40)


@pytest.mark.parametrize("version", VERSIONS)
@given(wire=some.wires)
def test_up_to_what_is_malformed(codec, version, wire):
    events = list(Reference(version).read(wire))
    ends = [event[5] for event in events if event[0] == "frame"]
    got = list(codec.frame_ends(wire))
    assert got[: len(ends)] == ends
    assert (events and events[-1][0] == "error") or got == ends


GOOD = b"MESSAGE\ndestination:/queue/a\ncontent-length:3\n\na\0b\0"


@pytest.mark.parametrize(
    "bad",
    [
        *(b"NONSENSE\na:b\n\nbody\0", b"SEND\na\n\nbody\0", b"SEND\na:\\q\n\nbody\0", b"SEND\na:\xff\n\nbody\0"),
        *(b"SEND\ncontent-length:%b\n\nlonger\0" % length for length in (b"2", b"-1", b"9" * 26, b"104857601")),
        *(b"ACK\nid:1\n\nbody\0", b"SEND\na:b\0", b"\0", b"garbage\0", b"\r\r\rx\0"),
    ],
)
def test_going_on_behind_a_malformed_frame(codec, bad):
    """The way of readers: a row says what is wrong, then they go on where this frame ends."""
    data = memoryview(GOOD + b"\n" + bad + GOOD + b"\r\n" + bad + bad + GOOD)
    rows, at = [], 0
    while at < len(data):
        columns = codec.parse_columns(data[at:])
        rows += ["frame"] * (columns.rows - bool(columns.error)) + [columns.error] * bool(columns.error)
        at += columns.consumed
        if columns.error:
            at += codec.frame_ends(data[at:], most=1)[0]
    assert (rows.count("frame"), len(rows)) == (3, 6)


@pytest.mark.parametrize(
    ("every", "most", "ends"), [(7, None, [12, 24, 30]), (2**70, None, [30]), (1, 2**70, [6, 12, 18, 24, 30])]
)
def test_every_and_most(codec, every, most, ends):
    # Unfinished frames have no end.
    for part in (b"", b"SEND\na:b\n", b"SEND\ncontent-length:9\n\na\0b", b"\r", b"\n\n"):
        assert list(codec.frame_ends(b"ACK\n\n\0" * 5 + part, every=every, most=most)) == ends
        assert list(codec.frame_ends(part, every, most)) == []


HOSTILE = {
    **{"nuls": b"\0", "eols": b"\n", "crs": b"\r", "crlf": b"\r\n", "head without end": b"\nc"},
    **{"content-length without end": b"\ncontent-length:", "many zeros": b"0"},
    **{"counted, but no NUL there": b"a\ncontent-length:9\n\n", "tiny frames": b"a\n\n\0"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_octets_are_read_once(codec, name):
    """Looking at octets again and again would take hours."""
    piece, in_c = HOSTILE[name], codec.__name__.endswith("_c")
    size = 2**20 if in_c else 2**18
    data = b"SEND\ncontent-length:" + piece * (size // len(piece))
    for tail in (b"", b"\0"):
        wire = data + tail
        with tracing() if in_c else nullcontext():
            ends = codec.frame_ends(wire, 1 << 16)
            assert not in_c or peak() < 65_536
        assert len(ends) <= 17
        assert not tail or ends[-1] == len(data) + 1
