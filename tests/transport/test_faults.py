"""The proxy does what its rules say, exactly; tests of clients and brokers rest on it."""

import contextlib
import random
import socket

import pytest
from patience import patience
from transport.wires import Peer, Place, Server, in_thread

from stompcodec.testing import FaultProxy, Rules
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
