"""Consumer: a subscription as its queue sees it, with its credit, its unacknowledged deliveries and their ack ids.

QueueArguments: the x- headers by which its SUBSCRIBE, or a SEND, configures a queue, as in RabbitMQ. They apply to a
new queue, for as long as it exists. `Config.queue_arguments`, which the dialect sets, says what happens to a client
that names others later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from stompcodec.broker.bodies import Conversion, Readdressed, conversion_of
from stompcodec.broker.config import Config
from stompcodec.broker.connections import Deliverer, Maker, Peer
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Looked, Wait
from stompcodec.broker.queues.heads import head_of
from stompcodec.broker.queues.ready import Tally
from stompcodec.broker.selectors import Selector, SelectorError, compile_selector
from stompcodec.broker.settings import Address
from stompcodec.broker.storage.journal import Journal, Undoable
from stompcodec.broker.values import (
    REDELIVERY_DELAYS,
    UNLIMITED,
    CreditGrant,
    Reader,
    Refused,
    Values,
    is_read,
    read_value,
    read_values,
)
from stompcodec.codec import Frame, serialize
from stompcodec.errors import FrameError, MissingExtraError

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
#: The values of the header `ack` of SUBSCRIBE.
MODES = (AUTO, CLIENT, INDIVIDUAL)
#: The least bytes of a MESSAGE behind the head that the broker makes.
_LEAST_TAIL = 16
#: Headers of MESSAGE that include-seq must not name, because they have a meaning.
_TAKEN = (
    *("message-id", "subscription", "ack", "destination", "content-length", "content-type", "redelivered"),
    *("redelivery-count", "browser", "receipt-id", "transaction", "reply-to"),
)


class QueueArguments(NamedTuple):
    """The arguments of a queue. A field is None without its header.

    >>> read_arguments({"x-max-length": "10", "x-overflow": "reject-publish"}.get).max_length
    10
    """

    message_ttl: float | None = None
    """Seconds until a message expires, unless the message itself expires earlier."""
    expires: float | None = None
    """Seconds without a consumer after which the queue is deleted, with its messages."""
    max_length: int | None = None
    max_length_bytes: int | None = None
    """The most that the queue may hold. Above it, the oldest messages are dropped."""
    reject_publish: bool = False
    """Above it, SENDs are refused instead."""
    dead_letter_queue: str | None = None
    """The queue for messages that expired or were dropped, by its name without a prefix."""

    @property
    def is_bounded(self) -> bool:
        """True if messages are dropped or refused above a length, so that all of the queue is kept in memory."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def text(self) -> str:
        """The form in which the store keeps them. `load_arguments` reads it."""
        return json.dumps(self)


_Header = Callable[[str], "str | None"]
#: The type of a queue -> why it is refused, and what to do.
_KINDS = {
    "classic": None,
    "stream": ("streams are not supported", "Browse a queue: browser:true, from-seq:N, include-seq:NAME."),
    "quorum": (
        "quorum queues are not supported",
        "RabbitMQ drops their messages after 21 deliveries that end with their connection: leave x-queue-type out.",
    ),
}
_ODD = ("bad x-queue-type", "x-queue-type must be classic.")
#: The headers that are read. x-max-priority has no effect: each queue has priorities.
_NAMES = (
    *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow"),
    *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type"),
)


def read_arguments(header: _Header) -> QueueArguments | None:
    """Read the queue arguments of a SUBSCRIBE or SEND; return None if it has none. Raise Refused if one is invalid, or
    not supported.
    """
    if list(map(header, _NAMES)).count(None) == len(_NAMES):
        return None
    refusal = _KINDS.get(header("x-queue-type") or "classic", _ODD)
    if refusal is not None:
        raise Refused(*refusal)
    message_ttl, expires = _number(header, "x-message-ttl"), _number(header, "x-expires")
    overflow = header("x-overflow") or "drop-head"
    if overflow not in ("drop-head", "reject-publish"):
        raise Refused("bad x-overflow", "x-overflow must be drop-head or reject-publish.")
    arguments = QueueArguments(
        None if message_ttl is None else message_ttl / 1000,
        None if expires is None else expires / 1000,
        _number(header, "x-max-length"),
        _number(header, "x-max-length-bytes"),
        overflow == "reject-publish",
        _dead_letter(header),
    )
    return None if arguments == QueueArguments() else arguments


