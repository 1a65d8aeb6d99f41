"""Restoring: what the store has kept comes back into its queues when the broker starts.

Short queues are loaded. Longer ones stay in the store until their messages are needed, so that a start takes as long
with millions of messages as with none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stompcodec.broker.message import Message
from stompcodec.broker.routing.registry import Destinations
from stompcodec.broker.storage.store import Store, Stored, TimedPage
from stompcodec.errors import StoreError

#: Messages of short queues that are loaded.
_MOST_LOADED = 10_000
#: More than there can be.
_ALL = 2**40


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
    deferring: dict[str, Destinations] = {}
    left, last = _MOST_LOADED, 0
    for held in list(store.held()):
        vhost, _, name = held.queue.partition("\0")
        destinations, last = find(vhost), max(last, held.last)
        if held.total <= min(most, left) or not destinations.page(name, held):
            left -= held.total
            for stored in store.load(held.queue):
                destinations.load(name, restored(stored))
        elif held.deferred:
            deferring[held.queue] = destinations
    if deferring:
        store.deferred((), _ALL, _ALL, partial(_load_deferred, deferring, restored), None)
    return last


def _load_deferred(
    deferring: dict[str, Destinations], restored: Callable[[Stored], Message], page: TimedPage | StoreError
) -> None:
    """Load the delayed messages of the queues whose other messages stay in the store."""
    if isinstance(page, StoreError):
        raise page
    for stored in page.messages:
        destinations = deferring.get(stored.queue)
        if destinations is not None:
            destinations.load(stored.queue.partition("\0")[2], restored(stored))
