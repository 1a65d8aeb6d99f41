"""The common parts of both shells: messages to send, and the link that holds core and engine."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stompcodec.client.bodies import Source, Upload
from stompcodec.client.core import REPLIES, ClientCore
from stompcodec.client.handlers import SubscribeOptions
from stompcodec.client.headers import AsIs
from stompcodec.client.io.engine import Engine
from stompcodec.client.link import Health
from stompcodec.client.message import BaseMessage
from stompcodec.client.middleware.base import AsyncMiddleware, Layers, layers_of
from stompcodec.client.options import Options
from stompcodec.client.owned import SENT, HeaderSource, pairs_of
from stompcodec.client.receipts import Call, seconds_of
from stompcodec.client.transaction import BaseTransaction
from stompcodec.codec import Frame
from stompcodec.content import encode_content
from stompcodec.errors import LocalProtocolError
from stompcodec.uri import Address, parse_uri

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Handler = TypeVar("_Handler", bound=Callable[[Any], Any])
#: The default prefetch of subscriptions with explicit acks, in messages.
_PREFETCH = 100
#: Seconds between looks at whether a drain is done.
LOOK = 0.005

now = time.monotonic


def end_of(timeout: float) -> float:
    """Return the time at which a time-out that begins now is over; raise ValueError if it is nan."""
    return now() + seconds_of("timeout", timeout)


@dataclass(slots=True)
class Outgoing:
    """A message to send: its headers, its body, and whether that was given as text."""

    pairs: list[tuple[str, str]]
    body: bytes
    text: bool | str

    @property
    def destination(self) -> str:
        """The destination."""
        return self.pairs[0][1]


def outgoing(
    destination: str,
    body: bytes | str,
    headers: HeaderSource | None = None,
    content_encoding: str | None = None,
    kind: str = "SEND",
    persistent: bool | None = None,
    usual: bool | None = None,
) -> Outgoing:
    """Return the headers and body of a SEND, with `persistent` as the call says it, or else the client's option.

    Text becomes UTF-8, with a content-type that says so unless `headers` has one. An unknown `content_encoding` (gzip,
    deflate or base64, or several separated by commas) is a FrameError. `kind` is the row of `OWNED`: a header of it is
    a ValueError.
    """
    pairs = [("destination", destination)]
    if headers is not None:
        if type(headers) is dict and kind == "SEND" and SENT.isdisjoint(headers):  # without a call, as in most sends
            pairs += headers.items()
        else:
            pairs += pairs_of(kind, headers)
    if persistent is not None or usual is not None:
        say_persistent(pairs, persistent, usual)
    text = isinstance(body, str)
    octets = body.encode() if isinstance(body, str) else body
    if text and "content-type" not in dict(pairs) and not isinstance(headers, AsIs):
        pairs.append(("content-type", "text/plain;charset=utf-8"))
    if content_encoding is not None:
        if not isinstance(content_encoding, str):
            raise TypeError(f"content_encoding is {content_encoding!r:.60}: it must be str")
        named = next((value for name, value in pairs if name == "content-encoding"), None)
        if named is None:
            pairs.append(("content-encoding", content_encoding))
        elif named != content_encoding:
            raise ValueError(f"content_encoding is {content_encoding!r}, and headers= says {named!r:.60}: give one")
        octets = encode_content(content_encoding, octets)
        text = False
    return Outgoing(pairs, octets, text and b"\0" not in octets)


def say_persistent(pairs: list[tuple[str, str]], persistent: bool | None, usual: bool | None = None) -> None:
    """Add the header `persistent` of a SEND: what the call says, else what is `usual`, unless `headers=` has it."""
    if persistent is not None and type(persistent) is not bool:
        raise TypeError(f"persistent is {persistent!r:.60}: it must be True, False or None")
    wanted = usual if persistent is None else persistent
    if wanted is None:
        return
    said, value = next((value for name, value in pairs if name == "persistent"), None), "true" if wanted else "false"
    if said is None:
        pairs.append(("persistent", value))
    elif persistent is not None and said.lower() != value:
        raise ValueError(f"persistent is {persistent}, and headers= says {said!r:.60}: give one")


class Sending(NamedTuple):
    """A message that has to be put into the outbox."""

    attempt: Callable[[], bool]
    """Puts it there; returns whether there was room."""
    octets: int
    receipt: Any


class Streaming(NamedTuple):
    """A message that has to be put into the outbox, and whose body follows by pieces."""

    sending: Sending
    upload: Upload


class BaseLink:
    """The engine and core of a client, and all that messages and transactions need of them without waiting."""

    delivery_class: type[Any]
    receipt_class: type[Any]
    #: Whether it may have middleware that awaits something.
    takes_async = False

    def __init__(
        self,
        url: str | list[Address],
        options: Options,
        subscription_class: Callable[..., Any],
        message_class: type[BaseMessage],
    ) -> None:
        if not self.takes_async and any(isinstance(each, AsyncMiddleware) for each in options.middleware):
            raise TypeError("AsyncMiddleware needs connect_async: for threads, derive from Middleware")
        self.options = options
        self.layers: Layers | None = layers_of(options.middleware) if options.middleware else None
        layers = self.layers or {"send": []}
        self.awaits_middleware = any(isinstance(each, AsyncMiddleware) for each in layers["send"])
        self._subscription_class = subscription_class
        self.core = ClientCore(options, lambda: uuid.uuid4().hex, self._replies, message_class)
        self.delivery = self.delivery_class(options)
        self.engine = Engine(self.core, parse_uri(url) if isinstance(url, str) else url, self.delivery)
        self._ids = itertools.count(1)

    def call(self, what: str, command: str, timeout: float | None, *, resend: bool = False) -> Call:
        """Return a new call; its default timeout is the option `receipt_timeout`."""
        seconds = self.options.receipt_timeout if timeout is None else timeout
        return self.core.link.calls.make(what, seconds, command, resend=resend)

    def call_of_connect(self) -> Call:
        """Return the call that waits for the first connection. Its timeout is longer than all attempts take."""
        options = self.options
        attempts = len(self.engine.addresses) * 4 * options.connect_timeout
        return self.call("connect", "", options.startup_timeout + attempts + options.receipt_timeout)

    def sending(
        self,
        message: Outgoing,
        timeout: float | None = None,
        *,
        receipt: bool = False,
        resend: bool | None = None,
        transaction: BaseTransaction | None = None,
        is_reply: bool = False,
    ) -> Sending:
        """Return a message for `push`. Arguments and errors as for `Client.send`."""
        call = self.call(f"SEND to {message.destination}", "SEND", timeout) if receipt else None
        frame = self._send_frame(message, call, resend, is_reply)
        answer = None if call is None else self.receipt_class(call)

        def attempt() -> bool:
            return self.engine.do(self.core.send, frame, now(), call, text=message.text, transaction=transaction)

        return Sending(attempt, len(frame.body), answer)

    def given(
        self,
        destination: str,
        body: Any,  # bytes or str
        headers: HeaderSource | None,
        content_encoding: str | None,
        receipt: bool,
        timeout: float | None,
        resend: bool | None,
        persistent: bool | None,
    ) -> Sending:
        """Return a message for `push`, without middleware: bytes without headers take a shorter way."""
        is_bare = type(body) is bytes and headers is None and content_encoding is None and persistent is None
        if is_bare and receipt and not (self.options.resend if resend is None else resend):
            call = self.call(f"SEND to {destination}", "SEND", timeout)
            return Sending(partial(self._attempt_plain, destination, body, call), len(body), self.receipt_class(call))
        message = outgoing(destination, body, headers, content_encoding, "SEND", persistent, self.options.persistent)
        return self.sending(message, timeout, receipt=receipt, resend=resend)

    def _attempt_plain(self, destination: str, body: Any, call: Call) -> bool:
        if self.engine.send(destination, body, call):
            return True
        frame = self._send_frame(outgoing(destination, body, usual=self.options.persistent), call, False)
        return self.engine.do(self.core.send, frame, now(), call)

    def streaming(
        self,
        message: Outgoing,
        source: Source,
        timeout: float | None,
        *,
        receipt: bool,
        resend: bool | None,
        to_the_end: bool,
        transaction: BaseTransaction | None,
    ) -> Streaming:
        """Return a message whose body comes from a source. Without `to_the_end` its caller waits for no receipt."""
        what = f"SEND to {message.destination}"
        call = self.call(what, "SEND", timeout) if receipt else None
        frame = self._send_frame(message, call, resend)
        answer = None if call is None else self.receipt_class(call)
        if call is not None and not (to_the_end and source.can_rewind):
            call.resend = False
        seconds = self.options.receipt_timeout if timeout is None else seconds_of("timeout", timeout)
        upload = Upload(what, frame.headers.pairs(), source.size, seconds, call)
        upload.is_text = bool(message.text)
        upload.to_the_end = to_the_end

        def attempt() -> bool:
            return self.engine.do(self.core.upload, upload, now(), transaction)

        return Streaming(Sending(attempt, 0, answer), upload)

    def requesting(self, message: Outgoing, timeout: float | None) -> Sending:
        """Return a request for `push`; the result of its receipt is the reply."""
        call = self.call(f"request to {message.destination}", "SEND", timeout)
        receipt = self.receipt_class(call)

        def attempt() -> bool:
            return self.engine.do(self.core.request, message.pairs, message.body, now(), call, text=message.text)

        return Sending(attempt, len(message.body), receipt)

    def settling(
        self,
        message: BaseMessage,
        command: str,
        headers: HeaderSource | None = None,
        *,
        requeue: bool | None = None,
        receipt: bool = False,
        timeout: float | None = None,
        transaction: BaseTransaction | None = None,
    ) -> Any:
        """Send ACK or NACK for a message; return its receipt if it has one."""
        more = () if headers is None else pairs_of("ACK", headers)
        call = self.call(f"{command} of {message.id}", command, timeout) if receipt else None
        answer = None if call is None else self.receipt_class(call)
        settle = self.core.settle
        self.engine.do(settle, message, command, now(), call, requeue=requeue, transaction=transaction, more=more)
        return answer

    def start(self, call: Call, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a method of the core with `args`, the time and the call; return the call's receipt."""
        receipt = self.receipt_class(call)
        self.engine.do(work, *args, now(), call, **options)
        return receipt

    def _send_frame(self, message: Outgoing, call: Call | None, resend: bool | None, is_reply: bool = False) -> Frame:
        pairs = message.pairs
        if self.core.link.suits:
            self.core.link.suit(pairs, is_reply)
        if call is not None:
            pairs.append(("receipt", call.id))
            call.resend = self.options.resend if resend is None else resend
            if call.resend:
                pairs.append((self.core.link.dialect.duplicate, uuid.uuid4().hex))
        elif resend:
            raise LocalProtocolError("resend=True needs receipt=True")
        return Frame("SEND", pairs, message.body)

    def transaction_id(self) -> str:
        """Return a new id for a transaction."""
        return f"t{next(self._ids)}"

    def subscription(
        self,
        destination: str,
        ack: str,
        prefetch: int | None,
        handler: object = None,
        confirm: Any = True,  # bool
        **rest: Any,
    ) -> Any:
        """Return a new subscription, which the core does not know yet."""
        number, given = next(self._ids), rest.pop("id", None)
        id, usual = f"s{number}" if given is None else given, None if ack == "auto" else _PREFETCH
        options = {"id": id, "ack": ack, "prefetch": prefetch, "usual": usual, "confirm": confirm, **rest}
        subscription = self._subscription_class(self, destination, **options)
        if handler is not None:
            subscription.is_handled = subscription.explicit
            self.core.link.expect_handlers()
        return subscription

    def _replies(self, is_shared: bool) -> Any:
        """Return the subscription for replies. Where all clients share such names, it has one of its own."""
        name = f"{REPLIES}-{uuid.uuid4().hex}" if is_shared else REPLIES
        return self.subscription(name, "auto", None, id=REPLIES)


