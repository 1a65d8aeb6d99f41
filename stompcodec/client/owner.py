"""The owner of one wire of a client: it hands what is read to the core, or takes receipts and messages out of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from stompcodec.client.backoff import BUGS, SOON
from stompcodec.client.core import ClientCore
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.client.middleware import AsyncMiddleware, ConnectEvent, Middleware, around, layers_of
from stompcodec.client.options import Credential, Options
from stompcodec.client.outbox import Call
from stompcodec.codec import Frame, Parser, parse
from stompcodec.connection import Connection
from stompcodec.errors import ConnectionLostError, StompError
from stompcodec.spec import Limits
from stompcodec.transport.http import Handshake, check_http, read_http
from stompcodec.transport.layers import proxy_of
from stompcodec.transport.owner import Owner, read_buffer
from stompcodec.transport.sync import SyncWire, connect
from stompcodec.uri import Address

log = logging.getLogger("stompcodec.client")
#: The seconds beyond all timeouts of an attempt after which its thread waits no longer for a session.
_GRACE = 5.0


class Attempt(threading.Thread):
    """A thread that asks for credentials, resolves the host, connects, and does the handshakes of TLS and WebSocket.

    So a slow server, or function of the user, holds up neither timeouts nor other clients. At its end it calls `wake`.
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
        http, timeout = self._handshake(), options.connect_timeout
        self.wire = connect(self.address, self._owner, ssl=options.ssl, timeout=timeout, proxy=proxy, handshake=http)

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
        text = self._given(own)
        if not isinstance(text, str):
            raise TypeError(f"the credentials are {type(text).__name__}: they must be str")
        return text

    def _handshake(self) -> Handshake:
        given, file = self._options.http_headers, self.address.options.get("http_headers_file")
        headers = {} if given is None or not self.address.websocket else self._given(given)
        if given is None and file is not None and self.address.websocket:
            headers = read_http(file)
        check_http(headers)
        said = self.address.passcode
        return Handshake(headers, self.address.login, self.passcode if said is None else said)

    def _given(self, own: Any) -> Any:
        """Return the value of an option, or of its function."""
        if not callable(own):
            return own
        try:
            return self._ask(own, self._options.connect_timeout)
        except BUGS:
            raise
        except Exception as error:
            why = type(error).__name__  # the text of the error may hold a secret
            raise ConnectionLostError(f"asking for the credentials failed: {why}", sent=False) from error


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


#: After a session of this many seconds (for those without heart-beats), its address is tried first again.
_GOOD = 5.0
#: Bytes of a WebSocket message beside one body: headers, or other frames in the same message.
_BESIDE_BODY = 2**20
#: Bytes of a body in one WebSocket frame, if bodies are streamed. A frame is in memory as a whole.
_WHOLE_BODY = 16 * 2**20
#: The commands of calls that a RECEIPT accepts, and does nothing else.
_SIMPLE = ("SEND", "ACK", "NACK", "PING")


