"""Topic: every message goes to every subscription. Each subscription has a queue of its own, with one consumer.

Messages are gathered until the turn ends, or until there are many; then they go out together, and subscriptions with
the same id, which are most, share one chunk of octets. That is all the difference to putting each into each queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.broker.consumer import Consumer
from stompcodec.broker.message import Message

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["Topic"]

#: Octets that are gathered at most.
_MOST_GATHERED = 65536


class Topic:
    """Consumers, each of a queue of its own: what is said of queues holds for subscriptions to topics.

    Args:
        name: the destination.
        opened: topics that have gathered something; whoever ends the turn calls their `flush`.
    """

    __slots__ = ("_gathered", "_octets", "_opened", "consumers", "full", "name")

    def __init__(self, name: str, opened: list[Topic]) -> None:
        self.name = name
        #: Replaced, never changed: `flush` may be in the middle of it when a slow consumer is dropped.
        self.consumers: tuple[Consumer, ...] = ()
        #: A subscription's queue was full when it was last looked at, and senders should wait.
        self.full = False
        self._opened = opened
        self._gathered: list[Message] = []
        self._octets = 0

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}: {len(self.consumers)} consumers>"

    def put(self, message: Message, stored: bool = False) -> bool:
        """Take a message for every subscription. True: the sender should wait for a slow one.

        Args:
            message: it has its place in the order.
            stored: of no meaning, for what is sent to topics is not stored.
        """
        if not self._gathered:
            self._opened.append(self)
        self._gathered.append(message)
        self._octets += message.size
        if self._octets > _MOST_GATHERED:
            self.flush()
        return self.full

    def put_plain(self, destination: str, ident: bytes, seq: int, tail: bytes) -> bool:
        """As in Queue."""
        return self.put(Message(ident % seq, seq, destination, tail))

    def flush(self) -> None:
        """Deliver what was gathered."""
        messages, octets = self._gathered, self._octets
        if not messages:
            return
        self._gathered, self._octets = [], 0
        tails = [b"message-id:%b\n%b\n" % (message.ident, message.tail) for message in messages]
        chunks: dict[bytes, bytes] = {}
        full = False
        for consumer in self.consumers:
            session = consumer.session
            # As in Queue.deliver: it stands in the ring, so nothing is READY; and there is room.
            if consumer.direct and not consumer.acks and consumer.waiting and session.room > 0:
                start = consumer.start
                chunk = chunks.get(start)
                if chunk is None:
                    chunk = chunks[start] = start + start.join(tails)
                session.outbox.append(chunk)
                session.room -= octets
                if not session.dirty:
                    session.mark()
            else:
                for message in messages:
                    full = consumer.queue.put(message) or full
        self.full = full

    def block(self, session: Session) -> None:
        """Make a session wait for the slow ones."""
        self.full = False
        for consumer in self.consumers:
            if consumer.queue.full:
                consumer.queue.block(session)

    def add(self, consumer: Consumer) -> None:
        """A new subscription. It gets what comes from now on."""
        self.flush()
        if not consumer.closed:  # another subscription of that session was too slow, and it is gone
            self.consumers = (*self.consumers, consumer)
            consumer.queue.add(consumer)

    def drop(self, consumer: Consumer) -> None:
        """The end of a subscription, and of its queue. It got what came before."""
        self.flush()
        self.consumers = tuple(other for other in self.consumers if other is not consumer)
        consumer.close()
        consumer.queue.close()
