"""Octets by both shells, on real sockets, over TCP, TLS, WebSocket and both: what a wire promises its owner."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time

import pytest
from patience import patience
from transport.messages import PING, frame
from transport.wires import KINDS, Peer, Place, in_thread

from stompcodec.transport import aio, sync

kinds = pytest.mark.parametrize("kind", KINDS)


class Sync:
    """The blocking shell, moved by the thread of the test."""

    def __init__(self):
        self.waker = sync.Waker()

    def connect(self, where, peer, **options):
        sync.connect(where, peer, waker=self.waker, **options)

    def call(self, what):
        return what()

    def until(self, peer, done):
        deadline = time.monotonic() + patience(30)
        while not done():
            assert time.monotonic() < deadline
            assert peer.wire.poll(1.0) or done()

    def gone(self, peer):
        self.until(peer, lambda: peer.is_lost)
        assert peer.wire.poll(0) is False
        return peer.error

    def close(self):
        self.waker.close()


class Loop:
    """A loop in a thread. What it would only log is an error."""

    def __init__(self, new_loop):
        self.loop, self.wrongs = new_loop(), []
        self.loop.set_exception_handler(lambda _, context: self.wrongs.append(context))
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(patience(40))

    def connect(self, where, peer, **options):
        self.run(aio.connect(where, peer, **options))

    def call(self, what):
        async def call():
            return what()

        return self.run(call())

    def until(self, peer, done):
        self.run(peer.until(done))

    def gone(self, peer):
        return self.run(peer.gone())

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        assert self.wrongs == []


@pytest.fixture(params=["asyncio", "uvloop", "sync"])
def shell(request):
    if request.param == "sync":
        made = Sync()
    elif request.param == "uvloop":
        made = Loop(pytest.importorskip("uvloop").new_event_loop)
    else:
        made = Loop(asyncio.new_event_loop)
    yield made
    made.close()


def sock_of(wire):
    return wire._socket if isinstance(wire, sync.SyncWire) else wire._transport.get_extra_info("socket")


@contextlib.contextmanager
def served(shell, kind, contexts_of, peer=None, echo=False, **options):
    """A client and its peer at a server of our own, which is called by `server.run`."""
    context, peer = contexts_of(kind), peer or Peer()
    with in_thread(kind, context.server, echo=echo) as server:
        shell.connect(server.place, peer, ssl=context.client, **options)
        there = server.run(server.first())

        async def do(what):
            return what(there.wire)

        server.do = lambda what: server.run(do(what))
        yield peer, there, server
        shell.call(peer.wire.abort)
        if not peer.is_lost:
            shell.gone(peer)


@contextlib.contextmanager
def pair(shell, peer=None, buffer=None):
    """A client, and the other end as a plain socket. buffer: octets of both buffers, to be full soon."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        peer = peer or Peer()
        shell.connect(Place("127.0.0.1", listener.getsockname()[1]), peer)
        if buffer is not None:
            sock_of(peer.wire).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer // 2)
        other, _ = listener.accept()
        with other:
            yield peer, other
        shell.call(peer.wire.abort)
        if not peer.is_lost:
            shell.gone(peer)


@contextlib.contextmanager
def reading(other, pause=0.0):
    """Read all that comes in a thread, until the end of the stream; the sizes of what came."""
    got = []

    def read():
        while piece := other.recv(2048 if pause else 65536):
            got.append(len(piece))
            time.sleep(pause)
        other.close()

    reader = threading.Thread(target=read)
    reader.start()
    yield got
    reader.join(patience(30))
    assert not reader.is_alive()


@kinds
def test_octets_arrive_as_they_were_sent_and_what_a_wire_says_of_itself(kind, shell, contexts_of):
    """Whatever the chunks are: empty, small, large, text or not."""
    roll = random.Random(kind)
    sizes = [0, 1, 5, 125, 126, 127, 1000, 65535, 65536, 65537, 200_000]
    chunks = [roll.randbytes(roll.choice(sizes)) for _ in range(30)] + [b"", b"\n", "SEND\ncafé\0".encode()]
    with served(shell, kind, contexts_of, echo=True) as (peer, there, server):
        wire, whole = peer.wire, b"".join(chunks)
        while chunks:
            some = [chunks.pop(0) for _ in range(min(len(chunks), roll.randrange(6)))]
            shell.call(lambda some=some: wire.write(some))
        shell.until(peer, lambda: len(peer.data) >= len(whole))
        assert peer.data == whole
        if kind == "tcp":  # a view is valid during the call only
            with pytest.raises(ValueError, match="released"):
                bytes(peer.view)
        assert wire.peer == f"127.0.0.1:{server.port}"
        assert there.wire.peer == f"127.0.0.1:{sock_of(wire).getsockname()[1]}"
        for each in (wire, there.wire):
            assert each.secure is (kind in ("tls", "wss"))
            assert each.whole_frames is (kind in ("ws", "wss"))
            assert sock_of(each).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock_of(each).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert (wire.buffered, "closing" in repr(wire)) == (0, False)
        shell.call(wire.close)
        assert "closing" in repr(wire)
        assert shell.gone(peer) is None
        assert server.run(there.gone()) is None
        assert peer.log == ["opened", ("lost", None)] or peer.log.count("opened") == 1


