"""Blocking sockets, moved by one thread: lent wires, failed writes, and wakers. The rest: test_wire.py."""

import contextlib
import select
import selectors
import socket
import struct
import threading
import time

import pytest
from patience import patience
from transport.wires import KINDS, Peer, Place, in_thread

from stompcodec.transport import sync

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def waker():
    with sync.Waker() as waker:
        yield waker


def gone(peer):
    deadline = time.monotonic() + patience(30)
    while peer.wire.poll(patience(30)):
        assert time.monotonic() < deadline
    assert peer.wire.poll(0) is False
    return peer.error


@contextlib.contextmanager
def pair(waker):
    """A client, and the other end as a plain socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = Peer()
        sync.connect(Place("127.0.0.1", listener.getsockname()[1]), peer, waker=waker)
        other, _ = listener.accept()
        with other:
            yield peer, other
        peer.wire.abort()
        peer.wire.poll(0)


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


def reset(other):
    """Close a socket with a RST, whatever was read."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()


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
