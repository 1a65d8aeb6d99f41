"""The numbers by which `destinations` is sorted. They cost a fraction of the rows, of which only a page is made."""

from __future__ import annotations

from collections.abc import Callable

from stompcodec.broker.management.rates import rates
from stompcodec.broker.management.rows import Clock, delivered_of, depth_of, received_of, topic_numbers
from stompcodec.broker.management.schema import OF_QUEUE
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.topic import Topic


def _rates(queue: Queue, now: float) -> tuple[float, float]:
    received, delivered = rates(queue, now, received_of(queue), delivered_of(queue))
    return received or 0.0, delivered or 0.0


#: By column. It equals the column of the row; an unknown rate counts as 0.
_OF_QUEUE: dict[str, Callable[[Queue, float], float]] = {
    "ready": lambda queue, now: depth_of(queue)[0],
    "unacknowledged": lambda queue, now: depth_of(queue)[1],
    "scheduled": lambda queue, now: depth_of(queue)[2],
    "paged": lambda queue, now: 0 if queue.paging is None else queue.paging.count,
    "bytes": lambda queue, now: queue.octets,
    "consumers": lambda queue, now: len(queue.members),
    "producers_waiting": lambda queue, now: len(queue.blocked),
    "received": lambda queue, now: received_of(queue),
    "delivered": lambda queue, now: delivered_of(queue),
    "received_rate": lambda queue, now: _rates(queue, now)[0],
    "delivered_rate": lambda queue, now: _rates(queue, now)[1],
    "redelivered": lambda queue, now: queue.tally.redelivered,
    "expired": lambda queue, now: queue.tally.expired,
    "dropped": lambda queue, now: queue.tally.dropped,
    "dead_letters": lambda queue, now: queue.tally.dead,
}

#: The places of the columns among the numbers of a topic.
_OF_TOPIC = {column.name: at for at, column in enumerate(OF_QUEUE)}


def sort_key(thing: Queue | Topic, column: str, clock: Clock) -> float:
    """Return what a queue or topic is sorted by: the column of its row, and 0 for null."""
    if isinstance(thing, Queue):
        return _OF_QUEUE[column](thing, clock.now)
    value = topic_numbers(thing, clock)[_OF_TOPIC[column]]
    return 0.0 if value is None else float(value)
