"""The transport for threads: a socket, and its end in all states.

One thread, the owner's, calls `SyncWire.poll` repeatedly, which waits, reads, writes and calls the owner. Other threads
may only call `Waker.wake`, which ends a waiting `poll`, so that the owner looks for new work. A thread that serves many
wires has one selector for all of them: `SyncWire.join` adds a wire to it, and `SyncWire.handle` replaces `poll`. It may
lend the reading to another thread, under a lock: `SyncWire.lend`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from stompcodec.arguments import checked, checks
from stompcodec.transport.http import Handshake
from stompcodec.transport.layers import Proxy, client_layer
from stompcodec.transport.owner import (
    BIG,
    HIGH,
    LINGER,
    LINGER_ROUNDS,
    LONGEST_WAIT,
    MOST_REPLIES,
    TIMEOUT,
    AskAgainError,
    CloseCodeError,
    Layer,
    Octets,
    Owner,
    Place,
    gather,
    name_of,
    read_buffer,
)

if TYPE_CHECKING:
    import ssl

__all__ = ["AHEAD", "READ", "Borrower", "SyncWire", "Waker", "connect"]
#: The event of a socket that has bytes, for `SyncWire.handle`.
READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE
#: The most bytes of a `read_ahead`.
AHEAD = 4096


def _bounded(timeout: float | None) -> float | None:
    return timeout if timeout is None else min(timeout, LONGEST_WAIT)


@checks()
class Waker:
    """An event that any thread can set to end the wait of another. One serves all connections of a client.

    >>> with Waker() as waker:
    ...     waker.wake()
    ...     waker.wait(10.0)
    True
    """

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)
        self._woken = False

    def __enter__(self) -> Waker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._here.fileno()

    def wake(self) -> None:
        """End the present wait, or the next one. Make the work visible before this call."""
        if not self._woken:
            try:
                # No call stands between these two, so that an interrupt cannot separate them.
                self._woken = True
                self._there.send(b"\0")
            except OSError:  # closed, or full, which wakes too
                pass

    def clear(self) -> None:
        """Reset the event. Look for work after this call."""
        with contextlib.suppress(BlockingIOError):
            while self._here.recv(4096):
                pass
        self._woken = False

    def wait(self, timeout: float | None) -> bool:
        """Wait without a wire; return whether it was woken.

        Args:
            timeout: the longest wait in seconds, at most a day; None for no limit.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._here, READ)
            woken = bool(selector.select(_bounded(timeout)))
        if woken:
            self.clear()
        return woken

    def close(self) -> None:
        """Close the descriptors."""
        self._here.close()
        self._there.close()


class Borrower(Protocol):
    """What watches a lent wire for bytes: a selector, or a `select.poll`.

    >>> borrower: Borrower = selectors.DefaultSelector()
    """

    def register(self, fileobj: socket.socket, events: int, /) -> object:
        """Watch a socket. `READ` is the only event."""

    def unregister(self, fileobj: socket.socket, /) -> object:
        """Watch it no more; KeyError if it was not watched."""


