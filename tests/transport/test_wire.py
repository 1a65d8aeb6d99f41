"""Bytes by both shells, on real sockets, over TCP, TLS, WebSocket and both: what a wire promises its owner."""

import contextlib
import random
import select
import selectors
import socket
import struct
import time

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from patience import patience
from transport.endpoints import Endpoint
from transport.messages import PING, frame
from transport.wires import KINDS, Peer, Place, Sync, in_thread

from stompcodec.transport import aio, sync
from stompcodec.transport.owner import BIG, gather, name_of

kinds = pytest.mark.parametrize("kind", KINDS)


def sock_of(wire):
    return wire._socket if isinstance(wire, sync.SyncWire) else wire._transport.get_extra_info("socket")


def reset(wire):
    sock_of(wire).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.abort()


@contextlib.contextmanager
def ending(shell, peer):
    yield
    shell.call(peer.wire.abort)
    if not peer.is_lost:
        shell.gone(peer)


@contextlib.contextmanager
def served(shell, kind, contexts_of, peer=None, echo=False, **options):
    context, peer = contexts_of(kind), peer or Peer()
    with in_thread(kind, context.server, echo=echo) as server:
        shell.connect(server.place, peer, ssl=context.client, **options)
        there = server.run(server.first())

        async def do(what):
            return what(there.wire)

        server.do = lambda what: server.run(do(what))
        with ending(shell, peer):
            yield peer, there, server


