"""What the tests of transports share: owners that note what happened, servers to talk to, raw sockets."""

import asyncio
import contextlib
import gc
import socket
import threading
import time
from typing import Any, NamedTuple

import pytest
from patience import patience

from stompcodec.transport import aio, sync
from stompcodec.transport.http import Handshake
from stompcodec.transport.layers import client_layer
from stompcodec.transport.owner import HIGH
from stompcodec.transport.tls import TlsLayer

#: Runs a test that is a coroutine on both loops.
on_loops = pytest.mark.usefixtures("run")
KINDS = ("tcp", "tls", "ws", "wss")


class Place(NamedTuple):
    host: str
    port: int
    tls: bool = False
    websocket: bool = False
    path: str = "/stomp"
    sockjs: bool = False


def place(kind: str, port: int, host: str = "127.0.0.1") -> Place:
    return Place(host, port, tls=kind in ("tls", "wss"), websocket=kind in ("ws", "wss"))


class Peer:
    def __init__(self, echo: bool = False) -> None:
        self.echo, self.log, self.data, self.wire = echo, [], bytearray(), None
        self.changed = asyncio.Event()

    def opened(self, wire: Any) -> None:
        self.wire = wire
        self._note("opened")

    def received(self, data: bytes | memoryview) -> None:
        self.view = data
        assert self.log[0] == "opened"
        assert not self.is_lost
        self.data += data
        if self.echo:
            self.wire.write([bytes(data)])
        self.changed.set()

    def writable(self, yes: bool) -> None:
        self._note(yes)

    def lost(self, error: BaseException | None) -> None:
        assert not self.is_lost
        self._note(("lost", error))

    def _note(self, what: Any) -> None:
        self.log.append(what)
        self.changed.set()

    @property
    def is_lost(self) -> bool:
        return bool(self.log) and isinstance(self.log[-1], tuple)

    @property
    def error(self) -> BaseException | None:
        assert self.is_lost
        return self.log[-1][1]

    async def until(self, done: Any) -> None:
        """Wait until `done()`, which can only become true by a call of an owner's method."""

        async def wait() -> None:
            while not done():
                assert not self.is_lost, f"it waits for more of a peer that is lost: {self.log}"
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), patience(30))

    async def gone(self) -> BaseException | None:
        await self.until(lambda: self.is_lost)
        return self.error

    async def has(self, octets: int) -> bytes:
        await self.until(lambda: len(self.data) >= octets)
        return bytes(self.data)


async def connect(where: Any, peer: Peer, *, ssl: Any = None, timeout: float = 60.0, high: int = HIGH) -> None:
    layer = client_layer(where, ssl, None, Handshake())
    make_layer = None if layer is None else lambda _own: layer()
    plan = aio._Plan(lambda: peer, make_layer, where.tls, where.websocket, high, timeout)
    _, wire = await asyncio.get_running_loop().create_connection(plan, where.host, where.port)
    while wire in plan.opening:
        await asyncio.sleep(0.001)
    if not peer.log:
        raise wire._error or ConnectionResetError("closed during the handshake")


class Server:
    def __init__(self, kind: str = "tcp", *, context: Any = None, echo: bool = False, **options: Any) -> None:
        self.kind, self.echo = kind, echo
        self.peers = []
        self.joined, self.options = asyncio.Event(), options
        if kind in ("tls", "wss"):
            self.options["ssl"] = context
        self.options["websocket"] = kind in ("ws", "wss")

    async def __aenter__(self):
        self.listener = await aio.listen(self.options.pop("host", "127.0.0.1"), 0, self._join, **self.options)
        self.port = self.listener.port
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        await self.listener.wait_closed()
        for peer in self.peers:
            if not peer.is_lost:
                peer.wire.abort()
                await peer.gone()

    def _join(self) -> Peer:
        self.peers.append(Peer(self.echo))
        self.joined.set()
        return self.peers[-1]

    @property
    def place(self) -> Place:
        return place(self.kind, self.port)

    async def first(self) -> Peer:
        await asyncio.wait_for(self.joined.wait(), patience(30))
        return self.peers[0]

    async def connect(self, context: Any = None, **options: Any) -> Peer:
        peer = Peer()
        await connect(self.place, peer, ssl=context, **options)
        return peer


class Loop:
    """A loop in a thread. What it would only log, or a task that is left, is an error."""

    def __init__(self, kind: str = "asyncio") -> None:
        new_loop = pytest.importorskip("uvloop").new_event_loop if kind == "uvloop" else asyncio.new_event_loop
        self.loop, self.wrongs = new_loop(), []
        self.loop.set_exception_handler(lambda _, context: self.wrongs.append(context))
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.run(asyncio.sleep(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        left = asyncio.all_tasks(self.loop)
        self.loop.close()
        gc.collect()
        assert (self.wrongs, left) == ([], set())

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(patience(40))

    def connect(self, where: Any, peer: Any, **options: Any) -> None:
        self.run(connect(where, peer, **options))

    def call(self, what: Any) -> Any:
        async def call() -> Any:
            return what()

        return self.run(call())

    def until(self, peer: Peer, done: Any) -> None:
        self.run(peer.until(done))

    def gone(self, peer: Peer) -> BaseException | None:
        return self.run(peer.gone())


def finish(kind: str, work: Any) -> Any:
    with Loop(kind) as loop:
        return loop.run(work)


class Sync:
    """The blocking shell, moved by the thread of the test."""

    def __enter__(self):
        self.waker = sync.Waker()
        return self

    def __exit__(self, *_: object) -> None:
        self.waker.close()

    def connect(self, where: Any, peer: Any, **options: Any) -> Any:
        return sync.connect(where, peer, waker=self.waker, **options)

    def call(self, what: Any) -> Any:
        return what()

    def until(self, peer: Peer, done: Any) -> None:
        deadline = time.monotonic() + patience(30)
        while not done():
            assert time.monotonic() < deadline
            assert peer.wire.poll(1.0) or done()

    def gone(self, peer: Peer) -> BaseException | None:
        self.until(peer, lambda: peer.is_lost)
        assert peer.wire.poll(0) is False
        return peer.error


@contextlib.contextmanager
def in_thread(kind: str, context: Any = None, *, echo: bool = True, **options: Any) -> Any:
    """A server in a loop in a thread, for clients that block; a test reads its peers once they are lost."""

    async def start() -> Server:
        return await Server(kind, context=context, echo=echo, **options).__aenter__()

    with Loop() as loop:
        server: Any = loop.run(start())
        server.run = loop.run
        try:
            yield server
        finally:
            loop.run(server.__aexit__())


class Raw:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port: int) -> Any:
        with socket.socket() as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            yield cls(sock)

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(self.sock, data), patience(30))

    async def some(self, most: int = 65536) -> bytes:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.sock, most), patience(30))

    async def rest(self) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self.some():
                data += piece
        return data

    async def until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            piece = await self.some()
            assert piece, data
            data += piece
        return data


def shaken(contexts: Any) -> tuple[TlsLayer, TlsLayer]:
    """A client's and a server's layer that have shaken hands."""
    client, server = TlsLayer(contexts.client, server_hostname="localhost"), TlsLayer(contexts.server)
    client.start()
    while not (client.opened and server.opened):
        for here, there in ((client, server), (server, client)):
            for data in here.take_output():
                assert there.receive(data) == []
    return client, server
