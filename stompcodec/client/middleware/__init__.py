"""Middleware of the client: code around connecting, sending, receiving, processing and settling.

`stompcodec.client.middleware.otel` and `stompcodec.client.middleware.prometheus` are ready for use.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, Generic, Literal, Protocol, TypeVar, cast
from weakref import ref

from stompcodec.client.headers import OWNED, REQUEST, TEMPORARY, WRITTEN
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.codec import Frame, Parser, serialize
from stompcodec.errors import LocalProtocolError
from stompcodec.spec import Limits
from stompcodec.uri import Address

__all__ = [
    "AsyncMiddleware",
    "ConnectEvent",
    "EditableHeaders",
    "Middleware",
    "ProcessEvent",
    "ReceiveEvent",
    "SendEvent",
    "SendManyEvent",
    "SettleEvent",
]

_CODEC = {"content-length": "the codec writes it"}
_BROKER = "it belongs to the broker"
_SETTLE = "it names the message to the broker"

#: Command -> the headers that middleware must not set or remove -> the reason, or what to use instead.
FIXED: dict[str, dict[str, str]] = {
    "CONNECT": {name: f"use the option {option}" for name, option in WRITTEN.items()} | OWNED["CONNECT"] | _CODEC,
    "SEND": {**OWNED["SEND"], "ack": _BROKER, "destination": "the caller chooses it"} | _CODEC,
    "MESSAGE": {"ack": _SETTLE, "destination": _BROKER, "message-id": _SETTLE, "subscription": _SETTLE} | _CODEC,
    "ACK": {**OWNED["ACK"], "ack": _SETTLE} | _CODEC,
}
FIXED["NACK"] = FIXED["ACK"]


class EditableHeaders(MutableMapping[str, str]):
    """The headers of a frame as middleware sees them: a mapping that refuses to change those of a table.

    As in frames, the first entry of a repeated name counts. Setting a name replaces all its entries; `add` repeats it.

    Args:
        command: the command of the frame, for errors.
        pairs: the headers.
        fixed: the names that must not change, with reasons.

    >>> headers = EditableHeaders("SEND", [("destination", "/queue/a")], FIXED["SEND"])
    >>> headers["signature"] = "1f"
    >>> headers.pairs(), headers.changed
    ([('destination', '/queue/a'), ('signature', '1f')], True)
    >>> headers["subscription"] = "1"
    Traceback (most recent call last):
        ...
    stompcodec.errors.LocalProtocolError: middleware must not change the header subscription of SEND: only a received \