class BaseClient:
    """The properties that `Client` and `AsyncClient` share."""

    _link: BaseLink
    subscribe: Callable[..., Any]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state}>"

    @property
    def options(self) -> Options:
        """The options of `connect`."""
        return self._link.options

    @property
    def addresses(self) -> list[Address]:
        """The addresses of brokers, in the order in which they are tried next."""
        return list(self._link.engine.addresses)

    @property
    def state(self) -> str:
        """connecting, connected, reconnecting, closing or closed."""
        return self._link.core.link.state

    @property
    def error(self) -> Exception | None:
        """The error that ended the last connection; None if none has ended, or the client was closed."""
        return self._link.core.link.error

    def is_alive(self) -> Health:
        """Return how the client is doing, for a probe: true while there is a session.

        It sends nothing and does not wait; `ping` asks the broker.

        Returns:
            A `Health`, with how long ago something was received, what is outstanding, and since when it reconnects.
        """
        return self._link.engine.health()

    @property
    def version(self) -> str | None:
        """The negotiated version of STOMP; None before the first connection."""
        return self._link.core.link.version

    @property
    def dialect(self) -> str:
        """The name of the broker's dialect, such as "rabbitmq", or "unknown"."""
        return self._link.core.link.dialect.name

    @property
    def connected(self) -> Frame | None:
        """The last CONNECTED frame, with its headers server, session and heart-beat."""
        return self._link.core.link.server

    @property
    def epoch(self) -> int:
        """The number of this connection, from 1 on. Messages of other connections cannot be acknowledged."""
        return self._link.core.link.epoch

    def on_message(self, destination: str, **options: Unpack[SubscribeOptions]) -> Callable[[_Handler], _Handler]:
        """Return a decorator that subscribes with its function as handler. Options as for `subscribe`."""

        def decorate(handler: _Handler) -> _Handler:
            if handler is None:
                raise TypeError("handler is None: on_message decorates a function")
            self.subscribe(destination, handler=handler, **options)
            return handler

        return decorate
