"""The proxy does what its rules say, exactly; tests of clients and brokers rest on it."""

import asyncio
import contextlib
import random
import socket
import threading
import time

import pytest
from patience import patience
from transport.wires import Peer, Place, Server, in_thread

from stompcodec.testing import Direction, FaultProxy, Rules
from stompcodec.testing.faults import Flow
from stompcodec.transport import aio


@contextlib.contextmanager
def through(rules=None, seed=0):
    """A proxy in front of an echo server, and a client's socket."""
    with in_thread("tcp") as server, FaultProxy(("127.0.0.1", server.port), seed=seed) as proxy:
        proxy.rules = rules or Rules()
        with client_of(proxy) as client:
            yield proxy, server, client


def client_of(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), patience(30))


def received(sock, count):
    data = b""
    while len(data) < count and (piece := sock.recv(65536)):
        data += piece
    return data


def is_reset(sock):
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        return True
    return False


def test_without_rules_nothing_is_changed_and_each_way_ends_by_itself():
    octets = random.Random(1).randbytes(3_000_000)
    with through() as (proxy, _, client):
        sender = threading.Thread(target=lambda: (client.sendall(octets), client.shutdown(socket.SHUT_WR)))
        sender.start()
        assert received(client, len(octets) + 1) == octets
        sender.join()
        assert (proxy.accepted, proxy.cuts) == (1, 0)


@pytest.mark.parametrize("octets", [0, 1, 1000, 70_000, 200_000])
@pytest.mark.parametrize("name", ["up", "down"])
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_comes_after_exactly_so_many_octets(name, octets, reset, run):
    sent = random.Random(2).randbytes(1_000_000)

    async def main():
        async with Server() as server, FaultProxy(("127.0.0.1", server.port)) as proxy:
            proxy.rules = Rules(reset=reset)
            getattr(proxy.rules, name).cut_after = octets
            client = Peer()
            await aio.connect(Place("127.0.0.1", proxy.port), client)
            there = await server.first()
            sender, other = (client, there) if name == "up" else (there, client)
            sender.wire.write([sent])
            await client.gone()
            await there.gone()
            assert bytes(other.data) == sent[:octets]
            assert proxy.cuts == 1
            assert not reset or isinstance(other.error, ConnectionError)

    run(main())


def test_rolled_cuts_depend_on_the_seed_alone():
    def lengths(seed):
        found = []
        with in_thread("tcp", echo=False) as server, FaultProxy(("127.0.0.1", server.port), seed=seed) as proxy:
            proxy.rules.up.cut_after = (10, 10_000)
            for number in range(1, 6):
                with client_of(proxy) as client:
                    client.sendall(b"x" * 20_000)
                    assert is_reset(client)
                while len(server.peers) < number or not server.peers[-1].is_lost:
                    time.sleep(0.001)
                found.append(len(server.peers[-1].data))
            assert proxy.cuts == proxy.accepted == 5
        return found

    first, again, other = map(lengths, (1, 1, 2))
    assert first == again != other
    assert all(10 <= length <= 10_000 for length in first)
    assert len(set(first)) > 1


def test_pieces_and_delays():
    """Octets arrive in order, however small the pieces are."""
    with through(Rules(up=Direction(delay=0.1), down=Direction(piece=7, delay=0.001))) as (_, _, client):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.monotonic()
        client.sendall(bytes(range(200)))
        pieces = [client.recv(65536)]
        assert time.monotonic() - start >= 0.09
        while len(b"".join(pieces)) < 200:
            pieces.append(client.recv(65536))
        assert b"".join(pieces) == bytes(range(200))
        assert len(pieces) > 10
    flow = Flow(1, "up", 1)
    assert {flow.size(Direction(piece=1), 10) for _ in range(20)} == {1}


def test_silence_in_one_way():
    with through() as (proxy, server, client):
        proxy.rules.down.swallow = True
        client.sendall(b"1")
        server.run(server.first())
        server.run(server.peers[0].has(1))
        time.sleep(0.02)
        proxy.rules.down.swallow = False
        client.sendall(b"2")
        assert client.recv(10) == b"2"


def test_what_is_held_comes_later_or_is_cut():
    with through(Rules(up=Direction(hold=True))) as (proxy, server, client):
        client.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):  # the buffers fill up
            while sent < 10**9:
                sent += client.send(b"x" * 100_000)
        client.settimeout(patience(30))
        server.run(server.first())
        assert not server.peers[0].data
        proxy.rules.up.hold = False
        assert received(client, sent) == b"x" * sent
        proxy.rules.up.hold = True
        client.sendall(b"x")
        time.sleep(0.02)
        assert proxy.cut() == 1
        assert is_reset(client)


def test_cut_and_refuse_and_a_server_that_comes_back_elsewhere():
    threads = threading.active_count()
    with through() as (proxy, server, first), contextlib.ExitStack() as stack:
        clients = [first, *(stack.enter_context(client_of(proxy)) for _ in range(4))]
        for client in clients:
            client.sendall(b"hello")
            assert received(client, 5) == b"hello"
        assert proxy.cut() == 5
        assert all(map(is_reset, clients))
        for peer in server.peers:
            assert isinstance(server.run(peer.gone()), ConnectionError)
        assert (proxy.cut(), proxy.open, proxy.cuts) == (0, 0, 5)
        proxy.rules.refuse = True
        with contextlib.suppress(ConnectionResetError), client_of(proxy) as client:
            assert is_reset(client)
        assert (proxy.accepted, len(server.peers)) == (6, 5)
        proxy.rules.refuse = False
        proxy.upstream = ("127.0.0.1", 1)
        with contextlib.suppress(ConnectionError), client_of(proxy) as client:
            assert client.recv(1) == b""
        proxy.upstream = ("127.0.0.1", server.port)
        with client_of(proxy) as client:
            client.sendall(b"hello")
            assert received(client, 5) == b"hello"
    assert threading.active_count() == threads


def test_stopping_cuts_what_is_open():
    with in_thread("tcp") as server:
        with FaultProxy(("127.0.0.1", server.port)) as proxy:
            client, port = client_of(proxy), proxy.port
            client.sendall(b"hello")
            assert received(client, 5) == b"hello"
            proxy.rules.up = Direction(delay=60)
            client.sendall(b"hello")
        with client:
            assert is_reset(client)
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(aio.connect(Place("127.0.0.1", port), Peer()))