@kinds
def test_an_owner_is_told_once_to_stop_and_once_to_go_on(kind, shell, contexts_of):
    with served(shell, kind, contexts_of, high=50_000) as (peer, there, server):
        server.do(lambda wire: wire.pause_reading())
        written = 0
        while False not in peer.log:
            assert written < 500_000_000
            shell.call(lambda: peer.wire.write([b"x" * 10_000] * 10))
            written += 100_000
        assert shell.call(lambda: (peer.wire.write([b"x" * 10_000] * 10), peer.wire.buffered)[1]) > 50_000
        assert peer.log == ["opened", False]
        server.do(lambda wire: wire.resume_reading())
        shell.until(peer, lambda: True in peer.log)
        assert peer.wire.buffered <= 50_000 // 4
        while shell.call(lambda: peer.wire.buffered):
            shell.call(lambda: getattr(peer.wire, "poll", time.sleep)(0.001))
        server.run(there.has(written + 100_000))
        assert peer.log == ["opened", False, True]


@kinds
def test_close_sends_all_that_waits(kind, shell, contexts_of):
    def close():
        wire.write([b"y" * 20_000_000])
        wire.close()
        assert wire.buffered > 0
        wire.write([b"dropped"])
        wire.close()

    with served(shell, kind, contexts_of) as (peer, there, server):
        wire = peer.wire
        shell.call(close)
        assert shell.gone(peer) is None
        error = server.run(there.gone())  # its answer to the close may find nobody
        assert error is None or isinstance(error, (BrokenPipeError, ConnectionResetError))
        assert there.data == b"y" * 20_000_000
        shell.call(lambda: (wire.write([b"dropped"]), wire.pause_reading(), wire.resume_reading(), wire.close()))


@pytest.mark.parametrize("ends", ["we close", "the peer is done"])
def test_a_peer_that_never_reads_is_cut_off(shell, ends, monkeypatch):
    for wire in (aio.Wire, sync.SyncWire):
        monkeypatch.setattr(wire.close, "__defaults__", (0.05,))
    with pair(shell, buffer=8192) as (peer, other):
        shell.call(lambda: peer.wire.write([b"z" * 20_000_000]))
        if ends == "we close":
            shell.call(peer.wire.close)
        else:
            other.shutdown(socket.SHUT_WR)
        assert isinstance(shell.gone(peer), ConnectionAbortedError)


def test_a_peer_that_reads_slowly_gets_everything(shell):
    """A closed wire waits for as long as something moves."""
    with pair(shell, buffer=8192) as (peer, other), reading(other, pause=0.002) as got:
        shell.call(lambda: (peer.wire.write([b"z" * 600_000]), peer.wire.close(linger=0.3)))
        assert shell.gone(peer) is None
    assert sum(got) == 600_000


class Answers(Peer):
    """Writes at the end of the turn of the loop, if there is one, as a broker does."""

    def received(self, data):
        super().received(data)
        soon = (lambda call, *given: call(*given)) if isinstance(self.wire, sync.SyncWire) else self.soon
        soon(self.wire.write, [b"answer" * 100_000])

    def soon(self, call, *given):
        asyncio.get_running_loop().call_soon(call, *given)


@kinds
def test_a_reset_is_an_error(kind, shell, contexts_of):
    with served(shell, kind, contexts_of) as (peer, _, server):

        def reset(wire):
            sock_of(wire).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.abort()

        server.do(reset)
        assert isinstance(shell.gone(peer), ConnectionError)
        shell.call(lambda: (peer.wire.write([b"nobody is there"]), peer.wire.close()))


def test_abort_drops_what_waits(shell):
    with pair(shell) as (peer, _):
        shell.call(lambda: (peer.wire.write([b"z" * 20_000_000]), peer.wire.abort()))
        assert shell.gone(peer) is None
        assert peer.wire.buffered == 0


@pytest.mark.parametrize("way", ["close", "abort"])
def test_an_owner_may_end_it_while_it_receives(shell, contexts_of, monkeypatch, way):
    """Nothing more is received, even if it was read already."""
    monkeypatch.setattr("stompcodec.transport.websocket._QUICK", False)  # each message is received by itself

    class Once(Peer):
        def received(self, data):
            super().received(data)
            getattr(self.wire, way)()

    with served(shell, "ws", contexts_of, Once()) as (peer, _, server):
        server.do(lambda wire: wire.write([b"1", b"2", b"3"]))
        assert shell.gone(peer) is None
        assert peer.data == b"1"


def test_a_peer_that_asks_for_pongs_and_reads_none_is_cut_off(shell, contexts_of):
    """What a peer can make us hold is bounded."""
    with served(shell, "ws", contexts_of) as (peer, _, server):
        flood = frame(PING, b"p" * 125, mask=None) * 100_000
        server.do(lambda wire: (wire.pause_reading(), wire._put([flood])))
        assert isinstance(shell.gone(peer), ConnectionAbortedError)
        assert peer.wire.buffered < 1_000_000
