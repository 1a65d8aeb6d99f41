"""A broker that runs already, by its URLs: `rabbitmq=stomp://guest:guest@host:61613/vhost`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from interop.brokers import RABBITMQ_LACKS, server_of
from interop.driver import Target
from interop.peer_brokers import ARTEMIS_LACKS

__all__ = ["BadAddress", "Relay", "Running", "kind_of", "named"]

#: Scheme -> port and whether it is TLS.
_TCP = {"stomp": (61613, False), "tcp": (61613, False), "stomp+ssl": (61614, True), "stomps": (61614, True)}
_WEBSOCKET = ("ws", "wss")
_SECONDS = 15.0
#: Beginning of the server header, in lower case -> what is known about such brokers.
_KINDS = {
    "rabbitmq": {"lacks": RABBITMQ_LACKS},
    "activemq-artemis": {"nack": "dropped", "marks": False, "lacks": ARTEMIS_LACKS},
    "apache-activemq-artemis": {"nack": "dropped", "marks": False, "lacks": ARTEMIS_LACKS},
    "activemq": {"nack": "/queue/ActiveMQ.DLQ", "headers": (("activemq.prefetchSize", "100"),)},
    "stompcodec": {},
}
_NAMES = {"activemq-artemis": "artemis", "apache-activemq-artemis": "artemis"}


class BadAddress(ValueError):
    """A `NAME=URL` that cannot be used. Its text shows no passcode."""


def named(texts: list[str]) -> dict[str, Running]:
    """The brokers in `NAME=URL` texts; a name may have one URL of TCP or TLS and one of WebSocket.

    Raises:
        BadAddress: a text is not NAME=URL, or names something twice.

    >>> named(["a=stomp://u:p@h", "a=ws://h/ws", "b=stomp+ssl://h:1/v"])["a"].title
    'a'
    >>> named(["a=http://u:p@h"])
    Traceback (most recent call last):
    ...
    interop.running.BadAddress: a: the scheme is one of stomp, tcp, stomp+ssl, stomps, ws, wss, not 'http'
    """
    found: dict[str, Running] = {}
    for text in texts:
        name, _, url = text.partition("=")
        if not name or not url:
            raise BadAddress("a broker is NAME=URL, as in rabbitmq=stomp://guest:guest@localhost:61613/")
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise BadAddress(f"{name}: the URL cannot be read") from None
        if parts.scheme not in (*_TCP, *_WEBSOCKET):
            schemes = ", ".join((*_TCP, *_WEBSOCKET))
            raise BadAddress(f"{name}: the scheme is one of {schemes}, not {parts.scheme!r}")
        if not parts.hostname:
            raise BadAddress(f"{name}: the URL has no host")
        if parts.query or parts.fragment:
            raise BadAddress(f"{name}: the URL has a query or a fragment, which mean nothing here")
        found.setdefault(name, Running(name)).add(parts)
    for name, broker in found.items():
        if broker.tcp is None:
            raise BadAddress(f"{name}: a URL of TCP or TLS is missing, as in {name}=stomp://host:61613")
    return found


class Address(NamedTuple):
    """What a URL of TCP or TLS says."""

    host: str
    port: int
    tls: bool
    login: str | None
    passcode: str
    vhost: str


class Running:
    """A broker that runs already. As the brokers that are started here: enter it for its `Target`."""

    missing = ""
    #: Seconds in which it may still be starting.
    wait = 0.0

    def __init__(self, name: str) -> None:
        self.name = self.title = name
        self.tcp: Address | None = None
        self.websocket = ""
        self._stack = contextlib.ExitStack()

    def add(self, parts: SplitResult) -> None:
        """Take one more URL."""
        if parts.scheme in _WEBSOCKET:
            if self.websocket:
                raise BadAddress(f"{self.name}: two URLs of WebSocket")
            host = parts.netloc.rpartition("@")[2]  # the login is that of the other URL
            self.websocket = f"{parts.scheme}://{host}{parts.path or '/'}"
            return
        if self.tcp is not None:
            raise BadAddress(f"{self.name}: two URLs of TCP or TLS")
        port, tls = _TCP[parts.scheme]
        login = None if parts.username is None else unquote(parts.username)
        vhost = unquote(parts.path[1:]) or "/"
        self.tcp = Address(parts.hostname or "", parts.port or port, tls, login, unquote(parts.password or ""), vhost)

    def __enter__(self) -> Target:
        """Connect once, and say what is known about a broker of its kind.

        Raises:
            OSError: it does not answer, refuses the login, or its certificate is not trusted.
        """
        give_up = time.monotonic() + self.wait
        while True:
            try:
                return self._connect()
            except OSError:
                if time.monotonic() >= give_up:
                    raise
                time.sleep(1.0)

    def _connect(self) -> Target:
        assert self.tcp is not None
        with contextlib.ExitStack() as stack:
            host, port = self.tcp.host, self.tcp.port
            if self.tcp.tls:  # the clients of other people would each want it in another way
                with socket.create_connection((host, port), _SECONDS) as plain, _secured(plain, host):
                    pass
                relay = stack.enter_context(Relay(host, port))
                host, port = "127.0.0.1", relay.port
            login, passcode = ("guest", "guest") if self.tcp.login is None else (self.tcp.login, self.tcp.passcode)
            target = Target(self.name, host, port, self.websocket, login, passcode, self.tcp.vhost)
            server = server_of(target)
            kind = kind_of(server) or kind_of(self.name)
            refuses = None if self.tcp.login is None else (host, port, self.websocket)
            self._stack = stack.pop_all()
            known = _KINDS.get(kind, {})
            return target._replace(name=_NAMES.get(kind, kind) or self.name, refuses=refuses, **known)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def kind_of(text: str) -> str:
    """The key of `_KINDS` that a server header or a name begins with; "" for none."""
    folded = text.lower().replace(" ", "-").replace("_", "-")
    folded = f"activemq-{folded}" if folded.startswith("artemis") else folded
    return next((kind for kind in _KINDS if folded.startswith(kind)), "")


def _secured(plain: socket.socket, host: str) -> ssl.SSLSocket:
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


class Relay:
    """Plain TCP on a port of the loopback interface, TLS to a host. Certificates are checked; SSL_CERT_FILE counts."""

    def __init__(self, host: str, port: int) -> None:
        self._far = (host, port)
        self._loop = asyncio.new_event_loop()
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def __enter__(self) -> Relay:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(3):  # until the loop has closed what was aborted
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far = await asyncio.open_connection(*self._far, ssl=ssl.create_default_context())
            self._writers.add(far[1])
            ways = [asyncio.ensure_future(_pump(*way)) for way in ((reader, far[1]), (far[0], writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)  # STOMP has no half of a connection
            for way in ways:
                way.cancel()
            for end in (writer, far[1]):
                end.close()
            return
        writer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        await sink.drain()
