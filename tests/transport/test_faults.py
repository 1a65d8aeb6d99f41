"""The proxy does what its rules say, exactly; tests of clients and brokers rest on it."""

import asyncio
import random
import socket
import threading
import time

import pytest
from patience import patience
from transport.wires import Peer, Place, Raw, Server, in_thread

from stompcodec.testing import Direction, FaultProxy, Rules
from stompcodec.testing.faults import Flow
from stompcodec.transport import aio


@pytest.fixture
def through(run):
    """Runs `work(proxy, server, client)` with a proxy between a client and an echo server."""

    def through(work, *, rules=None, seed=0, echo=True):
        async def main():
            async with Server(echo=echo) as server, FaultProxy(("127.0.0.1", server.port), seed=seed) as proxy:
                proxy.rules = rules or Rules()
                client = Peer()
                await aio.connect(Place("127.0.0.1", proxy.port), client)
                await server.first()
                await work(proxy, server.peers[0], client)
                if not client.is_lost:
                    client.wire.abort()
                    await client.gone()
                await server.peers[0].gone()

        run(main())

    return through


def test_without_rules_nothing_is_changed(through):
    octets = random.Random(1).randbytes(3_000_000)

    async def work(proxy, server, client):
        client.wire.write([octets])
        assert await client.has(len(octets)) == octets
        assert (proxy.accepted, proxy.open, proxy.cuts) == (1, 1, 0)
        client.wire.close()
        assert await client.gone() is None
        assert await server.gone() is None
        assert proxy.cuts == 0

    through(work)


@pytest.mark.parametrize("octets", [0, 1, 1000, 70_000, 200_000])
@pytest.mark.parametrize("name", ["up", "down"])
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_comes_after_exactly_so_many_octets(name, octets, reset, through):
    rules = Rules(reset=reset)
    getattr(rules, name).cut_after = octets
    sent = random.Random(2).randbytes(1_000_000)

    async def work(proxy, server, client):
        (client if name == "up" else server).wire.write([sent])
        other = server if name == "up" else client
        await client.gone()
        await server.gone()
        assert bytes(other.data) == sent[:octets]
        assert proxy.cuts == 1
        if reset:
            assert isinstance(other.error, ConnectionError)

    through(work, rules=rules, echo=False)


