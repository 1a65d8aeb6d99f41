"""The sockets of a proxy: a leg for a peer, a link of two, and the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ssl import SSLContext
from typing import TYPE_CHECKING

from stompcodec.broker.auth import Gate, is_loopback, own_names
from stompcodec.cli.proxying.bytes import (
    DIRECTIONS,
    KEEP,
    Answer,
    Carrier,
    Chunk,
    Cut,
    Direction,
    Exchange,
    Faults,
    Pause,
    Step,
)
from stompcodec.cli.proxying.telling import Watcher
from stompcodec.testing.faults import Direction as ByteFaults
from stompcodec.testing.faults import Flow, hang_up
from stompcodec.transport.aio import bind, descriptor_limit
from stompcodec.transport.owner import MOST_REPLIES, name_of
from stompcodec.uri import Address

if TYPE_CHECKING:
    from stompcodec.cli.proxying.messages import Messages
    from stompcodec.transport.tls import TlsLayer

#: Bytes of a read, of which each takes a turn of the loop, and unwritten bytes at which writing waits.
READ, HIGH = 32 * 1024, 64 * 1024


class Leg:
    """One end of a connection. `tls` and `messages` are layers without I/O, set before their handshakes.

    >>> async def main():
    ...     leg = Leg(*await asyncio.open_connection("127.0.0.1", 61613))
    ...     await leg.write(Chunk(b"CONNECT\\naccept-version:1.2\\nhost:localhost\\n\\n\\0"))
    ...     return await leg.read()
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.tls: TlsLayer | None = None
        self.messages: Messages | None = None
        self._early: list[bytes] = []  # read together with the handshake of TLS
        self._pending: list[Chunk] = []  # the same of WebSocket
        self._closed = False
        writer.transport.set_write_buffer_limits(HIGH)
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @property
    def ended(self) -> bool:
        return self.messages is not None and self.messages.ended

    async def secure(self, layer: TlsLayer) -> None:
        """Do the handshake of TLS. Raise OSError if it fails."""
        self.tls = layer
        layer.start()
        self._flush(layer.take_output())
        while not layer.opened:
            data = await self._reader.read(READ)
            if not data:
                raise ConnectionResetError("closed during the handshake of TLS")
            self._early += layer.receive(data)
            self._flush(layer.take_output())
            if layer.error is not None:
                raise layer.error
        await self._writer.drain()

    async def open_messages(self, messages: Messages) -> None:
        """Do the handshake of WebSocket: read the client's request, or send one and read the answer.

        Raise OSError if it fails.
        """
        self.messages = messages
        self._put(messages.take_output())
        while messages.request is None and not messages.opened:
            data = await self._read_bytes()
            if not data:
                raise ConnectionResetError("closed during the handshake of WebSocket")
            self._pending += messages.receive(data)
            if messages.error is not None:
                self._put(messages.take_output())
                raise messages.error

    async def read(self) -> list[Chunk]:
        """Return the next chunks, or none at the end of the stream. Raise OSError if the connection is lost."""
        messages = self.messages
        if messages is None:
            data = await self._read_bytes()
            return [Chunk(data)] if data else []
        while not self._pending:
            if messages.ended or not (data := await self._read_bytes()):
                return []
            self._pending = messages.receive(data)
            output = messages.take_output()
            self._put(output)
            self._check_replies(output)
            if messages.error is not None:
                raise messages.error
        chunks, self._pending = self._pending, []
        return chunks

    async def _read_bytes(self) -> bytes:
        """Return the bytes above TLS."""
        layer = self.tls
        if layer is None:
            return await self._reader.read(READ)
        pieces, self._early = self._early, []
        while not pieces:
            if layer.ended:
                return b""
            if layer.error is not None:
                raise layer.error
            data = await self._reader.read(READ)
            if not data:
                return b""
            pieces = layer.receive(data)
            while layer.waiting:
                pieces += layer.receive(b"")
            output = layer.take_output()
            self._flush(output)
            self._check_replies(output)
        return b"".join(pieces)

    def _check_replies(self, output: list[bytes]) -> None:
        """Raise OSError if a peer that does not read causes more and more replies of a layer."""
        if output and self._writer.transport.get_write_buffer_size() > 2 * HIGH + MOST_REPLIES:
            raise ConnectionAbortedError("the peer asks for replies that it does not read")

    def flush_messages(self) -> None:
        if self.messages is not None:
            self._put(self.messages.take_output())

    def put(self, chunk: Chunk) -> None:
        if self._closed:
            return
        if self.messages is None:
            self._put([chunk.data])
        else:
            self.messages.send(chunk)
            self._put(self.messages.take_output())

    async def write(self, chunk: Chunk) -> None:
        """Write a chunk, and wait until the next one may be written. Raise OSError if the connection is lost."""
        self.put(chunk)
        await self._writer.drain()

    def _put(self, output: list[bytes]) -> None:
        if output and self.tls is not None:
            self.tls.send(output)
            output = self.tls.take_output()
        self._flush(output)

    def _flush(self, output: list[bytes]) -> None:
        if output and not self._writer.transport.is_closing():
            self._writer.writelines(output)

    def end(self, code: int | None = 1000, reason: str = "") -> None:
        if self._closed:
            return
        self._closed = True
        if self.messages is not None:
            self.messages.close(code, reason)
            self._put(self.messages.take_output())
            if not self.messages.ended:
                return  # the peer answers, and the end of the connection follows
        if self.tls is not None:
            self.tls.close()
            self._flush(self.tls.take_output())
        with contextlib.suppress(OSError, RuntimeError):  # the connection may be lost
            self._writer.write_eof()

    def abort(self, reset: bool = True) -> None:
        hang_up(self._writer, reset)

    async def close(self, seconds: float) -> None:
        """Close after all that was written, or after some seconds."""
        self.end()
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), seconds)
        except (TimeoutError, OSError):
            self._writer.transport.abort()


