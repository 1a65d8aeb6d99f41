"""A consumer with ack:auto that does not read takes no more than `write_high` out of its queues.

What the peer's kernel has received cannot be bounded here, so the peers of these tests have small receive buffers.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.harness import Bench
from broker.sockets import CONFIG, Client, run, send, until
from patience import patience

from stompcodec.broker.server import Server
from stompcodec.transport import aio

HIGH = 128 * 1024
RECEIVE = 4096
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


class Reader:
    """A blocking peer with a small receive buffer, over one of the transports."""

    def __init__(self, server: Server, kind: str, trusting: ssl.SSLContext | None) -> None:
        port = {"tcp": server.port, "ws": server.ws_port, "tls": server.tls_port}[kind]
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE)
        sock.settimeout(patience(20))
        sock.connect(("127.0.0.1", port))
        self.room = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.kind = kind
        self.sock = sock if trusting is None else trusting.wrap_socket(sock, server_hostname="127.0.0.1")
        if kind == "ws":
            key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            upgrade = (
                f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n"
            )
            self.sock.sendall(upgrade.encode())
            self.until(b"\r\n\r\n")
        self.write(CONNECT)
        self.until(b"CONNECTED\n")

    def write(self, octets: bytes) -> None:
        if self.kind == "ws":
            assert len(octets) < 126
            octets = bytes([0x81, 0x80 | len(octets), 0, 0, 0, 0]) + octets
        self.sock.sendall(octets)

    def until(self, end: bytes) -> None:
        found = b""
        while end not in found:
            data = self.sock.recv(500)
            assert data
            found += data

    def count(self, what: bytes, times: int) -> int:
        """Read until something has come so many times; return the bytes."""
        tail, seen, octets = b"", 0, 0
        while seen < times:
            data = self.sock.recv(2000)
            assert data
            octets += len(data)
            tail += data
            seen += tail.count(what)
            tail = tail[tail.rfind(what) + len(what) :] if what in tail else tail[-len(what) + 1 :]
        return octets


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    folder: Path = tmp_path_factory.mktemp("unsent")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return SimpleNamespace(cert=str(folder / "cert.pem"), key=str(folder / "key.pem"), trusting=trusting)


@pytest.mark.parametrize(
    ("kind", "size", "count"), [("tcp", 1000, 500), ("tcp", 50_000, 20), ("ws", 1000, 500), ("tls", 1000, 500)]
)
def test_it_takes_no_more_than_write_high_and_all_when_it_reads(kind: str, size: int, count: int, certificate: Any):
    body = "x" * size
    config = CONFIG.replace(write_high=HIGH, ws_port=0 if kind == "ws" else None)
    if kind == "tls":
        config = config.replace(tls_port=0, tls_cert=certificate.cert, tls_key=certificate.key)

    async def main(server: Server) -> None:
        reader = await asyncio.to_thread(Reader, server, kind, certificate.trusting if kind == "tls" else None)
        await asyncio.to_thread(reader.write, b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0")
        await until(lambda: any(session.consumers for session in server.broker.sessions.values()))
        queue = server.broker.queues["/", "/queue/a"]
        sender = await Client.connect(server)
        for _ in range(count):
            sender.send(send("/queue/a", body, "persistent:true"))
        await sender.ask(send("/queue/other", "", "receipt:last"))
        assert 0 < (count - queue.total) * size <= HIGH + reader.room + size + 150
        octets = await asyncio.to_thread(reader.count, body[-50:].encode() + b"\0", count)
        assert octets >= count * size
        assert queue.total == 0
        reader.sock.close()
        await sender.close()

    run(main, config)


@pytest.mark.parametrize(
    ("subscription", "bound"),
    [
        ({"destination": "/queue/a"}, True),
        ({"destination": "/topic/t", "durable_subscriber_name": "n"}, True),
        ({"destination": "/queue/a,/topic/t"}, True),
        ({"destination": "/topic/t"}, False),  # nothing is lost there that a slower one would have kept
        ({"destination": "/queue/a", "ack": "client"}, False),
        ({"destination": "/queue/a", "ack": "client-individual"}, False),
        ({"destination": "/queue/a", "browser": "true"}, False),
    ],
)
def test_what_is_bound(subscription, bound):
    bench, told = Bench(dialect="activemq"), []
    bench.broker.bound_output = told.append
    peer = bench.peer(connect=False)
    peer.connect(client_id="c")
    for number in range(2):
        peer.send("SUBSCRIBE", id=str(number), **subscription)
        if "durable_subscriber_name" in subscription:
            break
    assert told == [peer.session] * bound
    assert (peer.session.outbox.most < sys.maxsize) is bound


def test_a_receive_with_ack_auto_is_bound():
    bench, told = Bench(), []
    bench.broker.bound_output = told.append
    peer = bench.peer()
    peer.put("/queue/a", "x")
    peer.raw(b"RECEIVE\ndestination:/queue/a\nid:1\nack:client\n\n\0")
    assert told == []
    for _ in range(2):
        peer.put("/queue/a", "x")
        peer.raw(b"RECEIVE\ndestination:/queue/a\nid:1\n\n\0")
    assert told == [peer.session]


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_turn_takes_half_of_write_high(ack):
    bench = Bench(write_high=10_000)
    peer = bench.peer()
    peer.reading = False
    peer.subscribe("/queue/a", ack=ack)
    sender = bench.peer()
    for _ in range(30):
        sender.put("/queue/a", b"x" * 900)
    left = len(bench.broker.queues["/", "/queue/a"].messages)
    assert (24 <= left <= 25) if ack == "auto" else left <= 20


class Sock:
    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        self.options: list[tuple[int, int, int]] = []
        self.refused = refused

    def setsockopt(self, level: int, name: int, value: int) -> None:
        if name in self.refused:
            raise OSError
        self.options.append((level, name, value))


UNSENT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)


@pytest.mark.parametrize(
    ("platform", "refused", "options"),
    [
        ("linux", (), [(socket.IPPROTO_TCP, UNSENT, 32768)]),
        ("linux", (UNSENT,), [(socket.SOL_SOCKET, socket.SO_SNDBUF, 98304)]),
        ("darwin", (), [(socket.SOL_SOCKET, socket.SO_SNDBUF, 98304)]),
        ("win32", (), [(socket.SOL_SOCKET, socket.SO_SNDBUF, 98304)]),
    ],
)
def test_the_send_buffer_grows_with_the_link_where_the_system_allows_it(monkeypatch, platform, refused, options):
    monkeypatch.setattr(aio, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(socket, "TCP_NOTSENT_LOWAT", UNSENT, raising=False)
    sock = Sock(refused)
    aio.bound_unsent(sock, 32768)  # type: ignore[arg-type]
    assert sock.options == options
