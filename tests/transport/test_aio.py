"""Octets over asyncio and uvloop; on real sockets, over TCP, TLS, WebSocket and both."""

import asyncio
import random
import socket
import struct

import pytest
from transport.wires import KINDS, Peer, Raw, Server

from stompcodec.transport import aio
from stompcodec.transport.owner import Part

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_octets_arrive_as_they_were_sent(kind, run, contexts_of):
    """Whatever the chunks are: empty, small, large, text or not."""
    roll = random.Random(kind)
    sizes = [0, 1, 5, 125, 126, 127, 1000, 65535, 65536, 65537, 200_000]
    chunks = [roll.randbytes(roll.choice(sizes)) for _ in range(30)] + [b"", b"\n", "SEND\ncafé\0".encode()]
    context = contexts_of(kind)

    async def main():
        async with Server(kind, context=context.server, echo=True) as server:
            client = await server.connect(context.client)
            whole = b""
            while chunks:
                some = [chunks.pop() for _ in range(min(len(chunks), roll.randrange(6)))]
                whole += b"".join(some)
                client.wire.write(some)
            assert await client.has(len(whole)) == whole
            client.wire.close()
            assert await client.gone() is None
            assert await server.peers[0].gone() is None
            assert client.log.count("opened") == 1
            if kind == "tcp":  # a view is valid during the call only
                with pytest.raises(ValueError, match="released"):
                    bytes(client.view)

    run(main())


@kinds
def test_what_a_wire_says_of_itself(kind, run, contexts_of):
    context = contexts_of(kind)

    async def main():
        async with Server(kind, context=context.server) as server:
            client = await server.connect(context.client)
            wire, accepted = client.wire, (await server.first()).wire
            assert wire.peer == f"127.0.0.1:{server.port}"
            assert accepted.peer == f"127.0.0.1:{wire._transport.get_extra_info('sockname')[1]}"
            assert wire.secure is accepted.secure is (kind in ("tls", "wss"))
            assert wire.whole_frames is accepted.whole_frames is (kind in ("ws", "wss"))
            assert wire.buffered == 0
            for side in (wire, accepted):
                assert side._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert side._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert "closing" not in repr(wire)
            wire.abort()
            assert await client.gone() is None
            assert "closing" in repr(wire)

    run(main())


@kinds
def test_an_owner_is_told_once_to_stop_and_once_to_go_on(kind, run, contexts_of):
    context = contexts_of(kind)
    piece = b"x" * 10_000

    async def main():
        async with Server(kind, context=context.server) as server:
            client = await server.connect(context.client, high=1_000_000)
            peer = await server.first()
            peer.wire.pause_reading()
            written = 0
            while False not in client.log:
                assert client.wire.buffered <= 1_000_000
                client.wire.write([piece] * 10)
                written += 100_000
                await asyncio.sleep(0)
            assert client.wire.buffered > 1_000_000
            client.wire.write([piece] * 10)
            assert client.log == ["opened", False]
            peer.wire.resume_reading()
            await client.until(lambda: True in client.log)
            assert client.wire.buffered <= 250_000
            await peer.has(written + 100_000)
            assert client.log == ["opened", False, True]
            assert len(peer.data) == written + 100_000
            client.wire.close()
            await client.gone()

    run(main())


@kinds
def test_close_sends_all_that_waits(kind, run, contexts_of):
    context = contexts_of(kind)
    octets = 20_000_000

    async def main():
        async with Server(kind, context=context.server) as server:
            client = await server.connect(context.client)
            peer = await server.first()
            peer.wire.pause_reading()
            client.wire.write([b"y" * octets])
            client.wire.close()
            assert client.wire.buffered > 0
            client.wire.write([b"dropped"])
            client.wire.close()
            peer.wire.resume_reading()
            assert await client.gone() is None
            error = await peer.gone()  # its answer to the close may find nobody
            assert error is None or isinstance(error, (BrokenPipeError, ConnectionResetError))
            assert bytes(peer.data) == b"y" * octets
            client.wire.write([b"dropped"])
            client.wire.pause_reading()
            client.wire.resume_reading()
            client.wire.abort()
            client.wire.close()
            assert client.log == ["opened", False, ("lost", None)]

    run(main())


def test_a_peer_that_reads_slowly_gets_everything(run):
    """A closed wire waits for as long as something moves."""

    async def main():
        async with Server() as server, Raw.to(server.port, buffer=4096) as raw:
            peer = await server.first()
            peer.wire._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            octets = 600_000
            peer.wire.write([b"z" * octets])
            peer.wire.close(linger=0.3)
            got = 0
            while piece := await raw.some():
                got += len(piece)
                await asyncio.sleep(0.005)
            assert got == octets
            raw.sock.close()
            assert await peer.gone() is None

    run(main())


