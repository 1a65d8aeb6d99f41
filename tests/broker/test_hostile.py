"""Peers that mean harm, or do it: the broker's memory stays bounded, and others are served meanwhile.

The broker is a process of its own, so that its memory can be looked at. `pytest -s` shows the figures.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")

from crash.process import BrokerProcess
from run_scenarios import WebSocket

import stompcodec
from stompcodec import Frame

pytestmark = [
    pytest.mark.long,
    pytest.mark.no_asan,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc"),
]

MIB = 2**20
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


def flood(wire: socket.socket, block: bytes, octets: int, stall: float = 1.0) -> int:
    """Send so many octets, or until nothing was taken for some time; how many went out. Whole blocks, but the last."""
    sent = 0
    view = memoryview(block)
    while sent < octets:
        if not select.select([], [wire], [], stall)[1]:
            break
        try:
            sent += wire.send(view[sent % len(block) :])
        except ConnectionError:
            break
    return sent


class Client:
    """A blocking connection, logged in unless `raw`."""

    def __init__(self, broker: BrokerProcess, *, raw: bool = False, buffers: int = 0) -> None:
        self.socket = socket.socket()
        if buffers:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
        self.socket.settimeout(patience(30))
        self.socket.connect(("127.0.0.1", broker.port))
        self.parser = stompcodec.Parser("1.2")
        self.frames: list[Frame] = []
        if not raw:
            with contextlib.ExitStack() as stack:
                stack.callback(self.close)
                assert self.ask(CONNECT).command == "CONNECTED"
                stack.pop_all()

    def frame(self) -> Frame:
        while not self.frames:
            data = self.socket.recv(2**18)
            assert data, "the broker closed"
            self.frames += self.parser.feed(data)
        return self.frames.pop(0)

    def rest(self) -> list[Frame]:
        """All frames up to the end of the stream."""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(2**18):
                self.frames += self.parser.feed(data)
        return self.frames

    def ask(self, frame: bytes) -> Frame:
        self.socket.sendall(frame)
        return self.frame()

    def subscribe(self, destination: str, *headers: str) -> None:
        lines = ["SUBSCRIBE", "id:0", f"destination:{destination}", "receipt:s", *headers]
        assert self.ask(("\n".join(lines) + "\n\n\0").encode()).command == "RECEIPT"

    def flood(self, block: bytes, octets: int) -> int:
        return flood(self.socket, block, octets)

    def close(self) -> None:
        self.socket.close()


class Watch:
    """A broker that is watched: how much its memory grew at the most, and whether others are served."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.other = Client(broker)
        self.ping()
        self.before = broker.rss()
        self.most = self.before
        self.slowest = 0.0

    def ping(self) -> None:
        """Another client is served: a message to its own queue and back."""
        began = time.monotonic()
        frame = self.other.ask(b"SEND\ndestination:/queue/ping\nreceipt:p\n\nx\0")
        assert frame.command == "RECEIPT"
        self.slowest = max(getattr(self, "slowest", 0.0), time.monotonic() - began)

    def look(self) -> int:
        """Octets it grew."""
        self.most = max(self.most, self.broker.rss())
        return self.most - self.before

    def during(self, act: Callable[[], object], times: int = 1) -> None:
        for _ in range(times):
            act()
            self.ping()
            self.look()

    def report(self, what: str, most: int) -> None:
        grown = self.look()
        figures = f"{self.before / MIB:.1f} MiB, +{grown / MIB:.1f} MiB; slowest answer to others {self.slowest:.3f} s"
        print(f"\n{what}: {figures}")
        assert grown < most


@contextlib.contextmanager
def watched(folder: Path, config: str = "", *, memory: bool = True) -> Iterator[Watch]:
    with BrokerProcess(folder, config=config, memory=memory) as broker:
        watch = Watch(broker)
        try:
            yield watch
        finally:
            watch.other.close()


def message(destination: str, size: int, *headers: str) -> bytes:
    lines = ["SEND", f"destination:{destination}", f"content-length:{size}", *headers]
    return ("\n".join(lines) + "\n\n").encode() + b"x" * size + b"\0"


# ---- consumers ----


