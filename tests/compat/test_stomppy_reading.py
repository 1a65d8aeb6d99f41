"""What stomp.py reads on our codec, against what it reads by itself: on any octets, however they are cut."""

import itertools
import re

import pytest
from compat.stomppy_peer import compat, needs_stomppy, stomp
from hypothesis import assume, example, given
from hypothesis import strategies as st

pytestmark = needs_stomppy


def transport_class(base, **members):
    """A transport without a socket: `feed` is what comes, `got` what listeners see."""

    def receive(self):
        return next(self.coming, b"")

    def notify(self, frame_type, frame=None):
        if frame_type != "before_message":
            self.got.append((frame_type, frame))

    def take(self, pieces):
        self.got, self.coming, self.running, self.broken = [], iter(pieces), True, False
        try:
            while True:
                getattr(self, "_BaseTransport__read_frames", self._BaseTransport__read)()
        except stomp.exception.ConnectionClosedException:
            self.broken = next(self.coming, None) is not None
        return [(kind, frame.cmd, dict(frame.headers), frame.body) for kind, frame in self.got]

    return type("Fed", (base,), {"receive": receive, "notify": notify, "take": take, **members})


def their_read(self):
    """`__receiver_loop` of stomp.py before 9.0, for one read."""
    for raw in self._BaseTransport__their_read():
        frame = stomp.utils.HEARTBEAT_FRAME if raw == b"\n" else stomp.utils.parse_frame(raw)
        if frame is not None:
            if self._BaseTransport__auto_decode:
                frame.body = stomp.utils.decode(frame.body)
            self.process_frame(frame, raw)


def theirs(**options):
    members, base = {}, stomp.transport.BaseTransport
    if not hasattr(base, "_BaseTransport__read_frames"):
        members = {"_BaseTransport__their_read": base._BaseTransport__read, "_BaseTransport__read": their_read}
    return transport_class(base, **members)(**options)


def ours(quirks=True, **options):
    return transport_class(stomp.transport.BaseTransport, **compat._methods(quirks))(**options)


def cut(data, places):
    marks = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(marks) if a < b]


MESSAGE = b"MESSAGE\ndestination:/queue/a\nmessage-id:1\n\nhello\0"
#: Frames that are STOMP, and such as brokers also send. No EOLs stand before them: those stomp.py loses.
FRAMES = st.sampled_from(
    [
        *(MESSAGE, b"CONNECTED\r\nversion:1.2\r\nserver:a\\cb\r\n\r\n\0", b"RECEIPT\nreceipt-id:\xc3\xa9\n\n\0\n"),
        *(b"MESSAGE\ncontent-length:5\na:1\na:2\n\n\0\0\n\n\0\0", b"ERROR\nmessage: connection failed\0"),
        *(b"MESSAGE\nbad:\\t\\\n\nx\0", b"message\nlower:case\n\n\0", b"MESSAGE\ncontent-length:2\n\nlonger\0"),
        *(b"MESSAGE\ncontent-length: 3\n\na\0b\0", b"MESSAGE\ncontent-length:3\n\nabcd\0", b"ERROR\0", b"\0"),
        *(b"MESSAGE\ncontent-length:x\n\nab\0", b"MESSAGE\nno colon\n:no name\n\nab\0"),
        *(b"RECEIPT\nreceipt-id:1\n\nwith a body\0", b"MESSAGE\nutf8:\xff\n\n\xff\0", b"SEND\nfrom:a client\n\n\0"),
        b"error\n\n" + bytes(range(1, 256)) + b"\0",
    ]
)
OCTETS = st.lists(
    st.one_of(FRAMES, st.lists(st.sampled_from([*b"MESA:\\nc1\0\r ", 0xC3]), max_size=8).map(bytes)), max_size=6
).map(b"".join)


@given(OCTETS | st.lists(FRAMES, max_size=6).map(b"".join), st.lists(st.integers(0, 999), max_size=6), st.booleans())
@example(b"a\rMESSAGE\n\nb\0", [], False)
def test_any_octets_are_read_as_stomp_py_reads_them(data, places, decode):
    """Line ends would make the known repairs: those ahead of a frame, and blank lines of another line end."""
    pieces = cut(data, places)
    # A read of "\n\0" is a heart-beat to stomp.py, and nothing to us.
    assume(b"\n\0" not in pieces and not re.search(rb"(?:^|\0)\n*\r", data))
    assert ours(auto_decode=decode).take(pieces) == theirs(auto_decode=decode).take(pieces)


@pytest.mark.parametrize("gap", [b"\n\n", b"\r\n", b"\n\r\n\n", b"\n" * 50])
@pytest.mark.parametrize("quirks", [True, False])
def test_no_message_is_lost_behind_eols(quirks, gap):
    """stomp.py takes two EOLs in front of a frame for the end of its head, and drops the message."""
    got = ours(quirks).take([gap + MESSAGE, gap, MESSAGE])
    assert [body for _, command, _, body in got if command == "MESSAGE"] == ["hello", "hello"]


