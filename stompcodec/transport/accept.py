"""The accepting of connections on an asyncio loop, also when the process runs out of file descriptors.

asyncio would log thousands of tracebacks per second then, and let clients hang. Here the last descriptors are reserved
for files: clients beyond that get a refusal and are closed.
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
from collections.abc import Callable

if sys.platform != "win32":
    import resource

log = logging.getLogger("stompcodec.transport")

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
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
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
