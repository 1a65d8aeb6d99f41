"""Browser: a view of a queue that shows its READY messages in the order of their seqs, and leaves them there.

With ack:client or client-individual, ACK removes a message that was shown, if it is still READY; NACK does nothing. So
a reader can look at messages several times, and remove them when it is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from stompcodec.broker.loop_quota import Line, Waiter, Work
from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import WAIT, Wait
from stompcodec.broker.queues.consumer import Consumer, Delivery
from stompcodec.broker.queues.dispatcher import MOST_LOOKS, is_barred
from stompcodec.broker.queues.outbox import EOL
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.ready import Bound
from stompcodec.codec import Frame, serialize
from stompcodec.errors import FrameError

#: A view holds no messages itself.
_NOTHING = Bound(1, 1)


class Browser(Queue):
    """A queue as one consumer browses it. As with a topic, each subscription has a queue of its own."""

    __slots__ = (*("_consumer", "_copies", "_dispatcher", "_last", "_marker", "_seq", "source"),)

    def __init__(self, source: Queue) -> None:
        super().__init__(source.name, "", _NOTHING, source.account, None, source.expiry.wall)
        self.source = source
        self.members = source.members
        self._consumer: Consumer
        #: The seq of the last message that was shown.
        self._seq = 0
        #: The seq at which browsing ends; None if it never does.
        self._last: int | None = None
        #: The number of the delivery that marks the end; None before.
        self._marker: int | None = None
        #: Those that are in the store only.
        self._copies = Copies(source, self._turned)

    def __repr__(self) -> str:
        return f"<Browser of {self.source!r}>"

    @property
    def home(self) -> Queue:
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
        if request.browser_end:
            self._last = newest
        self.offer(consumer)

    def _newest(self, consumer: Consumer) -> int:
        """Return the highest seq in the queue; if no message is READY, the highest that the broker has assigned."""
        broker, newest = consumer.session.broker, self._dispatcher.backlog.last_seq
        if self.source.paging is not None and self.source.paging.has_ready:
            newest = max(newest or 0, self.source.paging.last)
        if newest is None:
            newest = broker.seq
        horizon = broker.horizon
        return newest if horizon is None else min(newest, horizon - 1)

    def drop(self, consumer: Consumer) -> list[Message]:
        """End the subscription. Return no messages, because none was removed."""
        del self.source.members[consumer]
        del self._dispatcher.browsers[self]
        consumer.in_ring = False
        consumer.close()
        self._copies.close()
        self.source.make_plain()
        self.source.dispatch()
        return []

    def note(self, message: Message) -> None:
        """Show a message that has become READY."""
        if self._consumer.in_ring and message.seq > self._seq:
            self.offer(self._consumer)

    def offer(self, consumer: Consumer) -> int:
        """Show the next messages, as long as there is credit and a send budget. Return how many were looked at."""
        session, horizon = consumer.session, consumer.session.broker.horizon
        consumer.in_ring = False
        for count in range(MOST_LOOKS):
            if consumer.outbox.send_budget <= 0:
                consumer.outbox.starved = True
                return count
            message = self._next()
            if isinstance(message, Wait):
                return count
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

    def _next(self) -> Message | Wait | None:
        """Return the READY message with the next seq; `WAIT` if it must be read first, None after the last."""
        message = self._dispatcher.backlog.after_seq(self._seq)
        if self.source.paging is None:
            return message
        found = self._copies.next(self._seq, self._last, message)
        if isinstance(found, Wait):
            self._seq = self._copies.start
        return found

    @property
    def page_cost(self) -> int:
        """Bytes of memory that its page takes."""
        return self._copies.cost

    def forget(self, seqs: set[int]) -> None:
        """Drop the copies of messages that are gone."""
        self._copies.forget(seqs)

    def _turned(self, waiters: bool) -> None:
        """Go on with another page; after the waiters for it, because it may want the next one."""
        if waiters and self.source.quota is not None:
            self.source.quota.line_up(Work(self._going_on()))
        else:
            self._go_on()

    def _going_on(self) -> Iterator[Line]:
        self._go_on()
        yield from ()

    def _fail(self, consumer: Consumer, message: Message, error: Exception) -> None:
        """Note that a message cannot be shown: its queue no longer offers it to that user and version."""
        if self.source.take_out(message):
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

    def acknowledge(self, tag: int) -> list[Message]:
        """Return the READY messages that an ACK covers. Raise Refused unless `tag` is a delivery or the mark."""
        return [] if tag == self._marker else [message for _tag, message in self._consumer.take(tag)]


class Copies:
    """Copies of the messages that a queue has in the store only, a page at a time; they count as memory of its account.

    Call `close` at the end. Others may take messages meanwhile: the dispatcher tells their seqs to `forget`. `turned`
    is called when a page has been read, with True if there were waiters for it, who go on first.
    """

    __slots__ = (
        *("_closed", "_from", "_gone", "_queue", "_reading", "_shown", "_turned", "_upto", "_waiters"),
        *("cost", "start"),
    )

    def __init__(self, queue: Queue, turned: Callable[[bool], object]) -> None:
        self._queue = queue
        self._turned = turned
        self._closed = False
        #: The page: the messages with `_from` < seq <= `_upto`; and the bytes of memory that it takes.
        self._shown: list[Message] = []
        self._from = self._upto = self.cost = 0
        #: After `WAIT`: the seq to go on from. Others have all paged messages before it.
        self.start = 0
        #: The next page is being read; the messages that have left the queue meanwhile; and the waiters for it.
        self._reading = False
        self._gone: set[int] = set()
        self._waiters: list[Waiter] = []

    def next(self, seq: int, last: int | None, message: Message | None) -> Message | Wait | None:
        """Return the message that follows a seq: a paged one, up to `last`, or `message`, the next one in memory.

        `WAIT` if a page must be read first: call it again with `start` then.
        """
        paging = self._queue.paging
        while paging is not None:
            after = paging.first_after(seq)
            if after is None or (message is not None and message.seq <= after + 1):
                break
            if last is not None and after >= last:
                break
            if not self.has(after):
                self.start = seq
                return WAIT
            for found in self._shown:
                if found.seq > after and self._queue.is_paged(found):
                    return found if message is None or found.seq < message.seq else message
            seq = self._upto
        return message

    def has(self, after: int) -> bool:
        """Return whether the page has the messages that follow a seq. If not, it is read."""
        if self._from <= after < self._upto:
            return True
        if not self._reading and self._queue.paging is not None:
            self._reading = True
            self._queue.paging.browse(after, partial(self._turn_over, after))
        return False

    def forget(self, seqs: set[int]) -> None:
        """Drop the copies of messages that are gone, now or when they have been read."""
        self._shown = [message for message in self._shown if message.seq not in seqs]
        if self._reading:
            self._gone |= seqs

    def close(self) -> None:
        """Drop the page. Waiters go on."""
        self._closed = True
        self._turn_over(0, 0, [])

    def _turn_over(self, start: int, end: int, messages: list[Message]) -> None:
        self._reading = False
        if self._closed:
            start, end, messages = 0, 0, []
        messages = [message for message in messages if message.seq not in self._gone]
        self._gone = set()
        cost = sum(message.size + MESSAGE for message in messages)
        self._queue.account.use(cost - self.cost)
        self._from, self._upto, self._shown, self.cost = start, end, messages, cost
        waiters, self._waiters = self._waiters, []
        if self._queue.quota is not None:
            for waiter in waiters:
                self._queue.quota.line_up(waiter)
        self._turned(bool(waiters))

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter go on when the page has been read."""
        if self._reading or self._queue.quota is None:
            self._waiters.append(waiter)
        else:
            self._queue.quota.line_up(waiter)
