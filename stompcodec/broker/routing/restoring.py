"""Restoring: stored messages come back into their queues when the broker starts.

Short queues are loaded. Longer ones stay in the store until their messages are needed, so that a start takes as long
with millions of messages as with none.
"""

from __future__ import annotations

from collections.abc import Callable

from stompcodec.broker.message import Message
from stompcodec.broker.routing.registry import Destinations
from stompcodec.broker.storage.store import Store, Stored

#: Messages of short queues that are loaded.
_MOST_LOADED = 10_000


def load_queues(
    store: Store, most: int, restored: Callable[[Stored], Message], find: Callable[[str], Destinations]
) -> int:
    """Bring stored messages into their queues.

    Args:
        store: whose durable subscriptions are restored.
        most: the length of a short queue.
        restored: makes a message of a stored one.
        find: returns the destinations of a virtual host.

    Returns:
        The highest seq of all, or 0.

    Raises:
        StoreError: the store cannot be read.
    """
    left, last = _MOST_LOADED, 0
    for held in list(store.held()):
        vhost, _, name = held.queue.partition("\0")
        destinations, last = find(vhost), max(last, held.last)
        is_short = held.total <= min(most, left) and not held.is_mixed
        if is_short or not destinations.page(name, held):
            left -= held.total
            for stored in store.load(held.queue):
                destinations.load(name, restored(stored))
    return last
