"""Many tiny frames: a layer handles a share of them, and others are served before it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, NamedTuple

import pytest
from transport.messages import BINARY, CLOSE, CONT, PING, PONG, TEXT, frame, request
from transport.test_websocket import joined, opened_server
from transport.wires import Peer, Raw, Server
from websockets.protocol import Protocol

from stompcodec.transport import websocket
from stompcodec.transport.owner import Over
from stompcodec.transport.tls import TlsLayer

MANY = 5000
FLOODS = {
    "fragments of one byte": frame(TEXT, b"x", fin=False) + frame(CONT, b"x", fin=False) * (MANY - 2) + frame(CONT),
    "messages of one byte": frame(BINARY, b"x") * MANY,
    "empty messages": frame(TEXT) * MANY,
    "empty fragments": frame(BINARY, fin=False) + frame(CONT, fin=False) * (MANY - 2) + frame(CONT),
    "pings": frame(PING) * MANY,
    "pongs": frame(PONG, b"x") * MANY,
    "pings between fragments": frame(TEXT, fin=False)
    + (frame(PING) + frame(CONT, b"x", fin=False)) * (MANY // 2)
    + frame(CONT),
}
floods = pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)


pytestmark = pytest.mark.usefixtures("road")


class Frames(NamedTuple):
    """How many were read on each road."""

    library: int
    quick: int

    @property
    def share(self) -> float:
        """What they are of a share."""
        return self.library + self.quick / websocket.RUN


class Counting:
    """Counts the frames that a layer reads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.library = self.quick = 0
        handle, read = Protocol.recv_frame, websocket.read_websocket

        def counted_handle(protocol: Any, frame: object) -> None:
            self.library += 1
            handle(protocol, frame)

        def counted_read(*args: Any, **options: Any) -> tuple[bytes, int, int]:
            found = read(*args, **options)
            self.quick += found[2]
            return found

        patch.setattr(Protocol, "recv_frame", counted_handle)
        patch.setattr(websocket, "read_websocket", counted_read)

    def take(self) -> Frames:
        count = Frames(self.library, self.quick)
        self.library = self.quick = 0
        return count


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def drained(layer, counting, wire):
    """What a layer hands over, in shares; and how many frames each of them had."""
    counting.take()
    received, counts = joined(layer.receive(wire)), [counting.take()]
    while layer.waiting:
        assert layer.error is None
        assert not layer.ended
        received += joined(layer.receive(b""))
        counts.append(counting.take())
    return received, counts


@floods
def test_a_share_at_a_time(flood, counting):
    layer = opened_server()
    received, counts = drained(layer, counting, flood + frame(BINARY, b"end"))
    assert received.strip(b"x") == b"end"
    assert sum(map(sum, counts)) in (MANY + 1, MANY + 3)
    assert counts[0].share <= websocket.FIRST_SHARE
    assert max(count.share for count in counts) <= websocket.SHARE
    assert len(counts) < 2 * MANY / websocket.SHARE


def test_a_share_is_about_frames_not_bytes():
    """One large message is no reason to wait, nor are many small ones that came one by one."""
    layer = opened_server()
    assert joined(layer.receive(frame(BINARY, b"x" * 1_000_000))) == b"x" * 1_000_000
    assert not layer.waiting
    for _ in range(MANY):
        assert joined(layer.receive(frame(TEXT, b"y"))) == b"y"
        assert not layer.waiting


# ---- TLS ----


@pytest.fixture
def pair(contexts):
    """A client's TLS, and a server's, hands shaken."""
    client, server = TlsLayer(contexts.client, server_hostname="localhost"), TlsLayer(contexts.server)
    client.start()
    for _ in range(3):
        server.receive(b"".join(client.take_output()))
        client.receive(b"".join(server.take_output()))
    assert client.opened
    assert server.opened
    return client, server


def records(client, pieces):
    """Each piece in a record of its own."""
    wire = b""
    for piece in pieces:
        client.send([piece])
        wire += b"".join(client.take_output())
    return wire


