"""Listeners: several of plain STOMP, how long a frame of WebSocket may be, and large messages over real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.sockets import CONFIG, Client, run, send, subscribe
from crash.process import BrokerProcess
from patience import patience

from stompcodec.broker.config.config import Config
from stompcodec.broker.server import Server

MIB = 2**20


@pytest.mark.req("ART-ACC-01")
def test_stomp_on_several_ports() -> None:
    """As 61613 and 61616; a queue is the same on all."""

    async def main(server: Server) -> None:
        assert len({server.port, *server.ports}) == 3
        assert server.address["ports"] == server.ports
        consumer = await Client.connect(server)
        await consumer.ask(subscribe("/queue/a"))
        for port in server.ports:
            server.port = port  # where `connect` goes
            sender = await Client.connect(server)
            sender.send(send("/queue/a", str(port)))
            assert (await consumer.frame()).body == str(port).encode()
            await sender.close()
        await consumer.close()

    run(main, CONFIG.replace(ports=(0, 0)))


def test_by_default_there_is_one_port() -> None:
    assert Config().ports == ()


# ---- WebSocket ----


@contextlib.contextmanager
def broker_of(folder: Path, config: str, **fields: int) -> Iterator[BrokerProcess]:
    pytest.importorskip("click")
    pytest.importorskip("websockets")
    with BrokerProcess(folder, config=config, fields=fields, memory=True) as broker:
        yield broker


def websocket(broker: BrokerProcess) -> Any:
    from run_scenarios import WebSocket

    wire = WebSocket("127.0.0.1", broker.ws_port, "/", patience(30))
    wire.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
    assert wire.recv(65536).startswith(b"CONNECTED")
    return wire


def frame_of(size: int) -> bytes:
    """A SEND of so many octets, its receipt is r."""
    head = b"SEND\ndestination:/queue/a\nreceipt:r\n\n"
    return head + b"x" * (size - len(head) - 1) + b"\0"


@pytest.mark.long
@pytest.mark.req("ART-WSK-01", "ART-WSK-02")
def test_frames_of_websocket_up_to_the_limit_are_accepted(tmp_path: Path) -> None:
    with broker_of(tmp_path, "", ws_frame=65536) as broker:
        wire = websocket(broker)
        wire.sendall(frame_of(65536))
        assert wire.recv(65536).startswith(b"RECEIPT")
        octets = frame_of(200_000)
        for at in range(0, len(octets), 65536):
            wire.sendall(octets[at : at + 65536])  # a frame of STOMP may be larger
        assert wire.recv(65536).startswith(b"RECEIPT")
        wire.sendall(frame_of(65537))
        assert wire.recv(65536) == b"", "it is closed"
        wire.close()


@pytest.mark.long
def test_the_default_takes_what_browsers_send_in_one_frame(tmp_path: Path) -> None:
    with broker_of(tmp_path, "") as broker:
        wire = websocket(broker)
        wire.sendall(frame_of(3 * MIB))
        assert wire.recv(65536).startswith(b"RECEIPT")
        wire.close()


# ---- large messages ----


def filling(size: int) -> bytes:
    return (b"".join(b"%08d\0\xff" % number for number in range(size // 10 + 1)))[:size]


class Highest(threading.Thread):
    """The most memory of a broker, while the block runs."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.before = self.most = broker.rss()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            self.most = max(self.most, self.broker.rss())

    def __enter__(self) -> Highest:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self.join()


@pytest.mark.long
@pytest.mark.no_asan
@pytest.mark.req("ART-LRG-01", "ART-LRG-02")
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
@pytest.mark.parametrize("ws", [False, True])
def test_a_message_larger_than_the_memory_of_the_broker(tmp_path: Path, ws: bool) -> None:
    """64 MiB to a consumer that takes a piece now and then: the broker grows by a few MiB, and others are served."""
    piece, count = filling(MIB), 64
    size = len(piece) * count
    with broker_of(tmp_path, "") as broker, Highest(broker) as memory:
        sender, consumer, other = (websocket(broker) if ws else plain(broker) for _ in range(3))
        sender.sendall(b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:%d\n\n" % size)
        for _ in range(count):
            sender.sendall(piece)
        sender.sendall(b"\0")
        assert sender.recv(65536).startswith(b"RECEIPT")
        consumer.sendall(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0")
        head = b""
        while b"\n\n" not in head:
            head += consumer.recv(65536)
        head, _, rest = head.partition(b"\n\n")
        crc, got = zlib.crc32(rest), len(rest)
        for turn in range(20):
            time.sleep(0.01)
            start = time.monotonic()
            other.sendall(b"BEGIN\ntransaction:%d\nreceipt:%d\n\n\0" % (turn, turn))
            assert other.recv(65536).startswith(b"RECEIPT")
            assert time.monotonic() - start < patience(5)
        while got < size + 2:
            octets = consumer.recv(MIB)
            assert octets
            crc, got = zlib.crc32(octets, crc), got + len(octets)
        assert crc == zlib.crc32(b"\0\n", zlib.crc32(piece * count))
        for wire in (sender, consumer, other):
            wire.close()
    assert memory.most - memory.before < 16 * MIB


def plain(broker: BrokerProcess) -> Any:
    wire = socket.create_connection(("127.0.0.1", broker.port), patience(30))
    wire.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
    assert wire.recv(65536).startswith(b"CONNECTED")
    return wire


@pytest.mark.long
@pytest.mark.no_asan
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_halves_of_messages_hold_files_only(tmp_path: Path) -> None:
    """Many senders that stop in the middle of theirs; and when they are gone, so are the files."""
    with broker_of(tmp_path, "[messages]\nlarge_folder = 'large'\n") as broker, Highest(broker) as memory:
        folder = tmp_path / "large"
        give_up = time.monotonic() + patience(30)
        with contextlib.ExitStack() as stack:
            for _ in range(30):
                wire = stack.enter_context(plain(broker))
                wire.sendall(b"SEND\ndestination:/queue/a\ncontent-length:4000000\n\n" + bytes(MIB))
            while sum(path.stat().st_size for path in folder.glob("*")) < 30 * MIB:  # it comes with the first one
                assert time.monotonic() < give_up
                time.sleep(0.01)
        while {path.name for path in folder.iterdir()} != {"lock", "stompcodec-folder"}:
            assert time.monotonic() < give_up
            time.sleep(0.01)
    assert memory.most - memory.before < 16 * MIB
