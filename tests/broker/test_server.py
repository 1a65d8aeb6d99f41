"""The broker over real sockets: turns, receipts, listeners, large messages, consumers that do not read, a tidy end."""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
import zlib
from types import SimpleNamespace

import pytest
from broker.harness import Bench
from broker.sockets import CONFIG, Client, browser, connect_frame, masked, run, send, served, subscribe, until
from crash.process import BrokerProcess
from patience import patience
from transport.messages import request

from stompcodec import Parser
from stompcodec.broker.config import Config
from stompcodec.broker.server import serve
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.errors import StoreError
from stompcodec.frame import HEARTBEAT
from stompcodec.transport import aio

MIB = 2**20


class CountingStore(MemoryStore):
    def __init__(self, later=0.0):
        super().__init__()
        self.commits, self.later, self.closed = [], later, False

    def commit_later(self, done, call_soon):
        self.commits.append(self.pending)
        self.commit()
        if self.later:
            asyncio.get_running_loop().call_later(self.later, done, None)
        else:
            done(None)

    def close(self):
        self.closed = True
        super().close()


async def clients(server, count=2):
    return [await Client.connect(server) for _ in range(count)]


async def received(client, *frame):
    answer = await client.ask(send(*frame))
    assert answer.command == "RECEIPT", answer
    return answer.headers["receipt-id"]


@served()
async def test_memory_is_given_back_for_what_the_journal_lets_go_too(server, monkeypatch):
    seen = []
    monkeypatch.setattr(server._heap, "look", seen.append)
    server.broker.journal.charge(server.broker.journal.batch, 77)
    server.turn()
    server._tick(True)
    assert (server._heap._most, seen) == (77, [77])


def test_what_is_counted_from_now_does_not_follow_the_clock():
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + clock.ahead, ahead=0)

    async def main(server):
        client = await Client.connect(server)
        await received(client, "/queue/a", "x", "expiration:60000", "receipt:r")
        clock.ahead = 3600
        client.send(subscribe("/queue/a"))
        assert [(await client.frame()).command for _ in range(2)] == ["RECEIPT", "MESSAGE"]

    run(main, clock=clock)


def test_no_eol_follows_a_frame_if_so_configured():
    """A body may end like a frame, also where a large one is cut, and there are heart-beats."""
    now = [1000.0]  # a heart-beat, which looks like such an EOL, is not due before the end

    async def main(server):
        client = await Client.open(server)
        client.parser = Parser("1.2", heartbeats=True)
        frames = [await client.ask(connect_frame().decode().replace("host:/", "host:/\nheart-beat:0,100"))]
        bodies = ["", "a\0\n", "\0\n" * 200_000]
        requests = [send("/queue/a", body, "receipt:r", f"content-length:{len(body)}") for body in bodies]
        frames += [await client.ask(text) for text in (*requests, subscribe("/queue/a"))]
        frames += [await client.frame() for _ in bodies]
        assert [frame.command for frame in frames] == ["CONNECTED", *["RECEIPT"] * 4, *["MESSAGE"] * 3]
        assert [frame.body.decode() for frame in frames[-3:]] == bodies
        now[0] += 1.0
        assert await client.frame() is HEARTBEAT

    config = CONFIG.replace(trailing_lf=False, large=100_000, heart_beat=(100, 0))
    run(main, config, clock=SimpleNamespace(monotonic=lambda: now[0], time=time.time))


@served(max_queue_messages=500)
async def test_a_full_queue_stops_its_producer_only(server):
    producer, other = await clients(server)
    producer.send(send("/queue/full", "x" * 1000) * 40_000)
    flooding = asyncio.ensure_future(producer.writer.drain())
    await until(lambda: any(peer.paused for peer in server.peers.values()))
    assert await received(other, "/queue/b", "x", "receipt:r")
    assert not flooding.done()
    await other.ask(subscribe("/queue/full"))
    for _ in range(40_000):
        assert (await other.frame()).body == b"x" * 1000
    await flooding
    await until(lambda: not any(peer.paused for peer in server.peers.values()))


def test_tls(certificates):
    @served(tls_port=0, tls_cert=certificates.cert, tls_key=certificates.key)
    async def main(server):
        assert server.tls_port not in (None, server.port)
        client = Client(*await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=certificates.contexts.client))
        assert (await client.ask("CONNECT\naccept-version:1.2\nhost:/\n\n\0")).command == "CONNECTED"
        assert [peer.listener for peer in server.peers.values()] == ["tls"]

    main()