message has it: leave it out
    """

    __slots__ = ("_command", "_fixed", "_pairs", "changed")

    def __init__(self, command: str, pairs: Iterable[tuple[str, str]], fixed: Mapping[str, str]) -> None:
        self._command = command
        self._pairs = list(pairs)
        self._fixed = fixed
        self.changed = False
        """Whether a header was changed."""

    def __getitem__(self, name: str) -> str:
        for each, value in self._pairs:
            if each == name:
                return value
        raise KeyError(name)

    def __setitem__(self, name: str, value: str) -> None:
        self._check(name, value)
        at = next((index for index, (each, _) in enumerate(self._pairs) if each == name), len(self._pairs))
        rest = [pair for pair in self._pairs[at:] if pair[0] != name]
        self._pairs[at:] = [(name, value), *rest]
        self.changed = True

    def __delitem__(self, name: str) -> None:
        self._check(name, "")
        kept = [pair for pair in self._pairs if pair[0] != name]
        if len(kept) == len(self._pairs):
            raise KeyError(name)
        self._pairs[:] = kept
        self.changed = True

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))

    def __repr__(self) -> str:
        names = ", ".join(self)
        return f"<EditableHeaders of {self._command}: {names}>"

    def add(self, name: str, value: str) -> None:
        """Append an entry, also if there is one of this name, which then counts.

        Raises:
            LocalProtocolError, TypeError: as to set it.
        """
        self._check(name, value)
        self._pairs.append((name, value))
        self.changed = True

    def pairs(self) -> list[tuple[str, str]]:
        """Return all entries in their order."""
        return list(self._pairs)

    def _check(self, name: str, value: str) -> None:
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                f"a header of {self._command} has a name of {type(name).__name__} and a value of "
                f"{type(value).__name__}: use str for both"
            )
        why = self._fixed.get(name)
        if why is not None:
            raise LocalProtocolError(f"middleware must not change the header {name} of {self._command}: {why}")


class Destinations:
    """A bounded set of destinations, so that metrics stay bounded: the first `most` get a label, others share one."""

    OTHER = "_other"

    def __init__(self, most: int) -> None:
        if most < 0:
            raise ValueError(f"destinations is {most}: it must be 0 or more")
        self._most = most
        self._known: set[str] = set()

    def label(self, destination: str) -> str:
        """Return the destination, or `_other`. Temporary ones are always `_other`."""
        known = self._known
        if destination in known:
            return destination
        if len(known) >= self._most or is_temporary(destination):
            return self.OTHER
        known.add(destination)
        return destination


class Silence:
    """The seconds since the last message of each destination with a subscription, for metrics.

    Messages count when they come to the program. Before the first one it counts from when the subscription was made.

    Args:
        destinations: those with a label; the others have no silence.
    """

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations
        self._since: dict[str, float] = {}
        self._subscriptions: dict[str, list[ref[Subscription]]] = {}

    def begin(self, subscription: Subscription) -> None:
        """Note a new subscription."""
        label = self._destinations.label(subscription.destination)
        if label != Destinations.OTHER:
            self._since[label] = time.monotonic()
            known = self._subscriptions.get(label, ())
            self._subscriptions[label] = [*(each for each in known if each() is not None), ref(subscription)]

    def note(self, destination: str) -> None:
        """Note a message."""
        if destination in self._since:
            self._since[destination] = time.monotonic()

    def seconds(self) -> dict[str, float]:
        """Return the seconds by destination, without those whose subscriptions have ended."""
        now, found = time.monotonic(), list(self._subscriptions.items())
        live = [label for label, refs in found if any(not getattr(each(), "deaf", True) for each in refs)]
        return {label: now - self._since[label] for label in live}


#: The bare names of the temporary destinations of JMS, to which replies go on Artemis.
_BARE = re.compile("ID:|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def is_temporary(destination: str) -> bool:
    """Return whether a destination is a temporary one, whose name is made up by the broker or is used once."""
    return destination.startswith(TEMPORARY) or _BARE.match(destination) is not None


#: By which call a message is sent; "many" is `send_many`.
Sent = Literal["send", "request", "reply", "many"]
#: How a message comes to the program: taken from a subscription, given to a handler, as the reply to a request, or by
#: `client.receive`.
Received = Literal["taken", "handler", "reply", "receive"]


class Session(Protocol):
    """The client, as events know it."""

    @property
    def address(self) -> Address | None:
        """The broker's address; None before the first connection."""

    @property
    def client_id(self) -> str | None:
        """The option `client_id`."""

    @property
    def version(self) -> str | None:
        """The negotiated version of STOMP; None before the first connection."""

    @property
    def dialect_name(self) -> str:
        """The name of the broker's dialect, or "unknown"."""


class ConnectEvent:
    """An attempt to connect: from before the transport is opened until CONNECTED, or its failure."""

    __slots__ = ("address", "headers", "server")

    def __init__(self, address: Address, headers: Iterable[tuple[str, str]]) -> None:
        self.address = address
        """The address that is tried."""
        self.headers = EditableHeaders("CONNECT", headers, FIXED["CONNECT"])
        """The other headers of CONNECT: those of the option `headers`. Change them before `yield`."""
        self.server: Frame | None = None
        """CONNECTED, behind `yield`."""