def test_a_consumer_that_does_not_read(tmp_path: Path) -> None:
    """Its queue fills up to the bound, then the producers wait."""
    with watched(tmp_path, '[queues]\nmax_octets = "8 MiB"\n') as watch:
        deaf, producer = Client(watch.broker, buffers=4096), Client(watch.broker)
        deaf.subscribe("/queue/a")
        block = message("/queue/a", 1000) * 100
        sent = producer.flood(block, 200 * MIB)
        assert sent < 100 * MIB
        watch.ping()
        watch.report(f"a consumer that does not read, {sent / MIB:.0f} MiB sent", 48 * MIB)
        deaf.close()
        producer.close()


def test_a_subscriber_of_a_topic_that_does_not_read(tmp_path: Path) -> None:
    """It is disconnected when its backlog passes the bound; the producer goes on."""
    with watched(tmp_path, '[topics]\nbacklog_octets = "8 MiB"\n') as watch:
        deaf, producer = Client(watch.broker, buffers=4096), Client(watch.broker)
        deaf.subscribe("/topic/a")
        block = message("/topic/a", 1000) * 100
        watch.during(lambda: producer.flood(block, 20 * MIB), times=5)
        assert producer.ask(message("/topic/a", 10, "receipt:r")).command == "RECEIPT"
        watch.report("a subscriber of a topic that does not read, 100 MiB sent", 48 * MIB)
        assert {frame.command for frame in deaf.rest()} <= {"MESSAGE", "ERROR"}
        deaf.close()
        producer.close()


def test_ten_thousand_unacknowledged_messages(tmp_path: Path) -> None:
    """Again and again they are delivered, not acknowledged, and returned in order."""
    with watched(tmp_path, "[queues]\nmax_attempts = 100\n") as watch:
        producer = Client(watch.broker)
        for number in range(10_000):
            receipt = ["receipt:r"] if number == 9999 else []
            producer.socket.sendall(message("/queue/a", 1000, f"number:{number}", *receipt))
        assert producer.frame().command == "RECEIPT"
        for again in range(4):
            consumer = Client(watch.broker)
            consumer.subscribe("/queue/a", "ack:client-individual", "prefetch-count:20000")
            for number in range(10_000):
                frame = consumer.frame()
                assert frame.headers["number"] == str(number)
                assert frame.get("redelivered") == ("true" if again else None)
            consumer.close()
            watch.ping()
            watch.look()
        watch.report("10,000 messages of 1 KiB unacknowledged, four times", 64 * MIB)
        producer.close()


# ---- producers ----


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_a_publisher_faster_than_the_disk(ack: str, tmp_path: Path) -> None:
    """Everything is stored, and everything is taken; with acknowledgements the queue is full all the time."""
    with watched(tmp_path, '[queues]\nmax_octets = "16 MiB"\n', memory=False) as watch:
        producer, consumer = Client(watch.broker), Client(watch.broker)
        consumer.subscribe("/queue/a", f"ack:{ack}")
        block = message("/queue/a", 1000, "persistent:true") * 64
        taken = 0

        def load() -> None:
            nonlocal taken
            flood(producer.socket, block, 4 * MIB, 0.05)
            while select.select([consumer.socket], [], [], 0)[0]:
                frame = consumer.frame()
                taken += 1
                if ack != "auto":
                    consumer.socket.sendall(f"ACK\nid:{frame.headers['ack']}\n\n\0".encode())

        watch.during(load, times=15)
        watch.report(f"a publisher faster than the disk, ack:{ack}, up to 60 MiB sent, {taken} taken", 96 * MIB)
        producer.close()
        consumer.close()


def test_a_producer_that_does_not_read_its_receipts(tmp_path: Path) -> None:
    """It is not read from either until it takes what waits for it."""
    with watched(tmp_path) as watch:
        producer = Client(watch.broker, buffers=4096)
        block = (b"SEND\ndestination:/topic/none\nreceipt:" + b"r" * 1000 + b"\n\n\0") * 100
        sent = producer.flood(block, 200 * MIB)
        assert sent < 50 * MIB
        watch.ping()
        watch.report(f"a producer that does not read its receipts, {sent / MIB:.0f} MiB sent", 24 * MIB)
        producer.close()


