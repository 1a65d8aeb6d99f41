"""Octets over blocking sockets, moved by one thread; on real sockets, over TCP, TLS, WebSocket and both."""

import contextlib
import random
import select
import selectors
import socket
import struct
import threading
import time

import pytest
from patience import patience
from transport.messages import PING, frame
from transport.wires import KINDS, Peer, Place, in_thread

from stompcodec.transport import sync

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def waker():
    with sync.Waker() as waker:
        yield waker


def until(peer, done):
    """Poll until something is so."""
    deadline = time.monotonic() + patience(30)
    while not done():
        assert time.monotonic() < deadline
        if not peer.wire.poll(1.0):
            assert done()


def gone(peer):
    deadline = time.monotonic() + patience(30)
    while peer.wire.poll(patience(30)):
        assert time.monotonic() < deadline
    assert peer.wire.poll(0) is False
    return peer.error


@contextlib.contextmanager
def accepting(buffer=None):
    """A socket that listens, for servers written out by hand. buffer: octets of receive buffers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        yield listener, Place("127.0.0.1", listener.getsockname()[1])


@contextlib.contextmanager
def pair(waker, buffer=None, **options):
    """A client, and the other end as a plain socket."""
    with accepting(buffer) as (listener, where):
        peer = Peer()
        sync.connect(where, peer, waker=waker, **options)
        other, _ = listener.accept()
        with other:
            yield peer, other
        peer.wire.abort()
        peer.wire.poll(0)


@contextlib.contextmanager
def reading(other, pause=0.0):
    """Read all that comes in a thread, until the end of the stream; the sizes of what came."""
    got = []

    def read():
        while piece := other.recv(2048 if pause else 65536):
            got.append(len(piece))
            time.sleep(pause)

    reader = threading.Thread(target=read)
    reader.start()
    yield got
    reader.join(patience(30))
    assert not reader.is_alive()


@kinds
def test_octets_arrive_as_they_were_sent(kind, waker, contexts_of):
    roll = random.Random(kind)
    sizes = [0, 1, 5, 125, 126, 127, 1000, 65535, 65536, 65537, 200_000]
    chunks = [roll.randbytes(roll.choice(sizes)) for _ in range(30)] + [b"", b"\n", "SEND\ncafé\0".encode()]
    context = contexts_of(kind)
    with in_thread(kind, context.server) as server:
        peer = Peer()
        wire = sync.connect(server.place, peer, ssl=context.client, waker=waker)
        assert peer.log == ["opened"]
        assert peer.wire is wire
        assert wire.secure is (kind in ("tls", "wss"))
        assert wire.whole_frames is (kind in ("ws", "wss"))
        assert wire.peer == f"127.0.0.1:{server.port}"
        whole = b"".join(chunks)
        while chunks:
            wire.write([chunks.pop(0) for _ in range(min(len(chunks), roll.randrange(6)))])
        until(peer, lambda: len(peer.data) >= len(whole))
        assert peer.data == whole
        if kind == "tcp":  # a view is valid during the call only
            with pytest.raises(ValueError, match="released"):
                bytes(peer.view)
        assert wire._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert wire._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert "closing" not in repr(wire)
        wire.close()
        assert "closing" in repr(wire)
        assert gone(peer) is None
        assert server.run(server.peers[0].gone()) is None


@kinds
def test_an_owner_is_told_once_to_stop_and_once_to_go_on(kind, waker, contexts_of):
    context = contexts_of(kind)
    with in_thread(kind, context.server, echo=False) as server:
        peer = Peer()
        wire = sync.connect(server.place, peer, ssl=context.client, waker=waker, high=50_000)
        other = server.run(server.first())

        async def call(what):
            getattr(other.wire, what)()

        server.run(call("pause_reading"))
        written = 0
        while False not in peer.log:
            wire.write([b"x" * 10_000] * 10)
            written += 100_000
        wire.write([b"x" * 10_000] * 10)
        assert wire.buffered > 50_000
        assert peer.log == ["opened", False]
        server.run(call("resume_reading"))
        until(peer, lambda: True in peer.log)
        assert wire.buffered <= 50_000 // 4
        until(peer, lambda: not wire.buffered)
        server.run(other.has(written + 100_000))
        assert peer.log == ["opened", False, True]
        wire.close()
        assert gone(peer) is None


@kinds
def test_close_sends_all_that_waits(kind, waker, contexts_of):
    context = contexts_of(kind)
    with in_thread(kind, context.server, echo=False) as server:
        peer = Peer()
        wire = sync.connect(server.place, peer, ssl=context.client, waker=waker)
        wire.write([b"y" * 20_000_000])
        wire.close()
        wire.write([b"dropped"])
        wire.close()
        assert gone(peer) is None
        assert server.run(server.peers[0].gone()) is None
        assert server.peers[0].data == b"y" * 20_000_000
        wire.write([b"dropped"])
        wire.pause_reading()
        wire.resume_reading()
        wire.abort()


def test_a_paused_wire_reads_nothing(waker):
    with pair(waker) as (peer, other):
        peer.wire.pause_reading()
        other.sendall(b"hello")
        assert peer.wire.poll(0.05)
        assert peer.data == b""
        peer.wire.write([b"both ways are independent"])
        assert other.recv(100)
        peer.wire.resume_reading()
        until(peer, lambda: peer.data == b"hello")


@kinds
def test_only_a_wire_without_layers_is_lent(kind, waker, contexts_of):
    """What a layer keeps would be unknown to another selector."""
    context = contexts_of(kind)
    with in_thread(kind, context.server) as server, selectors.DefaultSelector() as borrower:
        wire = sync.connect(server.place, Peer(), ssl=context.client, waker=waker)
        wire.lend(borrower)
        assert wire.is_lent is (len(borrower.get_map()) == 1) is (kind == "tcp")
        wire.pause_reading()
        wire.poll(0)
        wire.resume_reading()
        wire.lend(borrower)
        wire.abort()
        assert not wire.is_lent
        assert not borrower.get_map()
        wire.poll(0)


def test_a_peer_that_never_reads_is_cut_off_and_one_that_does_not_close_is_left_in_time(waker):
    with pair(waker) as (peer, _):
        peer.wire.write([b"z" * 20_000_000])
        peer.wire.close(linger=0.05)
        assert isinstance(gone(peer), ConnectionAbortedError)
    with pair(waker) as (peer, other):
        peer.wire.write([b"bye"])
        peer.wire.close(linger=0.05)
        assert gone(peer) is None
        assert other.recv(100) == b"bye"


def test_a_peer_that_reads_slowly_gets_everything(waker):
    with pair(waker, buffer=8192) as (peer, other):
        peer.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with reading(other, pause=0.002) as got:
            peer.wire.write([b"z" * 600_000])
            peer.wire.close(linger=0.3)
            while peer.wire.poll(patience(30)):
                pass
        assert sum(got) == 600_000


def test_what_comes_after_close_is_thrown_away(waker):
    with pair(waker) as (peer, other):
        peer.wire.pause_reading()
        other.sendall(b"unread")
        peer.wire.close(linger=60)
        other.sendall(b"more" * 1000)
        assert peer.wire.poll(1)
        assert other.recv(10) == b""
        other.close()
        assert gone(peer) is None
        assert peer.data == b""


def test_a_peer_that_is_done_sending_still_gets_the_answer(waker, monkeypatch):
    monkeypatch.setattr(sync.SyncWire.close, "__defaults__", (60,))  # nobody has to wait for that

    class Answers(Peer):
        def received(self, data):
            super().received(data)
            self.wire.write([b"answer" * 100_000])

    with pair(waker, buffer=8192) as (peer, other):
        peer.__class__ = Answers
        peer.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        other.sendall(b"question")
        other.shutdown(socket.SHUT_WR)
        until(peer, lambda: peer.wire._peer_done)
        assert peer.wire._watched == selectors.EVENT_WRITE  # its end would wake us for ever
        with reading(other) as got:
            assert gone(peer) is None
        assert sum(got) == 600_000


def reset(other):
    """Close a socket with a RST, whatever was read."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()