def load_arguments(text: str | None) -> QueueArguments | None:
    """Read what `QueueArguments.text` wrote; return None for any other text.

    >>> load_arguments(QueueArguments(max_length=3).text).max_length, load_arguments("no such text")
    (3, None)
    """
    try:
        return None if text is None else QueueArguments(*json.loads(text))
    except (ValueError, TypeError):
        return None


def _dead_letter(header: _Header) -> str | None:
    exchange, key = header("x-dead-letter-exchange"), header("x-dead-letter-routing-key")
    if exchange is None and key is None:
        return None
    if exchange != "" or not key:
        remedy = "x-dead-letter-exchange must be empty, and x-dead-letter-routing-key the name of a queue."
        raise Refused("bad x-dead-letter-exchange", remedy)
    return key


def _number(header: _Header, name: str) -> int | None:
    text = header(name)
    return None if text is None else read_value(name, text)


class SubscribeRequest(NamedTuple):
    """The headers of a SUBSCRIBE. Most fields are None, or False, without their header.

    >>> SubscribeRequest("/queue/a").mode
    'auto'
    """

    destination: str
    key: str | None = None
    """The id of the subscription; None for one of 1.0 without."""
    mode: str = AUTO
    window: int = 1
    """The most deliveries that may be unacknowledged; ignored in auto mode."""
    octets: int | None = None
    """The window in bytes: deliveries stop when the unacknowledged ones reach it; None for no limit."""
    credit: CreditGrant | None = None
    """The header `credit`: deliveries before the client grants more."""
    selector: Selector | None = None
    exclusive: bool = False
    priority: int = 0
    """Consumers of higher priority come first."""
    browser: bool = False
    """It is shown messages, which stay in the queue."""
    browser_end: bool = True
    """Browsing ends with a mark after the last message."""
    include_seq: str | None = None
    """The name of a header for the seq of each message."""
    from_seq: int | None = None
    """The lowest seq of its messages; -1 for messages that come after the SUBSCRIBE."""
    routing: str | None = None
    durable: str | None = None
    """The name of a durable subscription."""
    durable_flag: bool = False
    makes_durable: bool = True
    """A durable subscription is made if there is none of that name."""
    auto_delete: bool | None = None
    queue_name: str | None = None
    transformation: str | None = None
    encoding: str | None = None
    arguments: QueueArguments | None = None
    """The arguments for its queue."""
    is_named: bool = False
    """A refused frame counts as an attempt of its messages only if it names one."""
    redelivery_delay: int | None = None
    """Milliseconds between its NACK of a message and the next delivery; None for what the configuration says."""
    readdressed: bool = False
    """Its queue also gets messages of a topic, which are delivered with the queue as their destination."""

    @property
    def selector_text(self) -> str | None:
        """The text of the selector; None without one."""
        return None if self.selector is None else self.selector.text

    @property
    def is_plain(self) -> bool:
        """Messages are written as they came, and counted one by one, so that the quick roads can serve it."""
        return self.selector is None and self.is_direct

    @property
    def is_direct(self) -> bool:
        """Messages are written and counted as for `is_plain`; a selector may skip some."""
        return not (
            self.octets is not None
            or self.credit is not None
            or self.include_seq is not None
            or self.from_seq is not None
            or self.browser
            or self.transformation is not None
            or self.encoding is not None
            or self.readdressed
        )


# ---- readers of values: each takes the name of the header and its text, and raises Refused ----
def _text(_name: str, text: str) -> str:
    return text


def _selector(text: str, dialect: str) -> Selector:
    try:
        return compile_selector(text, dialect)
    except SelectorError as error:
        raise Refused("bad selector", str(error)) from error
    except MissingExtraError as error:
        raise Refused("selectors are not available", f"The broker cannot compile them: {error}") from error


def _header_name(name: str, text: str) -> str:
    if not text or len(text) > 100 or text in _TAKEN:
        raise Refused(f"bad {name}", f"{name} is the name of a header for the sequence number: 1 to 100 characters.")
    return text


