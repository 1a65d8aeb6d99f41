"""Retained messages: the latest one of a topic that was sent with `retain:set`, for those who subscribe later.

Each is kept in a queue of its own, which nobody consumes: so it expires, is stored and is counted as others are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from stompcodec.broker.config.settings import Address
from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import Part
from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.topic import Topic

if TYPE_CHECKING:
    from stompcodec.broker.peer import Peer
    from stompcodec.broker.wildcards import Pattern

__all__ = ["ACTIONS", "Retained", "Retaining"]

#: Values of the header `retain`.
ACTIONS = ("set", "remove")


class Retained:
    """All retained messages of a virtual host.

    Args:
        make: makes the queue for the topic of that name; what all hold is charged there.
        words: of an address, as patterns match them.
        most: messages.
        part: of the account, for all of them together.
    """

    def __init__(
        self,
        make: Callable[[str, Part], Queue],
        words: Callable[[str, str], tuple[str, ...]],
        most: int,
        part: Part,
    ) -> None:
        self._make = make
        self._words = words
        self._most = most
        self.part = part
        #: By the name of the topic, with its words.
        self.queues: dict[str, Queue] = {}
        self._split: dict[str, tuple[str, ...]] = {}
        #: Those whose message waits for the store.
        self._expecting: set[str] = set()

    def sink(self, action: str, address: Address, topic: Topic | None) -> Retaining:
        """Where a SEND with the header `retain` goes.

        Raises:
            Refused: there is no such action, or no room.
        """
        if action not in ACTIONS:
            raise Refused("unknown value of retain", "retain is set or remove.")
        if action == "set" and not self._has_room(address.name):
            raise Refused("too many retained messages", "Remove some by retain:remove.")
        return Retaining(self, action, address, topic)

    def _has_room(self, name: str) -> bool:
        """For one instead of that of the same name; when in doubt, empty queues go."""
        queue = self.queues.get(name)
        if queue is None and len(self.queues) >= self._most:
            self.sweep()
        if (queue is None and len(self.queues) >= self._most) or self.part.is_full:
            return False
        others = self.part.used - (0 if queue is None else queue.cost)
        if others >= self.part.limit:  # that counts more than the bound does
            others = sum(other.octets for other in self.queues.values() if other is not queue)
        return others < self.part.limit

    def queue(self, address: Address, must: bool = False) -> Queue:
        """Where the message of a topic is.

        Args:
            address: of the topic.
            must: also where there is no room. Otherwise nothing can be in it then: it is closed.
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
        """Where the message of a topic will be, when the store has it. Until then the queue stays, empty as it is."""
        queue = self.queue(address)
        if not queue.closed:
            self._expecting.add(address.name)
        return queue

    def set(self, address: Address, message: Message, stored: bool) -> None:
        """Retain a message, instead of the one before. Not so if there is no room any more: it was in a transaction,
        or delayed, and others came before it."""
        queue = self.queue(address)
        self._expecting.discard(address.name)
        if not self._has_room(address.name):
            if stored and not queue.closed:
                queue.unstore((message,))
            return
        queue.put(message, stored)
        _trim(queue, 1)

    def remove(self, name: str) -> None:
        """Retain nothing."""
        queue = self.queues.get(name)
        if queue is not None:
            _trim(queue, 0)

    def load(self, address: Address, message: Message) -> None:
        """As the store gives it back."""
        queue = self.queue(address, must=True)
        queue.load(message)
        _trim(queue, 1)

    def matching(self, address: Address, pattern: Pattern | None) -> Iterator[Message]:
        """What a new subscription gets first."""
        if pattern is None:
            queues = [self.queues[address.name]] if address.name in self.queues else []
        else:
            queues = [self.queues[name] for name, words in self._split.items() if words and pattern.matches(words)]
        return chain.from_iterable([*queue.messages][-1:] for queue in queues)  # one before it may have come back

    def sweep(self) -> None:
        """Forget the queues that hold nothing."""
        for name in [name for name, queue in self.queues.items() if not queue.count]:
            journal = self.queues[name].journal
            if name in self._expecting and journal is not None and (journal.open or journal.busy):
                continue
            self._expecting.discard(name)
            self.queues.pop(name).close()
            del self._split[name]


def _trim(queue: Queue, count: int) -> None:
    """Only the latest messages stay."""
    while len(queue.messages) > count:
        message = queue.messages.line.popleft()
        if message.persistent and queue.journal is not None:
            queue.journal.settle(queue, message)  # it comes back, should that not be stored
        queue.count_out(1, message.size)


class Retaining:
    """A topic whose message is retained, or whose retained message goes. To those who listen it is sent as any other.

    Args:
        retained: where.
        action: one of `ACTIONS`.
        address: of the topic.
        topic: None when nobody listens.
    """

    __slots__ = ("_action", "_address", "_retained", "_topic")

    def __init__(self, retained: Retained, action: str, address: Address, topic: Topic | None) -> None:
        self._retained = retained
        self._action = action
        self._address = address
        self._topic = topic

    def put(self, message: Message, stored: bool = False) -> bool:
        """As in Topic."""
        if self._action == "set":
            self._retained.set(self._address, message, stored)
        else:
            self._retained.remove(self._address.name)
        return self._topic is not None and self._topic.put(message, stored)

    def stores(self, message: Message) -> Sequence[Queue]:
        """As in Topic."""
        if message.due is not None:  # it is stored when it comes
            return ()
        mine = self._retained.expect(self._address).stores(message) if self._action == "set" else ()
        return [*mine, *(() if self._topic is None else self._topic.stores(message))]

    def holders(self) -> Sequence[Queue]:
        """As in Topic."""
        return () if self._topic is None else self._topic.holders()

    def block(self, session: Peer) -> None:
        """As in Topic."""
        if self._topic is not None:
            self._topic.block(session)
