"""Listeners: several of plain STOMP, how long a frame of WebSocket may be, and large messages over real sockets."""

import contextlib
import os
import socket
import time
import zlib

import pytest
from broker.crowd import connect_frame, masked
from broker.sockets import Client, browser, send, served, subscribe
from crash.process import BrokerProcess
from patience import patience

from stompcodec.broker.config import Config

MIB = 2**20


@pytest.mark.req("ART-ACC-01")
@served(ports=(0, 0))
async def test_stomp_on_several_ports(server):
    """As 61613 and 61616; a queue is the same on all. By default there is one."""
    assert Config().ports == ()
    assert len({server.port, *server.ports}) == 3
    assert server.address["ports"] == server.ports
    consumer = await Client.connect(server)
    await consumer.ask(subscribe("/queue/a"))
    for port in server.ports:
        server.port = port  # where `connect` goes
        (await Client.connect(server)).send(send("/queue/a", str(port)))
        assert (await consumer.frame()).body == str(port).encode()


def frame_of(size):
    """A SEND of so many octets, its receipt is r."""
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