#: Field -> reader, and its headers, of which the first one in a SUBSCRIBE counts. Without a reader, `values.py` has
#: read them.
_FIELDS: dict[str, tuple[Callable[[str, str], Any] | None, tuple[str, ...]]] = {
    "credit": (None, ("credit",)),
    "selector": (_text, ("selector",)),
    "exclusive": (None, ("exclusive", "activemq.exclusive")),
    "priority": (None, ("consumer-priority", "activemq.priority", "x-priority")),
    "browser": (None, ("browser",)),
    "browser_end": (None, ("browser-end",)),
    "include_seq": (_header_name, ("include-seq",)),
    "from_seq": (None, ("from-seq",)),
    "routing": (_text, ("subscription-type",)),
    "durable": (_text, ("durable-subscriber-name", "durable-subscription-name", "activemq.subscriptionName")),
    "durable_flag": (None, ("durable", "persistent")),
    "auto_delete": (None, ("auto-delete",)),
    "queue_name": (_text, ("x-queue-name",)),
    "transformation": (_text, ("transformation",)),
    "encoding": (_text, ("content-encoding",)),
    "is_named": (lambda _name, text: text == "named", ("attempts",)),
    "redelivery_delay": (None, REDELIVERY_DELAYS),
}


def read_request(session: Reader, frame: Frame) -> SubscribeRequest:
    """Read a SUBSCRIBE, or raise Refused if a header has an invalid value."""
    config, values, header = session.broker.config, read_values(session, frame), partial(session.header, frame)
    fields: dict[str, Any] = {"mode": header("ack") or AUTO}
    if fields["mode"] not in MODES:
        raise Refused("unknown ack mode", "ack is auto, client or client-individual.")
    for field, (read, names) in _FIELDS.items():
        for name in names:
            value = values.get(name) if read is None else header(name)
            if value is not None and (read is None or is_read(name, config.dialect)):
                fields[field] = value if read is None else read(name, value)
                break
    if "selector" in fields:
        fields["selector"] = _selector(fields["selector"], config.dialect)
    if not is_read("durable", config.dialect):
        fields.pop("durable_flag", None)
    credit = fields.get("credit")
    if credit is not None and credit.auto and not credit.messages:
        fields["credit"] = credit._replace(messages=UNLIMITED)
    if config.queue_arguments != "ignore":
        fields["arguments"] = read_arguments(header)
    window, octets = _window(values, fields["mode"], fields.get("credit"), config)
    if fields["mode"] == AUTO and config.prefetch_octets and "credit" not in fields:
        count, size = _window(values, CLIENT, CreditGrant(), config)  # Artemis has no ACK that would give it back
        if count < UNLIMITED or size is not None:
            fields["credit"] = CreditGrant(count, size, False)
    return SubscribeRequest(header("destination") or "", header("id"), window=window, octets=octets, **fields)


def check_writable(request: SubscribeRequest, version: str) -> None:
    """Raise Refused if a version cannot write a header that a subscription puts on its messages, or would write one
    with another meaning.

    >>> check_writable(SubscribeRequest("/queue/a", "1", include_seq="s:eq"), "1.2")
    >>> check_writable(SubscribeRequest("/queue/a", "1", include_seq="s:eq"), "1.0")
    Traceback (most recent call last):
        ...
    stompcodec.broker.values.Refused: bad include-seq
    """
    seq = request.include_seq
    if seq is not None and version == "legacy" and seq.lower() in _TAKEN:
        raise Refused("bad include-seq", f"The legacy dialect ignores case, so {seq} would be {seq.lower()}.")
    for name, pair in (
        ("id", None if request.key is None else ("subscription", request.key)),
        ("destination", ("destination", request.destination)),
        ("include-seq", None if seq is None else (seq, str(2**63))),
    ):
        if pair is not None:
            try:
                serialize(Frame("MESSAGE", (pair,)), version)
            except FrameError as error:
                what = error.detail or error.kind
                raise Refused(f"bad {name}", f"STOMP {version} cannot write it on each MESSAGE: {what}.") from None


def _window(values: Values, mode: str, credit: CreditGrant | None, config: Config) -> tuple[int, int | None]:
    """Return how many deliveries may be unacknowledged, and how many bytes of them (None for no limit)."""
    if mode == AUTO:
        return 1, None
    octets, size, count = map(values.get, ("consumer-window-size", "activemq.prefetchSize", "prefetch-count"))
    if config.prefetch_octets:
        octets = size if octets is None else octets
    elif count is None:
        count = size
    if count is not None:  # 0 or less: as many as the broker allows
        return min(count, UNLIMITED) if count > 0 else UNLIMITED, None if octets is None else _octets(octets)[1]
    if octets is not None:
        return _octets(octets)
    if credit is not None:
        return credit.messages, None
    if config.window is not None:
        return _octets(config.window)
    return config.prefetch, None