@contextlib.contextmanager
def pair(shell, buffer=None):
    """A client, and the other end as a plain socket. buffer: bytes of both buffers, to be full soon."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        peer = Peer()
        shell.connect(Place("127.0.0.1", listener.getsockname()[1]), peer)
        if buffer is not None:
            sock_of(peer.wire).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer // 2)
        other, _ = listener.accept()
        with other, ending(shell, peer):
            yield peer, other


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
            assert (each.secure, each.whole_frames) == (kind in ("tls", "wss"), kind in ("ws", "wss"))
            assert sock_of(each).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock_of(each).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert (wire.buffered, "closing" in repr(wire)) == (0, False)
        shell.call(wire.close)
        assert "closing" in repr(wire)
        assert shell.gone(peer) is server.run(there.gone()) is None
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


def test_a_peer_that_asks_for_pongs_and_reads_none_is_cut_off(shell, contexts_of):
    """What a peer can make us hold is bounded."""
    with served(shell, "ws", contexts_of) as (peer, _, server):
        flood = frame(PING, b"p" * 125, mask=None) * 100_000
        server.do(lambda wire: (wire.pause_reading(), wire._put([flood])))
        assert isinstance(shell.gone(peer), ConnectionAbortedError)
        assert peer.wire.buffered < 1_000_000


@pytest.fixture
def blocking():
    with Sync() as shell:
        yield shell


@pytest.mark.parametrize("size", [1, sync.AHEAD, sync.AHEAD + 1, 2 * sync.AHEAD])
@pytest.mark.parametrize("ended", [False, True])
def test_what_was_read_ahead_and_what_is_behind_it_are_one_read(blocking, size, ended):
    octets, reads = bytes(number % 251 for number in range(size)), []
    with pair(blocking) as (peer, other):
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


def test_what_is_read_after_a_failed_write_is_bounded_by_the_receive_buffer(blocking, monkeypatch):
    """A write may fail though the connection lives, and the peer goes on sending."""
    buffer = memoryview(bytearray(1000))
    monkeypatch.setattr(sync, "read_buffer", lambda: buffer)
    with pair(blocking) as (peer, other):
        peer.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        most = peer.wire._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        peer.wire._break_off(OSError("a write failed"))
        other.sendall(bytes(1000))
        while peer.wire.poll(0):
            other.sendall(bytes(1000))
        assert most <= len(peer.data) < most + 1000
        assert str(peer.error) == "a write failed"


class Racing:
    """A socket of a waker; another thread wakes whenever it is read."""

    def __init__(self, waker):
        self.waker, self.inner = waker, waker._here

    def recv(self, size):
        self.waker.wake()
        return self.inner.recv(size)


def test_no_wake_is_lost(blocking):
    waker = blocking.waker
    assert waker.wait(0) is False
    waker.wake()
    waker.wake()
    assert [waker.wait(None), waker.wait(0)] == [True, False]
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


#: Steps of our own, by name. Others: "burst" is more than a layer handles in one turn.
OURS = {
    **{"poll": lambda wire, borrower: wire.poll(0.02), "lend": lambda wire, borrower: wire.lend(borrower)},
    "read_ahead": lambda wire, borrower: wire.is_lent and wire.read_ahead(),
    **{"read_now": lambda wire, borrower: wire.read_now(), "take_back": lambda wire, borrower: wire.lend(None)},
    "write": lambda wire, borrower: wire.write([b"hello"] * 3),
    "pause": lambda wire, borrower: (wire.pause_reading(), wire.watch()),
    "resume": lambda wire, borrower: (wire.resume_reading(), wire.watch()),
    **{"close": lambda wire, borrower: wire.close(0.01), "abort": lambda wire, borrower: wire.abort()},
}
few = settings(
    deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=[*HealthCheck]
)


@contextlib.contextmanager
def other_ends(kind, contexts_of):
    """A wire, and what does a step at its other end."""
    with contextlib.ExitStack() as stack:
        shell = stack.enter_context(Sync())
        if kind == "sockjs":
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            endpoint = stack.enter_context(Endpoint(listener.getsockname()[1]))
            wire = shell.connect(Place("127.0.0.1", endpoint.port, websocket=True, sockjs=True), Peer())
            behind = stack.enter_context(listener.accept()[0])

            def there(step):
                with contextlib.suppress(OSError):  # the endpoint may be gone
                    behind.sendall(bytes(30_000)) if step == "burst" else behind.shutdown(socket.SHUT_WR)

        else:
            context = contexts_of(kind)
            server = stack.enter_context(in_thread(kind, context.server, echo=False))
            wire = shell.connect(server.place, Peer(), ssl=context.client)
            steps = {"burst": lambda wire: [wire.write([b"x"]) for _ in range(1500)], "end": lambda wire: wire.close()}

            async def do(step):
                with contextlib.suppress(OSError):
                    steps.get(step, reset)((await server.first()).wire)

            def there(step):
                server.run(do(step))

        yield wire, there


@pytest.mark.parametrize("kind", [*KINDS, "sockjs"])
def test_a_deadline_is_a_time(kind, contexts_of):
    """It is as it was, or not before the last look."""

    @settings(few, max_examples=6 if kind == "sockjs" else 12)
    @given(st.lists(st.sampled_from((*OURS, "poll", "burst", "burst", "end", "reset")), max_size=12))
    def check(steps):
        at, known = time.monotonic(), None

        def look():
            nonlocal at, known
            due = wire.deadline
            assert due is None or due == known or due >= at, f"{due} is no time: the clock was at {at}"
            if wire._deadline is not None or due is None:
                known = wire._deadline
            at = time.monotonic()

        with other_ends(kind, contexts_of) as (wire, there), selectors.DefaultSelector() as borrower:
            try:
                for step in ["burst", "poll", "poll", *steps, "resume", "take_back", "end"]:
                    if step not in OURS:
                        there(step)
                    elif not wire._dead:
                        OURS[step](wire, borrower)
                    look()
                    if wire._is_held() or wire.ahead or wire._broken:
                        event("there is something to do at once")
                until = time.monotonic() + patience(2)
                while wire.poll(0.05):
                    look()
                    assert time.monotonic() < until
                look()
            finally:
                wire.abort()

    check()


# ---- the small parts that both shells stand on ----


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([bytes(BIG - 1), bytes(BIG), bytes(BIG + 1)]))))
def test_chunks_are_joined_unless_they_are_big(chunks):
    pieces = gather(chunks)
    assert b"".join(pieces) == b"".join(chunks)
    big = [chunk for chunk in chunks if len(chunk) >= BIG]
    assert [id(piece) for piece in pieces if any(piece is chunk for chunk in big)] == [id(chunk) for chunk in big]
    assert len(pieces) <= 2 * len(big) + 1


def test_names_of_peers():
    addresses = [("127.0.0.1", 80), ("::1", 80, 0, 0), "", None, "/run/stomp"]
    assert [name_of(each) for each in addresses] == ["127.0.0.1:80", "[::1]:80", "?", "?", "/run/stomp"]
