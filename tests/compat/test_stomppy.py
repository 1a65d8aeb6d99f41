"""stomp.py programs on our codec: connections over sockets, to our broker and to a scripted server."""

from __future__ import annotations

import copy
import logging
import pickle
import socket
import ssl
import threading
import time

import pytest
from client.broker import BrokerThread
from compat.stomppy_peer import compat, needs_stomppy, stomp
from patience import patience

import stompcodec

pytestmark = needs_stomppy


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
        self.frames, self.beats, self.threads = [], 0, set()
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


BODY = bytes(range(256)) * 100


def made(module, name, broker, **options):
    """A connection of a class."""
    if name == "WSConnection":
        if "binary_mode" not in stomp.WSConnection.__init__.__code__.co_varnames:
            pytest.skip("stomp.py 8.1 raises when it closes a WebSocket")
        options["binary_mode"] = True
    address = ("127.0.0.1", broker.ws_port if name == "WSConnection" else broker.port)
    return getattr(module, name)([address], auto_decode=False, **options)


def round_trip(connection, listener):
    """A message with an odd header and NULs, there and back, acknowledged."""
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


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("quirks", [True, False])
def test_connection_classes(broker, name, quirks):
    connection = made(compat, name, broker, quirks=quirks)
    assert isinstance(connection, getattr(stomp, name))
    listener = connected(connection)
    assert type(connection.transport).__name__.startswith("Codec")
    round_trip(connection, listener)
    disconnect(connection, listener)


@pytest.mark.parametrize("name", CLASSES)
def test_installed(broker, installed, name):
    connection = made(stomp, name, broker)
    listener = connected(connection)
    round_trip(connection, listener)
    disconnect(connection, listener)


def test_listeners_are_called_in_the_io_thread(broker, installed):
    made = []

    def create(callback):
        made.append(stomp.utils.default_create_thread(callback))
        return made[-1]

    connection = stomp.Connection12([("127.0.0.1", broker.port)])
    connection.transport.override_threading(create)
    listener = connected(connection)
    round_trip_text(connection, listener)
    assert listener.threads == set(made)
    disconnect(connection, listener)


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


def round_trip_text(connection, listener):
    queue = f"/queue/{time.monotonic_ns()}"
    connection.subscribe(queue, id="1")
    connection.send(queue, "héllo")
    (frame,) = listener.wait("message")
    assert frame.body == "héllo"
    return frame


def test_a_received_frame_is_copied_and_pickled(broker, installed):
    connection = stomp.Connection12([("127.0.0.1", broker.port)])
    listener = connected(connection)
    frame = round_trip_text(connection, listener)
    for other in (pickle.loads(pickle.dumps(frame)), copy.deepcopy(frame), copy.copy(frame)):
        assert (other.cmd, other.headers, other.body) == (frame.cmd, frame.headers, frame.body)
    disconnect(connection, listener)


def test_it_connects_again(broker, installed):
    connection = stomp.Connection11([("127.0.0.1", broker.port)])
    for turn in range(1, 3):
        listener = connected(connection)
        round_trip_text(connection, listener)
        disconnect(connection, listener)
        assert len(listener.of("message")) == 1, turn


def test_a_large_binary_body(broker):
    """16 MiB through sockets."""
    body = bytes(range(256)) * (1 << 16)
    with compat.install():
        connection = stomp.Connection12([("127.0.0.1", broker.port)], auto_decode=False)
        listener = connected(connection)
        connection.subscribe("/queue/large", id="1")
        connection.send("/queue/large", body)
        assert listener.wait("message")[0].body == body
        disconnect(connection, listener)


# ---- a scripted server ----


