"""stompman on our connections, parser and writer: against our broker, a scripted server, and what it does by itself."""

import asyncio
import enum
import functools
import itertools
import logging
import re
import ssl
import typing
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from hypothesis import example, given
from hypothesis import strategies as st
from installed import environment, program
from patience import patience

stompman = pytest.importorskip("stompman", reason="not installed: pip install stompman", exc_type=ImportError)
import stompman.serde as theirs

from stompcodec import FrameError, Limits
from stompcodec.compat import stompman as ours
from stompcodec.compat.seams import PeerError

BODIES = [b"plain", b"\0\xff", "grüße".encode(), bytes(300_000), b""]
ODD = {"a:b": "c\\d\ne", "größe": "ß"}


class Strict(ours.Connection):
    quirks = False


def in_a_loop(test):
    @functools.wraps(test)
    def run(*args, **options):
        asyncio.run(asyncio.wait_for(test(*args, **options), patience(30)))

    return run


@pytest.fixture(scope="module")
def place(certificates):
    with BrokerThread(tls_port=0, tls_cert=certificates.server, ws_port=0) as broker:
        yield SimpleNamespace(broker=broker, context=certificates.contexts.client, server_file=certificates.server)


@pytest.fixture
def websocket_connection():
    pytest.importorskip("stompman.connection_ws", reason="stompman before 3.10, or no websockets", exc_type=ImportError)
    return ours.WebSocketConnection


async def round_trip(client, name):
    """All bodies to a queue and back, each acknowledged; with headers that have to be escaped."""
    got, all_came = [], asyncio.Event()

    async def handler(frame):
        await frame.ack()
        got.append(frame)
        if len(got) == len(BODIES):
            all_came.set()

    for body in BODIES:
        await client.send(body, name, headers=dict(ODD))
    subscription = await client.subscribe_with_manual_ack(name, handler)
    await all_came.wait()
    await subscription.unsubscribe()
    assert sorted(frame.body for frame in got) == sorted(BODIES)
    assert all({name: frame.headers[name] for name in ODD} == ODD and frame.headers["message-id"] for frame in got)


def client_of(port, server=None, **options):
    server = stompman.ConnectionParameters("127.0.0.1", port, "ann", "x", **(server or {}))
    return stompman.Client([server], connect_retry_interval=0, **options)


def connection_of(client):
    return client._connection_manager._active_connection_state.connection


@pytest.mark.parametrize("quirks", [True, False])
@pytest.mark.parametrize("over", ["tcp", "tls", "ws"])
@in_a_loop
async def test_a_client_of_stompman_on_our_connection(place, request, quirks, over):
    base = request.getfixturevalue("websocket_connection") if over == "ws" else ours.Connection
    port = {"tcp": place.broker.port, "tls": place.broker.tls_port, "ws": place.broker.ws_port}[over]
    options = {"ssl": place.context} if over == "tls" else {"server": {"ws_uri_path": "/stomp"}} if over == "ws" else {}
    kind = type("Kind", (base,), {"quirks": quirks})
    async with client_of(port, connection_class=kind, **options) as client:
        await round_trip(client, f"/queue/{over}-{quirks}")


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def serving(serve, **options):
    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@in_a_loop
async def test_secure_websocket_which_stompman_cannot(place, websocket_connection):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place.server_file)

    async def through(reader, writer):
        behind = await asyncio.open_connection("127.0.0.1", place.broker.ws_port)
        await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer))

    options = {"connection_class": websocket_connection, "ssl": place.context}
    async with serving(through, ssl=context) as port, client_of(port, **options) as client:
        assert connection_of(client).websocket.subprotocol == "v12.stomp"
        await round_trip(client, "/queue/wss")


