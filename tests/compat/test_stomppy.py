"""stomp.py programs on our codec: connections over sockets, to our broker and to a scripted server."""

import copy
import inspect
import logging
import pickle
import re
import ssl
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from compat.stomppy_peer import Listener, Server, compat, needs_stomppy, stomp

import stompcodec.client
from stompcodec import FrameError
from stompcodec.broker.auth import User, hash_passcode
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


def connected(connection):
    listener = Listener()
    connection.set_listener("test", listener)
    connection.connect("guest", "guest", wait=True)
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
    listener, version = connected(connection), connection.version
    value = ODD if version != "1.0" else "plain"
    queue = f"/queue/{time.monotonic_ns()}"
    connection.subscribe(queue, id="7", ack="client-individual" if version != "1.0" else "client")
    connection.send(queue, BODY, headers={"odd": value}, receipt="sent")
    (frame,) = listener.wait("message")
    assert (frame.body, frame.headers["odd"]) == (BODY, value)
    ids = {"1.0": ["message-id"], "1.1": ["message-id", "subscription"], "1.2": ["ack"]}[version]
    connection.ack(*(frame.headers[name] for name in ids))
    assert [frame.headers["receipt-id"] for frame in listener.wait("receipt")] == ["sent"]
    assert listener.of("error") == []
    disconnect(connection, listener)


@pytest.mark.parametrize("name", CLASSES[:3])
@pytest.mark.parametrize("patch", [nullcontext, compat.install])
def test_a_login_with_a_backslash(name, patch):
    r"""stomp.py does not escape the command STOMP, in which \n is a line feed."""
    login, passcode = r"DOM\nick", r"pa\ss"
    with patch(), BrokerThread(users={login: User(login, hash_passcode(passcode, n=16))}) as broker:
        connection = getattr(stomp, name)([("127.0.0.1", broker.port)])
        connection.connect(login, passcode, wait=True)
        connection.disconnect()


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
        assert listener.threads() == set(made)
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


def test_tls(installed, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    body = bytes(range(256)) * 2048
    with Server(context=context) as server:
        connection = stomp.Connection12([server.address], auto_decode=False)
        connection.set_ssl([server.address], ca_certs=certificates.ca)
        if hasattr(connection.transport, "send_queue"):  # since 9.0 only the I/O thread writes to TLS sockets
            connection.transport.send = None
        _, listener = server.dial(connection=connection)
        server.peer.sendall(b"MESSAGE\ncontent-length:%d\n\n%b\0" % (len(body), body))
        assert listener.wait("message")[0].body == body
        server.end(listener)  # 9.0.0 by itself would now ask the socket again for ever


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
    assert ["drops the message" in each for each in said] == [True] * warnings


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        *(({"a": "1\nadmin:yes"}, ""), ({"a:b": "1"}, ""), ({"": "1"}, ""), ({"a": "\ud800"}, ""), ({}, b"a\0b")),
        *(({"content-length": 5}, ""), ({}, "\ud800")),
    ],
)
def test_without_quirks_what_cannot_be_read_back_is_not_sent(headers, body):
    frame = stomp.utils.Frame("SEND", {"destination": "/queue/a", **headers}, body)
    with compat.install(quirks=False), pytest.raises(ValueError, match=r"unencodable|bad-content-length|surrogates"):
        stomp.utils.convert_frame(frame)


def sent_in_the_log(name, broker, caplog):
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
    return [line for line in caplog.messages if "sending" in line]


@pytest.mark.parametrize("name", CLASSES[:3])
@pytest.mark.parametrize("options", [{}, {"quirks": False}, {"heart_beats": (0, 0)}], ids=["quirks", "strict", "beats"])
def test_frames_are_logged_as_before_but_no_passcode(broker, name, options, caplog):
    """Programs, and suites such as django-stomp's, look for `sending frame: [b'ACK', …` in the log."""
    wanted = sent_in_the_log(name, broker, caplog)
    with compat.install(**options):
        found = sent_in_the_log(name, broker, caplog)
    assert "passcode:********" in found[0]  # 1.0 sends it by CONNECT, the others by STOMP
    assert "passcode:guest" not in caplog.text
    if "heart_beats" not in options:  # CONNECT offers heart-beats that it did not offer before
        assert found[0] == wanted[0].replace("passcode:guest", "passcode:********")
    assert (found[1:], len(wanted)) == (wanted[1:], 8)
    assert wanted[1].startswith("sending frame: [b'SUBSCRIBE', b'\\n', b'ack:auto\\n', ")


NO_FRAMES = [
    *(b"FOO", b"MESSAGE\ncontent-length:3\na:\\t\\c\n\nhello", b"MESSAGE\ncontent-length:9\n\nhello"),
    *(b"MESSAGE\n\na\0b", b"MESSAGE\ncontent-length:1\n\na\0MESSAGE\ncontent-length:9\n\nb"),
]
FRAMES = [b"MESSAGE\ncontent-length:3\n\na\0b", b"", b"\n"]
OTHERS = [b"\nRECEIPT\nreceipt-id:1\n\n", b"CONNECTED\na:\\c\n\n"]


def test_parse_functions():
    parsed = {data: str(stomp.utils.parse_frame(data)) for data in (*NO_FRAMES, *FRAMES, *OTHERS)}
    with compat.install():
        assert {data: str(stomp.transport.parse_frame(data)) for data in parsed} == parsed
    with compat.install(quirks=False):
        for data in FRAMES:
            assert str(stomp.utils.parse_frame(data)) == parsed[data]
        assert stomp.utils.parse_frame(OTHERS[1]).headers == {"a": "\\c"}
        for data in NO_FRAMES:
            with pytest.raises(FrameError):
                stomp.utils.parse_frame(data)
        for line, kind in (("a:\\t", "bad-escape"), ("a", "bad-header-line")):
            with pytest.raises(FrameError, match=kind):
                stomp.utils.parse_headers([line])


@pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")
def test_the_examples_of_the_page_run(broker, capsys):
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names = {"host": "127.0.0.1", "port": broker.port}
    try:
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), names)
    finally:
        compat.install().undo()
    assert capsys.readouterr().out == "/queue/orders hello\n"
    column = " ".join(line.split(" | ")[1] for line in page.splitlines() if " | " in line)
    known = {name for owner in (stompcodec.client, Client, Message, Transaction) for name in dir(owner)}
    calls = [Options, *(call for kind in (Client, Message) for call in vars(kind).values() if inspect.isfunction(call))]
    known |= {name for call in calls for name in inspect.signature(call).parameters}
    called = set(re.findall(r"\b([a-z_]+)(?:=|\()", column)) - {"failover", "stomp"}
    assert len(called) > 20
    assert called <= known | {"attempts", "unsubscribe"}, called - known