@pytest.mark.parametrize("end", ["close", "noise"])
def test_frames_in_small_records_have_one_share_together(pair, end, counting):
    """Neither the records nor the frames in them are a way around it; the end of TLS comes behind all frames."""
    client, lower = pair
    layer = Over(lower, websocket.server_layer())
    wire = records(client, [request()])
    assert layer.receive(wire) == []
    assert layer.opened
    wire = records(client, [frame(BINARY, b"x") * size for size in [1] * 1000 + [500] * 8])
    if end == "close":
        client.close()
        wire += b"".join(client.take_output())
    else:
        wire += b"\x17\x03\x03\x00\x20" + bytes(32)
    received, counts = drained(layer, counting, wire)
    assert received == b"x" * 5000
    assert max(count.share for count in counts) <= websocket.SHARE
    assert (layer.ended, layer.error is None) == ((True, True) if end == "close" else (False, False))


# ---- wires ----


def fragments(count: int) -> bytes:
    """A message in frames of one byte, which no quick road reads."""
    return frame(BINARY, b"x", fin=False) + frame(CONT, b"x", fin=False) * (count - 2) + frame(CONT, b"x")


@contextlib.asynccontextmanager
async def opened(**options):
    """A raw socket behind a handshake of WebSocket, and the owner at its server."""
    async with Server("ws", **options) as server, Raw.to(server.port) as raw:
        await raw.send(request())
        await raw.until(b"\r\n\r\n")
        yield raw, await server.first()


@pytest.mark.parametrize("end", ["end of stream", "reset", "close"])
def test_what_was_read_is_received_though_the_peer_is_gone(run, end):
    """In its turns, as if the peer was still there; then the owner learns of the end, once."""

    async def main():
        async with opened() as (raw, peer):
            await raw.send(fragments(3000) + (frame(CLOSE) if end == "close" else b""))
            await peer.has(1)
            if end == "reset":
                if peer.wire._held:
                    peer.wire._transport.abort()  # as a failed write does it
            elif end == "end of stream":
                raw.sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                await raw.rest()
            raw.sock.close()
            await peer.gone()
            assert bytes(peer.data) == b"x" * 3000

    run(main())


def test_an_owner_may_end_it_while_more_waits(run):
    """`close` and `abort` drop what waits, also when the transport is lost already."""

    async def main():
        for way in ("close", "abort"):
            for lost in (False, True):
                async with opened() as (raw, peer):
                    await raw.send(fragments(10_000))
                    await peer.has(1)
                    assert peer.wire._held
                    if lost:
                        peer.wire._transport.abort()
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
                        assert not peer.is_lost
                    getattr(peer.wire, way)()
                    raw.sock.close()
                    seen = len(peer.data)
                    await peer.gone()
                    assert len(peer.data) == seen < 10_000

    run(main())


def test_an_owner_that_pauses_is_not_read_when_the_share_is_over(run):
    """`resume_reading` waits until the layer is done; `pause_reading` holds longer than the layer."""

    async def main():
        async with opened() as (raw, peer):
            await raw.send(fragments(5000))
            await peer.has(1)
            assert peer.wire._held
            peer.wire.pause_reading()
            peer.wire.resume_reading()
            assert not peer.wire._transport.is_reading()
            peer.wire.pause_reading()
            await peer.until(lambda: not peer.wire._held)
            assert not peer.wire._transport.is_reading()
            peer.wire.resume_reading()
            assert peer.wire._transport.is_reading()
            assert await peer.has(5000) == b"x" * 5000

    run(main())


def test_a_pace_is_kept():
    """A listener with a pace goes on when it is told to, and hands over each share in one piece."""
    waiting: list[Peer] = []

    async def main():
        async with opened(pace=waiting.append) as (raw, peer):
            pieces: list[int] = []
            received = peer.received
            peer.received = lambda data: (pieces.append(len(data)), received(data))
            await raw.send(fragments(2000))
            await peer.has(1)
            for _ in range(5):
                await asyncio.sleep(0)
            seen = len(peer.data)
            while seen < 2000:
                assert waiting == [peer]
                waiting.pop().wire.go_on()
                assert seen < len(peer.data) <= seen + websocket.SHARE
                seen = len(peer.data)
                await asyncio.sleep(0)
            assert max(pieces) <= websocket.SHARE
            assert len(pieces) < 10

    asyncio.run(main())