def _octets(size: int) -> tuple[int, int | None]:
    """Return the window for a number of bytes: 0 stands for one message at a time, -1 for no limit."""
    if size <= 0:
        return (1 if size == 0 else UNLIMITED), None
    return min(size // _LEAST_TAIL + 1, UNLIMITED), size


class Credit:
    """Messages and bytes that may still be delivered, with at most `window` messages unacknowledged. Other consumers
    count messages only, in `Consumer.credit`.

    >>> credit = Credit(CreditGrant(10, 100, True), 10)
    >>> credit.spend(100); credit.left(1)
    0
    >>> credit.settled([100]); credit.left(0)
    10
    """

    __slots__ = ("_auto", "_messages", "_octets", "_overhead", "window")

    def __init__(self, grant: CreditGrant, window: int, overhead: int = 0) -> None:
        self._messages = grant.messages
        self._octets = grant.octets
        self._auto = grant.auto
        self.window = window
        self._overhead = overhead

    def left(self, unacked: int) -> int:
        """Return how many deliveries may follow: 0 once the bytes are used up. The last message may exceed them."""
        if self._octets is not None and self._octets <= 0:
            return 0
        return max(0, min(self._messages, self.window - unacked))

    def spend(self, octets: int) -> None:
        """Use credit for a delivery of this size."""
        self._messages -= 1
        if self._octets is not None:
            self._octets -= octets + self._overhead

    def settled(self, sizes: Iterable[int]) -> None:
        """Give back the credit of deliveries of these sizes, which were acknowledged or refused."""
        if self._auto:
            for octets in sizes:
                self._messages += 1
                if self._octets is not None:
                    self._octets += octets + self._overhead

    def grant(self, grant: CreditGrant) -> None:
        """Add the credit of a `credit` header of ACK."""
        self._messages = min(self._messages + grant.messages, UNLIMITED)
        if self._octets is not None and grant.octets is not None:
            self._octets = min(self._octets + grant.octets, 2**62)


def credit_of(request: SubscribeRequest, overhead: int = 0) -> Credit | None:
    """Return the credit of a new subscription; None if only unacknowledged messages count. `overhead` is added to the
    bytes of each message.

    A `credit` header limits deliveries, in all ack modes; a window in bytes limits unacknowledged deliveries.
    """
    if request.credit is not None:
        window = UNLIMITED if request.mode == "auto" else request.window
        octets = request.credit.octets
        if octets is None:
            octets = request.octets
        if request.mode == "auto" and request.credit.auto:  # each delivery is acknowledged when it is made
            return None
        return Credit(request.credit._replace(octets=octets), window, overhead)
    if request.octets is not None:
        return Credit(CreditGrant(UNLIMITED, request.octets), request.window, overhead)
    return None


def size_of(message: Message) -> int:
    """Return the bytes of a message in a window, including a large body in a file."""
    return message.octets


#: The number of a delivery, and its message.
Delivery = tuple[int, Message]


class Source(Deliverer, Undoable, Protocol):
    """The source of a consumer's messages: a queue, or a browser's view of one. `Queue` says what each member means."""

    @property
    def home(self) -> Source: ...

    members: dict[Consumer, None]

    @property
    def ring(self) -> Sequence[Consumer]: ...

    journal: Journal | None
    arguments: QueueArguments | None
    maker: Maker | None
    tally: Tally
    count: int
    octets: int

    @property
    def full(self) -> bool: ...
    def is_expired(self, message: Message) -> bool: ...
    def add(self, consumer: Consumer) -> None: ...
    def drop(self, consumer: Consumer) -> list[Message]: ...
    def offer(self, consumer: Consumer) -> int: ...
    @property
    def pages(self) -> Line: ...
    def take_one(self, consumer: Consumer, looked: Looked) -> bool | Wait: ...
    def undeliver(self, consumer: Consumer, message: Message, error: Exception) -> None: ...
    def put(self, message: Message, stored: bool = False) -> bool: ...
    def block(self, session: Peer) -> None: ...
    def settle(self, deliveries: Sequence[Delivery], stored: bool = False) -> None: ...
    def count_out(self, count: int, octets: int) -> None: ...
    def requeue(self, messages: list[Message]) -> None: ...
    def drop_oldest(self) -> bool: ...
    def suspend(self) -> None: ...
    def go_on(self) -> None: ...
    def close(self) -> None: ...


class Consumer:
    """A subscription. `number` is its number in the session. Deliveries are numbered from 1; an ack id is
    "SUBSCRIPTION-DELIVERY", by their numbers.
    """

    __slots__ = (
        *("acks", "address", "after", "before", "closed", "conversion", "cost", "credit", "destination", "direct"),
        *("direct_selective", "durable", "flow", "in_ring", "key", "last", "mode", "number", "numbered", "oldest"),
        *("outbox", "place", "queue", "request", "selector", "session", "single", "start", "tags"),
        *("unacked", "version", "window"),
    )

    def __init__(self, session: Peer, queue: Source, number: int, request: SubscribeRequest) -> None:
        self.session = session
        self.outbox = session.outbox
        self.queue = queue
        self.number = number
        #: The id of the subscription; None for one of 1.0 without.
        self.key = request.key
        #: One of `MODES`.
        self.mode = request.mode
        self.request = request
        #: The most deliveries that may be unacknowledged; ignored in auto mode.
        self.window = request.window
        #: Selects the messages that it takes; None for all.
        self.selector = request.selector
        self.version = session.version
        #: Deliveries stay unacknowledged until the client says more.
        self.acks = request.mode != AUTO
        #: The credit, where more than unacknowledged messages count; None otherwise.
        self.flow = credit_of(request, session.broker.config.window_overhead)
        #: Further deliveries that it may have.
        self.credit = request.window if self.flow is None else self.flow.left(0)
        #: It is in the ring of its queue.
        self.in_ring, self.closed = False, False
        #: The number of the latest delivery, and of the oldest that may be unacknowledged.
        self.last, self.oldest = 0, 1
        #: Messages by the number of their delivery, in order.
        self.unacked: dict[int, Message] = {}
        #: Message-id to number, for versions whose ACK has no ack id.
        self.tags: dict[str, int] | None = {} if self.acks and self.version != "1.2" else None
        direct = self.version == "1.2" and request.is_direct
        #: MESSAGE is the head, and the tail of the message unchanged: one chunk over WebSocket, several over TCP.
        self.direct = direct and request.is_plain
        #: As `direct`, for a consumer with a selector that acknowledges nothing.
        self.direct_selective = direct and self.selector is not None and not self.acks
        #: An ACK names one delivery by its ack id, and gives back the credit for that one alone.
        self.single = self.mode == INDIVIDUAL and self.version == "1.2" and request.is_plain
        how = conversion_of(request.transformation, request.encoding, session.broker.config)
        #: Converts bodies; None to leave them as they were sent.
        self.conversion: Conversion | Readdressed | None = Readdressed(queue.name, how) if request.readdressed else how
        self._set_heads()
        #: Bytes of memory that it takes.
        self.cost = 0
        #: The destination as SUBSCRIBE had it.
        self.destination = queue.name
        #: The topic, or the pattern of topics, of a topic subscription; None for the subscription to a queue.
        self.address: Address | None = None
        #: Order among the subscriptions of its topic, or among those by pattern: later ones have higher places.
        self.place = 0
        #: The durable subscription, which outlives this consumer; None for none.
        self.durable: object = None

    def _set_heads(self) -> None:
        #: The head of a MESSAGE: what all of them have in common; what stands before its message-id, and behind it. In
        #: 1.2 the number of a delivery that is to be acknowledged comes last.
        first = Frame("MESSAGE", {} if self.key is None else {"subscription": self.key})
        self.start = serialize(first, self.version)[:-2]
        self.numbered = self.acks and self.version == "1.2"
        self.before = self.start + b"message-id:"
        self.after = b"\nack:%d-" % self.number if self.numbered else b"\n"

    def write(self, message: Message) -> None:
        """Write a MESSAGE that is its head and the tail of the message, and note the delivery."""
        tag = 0
        if self.acks:
            tag = self.last + 1
        head = head_of(self.before, message.ident, self.after, tag if self.numbered else 0)
        self.outbox.deliver(head, message.tail, message.size)
        if tag:
            self.last = tag
            self.unacked[tag] = message
            self.credit -= 1

    def send(self, message: Message) -> None:
        """Write a message to the outbox, in all its forms. `write` is for most of them."""
        tag = self.last + 1
        head = head_of(self.before, message.ident, self.after, tag if self.numbered else 0)
        if self.request.include_seq is not None:
            head += self.seq_line(message.seq)
        if message.attempts:
            head += b"redelivered:true\nredelivery-count:%d\n" % message.attempts
        converted = message if self.conversion is None else self.conversion.apply(message)
        tail = converted.tail if self.version == "1.2" else converted.tail_for(self.version)
        if converted.body is not None:
            self.outbox.deliver_large(head, tail, converted.body, partial(self.queue.undeliver, self, message))
        else:
            self.outbox.deliver(head, tail, converted.size)
        # Invariant: the message is UNACKED only once it is written, so an exception above leaves nothing to undo.
        if self.acks:
            self.last = tag
            self.unacked[tag] = message
            self.credit -= 1
            if self.tags is not None:
                self.tags[message.id] = tag
        if self.flow is not None:
            self.flow.spend(size_of(message))
            self.credit = self.flow.left(len(self.unacked))

    def seq_line(self, seq: int) -> bytes:
        """Return the header that include-seq asks for, with the seq of a message; b"" without include-seq."""
        name = self.request.include_seq
        return b"" if name is None else serialize(Frame("MESSAGE", {name: str(seq)}), self.version)[8:-2]

    def tag_of(self, message_id: str) -> int | None:
        """Return the number of a delivery by its message-id; None if it is not unacknowledged."""
        found = (tag for tag, message in self.unacked.items() if message.id == message_id)
        return next(found, None) if self.tags is None else self.tags.get(message_id)

    def take(self, tag: int) -> list[Delivery]:
        """Remove the deliveries that an ACK or NACK covers from the unacknowledged ones, and return them in order.
        Raise Refused if the delivery is unknown, or was acknowledged before.
        """
        message = self.unacked.pop(tag, None)
        if message is None:
            raise Refused("no such delivery", "It was acknowledged before, or never made.")
        if self.mode == CLIENT and self.oldest < tag:
            before = [number for number in range(self.oldest, tag) if number in self.unacked]
            covered = [*((number, self.unacked.pop(number)) for number in before), (tag, message)]
        else:
            covered = [(tag, message)]
        if self.mode == CLIENT:
            self.oldest = tag + 1
        if self.tags is not None:
            for _tag, taken in covered:
                self.tags.pop(taken.id, None)
        self._settled(covered)
        return covered

    def forget(self, tag: int) -> None:
        """Remove one delivery from the unacknowledged ones, in any ack mode."""
        message = self.unacked.pop(tag)
        if self.tags is not None:
            self.tags.pop(message.id, None)
        self._settled([(tag, message)])

    def undeliver(self, message: Message) -> bool:
        """Undo the delivery of a message that was not written completely. Return False if it is not unacknowledged."""
        tag = next((tag for tag, unacked in reversed(self.unacked.items()) if unacked is message), None)
        if tag is not None:
            del self.unacked[tag]
        if self.tags is not None:
            self.tags.pop(message.id, None)
        return tag is not None

    def _settled(self, deliveries: list[Delivery]) -> None:
        """Give back the credit of deliveries."""
        if self.flow is None:
            self.credit += len(deliveries)
        else:
            self.flow.settled([size_of(message) for _tag, message in deliveries])
            self.credit = self.flow.left(len(self.unacked))

    def grant(self, grant: CreditGrant) -> None:
        """Add credit from the `credit` header of ACK. Ignore it if SUBSCRIBE had none: then ACK gives back credit."""
        if self.flow is not None and self.request.credit is not None:
            self.flow.grant(grant)
            self.credit = self.flow.left(len(self.unacked))

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Undo `take`: make deliveries unacknowledged again."""
        self.unacked.update(deliveries)
        self.oldest = min(self.oldest, deliveries[0][0])
        if self.flow is None:
            self.credit -= len(deliveries)
        else:
            for _tag, message in deliveries:
                self.flow.spend(size_of(message))
            self.credit = self.flow.left(len(self.unacked))
        if self.tags is not None:
            for tag, message in deliveries:
                self.tags[message.id] = tag

    @property
    def is_stored(self) -> bool:
        """The store keeps more of its queue than the messages."""
        return self.durable is not None or self.request.readdressed or self.request.arguments is not None

    def resize(self, window: int) -> None:
        """Set the most deliveries that may be unacknowledged. Credit is below 0 while there are more than that."""
        if self.flow is None:
            self.credit += window - self.window
        else:
            self.flow.window = window
            self.credit = self.flow.left(len(self.unacked))
        self.window = window

    def close(self) -> list[Message]:
        """End the deliveries. Return the unacknowledged messages, in order."""
        self.closed = True
        self.credit = 0
        messages = [self.unacked[tag] for tag in sorted(self.unacked)]
        self.unacked = {}
        return messages
