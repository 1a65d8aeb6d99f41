"""Target, one destination of a SEND; and Transaction, operations that take effect together at COMMIT."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.memory import MARK, OPERATION, transaction_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer, Delivery, Source
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.delayed import RetainTarget
from stompcodec.broker.routing.idempotency import Mark
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


class Sending(NamedTuple):
    """A deferred SEND."""

    target: Target
    message: Message
    mark: Mark | None = None
    """The mark of its idempotency key."""

    @property
    def octets(self) -> int:
        """Bytes that it counts toward the limit."""
        return OPERATION + self.message.size + (0 if self.mark is None else MARK)


class Settling(NamedTuple):
    """A deferred ACK or NACK. The transaction holds its deliveries until it ends."""

    consumer: Consumer
    deliveries: list[Delivery]
    accepted: bool
    """True for ACK, False for NACK."""
    requeue: bool = True
    """For NACK: the messages may be delivered again."""
    pause: float | None = None
    """For NACK: seconds before they are; None for what the configuration says."""

    @property
    def octets(self) -> int:
        """Bytes that it counts toward the limit."""
        return OPERATION * len(self.deliveries)


class Transaction:
    """The operations between BEGIN and COMMIT, in order.

    >>> Transaction("t").octets
    0
    """

    __slots__ = (
        *("_mixed", "_target", "base", "delayed", "keyed", "octets", "operations", "retains", "settles", "stores"),
        *("receipts", "weight"),
    )

    def __init__(self, name: str) -> None:
        #: The receipts of its SENDs that wait for COMMIT.
        self.receipts: list[str] = []
        self.operations: list[Sending | Settling] = []
        #: At least one SEND: has an idempotency key, is delayed, will be stored, may replace a retained message.
        self.keyed = self.delayed = self.stores = self.retains = False
        #: At least one ACK or NACK.
        self.settles = False
        #: The number of messages that it sends or settles.
        self.weight = 0
        #: Bytes that count toward the limit.
        self.octets = 0
        #: Further bytes of memory that it uses.
        self.base = transaction_cost(name)
        #: The latest target of `send`; and whether there are other operations than SENDs to it, all persistent or none.
        self._target: Target | None = None
        self._mixed = False

    def add(self, operation: Sending | Settling) -> int:
        """Add an operation. Return the bytes that it counts toward the limit."""
        self.operations.append(operation)
        self._mixed = True
        if isinstance(operation, Sending):
            self.weight += 1
            self.keyed = self.keyed or operation.mark is not None
            self.delayed = self.delayed or operation.message.due is not None
            self.stores = self.stores or bool(operation.message.persistent)
            self.retains = self.retains or operation.target.retain is not None
        else:
            self.weight += len(operation.deliveries)
            self.settles = True
        octets = operation.octets
        self.octets += octets
        return octets

    def send(self, queue: QueueOrTopic, message: Message) -> int:
        """Add a SEND without special headers, in fewer steps than `add`. Return the bytes that it counts."""
        target, stores = self._target, bool(message.persistent)
        if target is None or target.queue is not queue or target.destination != message.destination:
            self._mixed = self._mixed or target is not None
            target = self._target = Target(message.destination, queue=queue)
        elif stores is not self.stores:
            self._mixed = True
        self.operations.append(tuple.__new__(Sending, (target, message, None)))  # a fifth of the cost of Sending()
        self.weight += 1
        self.stores = self.stores or stores
        octets = OPERATION + message.size
        self.octets += octets
        return octets

    @property
    def only_target(self) -> Target | None:
        """The target if there are only persistent SENDs without special headers, and all of them have the same."""
        return None if self._mixed or not self.stores else self._target

    def keep_receipt(self, receipt: str) -> int:
        """Keep the receipt of a SEND until COMMIT. Return the bytes that it counts toward the limit."""
        self.receipts.append(receipt)
        self.octets += len(receipt)
        return len(receipt)

    def keep(self, operations: list[Sending | Settling]) -> None:
        """Keep only these operations."""
        self.operations = operations
        self.stores = any(isinstance(each, Sending) and each.message.persistent for each in operations)

    @property
    def is_persistent(self) -> bool:
        """At least one of its messages is stored, or will be."""
        return self.stores or (self.settles and any(map(_settles_stored, self.operations)))

    def abort(self) -> list[tuple[Source, Message]]:
        """Discard the transaction: drop its SENDs and return its deliveries to their consumers. Return those whose
        subscription has ended, with their sources: they must return to the queue.
        """
        settlings = [operation for operation in self.operations if isinstance(operation, Settling)]
        orphans = []
        for consumer, deliveries, *_how in settlings:
            if consumer.closed:
                orphans += [(consumer.queue, message) for _tag, message in deliveries]
            else:
                consumer.give_back(deliveries)
        return orphans


def _settles_stored(operation: Sending | Settling) -> bool:
    return isinstance(operation, Settling) and any(message.persistent for _tag, message in operation.deliveries)
