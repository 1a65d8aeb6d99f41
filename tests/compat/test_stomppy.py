"""stomp.py programs on our codec: connections over sockets, to our broker and to a scripted server."""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import re
import ssl
import threading
import time
from pathlib import Path

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from compat.stomppy_peer import Server, compat, needs_stomppy, stomp
from patience import patience

import stompcodec
import stompcodec.client
from stompcodec.client import Client, Message, Options, Transaction

pytestmark = needs_stomppy
PAGE = Path(__file__).parents[2] / "docs" / "coming-from-stomp-py.md"


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(ws_port=0) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["quirks", "strict"])
def installed(request):
    with compat.install(quirks=request.param) as handle:
        yield handle


class Listener:
    """Keeps what comes, and which thread brought it."""

    def __init__(self):
        self.frames, self.threads = [], set()
        self.changed = threading.Condition()

    def put(self, kind, frame=None):
        with self.changed:
            self.threads.add(threading.current_thread())
            self.frames.append((kind, frame))
            self.changed.notify_all()

    def __getattr__(self, name):
        if name in ("on_message", "on_receipt", "on_error", "on_connected"):
            return lambda frame: self.put(name[3:], frame)
        if name in ("on_disconnected", "on_heartbeat"):
            return lambda: self.put(name[3:])
        raise AttributeError(name)

    def wait(self, kind, count=1):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(kind)) >= count, patience(10)), self.frames
        return self.of(kind)

    def of(self, kind):
        return [frame for found, frame in self.frames if found == kind]


def connected(connection, **options):
    listener = Listener()
    connection.set_listener("test", listener)
    connection.connect("guest", "guest", wait=True, **options)
    return listener


def disconnect(connection, listener):
    connection.disconnect(receipt="bye")
    listener.wait("disconnected")


CLASSES = ["Connection10", "Connection11", "Connection12", "WSConnection"]
ODD = "a:b\\c\nd"
BODY = bytes(range(256)) * (1 << 12)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("quirks", [True, False])
@pytest.mark.parametrize("way", ["class", "installed"])
def test_connection_classes(broker, request, name, quirks, way):
    """A message with an odd header, NULs and 1 MiB, there and back, acknowledged."""
    options = {"auto_decode": False}
    if way == "installed":
        module = stomp
        request.addfinalizer(compat.install(quirks).undo)
    else:
        module = compat
        options["quirks"] = quirks
    if name == "WSConnection":
        if "binary_mode" not in stomp.WSConnection.__init__.__code__.co_varnames:
            pytest.skip("stomp.py 8.1 raises when it closes a WebSocket")
        options["binary_mode"] = True
    address = ("127.0.0.1", broker.ws_port if name == "WSConnection" else broker.port)
    connection = getattr(module, name)([address], **options)
    assert isinstance(connection, getattr(stomp, name))
    assert (way == "class") == type(connection.transport).__name__.startswith("Codec")
    listener = connected(connection)
    version = connection.version
    value = ODD if version != "1.0" else "plain"
    queue = f"/queue/{time.monotonic_ns()}"
    connection.subscribe(queue, id="7", ack="client-individual" if version != "1.0" else "client")
    connection.send(queue, BODY, headers={"odd": value}, receipt="sent")
    (frame,) = listener.wait("message")
    assert frame.body == BODY
    assert frame.headers["odd"] == value
    ids = {"1.0": ["message-id"], "1.1": ["message-id", "subscription"], "1.2": ["ack"]}[version]
    connection.ack(*(frame.headers[name] for name in ids))
    assert [frame.headers["receipt-id"] for frame in listener.wait("receipt")] == ["sent"]
    assert listener.of("error") == []
    disconnect(connection, listener)


def round_trip_text(connection, listener):
    queue = f"/queue/{time.monotonic_ns()}"
    connection.subscribe(queue, id="1")
    connection.send(queue, "héllo")
    (frame,) = listener.wait("message")
    assert frame.body == "héllo"
    return frame


