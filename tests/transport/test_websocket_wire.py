"""WebSocket on real sockets: what browsers see, and what hostile peers can do."""

import pytest
from transport.messages import PING, TEXT, answered, frame, request
from transport.wires import Peer, Raw, Server


@pytest.mark.parametrize("noise", [b"CONNECT\n\n\0", b"GET / HTTP/1.1\r\n\r\n", b"\r\n" * 20, b"a" * 100_000])
def test_a_person_who_looks_at_the_port_learns_why(run, noise):
    async def main():
        async with Server("ws") as server, Raw.to(server.port) as raw:
            await raw.send(noise)
            status, headers, rest = answered(await raw.rest())
            assert status in (400, 414, 426, 431)
            assert headers["connection"] == "close"
            assert b"WebSocket" in rest
            assert server.peers == []

    run(main())


def test_a_slow_reader_may_ping(run):
    """While much waits for it, a few pongs are no flood."""

    async def main():
        async with Server("ws") as server:
            client = await server.connect()
            peer = await server.first()
            client.wire.pause_reading()
            peer.wire.write([b"m" * 10_000_000])
            for _ in range(100):
                client.wire._transport.write(frame(PING, b"p" * 100))
            client.wire.write([b"hello"])
            await peer.has(5)
            client.wire.resume_reading()
            await client.has(10_000_000)
            client.wire.close()
            assert await peer.gone() is None

    run(main())


def test_a_wire_passes_its_bound_on(run):
    class Wary(Peer):
        def opened(self, wire):
            super().opened(wire)
            wire.bound(1000)

    async def main():
        async with Server("ws") as server, Raw.to(server.port) as raw:
            server.listener._plan.make_owner = lambda: server.peers.append(Wary()) or server.peers[-1]
            await raw.send(request())
            await raw.until(b"\r\n\r\n")
            await raw.send(frame(TEXT, b"s" * 900))
            await server.peers[0].has(900)
            await raw.send(frame(TEXT, b"s" * 2000)[:-1])
            assert b"\x03\xf1" in await raw.rest()
            raw.sock.close()
            assert isinstance(await server.peers[0].gone(), ConnectionAbortedError)

    run(main())