class WireOwner:
    """The owner of one wire. It ignores events of a wire whose connection is not the core's any more."""

    wire: SyncWire

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self.connection: Connection | None = None
        self.paused = False
        self.up_at: float | None = None  # when its session began, if there was one
        self.octets = 0  # of the last read
        self.begun: Callable[[Frame | None], object] = lambda server: None
        """Called with CONNECTED when the session begins."""
        self._shape = (b"", b"")  # what stood before and behind the id in the last RECEIPT of `take_receipt`
        self._parser: Parser | None = None  # of `take_messages`; it holds no bytes of earlier reads
        self.beat = 0.0  # the longer interval of its heart-beats, in seconds; 0 without

    def _beat(self) -> float:
        return 0.0 if self.connection is None else max(self.connection.heartbeat) / 1000

    def has_lasted(self, now: float) -> bool:
        """Return whether the session lasted so long that delays start from the first again: a second is enough."""
        return self.up_at is not None and now - self.up_at >= min(self.beat or _GOOD, SOON)

    def is_good(self, now: float) -> bool:
        """Return whether the session lasted for a heart-beat. One that broke sooner may do so each time."""
        return self.up_at is not None and now - self.up_at >= (self.beat or _GOOD)

    def opened(self, wire: SyncWire) -> None:
        self.wire = wire
        wire.room = self._room
        options = self._core.link.options
        most = (options.limits or Limits()).max_body
        if options.stream_over is not None:  # what does not come in frames of WebSocket would be in memory
            most = min(most, max(options.stream_over, _WHOLE_BODY))
        wire.bound(most + _BESIDE_BODY)

    def _room(self) -> memoryview:
        runs = self._core.inbound.runs
        return read_buffer() if runs is None else runs.room()

    def received(self, data: bytes | memoryview) -> None:
        core, connection = self._core, self.connection
        if connection is not None and core.link.connection is connection:
            now = time.monotonic()
            self.octets = len(data)
            core.inbound.receive(data, now)
            if self.up_at is None and core.link.in_session:
                self.up_at = now
                self.beat = self._beat()
                self.wire.split(core.link.pieces)
                self.begun(core.link.server)

    def take_receipt(self, call: Call, now: float) -> bool:
        """Read in the thread that waits for a call, under the engine's lock; return True if its receipt came, alone.

        Whatever else was read stays in the wire, for `SyncWire.handle` in the I/O thread. An interrupt (Ctrl-C) leaves
        the receipt there, too, or the call has its outcome.
        """
        core, connection, wire = self._core, self.connection, self.wire
        link = core.link
        finished, sent, ahead = link.calls.finished, link.calls.sent, wire.ahead
        if call.done:
            return True
        octets = wire.read_ahead()
        if (
            not octets
            or connection is None
            or not self._is_between(connection)
            or call.id not in sent
            or call.command not in _SIMPLE
            or call.needs_reply  # its receipt is not its outcome
            or not self._is_receipt(octets, call.id, connection.version)
        ):
            return False
        link.calls.answered.add(call.command)
        finished.append(call)  # others who wait for it are woken, if not below
        # No call stands between these, so that an interrupt cannot separate them.
        call.done = True
        call.frame = None
        del sent[call.id]
        del ahead[:]
        link.now = link.heard_at = now
        connection.skip(len(octets), now)
        if call.wake is not None:
            call.wake()
        if len(finished) == 1:
            finished.clear()
        return not finished

    def take_messages(self, subscription: Subscription, now: float) -> bool:
        """Do what `take_receipt` does for messages of a subscription: they go to its batch, for this thread."""
        core, connection, wire = self._core, self.connection, self.wire
        link, batch, ahead = core.link, subscription.batch, wire.ahead
        octets = wire.read_ahead()
        if (
            not octets
            or connection is None
            or not self._is_between(connection)
            or link.phase != "up"
            or link.is_watched
            or subscription.deaf
            or subscription.spares is not None
            or subscription.place is not None
            or not subscription.confirmed
            or core.inbound.subscriptions.get(subscription.id) is not subscription
        ):
            return False
        messages = self._messages(octets, connection, subscription)
        if not messages:
            subscription.in_turn = 0
            return False
        count = len(messages)
        if len(subscription.waiting) > 1 and subscription.wake is not None:  # the others get what this thread leaves
            subscription.wake()
        # No call stands between these, so that an interrupt cannot separate them.
        subscription.seq += count
        subscription.open += count
        subscription.octets += len(octets)
        batch += messages
        core.inbound.before = messages[-1].frame
        del ahead[:]
        link.now = link.heard_at = now
        connection.skip(len(octets), now)
        if subscription.cumulative:
            subscription.last = messages[-1]
        return True

    def _is_between(self, connection: Connection) -> bool:
        """Return whether everything received has been handled, so that the next bytes begin a frame."""
        core = self._core
        runs = core.inbound.runs
        return not (
            connection is not core.link.connection
            or connection.buffered
            or (runs is not None and runs.held)
            or core.inbound.in_body  # whose bytes may look like a frame
            or core.inbound.backlog
        )

    def _messages(self, octets: bytes, connection: Connection, subscription: Subscription) -> list[BaseMessage]:
        """Return the messages in these bytes; none if there is anything else in them, or the end of one is missing."""
        core = self._core
        options, make, epoch, seq = core.link.options, core.inbound.message_class, core.link.epoch, subscription.seq
        # It is taken out while in use, and dropped after an error or interrupt.
        parser, self._parser = self._parser, None
        if parser is None:
            parser = Parser(connection.version, limits=options.limits, lenient=options.lenient)
        try:
            frames = list(parser.feed(octets))
        except StompError:  # the I/O thread says so
            return []
        if parser.buffered:
            return []
        self._parser = parser
        if any(
            frame.command != "MESSAGE"
            or frame.get("subscription") != subscription.id
            or frame.get("message-id") is None
            or frame.get("destination") is None
            or (not frame.body and core.link.dialect.emptied)  # the I/O thread says so
            for frame in frames
        ):
            return []
        return [make(frame, subscription, epoch, at) for at, frame in enumerate(frames, seq + 1)]

    def _is_receipt(self, octets: bytes, id: str, version: str | None) -> bool:
        """Return whether these bytes are a RECEIPT with this id and no more."""
        name, (before, after) = id.encode(), self._shape
        if octets == b"%b%b%b" % (before, name, after):
            return True
        options = self._core.link.options
        try:
            (frame,) = parse(octets, version, lenient=options.lenient, limits=options.limits)
        except (StompError, ValueError):
            return False
        if frame.command != "RECEIPT" or frame.get("receipt-id") != id:
            return False
        before, line, after = octets.partition(b"\nreceipt-id:" + name)
        if line:  # else the header is not written plainly
            self._shape = (before + b"\nreceipt-id:", after)
        return True

    def writable(self, yes: bool) -> None:
        self._core.link.writable(yes)

    def lost(self, error: BaseException | None) -> None:
        core = self._core
        if self.connection is not None and core.link.connection is self.connection:
            core.link.lost(error, time.monotonic())