def test_listeners_are_called_in_the_io_thread_also_of_a_second_connection(broker, installed):
    made = []

    def create(callback):
        made.append(stomp.utils.default_create_thread(callback))
        return made[-1]

    connection = stomp.Connection11([("127.0.0.1", broker.port)])
    connection.transport.override_threading(create)
    for _ in range(2):
        made.clear()
        listener = connected(connection)
        frame = round_trip_text(connection, listener)
        assert listener.threads == set(made)
        disconnect(connection, listener)
        assert len(listener.of("message")) == 1
    for other in (pickle.loads(pickle.dumps(frame)), copy.deepcopy(frame), copy.copy(frame)):
        assert (other.cmd, other.headers, other.body) == (frame.cmd, frame.headers, frame.body)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_listeners_are_called_in_the_order_of_their_names(broker, installed, level, caplog):
    called = []

    class Named(stomp.ConnectionListener):
        def __init__(self, name):
            self.name = name

        def on_before_message(self, frame):
            called.append(("before", self.name))
            frame.headers["seen"] = self.name

        def on_message(self, frame):
            called.append((frame.headers["seen"], self.name))

    connection = stomp.Connection12([("127.0.0.1", broker.port)])
    for name in ("b", "a", "zz"):
        connection.set_listener(name, Named(name))
    connection.set_listener("odd", object())
    with caplog.at_level(level, "stomp.py"):
        listener = connected(connection)
        round_trip_text(connection, listener)
        disconnect(connection, listener)
    assert called == [("before", "a"), ("before", "b"), ("before", "zz"), ("zz", "a"), ("zz", "b"), ("zz", "zz")]


# ---- a scripted server ----


def test_the_end_of_the_stream_is_a_disconnect(installed):
    """A listener of stomp.py has added heart-beats to CONNECT."""
    with Server() as server:
        connection = stomp.Connection12([server.address], heartbeats=(60_000, 0))
        listener = server.connect(connection, Listener())
        assert b"\nheart-beat:60000,0\n" in server.came[0]
        server.peer.sendall(b"MESSAGE\n\nwhole\0MESSAGE\n\nhalf")
        server.peer.close()
        listener.wait("disconnected")
        assert [frame.body for frame in listener.of("message")] == ["whole"]
        assert not connection.is_connected()


def test_the_receipt_of_disconnect_closes_the_socket(installed):
    with Server() as server:
        connection = stomp.Connection12([server.address])
        listener = server.connect(connection, Listener())
        closer = threading.Thread(target=connection.disconnect, kwargs={"receipt": "bye"})
        closer.start()
        assert server.peer.recv(65536) == b"DISCONNECT\nreceipt:bye\n\n\0"
        server.peer.sendall(b"RECEIPT\nreceipt-id:bye\n\n\0")
        assert server.peer.recv(1) == b""
        closer.join(patience(10))
        assert not closer.is_alive()
        listener.wait("disconnected")


@pytest.mark.parametrize("quirks", [True, False])
def test_what_is_no_stomp_ends_the_connection_or_not(quirks):
    with compat.install(quirks), Server() as server:
        connection = stomp.Connection12([server.address])
        listener = server.connect(connection, Listener())
        server.peer.sendall(b"MESSAGE\nbad:\\t\n\n\0MESSAGE\n\nlast\0")
        if quirks:
            assert [frame.body for frame in listener.wait("message", 2)] == ["", "last"]
            connection.disconnect()
            server.peer.close()
        listener.wait("disconnected")
        assert len(listener.of("message")) == (2 if quirks else 0)