@checks("handle", "lend", "send_now", "settle", "write")
class SyncWire:
    """One connection, made by `connect`. One thread calls all its methods.

    After `close` or `abort` the owner receives no more bytes, and writes are dropped. Call `poll` until it returns
    False; then `lost` was called.

    >>> from stompcodec.uri import parse_uri
    >>> class Client:
    ...     def opened(self, wire):
    ...         wire.write([b"hello"])
    ...     def received(self, data):
    ...         print(bytes(data))
    ...     def writable(self, yes):
    ...         pass
    ...     def lost(self, error):
    ...         print("closed")
    >>> server = socket.create_server(("127.0.0.1", 0))
    >>> with Waker() as waker:
    ...     wire = connect(parse_uri("stomp://127.0.0.1:%d" % server.getsockname()[1])[0], Client(), waker=waker)
    ...     accepted, _ = server.accept()
    ...     sent = accepted.send(accepted.recv(100).upper())
    ...     accepted.close()
    ...     server.close()
    ...     while wire.poll():
    ...         pass
    b'HELLO'
    closed
    """

    def __init__(
        self, sock: socket.socket, owner: Owner, layer: Layer | None, place: Place, high: int, waker: Waker | None
    ) -> None:
        self.peer = name_of(sock.getpeername())
        """The address of the peer, such as "127.0.0.1:4711"."""
        self.secure = place.tls
        """True if the connection is encrypted by TLS."""
        self.whole_frames = place.websocket
        """True if each written chunk must be a whole frame, since WebSocket makes it a message."""
        self.text_only = place.sockjs
        """True if frames have to be UTF-8."""
        self.buffered = 0
        """Bytes that the kernel has not accepted yet."""
        self.room = read_buffer
        """Returns the buffer for the next read, if no layer is in between."""
        self._socket = sock
        self._owner: Owner | None = owner
        self._layer = layer
        self._high = high
        self._waker = waker
        self._output: deque[memoryview] = deque()
        self._sent: list[int] = []  # the bytes of a `send_now` whose chunks still have them
        self._full = False  # the owner was told to stop writing
        self._replies = 0  # bytes of replies since then
        self._paused = self._opened = self._closing = self._peer_done = False
        self._broken = False  # a write failed: bytes received before are still read, and nothing is written
        self._unread = 0  # the most bytes that the kernel can have received before
        self._dead = False  # the socket is closed; the next poll calls `lost`
        self._error: BaseException | None = None
        self._linger = LINGER
        self._rounds = self._waiting = 0
        self._deadline: float | None = None
        self._selector: selectors.BaseSelector | None = None  # made by the first `poll`, or given to `join`
        self._is_shared = False  # the selector has other wires, too
        self._label: object = None  # of this wire in a shared selector
        self._watched = 0
        self._borrower: Borrower | None = None  # watches for bytes instead
        self._ahead = bytearray()  # the buffer of `read_ahead`; made when it is first needed
        self.ahead: list[int] = []
        """How many bytes `read_ahead` has read that were not handled yet; 0 for the end of the stream."""

    def __repr__(self) -> str:
        return f"<SyncWire to {self.peer}{' closing' if self._closing else ''}>"

    def poll(self, timeout: float | None = None) -> bool:
        """Wait for bytes, for room to write or for the waker, and handle it. Return False once the connection is
        closed.

        Args:
            timeout: the longest wait in seconds, at most a day; None for no limit.
        """
        found = 0
        if not self._dead:
            selector = self._own_selector()
            self.watch()
            for key, what in selector.select(self._patience(timeout)):
                if isinstance(key.fileobj, Waker):
                    key.fileobj.clear()
                else:
                    found = what
        return self.handle(found)

    def join(self, selector: selectors.BaseSelector, label: object) -> None:
        """Have a selector of many wires watch this one from now on, instead of `poll`.

        `label` is the `data` of its key.
        The thread that runs the selector calls `handle` with the events, `watch` after other calls, and `abort`.
        """
        self._leave()
        self._selector, self._is_shared, self._label = selector, True, label
        self.watch()

    def handle(self, found: int) -> bool:
        """Read and write as the events of the selector allow. Return False once the connection is closed.

        Call it also, with 0, at the time of `deadline`.
        """
        if not self._dead:
            if found & _WRITE:
                self._flush()
            if self._is_held():
                self._take(self._layer, b"")  # type: ignore[arg-type]  # a held wire has a layer
            elif (found & READ or self._broken or self.ahead) and not self._dead:
                self._read()
            self._check_deadline()
        if not self._dead:
            self.watch()
            return True
        self._release()
        owner, self._owner = self._owner, None
        if owner is not None and self._opened:
            owner.lost(self._error)
        return False

    @property
    def deadline(self) -> float | None:
        """The time of the next call of `handle` if there are no events: the present one for now, None for never."""
        is_due = self._dead or self._broken or self.ahead or self._is_held()
        return time.monotonic() if is_due else self._deadline

    def watch(self) -> None:
        """Tell the selector which events matter now."""
        if self._dead or self._selector is None:
            return
        idle = self._paused or self._peer_done or self._broken or self._is_held()
        if idle or self._closing:
            self.give_back()
        wanted = (0 if idle or self._borrower is not None else READ) | (_WRITE if self.buffered else 0)
        if wanted == self._watched:
            return
        if not self._watched:
            self._selector.register(self._socket, wanted, self._label)
        elif not wanted:
            self._selector.unregister(self._socket)
        else:
            self._selector.modify(self._socket, wanted, self._label)
        self._watched = wanted

    @property
    def is_lent(self) -> bool:
        """True if another selector watches for bytes."""
        return self._borrower is not None

    def lend(self, selector: Borrower | None) -> None:
        """Have another selector watch for bytes, whose thread calls `read_now` or `read_ahead`; None takes the wire
        back.

        A wire with layers is not lent. One that is paused, closed or broken returns by itself, in `watch`.
        """
        self.give_back()
        if selector is not None and self._layer is None:
            with contextlib.suppress(OSError):  # the system's limit of watches
                selector.register(self._socket, READ)
                self._borrower = selector
        self.watch()

    def give_back(self) -> None:
        """End what `lend` began, in any thread, under a lock of the owner. The owner's thread has to call `watch`."""
        if self._borrower is not None:
            with contextlib.suppress(KeyError):  # an interrupt came between these two
                self._borrower.unregister(self._socket)
            self._borrower = None

    def read_ahead(self) -> bytes:
        """Read a few bytes, in the thread of the borrower and under a lock of the owner, and return them.

        `handle` hands them to the owner, unless the caller does what they ask for and empties `ahead`. An interrupt
        (Ctrl-C) inside it loses none. Nothing is returned if nothing was read, or at the end of the stream.
        """
        ahead = self.ahead
        if not ahead:
            if not self._ahead:
                self._ahead = bytearray(AHEAD)
            try:
                # Invariant: the number is noted, since no interrupt can come between `recv_into` and `extend`.
                ahead.extend(map(self._socket.recv_into, (self._ahead,)))
            except (BlockingIOError, InterruptedError):
                return b""
            except OSError as error:  # the kernel says it once; `handle` finds the end of the stream
                self._error = self._error or error
                return b""
        return bytes(self._ahead[: ahead[0]])

    def read_now(self) -> bool:
        """Read once, in the thread of the borrower and under a lock of the owner.

        Returns:
            False if the owner's thread has to call `handle`.
        """
        if self._borrower is not None and not (self._paused or self._closing or self._broken):
            try:
                self._read()
            except BaseException:  # Ctrl-C in the middle of a frame: what follows cannot be understood
                self._fail(ConnectionAbortedError("reading was interrupted"))
                raise
        return not (self._closing or self._broken)

    def write(self, chunks: list[bytes]) -> None:
        """Send as much as the kernel accepts now; `poll` sends the rest. Over WebSocket each chunk is a message."""
        if self._closing or self._broken:
            return
        if self._layer is None:
            self._put(chunks)
        else:
            self._layer.send(chunks)
            self._put(self._layer.take_output())
            if self._layer.error is not None:  # what was given cannot be sent
                self._fail(self._layer.error)

    def send_now(self, chunks: list[bytes]) -> bool:
        """Send as much of the chunks as the kernel accepts, and remove that from the list; return whether it was all.

        Other threads may call this, under a lock of the owner. Nothing is sent through layers, or past bytes that wait:
        what is left is for `write`, after `settle`. An interrupt (Ctrl-C) inside it neither loses nor repeats bytes.
        """
        if self._sent:
            self.settle(chunks)
        if self._layer is not None or self.buffered or self._closing or self._broken:
            return not chunks
        if len(chunks) > 1 and sum(map(len, chunks)) > BIG:
            return False
        try:
            # Invariant: what `send` returns is noted, since no interrupt can come between it and `extend`.
            self._sent.extend(map(self._socket.send, (b"".join(chunks),)))
        except OSError:  # no room, or the connection is lost, which the owner's thread will notice
            return False
        self.settle(chunks)
        return not chunks

    def settle(self, chunks: list[bytes]) -> None:
        """Remove from the chunks what an interrupted `send_now` has sent."""
        if self._sent:
            rest = b"".join(chunks)[self._sent[0] :]
            # No call stands between these two, so that an interrupt cannot separate them.
            chunks[:] = [rest] if rest else ()
            self._sent.clear()

    def pause_reading(self) -> None:
        """Stop reading. The owner may still receive bytes that were read before."""
        self._paused = True

    def resume_reading(self) -> None:
        """Read again."""
        self._paused = False

    def bound(self, octets: int) -> None:
        """Set the largest incomplete message in bytes, over WebSocket."""
        if self._layer is not None:
            self._layer.bound(octets)

    def split(self, pieces: str) -> None:
        """Cut large chunks from now on, over WebSocket: see `Layer.split`."""
        if self._layer is not None:
            self._layer.split(pieces)

    def close(self, linger: float = LINGER) -> None:
        """Send unwritten bytes, end our stream, and wait, in `poll`, for the end of the peer's.

        Args:
            linger: seconds after which a peer that has read nothing is cut off.
        """
        if self._closing:
            return
        if self._broken:
            self._die()
            return
        if self._layer is not None:
            self._layer.close()
            self._put(self._layer.take_output())
        self._closing = True
        self._paused = False
        self._linger, self._rounds, self._waiting = linger, LINGER_ROUNDS, self.buffered
        self._deadline = time.monotonic() + linger
        self._half_close()

    def abort(self) -> None:
        """Close at once. Unwritten bytes are dropped; the next `poll` or `handle` calls `lost`."""
        self._die()
        self._release()

    def let_go(self) -> None:
        """Close this process's descriptors without ending the connection, which another process still uses."""
        self._closing = self._dead = True
        self._borrower = None
        if self._is_shared:  # it is not this process's: to unregister would end the watch of the other one
            self._selector = None
        self._release()

    # ---- private ----
    def _own_selector(self) -> selectors.BaseSelector:
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            if self._waker is not None:
                self._selector.register(self._waker, READ)
        return self._selector

    def _is_held(self) -> bool:
        """Return whether the layer has more of what was read, which is handled in shares, so that others get theirs."""
        return self._layer is not None and self._layer.waiting and not self._closing

    def _leave(self) -> None:
        """Have the selector forget the socket; close it if it is this wire's own."""
        self.give_back()
        selector, self._selector = self._selector, None
        if selector is None:
            return
        if not self._is_shared:
            selector.close()
        elif self._watched:
            selector.unregister(self._socket)
        self._watched = 0

    def _die(self) -> None:
        """End the connection. The owner's thread closes the socket: others must not touch the selector."""
        self._closing = self._dead = True
        self._drop_output()
        # `close` alone tells the peer nothing while another thread polls the socket, which keeps it open.
        with contextlib.suppress(OSError):  # the peer may be gone already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _drop_output(self) -> None:
        self._output.clear()
        self.buffered = 0

    def _release(self) -> None:
        self._leave()
        self._socket.close()

    def _patience(self, timeout: float | None) -> float | None:
        until = self.deadline
        if until is None:
            return _bounded(timeout)
        left = max(0.0, until - time.monotonic())
        return _bounded(left if timeout is None else min(timeout, left))

    def _check_deadline(self) -> None:
        """Cut off a peer that has not closed in time, unless it has read something since the last check."""
        if self._dead or self._deadline is None or time.monotonic() < self._deadline:
            return
        if self.buffered and self.buffered < self._waiting and self._rounds > 1:
            self._rounds -= 1
            self._waiting = self.buffered
            self._deadline = time.monotonic() + self._linger
            return
        if self.buffered:
            self._fail(ConnectionAbortedError("the peer did not read what was sent"))
        self._die()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._die()

    def _break_off(self, error: BaseException) -> None:
        """Handle a failed write: the peer may have answered before it closed, so `handle` still reads that."""
        if self._closing:
            self._fail(error)
            return
        self._error, self._broken = self._error or error, True
        self._unread = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self._drop_output()

    def _read(self) -> None:
        view = self.room() if self._layer is None else read_buffer()
        failed: OSError | None = None
        try:
            if self.ahead:
                size, failed = self._read_behind(view)
            else:
                size = self._socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            if self._broken:
                self._die()
            return
        except OSError as error:
            self._fail(error)
            return
        if not size:
            self._end()
        elif not self._closing:
            with view[:size] as data:  # an owner that keeps it gets an error, not later bytes
                if self._layer is None:
                    self._owner.received(data)  # type: ignore[union-attr]
                else:
                    self._take(self._layer, data)
        if self._broken:
            self._unread -= size
            if self._unread <= 0:  # it is still sending
                self._die()
        if failed is not None and not self._dead:
            self._fail(failed)

    def _read_behind(self, view: memoryview) -> tuple[int, OSError | None]:
        """Return the size of one read: the bytes of `read_ahead`, and those behind them, which belong together."""
        size = self.ahead.pop()
        view[:size] = self._ahead[:size]
        try:
            return (size + self._socket.recv_into(view[size:])) if size else 0, None
        except (BlockingIOError, InterruptedError):
            return size, None
        except OSError as error:
            return size, error

    def _take(self, layer: Layer, data: Octets) -> None:
        pieces = layer.receive(data)
        output = layer.take_output()
        self._put(output)
        if self._full:
            self._replies += sum(map(len, output))
            if self._replies > MOST_REPLIES:
                self._fail(ConnectionAbortedError("the peer asks for replies that it does not read"))
        if layer.opened and not self._opened:
            self._open()
        for piece in pieces:
            if self._closing:
                break
            if piece and self._owner is not None:
                self._owner.received(piece)
        if layer.error is not None or layer.ended:
            # Its close code says more than a failed write.
            self._error = layer.error if isinstance(layer.error, CloseCodeError) else self._error or layer.error
            self.close()

    def _open(self) -> None:
        self._opened = True
        if self._owner is not None:
            self._owner.opened(self)

    def _end(self) -> None:
        """Handle the end of the peer's stream. Unwritten bytes are still sent."""
        self._peer_done = True
        self.close()
        self._half_close()

    def _put(self, chunks: list[bytes]) -> None:
        if self._dead or self._broken or not chunks:
            return
        pieces = gather(chunks)
        self._output.extend(map(memoryview, pieces))
        idle = not self.buffered
        self.buffered += sum(map(len, pieces))
        if idle:
            self._flush()
        if self.buffered > self._high and not self._full:
            self._full, self._replies = True, 0
            self._tell_writable(False)

    def _flush(self) -> None:
        output = self._output
        try:
            while output:
                sent = self._socket.send(output[0])
                self.buffered -= sent
                if sent == len(output[0]):
                    output.popleft()
                else:
                    output[0] = output[0][sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._break_off(error)
            return
        self._half_close()
        if self._full and self.buffered <= self._high // 4:
            self._full = False
            self._tell_writable(True)

    def _tell_writable(self, yes: bool) -> None:
        if self._owner is not None and self._opened and not self._closing:
            self._owner.writable(yes)

    def _half_close(self) -> None:
        """End our stream once all is sent."""
        if not self._closing or self.buffered or self._dead:
            return
        if self._peer_done:
            self._die()
            return
        with contextlib.suppress(OSError):  # the peer may be gone already
            self._socket.shutdown(socket.SHUT_WR)


@checked
def connect(
    address: Place,
    owner: Owner,
    *,
    ssl: ssl.SSLContext | None = None,
    timeout: float = TIMEOUT,
    high: int = HIGH,
    waker: Waker | None = None,
    proxy: Proxy | None = None,
    handshake: Handshake | None = None,
) -> SyncWire:
    """Connect, and do the handshakes of TLS and WebSocket. `owner.opened` is called before this returns.

    `SyncWire` has an example.

    Args:
        address: such as a `stompcodec.uri.Address`.
        owner: the receiver of bytes, called in this thread.
        ssl: the context for TLS; None for one that trusts the system's certificates.
        timeout: seconds for all of it but the search for the host name.
        high: unwritten bytes at which the owner is told to stop writing.
        waker: ends a `poll` from another thread; it stays open.
        proxy, handshake: the HTTP proxy to connect through; the HTTP headers.

    Raises:
        OSError: the connection or a handshake failed; TimeoutError if it took too long.
        MissingExtraError: the package for WebSocket is not installed.
    """
    deadline, first = time.monotonic() + timeout, address if proxy is None else proxy
    make_layer = client_layer(address, ssl, proxy, handshake or Handshake())
    while True:  # three times at most: see `Handshake`
        try:
            sock = _reach(first.host, first.port, deadline)
        except TimeoutError:
            raise TimeoutError(f"no connection to {first.host}:{first.port} in {timeout} s") from None
        wire = None
        try:
            layer = None if make_layer is None else make_layer()
            wire = SyncWire(sock, owner, layer, address, high, waker)
            _shake_hands(wire, layer, deadline)
            return wire
        except BaseException as error:
            sock.close() if wire is None else wire.abort()  # the peer may be gone already
            if not isinstance(error, AskAgainError):
                raise


def _reach(host: str, port: int, deadline: float) -> socket.socket:
    """Return a socket that is connected to the first address of the host that answers."""
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_bounded(max(0.001, deadline - time.monotonic())))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setblocking(False)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


def _shake_hands(wire: SyncWire, layer: Layer | None, deadline: float) -> None:
    if layer is None:
        wire._open()
        return
    layer.start()
    wire._put(layer.take_output())
    while not wire._opened:
        if wire._error is not None:
            raise wire._error
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the handshake with {wire.peer} took too long")
        if not wire.poll(left):
            raise wire._error or ConnectionResetError("the peer closed during the handshake")