class SendEvent:
    """A message that is sent, until the call returns: with `receipt` until the broker has confirmed it."""

    __slots__ = ("_body", "batch", "by", "headers", "is_text", "receipt", "session", "size", "transaction")

    def __init__(
        self,
        session: Session,
        pairs: Iterable[tuple[str, str]],
        body: bytes | None,
        is_text: bool,
        by: Sent,
        *,
        size: int = 0,
        receipt: bool = False,
        transaction: str | None = None,
        batch: SendManyEvent | None = None,
    ) -> None:
        self.session = session
        """The client's connection."""
        fixed = FIXED["SEND"] | REQUEST if by == "request" else FIXED["SEND"]
        self.headers = EditableHeaders("SEND", pairs, fixed)
        """The headers of SEND, beside those that the client adds. Change them before `yield`."""
        self._body = body
        self.size = size if body is None else len(body)
        """The bytes of the body, also if it is streamed."""
        self.is_text = is_text
        """Whether the body was given as text, which some brokers treat otherwise."""
        self.by = by
        """The call: send, request, reply or many."""
        self.receipt = receipt
        """Whether a receipt is asked for. `send_many` asks for one with some messages only."""
        self.transaction = transaction
        """The id of the transaction; None outside of one."""
        self.batch = batch
        """The call of `send_many`; None for others."""

    @property
    def destination(self) -> str:
        """The destination."""
        return self.headers["destination"]

    @property
    def is_streamed(self) -> bool:
        """True if the body comes from a source, piece by piece. Then it can be replaced, but not read."""
        return self._body is None

    @property
    def body(self) -> bytes:
        """The bytes to send, after a content-encoding. Change them before `yield`.

        Raises TypeError if they are not bytes. Text stays text only if the new bytes are UTF-8 without NUL. To read a
        streamed body raises LocalProtocolError.
        """
        if self._body is None:
            raise LocalProtocolError(f"the body of {self.size} bytes is streamed: look at `is_streamed` first")
        return self._body

    @body.setter
    def body(self, body: bytes) -> None:
        if not isinstance(body, bytes):
            raise TypeError(f"the body is {type(body).__name__}: it must be bytes")
        self._body = body
        self.size = len(body)
        self.is_text = self.is_text and _is_text(body)


class SendManyEvent:
    """One call of `send_many`, until it returns. Its messages pass `send`, each until it is in a block."""

    __slots__ = ("messages", "receipts", "session", "transaction")

    def __init__(self, session: Session, receipts: bool, transaction: str | None) -> None:
        self.session = session
        """The client's connection."""
        self.receipts = receipts
        """Whether the broker confirms the messages before the call returns."""
        self.transaction = transaction
        """The id of the transaction; None outside of one."""
        self.messages = 0
        """The number of messages that were sent so far; behind `yield` of all."""


class ReceiveEvent:
    """A message that comes to the program. Change headers and body behind `yield`, when inner middleware is done."""

    __slots__ = ("_body", "_message", "by", "headers", "session", "since")

    def __init__(self, session: Session, message: BaseMessage, by: Received, since: int) -> None:
        self.session = session
        """The client's connection."""
        self._message = message
        frame = message.frame
        self.headers = EditableHeaders(frame.command, frame.headers.pairs(), FIXED["MESSAGE"])
        """The headers of MESSAGE."""
        self._body: bytes | None = frame.body
        self.by = by
        """How it comes to the program: taken, handler, reply or receive."""
        self.since = since
        """When the program began to wait for it, in ns since 1970."""

    @property
    def destination(self) -> str:
        """The destination of the subscription."""
        return str(self._message.subscription.destination)

    @property
    def is_streamed(self) -> bool:
        """True if the body is in a file, because of the option `stream_over`: `message.reader()` reads it."""
        return self._body is None

    @property
    def size(self) -> int:
        """The bytes of the body, in memory or in a file."""
        return self._message.size if self._body is None else len(self._body)

    @property
    def body(self) -> bytes:
        """The bytes, before a content-encoding is undone. Raises TypeError if the new ones are not bytes.

        To read a body in a file raises LocalProtocolError. It can be replaced.
        """
        return self._message.body if self._body is None else self._body

    @body.setter
    def body(self, body: bytes) -> None:
        if not isinstance(body, bytes):
            raise TypeError(f"the body is {type(body).__name__}: it must be bytes")
        self._body = body

    @property
    def message(self) -> BaseMessage:
        """The message, with the changes that were made so far."""
        self.apply()
        return self._message

    def apply(self) -> None:
        """Give the message the changed headers and body."""
        frame = self._message.frame
        if not self.headers.changed and self._body is frame.body:
            return
        pairs = self.headers.pairs()
        if self._body is not frame.body:
            pairs = [pair for pair in pairs if pair[0] != "content-length"]
            pairs.append(("content-length", str(self.size)))
        self._message.frame = (
            _streamed(frame.command, pairs) if self._body is None else Frame(frame.command, pairs, self._body)
        )
        self.headers = EditableHeaders(frame.command, pairs, FIXED["MESSAGE"])


