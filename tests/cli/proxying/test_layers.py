"""The proxy with TLS and WebSocket in front and behind."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")

from cli.proxied import Peer, last_words, proxied, raw
from client.peer import closed_port
from patience import patience
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as ws_connect
from websockets.sync.server import serve as ws_serve

import stompcodec.client as stomp
from stompcodec.cli.proxying.wire import Place
from stompcodec.testing import StompBroker
from stompcodec.transport.tls import client_context, server_context

HOST = ("127.0.0.1", 0)
SEND = b"SEND\ndestination:/queue/a\ncontent-length:5\n\nhello\0"
SEND_BINARY = b"SEND\ndestination:/queue/a\ncontent-length:2\n\n\xff\xfe\0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    pem, ca, authority = str(folder / "server.pem"), str(folder / "ca.pem"), trustme.CA()
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    authority.cert_pem.write_to_path(ca)
    return SimpleNamespace(pem=pem, ca=ca, server=server_context(pem), client=client_context(ca))


@pytest.fixture(scope="module")
def broker(certificates):
    with StompBroker(ws_port=0, tls_port=0, tls_cert=certificates.pem, tls_key=certificates.pem) as running:
        yield running


@pytest.mark.parametrize(
    ("front", "behind"), [("stomp", "stomp+ssl"), ("stomp+ssl", "ws"), ("ws", "stomp"), ("wss", "ws")]
)
def test_our_client_and_broker(front, behind, broker, certificates):
    ports = {"stomp": broker.port, "stomp+ssl": broker.config.tls_port, "ws": broker.config.ws_port}
    secure = certificates.server if front in ("stomp+ssl", "wss") else None
    place = Place("127.0.0.1", 0, secure, front.startswith("ws"))
    with proxied(f"{behind}://localhost:{ports[behind]}/", place=place, context=certificates.client) as proxy:
        options = {"ssl": certificates.client} if secure else {}
        with stomp.connect(proxy.url, passcode="hunter2", login="ann", **options) as client:
            messages = client.subscribe("/queue/layers")
            for body in (b"text", b"\xff\0binary", b"z" * 300_000):
                client.send("/queue/layers", body, receipt=True)
                assert messages.get(timeout=patience(10)).body == body
        proxy.frame("DISCONNECT")
    assert proxy.tally.foreign == {"client": 0, "broker": 0}
    assert proxy.frame("CONNECT").frame.get("passcode") == "***"
    assert not [entry for entry in proxy.entries if any(each.severity == "error" for each in entry.findings)]


# TLS


def test_a_certificate_that_is_not_trusted_and_plain_bytes_at_a_port_of_tls(broker, certificates):
    with proxied(f"stomp+ssl://localhost:{broker.config.tls_port}", context=client_context()) as proxy:
        assert last_words(proxy.port) == b""
        assert "certificate verify failed" in proxy.closed().lower()
    with raw(place=Place("127.0.0.1", 0, certificates.server, False)) as (proxy, _):
        last_words(proxy.port, SEND)
        assert proxy.closed().startswith("closed: no handshake with the client: ")


# WebSocket


@contextlib.contextmanager
def ws_server(handler, **options):
    with ws_serve(handler, "127.0.0.1", 0, compression=None, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/stomp?x=1"
        finally:
            server.shutdown()
            thread.join()


WS = Place(*HOST, None, True)


def test_messages_keep_kind_and_bytes():
    seen, offered = [], ["odd", "v12.stomp"]

    def handler(connection):
        seen.append((connection.request.path, connection.request.headers.get("Origin"), connection.subprotocol))
        for message in connection:
            seen.append(message)
            connection.send(message)

    messages = ["text", b"binary", SEND.decode(), SEND_BINARY, "é" * 70_000, b"", b"\xff" * 70_000]
    with (
        ws_server(handler, subprotocols=["v11.stomp", "odd"]) as url,
        proxied(url, place=WS) as proxy,
        ws_connect(proxy.url, subprotocols=offered, origin="https://app.example", compression=None) as client,
    ):
        assert client.subprotocol == "odd"
        for message in messages:
            client.send(message)
            assert client.recv(patience(10)) == message
        client.send(iter(["in ", "several ", "parts"]))
        assert client.recv(patience(10)) == "in several parts"
    assert seen == [("/stomp?x=1", "https://app.example", "odd"), *messages, "in several parts"]


def test_frames_become_messages_behind_tcp():
    seen = []
    done = threading.Event()

    def handler(connection):
        with contextlib.suppress(ConnectionClosed):
            for message in connection:
                seen.append(message)
                connection.send("MESSAGE\n\n\0")
        done.set()

    large = b"SEND\ncontent-length:3000000\n\n" + bytes(3_000_000) + b"\0"
    with ws_server(handler, max_size=None) as url, proxied(url) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=patience(10)) as client:
            client.sendall(SEND[:20])
            client.sendall(SEND[20:] + b"\n" + SEND_BINARY + large)
            assert Peer(client).read(4 * 10) == b"MESSAGE\n\n\0" * 4
        assert done.wait(patience(10))
    assert seen == [SEND.decode(), "\n", SEND_BINARY, large]


@pytest.mark.parametrize("behind", ["url", "ws_url"])
def test_pages_of_others_may_not_use_it(behind, broker):
    """Before TCP, the proxy checks Origin and Host; before WebSocket, the broker does."""
    with proxied(getattr(broker, behind), place=WS) as proxy:
        with pytest.raises(InvalidStatus) as caught, ws_connect(proxy.url, origin="https://evil.example"):
            pass
        assert caught.value.response.status_code in (403, 502)
        with ws_connect(proxy.url, origin="http://localhost:3000"):
            pass


def test_a_target_that_is_down_answers_502():
    with closed_port() as port, proxied(f"ws://127.0.0.1:{port}/", place=WS) as proxy:
        with pytest.raises(InvalidStatus) as caught, ws_connect(proxy.url):
            pass
        assert caught.value.response.status_code == 502
        assert "Connection refused" in proxy.closed()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 70_000])
def test_noise_at_a_port_of_websocket(data, broker):
    with proxied(broker.ws_url, place=WS) as proxy:
        last_words(proxy.port, data)
        assert proxy.closed() != "closed"
