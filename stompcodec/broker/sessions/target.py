"""Target: one destination of a SEND, and the queue or topic that takes the message."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.retained import RetainTarget
from stompcodec.broker.routing.topic import Topic

#: Everything that takes messages.
QueueOrTopic = Queue | Topic | RetainTarget


class Target(NamedTuple):
    """One destination of a SEND."""

    destination: str
    routing: str | None = None
    """The header destination-type."""
    retain: str | None = None
    """The header retain."""
    queue: QueueOrTopic | None = None
    """What takes the message; None for nothing. In a transaction it is looked up at COMMIT."""