def test_rolled_cuts_depend_on_the_seed_alone(run):
    async def lengths(seed):
        found = []
        async with Server() as server, FaultProxy(("127.0.0.1", server.port), seed=seed) as proxy:
            proxy.rules.up.cut_after = (10, 10_000)
            for _ in range(5):
                client = Peer()
                await aio.connect(Place("127.0.0.1", proxy.port), client)
                client.wire.write([b"x" * 20_000])
                await client.gone()
                while len(server.peers) <= len(found):
                    await asyncio.sleep(0)
                await server.peers[len(found)].gone()
                found.append(len(server.peers[len(found)].data))
            assert proxy.cuts == proxy.accepted == 5
        return found

    first, again, other = (run(lengths(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert all(10 <= length <= 10_000 for length in first)
    assert len(set(first)) > 1


def test_pieces_and_delay(through):
    """Octets arrive in order, however small the pieces are."""
    arrived = []

    async def work(proxy, server, client):
        proxy.rules.down = Direction(piece=7, delay=0.001)
        client.received = lambda data: arrived.append(len(data)) or Peer.received(client, data)
        client.wire.write([bytes(range(200))])
        assert await client.has(200) == bytes(range(200))
        assert len(arrived) > 10

    through(work)


def test_delay(through):
    async def work(proxy, server, client):
        proxy.rules.up.delay = 0.1
        start = time.monotonic()
        client.wire.write([b"hello"])
        await client.has(5)
        assert time.monotonic() - start >= 0.09

    through(work)


def test_silence_in_one_way(through):
    async def work(proxy, server, client):
        proxy.rules.down.swallow = True
        client.wire.write([b"1"])
        await server.has(1)
        await asyncio.sleep(0.02)
        proxy.rules.down.swallow = False
        client.wire.write([b"2"])
        assert await client.has(1) == b"2"

    through(work)


def test_what_is_held_comes_later(through):
    async def work(proxy, server, client):
        proxy.rules.up.hold = True
        while False not in client.log:
            client.wire.write([b"x" * 100_000])
            await asyncio.sleep(0)
        assert len(server.data) == 0
        proxy.rules.up.hold = False
        await client.until(lambda: True in client.log)
        client.wire.close()
        await client.gone()

    through(work)


def test_held_octets_do_not_keep_a_connection(through):
    async def work(proxy, server, client):
        proxy.rules.up.hold = True
        client.wire.write([b"x"])
        await asyncio.sleep(0.02)
        assert proxy.cut() == 1
        assert isinstance(await client.gone(), ConnectionError)

    through(work)


def test_cut_and_refuse(run):
    async def main():
        async with Server(echo=True) as server, FaultProxy(("127.0.0.1", server.port)) as proxy:
            clients = [Peer() for _ in range(5)]
            for client in clients:
                await aio.connect(Place("127.0.0.1", proxy.port), client)
                client.wire.write([b"hello"])
                await client.has(5)
            assert proxy.cut() == 5
            for peer in clients + server.peers:
                assert isinstance(await peer.gone(), ConnectionError)
            assert (proxy.cut(), proxy.open, proxy.cuts) == (0, 0, 5)

            proxy.rules.refuse = True
            async with Raw.to(proxy.port) as raw:
                assert await raw.rest() == b""
            assert proxy.accepted == 6
            assert len(server.peers) == 5

    run(main())


def test_a_server_that_is_gone_and_comes_back_elsewhere(run):
    async def main():
        async with Server() as server:
            upstream = ("127.0.0.1", server.port)
        async with FaultProxy(upstream) as proxy:
            async with Raw.to(proxy.port) as raw:
                assert await raw.rest() == b""
            async with Server(echo=True) as server:
                proxy.upstream = ("127.0.0.1", server.port)
                client = Peer()
                await aio.connect(Place("127.0.0.1", proxy.port), client)
                client.wire.write([b"hello"])
                await client.has(5)
                client.wire.close()
                await client.gone()

    run(main())


def test_each_way_ends_by_itself(run):
    """A half-closed connection stays half-closed through the proxy."""

    async def main():
        async with Server(echo=True) as server, FaultProxy(("127.0.0.1", server.port)) as proxy:
            async with Raw.to(proxy.port) as raw:
                await raw.send(b"question")
                raw.sock.shutdown(socket.SHUT_WR)
                assert await raw.rest() == b"question"
            assert proxy.cuts == 0

    run(main())


def test_in_a_thread():
    """For tests that block; cut and rules work from outside."""
    threads = threading.active_count()
    with in_thread("tcp") as server, FaultProxy(("127.0.0.1", server.port)) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), patience(30)) as sock:
            sock.sendall(b"hello")
            assert sock.recv(100) == b"hello"
            assert proxy.cut() == 1
            with pytest.raises(ConnectionResetError):
                sock.recv(100)
        assert proxy.cuts == 1
        with socket.create_connection(("127.0.0.1", proxy.port), patience(30)) as sock:
            sock.sendall(b"hello")
            assert sock.recv(100) == b"hello"
    assert threading.active_count() == threads


def test_stopping_cuts_what_is_open(run):
    async def main():
        async with Server(echo=True) as server:
            client = Peer()
            async with FaultProxy(("127.0.0.1", server.port)) as proxy:
                await aio.connect(Place("127.0.0.1", proxy.port), client)
                client.wire.write([b"hello"])
                await client.has(5)
                proxy.rules.up = Direction(delay=60)
                client.wire.write([b"hello"])
            assert isinstance(await client.gone(), ConnectionError)
            with pytest.raises(ConnectionRefusedError):
                await aio.connect(Place("127.0.0.1", proxy.port), Peer())

    run(main())


def test_pieces_of_one_byte() -> None:
    flow = Flow(1, "up", 1)
    assert {flow.size(Direction(piece=1), 10) for _ in range(20)} == {1}
