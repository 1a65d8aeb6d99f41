"""One attempt to connect, in a thread of its own: all that may block before there is a session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from stompcodec.client.middleware.around import around
from stompcodec.client.middleware.base import AsyncMiddleware, Middleware, layers_of
from stompcodec.client.middleware.events import ConnectEvent
from stompcodec.client.options import Credential, Options
from stompcodec.codec import Frame
from stompcodec.errors import ConnectionLostError
from stompcodec.transport.owner import Owner
from stompcodec.transport.proxy import proxy_of
from stompcodec.transport.sync import SyncWire, connect
from stompcodec.uri import Address

log = logging.getLogger("stompcodec.client")

#: The seconds beyond all timeouts of an attempt after which its thread waits no longer for a session.
_GRACE = 5.0


class Attempt(threading.Thread):
    """A thread that asks for credentials, resolves the host, connects, and does the handshakes of TLS and WebSocket.

    So a slow server, or a slow function of the user, holds up neither timeouts and `close`, nor other clients. At its
    end it calls `wake`.
    """

    def __init__(
        self,
        address: Address,
        options: Options,
        owner: Owner,
        credential: Callable[[Callable[[], Any], float], Any],
        wake: Callable[[], object],
    ) -> None:
        super().__init__(name="stompcodec-connect", daemon=True)
        self.address = address
        self._options = options
        self._owner = owner
        self._ask = credential
        self._wake = wake
        self._lock = threading.Lock()
        self._is_abandoned = False
        self.wire: SyncWire | None = None
        self.login: str | None = None
        self.passcode: str | None = None
        self.headers: list[tuple[str, str]] | None = None  # of CONNECT, if middleware had a say
        self.error: BaseException | None = None
        self.done = False
        self._ended = threading.Event()
        self._server: Frame | None = None  # CONNECTED, once there is a session
        self._why: BaseException | None = None  # why there is none

    def run(self) -> None:
        layers = self._options.middleware
        try:
            if layers:
                self._connect_through(layers_of(layers)["connect"])
            else:
                self._connect()
        except BaseException as error:
            if self.done:
                if error is not self._why:
                    log.error("middleware failed after the attempt to connect", exc_info=error)
                return
            self.error = error
        if not self.done:
            self._finish()

    def _connect(self) -> None:
        """Ask for the credentials, and open the transport."""
        options = self._options
        self.login = self._credential(options.login, self.address.login)
        self.passcode = self._credential(options.passcode, self.address.passcode)
        proxy = proxy_of(options.proxy, self.address)
        self.wire = connect(self.address, self._owner, ssl=options.ssl, timeout=options.connect_timeout, proxy=proxy)

    def _connect_through(self, layers: list[Middleware | AsyncMiddleware]) -> None:
        """Connect inside of the middleware, which is left when there is a session, or the attempt has failed."""
        event = ConnectEvent(self.address, self._options.headers.items())
        with around(layers, "connect", event, self._adapted):
            self._connect()
            self.headers = event.headers.pairs()
            self._finish()
            self._ended.wait(min(2 * self._options.connect_timeout + _GRACE, threading.TIMEOUT_MAX))
            if self._server is None:
                self._why = self._why or ConnectionLostError("no session", sent=False)
                raise self._why
            event.server = self._server

    def _adapted(self, context: Any) -> Any:
        """Return a context manager for this thread; an asynchronous one runs in the event loop."""
        if not hasattr(context, "__aenter__") or hasattr(context, "__enter__"):
            return context
        return _InLoop(context, self._ask, self._options.connect_timeout)

    def _finish(self) -> None:
        """Have the I/O thread go on."""
        with self._lock:
            self.done = True
            if self._is_abandoned:
                self._drop()
                return
        self._wake()

    def begin(self, server: Frame | None) -> None:
        """Note that there is a session. Called by the I/O thread."""
        self._server = server
        self._ended.set()

    def end(self, error: BaseException | None) -> None:
        """Note that the session has ended, or that none began. Called by the I/O thread."""
        self._why = self._why or error
        self._ended.set()

    def abandon(self) -> None:
        """End the attempt, also while it runs, and close its wire. Called by the I/O thread."""
        with self._lock:
            self._is_abandoned = True
            if self.done:
                self._drop()

    def _drop(self) -> None:
        if self.wire is not None:
            self.wire.abort()

    def _credential(self, own: Credential | None, address: str | None) -> str | None:
        if own is None:
            return address
        if isinstance(own, str):
            return own
        try:
            text = self._ask(own, self._options.connect_timeout)
        except Exception as error:
            why = type(error).__name__  # the text of the error may hold a secret
            raise ConnectionLostError(f"asking for the credentials failed: {why}", sent=False) from error
        if not isinstance(text, str):
            raise ConnectionLostError(f"the credentials are {type(text).__name__}: they must be str", sent=False)
        return text


class _InLoop:
    """An asynchronous context manager, entered and left in the event loop by another thread."""

    def __init__(self, context: Any, ask: Callable[[Callable[[], Any], float], Any], timeout: float) -> None:
        self._context = context
        self._ask = ask
        self._timeout = timeout

    def __enter__(self) -> Any:
        return self._ask(self._context.__aenter__, self._timeout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self._ask(partial(self._context.__aexit__, kind, error, trace), self._timeout)
