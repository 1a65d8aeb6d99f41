"""Consumer: a subscription as its queue sees it. Credit, deliveries that are not acknowledged, and their ack ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.broker.message import Message, Refused
from stompcodec.codec import Frame, serialize

if TYPE_CHECKING:
    from stompcodec.broker.queue import Queue
    from stompcodec.broker.session import Session

__all__ = ["AUTO", "CLIENT", "EOL", "INDIVIDUAL", "MODES", "Consumer", "Delivery"]

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
#: The values of the header `ack` of SUBSCRIBE.
MODES = (AUTO, CLIENT, INDIVIDUAL)
#: Behind each frame: a well-known client cannot read without.
EOL = b"\n"

#: A message on its way, by the number of its delivery.
Delivery = tuple[int, Message]


class Consumer:
    """A subscription. Deliveries are numbered from 1; the ack id is the subscription's number, "-", and that.

    Args:
        session: whose it is.
        queue: where its messages come from.
        key: the id of the subscription; None for one of 1.0 without.
        number: of the subscription in its session.
        mode: one of `MODES`.
        window: the most deliveries that may be unacknowledged; of no meaning in auto mode.
    """

    __slots__ = (
        *("acks", "closed", "credit", "destination", "direct", "head", "key", "last", "mode"),
        *(
            "number",
            "oldest",
            "queue",
            "quick",
            "session",
            "single",
            "start",
            "tags",
            "unacked",
            "version",
            "waiting",
            "window",
        ),
    )

    def __init__(self, session: Session, queue: Queue, key: str | None, number: int, mode: str, window: int) -> None:
        self.session = session
        self.queue = queue
        self.key = key
        self.number = number
        self.mode = mode
        self.window = window
        self.version = session.version
        #: Deliveries stay unacknowledged until the client says more.
        self.acks = mode != AUTO
        #: Deliveries that it may still have.
        self.credit = window
        #: It stands in the ring of its queue.
        self.waiting = False
        self.closed = False
        #: The number of the latest delivery, and of the oldest that may be unacknowledged.
        self.last = 0
        self.oldest = 1
        #: By number, in order.
        self.unacked: dict[int, Message] = {}
        #: Message-id to number, for versions whose ACK has no ack id.
        self.tags: dict[str, int] | None = {} if self.acks and self.version != "1.2" else None
        #: 1.2 over a stream of octets: MESSAGE is the head and the tail as they are.
        self.direct = self.version == "1.2" and not session.whole_frames
        #: ACK is for one delivery, and names it by the ack id.
        self.single = mode == INDIVIDUAL and self.version == "1.2"
        self.start, self.head, self.quick = self._heads(session.broker.ident)
        #: As SUBSCRIBE had it.
        self.destination = queue.name

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
        session = self.session
        if not self.acks:
            head = self.head % message.ident
        else:
            self.last = tag = self.last + 1
            self.unacked[tag] = message
            self.credit -= 1
            if self.tags is None:
                head = self.head % (message.ident, tag)
            else:
                head = self.head % message.ident
                self.tags[message.id] = tag
        if message.redelivered:
            head += b"redelivered:true\nredelivery-count:%d\n" % message.attempts
        tail = message.tail if self.version == "1.2" else message.tail_for(self.version)
        if session.whole_frames:
            session.outbox.append(head + tail + EOL)
        else:
            session.outbox += (head, tail, EOL)
        session.room -= message.size
        if not session.dirty:
            session.mark()

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
        self.credit += len(covered)
        return covered

    def give_back(self, deliveries: list[Delivery]) -> None:
        """Undo `take`: they are unacknowledged again, as if ACK had not come."""
        self.unacked.update(deliveries)
        self.oldest = min(self.oldest, deliveries[0][0])
        self.credit -= len(deliveries)
        if self.tags is not None:
            for tag, message in deliveries:
                self.tags[message.id] = tag

    def close(self) -> list[Message]:
        """No more deliveries. Returns what was unacknowledged, in order."""
        self.closed = True
        self.credit = 0
        messages = [self.unacked[tag] for tag in sorted(self.unacked)]
        self.unacked = {}
        return messages
