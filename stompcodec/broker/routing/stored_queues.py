"""StoredQueues: queues that the store knows by more than their messages.

Queues with arguments have them again after a restart. Queues of a virtual topic, as in ActiveMQ, get the messages of
the topic also without consumers, so they stay when they are empty: the queue `Consumer.NAME.VirtualTopic.X` gets the
messages of the topic `VirtualTopic.X`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from stompcodec.broker.config.config import Config
from stompcodec.broker.config.settings import Address, Kind
from stompcodec.broker.errors import Refused
from stompcodec.broker.queues.arguments import QueueArguments, load_arguments
from stompcodec.broker.queues.limits import Bound
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.routing.naming import Naming
from stompcodec.broker.routing.topics import Topics
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Subscribed

#: ActiveMQ's `Consumer.*.VirtualTopic.>`; its group is the name of the topic.
_CONSUMER = re.compile(r"Consumer\.[^.]+\.(VirtualTopic(?:\..+)?)", re.DOTALL)


class StoredQueues:
    """The queues of one virtual host that the store keeps. `latest` returns the seq of the latest message."""

    def __init__(
        self, config: Config, naming: Naming, journal: Journal, topics: Topics, latest: Callable[[], int]
    ) -> None:
        self._config = config
        self._naming = naming
        self._journal = journal
        self._topics = topics
        self._latest = latest
        #: The durable subscription to a virtual topic, by the name of its queue.
        self._feeds: dict[str, Durable] = {}
        #: Keys of the queues that the store has, or will have.
        self._stored: set[str] = set()

    def __contains__(self, name: object) -> bool:
        """Return whether a queue of this name gets the messages of a virtual topic."""
        return name in self._feeds

    def topic_of(self, name: str) -> Address | None:
        """Return the virtual topic, or the pattern of them, of a queue name; None for other names."""
        if not self._config.virtual_topics:
            return None
        kind, _prefix, rest = self._naming.split(name)
        found = _CONSUMER.fullmatch(rest) if kind is Kind.QUEUE else None
        return None if found is None else Address(Kind.TOPIC, self._config.topic_prefixes[0], found[1])

    def listen(self, queue: Queue) -> None:
        """Subscribe a new queue to its virtual topic, if it has one. Raise Refused if there are too many destinations,
        or the name has too many words.
        """
        address = self.topic_of(queue.name)
        if address is None:
            return
        feed = Durable(queue.name, queue, address, shared=True, since=self._latest(), prompt=True)
        self._topics.add(feed, address, queue.maker)
        self._feeds[queue.name] = feed
        if queue.key not in self._stored:
            self.store(queue)

    def store(self, queue: Queue) -> None:
        """Store the arguments and the virtual topic of a queue."""
        store = self._journal.store
        if store is not None and queue.journal is not None:
            self._stored.add(queue.key)
            store.subscribe(self._record(queue))
            self._journal.batch.actions.append(partial(self._was_stored, queue))

    def _record(self, queue: Queue) -> Subscribed:
        feed = self._feeds.get(queue.name)
        prefix, name = ("", "") if feed is None else (feed.address.prefix, feed.address.rest)
        return Subscribed(queue.key, prefix, name, selector=None if queue.arguments is None else queue.arguments.text)

    def _was_stored(self, queue: Queue, committed: bool) -> None:
        if not committed and not queue.closed and queue.key in self._stored:
            self.store(queue)  # with the next batch

    def forget(self, queue: Queue) -> None:
        """Forget a queue that has ended."""
        feed = self._feeds.pop(queue.name, None)
        if feed is not None:
            self._topics.drop(feed, feed.address)
        if queue.key in self._stored:
            self._stored.discard(queue.key)
            self._unstore(queue.key, False)

    def _unstore(self, key: str, committed: bool) -> None:
        store = self._journal.store
        if not committed and store is not None and key not in self._stored:
            store.unsubscribe(key)
            self._journal.batch.actions.append(partial(self._unstore, key))

    def restore(self, record: Subscribed, name: str, make: Callable[[str], Queue]) -> None:
        """Make a queue that the store had kept. `make` finds a queue by its name, or makes it."""
        self._stored.add(record.queue)
        arguments = load_arguments(record.selector) if self._config.queue_arguments != "ignore" else None
        if arguments is None and self.topic_of(name) is None:
            self._stored.discard(record.queue)  # the configuration has changed: the record stays in the store
            return
        queue = make(name)
        if arguments is not None:
            agree(queue, arguments, False)


def agree(queue: Queue, arguments: QueueArguments, refuses: bool) -> bool:
    """Set the arguments of a new queue that a client names. Return whether that changed it. Arguments that differ from
    those of the queue raise Refused if `refuses`, and are ignored otherwise.
    """
    if arguments == queue.arguments:
        return False
    if queue.arguments is not None or queue.total or queue.members:
        if refuses:
            raise Refused(
                "the queue has other arguments",
                "Another client created it: omit the x- headers, or use those with which it was created.",
            )
        return False
    queue.arguments, queue.used = arguments, None
    if not arguments.reject_publish and (arguments.max_length is not None or arguments.max_length_bytes is not None):
        messages, octets = arguments.max_length, arguments.max_length_bytes
        queue.bound = Bound(
            queue.bound.messages if messages is None else min(messages, queue.bound.messages),
            queue.bound.octets if octets is None else min(octets, queue.bound.octets),
        )
        queue.overflow = queue.drop_oldest
    return True


def is_unused(queue: Queue, now: float) -> bool:
    """Return whether a queue has had no consumer for its x-expires. To be called now and then."""
    if queue.arguments is None or queue.arguments.expires is None:
        return False
    if queue.members or queue.used is None:
        queue.used = now
    return now - queue.used >= queue.arguments.expires
