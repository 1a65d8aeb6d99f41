"""Rows of answers: what is said of a queue, a topic, a session, a subscription, a transaction, a message."""

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
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.transaction import Transaction

Row = dict[str, Any]

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
    ready, scheduled, paging = len(queue.messages), len(queue.deferred), queue.paging
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
    living = sum(each.last for each in queue.members if each.acks and not each.request.browser)
    return tally.direct + tally.sent + tally.ended + living


def first_seq(queue: Queue) -> int | None:
    """Return the lowest seq of the READY messages; None without any."""
    line = queue.messages.line
    first = line.after_seq(-1) if isinstance(line, Backlog) else line[0] if line else None
    paged = None if queue.paging is None else queue.paging.first_after(-1)
    seqs = [first.seq] if first is not None else []
    return min(seqs if paged is None else [*seqs, paged + 1], default=None)


def queue_numbers(queue: Queue, clock: Clock) -> Row:
    """Return the columns that all queues have."""
    ready, unacked, scheduled = depth_of(queue)
    received, delivered, tally = received_of(queue), delivered_of(queue), queue.tally
    received_rate, delivered_rate = rates(queue, clock.now, received, delivered)
    oldest = None if not ready else first_seq(queue)
    return {
        "ready": ready,
        "unacknowledged": unacked,
        "scheduled": scheduled,
        "paged": 0 if queue.paging is None else queue.paging.count,
        "bytes": queue.octets,
        "oldest": None if oldest is None else clock.ages.age(oldest, clock.now),
        "consumers": len(queue.members),
        "credit": _credit(queue.members),
        "producers_waiting": len(queue.blocked),
        "paused": queue.paused,
        "received": received,
        "delivered": delivered,
        "received_rate": received_rate,
        "delivered_rate": delivered_rate,
        "redelivered": tally.redelivered,
        "expired": tally.expired,
        "dropped": tally.dropped,
        "dead_letters": tally.dead,
    }


def _credit(consumers: Iterable[Consumer]) -> int:
    return sum(max(0, min(consumer.credit, MOST_CREDIT)) for consumer in consumers)


def queue_row(queue: Queue, owner: str | None, clock: Clock) -> Row:
    """Return the row of a queue in `destinations`."""
    return {"destination": queue.name, "kind": "queue", "owner": owner, **queue_numbers(queue, clock)}


def topic_row(topic: Topic, owner: str | None, clock: Clock) -> Row:
    """Return the row of a topic in `destinations`: the sums of its subscriptions."""
    consumers = topic.consumers
    queues = [each.queue for each in consumers if isinstance(each.queue, Queue)]
    depths = [depth_of(queue) for queue in queues]
    seqs = [seq for queue in queues if (seq := first_seq(queue)) is not None]
    received_rate, delivered_rate = rates(topic, clock.now, topic.received, topic.delivered)
    return {
        "destination": topic.name,
        "kind": "topic",
        "owner": owner,
        "ready": sum(ready for ready, _, _ in depths),
        "unacknowledged": sum(unacked for _, unacked, _ in depths),
        "scheduled": 0,
        "paged": 0,
        "bytes": sum(queue.octets for queue in queues),
        "oldest": clock.ages.age(min(seqs), clock.now) if seqs else None,
        "consumers": len(consumers),
        "credit": _credit(consumers),
        "producers_waiting": sum(len(queue.blocked) for queue in queues),
        "paused": False,
        "received": topic.received,
        "delivered": topic.delivered,
        "received_rate": received_rate,
        "delivered_rate": delivered_rate,
        "redelivered": sum(queue.tally.redelivered for queue in queues),
        "expired": sum(queue.tally.expired for queue in queues),
        "dropped": sum(queue.tally.dropped for queue in queues),
        "dead_letters": sum(queue.tally.dead for queue in queues),
    }


def durable_row(durable: Durable, clock: Clock) -> Row:
    """Return the row of a durable subscription."""
    return {
        "name": title(durable.owner, durable.name),
        "user": durable.owner,
        "destination": durable.address.name,
        "selector": None if durable.selector is None else durable.selector.text,
        "shared": durable.shared,
        **queue_numbers(durable.queue, clock),
    }


def session_row(session: Session, now: float) -> Row:
    """Return the row of a session that has connected."""
    memory = session.memory
    return {
        "session": session.id,
        "peer": session.peer,
        "user": session.user.name,
        "client_id": session.client_id,
        "version": session.version,
        "listener": session.listener,
        "secure": session.secure,
        "age": round(max(0.0, now - session.since), 3),
        "subscriptions": len(session.consumers),
        "unacknowledged": sum(len(consumer.unacked) for consumer in session.consumers.values()),
        "transactions": len(session.transactions),
        "waiting": session.paused,
        "unwritten": memory.unwritten,
        "memory": memory.fixed + memory.spare,
    }


def subscription_row(session: Session, consumer: Consumer) -> Row:
    """Return the row of a subscription."""
    durable, selector, queue = consumer.durable, consumer.request.selector, consumer.queue
    own = consumer.address is not None and isinstance(queue, Queue) and not isinstance(queue, Browser)
    return {
        "session": session.id,
        "subscription": consumer.key,
        "destination": consumer.destination,
        "ack": consumer.mode,
        "selector": None if selector is None else selector.text,
        "durable": title(durable.owner, durable.name) if isinstance(durable, Durable) else None,
        "browser": consumer.request.browser,
        "exclusive": consumer.request.exclusive,
        "priority": consumer.request.priority,
        "credit": max(0, min(consumer.credit, MOST_CREDIT)),
        "unacknowledged": len(consumer.unacked),
        "waiting": len(queue.messages) if own and isinstance(queue, Queue) else 0,
    }


def transaction_row(session: Session, name: str, transaction: Transaction) -> Row:
    """Return the row of an open transaction."""
    return {
        "session": session.id,
        "transaction": name,
        "messages": transaction.weight,
        "bytes": transaction.octets + transaction.base,
    }


def message_row(message: Message, most: int, clock: Clock) -> Row:
    """Return the row of a message, with at most `most` bytes of its body."""
    frame = message.frame
    body, size = frame.body or b"", len(frame.body or b"")
    if message.body is not None:
        size = message.body.size
        body = _beginning(message, most)
    text, encoding = shown(body[:most], size > most)
    return {
        "message_id": message.id,
        "seq": message.seq,
        "destination": message.destination,
        "headers": [list(pair) for pair in frame.headers.pairs()],
        "size": size,
        "body": text,
        "encoding": encoding,
        "truncated": size > most,
        "persistent": bool(message.persistent) and message.persistent != SPOOLED,
        "priority": message.priority,
        "attempts": message.attempts,
        "expires": message.expires,
        "age": clock.ages.age(message.seq, clock.now),
    }


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
