"""Transaction: operations that wait for COMMIT, and then take effect together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from stompcodec.broker.consumer import Consumer, Delivery
from stompcodec.broker.message import Message
from stompcodec.broker.queue import Queue
from stompcodec.broker.sending import in_order, put_late, sink_of

if TYPE_CHECKING:
    from stompcodec.broker.session import Session
    from stompcodec.broker.topic import Topic

__all__ = ["OPERATION", "Sending", "Settling", "Transaction"]

#: Octets that an operation takes besides its message, in the bound on transactions.
OPERATION = 200


class Sending(NamedTuple):
    """A SEND that waits."""

    destination: str
    message: Message


class Settling(NamedTuple):
    """An ACK or NACK that waits. Its deliveries are the transaction's until it ends."""

    consumer: Consumer
    deliveries: list[Delivery]
    accepted: bool
    """ACK; False for NACK."""


class Transaction:
    """What came between BEGIN and COMMIT, in order.

    >>> Transaction().octets
    0
    """

    __slots__ = ("octets", "operations")

    def __init__(self) -> None:
        self.operations: list[Sending | Settling] = []
        #: In the bound.
        self.octets = 0

    def add(self, operation: Sending | Settling) -> int:
        """Keep an operation. Returns the octets that it takes."""
        self.operations.append(operation)
        if isinstance(operation, Sending):
            octets = OPERATION + operation.message.size
        else:
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

    def commit(self, session: Session) -> None:
        """Everything takes effect: at once, or if something of it is stored, when that is on the disk.

        Raises:
            Refused: it cannot, so nothing of it has.
        """
        sinks = [
            sink_of(session, operation.destination) if isinstance(operation, Sending) else None
            for operation in self.operations
        ]
        for operation in self.operations:
            if isinstance(operation, Sending):
                session.broker.place(operation.message)
        if not self.is_persistent:
            in_order(session, partial(self._apply, session, sinks))
            return
        journal = session.broker.journal
        assert journal.store is not None
        for operation, sink in zip(self.operations, sinks):
            if isinstance(operation, Settling):
                if operation.accepted:
                    for _tag, message in operation.deliveries:
                        if message.persistent:
                            journal.store.remove(operation.consumer.queue.key, message)
            elif isinstance(sink, Queue) and sink.journal is not None and operation.message.persistent:
                journal.store.append(sink.key, operation.message)
        session.behind = journal.batch
        session.plain = False
        in_order(session, partial(self._apply, session, sinks))

    def _apply(self, session: Session, sinks: list[Queue | Topic | None], committed: bool) -> None:
        """What it does outside of the store. Or, if the commit has failed, as if it had been aborted."""
        if not committed:
            session.router.stop((), self.abort())
            return
        rejected: dict[Queue, list[Delivery]] = {}
        for operation, sink in zip(self.operations, sinks):
            if isinstance(operation, Settling):
                queue = operation.consumer.queue
                if operation.accepted:
                    queue.settle(operation.deliveries, stored=True)
                else:
                    rejected.setdefault(queue, []).extend(operation.deliveries)
            elif sink is not None:
                put_late(session, sink, operation.message)
        for queue, deliveries in rejected.items():  # together, so that they come back in order
            session.router.reject(queue, deliveries)

    def abort(self) -> list[tuple[Queue, Message]]:
        """Nothing: what was sent is forgotten, what was acknowledged is not.

        Returns:
            What belongs to a subscription that has ended meanwhile, and has to go back to the queue.
        """
        settlings = [operation for operation in self.operations if isinstance(operation, Settling)]
        orphans = []
        for consumer, deliveries, _accepted in settlings:
            if consumer.closed:
                orphans += [(consumer.queue, message) for _tag, message in deliveries]
            else:
                consumer.give_back(deliveries)
        return orphans
