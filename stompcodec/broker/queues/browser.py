"""Browser: a view of a queue that shows its READY messages in the order of their seqs, and leaves them there.

With ack:client or client-individual, ACK removes a message that was shown, if it is still READY; NACK does nothing. So
a reader can look at messages several times, and remove them when it is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import EOL, Consumer, Delivery
from stompcodec.broker.queues.dispatcher import MOST_LOOKS
from stompcodec.broker.queues.faults import is_barred
from stompcodec.broker.queues.limits import Bound
from stompcodec.broker.queues.queue import Queue
from stompcodec.codec import Frame, serialize
from stompcodec.errors import FrameError

#: A view holds no messages itself.
_NOTHING = Bound(1, 1)


class Browser(Queue):
    """A queue as one consumer browses it. As with a topic, each subscription has a queue of its own."""

    __slots__ = ("_consumer", "_dispatcher", "_last", "_marker", "_seq", "source")

    def __init__(self, source: Queue) -> None:
        super().__init__(source.name, "", _NOTHING, source.account, None, source.expiry.wall)
        self.source = source
        self.members = source.members
        self._consumer: Consumer
        #: The seq of the last message that was shown or skipped.
        self._seq = 0
        #: The seq at which browsing ends; None if it never does.
        self._last: int | None = None
        #: The number of the delivery that marks the end; None before.
        self._marker: int | None = None

    def __repr__(self) -> str:
        return f"<Browser of {self.source!r}>"

    @property
    def home(self) -> Queue:
        """The queue that is browsed."""
        return self.source

    # ---- the consumer ----

    def add(self, consumer: Consumer) -> None:
        """Begin with the first message, or where the SUBSCRIBE says."""
        source, request = self.source, consumer.request
        self._consumer = consumer
        self._dispatcher = source.make_selective()
        self._dispatcher.browsers[self] = None
        source.members[consumer] = None
        newest = self._newest(consumer)
        self._seq = newest if request.from_seq == -1 else (request.from_seq or 0) - 1
        if request.browser_skip:
            self._last = self._seq = self._skipped(request.browser_skip)
        elif request.browser_end:
            self._last = newest
        self.offer(consumer)

    def _newest(self, consumer: Consumer) -> int:
        """Return the highest seq in the queue; if no message is READY, the highest that the broker has assigned."""
        broker, newest = consumer.session.broker, self._dispatcher.backlog.last_seq
        if newest is None:
            newest = broker.seq
        horizon = broker.horizon
        return newest if horizon is None else min(newest, horizon - 1)

    def _skipped(self, count: int) -> int:
        """Return the seq of the last of `count` messages, or of the last one there is."""
        return self._dispatcher.backlog.seq_of(self._seq, self._newest(self._consumer), count)

    def drop(self, consumer: Consumer) -> list[Message]:
        """End the subscription. Return no messages, because none was removed."""
        del self.source.members[consumer]
        del self._dispatcher.browsers[self]
        consumer.in_ring = False
        consumer.close()
        self.source.make_plain()
        self.source.dispatch()
        return []

    def note(self, message: Message) -> None:
        """Show a message that has become READY."""
        if self._consumer.in_ring and message.seq > self._seq:
            self.offer(self._consumer)

    def offer(self, consumer: Consumer) -> int:
        """Show the next messages, as long as there is credit and a send budget. Return how many were looked at."""
        session, backlog, horizon = consumer.session, self._dispatcher.backlog, consumer.session.broker.horizon
        consumer.in_ring = False
        for count in range(MOST_LOOKS):
            if consumer.outbox.send_budget <= 0:
                consumer.outbox.starved = True
                return count
            message = backlog.after_seq(self._seq)
            if message is None or (self._last is not None and message.seq > self._last):
                consumer.in_ring = self._last is None
                self._end()
                return count
            if consumer.credit <= 0:
                return count
            if horizon is not None and message.seq > horizon:  # earlier messages are still to take effect
                session.broker.watch_horizon(self._go_on)
                return count
            self._seq = message.seq
            if self.source.is_expired(message) or (message.faults and is_barred(consumer, message)):
                continue
            try:
                if consumer.selector is None or consumer.selector.matches(message):
                    consumer.send(message)
            except Exception as error:
                self._fail(consumer, message, error)
                return count
        consumer.outbox.starved = True  # it goes on in the next turn
        session.broker.resume(session)
        return MOST_LOOKS

    def _fail(self, consumer: Consumer, message: Message, error: Exception) -> None:
        """Note that a message cannot be shown: its queue no longer offers it to that user and version."""
        if self._dispatcher.backlog.remove(message) is not None:
            self.source.requeue_failed(message, self.source.delivery_failed(consumer, message, error))

    def undeliver(self, consumer: Consumer, message: Message, error: Exception) -> None:
        """Undo showing a large message whose file cannot be read."""
        consumer.undeliver(message)
        self._fail(consumer, message, error)

    def _go_on(self) -> None:
        if not self._consumer.closed:
            self.offer(self._consumer)

    def _end(self) -> None:
        """Mark the end by a message without a body, which has the last seq under the name of include-seq."""
        if self._last is None or self._marker is not None:
            return
        consumer = self._consumer
        consumer.last = self._marker = consumer.last + 1
        ident = f"{consumer.session.id}-{consumer.number}-end"
        headers = [] if consumer.key is None else [("subscription", consumer.key)]
        headers += [("message-id", ident), ("destination", consumer.destination), ("browser", "end")]
        if consumer.acks and consumer.version == "1.2":
            headers.append(("ack", f"{consumer.number}-{self._marker}"))
        elif consumer.tags is not None:
            consumer.tags[ident] = self._marker
        name = consumer.request.include_seq
        if name is not None:
            headers.append((name, str(self._last)))
        try:
            consumer.outbox.chunks.append(serialize(Frame("MESSAGE", headers), consumer.version) + EOL)
        except FrameError as error:
            consumer.session.fault(self.source, None, error)
            return
        consumer.outbox.schedule_flush()

    # ---- acknowledge ----

    def settle(self, deliveries: Sequence[Delivery], stored: bool = False) -> None:
        """Remove the acknowledged messages that are still READY."""
        for _tag, message in deliveries:
            self.source.remove(message)

    def requeue(self, messages: list[Message]) -> None:
        """Do nothing on NACK, or at the end: the messages never left."""

    def acknowledge(self, tag: int, through: int | None) -> list[Message]:
        """Return the READY messages that an ACK covers, to be settled: all up to the seq `through`, of which `first`
        returns one share after the other, or those that were shown. Raise Refused unless `tag` is the number of a
        delivery, or of the mark of the end.
        """
        consumer = self._consumer
        if through is None:
            if tag == self._marker:
                return []
            return [message for _tag, message in consumer.take(tag)]
        if not 1 <= tag <= consumer.last:
            raise Refused("no such delivery", "The id must be that of a message that was shown, or of the end.")
        shown = [number for number, message in consumer.unacked.items() if message.seq <= through]
        for number in shown:
            consumer.forget(number)
        return self.first(through, AT_ONCE + 1)

    def first(self, through: int, most: int = AT_ONCE) -> list[Message]:
        """Return the first READY messages up to a seq."""
        return self.source.messages.indexed().between(0, through, most)
