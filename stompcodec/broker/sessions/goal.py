"""Goal: where a message is to go, as its SEND says it, and what can take it."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.retained import Retaining
from stompcodec.broker.routing.topic import Topic

__all__ = ["Goal", "Sink"]

#: What takes messages.
Sink = Queue | Topic | Retaining


class Goal(NamedTuple):
    """Where a message is sent, as a SEND says it."""

    destination: str
    routing: str | None = None
    """Its header destination-type."""
    retain: str | None = None
    """Its header retain."""
    sink: Sink | None = None
    """Nowhere, if it is None. That of a transaction is looked up at its COMMIT."""
