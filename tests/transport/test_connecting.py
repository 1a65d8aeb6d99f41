"""How connections come to be, or do not: `connect` of both shells, `listen`, and peers that speak something else."""

import asyncio
import contextlib
import socket
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples
from transport.wires import KINDS, Peer, Place, Raw, Server, place

from stompcodec.transport import aio, sync

kinds = pytest.mark.parametrize("kind", KINDS)
layered = pytest.mark.parametrize("kind", ["tls", "ws", "wss"])


@contextlib.contextmanager
def answering(answer, *, closes=True):
    """A server that answers the first bytes with these, and closes; its port."""

    def serve():
        other, _ = listener.accept()
        with other, contextlib.suppress(ConnectionError):
            other.recv(4096)
            other.sendall(answer)
            while not closes and other.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(patience(30))
        assert not thread.is_alive()


@layered
@pytest.mark.parametrize("answer", [b"", b"ERROR\nmessage:who are you\n\n\0" * 9, b"HTTP/1.1 200 OK\r\n\r\nhello"])
def test_a_server_that_speaks_something_else(kind, answer, connect, contexts_of):
    peer = Peer()
    with (
        answering(answer) as port,
        pytest.raises(OSError, match=r"(?i)closed|websocket|wrong version|ssl|record|reset"),
    ):
        connect(place(kind, port), peer, ssl=contexts_of(kind).client, timeout=patience(30))
    assert peer.log == []


def test_a_refusal_is_told_at_once(connect, monkeypatch):
    """Even if the server does not close."""
    monkeypatch.setattr(aio.Wire.close, "__defaults__", (60,))
    monkeypatch.setattr(sync.SyncWire.close, "__defaults__", (60,))
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    with answering(answer, closes=False) as port, pytest.raises(ConnectionRefusedError, match="404"):
        connect(place("ws", port), Peer(), timeout=patience(30))


def test_a_peer_that_is_gone_at_once(monkeypatch):
    """It has accepted and reset the connection before we ask for its name: the socket is closed, not left behind."""
    reached = []

    def reach(host, port, deadline):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sock = socket.create_connection(listener.getsockname())
            there, _ = listener.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        reached.append(sock)
        return sock

    monkeypatch.setattr(sync, "_reach", reach)
    with sync.Waker() as waker, pytest.raises(OSError, match=r"connected|argument"):  # as the system puts it
        sync.connect(Place("127.0.0.1", 1), Peer(), waker=waker)
    assert reached[0].fileno() == -1


# ---- listening ----


def test_all_addresses_of_a_host_share_one_port_which_is_taken_then(run):
    async def main():
        async with Server(host=None) as server:
            assert {sock.getsockname()[1] for sock in server.listener._server.sockets} == {server.port}
            with pytest.raises(OSError, match="in use"):
                await aio.listen("127.0.0.1", server.port, Peer)

    run(main())


@layered
@pytest.mark.parametrize("timeout", [60.0, 0.1])
def test_a_handshake_ends_with_the_listener_or_in_time(kind, timeout, run, contexts_of):
    """However little comes at a time."""

    async def main():
        async with Server(kind, context=contexts_of(kind).server, timeout=timeout) as server:
            async with Raw.to(server.port) as raw:
                await raw.send(b"\x16\x03" if "s" in kind[1:] else b"GET / ")
                while not server.listener._plan.opening:
                    await asyncio.sleep(0)
                if timeout > 1:
                    server.listener.close()
                assert await raw.rest() == b""
            assert server.peers == []
            assert server.listener._plan.opening == set()

    run(main())


@settings(max_examples=examples(20))
@given(noise=st.binary(max_size=300))
@layered
def test_noise_is_refused_and_others_are_served(kind, noise, contexts, run):
    """Nothing is raised where nobody could catch it; see also fuzz/fuzz_websocket.py."""

    async def main():
        async with Server(kind, context=contexts.server, echo=True, timeout=0.2) as server:
            async with Raw.to(server.port) as raw:
                await raw.send(noise + b"\r\n\r\n")
                await raw.rest()
            server.listener._plan.timeout = patience(30)  # a busy machine may need more than 0.2 s for a handshake
            client = await server.connect(contexts.client)
            client.wire.write([b"hello"])
            await client.has(5)
            client.wire.abort()
            await client.gone()

    run(main())