class ProcessEvent:
    """A message while it is handled: by a handler, or in the block of `message.processing()`."""

    __slots__ = ("by", "message", "session")

    def __init__(self, session: Session, message: BaseMessage, by: Literal["handler", "block"]) -> None:
        self.session = session
        """The client's connection."""
        self.message = message
        """The message, as `receive` has left it."""
        self.by = by
        """Who handles it: a handler, or a block."""

    @property
    def destination(self) -> str:
        """The destination of the subscription."""
        return str(self.message.subscription.destination)


class SettleEvent:
    """The ACK or NACK of a message, until it was sent: with `receipt` until the broker has confirmed it."""

    __slots__ = ("command", "headers", "message", "receipt", "session", "transaction")

    def __init__(
        self,
        session: Session,
        message: BaseMessage,
        command: str,
        headers: Iterable[tuple[str, str]],
        *,
        receipt: bool,
        transaction: str | None,
    ) -> None:
        self.session = session
        """The client's connection."""
        self.message = message
        """The message. In mode `client` its ACK covers all earlier ones, too."""
        self.command = command
        """ACK or NACK."""
        self.headers = EditableHeaders(command, headers, FIXED[command])
        """The headers beside those that name the message. Change them before `yield`."""
        self.receipt = receipt
        """Whether a receipt is asked for."""
        self.transaction = transaction
        """The id of the transaction; None outside of one."""

    @property
    def destination(self) -> str:
        """The destination of the subscription."""
        return str(self.message.subscription.destination)


#: What a place is called with.
Event = ConnectEvent | SendEvent | SendManyEvent | ReceiveEvent | ProcessEvent | SettleEvent


def started() -> int:
    """Return the time in ns since 1970, for `ReceiveEvent.since`."""
    return time.time_ns()


def _streamed(command: str, pairs: list[tuple[str, str]]) -> Frame:
    """Return a frame whose body is streamed. Only a parser makes one."""
    rest = [pair for pair in pairs if pair[0] != "content-length"]
    octets = serialize(Frame(command, rest), "1.2", content_length="never")
    lengths = b"".join(b"content-length:%b\n" % value.encode() for name, value in pairs if name == "content-length")
    head = b"%b%b\nx" % (octets[:-2], lengths)
    longest = max(map(len, head.split(b"\n")))
    limits = Limits(max_header_line=longest, max_headers=len(pairs), max_body=2**62)  # it was accepted before
    frame: Frame = next(iter(Parser("1.2", limits=limits, stream_over=0).feed(head)))
    return frame


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body


#: Where an error of the inner code may be suppressed: a message whose error is suppressed counts as processed.
_SUPPRESSIBLE = "process"


@contextmanager
def around(
    layers: Iterable[Middleware | AsyncMiddleware],
    place: str,
    event: Event,
    adapt: Callable[[Any], Any] = lambda context: context,
) -> Iterator[None]:
    """Enter the middleware of a place, the first one first, and leave it in the opposite order.

    An error may be replaced on its way out, but only around `process` may it be suppressed. `adapt` is called with each
    context manager, and returns the one to enter.
    """
    failure: BaseException | None = None
    is_inside = False
    with ExitStack() as stack:
        try:
            for layer in layers:
                stack.enter_context(adapt(getattr(layer, place)(event)))
            is_inside = True
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None and not (is_inside and place == _SUPPRESSIBLE):
        raise failure


