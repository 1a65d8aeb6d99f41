"""stompman's client on our connections, against our broker and a scripted server; and what `install` does."""

import asyncio
import functools
import logging
import re
import ssl
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from patience import patience

stompman = pytest.importorskip(
    "stompman", reason="stompman is not installed: pip install stompman", exc_type=ImportError
)

from stompcodec import FrameError
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
def place(tmp_path_factory):
    """A broker with all kinds of listeners, and a context that trusts it."""
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    authority, file = trustme.CA(), tmp_path_factory.mktemp("tls") / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    with BrokerThread(tls_port=0, tls_cert=str(file), tls_key=str(file), ws_port=0) as broker:
        yield SimpleNamespace(broker=broker, context=context, server_file=file)


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
    """A server that does this with whoever comes."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@in_a_loop
async def test_secure_websocket_which_stompman_cannot(place, websocket_connection):
    """A WebSocket server with TLS before the broker: bytes go through as they are."""
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
    """A connection to a server that writes the pieces to whoever comes."""
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


@pytest.mark.parametrize("kind", [ours.Connection, Strict], ids=["quirks", "strict"])
@in_a_loop
async def test_what_follows_connected_in_the_same_read_is_not_lost(kind):
    pieces = b"CONNECTED\nversion:1.2\n\n\0" + MESSAGES[:3000], MESSAGES[3000:]
    async with connected(kind, *pieces) as connection:
        [first] = await take(connection, 1)
        assert isinstance(first, stompman.ConnectedFrame)
        got = await take(connection, 2) + await take(connection, 198)
        assert connection.last_read_time > 0
    assert [frame.body for frame in got] == [b"%d" % number for number in range(200)]


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
    """A write to a closed connection tells it, too."""
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


def test_a_name_that_is_missing_changes_nothing(monkeypatch):
    parser = stompman.FrameParser
    monkeypatch.delattr(stompman.connection, "dump_frame")
    with pytest.raises(PeerError, match=r"stompman\.connection\.dump_frame"):
        ours.install()
    assert stompman.FrameParser is parser


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