def test_a_slow_disk_holds_up_those_who_store_only():
    """Their receipts follow the commit, in the background; others are answered meanwhile; memory stays bounded."""
    store = CountingStore(later=0.2)

    async def main(server):
        durable, transient = await clients(server)
        began = time.monotonic()
        for number in range(3):  # three batches, unless the first two are one
            durable.send(send("/queue/a", "x", "persistent:true", f"receipt:{number}"))
            for _ in range(20):
                assert await received(transient, "/queue/b", "x", "persistent:false", "receipt:r")
        assert not durable.frames
        assert [(await durable.frame()).headers["receipt-id"] for _ in range(3)] == ["0", "1", "2"]
        assert time.monotonic() - began >= 0.2
        assert len(store.commits) in (2, 3)
        durable.send(send("/queue/a", "x", "persistent:true") * 50_000)
        await until(lambda: any(peer.paused for peer in server.peers.values()))
        assert await received(transient, "/queue/b", "x", "persistent:false", "receipt:r")
        store.later = 0.0
        assert await received(durable, "/queue/a", "x", "persistent:true", "receipt:last") == "last"

    run(main, store=store)
    assert sum(store.commits) == 50_004


def test_stop_waits_for_the_disk():
    """What was on its way to the disk when the broker was told to stop gets there, and its receipt to the sender."""
    store = CountingStore(later=0.2)

    async def main():
        async with serve(CONFIG, store=store) as server:
            client = await Client.connect(server)
            client.send(send("/queue/a", "x", "persistent:true", "receipt:r"))
            await until(lambda: bool(store.commits))
        assert store.closed
        assert [frame.command for frame in await client.rest()] == ["RECEIPT", "ERROR"]
        await client.close()

    asyncio.run(main())


def test_stop_does_not_wait_for_who_does_not_read():
    async def main():
        async with serve(CONFIG.replace(drain_timeout=0.3)) as server:
            deaf, producer = await clients(server)
            await deaf.ask(subscribe("/queue/a"))
            deaf.writer.transport.pause_reading()
            await received(producer, "/queue/a", "x" * 20_000_000, "receipt:r")
            began = time.monotonic()
        took = time.monotonic() - began
        assert not server.peers
        for client in (deaf, producer):
            await client.close()
        return took

    assert asyncio.run(main()) < patience(5)


def test_the_ready_file(tmp_path):
    pytest.importorskip("websockets")
    file = tmp_path / "ready"
    file.write_text("of an earlier broker")

    async def main(server):
        assert server.port != server.ws_port
        address = {"host": "127.0.0.1", "port": server.port, "ws_port": server.ws_port}
        assert json.loads(file.read_text()) == {"pid": os.getpid(), **address, "tls_port": None, "legacy_port": None}
        assert [path.name for path in tmp_path.iterdir()] == ["ready"]

    run(main, CONFIG.replace(ws_port=0), ready=file)
    assert not file.exists()


def test_a_ready_file_that_cannot_be_removed_does_not_keep_the_broker_open(tmp_path, caplog):
    async def main(server):
        file.unlink(missing_ok=True)
        file.mkdir(exist_ok=True)

    file, config = tmp_path / "ready", CONFIG.replace(data=str(tmp_path / "data"))
    run(main, config, ready=file)
    assert f"{file}: the ready file is left" in caplog.text
    file.rmdir()
    run(main, config)  # its lock is free


def test_a_start_that_fails_leaves_nothing_behind(tmp_path):
    config = CONFIG.replace(data=str(tmp_path / "data"))

    async def main(server):
        taken = config.replace(port=server.port)
        for _ in range(2):
            with pytest.raises(OSError, match=str(server.port)):
                await serve(taken, ready=tmp_path / "ready").start()
        assert not (tmp_path / "ready").exists()
        with pytest.raises(FileNotFoundError):
            await serve(config, ready=tmp_path / "none" / "ready").start()
        async with serve(config):
            with pytest.raises(StoreError):
                await serve(config).start()

    run(main)


@pytest.mark.req("ART-ACC-01")
@served(ports=(0, 0))
async def test_stomp_on_several_ports(server):
    assert (Config().ports, len({server.port, *server.ports})) == ((), 3)
    assert server.address["ports"] == server.ports
    consumer = await Client.connect(server)
    await consumer.ask(subscribe("/queue/a"))
    for port in server.ports:
        server.port = port  # where `connect` goes
        (await Client.connect(server)).send(send("/queue/a", str(port)))
        assert (await consumer.frame()).body == str(port).encode()


def frame_of(size):
    head = b"SEND\ndestination:/queue/a\nreceipt:r\n\n"
    return head + b"x" * (size - len(head) - 1) + b"\0"


