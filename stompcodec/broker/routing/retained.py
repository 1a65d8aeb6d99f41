"""Retained: the last message of each topic that was sent with `retain:set`, for later subscribers.

Each is in a queue of its own without consumers: so it expires, is stored and is counted like other messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from stompcodec.broker.config.settings import Address
from stompcodec.broker.connections import Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import Part
from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.wildcards import Pattern

#: Values of the header `retain`.
ACTIONS = ("set", "remove")


class Retained:
    """The retained messages of a virtual host, at most `most`, which take at most `part` of the account.

    `make` makes the queue for a topic from its name and that part. `words` returns the words of an address, as patterns
    match them.
    """

    def __init__(
        self, make: Callable[[str, Part], Queue], words: Callable[[str, str], tuple[str, ...]], most: int, part: Part
    ) -> None:
        self._make = make
        self._words = words
        self._most = most
        self.part = part
        #: The queues, and the words of the topics, by the name of the topic.
        self.queues: dict[str, Queue] = {}
        self._split: dict[str, tuple[str, ...]] = {}
        #: Names of topics whose message waits for the store.
        self._expecting: set[str] = set()

    def target(self, action: str, address: Address, topic: Topic | None) -> RetainTarget:
        """Return the target of a SEND with the header `retain`. Raise Refused if the action is unknown, or the room is
        used up.
        """
        if action not in ACTIONS:
            raise Refused("unknown value of retain", "retain is set or remove.")
        if action == "set" and not self._has_room(address.name):
            raise Refused("too many retained messages", "Remove some by retain:remove.")
        return RetainTarget(self, action, address, topic)

    def _has_room(self, name: str) -> bool:
        """Return whether there is room for a message that replaces that of the same topic. Removes empty queues."""
        queue = self.queues.get(name)
        if queue is None and len(self.queues) >= self._most:
            self.sweep()
        if (queue is None and len(self.queues) >= self._most) or self.part.is_full:
            return False
        others = self.part.used - (0 if queue is None else queue.cost)
        if others >= self.part.limit:  # which includes the fixed cost of messages; the bound does not
            others = sum(other.octets for other in self.queues.values() if other is not queue)
        return others < self.part.limit

    def queue(self, address: Address, must: bool = False) -> Queue:
        """Return the queue for the message of a topic, made if need be. Without room, it is closed, unless it `must` be
        made.
        """
        queue = self.queues.get(address.name)
        if queue is None:
            has_room = must or self._has_room(address.name)
            queue = self._make(address.name, self.part)
            if not has_room:
                queue.close()
                return queue
            self.queues[address.name] = queue
            self._split[address.name] = self._words(address.prefix, address.rest)
        return queue

    def expect(self, address: Address) -> Queue:
        """Return the queue for a message that the store is to write. It stays until then, though it is empty."""
        queue = self.queue(address)
        if not queue.closed:
            self._expecting.add(address.name)
        return queue

    def set(self, address: Address, message: Message, stored: bool) -> None:
        """Retain a message instead of the previous one, if there is room: it may have been in a transaction, or
        delayed, while others came."""
        queue = self.queue(address)
        self._expecting.discard(address.name)
        if not self._has_room(address.name):
            if stored and not queue.closed:
                queue.unstore((message,))
            return
        queue.put(message, stored)
        _trim(queue, 1)

    def remove(self, name: str) -> None:
        """Remove the retained message of a topic."""
        queue = self.queues.get(name)
        if queue is not None:
            _trim(queue, 0)

    def load(self, address: Address, message: Message) -> None:
        """Retain a message that the store had kept."""
        queue = self.queue(address, must=True)
        queue.load(message)
        _trim(queue, 1)

    def matching(self, address: Address, pattern: Pattern | None) -> Iterator[Message]:
        """Return the retained messages of a topic, or of the topics that match a pattern."""
        if pattern is None:
            queues = [self.queues[address.name]] if address.name in self.queues else []
        else:
            queues = [self.queues[name] for name, words in self._split.items() if words and pattern.matches(words)]
        return chain.from_iterable([*queue.messages][-1:] for queue in queues)  # an earlier one may have been requeued

    def sweep(self) -> None:
        """Remove empty queues."""
        for name in [name for name, queue in self.queues.items() if not queue.count]:
            journal = self.queues[name].journal
            if name in self._expecting and journal is not None and (journal.open or journal.busy):
                continue
            self._expecting.discard(name)
            self.queues.pop(name).close()
            del self._split[name]


def _trim(queue: Queue, count: int) -> None:
    """Remove all but the last `count` messages."""
    while len(queue.messages) > count:
        message = queue.messages.line.popleft()
        if message.persistent and queue.journal is not None:
            queue.journal.settle(queue, message)  # requeued if that cannot be stored
        queue.count_out(1, message.size)


@dataclass(eq=False, slots=True)
class RetainTarget:
    """The target of a SEND that sets or removes a retained message, by one of `ACTIONS`. Subscribers get the message as
    any other.
    """

    retained: Retained
    action: str
    address: Address
    topic: Topic | None

    def put(self, message: Message, stored: bool = False) -> bool:
        """Set or remove the retained message, and put the message into the topic."""
        if self.action == "set":
            self.retained.set(self.address, message, stored)
        else:
            self.retained.remove(self.address.name)
        return self.topic is not None and self.topic.put(message, stored)

    def stores(self, message: Message) -> Sequence[Queue]:
        """Return the queues that store a message."""
        if message.due is not None:  # it is stored when it is due
            return ()
        mine = self.retained.expect(self.address).stores(message) if self.action == "set" else ()
        return [*mine, *(() if self.topic is None else self.topic.stores(message))]

    def holders(self) -> Sequence[Queue]:
        """Return the queues that could block a sender for ever, if only its own ACKs make room there."""
        return () if self.topic is None else self.topic.holders()

    def block(self, session: Peer) -> None:
        """Make a session wait for slow subscriptions."""
        if self.topic is not None:
            self.topic.block(session)