@asynccontextmanager
async def connected(kind, *pieces, keep_open=True):
    done = asyncio.Event()

    async def serve(reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if keep_open:
            await done.wait()
        writer.close()

    async with serving(serve) as port:
        where = {"host": "127.0.0.1", "port": port, "timeout": patience(5)}
        connection = await kind.connect(**where, read_max_chunk_size=65536, ssl=None)
        yield connection
        await connection.close()
        done.set()


async def take(connection, count):
    """As stompman's own code reads: it leaves in the middle."""
    got = []
    async for frame in connection.read_frames():
        got.append(frame)
        if len(got) == count:
            return got


MESSAGES = b"".join(b"MESSAGE\nmessage-id:%d\n\n%d\0" % (number, number) for number in range(200))


@in_a_loop
async def test_handlers_have_their_turn_while_frames_are_there():
    """stompman lets a hundred run at once; then it has to wait for room."""
    waiting, most, got = set(), 0, 0

    async def handler():
        pass

    async with connected(ours.Connection, MESSAGES) as connection:
        async for _frame in connection.read_frames():
            task = asyncio.ensure_future(handler())
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            most, got = max(most, len(waiting)), got + 1
            if got == 200:
                break
        assert connection.last_read_time > 0
    assert most < 100


@in_a_loop
async def test_what_is_no_stomp_ends_a_strict_connection():
    async with connected(Strict, b"MESSAGE\na:1\n\n1\0WHATEVER\n\n\0") as connection:
        [first] = await take(connection, 1)
        assert first.body == b"1"
        with pytest.raises(stompman.ConnectionLostError) as lost:
            await take(connection, 1)
        assert lost.value.reason.kind == "unknown-command"
        with pytest.raises(FrameError):
            await connection.write_frame(stompman.BeginFrame(headers={"": "t"}))


@in_a_loop
async def test_the_end_of_the_stream_is_told():
    async with connected(ours.Connection, b"\nMESSAGE\nmessage-id:1\n\nhal", keep_open=False) as connection:
        with pytest.raises(stompman.ConnectionLostError, match="eof"):
            await take(connection, 2)
        connection.writer.transport.abort()
        await asyncio.sleep(0)  # the transport tells its protocol
        with pytest.raises(stompman.ConnectionLostError):
            await connection.write_frame(stompman.BeginFrame(headers={"transaction": "t"}))


@in_a_loop
async def test_nobody_there(websocket_connection):
    async with serving(pump) as port:
        pass
    for kind in (ours.Connection, websocket_connection):
        assert await kind.connect(host="127.0.0.1", port=port, timeout=2, read_max_chunk_size=1, ssl=None) is None


@in_a_loop
async def test_a_body_that_is_no_text_goes_in_a_binary_message(websocket_connection):
    sent = []

    class Socket:
        async def send(self, octets, text):
            sent.append((octets[-4:], text))

    connection = websocket_connection(websocket=Socket(), read_max_chunk_size=1, ssl=None)
    for body in (b"abc", "ü".encode() + b"b", b"\xff"):
        await connection.write_frame(stompman.SendFrame(headers={"destination": "a"}, body=body))
    assert sent == [(b"abc\0", True), (b"\xc3\xbcb\0", True), (b"\n\n\xff\0"[-4:], False)]


@pytest.mark.parametrize("quirks", [True, False])
@in_a_loop
async def test_install_and_undo(place, quirks):
    owners = [stompman, stompman.serde, stompman.connection, stompman.connection.Connection]
    before = [dict(vars(owner)) for owner in owners]
    parser = ours.FrameParser if quirks else ours.StrictFrameParser
    with ours.install(quirks) as installed:
        assert stompman.FrameParser is stompman.connection.FrameParser is stompman.serde.FrameParser is parser
        assert stompman.dump_frame.__module__ == ours.__name__
        assert ours.install(quirks) is installed
        with pytest.raises(PeerError, match="undo"):
            ours.install(not quirks)
        async with client_of(place.broker.port) as client:
            assert type(connection_of(client)._parser) is parser
            await round_trip(client, f"/queue/installed-{quirks}")
    assert [dict(vars(owner)) for owner in owners] == before


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize(
    ("server", "warnings"), [("ActiveMQ-Artemis/2.40.0", 1), ("vertx-stomp/5.0.7", 1), ("ActiveMQ/6.3.1", 0)]
)
@in_a_loop
async def test_nack_is_sent_and_a_broker_that_drops_the_message_is_named_once(
    server, warnings, installed, caplog, monkeypatch
):
    monkeypatch.setattr("stompcodec.compat.seams._warned", set())
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(server=server, heart_beat=(0, 0)))
        peer.rules["NACK"] = lambda side, frame: None
        if installed:
            stack.enter_context(ours.install())
        stack.enter_context(caplog.at_level(logging.WARNING, "stompman"))
        for _ in range(2):
            async with client_of(peer.port, **({} if installed else {"connection_class": ours.Connection})) as client:
                for number in ("1", "2"):
                    frame = stompman.NackFrame(headers={"id": number, "subscription": "s"})
                    await client._connection_manager.maybe_write_frame(frame)
        peer.wait(lambda peer: len(peer.got("NACK")) == 4)
        assert sorted(frame.headers["id"] for frame in peer.got("NACK")) == ["1", "1", "2", "2"]
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("NACK: ")]
    assert ["drops the message" in each for each in said] == [True] * warnings


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.skipif(not DOCS.is_dir(), reason="without the docs")
def test_the_examples_of_the_docs_run(place, capsys):
    text = (DOCS / "coming-from-stompman.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    servers = [stompman.ConnectionParameters("127.0.0.1", place.broker.port, "ann", "x")]
    names = {"servers": servers, "url": place.broker.url}
    try:
        for block in blocks:
            exec(compile(block, "docs/coming-from-stompman.md", "exec"), names)
    finally:
        names["installed"].undo()
    assert capsys.readouterr().out.splitlines() == ["b'hello'", "b'hello'"]


PATCHED = """
from stompman.connection import FrameParser

def test_which(): assert FrameParser.__module__ + "." + FrameParser.__name__ == {!r}
"""


@pytest.mark.parametrize(("mode", "name"), [("stompman", "FrameParser"), ("stompman:strict", "StrictFrameParser")])
def test_the_plug_in_comes_before_a_suite(tmp_path, mode, name):
    (tmp_path / "test_suite.py").write_text(PATCHED.format(f"stompcodec.compat.stompman.{name}"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = ["-m", "pytest", "-p", "stompcodec.compat.suite", "-p", "no:cacheprovider"]
    said = program(*command, cwd=tmp_path, env=environment(STOMPCODEC_COMPAT=mode))
    assert "stompcodec.compat: stompman" in said


# ---- any octets in any pieces ----
MESSAGE = b"MESSAGE\nsubscription:0\nmessage-id:ID\\cbroker-1\ndestination:/queue/a\ncontent-length:3\n\na\0b\0"
ODD_MESSAGE = b"MESSAGE\nsubscription:0\nmessage-id:ID:broker-1\\r\ndestination:/queue/a\\\\c\n\nhello\0"
words = st.sampled_from(
    [
        *(b"SEND", b"MESSAGE", b"CONNECTED", b"CONNECT", b"NACK", b"STOMP", b"ERROR", b"RECEIPT", b"ACK"),
        *(b"message", b"X", b"\n", b"\n", b"\n\n", b"\r\n", b"\r", b"\x00", b"\n\n\x00", b"\n\nbody\x00"),
        *(b"\n\na\x00b\x00", b"a:1\n", b"a:2\n", b"a:b:c\n", b"a:\\c\n", b"\\c:1\n", b"a\\cb:\\n\\\\\n"),
        *(b"a:\\t\\\n", b"a:1\r\n", b":1\n", b":1\n", b"\xff:1\n", b"a:\xc3\xa9\n", b"a:\\\xc3\xa9\n"),
        *(b"no colon\n", b"\\", b":", b"\\\\", b"\\n", b"\\c", b"content-length:", b"content-length:3\n"),
        *(b"content-length:0\n", b"content-length:9\n", b"content-length: 3\n", b"Content-Length:2\n"),
        *(b"content-length:-1\n", b"content-length:x\n", b"content-length:3:4\n", b"1", b"abc", MESSAGE, MESSAGE),
        *(MESSAGE, ODD_MESSAGE, b"CONNECTED\nversion:1.2\nserver:a\\cb\n\n\x00", b"\nRECEIPT\nreceipt-id:1\n\n\x00"),
    ]
)
streams = st.lists(words | st.binary(max_size=4), max_size=30).map(b"".join)


def cut(data, places):
    places = sorted(min(place, len(data)) for place in places)
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)])]