@asynccontextmanager
async def async_around(layers: Iterable[Middleware | AsyncMiddleware], place: str, event: Event) -> AsyncIterator[None]:
    """Do what `around` does, with middleware of both kinds."""
    failure: BaseException | None = None
    is_inside = False
    async with AsyncExitStack() as stack:
        try:
            for layer in layers:
                context = getattr(layer, place)(event)
                if isinstance(context, AbstractAsyncContextManager) and isinstance(layer, AsyncMiddleware):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            is_inside = True
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None and not (is_inside and place == _SUPPRESSIBLE):
        raise failure


#: The places, which are the names of the methods below.
PLACES = ("connect", "send", "send_many", "receive", "process", "settle")
Context = TypeVar("Context", covariant=True)
_NOTHING = nullcontext()


class _Places(Generic[Context]):
    """The methods of both bases."""

    def subscribed(self, subscription: Subscription) -> None:
        """Note a new subscription, before its SUBSCRIBE is sent."""

    def connect(self, event: ConnectEvent) -> Context:
        """Return a context around an attempt to connect; of `Middleware` it runs in a thread of its own."""
        return cast("Context", _NOTHING)

    def send(self, event: SendEvent) -> Context:
        """Return a context around sending a message."""
        return cast("Context", _NOTHING)

    def send_many(self, event: SendManyEvent) -> Context:
        """Return a context around a call of `send_many`, whose messages pass `send`, too."""
        return cast("Context", _NOTHING)

    def receive(self, event: ReceiveEvent) -> Context:
        """Return a context around handing a message to the program, or to its handler."""
        return cast("Context", _NOTHING)

    def process(self, event: ProcessEvent) -> Context:
        """Return a context around a handler, or around the block of `message.processing()`."""
        return cast("Context", _NOTHING)

    def settle(self, event: SettleEvent) -> Context:
        """Return a context around ACK or NACK of a message."""
        return cast("Context", _NOTHING)


class Middleware(_Places[AbstractContextManager[object]]):
    """The base of middleware, for threads and asyncio. Each method returns a context manager around one step.

    A subclass overrides the methods of the places it needs, with `contextlib.contextmanager`. The option `middleware`
    lists instances; the first one is the outermost. docs/middleware.md has the outcomes of exceptions.

    >>> import contextlib
    >>> class Stamp(Middleware):
    ...     @contextlib.contextmanager
    ...     def send(self, event):
    ...         event.headers["stamp"] = "1"
    ...         yield
    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as broker, connect(broker.url, middleware=[Stamp()]) as client:
    ...     client.send("/queue/a", b"hello")
    ...     client.subscribe("/queue/a").get(5).headers["stamp"]
    '1'
    """


class AsyncMiddleware(_Places[AbstractAsyncContextManager[object]]):
    """The base of middleware that awaits something, for asyncio alone: `Middleware` with `asynccontextmanager`.

    It runs in the client's event loop, `connect` included.

    >>> import asyncio, contextlib
    >>> class Slow(AsyncMiddleware):
    ...     @contextlib.asynccontextmanager
    ...     async def send(self, event):
    ...         await asyncio.sleep(0)
    ...         event.headers["slow"] = "yes"
    ...         yield
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url, middleware=[Slow()]) as client:
    ...         await client.send("/queue/a", b"hello")
    ...         return (await client.subscribe("/queue/a").get(5)).headers["slow"]
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    'yes'
    """


#: For each place the middleware that overrides its method, outermost first.
Layers = dict[str, list["Middleware | AsyncMiddleware"]]


def layers_of(middleware: Iterable[Middleware | AsyncMiddleware]) -> Layers:
    """Return the middleware of each place."""
    given = list(middleware)
    return {place: [each for each in given if _overrides(each, place)] for place in PLACES}


def _overrides(layer: Middleware | AsyncMiddleware, place: str) -> bool:
    base = AsyncMiddleware if isinstance(layer, AsyncMiddleware) else Middleware
    return getattr(type(layer), place) is not getattr(base, place) or place in vars(layer)
