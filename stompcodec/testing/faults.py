"""A TCP proxy with the faults of networks: it cuts, delays, splits, drops or stops bytes, and refuses connections.

`FaultProxy.rules` may be changed at any time, and takes effect at once for open connections too. Random numbers depend
only on the seed, the number of the connection and the direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stompcodec.arguments import checks

__tracebackhide__ = True  # pytest shows the test's line instead
#: Seconds for the thread to answer.
_PATIENCE = 30.0
_T = TypeVar("_T")


class LoopThread:
    """A running event loop in its own thread, until `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def running(cls, name: str, work: Coroutine[Any, Any, Any]) -> LoopThread:
        """Return a thread that has done some work; end it if that fails."""
        thread = cls(name)
        try:
            thread.run(work)
        except BaseException:
            thread.end()
            raise
        return thread

    @property
    def is_current(self) -> bool:
        """True if the caller is in this thread."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop, for at most 30 s, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop, and return its result."""

        async def work() -> _T:
            return function()

        result: _T = self.run(work())
        return result

    def end(self, work: Coroutine[Any, Any, Any] | None = None) -> None:
        """Do some work, stop the loop, and end the thread. The caller may be inside another loop, as in a notebook."""
        try:
            if work is not None:
                self.run(work)
        finally:
            self.run(self._loop.shutdown_asyncgens())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


_MOST = 65536  # the largest read in bytes
_NAP = 0.005  # seconds between two checks of a rule


@checks()
@dataclass
class Direction:
    """The faults of one direction.

    >>> Direction(piece=3, delay=0.001).swallow
    False
    """

    cut_after: int | tuple[int, int] | None = None
    """Forward this many bytes, counted from now, then cut the connection. A pair means a random number between them."""
    delay: float = 0.0
    """Seconds to wait before each piece; the next one is read afterwards."""
    piece: int | None = None
    """Forward pieces of random sizes up to this many bytes."""
    swallow: bool = False
    """Read and drop everything: silence, as from a peer behind a broken network."""
    hold: bool = False
    """Do not read, so that the sender's buffers fill up."""


@checks()
@dataclass
class Rules:
    """The faults of a proxy.

    >>> Rules(refuse=True).up.hold
    False
    """

    up: Direction = field(default_factory=Direction)
    """From clients to the server."""
    down: Direction = field(default_factory=Direction)
    """From the server to clients."""
    refuse: bool = False
    """Reset new connections."""
    reset: bool = True
    """True cuts by a reset (RST), False by an orderly end (FIN)."""


class _Link:
    """A connection through the proxy, with its two ends."""

    def __init__(self, number: int, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.number = number
        self.ends = (near, far)
        self.is_cut = False

    def cut(self, reset: bool) -> None:
        self.is_cut = True
        for writer in self.ends:
            hang_up(writer, reset)


class Flow:
    """The sizes of what is forwarded in one direction ("up" or "down") of a connection, with its random numbers, which
    depend on the number of the connection, the direction and the seed.
    """

    def __init__(self, number: int, name: str, seed: int) -> None:
        self.name = name
        self.left: int | None = None
        """Bytes until the cut."""
        self._roll = random.Random(f"{seed}/{number}/{name}")
        self._rule: int | tuple[int, int] | None = None

    def size(self, direction: Direction, waiting: int) -> int:
        """Return how many of the waiting bytes to forward next."""
        if direction.cut_after != self._rule:
            self._rule = direction.cut_after
            self.left = self._roll.randint(*self._rule) if isinstance(self._rule, tuple) else self._rule
        if direction.piece is not None:
            waiting = min(waiting, self._roll.randint(1, max(1, direction.piece)))
        if self.left is not None:
            waiting = min(waiting, max(0, self.left))
            self.left -= waiting
        return waiting


def hang_up(writer: asyncio.StreamWriter, reset: bool) -> None:
    """Close a connection at once, by a reset or without."""
    sock = writer.get_extra_info("socket")
    if reset and sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@checks()
class FaultProxy:
    """A proxy between clients and a server. `with` runs it in its own thread, `async with` in the running loop.

    Args:
        upstream: host and port of the server. The attribute may be changed, for later connections.
        seed: the seed of random numbers.
        port: the port to listen on; 0 for any free port.

    >>> with FaultProxy(("127.0.0.1", 61613)) as proxy:
    ...     proxy.rules.down.cut_after = (0, 20_000)
    ...     proxy.rules.up = Direction(piece=3, delay=0.001)
    ...     proxy.cut()
    0
    """

    host = "127.0.0.1"

    def __init__(self, upstream: tuple[str, int], *, seed: int = 0, port: int = 0) -> None:
        self.upstream = upstream
        self.seed = seed
        self.port = port
        self.rules = Rules()
        self.accepted = 0
        """Connections so far."""
        self.cuts = 0
        """Connections that were cut so far."""
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._thread: LoopThread | None = None

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def cut(self) -> int:
        """Cut all connections, from any thread. Return how many there were."""
        if self._thread is None or self._thread.is_current:
            return self._cut_all()
        return self._thread.call(self._cut_all)

    def _cut_all(self) -> int:
        links = list(self._links)
        for link in links:
            self._cut(link)
        return len(links)

    def _cut(self, link: _Link) -> None:
        if not link.is_cut:
            self.cuts += 1
            self._links.discard(link)
            link.cut(self.rules.reset)

    # ---- start and stop ----
    async def start(self) -> None:
        """Start listening, in the running loop."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut open connections, and stop listening."""
        assert self._server is not None
        self._server.close()
        self._cut_all()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(2):  # the loop closes aborted sockets in its next turns
            await asyncio.sleep(0)

    async def __aenter__(self) -> FaultProxy:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __enter__(self) -> FaultProxy:
        self._thread = LoopThread.running("fault-proxy", self.start())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._thread.end(self.stop())
        self._thread = None

    # ---- one connection ----
    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            self.accepted += 1
            if self.rules.refuse:
                hang_up(writer, True)
                return
            await self._carry(self.accepted, reader, writer)
        except OSError:
            hang_up(writer, True)
        except asyncio.CancelledError:
            hang_up(writer, False)  # stop() waits for this; some versions of Python log a cancelled handler
        finally:
            self._tasks.discard(task)

    async def _carry(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self.upstream)
        link = _Link(number, writer, far_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, Flow(number, "up", self.seed), reader, far_writer),
                self._pump(link, Flow(number, "down", self.seed), far_reader, writer),
            )
        finally:
            self._links.discard(link)
            for end in link.ends:
                end.close()
            for end in link.ends:
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, link: _Link, flow: Flow, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # so that drain waits until the kernel has everything
        try:
            while data := await reader.read(_MOST):
                await self._forward(link, flow, data, writer)
            if not link.is_cut and writer.can_write_eof():
                writer.write_eof()
        except OSError:
            if not link.is_cut:  # one end was reset: reset the other
                link.cut(True)

    async def _forward(self, link: _Link, flow: Flow, data: bytes, writer: asyncio.StreamWriter) -> None:
        while data and not link.is_cut:
            direction: Direction = getattr(self.rules, flow.name)
            if direction.hold:
                await asyncio.sleep(_NAP)
                continue
            size = flow.size(direction, len(data))
            if size and direction.delay:
                await asyncio.sleep(direction.delay)
            if size and not direction.swallow:
                writer.write(data[:size])
                await writer.drain()
            data = data[size:]
            if flow.left is not None and flow.left <= 0:
                self._cut(link)
