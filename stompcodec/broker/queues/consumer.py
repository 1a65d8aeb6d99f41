"""Consumer: a subscription as its queue sees it, with its credit, its unacknowledged deliveries and their ack ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from stompcodec.broker.bodies.convert import Conversion, Readdressed, conversion_of
from stompcodec.broker.config.settings import Address
from stompcodec.broker.connections import Deliverer, Maker, Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.message import Message
from stompcodec.broker.queues.arguments import QueueArguments
from stompcodec.broker.queues.backlog import Looked, Wait
from stompcodec.broker.queues.credit import credit_of, size_of
from stompcodec.broker.queues.subscribe_request import AUTO, CLIENT, INDIVIDUAL, SubscribeRequest
from stompcodec.broker.queues.tally import Tally
from stompcodec.broker.storage.journal import Journal, Undoable
from stompcodec.broker.values import CreditGrant
from stompcodec.codec import Frame, serialize

#: Sent after each frame, because a well-known client cannot read without it.
EOL = b"\n"

#: The number of a delivery, and its message.
Delivery = tuple[int, Message]


class Source(Deliverer, Undoable, Protocol):
    """The source of a consumer's messages: a queue, or a browser's view of one. `Queue` says what each member means."""

    @property
    def home(self) -> Source: ...
    @property
    def members(self) -> dict[Consumer, None]: ...
    @property
    def ring(self) -> Sequence[Consumer]: ...
    @property
    def journal(self) -> Journal | None: ...
    @property
    def arguments(self) -> QueueArguments | None: ...
    @property
    def maker(self) -> Maker | None: ...
    @property
    def tally(self) -> Tally: ...
    @property
    def count(self) -> int: ...
    @property
    def octets(self) -> int: ...
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
    def requeue(self, messages: list[Message]) -> None: ...
    def count_out_one(self, octets: int) -> None: ...
    def drop_oldest(self) -> bool: ...
    def suspend(self) -> None: ...
    def go_on(self) -> None: ...
    def close(self) -> None: ...


class Consumer:
    """A subscription. `number` is its number in the session. Deliveries are numbered from 1; an ack id is
    "SUBSCRIPTION-DELIVERY", by their numbers.
    """

    __slots__ = (
        *("acks", "address", "closed", "conversion", "cost", "credit", "destination", "direct", "direct_selective"),
        *("durable", "flow", "head", "in_ring", "key", "last", "mode", "number", "oldest", "outbox", "place"),
        *("queue", "quick", "request", "selector", "session", "single", "start", "tags"),
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
        self.flow = credit_of(request)
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
        self.start, self.head, self.quick = self._heads(session.broker.ident)
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

    def _heads(self, ident: bytes) -> tuple[bytes, bytes, bytes]:
        """Return MESSAGE up to the tail in three forms: the part that all have in common; a format for the message-id
        and the number of the delivery; and one for the seq of a message of this broker and that number."""
        headers = {} if self.key is None else {"subscription": self.key}
        start = serialize(Frame("MESSAGE", headers), self.version)[:-2]
        before, after = start.replace(b"%", b"%%") + b"message-id:", b"\n"
        if self.acks and self.version == "1.2":
            after += b"ack:%d-%%d\n" % self.number
        return start, before + b"%b" + after, before + ident + after

    def send(self, message: Message) -> None:
        """Write a message to the outbox by the slow road, which handles all cases. `Queue.deliver` is the quick one."""
        tag = self.last + 1
        numbered = self.acks and self.tags is None
        head = self.head % ((message.ident, tag) if numbered else message.ident)
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
        """Return the number of a delivery by its message-id, where ACK has that; None if it is not unacknowledged."""
        return None if self.tags is None else self.tags.get(message_id)

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