def test_tls(installed, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    body = bytes(range(256)) * 2048
    with Server(context=context) as server:
        connection = stomp.Connection12([server.address], auto_decode=False)
        connection.set_ssl([server.address], ca_certs=str(tmp_path / "ca.pem"))
        if hasattr(connection.transport, "send_queue"):  # since 9.0 only the I/O thread writes to TLS sockets
            connection.transport.send = None
        listener = server.connect(connection, Listener())
        server.peer.sendall(b"MESSAGE\ncontent-length:%d\n\n%b\0" % (len(body), body))
        assert listener.wait("message")[0].body == body
        server.peer.close()  # 9.0.0 by itself would now ask the socket again for ever
        listener.wait("disconnected")


@pytest.mark.parametrize(
    ("server", "warnings"), [("ActiveMQ-Artemis/2.40.0", 1), ("vertx-stomp/5.0.7", 1), ("ActiveMQ/6.3.1", 0)]
)
def test_nack_is_sent_and_a_broker_that_drops_the_message_is_named_once(server, warnings, caplog, monkeypatch):
    monkeypatch.setattr("stompcodec.compat.seams._warned", set())
    with Peer(server=server, heart_beat=(0, 0)) as peer, caplog.at_level(logging.WARNING, "stomp.py"):
        peer.rules |= {"STOMP": peer.on_connect, "NACK": lambda side, frame: None}
        for _ in range(2):
            connection = compat.Connection12([("127.0.0.1", peer.port)])
            connection.connect(wait=True)
            for number in ("1", "2"):
                connection.nack(number)
            connection.disconnect()
        peer.wait(lambda peer: len(peer.got("NACK")) == 4)
        assert sorted(frame.headers["id"] for frame in peer.got("NACK")) == ["1", "1", "2", "2"]
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("NACK: ")]
    assert len(said) == warnings
    assert all("drops the message" in each for each in said)


# ---- what is written ----


def test_the_octets_are_theirs():
    frames = [
        ("SEND", {"b": "2", "a": ("1", None, 3), "none": None, "content-length": 99}, "héllo"),
        ("CONNECT", {"passcode": "x:y"}, None),
        ("SEND", {"a": "\ud800"}, "\ud800"),
        (None, {}, None),
        ("ACK", {}, ""),
        ("SEND", {1: 2}, b"\0\n"),
    ]
    for command, headers, body in frames:
        one, two = (stomp.utils.Frame(command, dict(headers), body) for _ in range(2))
        wanted = stomp.utils.pack(stomp.utils.convert_frame(one))
        with compat.install():
            assert stomp.utils.pack(stomp.utils.convert_frame(two)) == wanted
        assert one.headers == two.headers


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"a": "1\nadmin:yes"}, ""),
        ({"a:b": "1"}, ""),
        ({"": "1"}, ""),
        ({"a": "\ud800"}, ""),
        ({}, b"a\0b"),
        ({"content-length": 5}, ""),
        ({}, "\ud800"),
    ],
)
def test_without_quirks_what_cannot_be_read_back_is_not_sent(headers, body):
    frame = stomp.utils.Frame("SEND", {"destination": "/queue/a", **headers}, body)
    with compat.install(quirks=False), pytest.raises(ValueError, match=r"unencodable|bad-content-length|surrogates"):
        stomp.utils.convert_frame(frame)


@pytest.mark.parametrize("name", CLASSES[:3])
@pytest.mark.parametrize("quirks", [True, False])
def test_no_passcode_is_logged(quirks, name, caplog):
    """1.0 sends it by CONNECT, the others by STOMP."""
    with Server() as server, compat.install(quirks), caplog.at_level(logging.DEBUG, "stomp.py"):
        listener = server.connect(getattr(stomp, name)([server.address]), Listener())
        assert b"passcode:guest" in server.came[0]
        server.peer.close()
        listener.wait("disconnected")
    assert "passcode:********" in caplog.text
    assert "passcode:guest" not in caplog.text