def test_a_reset_is_an_error(waker):
    with pair(waker) as (peer, other):
        reset(other)
        assert isinstance(gone(peer), ConnectionError)
        peer.wire.write([b"nobody is there"])


def write_until_it_fails(wire):
    until = time.monotonic() + patience(30)
    while not (wire._broken or wire._dead):
        assert time.monotonic() < until
        wire.write([b"x" * 1000])


@pytest.mark.parametrize("size", [1, sync.AHEAD, sync.AHEAD + 1, 2 * sync.AHEAD])
@pytest.mark.parametrize("ended", [False, True])
def test_what_was_read_ahead_and_what_is_behind_it_are_one_read(waker, size, ended):
    octets, reads = bytes(number % 251 for number in range(size)), []
    with pair(waker) as (peer, other):
        peer.received = lambda data: reads.append(bytes(data))
        other.sendall(octets)
        while len(peer.wire._socket.recv(size, socket.MSG_PEEK)) < size:
            select.select([peer.wire._socket], [], [], patience(10))
        assert peer.wire.read_ahead() == octets[: sync.AHEAD]
        if ended:
            other.shutdown(socket.SHUT_WR)
        assert peer.wire.handle(0)
        assert reads == [octets]
        assert not peer.wire.ahead


@kinds
@pytest.mark.parametrize("is_paused", [False, True], ids=["reading", "paused"])
def test_bytes_that_came_before_a_failed_write_are_received(kind, is_paused, waker, contexts_of, monkeypatch):
    """The server answers and resets the connection; the client writes before it reads the answers."""
    buffer = memoryview(bytearray(100))
    monkeypatch.setattr(sync, "read_buffer", lambda: buffer)  # so that there is more than one read
    context, answers = contexts_of(kind), b"answer" * 500
    with in_thread(kind, context.server, echo=False) as server:
        peer = Peer()
        wire = sync.connect(server.place, peer, ssl=context.client, waker=waker)
        other = server.run(server.first())

        async def answer():
            other.wire.write([answers])
            sock = other.wire._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.wire.abort()

        if is_paused:
            wire.pause_reading()
        server.run(answer())
        server.run(other.gone())
        write_until_it_fails(wire)
        wire.write([b"dropped"])
        assert (peer.log, peer.data, wire.buffered) == (["opened"], b"", 0)  # a later poll tells
        before = time.monotonic()
        assert before <= wire.deadline <= time.monotonic()
        assert isinstance(gone(peer), ConnectionError)
        assert peer.data == answers


