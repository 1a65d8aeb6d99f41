"""One attempt to connect, in a thread of its own: all that may block before there is a session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stompcodec.client.options import Credential, Options
from stompcodec.errors import ConnectionLostError
from stompcodec.transport.owner import Owner
from stompcodec.transport.proxy import proxy_of
from stompcodec.transport.sync import SyncWire, connect
from stompcodec.uri import Address


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
        self.error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        options = self._options
        try:
            self.login = self._credential(options.login, self.address.login)
            self.passcode = self._credential(options.passcode, self.address.passcode)
            proxy = proxy_of(options.proxy, self.address)
            self.wire = connect(
                self.address, self._owner, ssl=options.ssl, timeout=options.connect_timeout, proxy=proxy
            )
        except Exception as error:
            self.error = error
        with self._lock:
            self.done = True
            if self._is_abandoned:
                self._drop()
                return
        self._wake()

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