class Server:
    """Accepts one connection, and sends what the test says once CONNECT has come."""

    def __init__(self, context=None):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.context, self.peer, self.came = context, None, b""
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.accept, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def accept(self):
        peer, _ = self.listener.accept()
        peer.settimeout(patience(10))
        self.peer = peer if self.context is None else self.context.wrap_socket(peer, server_side=True)
        while b"\0" not in self.came:
            self.came += self.peer.recv(65536)
        self.peer.sendall(b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0")
        self.ready.set()

    def send(self, data):
        assert self.ready.wait(patience(10))
        self.peer.sendall(data)

    def __exit__(self, *_):
        self.thread.join(patience(10))
        if self.peer is not None:
            self.peer.close()
        self.listener.close()


def test_the_end_of_the_stream_is_a_disconnect(installed):
    with Server() as server:
        connection = stomp.Connection12([("127.0.0.1", server.port)])
        listener = connected(connection)
        server.send(b"MESSAGE\n\nwhole\0MESSAGE\n\nhalf")
        server.peer.close()
        listener.wait("disconnected")
        assert [frame.body for frame in listener.of("message")] == ["whole"]
        assert not connection.is_connected()


def test_listeners_add_to_what_is_sent(installed):
    with Server() as server:
        connection = stomp.Connection12([("127.0.0.1", server.port)], heartbeats=(60_000, 0))
        listener = connected(connection)
        assert b"\nheart-beat:60000,0\n" in server.came
        server.peer.close()
        listener.wait("disconnected")


def test_the_receipt_of_disconnect_closes_the_socket(installed):
    with Server() as server:
        connection = stomp.Connection12([("127.0.0.1", server.port)])
        listener = connected(connection)
        closer = threading.Thread(target=connection.disconnect, kwargs={"receipt": "bye"})
        closer.start()
        said = server.peer.recv(65536)
        assert said == b"DISCONNECT\nreceipt:bye\n\n\0"
        server.send(b"RECEIPT\nreceipt-id:bye\n\n\0")
        assert server.peer.recv(1) == b""
        closer.join(patience(10))
        assert not closer.is_alive()
        listener.wait("disconnected")


def test_what_is_no_stomp_ends_the_connection_or_not(installed):
    with Server() as server:
        connection = stomp.Connection12([("127.0.0.1", server.port)])
        listener = connected(connection)
        server.send(b"MESSAGE\nbad:\\t\n\n\0MESSAGE\n\nlast\0")
        if compat.parse_frame is stomp.transport.parse_frame:
            assert [frame.body for frame in listener.wait("message", 2)] == ["", "last"]
            connection.disconnect()
            server.peer.close()
        listener.wait("disconnected")
        assert len(listener.of("message")) in (0, 2)


def test_tls(installed, tmp_path):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    body = bytes(range(256)) * 2048
    with Server(context) as server:
        address = ("127.0.0.1", server.port)
        connection = stomp.Connection12([address], auto_decode=False)
        connection.set_ssl([address], ca_certs=str(tmp_path / "ca.pem"))
        if hasattr(connection.transport, "send_queue"):  # since 9.0 only the I/O thread writes to TLS sockets
            connection.transport.send = None
        listener = connected(connection)
        server.send(b"MESSAGE\ncontent-length:%d\n\n%b\0" % (len(body), body))
        assert listener.wait("message")[0].body == body
        server.peer.close()  # 9.0.0 by itself would now ask the socket again for ever
        listener.wait("disconnected")


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
        connection = getattr(stomp, name)([("127.0.0.1", server.port)])
        listener = Listener()
        connection.set_listener("", listener)
        connection.connect("guest", "sesame", wait=True)
        assert b"passcode:sesame" in server.came
        server.peer.close()
        listener.wait("disconnected")
    assert "passcode:********" in caplog.text
    assert "sesame" not in caplog.text


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
    b"FOO",
    b"\nRECEIPT\nreceipt-id:1\n\n",
    b"MESSAGE\ncontent-length:3\na:\\t\\c\n\nhello",
    b"MESSAGE\ncontent-length:9\n\nhello",
    b"MESSAGE\n\na\0b",
    b"CONNECTED\na:\\c\n\n",
    b"MESSAGE\ncontent-length:1\n\na\0MESSAGE\ncontent-length:9\n\nb",
    b"MESSAGE\ncontent-length:3\n\na\0b",
    b"",
    b"\n",
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