def ordered(frames):
    """The frames, and the order of their headers, which equality of dictionaries does not show."""
    return [(frame, list(getattr(frame, "headers", {}))) for frame in frames]


@given(streams, st.lists(st.integers(0, 400), max_size=12))
@example(MESSAGE * 3 + ODD_MESSAGE + MESSAGE, [5, 90, 100])
@example(b"MESSAGE\nContent-Length:2\n\n\0\0\0" + MESSAGE, [20])
@example(b"MESSAGE\ncontent-length:1\n\nabc\0\n" + MESSAGE * 2, [30, 60])
@example(b"MESSAGE\na:x\\ry\n\n\0", [])  # the escape of CR, alone and behind a heart-beat
@example(b"\nMESSAGE\na:x\\ry\n\n\0", [])
@example(b"whatever\nCONNECTED\nheader:1\n\n\0\r\n\n", [])
def test_any_octets_in_any_pieces_give_the_frames_of_stompman(data, places):
    parser, wanted = ours.FrameParser(), theirs.FrameParser()
    for piece in cut(data, places):
        expected = ordered(wanted.parse_frames_from_chunk(piece))
        assert ordered(parser.parse_frames_from_chunk(piece)) == expected


@given(streams, st.lists(st.integers(0, 400), max_size=6), st.lists(st.integers(0, 3), min_size=7, max_size=7))
@example(ODD_MESSAGE + b"X\n" + MESSAGE * 2, [5], [0, 1, 0, 0, 0, 0, 0])
def test_what_a_reader_leaves_is_there_for_the_next_one(data, places, takes):
    """stompman itself loses what stood behind CONNECTED in one read."""
    parser, found = ours.FrameParser(), []
    for piece, most in zip(cut(data, places), takes):
        found += itertools.islice(parser.parse_frames_from_chunk(piece), most)
    found += parser.parse_frames_from_chunk(b"")
    assert found == list(theirs.FrameParser().parse_frames_from_chunk(data))