#: Bytes of a body that are kept if frames are recorded, or have faults.
KEEP_WHOLE = 16 * 2**20
#: Seconds for the rest of a connection of which one end is lost, or has closed its WebSocket.
_REST = 5.0
#: Seconds for a peer to read what was written before the end.
_LINGER = 2.0
#: Seconds between two looks at a direction that is held.
_NAP = 0.01


class Link:
    """A connection through the proxy, whose ends have done their handshakes. `keep` bytes of a body are kept."""

    def __init__(
        self, number: int, front: Leg, back: Leg, *, faults: Faults | None, watcher: Watcher, keep: int = KEEP
    ) -> None:
        self.number = number
        self._legs: dict[Direction, Leg] = {"client": front, "broker": back}
        self._faults = faults
        self._watcher = watcher
        self._exchange = Exchange(keep)
        self._over = asyncio.Event()
        self._reset: bool | None = None  # how it ends, if not by its peers
        self._trouble = ""

    async def run(self) -> str:
        """Carry bytes in both directions until both have ended. Return what went wrong, or ""."""
        pumps = [asyncio.ensure_future(self._pump(direction)) for direction in DIRECTIONS]
        over = asyncio.ensure_future(self._over.wait())
        try:
            while not over.done() and not all(pump.done() for pump in pumps):
                limit = _REST if self._is_ending(pumps) else None
                waiting = [over, *(pump for pump in pumps if not pump.done())]
                done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
        finally:
            for task in (*pumps, over):
                task.cancel()
            results = await asyncio.gather(*pumps, over, return_exceptions=True)
            for direction, side in self._exchange.sides.items():
                self._watcher.tally.foreign[direction] += side.foreign
            await self._close()
        for result in results[:2]:
            if isinstance(result, Exception):  # of the proxy itself
                raise result
        return self._trouble

    def _is_ending(self, pumps: Sequence[asyncio.Future[None]]) -> bool:
        """Return whether the rest may not take long: an end was lost, or has closed its WebSocket."""
        return any(pump.done() for pump in pumps) and (
            bool(self._trouble) or any(leg.ended for leg in self._legs.values())
        )

    def cut(self, reset: bool) -> None:
        self._reset = reset
        self._over.set()

    async def _close(self) -> None:
        if self._reset:
            for leg in self._legs.values():
                leg.abort()
            return
        await asyncio.gather(*(leg.close(_LINGER) for leg in self._legs.values()))

    # ---- one direction ----
    async def _pump(self, direction: Direction) -> None:
        source = self._legs[direction]
        target = self._legs["broker" if direction == "client" else "client"]
        carrier = Carrier(
            self._exchange,
            direction,
            faults=self._faults,
            framed=source.messages is None and target.messages is not None,
            tell=lambda side, event, faults: self._watcher.tell(self.number, side, event, faults),
        )
        flow = Flow(self.number, "up" if direction == "client" else "down", self._faults.seed if self._faults else 0)
        octets = self._watcher.tally.octets
        while True:
            try:
                chunks = await source.read()
            except OSError as error:
                self._lose(direction, error)
                self.cut(reset=True)
                return
            for chunk in chunks:
                octets[direction] += len(chunk.data)
                if not await self._do(carrier.take(chunk), source, target, flow, direction):
                    return
            if not chunks:
                break
            await asyncio.sleep(0)  # what is buffered would keep other connections waiting
        if await self._do(carrier.end(), source, target, flow, direction):
            target.end(*(source.messages.close_code if source.messages is not None else ()))

    def _lose(self, direction: Direction, error: OSError) -> None:
        who = "the client" if direction == "client" else "the broker"
        self._trouble = self._trouble or f"{who} was lost: {error.strerror or error}"

    async def _do(self, steps: list[Step], source: Leg, target: Leg, flow: Flow, direction: Direction) -> bool:
        """Do the steps in order. Return False if this direction has ended."""
        other: Direction = "broker" if direction == "client" else "client"
        for step in steps:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            if isinstance(step, Cut):
                self.cut(reset=False)
                return False
            try:
                if isinstance(step, Answer):
                    source.put(Chunk(step.data))
                    continue
                rules = None if self._faults is None else self._faults.bytes_of(direction)
                if rules is not None:
                    await self._disturb(step, target, rules, flow)
                else:
                    await target.write(step)
            except OSError as error:  # what the lost end has sent before is still carried
                self._lose(other, error)
                return False
            if self._over.is_set():
                return False
        return True

    async def _disturb(self, chunk: Chunk, target: Leg, rules: ByteFaults, flow: Flow) -> None:
        """Write a chunk with the faults of bytes."""
        assert self._faults is not None
        data = chunk.data
        while data and not self._over.is_set():
            if rules.hold:
                await asyncio.sleep(_NAP)
                continue
            size = flow.size(rules, len(data))
            piece, data = data[:size], data[size:]
            if size and rules.delay:
                await asyncio.sleep(rules.delay)
            if size and not rules.swallow:
                await target.write(Chunk(piece, chunk.kind, chunk.end and not data))
            if flow.left is not None and flow.left <= 0:
                self._watcher.say(self.number, "cut", f"cut after the bytes that {_text(rules)} allows")
                self.cut(reset=self._faults.rules.reset)


