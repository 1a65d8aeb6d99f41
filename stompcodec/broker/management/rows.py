"""Rows of answers: what is said of a queue, a topic, a session, a subscription, a transaction, a message.

A row has the values of the columns of its request, in the order of `schema.py`, which names them.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterable
from typing import Any

from stompcodec.broker.management.rates import Ages, rates
from stompcodec.broker.message import SPOOLED, Message
from stompcodec.broker.queues.backlog import Backlog
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable, title
from stompcodec.broker.routing.topic import Topic, fates
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.transaction import Transaction

Row = tuple[Any, ...]

#: The most credit that is shown.
MOST_CREDIT = 1_000_000


class Clock:
    """The time of the rows of one answer: monotonic seconds, and the ages of messages."""

    __slots__ = ("ages", "now")

    def __init__(self, now: float, ages: Ages) -> None:
        self.now = now
        self.ages = ages


def depth_of(queue: Queue) -> tuple[int, int, int]:
    """Return how many messages of a queue are READY, unacknowledged and scheduled."""
    ready, scheduled, paging = len(queue.messages.line), len(queue.deferred) + len(queue.returned.held), queue.paging
    unacked = queue.count - ready - scheduled
    if paging is not None:
        ready += paging.count - paging.deferred
        scheduled += paging.deferred
    return ready, unacked, scheduled


def received_of(queue: Queue) -> int:
    """Return how many messages a queue has taken since the start."""
    return queue.tally.put + queue.tally.direct


def delivered_of(queue: Queue) -> int:
    """Return how many messages a queue has delivered since the start."""
    tally = queue.tally
    delivered = tally.direct + tally.sent + tally.ended
    if queue.members:
        delivered += sum(each.last for each in queue.members if each.acks and not each.request.browser)
    return delivered


def first_seq(queue: Queue) -> int | None:
    """Return the lowest seq of the READY messages; None without any."""
    line, paging = queue.messages.line, queue.paging
    first = line.after_seq(-1) if isinstance(line, Backlog) else line[0] if line else None
    paged = None if paging is None else paging.first_after(-1)
    if paged is None:
        return None if first is None else first.seq
    return paged + 1 if first is None else min(first.seq, paged + 1)


def queue_counts(queue: Queue, clock: Clock) -> Row:
    """Return the columns that all queues have, except for the rates."""
    ready, unacked, scheduled = depth_of(queue)
    tally, members = queue.tally, queue.members
    oldest = first_seq(queue) if ready else None
    return (
        ready,
        unacked,
        scheduled,
        0 if queue.paging is None else queue.paging.count,
        queue.octets,
        len(members),
        _credit(members) if members else 0,
        len(queue.blocked),
        queue.paused,
        received_of(queue),
        delivered_of(queue),
        tally.redelivered,
        tally.expired,
        tally.dropped,
        tally.dead,
        None if oldest is None else clock.ages.age(oldest, clock.now),
    )


#: The places of what the rates are taken of.
_RECEIVED, _DELIVERED = 9, 10


def queue_numbers(queue: Queue, clock: Clock) -> Row:
    """Return the columns that all queues have."""
    counts = queue_counts(queue, clock)
    return counts + rates(queue, clock.now, counts[_RECEIVED], counts[_DELIVERED])


def _credit(consumers: Iterable[Consumer]) -> int:
    return sum(max(0, min(consumer.credit, MOST_CREDIT)) for consumer in consumers)


def topic_numbers(topic: Topic, clock: Clock) -> Row:
    """Return the same columns of a topic: the sums of its subscriptions. Redelivered, expired and dropped messages and
    dead letters count for subscriptions to this topic alone, including ended ones.
    """
    consumers = topic.consumers
    queues = [each.queue for each in consumers if isinstance(each.queue, Queue)]
    depths = [depth_of(queue) for queue in queues]
    seqs = [seq for queue in queues if (seq := first_seq(queue)) is not None]
    return (
        sum(ready for ready, _, _ in depths),
        sum(unacked for _, unacked, _ in depths),
        0,
        0,
        sum(queue.octets for queue in queues),
        len(consumers),
        _credit(consumers),
        sum(len(queue.blocked) for queue in queues),
        False,
        topic.received,
        topic.delivered,
        *fates([each.queue for each in topic.own if isinstance(each.queue, Queue)], topic.fates),
        clock.ages.age(min(seqs), clock.now) if seqs else None,
        *rates(topic, clock.now, topic.received, topic.delivered),
    )


def destination_row(thing: Queue | Topic, owner: str | None, clock: Clock) -> Row:
    """Return the row of a queue or topic."""
    if isinstance(thing, Queue):
        return (thing.name, "queue", owner) + queue_numbers(thing, clock)  # a * takes four times as long
    return (thing.name, "topic", owner, *topic_numbers(thing, clock))


def durable_row(durable: Durable, clock: Clock) -> Row:
    """Return the row of a durable subscription."""
    return (
        title(durable.owner, durable.name),
        durable.owner,
        durable.address.name,
        None if durable.selector is None else durable.selector.text,
        durable.shared,
        *queue_numbers(durable.queue, clock),
    )


def session_row(session: Session, now: float) -> Row:
    """Return the row of a session that has connected."""
    memory = session.memory
    return (
        session.id,
        session.peer,
        session.user.name,
        session.client_id,
        session.version,
        session.listener,
        session.secure,
        round(max(0.0, now - session.since), 3),
        len(session.consumers),
        sum(len(consumer.unacked) for consumer in session.consumers.values()),
        len(session.transactions),
        session.paused,
        memory.unwritten,
        memory.fixed + memory.spare,
    )


def subscription_row(session: Session, consumer: Consumer) -> Row:
    """Return the row of a subscription."""
    durable, selector, queue = consumer.durable, consumer.request.selector, consumer.queue
    own = consumer.address is not None and isinstance(queue, Queue) and not isinstance(queue, Browser)
    return (
        session.id,
        consumer.key,
        consumer.destination,
        consumer.mode,
        None if selector is None else selector.text,
        title(durable.owner, durable.name) if isinstance(durable, Durable) else None,
        consumer.request.browser,
        consumer.request.exclusive,
        consumer.request.priority,
        max(0, min(consumer.credit, MOST_CREDIT)),
        len(consumer.unacked),
        len(queue.messages) if own and isinstance(queue, Queue) else 0,
    )


def transaction_row(session: Session, name: str, transaction: Transaction) -> Row:
    """Return the row of an open transaction."""
    return (
        session.id,
        name,
        transaction.weight,
        transaction.octets + transaction.base,
    )


def message_row(message: Message, most: int, clock: Clock) -> Row:
    """Return the row of a message, with at most `most` bytes of its body."""
    frame = message.frame
    body, size = frame.body or b"", len(frame.body or b"")
    if message.body is not None:
        size = message.body.size
        body = _beginning(message, most)
    text, encoding = shown(body[:most], size > most)
    return (
        message.id,
        message.seq,
        message.destination,
        [list(pair) for pair in frame.headers.pairs()],
        size,
        text,
        encoding,
        size > most,
        bool(message.persistent) and message.persistent != SPOOLED,
        message.priority,
        message.attempts,
        message.expires,
        clock.ages.age(message.seq, clock.now),
        message.origin,
    )


def _beginning(message: Message, most: int) -> bytes:
    """Return the beginning of a large body; b"" if its file cannot be read."""
    assert message.body is not None
    try:
        with open(message.body.path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def shown(body: bytes, truncated: bool) -> tuple[str, str]:
    """Return bytes as a text and its encoding: UTF-8, of which a character may be cut off at the end, or base64.

    >>> shown(b"hello", False), shown(b"h\\xff", False), shown("ä".encode()[:1], True)
    (('hello', 'utf-8'), ('aP8=', 'base64'), ('', 'utf-8'))
    """
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not truncated), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii"), "base64"