def test_our_parser_reads_again_behind_an_odd_frame():
    """stompman's hands over at the next border between frames, not only at the end of a chunk."""
    parser = ours.FrameParser()
    for chunk, who in ((ODD_MESSAGE + b"X\n" + MESSAGE[:20], True), (MESSAGE[20:] + MESSAGE[:20], False)):
        assert len(list(parser.parse_frames_from_chunk(chunk))) == 1
        assert (parser._theirs is not None) is who


@pytest.mark.req("S12-LIM-01", "S12-LIM-02", "S12-LIM-03")
@pytest.mark.parametrize(
    ("data", "limit"),
    [
        *((b"MESSAGE\ncontent-length:11\n\n", "max_body"), (b"MESSAGE\n\n" + b"x" * 11, "max_body")),
        (b"MESSAGE\nContent-Length:-1\n\n\0" + b"x\0" * 11, "max_body"),
        *((b"MESSAGE\na\n\n" + b"x" * 11, "max_body"), (b"MESSAGE\nname:" + b"x" * 30, "max_header_line")),
        (b"MESSAGE\na:1\nb:1\nc:1\nd:1\ne:1\n\n", "max_headers"),
        (b"MESSAGE\na\n\nhello\0" + b"x" * 31, "max_header_line"),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_limits_hold_whoever_reads(monkeypatch, data, limit, step):
    monkeypatch.setattr(ours.FrameParser, "limits", Limits(20, 30, 4, 10))
    parser, found, data = ours.FrameParser(), [], b"\n" + data

    def feed():
        for at in range(0, len(data), step):
            found.extend(parser.parse_frames_from_chunk(data[at : at + step]))

    with pytest.raises(stompman.ConnectionLostError) as lost:
        feed()
    assert lost.value.reason.limit == limit
    assert found[:1] == [stompman.HeartbeatFrame()]  # the frames before come


def test_large_limits_are_as_stompman():
    data = b"MESSAGE\nname:" + b"x" * 65531 + b"\n\n" + b"b" * 100_000 + b"\0\n"
    parsers = ours.FrameParser(), theirs.FrameParser()
    found, wanted = (list(parser.parse_frames_from_chunk(data)) for parser in parsers)
    assert found == wanted


# ---- writing ----
texts = st.text(st.sampled_from("ab:\\\r\né€") | st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
headers = st.dictionaries(texts, texts, max_size=4)


def make(kind, headers, body=b""):
    return kind(headers=headers, body=body) if kind in theirs.FRAMES_WITH_BODY else kind(headers=headers)


@given(st.sampled_from(list(theirs.FRAMES_TO_COMMANDS)), headers, st.binary(max_size=8))
def test_what_is_written_is_what_stompman_writes(kind, headers, body):
    frame = make(kind, headers, body)
    assert ours.dump_frame(frame) == theirs.dump_frame(frame)


class Colour(str, enum.Enum):  # noqa: UP042 as programs have it; StrEnum's str() is its text
    RED = "r:ed"


class Text(str):
    def __str__(self):
        return "another"


#: What programs put in a header that is not text, and what comes close to text.
ODD_VALUES = [
    *(None, 0, 123, True, False, 1.5, b"", b"bytes", bytearray(b"x"), memoryview(b"x"), object(), Colour),
    *([], ["x", ":"], ["x\n", 1], ("a",), ("a", None), {}, {"a": 1}, {1: "a"}, [["a"]], range(2), frozenset({"\r"})),
    *(Colour.RED, Text("a:b"), Text("plain"), "", "plain", "\ud800"),
]


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", theirs.FRAMES_TO_COMMANDS, ids=lambda kind: kind.__name__)
def test_every_field_takes_and_refuses_the_values_that_stompman_does(kind):
    """None, numbers and bytes are a TypeError, not text; in CONNECT stompman writes them, and so does this."""
    raised = 0
    declared = sorted(typing.get_type_hints(typing.get_type_hints(kind)["headers"]))
    for name, value in itertools.product([*declared, "own-header"], ODD_VALUES):
        for headers in ({name: value}, {"a": "1", name: value, "z:": "2"}):
            frame = make(kind, headers)
            wanted = outcome(theirs.dump_frame, frame)
            assert outcome(ours.dump_frame, frame) == wanted, (name, value)
            raised += wanted is TypeError
            strict = outcome(ours.strict_dump_frame, frame)
            assert strict is TypeError or isinstance(value, str), (name, value, strict)
    frames = [make(kind, {name: "value"}) for name in ODD_VALUES if outcome(hash, name) is not TypeError]
    if kind in theirs.FRAMES_WITH_BODY:
        frames += [make(kind, {"destination": "a"}, body) for body in ODD_VALUES]
    for frame in frames:
        assert outcome(ours.dump_frame, frame) == outcome(theirs.dump_frame, frame), frame
    assert bool(raised) == (kind is not stompman.ConnectFrame)


@given(texts, texts, st.lists(words | st.binary(max_size=3), max_size=8).map(b"".join))
def test_a_header_is_written_and_read_as_stompman_does(name, value, line):
    assert ours.dump_header(name, value) == theirs.dump_header(name, value)
    assert ours.parse_header(bytearray(line)) == theirs.parse_header(bytearray(line))


@pytest.mark.req("S12-ESC-01", "S12-ESC-02")
@given(st.dictionaries(texts.filter(bool), texts, max_size=4), st.binary(max_size=8))
def test_strict_comes_back_whole(headers, body):
    headers = {**headers, "content-length": str(len(body))}
    frame = stompman.MessageFrame(headers=headers, body=body)
    assert list(ours.StrictFrameParser().parse_frames_from_chunk(ours.strict_dump_frame(frame))) == [frame]
    for name, value in headers.items():
        assert ours.strict_parse_header(ours.strict_dump_header(name, value)[:-1]) == (name, value)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (stompman.ConnectFrame(headers={"passcode": "x\nhost:evil"}), "unencodable"),
        (stompman.SendFrame(headers={"destination": "a", "content-length": "3"}, body=b"hi"), "bad-content-length"),
        (stompman.SendFrame(headers={"destination": "a"}, body=b"\0"), "unencodable"),
    ],
)
def test_strict_refuses_what_is_no_stomp(frame, kind):
    with pytest.raises(FrameError) as refused:
        ours.strict_dump_frame(frame)
    assert refused.value.kind == kind
    assert "evil" not in str(refused.value)


@pytest.mark.parametrize("line", [b"a", b"", b":1", b"a:\\t", b"a:1\nb:2", b"a:\xff", b"a:\0"])
def test_strict_parse_header_refuses(line):
    assert ours.strict_parse_header(bytearray(line)) is None
