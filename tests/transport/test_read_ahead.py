"""Bytes that a thread has read ahead, and those behind them, reach the owner as one read."""

from __future__ import annotations

import select
import socket

import pytest
from patience import patience

from stompcodec.transport.sync import AHEAD, SyncWire, connect
from stompcodec.uri import parse_uri


class Owner:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []
        self.ends: list[BaseException | None] = []

    def opened(self, wire: SyncWire) -> None:
        pass

    def received(self, data: bytes | memoryview) -> None:
        self.reads.append(bytes(data))

    def writable(self, yes: bool) -> None:
        pass

    def lost(self, error: BaseException | None) -> None:
        self.ends.append(error)


@pytest.mark.parametrize("size", [1, AHEAD, AHEAD + 1, 2 * AHEAD])
@pytest.mark.parametrize("ended", [False, True])
def test_a_burst_is_one_read(size: int, ended: bool) -> None:
    octets, owner = bytes(number % 251 for number in range(size)), Owner()
    with socket.create_server(("127.0.0.1", 0)) as server:
        (address,) = parse_uri(f"stomp://127.0.0.1:{server.getsockname()[1]}")
        wire = connect(address, owner, timeout=patience(10))
        peer, _ = server.accept()
        with peer:
            peer.sendall(octets)
            while len(wire._socket.recv(size, socket.MSG_PEEK)) < size:
                select.select([wire._socket], [], [], patience(10))
            assert wire.read_ahead() == octets[:AHEAD]
            if ended:
                peer.shutdown(socket.SHUT_WR)
            assert wire.handle(0)
            assert owner.reads == [octets]
            assert not wire.ahead
        wire.abort()
        wire.handle(0)
