"""Transaction: operations that take effect together at COMMIT."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.memory import MARK, OPERATION, transaction_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer, Delivery, Source
from stompcodec.broker.routing.idempotency import Mark
from stompcodec.broker.sessions.target import Target


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

    @property
    def octets(self) -> int:
        """Bytes that it counts toward the limit."""
        return OPERATION * len(self.deliveries)


class Transaction:
    """The operations between BEGIN and COMMIT, in order.

    >>> Transaction("t").octets
    0
    """

    __slots__ = ("base", "keyed", "octets", "operations", "weight")

    def __init__(self, name: str) -> None:
        self.operations: list[Sending | Settling] = []
        #: At least one SEND has an idempotency key.
        self.keyed = False
        #: The number of messages that it sends or settles.
        self.weight = 0
        #: Bytes that count toward the limit.
        self.octets = 0
        #: Further bytes of memory that it uses.
        self.base = transaction_cost(name)

    def add(self, operation: Sending | Settling) -> int:
        """Add an operation. Return the bytes that it counts toward the limit."""
        self.operations.append(operation)
        self.weight += 1 if isinstance(operation, Sending) else len(operation.deliveries)
        self.keyed = self.keyed or (isinstance(operation, Sending) and operation.mark is not None)
        octets = operation.octets
        self.octets += octets
        return octets

    @property
    def is_persistent(self) -> bool:
        """At least one of its messages is stored, or will be."""
        return any(
            operation.message.persistent
            if isinstance(operation, Sending)
            else any(message.persistent for _tag, message in operation.deliveries)
            for operation in self.operations
        )

    @property
    def stores(self) -> bool:
        """At least one of its SENDs will be stored."""
        return any(isinstance(operation, Sending) and operation.message.persistent for operation in self.operations)

    @property
    def retains(self) -> bool:
        """It may replace a retained message, which may be stored."""
        return any(
            isinstance(operation, Sending) and operation.target.retain is not None for operation in self.operations
        )

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