def test_a_transaction_without_end(tmp_path: Path) -> None:
    config = '[sessions]\nmax_transaction_octets = "8 MiB"\n'
    with watched(tmp_path, config) as watch:
        client = Client(watch.broker)
        client.socket.sendall(b"BEGIN\ntransaction:t\n\n\0")
        client.flood(message("/queue/a", 1000, "transaction:t") * 100, 100 * MIB)
        assert [frame.command for frame in client.rest()] in (["ERROR"], [])
        watch.ping()
        watch.report("a transaction without end", 40 * MIB)
        client.close()


@pytest.mark.parametrize(
    "frame",
    [
        "BEGIN\ntransaction:{}\n\n\0",
        "SUBSCRIBE\nid:{}\ndestination:/queue/a\n\n\0",
        "SUBSCRIBE\nid:{}\ndestination:/topic/t{}\n\n\0",
        "SEND\ndestination:/queue/q{}\n\nx\0",
        "SEND\ndestination:/topic/t{}\n\nx\0",
        "SEND\ndestination:/queue/a\nreply-to:/temp-queue/{}\n\n\0",
    ],
    ids=["BEGIN", "SUBSCRIBE", "SUBSCRIBE topics", "SEND queues", "SEND topics", "reply-to"],
)
def test_a_hundred_thousand_of_everything(frame: str, tmp_path: Path) -> None:
    with watched(tmp_path) as watch:
        client = Client(watch.broker)
        for first in range(0, 100_000, 1000):
            block = "".join(frame.replace("{}", str(number)) for number in range(first, first + 1000))
            if client.flood(block.encode(), len(block)) < len(block):
                break
        watch.ping()
        watch.report(f"100,000 x {frame.split(chr(10))[0]}", 40 * MIB)
        client.close()


# ---- frames ----

ENDLESS = {
    "a command": (b"", b"S" * 1000),
    "a header line": (b"SEND\nx:", b"y" * 1000),
    "headers": (b"SEND\n", b"name:value\n" * 100),
    "a body": (b"SEND\ndestination:/queue/a\n\n", b"x" * 1000),
    "a counted body": (b"SEND\ndestination:/queue/a\ncontent-length:1000000\n\n", b"x" * 1000),
    "escapes": (b"SEND\nx:", b"\\n" * 500),
    "heart-beats": (b"", b"\n" * 1000),
    "NULs": (b"", b"\0" * 1000),
}


@pytest.mark.parametrize("logged_in", [False, True])
@pytest.mark.parametrize("name", ENDLESS)
def test_a_frame_that_never_ends(name: str, logged_in: bool, tmp_path: Path) -> None:
    config = '[limits]\nmax_body = "1 MiB"\n[sessions]\nlogin_timeout = 1.0\n'
    with watched(tmp_path, config) as watch:
        client = Client(watch.broker, raw=not logged_in)
        begin, more = ENDLESS[name]
        client.socket.sendall(begin)
        watch.during(lambda: client.flood(more * 64, 2 * MIB), times=10)
        watch.report(f"endless {name}, {'logged in' if logged_in else 'not logged in'}", 16 * MIB)
        client.close()


# ---- WebSocket ----

#: What goes on for ever: the first octets, and the piece that is repeated. Masks are zero.
PIECE = b"\0\xfe" + (1000).to_bytes(2, "big") + bytes(4) + b"x" * 1000
ENDLESS_WS = {
    "a handshake": (None, b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 1000),
    "a message in fragments": (b"\2\x80" + bytes(4), PIECE),
    "a message of many octets": (b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4), b"x" * 1000),
    "pings": (b"", (b"\x89\xfd" + bytes(4) + b"x" * 125) * 8),
    "empty messages": (b"", (b"\x82\x80" + bytes(4)) * 100),
}