def _text(rules: ByteFaults) -> str:
    after = rules.cut_after
    return f"cut_after={after[0]}..{after[1]}" if isinstance(after, tuple) else f"cut_after={after}"


#: File descriptors that are left for others, and those of a connection: two sockets, and two files for each chain.
_SPARE, _EACH, _RECORDED = 64, 2, 6
#: Connections without a limit of descriptors.
_MOST = 10_000
log = logging.getLogger("stompcodec.proxy")


@dataclass(frozen=True)
class Place:
    """The address to listen on.

    >>> str(Place("::1", 61614, None, False)), str(Place("localhost", 15674, None, True))
    ('stomp://[::1]:61614', 'ws://localhost:15674')
    """

    host: str
    port: int
    """0 for any free port."""
    context: SSLContext | None
    """For TLS."""
    websocket: bool

    def __str__(self) -> str:
        scheme = ("ws" if self.websocket else "stomp") + ("" if self.context is None else "s")
        scheme = "stomp+ssl" if scheme == "stomps" else scheme
        return f"{scheme}://{name_of((self.host, self.port))}"


@dataclass(frozen=True)
class Target:
    """The broker."""

    address: Address
    context: SSLContext | None
    """For TLS."""


class Proxy:
    """A proxy between clients and a broker. `whole` keeps large bodies, to be recorded; `timeout` is in seconds."""

    def __init__(
        self,
        place: Place,
        target: Target,
        watcher: Watcher,
        *,
        faults: Faults | None = None,
        whole: bool = False,
        timeout: float = 10.0,
    ) -> None:
        self.place = place
        self._target = target
        self._watcher = watcher
        self._faults = faults
        self._keep = KEEP_WHOLE if whole or (faults is not None and faults.any_frames) else KEEP
        self._timeout = timeout
        self._servers: list[asyncio.AbstractServer] = []
        self._links: dict[asyncio.Task[None], Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        limit = descriptor_limit()
        each = _RECORDED if whole else _EACH
        self._most = _MOST if limit is None else max(1, min(_MOST, (limit - _SPARE) // each))
        self._gate: Gate | None = None

    @property
    def target(self) -> Address:
        return self._target.address

    async def start(self) -> None:
        """Listen. Raise OSError if that is not possible."""
        place = self.place
        sockets = await bind(place.host, place.port, 256)
        addresses = [str(each.getsockname()[0]) for each in sockets]
        self._gate = Gate(None, own_names(place.host), local=all(map(is_loopback, addresses)))
        self.place = Place(place.host, sockets[0].getsockname()[1], place.context, place.websocket)
        for each in sockets:
            self._servers.append(await asyncio.start_server(self._accept, sock=each))

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            if task in self._links:
                self._links[task].cut(reset=False)
            else:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- one connection ----
    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        tally = self._watcher.tally
        tally.connections += 1
        number = tally.connections
        front = Leg(reader, writer)
        peer = name_of(writer.get_extra_info("peername"))
        trouble = ""
        try:
            self._watcher.say(number, "opened", f"opened by {peer}")
            trouble = await self._serve(number, front, writer)
        except asyncio.CancelledError:
            front.abort(reset=False)
        except Exception as error:
            log.exception("connection %d", number)
            trouble = f"a fault of the proxy: {type(error).__name__}"
            front.abort()
        finally:
            self._tasks.discard(task)
            self._watcher.say(number, "closed", f"closed: {trouble}" if trouble else "closed")

    async def _serve(self, number: int, front: Leg, writer: asyncio.StreamWriter) -> str:
        """Connect a client to the target, and carry. Return what went wrong, or ""."""
        tally = self._watcher.tally
        if len(self._links) >= self._most:
            front.abort()
            tally.refused += 1
            return f"refused, since {self._most:,} connections are open"
        if self._faults is not None and self._faults.rules.refuse:
            front.abort()
            tally.refused += 1
            tally.faults["unreachable"] += 1
            return "reset by the fault unreachable"
        try:
            await asyncio.wait_for(self._meet(front), self._timeout)
        except (TimeoutError, OSError) as error:
            tally.refused += 1
            await front.close(1.0)
            return f"no handshake with the client: {_why(error)}"
        back: Leg | None = None
        try:
            back = await asyncio.wait_for(self._reach(front), self._timeout)
            await self._agree(front, back, str(writer.get_extra_info("sockname")[0]))
        except (TimeoutError, OSError) as error:
            tally.refused += 1
            await self._turn_away(front, back, error)
            return f"cannot connect to {self._target.address}: {_why(error)}"
        link = Link(number, front, back, faults=self._faults, watcher=self._watcher, keep=self._keep)
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = link
        try:
            return await link.run()
        finally:
            del self._links[task]

    async def _meet(self, front: Leg) -> None:
        """Do the client's handshakes, up to its request for WebSocket, which the broker answers."""
        if self.place.context is not None:
            from stompcodec.transport.tls import TlsLayer

            await front.secure(TlsLayer(self.place.context))
        if self.place.websocket:
            from stompcodec.cli.proxying.messages import Messages

            await front.open_messages(Messages.server())

    async def _reach(self, front: Leg) -> Leg:
        """Connect to the target, with its handshakes."""
        address = self._target.address
        back = Leg(*await asyncio.open_connection(address.host, address.port))
        try:
            if address.tls:
                from stompcodec.transport.tls import TlsLayer, client_context

                context = self._target.context or client_context()
                await back.secure(TlsLayer(context, server_hostname=address.host))
            if address.websocket:
                await back.open_messages(self._messages(front))
        except BaseException:
            back.abort(reset=False)
            raise
        return back

    def _messages(self, front: Leg) -> Messages:
        from stompcodec.cli.proxying.messages import Messages
        from stompcodec.transport.websocket import SUBPROTOCOLS

        address = self._target.address
        offered, headers = list(SUBPROTOCOLS), []
        if front.messages is not None:  # the broker decides about its pages, as without the proxy
            offered, headers = front.messages.offered, front.messages.passed_on()
        place = address.host, address.port, address.path
        return Messages.client(place, offered, headers, address.tls)

    async def _agree(self, front: Leg, back: Leg, address: str) -> None:
        """Accept the client's WebSocket, with what the broker has chosen."""
        messages = front.messages
        if messages is None:
            return
        from stompcodec.cli.proxying.messages import subprotocol_of

        chosen = subprotocol_of(messages.offered) if back.messages is None else back.messages.subprotocol
        refusal = messages.refusal(self._gate, address) if back.messages is None and self._gate is not None else None
        if refusal is not None:
            messages.refuse(403, refusal)
            raise ConnectionRefusedError(f"the request was refused: {refusal}")
        messages.accept(chosen)
        front.flush_messages()
        if messages.error is not None:
            raise messages.error

    async def _turn_away(self, front: Leg, back: Leg | None, error: Exception) -> None:
        if back is not None:
            back.abort(reset=False)
        if front.messages is not None:
            with contextlib.suppress(Exception):  # it may be refused already
                front.messages.refuse(502, f"The broker cannot be reached: {_why(error)}")
            front.flush_messages()
        await front.close(1.0)


def _why(error: BaseException) -> str:
    """Return the reason of a failure.

    >>> _why(OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 61613)"))
    'Connection refused'
    >>> _why(OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] …"))[:18]
    'Connection refused'
    """
    if isinstance(error, asyncio.TimeoutError) and not str(error):
        return "it takes too long"
    number = re.match(r"Multiple exceptions: \[Errno (\d+)\]", str(error))  # an address each
    if number is not None:
        return os.strerror(int(number[1]))
    if isinstance(error, OSError) and "Connect call failed" in str(error):
        return os.strerror(error.errno or errno.ECONNREFUSED)
    return str(getattr(error, "strerror", None) or error)
