"""The common parts of both shells: messages to send, one by one or many, and the link that holds core and engine.

`send_many` writes blocks, and waits for their receipts later: both shells drive the same generators, which yield them.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stompcodec.arguments import check_values, checks
from stompcodec.client.bodies import Source
from stompcodec.client.core import ClientCore
from stompcodec.client.engine import Engine
from stompcodec.client.handlers import SubscribeOptions
from stompcodec.client.headers import OWNED, SENT, AsIs, HeaderSource, owned_of, pairs_of, sendable
from stompcodec.client.link import Health
from stompcodec.client.messages import BaseMessage, BaseTransaction
from stompcodec.client.middleware import AsyncMiddleware, Layers, layers_of
from stompcodec.client.options import Options
from stompcodec.client.outbox import KEPT, Block, Call, Group, OutboxFullError, Upload, seconds_of
from stompcodec.codec import Frame, serialize, serialize_many
from stompcodec.content import encode_content, text_octets
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError, RejectedError, StompError
from stompcodec.transport.layers import proxy_of
from stompcodec.uri import Address, Brokers, addresses_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Handler = TypeVar("_Handler", bound=Callable[[Any], Any])
#: The default prefetch of subscriptions with explicit acks, in messages.
_PREFETCH = 100
#: Seconds between looks at whether a drain is done.
LOOK = 0.005
#: The content-type and content-encoding that a call gives.
Content = tuple[str | None, str | None]
NO_CONTENT: Content = (None, None)
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
    content: Content = NO_CONTENT,
    kind: str = "SEND",
    persistent: bool | None = None,
    usual: bool | None = None,
) -> Outgoing:
    """Return the headers and body of a SEND, with `persistent` as the call says it, or else the client's option.

    Text gets the charset of its content-type, UTF-8 unless the call has one. An unknown encoding (gzip, deflate or
    base64, or several separated by commas) is a FrameError. `kind` is the row of `OWNED`: a header of it is a
    ValueError.
    """
    if not destination:
        raise ValueError(f"destination is {destination!r}: name a queue or a topic")
    pairs = [("destination", destination)]
    if headers is not None:
        if type(headers) is dict and kind == "SEND" and SENT.isdisjoint(headers):  # without a call, as in most sends
            pairs += headers.items()
        else:
            pairs += pairs_of(kind, headers)
    if persistent is not None or usual is not None:
        say_persistent(pairs, persistent, usual)
    content_type, content_encoding = content
    if content_type is not None:
        _say(pairs, "content-type", content_type, content_type)
    text: bool | str = False
    if isinstance(body, str):
        octets, text = body.encode(), KEPT if isinstance(headers, AsIs) else True
        given: Any = next((value for name, value in pairs if name == "content-type"), None)
        if isinstance(given, str) and ";" in given:
            utf8, octets = octets, text_octets(body, given)
            text = text if octets == utf8 else False
        elif given is None and text is True:
            pairs.append(("content-type", "text/plain;charset=utf-8"))
    else:
        octets = body
        if type(body) is not bytes:
            check_values(bytes | str, body=body)
    if content_encoding is not None:
        _say(pairs, "content-encoding", content_encoding, content_encoding)
        octets, text = encode_content(content_encoding, octets), False
    return Outgoing(pairs, octets, text and b"\0" not in octets and text)


def _say(pairs: list[tuple[str, str]], header: str, value: str, given: object) -> None:
    """Add a header that is `given` as an argument of its own, unless `headers=` says the same."""
    name, said = header.replace("-", "_"), next((each for one, each in pairs if one == header), None)
    if type(value) is not str:
        check_values(str, **{name: value})
    if said is None:
        pairs.append((header, value))
    elif said.lower() != value.lower():
        raise ValueError(f"{name} is {given!r:.60}, and headers= says {said!r:.60}: give one")


def say_persistent(pairs: list[tuple[str, str]], persistent: bool | None, usual: bool | None = None) -> None:
    """Add the header `persistent` of a SEND: what the call says, else what is `usual`, unless `headers=` has it."""
    if type(persistent) not in (bool, type(None)):
        check_values(bool | None, persistent=persistent)
    wanted = usual if persistent is None else persistent
    if wanted is not None and (persistent is not None or all(name != "persistent" for name, _ in pairs)):
        _say(pairs, "persistent", "true" if wanted else "false", wanted)


class Sending(NamedTuple):
    """A message that has to be put into the outbox."""

    attempt: Callable[[], bool]
    """Puts it there; returns whether there was room."""
    octets: int
    receipt: Any


class BaseLink:
    """The engine and core of a client, and all that messages and transactions need of them without waiting."""

    delivery_class: type[Any]
    receipt_class: type[Any]
    #: Whether it may have middleware that awaits something.
    takes_async = False

    def __init__(
        self,
        url: Brokers,
        options: Options,
        subscription_class: Callable[..., Any],
        message_class: type[BaseMessage],
    ) -> None:
        if not self.takes_async and any(isinstance(each, AsyncMiddleware) for each in options.middleware):
            raise TypeError("AsyncMiddleware needs connect_async: for threads, derive from Middleware")
        addresses = addresses_of(url, "stomp" if options.ssl is None else "stomp+ssl")
        for each in () if options.ssl is None else addresses:
            proxy = proxy_of(options.proxy, each)
            if not (each.tls or (proxy is not None and proxy.tls)):
                raise ValueError(f"{each} is without TLS, for which ssl= is given: write stomp+ssl:// or wss://")
        if any(each.options.get("receipts") == "false" for each in addresses):
            options = replace(options, receipts=False)
        self.options = options
        self.layers: Layers | None = layers_of(options.middleware) if options.middleware else None
        layers = self.layers or {"send": []}
        self.awaits_middleware = any(isinstance(each, AsyncMiddleware) for each in layers["send"])
        self._subscription_class = subscription_class
        self.core = ClientCore(options, lambda: uuid.uuid4().hex, self._replies, message_class)
        self.delivery = self.delivery_class(options)
        if options.http_headers and not any(each.websocket for each in addresses):
            raise ValueError("http_headers is for ws://, wss://, http:// and https:// alone")
        self.engine = Engine(self.core, addresses, self.delivery)
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
        content: Content,
        receipt: Any,  # bool
        timeout: float | None,
        resend: bool | None,
        persistent: bool | None,
    ) -> Sending:
        """Return a message for `push`, without middleware: bytes without headers take a shorter way."""
        if type(receipt) is not bool or not (resend is None or type(resend) is bool):
            check_values(bool, receipt=receipt)
            check_values(bool | None, resend=resend)
        is_bare = type(body) is bytes and headers is None and content == NO_CONTENT and persistent is None
        if is_bare and receipt and self.options.receipts and not (self.options.resend if resend is None else resend):
            call = self.call(f"SEND to {destination}", "SEND", timeout)
            return Sending(partial(self._attempt_plain, destination, body, call), len(body), self.receipt_class(call))
        message = outgoing(destination, body, headers, content, "SEND", persistent, self.options.persistent)
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
    ) -> tuple[Sending, Upload]:
        """Return a message whose body comes from a source, for `push`; without `to_the_end` nobody waits for it."""
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
        return Sending(lambda: self.engine.do(self.core.upload, upload, now(), transaction), 0, answer), upload

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
        if resend and (call is None or not call.asks):
            raise LocalProtocolError("resend=True needs receipt=True, and a client without receipts=False")
        if call is not None:
            pairs += call.receipt
            call.resend = self.options.resend if resend is None else resend
            if call.resend:
                pairs.append((self.core.link.dialect.duplicate, uuid.uuid4().hex))
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
        options = {"id": id, "ack": ack, "prefetch": prefetch, "usual": usual, **rest}
        options["confirm"] = confirm if self.options.receipts else False
        subscription = self._subscription_class(self, destination, **options)
        if handler is not None:
            subscription.is_handled = subscription.explicit
            self.core.link.expect_handlers()
        for each in self.options.middleware:
            each.subscribed(subscription)
        return subscription

    def _replies(self, name: str) -> Any:
        return self.subscription(name, "auto", None, id=name)


@checks()
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


#: The bytes of bodies at which a block ends.
BLOCK = 256 * 1024
#: The most frames of a block without receipts.
_MOST = 1000
#: The messages of `send_many`: SEND frames, or tuples of destination, body and perhaps headers. Blocks are internal.
if TYPE_CHECKING:
    Outgoings = Iterable["Frame | tuple[str, bytes | str] | tuple[str, bytes | str, HeaderSource | None] | Block",]
else:
    Outgoings = Iterable  # they are looked at one by one


class SendManyError(StompError):
    """The error of a `send_many` whose messages were not all accepted. Messages are counted from 0.

    Args:
        message: the text of the error.
        reason: the first error, as `send` would raise it: RejectedError with the ERROR as `.frame`,
            ConnectionLostError, ReceiptTimeoutError, OutboxFullError, FrameError, TypeError and so on.
        outcomes: ranges of messages in their order, with "accepted", "rejected", "unwritable" or "unknown". Messages
            outside of all ranges were not sent.

    >>> error = SendManyError("no", ValueError(), [(range(3), "accepted"), (range(3, 5), "unknown")])
    >>> error.accepted, error.outcome(4), error.outcome(5)
    (3, 'unknown', 'unsent')
    """

    def __init__(self, message: str, reason: Exception, outcomes: list[tuple[range, str]]) -> None:
        self.reason = reason
        self.outcomes = outcomes
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.reason, self.outcomes)

    @property
    def accepted(self) -> int:
        """The number of messages, from the first, that were accepted."""
        return next((len(messages) for messages, outcome in self.outcomes[:1] if outcome == "accepted"), 0)

    def outcome(self, index: int) -> str:
        """Return the outcome of one message."""
        return next((outcome for messages, outcome in self.outcomes if index in messages), "unsent")


class Passed(NamedTuple):
    """A message of `send_many` that has passed the middleware, or the error by which that refused it."""

    message: Outgoing | None
    error: Exception | None = None


class _Sent(NamedTuple):
    """A block without an answer yet."""

    messages: range
    octets: int
    receipt: Any
    call: Call

    def outcome(self) -> list[tuple[range, str]]:
        """Return the outcomes of its messages."""
        error, messages = self.call.error, self.messages
        if error is None:
            return [(messages, "accepted")]
        if not self.call.sent:
            return []
        if not isinstance(error, RejectedError) or error.frame.get("receipt-id") != self.call.id:
            return [(messages, "unknown")]
        last = messages.stop - 1  # the one with the receipt header
        return [(range(messages.start, last), "unknown"), (range(last, last + 1), "rejected")]


class Bulk:
    """One `send_many`: collects messages into blocks, and keeps account of their outcomes.

    Messages without receipt are bounded as the outbox is, so that a slow broker holds up the sender.
    """

    def __init__(
        self,
        link: BaseLink,
        receipt: Callable[[Call], Any],
        transaction: BaseTransaction | None,
        receipt_every: int,
        timeout: float | None,
        resend: bool | None,
        persistent: bool | None,
    ) -> None:
        options = link.options
        if receipt_every < 0:
            raise ValueError(f"receipt_every is {receipt_every}: it must be 0 (no receipts) or more")
        receipts = receipt_every > 0 and options.receipts
        if resend and (transaction is not None or not receipts):
            raise LocalProtocolError("resend=True needs receipts, and works only outside of transactions")
        self._link = link
        self._receipt = receipt
        self._transaction = transaction
        # Some brokers send receipts of a transaction only with that of its COMMIT: waiting for them would not end.
        self.receipts = receipts and transaction is None
        self._most = min(receipt_every or _MOST, options.outbox_frames)
        self._block_octets = min(BLOCK, options.outbox_octets)
        self._timeout = options.receipt_timeout if timeout is None else seconds_of("timeout", timeout)
        self._resend = (options.resend if resend is None else resend) and self.receipts
        self._persistent = options.persistent if persistent is None else persistent
        self._extra = link.core.link.cause()
        self._suits = link.core.link.suits  # looked at again for each block
        if transaction is not None:
            self._extra.append(("transaction", transaction.id))
        self._key = uuid.uuid4().hex
        self._group = Group()
        self._frames: list[Frame] = []
        self._texts: set[int] = set()  # indexes of those given as text
        self._has_given = False  # a Frame of the program is among them
        self._octets = 0
        self._sent: deque[_Sent] = deque()
        self._sent_octets = 0
        self.given = 0  # messages of closed blocks
        self._accepted = 0

    # ---- steps ----
    def add(self, messages: Outgoings) -> Iterator[Any]:
        """Collect messages, and send full blocks. Yields None after each block, and receipts to wait for."""
        frames, most, room = self._frames, self._most, self._block_octets
        make = self._frame if self._link.layers is None else self._frame_of
        for message in messages:
            if isinstance(message, Block):
                yield from self._add_block(message)
                continue
            try:
                frame = make(message)
            except Exception as error:
                is_known = isinstance(message, Frame | tuple | list)
                yield from self._unwritable(self.given + len(frames), error if is_known else _no_message(message))
            frames.append(frame)
            self._octets += len(frame.body)
            if len(frames) >= most or self._octets >= room:
                yield from self._close_block()

    def finish(self) -> Iterator[Any]:
        """Send the last block, and yield all receipts; as `add`."""
        if self._frames:
            yield from self._close_block()
        yield from self._settle(0, 0)

    # ---- messages ----
    def _frame(self, message: Any) -> Frame:
        """Return the frame of a message, with the headers that all messages get."""
        if isinstance(message, Frame):
            self._has_given, frame = True, sendable(message)
            if not self._extra and not self._resend and self._persistent is None and not self._suits:
                return frame
            pairs, body = frame.headers.pairs(), frame.body
        else:
            destination, body, headers = message if len(message) == 3 else _parts(message)
            if isinstance(body, bytes) and destination:
                pairs = [("destination", destination)]
                if headers:
                    is_free = type(headers) is dict and SENT.isdisjoint(headers)
                    pairs += headers.items() if is_free else pairs_of("SEND", headers)
            else:
                made = outgoing(destination, body, headers)
                pairs, body = made.pairs, made.body
                if made.text:
                    self._texts.add(len(self._frames))
        if self._persistent is not None and self._link.layers is None:
            say_persistent(pairs, None, self._persistent)
        if self._suits:
            self._link.core.link.suit(pairs)
        if self._resend:
            pairs.append((self._link.core.link.dialect.duplicate, f"{self._key}-{self.given + len(self._frames)}"))
        if self._extra:  # they come first, since the first of repeated headers counts
            pairs = [*self._extra, *pairs]
        return Frame("SEND", pairs, body)

    # ---- messages that pass middleware ----
    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction; None outside of one."""
        return None if self._transaction is None else self._transaction.id

    def opened(self, message: Any) -> list[Any]:
        """Return the messages of a block, or the message."""
        return list(message.frames()) if isinstance(message, Block) else [message]

    def content(self, message: Any) -> Outgoing:
        """Return headers and body of a message. Raises as `send_many` if it is none."""
        if not isinstance(message, Frame):
            content = outgoing(*_parts(message))
        else:
            content = Outgoing(sendable(message).headers.pairs(), message.body, False)
        say_persistent(content.pairs, None, self._persistent)
        return content

    def _frame_of(self, passed: Any) -> Frame:
        """Return the frame of a message that has passed the middleware, or raise its error."""
        if passed.message is None:
            assert passed.error is not None
            raise passed.error
        if passed.message.text:
            self._texts.add(len(self._frames))
        return self._frame(Frame("SEND", passed.message.pairs, passed.message.body))

    # ---- blocks ----
    def _octets_of(self, frames: list[Frame], version: str) -> bytes:
        if not self._texts or not self._link.core.link.dialect.jms:
            return serialize_many(frames, version)
        return b"".join(
            serialize(frame, version, content_length="never" if index in self._texts else "auto")
            for index, frame in enumerate(frames)
        )

    def _close_block(self) -> Iterator[Any]:
        """Send the collected messages, once there is room."""
        frames, messages = self._frames, range(self.given, self.given + len(self._frames))
        call = self._call(messages) if self.receipts else None
        if call is not None:
            last = frames[-1]
            frames[-1] = Frame("SEND", [("receipt", call.id), *last.headers.pairs()], last.body)
        version = self._link.core.link.version or "1.2"
        try:
            octets = self._octets_of(frames, version)
        except (StompError, TypeError) as error:
            culprit = next((at for at, frame in enumerate(frames) if not _fits(frame, version)), 0)
            yield from self._unwritable(messages[culprit], error)
        if self._has_given:
            yield from self._check(octets, frames, messages, call)
        block = Block(octets, len(frames), version)
        frames.clear()
        self._suits = self._link.core.link.suits
        self._texts.clear()
        self._has_given = False
        self._octets = 0
        yield from self._go(block, messages, call)

    def _check(self, octets: bytes, frames: list[Frame], messages: range, call: Call | None) -> Iterator[Any]:
        """Refuse frames with a header that belongs to the client; a search of the block is faster than of each one."""
        given = {"receipt": int(call is not None), "transaction": len(frames) if self._transaction else 0}
        if all(octets.count(f"\n{name}:".encode()) == count for name, count in given.items()):
            return
        ours = {*self._extra, *([] if call is None else [("receipt", call.id)])}
        for index, frame in zip(messages, frames):
            name = owned_of("frame", [name for name, value in frame.headers.pairs() if (name, value) not in ours])
            if name is not None:
                why = f"the frame has {name!r}, which belongs to the client: {OWNED['frame'][name]}"
                yield from self._unwritable(index, ValueError(why))

    def _add_block(self, block: Block) -> Iterator[Any]:
        """Send a block that was serialized elsewhere."""
        if self._frames:
            yield from self._close_block()
        row = self._link.core.link.dialect
        suits = row.types or row.values or any(f"\n{name}:".encode() in block.body for name in row.only_true)
        is_changed = self._resend or self._persistent is not None or suits
        if block.version != self._link.core.link.version or is_changed:
            for frame in block.frames():
                if frame.get("content-length") is None:
                    self._texts.add(len(self._frames))
                yield from self.add([frame])
            return
        messages = range(self.given, self.given + block.count)
        call = self._call(messages) if self.receipts else None
        yield from self._go(block if call is None else block.with_receipt(call.id), messages, call)

    def _go(self, block: Block, messages: range, call: Call | None) -> Iterator[Any]:
        """Send a block, and check receipts."""
        sent = None
        if call is not None:  # made before the call is open: else its outcome may be missed
            sent = _Sent(messages, len(block.body), self._receipt(call), call)
        yield from self._put(block, sent)
        self.given = messages.stop
        options = self._link.options
        yield from self._settle(options.outbox_frames, options.outbox_octets)
        yield None

    def _call(self, messages: range) -> Call:
        last = messages.stop - 1
        what = f"messages {messages.start} to {last}" if len(messages) > 1 else f"message {last}"
        call = self._link.core.link.calls.make(what, self._timeout, "SEND", resend=self._resend)
        call.group = self._group
        return call

    def _put(self, block: Block, sent: _Sent | None) -> Iterator[Any]:
        """Put a block into the outbox, once it has room."""
        engine, core = self._link.engine, self._link.core
        call = None if sent is None else sent.call
        until = now() + self._timeout
        try:
            while not engine.do(core.send_block, block, now(), call, self._transaction):
                waiting = core.link.calls.make("waiting for room", max(until - now(), 0))
                receipt = self._receipt(waiting)
                engine.do(core.when_room, waiting, now(), len(block.body), block.count)
                yield receipt
                if isinstance(waiting.error, ReceiptTimeoutError):
                    raise OutboxFullError(f"the outbox had no room in {self._timeout} s")
        except StompError as error:
            yield from self._fail(error)
        if sent is not None:
            self._sent.append(sent)
            self._sent_octets += sent.octets

    # ---- outcomes ----
    def _settle(self, frames: int, octets: int) -> Iterator[Any]:
        """Check finished receipts, and wait for others until at most this much is without one."""
        sent = self._sent
        while sent:
            first = sent[0]
            if not first.call.done:
                if self.given - first.messages.start <= frames and self._sent_octets <= octets:
                    return
                yield first.receipt
            if first.call.error is not None:
                yield from self._fail(first.call.error)
            sent.popleft()
            self._sent_octets -= first.octets
            self._accepted = first.messages.stop

    def _unwritable(self, index: int, error: Exception) -> Iterator[Any]:
        yield from self._fail(error, f"message {index} cannot be written: {error}", index)

    def _fail(self, error: Exception, text: str = "", unwritable: int | None = None) -> Iterator[Any]:
        """Wait for all open receipts, each with its timeout, and raise SendManyError."""
        for each in self._sent:
            if not each.call.done:
                yield each.receipt
        first = next((each.call.error for each in self._sent if each.call.error is not None), None)
        if first is not None:  # it precedes the error that was noticed
            error, text, unwritable = first, "", None
        outcomes = [(range(self._accepted), "accepted") if self.receipts else (range(self.given), "unknown")]
        for each in self._sent:
            outcomes += each.outcome()
        if unwritable is not None:
            outcomes.append((range(unwritable, unwritable + 1), "unwritable"))
        raise SendManyError(text or str(error), error, _joined(outcomes)) from error


def _parts(message: Any) -> tuple[Any, Any, Any]:
    """Return destination, body and headers of a message that is a tuple."""
    if not isinstance(message, tuple | list) or not 2 <= len(message) <= 3:
        raise _no_message(message)
    return (*message, None)[:3]


def _no_message(given: object) -> TypeError:
    return TypeError(f"it is {type(given).__name__}: give a Frame, (destination, body) or (destination, body, headers)")


def _joined(outcomes: list[tuple[range, str]]) -> list[tuple[range, str]]:
    """Return the outcomes with equal neighbours merged."""
    joined: list[tuple[range, str]] = []
    for messages, outcome in outcomes:
        if joined and joined[-1][1] == outcome and joined[-1][0].stop == messages.start:
            messages = range(joined.pop()[0].start, messages.stop)
        if messages:
            joined.append((messages, outcome))
    return joined


def _fits(frame: Frame, version: str) -> bool:
    try:
        serialize(frame, version)
    except (StompError, TypeError):
        return False
    return True