@pytest.mark.parametrize("logged_in", [False, True])
@pytest.mark.parametrize("name", ENDLESS_WS)
def test_a_websocket_that_never_ends(name: str, logged_in: bool, tmp_path: Path) -> None:
    """Nothing of it is read, either: pongs pile up."""
    pytest.importorskip("websockets")
    config = '[limits]\nmax_body = "1 MiB"\nmax_headers = 100\n[sessions]\nlogin_timeout = 1.0\n'
    begin, more = ENDLESS_WS[name]
    with watched(tmp_path, config) as watch:
        if begin is None:
            wire = socket.create_connection(("127.0.0.1", watch.broker.ws_port), patience(30))
        else:
            websocket = WebSocket("127.0.0.1", watch.broker.ws_port, "/", patience(30))
            wire = websocket.socket
            if logged_in:
                websocket.sendall(CONNECT)
                assert websocket.recv(65536).startswith(b"CONNECTED")
            wire.sendall(begin)
        for _ in range(10):
            flood(wire, more * 64, MIB // 2)
            watch.ping()
            watch.look()
        watch.report(f"WebSocket: {name} without end, {'logged in' if logged_in else 'not logged in'}", 40 * MIB)
        wire.close()


def test_strangers_with_large_websocket_messages(tmp_path: Path) -> None:
    """Who has not logged in may have little of a message in the broker; who has, as much as a frame can be."""
    pytest.importorskip("websockets")
    head = b"\x82\xff" + (8 * MIB).to_bytes(8, "big") + bytes(4)
    with watched(tmp_path) as watch:
        strangers = [WebSocket("127.0.0.1", watch.broker.ws_port, "/", patience(30)).socket for _ in range(20)]
        for wire in strangers:
            wire.sendall(head)
            flood(wire, b"x" * 65536, 7 * MIB, 0.2)
        watch.report("WebSocket: 20 strangers with 7 MiB each", 24 * MIB)
        friend = WebSocket("127.0.0.1", watch.broker.ws_port, "/", patience(30))
        friend.sendall(CONNECT)
        assert friend.recv(65536).startswith(b"CONNECTED")
        body = message("/queue/a", 8 * MIB, "receipt:r")
        friend.sendall(body)
        assert friend.recv(65536).startswith(b"RECEIPT")
        for wire in (*strangers, friend.socket):
            wire.close()


# ---- connections ----


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_connections_that_say_nothing(count: int, tmp_path: Path) -> None:
    """Half of them stop inside CONNECT. All are dropped when their time is over; one that logs in is served."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    with watched(tmp_path, f"[sessions]\nlogin_timeout = {max(3.0, count / 500)}\n") as watch:
        mute = []
        for number in range(count):
            mute.append(socket.create_connection(("127.0.0.1", watch.broker.port), patience(30)))
            if number % 2:
                mute[-1].sendall(b"CONNECT\nlogin:")
            if number % 100 == 0:
                watch.ping()
        watch.ping()
        grown = watch.look()
        print(f"\n{count} half-open connections: {grown / count / 1024:.1f} KiB each")
        assert grown / count < 16 * 1024
        for wire in mute:
            wire.settimeout(patience(30))
            with contextlib.suppress(ConnectionError):
                while wire.recv(4096):
                    pass
            wire.close()
        watch.ping()
        watch.report(f"{count} half-open connections, and after that", 2 * count * 8 * 1024 + 8 * MIB)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_connection_cap(tmp_path: Path) -> None:
    with watched(tmp_path, "[sessions]\nmax_connections = 20\n") as watch:
        clients = [Client(watch.broker) for _ in range(19)]
        for _ in range(30):
            late = Client(watch.broker, raw=True)
            with contextlib.suppress(ConnectionError):
                late.socket.sendall(CONNECT)
            assert "CONNECTED" not in [frame.command for frame in late.rest()]
            late.close()
        watch.ping()
        clients.pop().close()
        give_up = time.monotonic() + patience(30)
        while True:  # the place is free once the broker noticed
            with contextlib.suppress(AssertionError, ConnectionError):
                clients.append(Client(watch.broker))
                break
            assert time.monotonic() < give_up
        for client in clients:
            client.close()


def test_connections_come_and_go(tmp_path: Path) -> None:
    """Ten thousand of them leave nothing behind: in the second half memory does not grow."""
    with watched(tmp_path) as watch:

        def churn() -> None:
            for number in range(500):
                client = Client(watch.broker, raw=True)
                client.socket.sendall(
                    CONNECT
                    + f"SUBSCRIBE\nid:1\ndestination:/queue/c{number}\nack:client\n\n\0".encode()
                    + b"SUBSCRIBE\nid:2\ndestination:/temp-queue/c\n\n\0BEGIN\ntransaction:t\n\n\0"
                    + message("/topic/t", 100)
                    + message("/queue/x", 100, "transaction:t")
                )
                assert client.frame().command == "CONNECTED"
                client.close()

        watch.during(churn, times=2)
        watch.before = watch.most = watch.broker.rss()
        watch.during(churn, times=2)
        watch.report("a thousand connections that came and went, after another thousand", 4 * MIB)