@pytest.mark.req("ART-WSK-01", "ART-WSK-02")
@pytest.mark.parametrize("limit", [None, 65536])
def test_frames_of_websocket_up_to_the_limit_are_accepted(limit):
    """By default, what browsers send in one frame. A frame of STOMP may be larger."""
    pytest.importorskip("websockets")

    @served(ws_port=0, **({} if limit is None else {"ws_frame": limit}))
    async def main(server):
        async with browser(server) as raw:
            await raw.send(masked(frame_of(limit or 3 * MIB)))
            await raw.until(b"RECEIPT")
            octets = frame_of(200_000)
            for at in range(0, len(octets), 65536):
                await raw.send(masked(octets[at : at + 65536], final=at + 65536 >= len(octets), opcode=0 if at else 2))
            await raw.until(b"RECEIPT")
            if limit is not None:
                await raw.send(masked(frame_of(limit + 1)))
                assert b"RECEIPT" not in await raw.rest()

    main()


def test_a_client_that_takes_no_message_so_large_is_named_with_its_words(caplog):
    """As Spring's, by default above 8 KiB: the broker sends each frame as one message."""
    caplog.set_level("INFO", "stompcodec.broker")

    @served(ws_port=0)
    async def main(server):
        async with browser(server) as raw:
            await raw.send(masked(b"SUBSCRIBE\nid:1\ndestination:/topic/a\nreceipt:r\n\n\0"))
            await raw.until(b"RECEIPT")
            (await Client.connect(server)).send(send("/topic/a", "x" * 9000))
            head = await raw.until(b"MESSAGE")
            assert head[head.index(b"MESSAGE") - 4 :][:2] == b"\x81\x7e"  # all of it
            await raw.send(masked(b"\x03\xf1too big\n", opcode=8))
            await until(lambda: "lost: the client closed the WebSocket: 1009: too big" in caplog.text)

    main()


@pytest.mark.long
@pytest.mark.no_asan
@pytest.mark.req("ART-LRG-01", "ART-LRG-02")
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_a_message_larger_than_the_memory_of_the_broker(tmp_path):
    """64 MiB to a consumer that takes a piece now and then: the broker grows by a few MiB, and others are served."""
    pytest.importorskip("click")
    piece, count = (b"".join(b"%08d\0\xff" % number for number in range(MIB // 10 + 1)))[:MIB], 64
    size = len(piece) * count
    with BrokerProcess(tmp_path, memory=True) as broker, contextlib.ExitStack() as stack:
        wires = [stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))) for _ in range(3)]
        for wire in wires:
            wire.settimeout(patience(30))
            wire.sendall(connect_frame())
            assert wire.recv(65536).startswith(b"CONNECTED")
        sender, consumer, other = wires
        before = most = broker.rss()
        sender.sendall(b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:%d\n\n" % size)
        for _ in range(count):
            sender.sendall(piece)
            most = max(most, broker.rss())
        sender.sendall(b"\0")
        assert sender.recv(65536).startswith(b"RECEIPT")
        consumer.sendall(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0")
        head = b""
        while b"\n\n" not in head:
            head += consumer.recv(65536)
        rest = head.partition(b"\n\n")[2]
        crc, got = zlib.crc32(rest), len(rest)
        for turn in range(20):
            start = time.monotonic()
            other.sendall(b"BEGIN\ntransaction:%d\nreceipt:%d\n\n\0" % (turn, turn))
            assert other.recv(65536).startswith(b"RECEIPT")
            assert time.monotonic() - start < patience(5)
        while got < size + 2:
            octets = consumer.recv(MIB)
            assert octets
            crc, got = zlib.crc32(octets, crc), got + len(octets)
            most = max(most, broker.rss())
        assert crc == zlib.crc32(b"\0\n", zlib.crc32(piece * count))
    assert most - before < 16 * MIB


HIGH = 128 * 1024
RECEIVE = 4096


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
            self.sock.sendall(request())
            self.count(b"\r\n\r\n", 1, 500)
        self.write(connect_frame())
        self.count(b"CONNECTED\n", 1, 500)

    def write(self, octets):
        self.sock.sendall(masked(octets) if self.kind == "ws" else octets)

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
def test_it_takes_no_more_than_write_high_and_all_when_it_reads(kind, size, count, certificates):
    body = "x" * size
    tls = {"tls_port": 0, "tls_cert": certificates.server} if kind == "tls" else {}

    @served(write_high=HIGH, ws_port=0 if kind == "ws" else None, **tls)
    async def main(server):
        reader = await asyncio.to_thread(Reader, server, kind, certificates.contexts.client)
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
        *(({"destination": "/queue/a"}, True), ({"destination": "/topic/t", "activemq.subscriptionName": "n"}, True)),
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
    for number in range(1 if "activemq.subscriptionName" in subscription else 2):
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
    bench, peer, sender = Bench.with_peers(2, write_high=10_000)
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
