"""The proxy: accepts connections, connects each to the target, and carries bytes between them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
from dataclasses import dataclass
from ssl import SSLContext
from typing import TYPE_CHECKING

from stompcodec.broker.auth import Gate, is_loopback, own_names
from stompcodec.cli.proxying.faults import Faults
from stompcodec.cli.proxying.leg import Leg
from stompcodec.cli.proxying.link import KEEP_WHOLE, Link
from stompcodec.cli.proxying.observer import KEEP
from stompcodec.cli.proxying.watcher import Watcher
from stompcodec.transport.accept import bind, descriptor_limit
from stompcodec.transport.owner import name_of
from stompcodec.uri import Address

if TYPE_CHECKING:
    from stompcodec.cli.proxying.messages import Messages

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
    """A proxy between clients and a broker.

    Args:
        place: where to listen.
        target: the broker.
        watcher: gets what passes.
        faults: None for none.
        whole: whether frames with large bodies are kept, to be recorded.
        timeout: seconds to connect, and for handshakes.
    """

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
        """The address of the broker."""
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
        from stompcodec.cli.proxying.messages import Messages, place_of
        from stompcodec.transport.websocket import SUBPROTOCOLS

        address = self._target.address
        offered, headers = list(SUBPROTOCOLS), []
        if front.messages is not None:  # the broker decides about its pages, as without the proxy
            offered, headers = front.messages.offered, front.messages.passed_on()
        return Messages.client(place_of(address), offered, headers, address.tls)

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