def test_a_blank_line_may_end_otherwise_than_the_others():
    read = ours()
    (row,) = read.take([b"MESSAGE\na:1\n\r\nhello\0"])
    assert row[2:] == ({"a": "1"}, "hello")
    assert isinstance(read.got[0][1], stomp.utils.Frame)


def beats(transport, *pieces):
    return sum(kind == "heartbeat" for kind, *_ in transport.take(pieces))


@pytest.mark.req("S12-FRM-02")
def test_eols_count_as_theirs():
    """A read of one EOL is a heart-beat; EOLs behind a frame, or inside one, are none. Without quirks each counts."""
    for read in (ours(), theirs()):
        assert beats(read, b"\n") == beats(read, MESSAGE, b"\n") == beats(read, b"\n", MESSAGE) == 1
        assert beats(read, MESSAGE + b"\n\n\n") == beats(read, b"MESSAGE", b"\n", b"\n", b"\n", b"\0") == 0
        assert beats(read, b"\n", b"\n", MESSAGE, b"\n") == 3
    assert beats(theirs(), b"\n\n", b"\n", b"\n") == 0  # deaf up to the next frame
    assert beats(ours(), b"\n\n", b"\n", b"\n") == 2
    assert beats(ours(quirks=False), MESSAGE + b"\n\r\n", b"\n", b"\n\n" + MESSAGE) == 5


@pytest.mark.parametrize(
    "bad",
    [
        *(b"MESSAGE\nbad:\\t\n\n\0", b"MESSAGE\ncontent-length:2\n\nlonger\0"),
        *(b"ERROR\nmessage: connection failed\0", b"FOO\n\n\0"),
    ],
)
def test_without_quirks_a_broken_stream_ends_the_connection(bad, caplog):
    read = ours(quirks=False)
    assert [body for *_, body in read.take([MESSAGE, bad, MESSAGE])] == ["hello"]
    assert read.broken
    assert "malformed data" in caplog.text


def test_without_quirks_the_version_decides_about_escapes():
    head = b"CONNECTED\nversion:%s\n\n\0MESSAGE\na:1\\r2\n\n\0"
    for version, wanted in ((b"1.0", [{"a": "1\\r2"}]), (b"1.1", []), (b"1.2", [{"a": "1\r2"}])):
        assert [row[2] for row in ours(quirks=False).take([head % version])][1:] == wanted


def test_the_encoding_is_used_without_quirks():
    data = b"MESSAGE\n\n\xe9\0"
    assert [ours(quirks, encoding="latin-1").take([data])[0][3] for quirks in (True, False)] == ["�", "é"]


@pytest.mark.req("S12-LIM-05")
def test_limits():
    head = b"MESSAGE\ncontent-length:%d\n\n" % (100 * 2**20 + 1)
    for quirks in (True, False):
        read = ours(quirks)
        assert read.take([head, b"a"]) == []
        assert read.broken is not quirks
    many = b"MESSAGE\n" + b"a:1\n" * 20_000 + b"long:" + b"x" * (1 << 19) + b"\n\n\0"
    assert ours().take([many]) == theirs().take([many])


def test_only_broken_octets_are_read_by_their_rules(monkeypatch):
    calls, parse = [], compat.stomppy_codec._their_parse_frame
    monkeypatch.setattr(compat.stomppy_codec, "_their_parse_frame", lambda raw: calls.append(raw) or parse(raw))
    broken = b"MESSAGE\nbad:\\t\n\n\0"
    good = b"CONNECTED\r\nversion:1.2\r\n\r\n\0\n" + MESSAGE * 3 + b"RECEIPT\nreceipt-id:1\n\n\0"
    assert len(ours().take(cut(good, range(0, 400, 7)))) == 5
    got = ours().take([broken[:12], broken[12:] + MESSAGE[:9], MESSAGE[9:], MESSAGE, broken, MESSAGE])
    assert ([row[3] for row in got], calls) == (["", "hello", "hello", "", "hello"], [broken[:-1]] * 2)


@pytest.mark.parametrize("quirks", [True, False])
def test_a_process_frame_of_their_own_gets_the_octets(quirks):
    got, read = [], ours(quirks)
    read.process_frame = lambda frame, raw: got.append((frame.cmd, raw))
    read.take([MESSAGE, b"\n"])
    assert got == [("MESSAGE", MESSAGE[:-1]), ("heartbeat", b"\n")]


@pytest.mark.parametrize("foo", [b"FOO\ncontent-length:99999\n\n" + b"\0" * 99999, b"FOO\n\n" + b"x" * 99999])
def test_broken_frames_in_many_pieces_are_joined_once(monkeypatch, foo):
    """A peer that dribbles what is no STOMP: it is not searched again for every octet."""
    data = foo + b"\0" + MESSAGE
    joins, reader = [], compat.stomppy_codec.Reader
    loosely = reader._loosely
    monkeypatch.setattr(reader, "_loosely", lambda self, octets: joins.append(1) or loosely(self, octets))
    got = ours(auto_decode=False).take([data[at : at + 7] for at in range(0, len(data), 7)])
    assert [row[3] for row in got] == [b"hello"]  # FOO is no command that is notified
    assert len(joins) < 10
