"""Consumer: a subscription as its queue sees it. Credit, deliveries that are not acknowledged, and their ack ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stompcodec.broker.bodies.convert import Readdressed, Shape, shape_of
from stompcodec.broker.errors import Refused
from stompcodec.broker.message import Message
from stompcodec.broker.peer import Deliverer
from stompcodec.broker.queues.credit import credit_of, size_of
from stompcodec.broker.queues.subscribe_request import AUTO, CLIENT, INDIVIDUAL, MODES, CreditGrant
from stompcodec.broker.storage.journal import Journal, Undoable
from stompcodec.codec import Frame, serialize

if TYPE_CHECKING:
    from stompcodec.broker.config.settings import Address
    from stompcodec.broker.peer import Maker, Peer
    from stompcodec.broker.queues.arguments import QueueArguments
    from stompcodec.broker.queues.subscribe_request import SubscribeRequest

__all__ = ["AUTO", "CLIENT", "EOL", "INDIVIDUAL", "MODES", "Consumer", "Delivery", "Source"]

#: Behind each frame: a well-known client cannot read without.
EOL = b"\n"

#: A message on its way, by the number of its delivery.
Delivery = tuple[int, Message]


class Source(Deliverer, Undoable, Protocol):
    """What a consumer gets its messages from: a queue, or what a browser sees of one."""

    @property
    def home(self) -> Source:
        """Where the messages are."""

    @property
    def members(self) -> dict[Consumer, None]:
        """All consumers, in the order of their subscriptions."""

    @property
    def journal(self) -> Journal | None:
        """To the store; None for one that ends with its session or subscription."""

    @property
    def arguments(self) -> QueueArguments | None:
        """What a client has said of it."""

    @property
    def maker(self) -> Maker | None:
        """Who made it."""

    @property
    def count(self) -> int:
        """Messages: READY, UNACKED and held."""

    @property
    def octets(self) -> int:
        """Of its messages."""

    @property
    def full(self) -> bool:
        """The bound is passed, or memory is short."""

    def is_expired(self, message: Message) -> bool:
        """Return whether nobody should get a message any more."""

    def add(self, consumer: Consumer) -> None:
        """Take a new subscription."""

    def drop(self, consumer: Consumer) -> list[Message]:
        """End a subscription. Return what it did not acknowledge, to `requeue` it."""

    def offer(self, consumer: Consumer) -> int:
        """Serve a consumer that has credit, or room, again. Return how many messages went out."""

    def take_one(self, consumer: Consumer) -> bool:
        """Give one message to a consumer that asks for it. Return whether there was one."""

    def undeliver(self, consumer: Consumer, message: Message, error: Exception) -> None:
        """Undo the delivery of a large message whose file cannot be read."""

    def put(self, message: Message, stored: bool = False) -> bool:
        """Take a message. Return whether whoever sent it should wait."""

    def block(self, session: Peer) -> None:
        """Make a session wait until there is room."""

    def settle(self, deliveries: Sequence[Delivery], stored: bool = False) -> None:
        """Let go of what was acknowledged."""

    def requeue(self, messages: list[Message]) -> None:
        """Take back what was delivered in vain."""

    def count_out_one(self, octets: int) -> None:
        """Count a message that is gone."""

    def drop_oldest(self) -> bool:
        """Make room, at the cost of what has waited longest."""

    def suspend(self) -> None:
        """Deliver nothing until `go_on`."""

    def go_on(self) -> None:
        """Undo `suspend`."""

    def close(self) -> None:
        """End it, and all that is in it."""


class Consumer:
    """A subscription. Deliveries are numbered from 1; the ack id is the subscription's number, "-", and that.

    Args:
        session: whose it is.
        queue: where its messages come from.
        number: of the subscription in its session.
        request: what its SUBSCRIBE asks for.
    """

    __slots__ = (
        *("acks", "address", "closed", "cost", "credit", "destination", "direct", "direct_selective"),
        *("durable", "flow", "head", "in_ring", "key", "last", "mode", "number", "oldest", "outbox", "place"),
        *("queue", "quick", "request", "selector", "session", "shape", "single", "start", "tags"),
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
        #: It takes only what this says yes to; None for everything.
        self.selector = request.selector
        self.version = session.version
        #: Deliveries stay unacknowledged until the client says more.
        self.acks = request.mode != AUTO
        #: How credit is counted; None for messages that are not acknowledged, one by one.
        self.flow = credit_of(request)
        #: Deliveries that it may still have.
        self.credit = request.window if self.flow is None else self.flow.left(0)
        #: It stands in the ring of its queue.
        self.in_ring, self.closed = False, False
        #: The number of the latest delivery, and of the oldest that may be unacknowledged.
        self.last, self.oldest = 0, 1
        #: By number, in order.
        self.unacked: dict[int, Message] = {}
        #: Message-id to number, for versions whose ACK has no ack id.
        self.tags: dict[str, int] | None = {} if self.acks and self.version != "1.2" else None
        direct = self.version == "1.2" and not session.outbox.whole_frames
        #: MESSAGE is the head, and the tail of the message unchanged.
        self.direct = direct and request.is_plain
        #: So it is for a consumer with a selector that acknowledges nothing.
        self.direct_selective = direct and request.is_direct and self.selector is not None and not self.acks
        #: ACK is for one delivery, and names it by the ack id, and all that it does is to give back the credit for it.
        self.single = self.mode == INDIVIDUAL and self.version == "1.2" and request.is_plain
        shape = shape_of(request.transformation, request.encoding, session.broker.config)
        #: How bodies have to come; None for as they were sent.
        self.shape: Shape | Readdressed | None = Readdressed(queue.name, shape) if request.readdressed else shape
        self.start, self.head, self.quick = self._heads(session.broker.ident)
        #: Bytes of memory that it takes.
        self.cost = 0
        #: As SUBSCRIBE had it.
        self.destination = queue.name
        #: Of the topics that its queue, which nobody else has, gets messages of; None for a queue in its own right.
        self.address: Address | None = None
        #: Among the subscriptions of its topic, or among all that ask for several topics: later ones have higher ones.
        self.place = 0
        #: The durable subscription, which stays when it goes.
        self.durable: object = None

    def _heads(self, ident: bytes) -> tuple[bytes, bytes, bytes]:
        """MESSAGE up to the tail: what is the same in all; with % for the message-id and the number of the delivery;
        and with % for the seq of a message that this broker has numbered, and for that."""
        headers = {} if self.key is None else {"subscription": self.key}
        start = serialize(Frame("MESSAGE", headers), self.version)[:-2]
        before, after = start.replace(b"%", b"%%") + b"message-id:", b"\n"
        if self.acks and self.version == "1.2":
            after += b"ack:%d-%%d\n" % self.number
        return start, before + b"%b" + after, before + ident + after

    def send(self, message: Message) -> None:
        """Into the outbox of the session: the slow road, which knows all cases. `Queue.deliver` has the quick one."""
        tag = self.last + 1
        numbered = self.acks and self.tags is None
        head = self.head % ((message.ident, tag) if numbered else message.ident)
        if self.request.include_seq is not None:
            head += self.seq_line(message.seq)
        if message.attempts:
            head += b"redelivered:true\nredelivery-count:%d\n" % message.attempts
        shaped = message if self.shape is None else self.shape.apply(message)
        tail = shaped.tail if self.version == "1.2" else shaped.tail_for(self.version)
        if shaped.body is not None:
            self.outbox.deliver_large(head, tail, shaped.body, partial(self.queue.undeliver, self, message))
        else:
            self.outbox.deliver(head, tail, shaped.size)
        # Invariant: it is the consumer's only once it is written, so whatever raises above leaves nothing to undo.
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
        """The header for the place in the queue, as the subscription calls it; b"" if it did not ask for it."""
        name = self.request.include_seq
        return b"" if name is None else serialize(Frame("MESSAGE", {name: str(seq)}), self.version)[8:-2]

    def tag_of(self, message_id: str) -> int | None:
        """The number of the delivery of a message, where ACK names that; None if it is not unacknowledged."""
        return None if self.tags is None else self.tags.get(message_id)

    def take(self, tag: int) -> list[Delivery]:
        """What ACK or NACK of a delivery covers, in order. It is unacknowledged no more, and there is credit for it.

        Raises:
            Refused: there is no such delivery, or not any more.
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
        """A delivery is acknowledged, whatever the mode says of others."""
        message = self.unacked.pop(tag)
        if self.tags is not None:
            self.tags.pop(message.id, None)
        self._settled([(tag, message)])

    def undeliver(self, message: Message) -> bool:
        """Undo the delivery of a message that could not be written to its end. False: it is not unacknowledged."""
        tag = next((tag for tag, unacked in reversed(self.unacked.items()) if unacked is message), None)
        if tag is not None:
            del self.unacked[tag]
        if self.tags is not None:
            self.tags.pop(message.id, None)
        return tag is not None

    def _settled(self, deliveries: list[Delivery]) -> None:
        """There is credit for as many others."""
        if self.flow is None:
            self.credit += len(deliveries)
        else:
            self.flow.settled([size_of(message) for _tag, message in deliveries])
            self.credit = self.flow.left(len(self.unacked))

    def grant(self, grant: CreditGrant) -> None:
        """More credit, by ACK. It means nothing where SUBSCRIBE had no `credit`: ACK itself gives that back."""
        if self.flow is not None and self.request.credit is not None:
            self.flow.grant(grant)
            self.credit = self.flow.left(len(self.unacked))

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Undo `take`: they are unacknowledged again, as if ACK had not come."""
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
        """The store keeps more than the messages of what it consumes."""
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
        """No more deliveries. Returns what was unacknowledged, in order."""
        self.closed = True
        self.credit = 0
        messages = [self.unacked[tag] for tag in sorted(self.unacked)]
        self.unacked = {}
        return messages