def test_a_peer_that_reads_but_does_not_close_is_left_in_time(run):
    async def main():
        async with Server() as server, Raw.to(server.port) as raw:
            peer = await server.first()
            peer.wire.write([b"bye"])
            peer.wire.close(linger=0.05)
            assert await raw.rest() == b"bye"
            assert await peer.gone() is None

    run(main())


def test_what_comes_after_close_is_thrown_away(run):
    """It is read, so that the peer gets our last words and no reset; the owner does not see it."""

    async def main():
        async with Server() as server, Raw.to(server.port) as raw:
            peer = await server.first()
            peer.wire.pause_reading()
            await raw.send(b"unread")
            peer.wire.write([b"ERROR"])
            peer.wire.close(linger=60)
            await raw.send(b"more" * 1000)
            assert await raw.until(b"ERROR") == b"ERROR"
            assert await raw.some() == b""
            raw.sock.shutdown(socket.SHUT_WR)
            assert await peer.gone() is None  # at once: the peer is done as well
            assert peer.data == b""
            assert peer.wire._timer is None

    run(main())


class Answers(Peer):
    """Writes at the end of the turn of the loop, as a broker does."""

    def received(self, data):
        super().received(data)
        asyncio.get_running_loop().call_soon(self.wire.write, [b"answer" * 100_000])


def test_a_peer_that_is_done_sending_still_gets_the_answer(run, monkeypatch):
    """`printf ... | nc`"""
    monkeypatch.setattr(aio.Wire.close, "__defaults__", (60,))  # nobody has to wait for that

    async def main():
        async with Server() as server, Raw.to(server.port) as raw:
            peer = await server.first()
            peer.__class__ = Answers
            await raw.send(b"question")
            raw.sock.shutdown(socket.SHUT_WR)
            assert await raw.rest() == b"answer" * 100_000
            assert await peer.gone() is None

    run(main())


def test_the_end_may_come_in_the_same_turn_as_the_last_octets(run):
    """As when a loop reads on until there is no more."""

    async def main():
        async with Server() as server, Raw.to(server.port) as raw:
            peer = await server.first()
            peer.__class__ = Answers
            peer.wire.get_buffer(-1)[:8] = b"question"
            peer.wire.buffer_updated(8)
            assert peer.wire.eof_received()
            assert await raw.rest() == b"answer" * 100_000
            raw.sock.close()
            assert await peer.gone() is None

    run(main())


@pytest.mark.parametrize("closed_by", ["us", "the peer"])
def test_a_peer_that_never_reads_is_cut_off(run, monkeypatch, closed_by):
    monkeypatch.setattr(aio.Wire.close, "__defaults__", (0.05,))

    async def main():
        async with Server() as server, Raw.to(server.port, buffer=4096) as raw:
            peer = await server.first()
            peer.wire.write([b"z" * 10_000_000])
            if closed_by == "us":
                peer.wire.close()
            else:
                raw.sock.shutdown(socket.SHUT_WR)
            assert isinstance(await peer.gone(), ConnectionAbortedError)

    run(main())


@kinds
def test_a_reset_is_an_error(kind, run, contexts_of):
    context = contexts_of(kind)

    async def main():
        async with Server(kind, context=context.server) as server:
            client = await server.connect(context.client)
            peer = await server.first()
            sock = client.wire._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.wire.abort()
            assert await client.gone() is None
            assert isinstance(await peer.gone(), ConnectionError)
            peer.wire.write([b"nobody is there"])
            peer.wire.close()

    run(main())


def test_abort_drops_what_waits(run):
    async def main():
        async with Server() as server:
            client = await server.connect()
            peer = await server.first()
            peer.wire.pause_reading()
            client.wire.write([b"y" * 20_000_000])
            client.wire.abort()
            assert await client.gone() is None
            peer.wire.resume_reading()
            await peer.gone()
            assert len(peer.data) < 20_000_000

    run(main())


def test_an_owner_may_close_while_it_receives(run):
    """Nothing more is received, even if it was read already."""

    class Once(Peer):
        def received(self, data):
            super().received(data)
            self.wire.close()

    async def main():
        async with Server("ws") as server:
            client = await server.connect()
            (await server.first()).__class__ = Once
            client.wire.write([Part(b"1"), Part(b"2"), b"3"])
            assert await client.gone() is None
            assert await server.peers[0].gone() is None
            assert server.peers[0].data == b"1"

    run(main())