def sent_in_the_log(name, broker, caplog):
    """The frames of a session, as stomp.py's log has them."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "stomp.py"):
        connection = getattr(stomp, name)([("127.0.0.1", broker.port)])
        listener = connected(connection)
        connection.subscribe("/queue/log", id="1", headers={"odd": ODD if name != "Connection10" else "plain"})
        connection.begin("t1")
        connection.send("/queue/other", "h\u00e9 'llo'", headers={"many": ("1", "2"), "none": None}, transaction="t1")
        connection.send("/queue/other", b"\0\n", headers={"passcode": "kept"}, content_type="a/b", transaction="t1")
        connection.commit("t1")
        connection.unsubscribe(id="1")
        disconnect(connection, listener)
    return [line.replace("passcode:guest", "passcode:********") for line in caplog.messages if "sending" in line]


@pytest.mark.parametrize("name", CLASSES[:3])
@pytest.mark.parametrize("options", [{}, {"quirks": False}, {"heart_beats": (0, 0)}], ids=["quirks", "strict", "beats"])
def test_frames_are_logged_as_before(broker, name, options, caplog):
    """Programs, and suites such as django-stomp's, look for `sending frame: [b'ACK', …` in the log."""
    wanted = sent_in_the_log(name, broker, caplog)
    with compat.install(**options):
        first = 1 if "heart_beats" in options else 0  # CONNECT offers heart-beats that it did not offer before
        assert sent_in_the_log(name, broker, caplog)[first:] == wanted[first:]
    assert len(wanted) == 8
    assert wanted[1].startswith("sending frame: [b'SUBSCRIBE', b'\\n', b'ack:auto\\n', ")


PARSED = [
    *(b"FOO", b"\nRECEIPT\nreceipt-id:1\n\n", b"MESSAGE\ncontent-length:3\na:\\t\\c\n\nhello"),
    *(b"MESSAGE\ncontent-length:9\n\nhello", b"MESSAGE\n\na\0b", b"CONNECTED\na:\\c\n\n"),
    b"MESSAGE\ncontent-length:1\n\na\0MESSAGE\ncontent-length:9\n\nb",
    *(b"MESSAGE\ncontent-length:3\n\na\0b", b"", b"\n"),
]


def test_parse_functions():
    """With quirks what theirs gives; without, an error for what is no frame."""
    wanted = [str(stomp.utils.parse_frame(data)) for data in PARSED]
    with compat.install():
        assert [str(stomp.transport.parse_frame(data)) for data in PARSED] == wanted
    with compat.install(quirks=False):
        assert [str(stomp.utils.parse_frame(data)) for data in PARSED[-3:]] == wanted[-3:]
        assert stomp.utils.parse_frame(PARSED[5]).headers == {"a": "\\c"}
        for data in (PARSED[0], *PARSED[2:5], PARSED[6]):
            with pytest.raises(stompcodec.FrameError):
                stomp.utils.parse_frame(data)
        with pytest.raises(stompcodec.FrameError, match="bad-escape"):
            stomp.utils.parse_headers(["a:\\t"])
        with pytest.raises(stompcodec.FrameError, match="bad-header-line"):
            stomp.utils.parse_headers(["a"])


# ---- docs/coming-from-stomp-py.md ----


@pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")
def test_the_examples_of_the_page_run(broker, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names = {"host": "127.0.0.1", "port": broker.port}
    try:
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), names)
    finally:
        compat.install().undo()
    assert capsys.readouterr().out == "/queue/orders hello\n"


@pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")
def test_the_names_of_our_client_exist():
    """What the second column calls."""
    column = " ".join(line.split(" | ")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if " | " in line)
    known = {name for owner in (stompcodec.client, Client, Message, Transaction) for name in dir(owner)}
    calls = [Options, *(call for kind in (Client, Message) for call in vars(kind).values() if inspect.isfunction(call))]
    known |= {name for call in calls for name in inspect.signature(call).parameters}
    called = set(re.findall(r"\b([a-z_]+)(?:=|\()", column)) - {"failover", "stomp"}
    assert len(called) > 20
    assert called <= known | {"attempts", "unsubscribe"}, called - known