def test_what_is_read_after_a_failed_write_is_bounded_by_the_receive_buffer(waker, monkeypatch):
    """A write may fail though the connection lives, and the peer goes on sending."""
    buffer = memoryview(bytearray(1000))
    monkeypatch.setattr(sync, "read_buffer", lambda: buffer)
    with pair(waker) as (peer, other):
        peer.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        most = peer.wire._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        peer.wire._break_off(OSError("a write failed"))
        other.sendall(bytes(1000))
        while peer.wire.poll(0):
            other.sendall(bytes(1000))
        assert most <= len(peer.data) < most + 1000
        assert str(peer.error) == "a write failed"


def test_an_owner_that_closes_after_a_failed_write_receives_no_more(waker):
    with pair(waker) as (peer, other):
        other.sendall(b"late")
        reset(other)
        write_until_it_fails(peer.wire)
        peer.wire.close()
        assert isinstance(gone(peer), ConnectionError)
        assert peer.data == b""


def test_abort_drops_what_waits(waker):
    with pair(waker) as (peer, _):
        peer.wire.write([b"z" * 20_000_000])
        peer.wire.abort()
        assert peer.wire.buffered == 0
        assert gone(peer) is None


@pytest.mark.skipif(not hasattr(select, "poll"), reason="no poll here")
@kinds
def test_abort_ends_the_stream_and_the_waits_of_other_threads(kind, waker, contexts_of):
    """While a thread polls a socket, the system keeps it open, and `close` alone says nothing to the peer."""
    context, poller = contexts_of(kind), select.poll()
    with in_thread(kind, context.server, echo=False) as server:
        wire = sync.connect(server.place, Peer(), ssl=context.client, waker=waker)
        server.run(server.first())
        poller.register(wire._socket, select.POLLPRI)  # nothing but the end wakes it
        thread = threading.Thread(target=poll, args=(poller, None), daemon=True)
        thread.start()
        with pytest.raises(RuntimeError, match="concurrent"):
            wait_for_a_poll(poller)
        wire.abort()
        server.run(server.peers[0].gone())
        thread.join(patience(30))
        assert not thread.is_alive()


def poll(poller, timeout):
    """Poll, once no other thread does."""
    while True:
        with contextlib.suppress(RuntimeError):
            return poller.poll(timeout)


def wait_for_a_poll(poller):
    """Raise RuntimeError once another thread polls."""
    until = time.monotonic() + patience(30)
    while time.monotonic() < until:
        poller.poll(0)
        time.sleep(0.001)  # else the other thread hardly gets a chance


@pytest.mark.parametrize("way", ["close", "abort"])
def test_an_owner_may_end_it_while_it_receives(waker, monkeypatch, way):
    monkeypatch.setattr("stompcodec.transport.websocket._QUICK", False)  # each message is received by itself
    with in_thread("ws", None) as server:
        peer = Peer()
        wire = sync.connect(server.place, peer, waker=waker)
        received = peer.received
        peer.received = lambda data: (received(data), getattr(wire, way)())
        wire.write([b"1", b"2", b"3"])
        assert gone(peer) is None
        assert peer.data == b"1"


def test_a_flood_of_pings_is_cut_off(waker):
    with in_thread("ws", echo=False) as server:
        peer = Peer()
        sync.connect(server.place, peer, waker=waker)
        other = server.run(server.first())

        async def flood():
            other.wire.pause_reading()
            other.wire._put([frame(PING, b"p" * 125, mask=None) * 100_000])

        server.run(flood())
        assert isinstance(gone(peer), ConnectionAbortedError)


def test_a_wire_is_woken_from_another_thread(waker):
    with pair(waker) as (peer, _):
        thread = threading.Timer(0.05, waker.wake)
        thread.start()
        start = time.monotonic()
        assert peer.wire.poll(patience(30))
        assert time.monotonic() - start < patience(30)
        thread.join()


def test_no_wake_is_lost(waker):
    assert waker.wait(0) is False
    waker.wake()
    waker.wake()
    assert waker.wait(None) is True
    assert waker.wait(0) is False
    for _ in range(5):
        waker.wake()
    assert waker._here.recv(100) == b"\0"  # many wakes cost one call of the kernel
    waker.clear()
    inner, waker._here = waker._here, Racing(waker)
    waker.wake()
    waker.clear()  # another thread wakes meanwhile
    waker._here = inner
    waker.wake()
    assert waker.wait(0)
    waker.close()
    waker.wake()


class Racing:
    """A socket of a waker; another thread wakes whenever it is read."""

    def __init__(self, waker):
        self.waker, self.inner = waker, waker._here

    def recv(self, size):
        self.waker.wake()
        return self.inner.recv(size)
