"""Transaction: operations that wait for COMMIT, and then take effect together."""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.memory import MARK, OPERATION, transaction_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer, Delivery, Source
from stompcodec.broker.routing.idempotency import Mark
from stompcodec.broker.sessions.send import Target

__all__ = ["OPERATION", "Sending", "Settling", "Transaction"]


class Sending(NamedTuple):
    """A SEND that waits."""

    target: Target
    message: Message
    mark: Mark | None = None
    """Of its idempotency key."""


class Settling(NamedTuple):
    """An ACK or NACK that waits. Its deliveries are the transaction's until it ends."""

    consumer: Consumer
    deliveries: list[Delivery]
    accepted: bool
    """ACK; False for NACK."""
    requeue: bool = True
    """Of NACK: there may be another attempt."""


class Transaction:
    """What came between BEGIN and COMMIT, in order.

    Args:
        name: that BEGIN has.

    >>> Transaction("t").octets
    0
    """

    __slots__ = ("base", "keyed", "octets", "operations", "weight")

    def __init__(self, name: str) -> None:
        self.operations: list[Sending | Settling] = []
        #: A SEND of it has an idempotency key.
        self.keyed = False
        #: Messages that it sends or settles.
        self.weight = 0
        #: In the bound.
        self.octets = 0
        #: Bytes of memory that it takes besides.
        self.base = transaction_cost(name)

    def add(self, operation: Sending | Settling) -> int:
        """Keep an operation. Returns the octets that it takes."""
        self.operations.append(operation)
        if isinstance(operation, Sending):
            self.weight += 1
            octets = OPERATION + operation.message.size
            if operation.mark is not None:
                octets += MARK
                self.keyed = True
        else:
            self.weight += len(operation.deliveries)
            octets = OPERATION * len(operation.deliveries)
        self.octets += octets
        return octets

    @property
    def is_persistent(self) -> bool:
        """Something of it is, or will be, in the store."""
        return any(
            operation.message.persistent
            if isinstance(operation, Sending)
            else any(message.persistent for _tag, message in operation.deliveries)
            for operation in self.operations
        )

    @property
    def stores(self) -> bool:
        """A message of it is to be stored."""
        return any(isinstance(operation, Sending) and operation.message.persistent for operation in self.operations)

    @property
    def retains(self) -> bool:
        """A retained message may go by it, and that one was stored."""
        return any(
            isinstance(operation, Sending) and operation.target.retain is not None for operation in self.operations
        )

    def abort(self) -> list[tuple[Source, Message]]:
        """Nothing: what was sent is forgotten, what was acknowledged is not.

        Returns:
            What belongs to a subscription that has ended meanwhile, and has to go back to the queue.
        """
        settlings = [operation for operation in self.operations if isinstance(operation, Settling)]
        orphans = []
        for consumer, deliveries, *_how in settlings:
            if consumer.closed:
                orphans += [(consumer.queue, message) for _tag, message in deliveries]
            else:
                consumer.give_back(deliveries)
        return orphans
