"""A consumer with ack:auto that does not read takes no more than `write_high` out of its queues."""

import asyncio
import socket
import sys
from types import SimpleNamespace

import pytest
from broker.harness import Bench
from broker.sockets import Client, send, served, until
from patience import patience

from stompcodec.transport import aio

HIGH = 128 * 1024
RECEIVE = 4096
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Reader:
    def __init__(self, server, kind, trusting):
        port = {"tcp": server.port, "ws": server.ws_port, "tls": server.tls_port}[kind]
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE)
        sock.settimeout(patience(20))
        sock.connect(("127.0.0.1", port))
        self.room = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.kind = kind
        self.sock = trusting.wrap_socket(sock, server_hostname="127.0.0.1") if kind == "tls" else sock
        if kind == "ws":
            self.sock.sendall(UPGRADE)
            self.count(b"\r\n\r\n", 1, 500)
        self.write(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        self.count(b"CONNECTED\n", 1, 500)

    def write(self, octets):
        if self.kind == "ws":
            assert len(octets) < 126
            octets = bytes([0x81, 0x80 | len(octets), 0, 0, 0, 0]) + octets
        self.sock.sendall(octets)

    def count(self, what, times, most=2000):
        tail, seen, octets = b"", 0, 0
        while seen < times:
            data = self.sock.recv(most)
            assert data
            octets += len(data)
            tail += data
            seen += tail.count(what)
            tail = tail[tail.rfind(what) + len(what) :] if what in tail else tail[-len(what) + 1 :]
        return octets


@pytest.mark.parametrize(
    ("kind", "size", "count"), [("tcp", 1000, 500), ("tcp", 50_000, 20), ("ws", 1000, 500), ("tls", 1000, 500)]
)
def test_it_takes_no_more_than_write_high_and_all_when_it_reads(kind, size, count, certificate):
    body = "x" * size
    tls = {"tls_port": 0, "tls_cert": certificate.both} if kind == "tls" else {}

    @served(write_high=HIGH, ws_port=0 if kind == "ws" else None, **tls)
    async def main(server):
        reader = await asyncio.to_thread(Reader, server, kind, certificate.trusting)
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

    main()


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
    peer = bench.client(client_id="c")
    for number in range(1 if "durable_subscriber_name" in subscription else 2):
        peer.send("SUBSCRIBE", id=str(number), **subscription)
    assert told == [peer.session] * bound
    assert (peer.session.outbox.most < sys.maxsize) is bound


def test_a_receive_with_ack_auto_is_bound():
    bench, told = Bench(), []
    bench.broker.bound_output = told.append
    peer = bench.peer()
    for ack, sessions in (("client", []), ("auto", [peer.session]), ("auto", [peer.session])):
        peer.put("/queue/a", "x")
        peer.raw(f"RECEIVE\ndestination:/queue/a\nid:1\nack:{ack}\n\n\0".encode())
        assert told == sessions


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_turn_takes_half_of_write_high(ack):
    bench = Bench(write_high=10_000)
    peer, sender = bench.peer(), bench.peer()
    peer.reading = False
    peer.subscribe("/queue/a", ack=ack)
    for _ in range(30):
        sender.put("/queue/a", b"x" * 900)
    left = len(bench.queue().messages)
    assert (24 <= left <= 25) if ack == "auto" else left <= 20


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
    found = []

    def setsockopt(level, name, value):
        if name in refused:
            raise OSError
        found.append((level, name, value))

    monkeypatch.setattr(aio, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(socket, "TCP_NOTSENT_LOWAT", UNSENT, raising=False)
    aio.bound_unsent(SimpleNamespace(setsockopt=setsockopt), 32768)
    assert found == options
