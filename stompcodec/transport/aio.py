"""The transport for asyncio, for servers: a wire and its layers, which share one state; `listen`, and accepting.

All connections of a thread read into one buffer, so that an idle one owns none. TLS and WebSocket are layers above the
socket (`stompcodec.transport.owner`), so that closing, lingering and back-pressure work the same for all.

Without file descriptors asyncio would log thousands of tracebacks per second, and let clients hang. Here the last
descriptors are reserved for files: clients beyond that get a refusal and are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from stompcodec.arguments import checked, checks
from stompcodec.transport.layers import server_layer
from stompcodec.transport.owner import (
    HIGH,
    LINGER,
    LINGER_ROUNDS,
    MOST_REPLIES,
    TIMEOUT,
    Admit,
    Layer,
    Octets,
    Owner,
    PlainRequest,
    Visitor,
    gather,
    name_of,
    read_buffer,
)

if TYPE_CHECKING:
    import ssl

if sys.platform != "win32":
    import resource

__all__ = ["Listener", "Owner", "Wire", "listen"]
log = logging.getLogger("stompcodec.transport")
#: The least bound of unsent bytes in the kernel.
_LEAST_UNSENT = 4096


@runtime_checkable
class Http(Protocol):
    """A layer that may have read a plain HTTP request."""

    request: PlainRequest | None


class Lobby(Protocol):
    """A place for the wires of a listener until their clients have logged in."""

    def enter(self, guest: Any) -> None:
        """Note a new wire."""

    def leave(self, guest: Any) -> None:
        """Note that a wire is lost."""


@dataclass(eq=False)
class _Plan:
    """The settings that the wires of one listener share."""

    make_owner: Callable[[], Owner]
    make_layer: Callable[[str], Layer] | None
    secure: bool
    whole_frames: bool
    high: int
    timeout: float
    pace: Callable[[Owner], None] | None = None
    note: Callable[[Owner, int], None] | None = None
    visits: Callable[[Wire], Visitor] | None = None
    lobby: Lobby | None = None
    #: The buffer that all wires read into.
    view: memoryview = field(default_factory=read_buffer)
    opening: set[Wire] = field(default_factory=set)

    def __call__(self) -> Wire:
        return Wire(self)


@checks("buffer_updated", "connection_lost", "connection_made", "get_buffer", "write")
class Wire(asyncio.BufferedProtocol):
    """One connection. `listen` makes it, and passes it to `Owner.opened`.

    After `close` or `abort` the owner receives no more bytes, and writes are dropped; `lost` is still called.

    >>> class Shout:
    ...     def opened(self, wire):
    ...         self.wire = wire
    ...     def received(self, data):
    ...         self.wire.write([bytes(data).upper()])
    ...     def writable(self, yes):
    ...         pass
    ...     def lost(self, error):
    ...         pass
    >>> async def main():
    ...     listener = await listen("127.0.0.1", 0, Shout)
    ...     reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    ...     writer.write(b"hello")
    ...     data = await reader.read(5)
    ...     writer.close()
    ...     listener.close()
    ...     return data
    >>> asyncio.run(main())
    b'HELLO'
    """

    __slots__ = (
        *("_closing", "_deaf", "_eof", "_error", "_gone", "_held", "_layer", "_noted", "_owner", "_paused", "_plan"),
        *("_replies", "_timer", "_transport", "_visitor", "handshake", "peer"),
    )

    peer: str
    """The address of the peer, such as "127.0.0.1:4711"."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._layer: Layer | None = None
        self._noted = 0
        self._owner: Owner | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._closing = False
        self._paused = False  # the owner has paused reading
        self._held = False  # the layer has not returned all that was read
        self._deaf = False  # the owner receives no more bytes, though the wire is not closing
        self._eof = False  # the peer's stream has ended, but the layer still has bytes
        self._gone: BaseException | bool | None = None  # the same for a lost transport: its error, or True
        self._replies = -1  # bytes of replies since the peer stopped reading; -1: it reads
        self._transport: asyncio.Transport
        self._visitor: Visitor | None = None
        self.handshake: Sequence[tuple[str, str]] = ()
        """The headers of the WebSocket handshake, while the owner is told that it is opened."""
        self.peer = "?"

    def __repr__(self) -> str:
        return f"<Wire to {self.peer}{' closing' if self._closing else ''}>"

    @property
    def owner(self) -> Owner | None:
        """The owner; None before the handshakes are done, and once the wire is lost."""
        return self._owner

    @property
    def secure(self) -> bool:
        """True if the connection is encrypted by TLS."""
        return self._plan.secure

    @property
    def whole_frames(self) -> bool:
        """True if each written chunk must be a whole frame, since WebSocket makes it a message."""
        return self._plan.whole_frames

    @property
    def buffered(self) -> int:
        """Bytes that the kernel has not accepted yet."""
        return self._transport.get_write_buffer_size()

    def write(self, chunks: list[bytes]) -> None:
        """Send chunks, in one call of the transport unless they are big. Over WebSocket each is a message."""
        if self._closing or self._transport.is_closing():
            return
        if self._layer is None:
            self._put(chunks)
        else:
            self._layer.send(chunks)
            self._put(self._layer.take_output())

    def pause_reading(self) -> None:
        """Stop reading. The owner may still receive bytes that were read before."""
        if not self._closing:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if not self._closing and not self._deaf:
            self._paused = False
            if not self._held:
                self._transport.resume_reading()

    def go_on(self) -> None:
        """Pass the next share of the read bytes to the owner. Called in the owner's turn: see `pace` of `listen`."""
        if self._layer is not None and self._held and not self._closing:
            self._receive(self._layer, b"")

    def discard(self) -> None:
        """Stop receiving, and drop the bytes that the layers keep. Writing still works."""
        if self._closing or self._deaf:
            return
        self._deaf = True
        self._held = False
        self._transport.pause_reading()
        if self._layer is not None:
            self._layer.discard()

    def bound(self, octets: int) -> None:
        """Set the largest incomplete message in bytes, over WebSocket."""
        if self._layer is not None:
            self._layer.bound(octets)

    def bound_unsent(self, octets: int) -> None:
        """Let at most about so many unsent bytes wait in the transport before its owner stops writing, and as many more
        in the kernel. Bytes that the network or the peer's kernel has are not counted where the system allows it.
        """
        self._transport.set_write_buffer_limits(octets)
        sock = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            bound_unsent(sock, octets)

    def respond(self, octets: bytes) -> None:
        """Answer a plain HTTP request, and close the connection once that is written."""
        if not self._closing:
            self._put([octets])
            self.close()

    def close(self, linger: float = LINGER, *, drain: float = 0.0) -> None:
        """Send unwritten bytes, end our stream, and wait for the end of the peer's.

        Args:
            linger: seconds after which a peer that has read nothing is cut off.
            drain: seconds for which a peer with unwritten bytes may read nothing.
        """
        if self._closing:
            return
        self._closing = True
        transport = self._transport
        if self._gone is not None:  # not now: the owner may be in the middle of a call
            asyncio.get_running_loop().call_soon(self._lose)
            return
        if self._layer is not None:
            self._layer.close()
            self._put(self._layer.take_output())
            self._drop_layer()
        if not transport.is_closing():
            transport.resume_reading()  # unread bytes would turn our close into a reset
            with contextlib.suppress(OSError):  # the peer may be gone: connection_lost is called then
                transport.write_eof()
        until = asyncio.get_running_loop().time() + drain
        self._set_timer(linger, self._linger, linger, LINGER_ROUNDS, self.buffered, until)

    def abort(self) -> None:
        """Close at once. Unwritten bytes are dropped."""
        self._closing = True
        if self._gone is not None:
            asyncio.get_running_loop().call_soon(self._lose)
        elif self._owner is not None or self._timer is not None:  # else it is lost: asyncio's transport may fail then
            self._transport.abort()

    # ---- called by the loop ----
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = name_of(transport.get_extra_info("peername"))
        plan = self._plan
        self._transport.set_write_buffer_limits(plan.high)
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # detects a peer that vanished
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if plan.lobby is not None:
            plan.lobby.enter(self)
        if plan.make_layer is None:
            self._open()
            return
        plan.opening.add(self)
        self._set_timer(plan.timeout, self._too_slow)
        self._layer = plan.make_layer(_host_of(transport.get_extra_info("sockname")))
        self._layer.start()
        self._put(self._layer.take_output())
        if plan.visits is not None:
            self._visitor = plan.visits(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._plan.view

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        with self._plan.view[:nbytes] as data:  # an owner that keeps it gets an error, not another connection's bytes
            if self._layer is None:
                self._owner.received(data)  # type: ignore[union-attr]
            else:
                self._receive(self._layer, data)

    def eof_received(self) -> bool:
        if self._closing:
            return False  # the transport closes once all is written, within _linger
        asyncio.get_running_loop().call_soon(self._end)  # later, so that replies to the last bytes are written first
        return True

    def pause_writing(self) -> None:
        self._replies = 0
        if self._owner is not None and not self._closing:
            self._owner.writable(False)

    def resume_writing(self) -> None:
        self._replies = -1
        if self._owner is not None and not self._closing:
            self._owner.writable(True)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._held and not self._closing and self._owner is not None:
            self._gone = exc or True  # the owner still gets the bytes that were read
        else:
            self._lose(exc)

    # ---- private ----
    def _lose(self, exc: BaseException | None = None) -> None:
        if isinstance(self._gone, BaseException):
            exc = self._gone
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop_layer()
        error = self._error or exc
        owner, self._owner = self._owner, None
        self._leave_visitor()
        if self._plan.lobby is not None:
            self._plan.lobby.leave(self)
        if owner is not None:
            owner.lost(error)
        else:
            self._not_opened(error)

    def _drop_layer(self) -> None:
        """Drop the layer, and the incomplete frame that it may keep."""
        layer, self._layer = self._layer, None
        if layer is not None:
            layer.discard()  # a layer may be part of a cycle, and outlive this until a garbage collection

    def _open(self) -> None:
        plan = self._plan
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        plan.opening.discard(self)
        self._leave_visitor()
        self._owner = plan.make_owner()
        take = getattr(self._layer, "take_handshake", None)
        self.handshake = () if take is None else take()
        self._owner.opened(self)
        self.handshake = ()

    def _leave_visitor(self) -> None:
        visitor, self._visitor = self._visitor, None
        if visitor is not None:
            visitor.gone()

    def _not_opened(self, error: BaseException | None) -> None:
        plan = self._plan
        if self in plan.opening:
            plan.opening.discard(self)
            error = error or ConnectionResetError("closed during the handshake")
            log.info("%s: no connection: %s", self.peer, error)

    def _end(self) -> None:
        if self._held and not self._closing:
            self._eof = True
            return
        self.close()
        self._transport.close()

    def _receive(self, layer: Layer, data: Octets) -> None:
        if self._deaf:
            return
        pieces = layer.receive(data)
        self._reply(layer)
        if self._owner is None:
            if layer.opened:
                self._open()
            elif self._visitor is not None:
                request = layer.request if isinstance(layer, Http) else None
                if request is not None and self._visitor is not None and not self._closing:
                    self._plan.opening.discard(self)  # it need not be in time: its visitor answers or closes
                    self._visitor.asked(request)
        if self._plan.note is not None and self._owner is not None and layer.buffered != self._noted:
            self._tell(self._plan.note, self._owner, layer.buffered)
        if len(pieces) > 1 and self._plan.pace is not None:
            pieces = [b"".join(pieces)]  # one share of the owner's time for all messages
        for piece in pieces:
            if self._closing:
                break
            if piece and self._owner is not None:
                self._owner.received(piece)
        if layer.error is not None or layer.ended:
            self._error = self._error or layer.error
            if self._owner is None:
                self._not_opened(self._error)
            self.close()
        elif (layer.waiting or self._held) and not self._deaf:
            self._hold(layer.waiting)

    def _tell(self, note: Callable[[Owner, int], None], owner: Owner, buffered: int) -> None:
        """Tell the owner how many bytes the layer keeps, before it receives those that the layer returned."""
        self._noted = buffered
        note(owner, buffered)

    def _hold(self, waiting: bool) -> None:
        """Pause reading until the layer has returned all that was read, or resume it."""
        if self._closing:
            return
        if waiting:
            if not self._held:
                self._held = True
                self._transport.pause_reading()
            if self._plan.pace is None or self._owner is None:
                asyncio.get_running_loop().call_soon(self.go_on)
            else:
                self._plan.pace(self._owner)
            return
        self._held = False
        if self._gone is not None:
            self._lose()
        elif self._eof:
            self._end()
        elif not self._paused:
            self._transport.resume_reading()

    def _reply(self, layer: Layer) -> None:
        """Send replies of the layer itself. A peer that causes many without reading them is cut off."""
        output = layer.take_output()
        if not output or self._transport.is_closing():
            return
        self._put(output)
        if self._replies >= 0:
            self._replies += sum(map(len, output))
            if self._replies > MOST_REPLIES:
                self._error = ConnectionAbortedError("the peer asks for replies that it does not read")
                self.abort()

    def _put(self, chunks: list[bytes]) -> None:
        for chunk in gather(chunks):
            self._transport.write(chunk)

    def _set_timer(self, delay: float, then: Callable[..., None], *arguments: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, then, *arguments)

    def _too_slow(self) -> None:
        self._error = TimeoutError(f"the handshake took longer than {self._plan.timeout} s")
        self.abort()

    def _linger(self, linger: float, rounds: int, waiting: int, until: float) -> None:
        """Cut off a peer that has not closed, unless it has read something since the last call."""
        left = self.buffered
        if left and ((left < waiting and rounds > 1) or asyncio.get_running_loop().time() < until):
            self._set_timer(linger, self._linger, linger, rounds - 1, left, until)
            return
        if left and self._error is None:
            self._error = ConnectionAbortedError("the peer did not read what was sent")
        self._transport.abort()


@checks()
class Listener:
    """A listening server, made by `listen`. `Wire` has an example."""

    def __init__(
        self, server: Acceptor | asyncio.AbstractServer, plan: _Plan, port: int, addresses: Sequence[str]
    ) -> None:
        self._server = server
        self._plan = plan
        self.addresses = addresses
        """The addresses on which it listens."""
        self.port = port
        """The port; the actual one if 0 was given."""

    def read_at_most(self, octets: int | None) -> None:
        """Set the largest read in bytes; None for the default."""
        self._plan.view = read_buffer()[:octets]

    def close(self) -> None:
        """Stop accepting, and abort connections whose handshakes are not done. Open wires stay open."""
        self._server.close()
        for wire in list(self._plan.opening):
            wire.abort()

    async def wait_closed(self) -> None:
        """Wait until the port is free."""
        # The wait_closed of the server waits for open wires in some versions of Python, and for nothing in others.
        for _ in range(2):
            await asyncio.sleep(0)


@checked
async def listen(
    host: str | None,
    port: int,
    make_owner: Callable[[], Owner],
    *,
    ssl: ssl.SSLContext | None = None,
    websocket: bool = False,
    path: str | None = None,
    max_message: int = 128 * 2**20,
    backlog: int = 1024,
    high: int = HIGH,
    timeout: float = TIMEOUT,
    pace: Callable[[Owner], None] | None = None,
    admit: Admit | None = None,
    refusal: bytes = b"",
    note: Callable[[Owner, int], None] | None = None,
    visits: Callable[[Wire], Visitor] | None = None,
    lobby: Lobby | None = None,
) -> Listener:
    """Accept connections. `Wire` has an example.

    Args:
        host, port: the address to listen on (None: all of this machine), and the port (0: any).
        make_owner: called for each connection once its handshakes are done.
        ssl, websocket: speak TLS, speak WebSocket; `path` is the only one served (None: any), `max_message` its bytes.
        backlog: connections that the kernel keeps until they are accepted.
        high: unwritten bytes at which an owner is told to stop writing.
        timeout: seconds for the handshakes of TLS and WebSocket.
        pace: called with an owner that has used up its share of the loop before all that was read was handed over. It
            calls `go_on` of its wire in its next turn, and gets the share as one piece. None: a share in each turn.
        admit: over WebSocket, called with each request; requests that it refuses get 403. It must not raise.
        refusal: bytes for a client that cannot be served for lack of file descriptors, before it is closed.
        visits: over WebSocket without TLS, called with each new wire: its result gets plain HTTP requests.
        lobby: told of each new wire, and of each that is lost. It may abort wires.
        note: called with an owner and the bytes that its layers keep, whenever that number has changed.

    Raises:
        OSError: the port is not available.
        MissingExtraError: WebSocket needs a package that is not installed.
    """
    make_layer = server_layer(ssl, websocket, max_message, path, admit, visits is not None)
    plan = _Plan(make_owner, make_layer, ssl is not None, websocket, high, timeout, pace, note, visits, lobby)
    loop, sockets = asyncio.get_running_loop(), await bind(host, port, backlog)
    port, addresses = sockets[0].getsockname()[1], [each.getsockname()[0] for each in sockets]
    try:
        return Listener(Acceptor(loop, sockets, plan, refusal), plan, port, addresses)
    except NotImplementedError:  # the usual loop of Windows has no readers
        for each in sockets:
            each.close()
        return Listener(await loop.create_server(plan, host, port, backlog=backlog), plan, port, addresses)


def bound_unsent(sock: socket.socket, octets: int) -> None:
    """Bound the unsent bytes in the kernel. Raise OSError if the system refuses it.

    On Linux the buffer still grows with the link, so that a long one stays fast. Elsewhere the option would not stop
    writes, so the send buffer gets a fixed size, for bytes under way, too: three times as many, which is less slow.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, max(octets, _LEAST_UNSENT))
            return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(3 * octets, _LEAST_UNSENT))


def _host_of(address: object) -> str:
    return str(address[0]) if isinstance(address, tuple) else ""


# ---- accepting, also without file descriptors ----
#: Connections accepted in one go, before the loop continues.
_EACH = 64
#: The least and the most reserved descriptors; in between, a sixteenth of all.
_LEAST, _MOST = 16, 64
#: Seconds in which at most `_EACH` clients are refused, and seconds between two lines in the log.
_PAUSE, _SILENCE = 0.1, 1.0
#: Seconds for a client to read the refusal.
_FAREWELL = 1.0
#: Errors of accept without descriptors, in the process or the system, or without memory.
_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """An acceptor of connections on listening sockets, which `close` closes. `factory` makes the protocol of each
    connection. Clients that cannot be served get the bytes of `refusal`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        refusal: bytes,
    ) -> None:
        self._loop = loop
        self.sockets = sockets
        self._factory = factory
        self._refusal = refusal
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        #: The start of a period, and the clients refused since.
        self._since, self._refused = loop.time(), 0
        self._spare = _spare()
        for each in sockets:
            loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop accepting. Open connections stay open."""
        if self._closed:
            return
        self._closed = True
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        for leaving in [each for each in _leaving if each[0] is self]:
            self._end(leaving)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _accept(self, listening: socket.socket) -> None:
        limit = descriptor_limit()
        reserve = reserve_of(limit) if limit is not None else 0
        refused = 0
        for _ in range(_EACH):
            try:
                accepted, _address = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno not in _NONE_LEFT:  # the client is gone already
                    continue
                if self._refuse_by_spare(listening):
                    refused += 1
                    continue
                if self._spare is None:
                    _tell(0, limit)
                    self._back_off(listening, _EACH)
                    return
                break
            accepted.setblocking(False)
            if limit is not None and accepted.fileno() >= limit - reserve:
                self._refuse(accepted, reserve // 4)
                refused += 1
                continue
            task = self._loop.create_task(self._serve(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if refused:
            _tell(refused, limit)
            self._back_off(listening, refused)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError as error:  # the client has gone already
            log.info("a connection was lost at once: %s", error)
            accepted.close()

    # ---- without descriptors ----
    def _refuse(self, accepted: socket.socket, most: int) -> None:
        """Send the refusal, and close the client later: unread bytes would turn an immediate close into a reset."""
        self._say(accepted)
        leaving = (self, accepted)
        _leaving.append(leaving)
        if len(_leaving) > most:
            self._end(_leaving[0])
        self._loop.call_later(_FAREWELL, self._end, leaving)

    def _end(self, leaving: tuple[Acceptor, socket.socket]) -> None:
        with contextlib.suppress(ValueError):
            _leaving.remove(leaving)
            leaving[1].close()

    def _refuse_by_spare(self, listening: socket.socket) -> bool:
        """Refuse one client with the spare descriptor. Return False without a spare one or a client.

        Without descriptors, Linux reports that error even if no client is connecting.
        """
        if self._spare is None:
            return False
        os.close(self._spare)
        try:
            accepted, _address = listening.accept()
        except OSError:
            return False
        else:
            accepted.setblocking(False)
            self._say(accepted)
            accepted.close()
            return True
        finally:
            self._spare = _spare()

    def _say(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._refusal:
                accepted.send(self._refusal)
            accepted.shutdown(socket.SHUT_WR)
            accepted.recv(65536)

    def _back_off(self, listening: socket.socket, refused: int) -> None:
        """Stop accepting for a moment if many clients were refused within a short time."""
        now = self._loop.time()
        if now - self._since > _PAUSE:
            self._since, self._refused = now, 0
        self._refused += refused
        if self._refused >= _EACH:
            self._loop.remove_reader(listening)
            self._loop.call_later(_PAUSE, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if self._closed:
            return
        if self._spare is None:
            self._spare = _spare()
        self._loop.add_reader(listening, self._accept, listening)


async def bind(host: str | None, port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host (None: of this machine), on the same port (0: any free
    one).

    `backlog` is the number of connections that the kernel keeps until they are accepted. Raise OSError if the port is
    in use or not allowed, or the host has no address here.
    """
    flags = socket.AI_PASSIVE
    try:  # an address needs no look-up in a thread
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        except socket.gaierror as error:
            raise OSError(error.errno, f"cannot listen at {host}: {error.strerror}") from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(found):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError:  # the system has no such addresses
                continue
            sockets.append(each)
            each.setblocking(False)
            if os.name == "posix":
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            at = (address[0], port, *address[2:])
            try:
                each.bind(at)
                each.listen(backlog)
            except OSError as error:
                raise OSError(error.errno, f"cannot listen at {at[0]} port {port}: {error.strerror}") from None
            port = each.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} has no address to listen at")
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def _spare() -> int | None:
    """Open a descriptor to have one to spare."""
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None


def descriptor_limit() -> int | None:
    """Return the largest number of file descriptors of this process; None for no limit."""
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def reserve_of(limit: int) -> int:
    """Return how many of `limit` file descriptors are not for clients.

    >>> reserve_of(300), reserve_of(1024)
    (18, 64)
    """
    return max(_LEAST, min(_MOST, limit // 16))


#: Refused clients of all listeners that are not closed yet.
_leaving: deque[tuple[Acceptor, socket.socket]] = deque()
#: The time of the last line in the log, by any listener, and the clients refused since.
_told_at, _refused = -_SILENCE, 0


def _tell(count: int, limit: int | None) -> None:
    global _refused, _told_at
    _refused += count
    now = time.monotonic()
    if now - _told_at < _SILENCE:
        return
    many = "no file descriptor is left" if limit is None else f"no more connections, with {limit} file descriptors"
    log.warning("%s: %d refused (raise the limit: ulimit -n, or LimitNOFILE= of systemd)", many, _refused)
    _told_at, _refused = now, 0
