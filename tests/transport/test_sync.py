"""Blocking sockets, moved by one thread: lent wires, failed writes, and wakers. The rest: test_wire.py."""

import contextlib
import select
import socket
import struct
import threading
import time

import pytest
from patience import patience
from transport.wires import KINDS, Peer, Place

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


def reset(other):
    """Close a socket with a RST, whatever was read."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()


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


def poll(poller, timeout):
    """Poll, once no other thread does."""
    while True:
        with contextlib.suppress(RuntimeError):
            return poller.poll(timeout)


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
