"""Transaction: operations that wait for COMMIT, and then take effect together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.memory import MARK, OPERATION, transaction_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer, Delivery, Source
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.idempotency import Mark
from stompcodec.broker.sessions.send import Goal, Sink, in_order, put_late, sink_of

if TYPE_CHECKING:
    from stompcodec.broker.sessions.session import Session
    from stompcodec.codec import Frame

__all__ = ["OPERATION", "Sending", "Settling", "Transaction"]


class Sending(NamedTuple):
    """A SEND that waits."""

    goal: Goal
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

    __slots__ = ("base", "keyed", "octets", "operations")

    def __init__(self, name: str) -> None:
        self.operations: list[Sending | Settling] = []
        #: A SEND of it has an idempotency key.
        self.keyed = False
        #: In the bound.
        self.octets = 0
        #: Bytes of memory that it takes besides.
        self.base = transaction_cost(name)

    def add(self, operation: Sending | Settling) -> int:
        """Keep an operation. Returns the octets that it takes."""
        self.operations.append(operation)
        if isinstance(operation, Sending):
            octets = OPERATION + operation.message.size
            if operation.mark is not None:
                octets += MARK
                self.keyed = True
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

    @property
    def stores(self) -> bool:
        """A message of it is to be stored."""
        return any(isinstance(operation, Sending) and operation.message.persistent for operation in self.operations)

    @property
    def retains(self) -> bool:
        """A retained message may go by it, and that one was stored."""
        return any(
            isinstance(operation, Sending) and operation.goal.retain is not None for operation in self.operations
        )

    def commit(self, session: Session, frame: Frame) -> None:
        """Everything takes effect: at once, or if something of it is stored, when that is on the disk.

        Args:
            session: whose transaction it is.
            frame: the COMMIT.

        Raises:
            Refused: it cannot, so nothing of it has.
        """
        if self.keyed:
            self._drop_known(session, frame)
        sinks = [
            sink_of(session, operation.goal) if isinstance(operation, Sending) else None
            for operation in self.operations
        ]
        waiting = sum(isinstance(entry, Sending) and entry.message.due is not None for entry in self.operations)
        if waiting:
            session.broker.delayed.check_room(waiting)
        first = None
        for operation in self.operations:
            if isinstance(operation, Sending):
                session.broker.place(operation.message)
                first = first or operation.message.seq
        queues: list[Sequence[Queue]] = [()] * len(sinks)
        if self.is_persistent:
            queues = self._store(session, sinks)
            session.behind = session.broker.journal.batch
            session.broker.journal.charge(session.behind, self.base + self.octets)
            session.plain = False
        for operation in self.operations if self.keyed else ():
            if isinstance(operation, Sending) and operation.mark is not None:
                stored, broker = operation.message.persistent, session.broker
                broker.sent.enter(operation.mark, broker.now, stored=stored, batch=session.behind)
        in_order(session, partial(self._apply, session, sinks, queues), first)

    def _drop_known(self, session: Session, frame: Frame) -> None:
        """Leave out the SENDs whose idempotency keys are known, or come twice."""
        sent = session.broker.sent
        first: dict[tuple[bytes, bytes], Mark] = {}
        fresh: list[Sending | Settling] = []
        for operation in self.operations:
            mark = operation.mark if isinstance(operation, Sending) else None
            if mark is not None:
                earlier = first.setdefault((mark.scope, mark.key), mark)
                if earlier is not mark:
                    sent.count(session, earlier.body != mark.body)
                    continue
                if sent.is_known(session, mark, frame):
                    continue
            fresh.append(operation)
        self.operations = fresh

    def committing(self, session: Session, frame: Frame) -> Iterator[Line]:
        """As `commit`, of what is not stored, a share in each turn; then answer the COMMIT."""
        pinned: dict[Queue, None] = {}
        try:
            yield from self._committing(session, frame, pinned)
        finally:
            for queue in pinned:
                queue.go_on()

    def _committing(self, session: Session, frame: Frame, pinned: dict[Queue, None]) -> Iterator[Line]:
        turns, operations = session.broker.turns, self.operations
        shares = [operations[at : at + AT_ONCE] for at in range(0, len(operations), AT_ONCE)]
        sinks: list[Sink | None] = []
        try:
            for share in shares:  # all of them first: if one cannot be done, none is
                if session.ended:
                    raise Refused("the session has ended", "COMMIT again.")
                for entry in share:
                    sink = sink_of(session, entry.goal) if isinstance(entry, Sending) else None
                    sinks.append(sink)
                    if isinstance(sink, Queue) and sink not in pinned:  # idle as it may be, it stays
                        pinned[sink] = None
                        sink.mending += 1
                yield turns
            waiting = sum(isinstance(entry, Sending) and entry.message.due is not None for entry in operations)
            if waiting:
                session.broker.delayed.check_room(waiting)
        except Refused:
            session.router.stop((), self.abort())
            if session.ended:
                return
            raise
        rejected: dict[tuple[Source, bool], list[Delivery]] = {}
        for number, share in enumerate(shares):
            if number:
                yield turns
            found = sinks[number * AT_ONCE : (number + 1) * AT_ONCE]
            for at, entry in enumerate(share):
                if not isinstance(entry, Sending):
                    continue
                if entry.mark is not None:
                    if session.broker.sent.is_known(session, entry.mark, frame):
                        found[at] = None
                        continue
                    session.broker.sent.enter(entry.mark, session.broker.now, stored=False)
                session.broker.place(entry.message)
            self._apply_some(session, share, found, [()] * len(share), rejected)
        for (queue, requeue), deliveries in rejected.items():
            session.router.reject(queue, deliveries, requeue)
        session.answer(frame)

    def _store(self, session: Session, sinks: list[Sink | None]) -> list[Sequence[Queue]]:
        """What it does in the store. Returns the queues that each message is stored for."""
        store = session.broker.journal.store
        assert store is not None
        found: list[Sequence[Queue]] = []
        for operation, sink in zip(self.operations, sinks):
            queues: Sequence[Queue] = ()
            if isinstance(operation, Settling):
                queue = operation.consumer.queue
                if operation.accepted and queue.journal is not None:  # a topic's subscription stores nothing
                    for _tag, message in operation.deliveries:
                        if message.persistent:
                            store.remove(queue.key, message)
            elif sink is not None:
                queues = sink.stores(operation.message)
                for queue in queues:
                    store.append(queue.key, operation.message)
            found.append(queues)
        return found

    def _apply(
        self, session: Session, sinks: list[Sink | None], queues: list[Sequence[Queue]], committed: bool
    ) -> None:
        """What it does outside of the store. Or, if the commit has failed, as if it had been aborted."""
        if not committed:
            session.router.stop((), self.abort())
            return
        rejected: dict[tuple[Source, bool], list[Delivery]] = {}
        self._apply_some(session, self.operations, sinks, queues, rejected)
        for (queue, requeue), deliveries in rejected.items():  # together, so that they come back in order
            session.router.reject(queue, deliveries, requeue)

    @staticmethod
    def _apply_some(
        session: Session,
        operations: Sequence[Sending | Settling],
        sinks: Sequence[Sink | None],
        queues: Sequence[Sequence[Queue]],
        rejected: dict[tuple[Source, bool], list[Delivery]],
    ) -> None:
        for operation, sink, stored in zip(operations, sinks, queues):
            if isinstance(operation, Settling):
                queue = operation.consumer.queue
                if operation.accepted:
                    queue.settle(operation.deliveries, stored=True)
                else:
                    rejected.setdefault((queue, operation.requeue), []).extend(operation.deliveries)
            elif sink is not None:
                put_late(session, sink, operation.message, stored)

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
