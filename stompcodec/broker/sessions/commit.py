"""BEGIN, COMMIT and ABORT: how what a transaction holds takes effect, or does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.queues.consumer import Delivery, Source
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.idempotency import Mark
from stompcodec.broker.sessions.goal import Sink
from stompcodec.broker.sessions.send import check_space, in_order, put_late, sink_of
from stompcodec.broker.sessions.transaction import Sending, Settling, Transaction

if TYPE_CHECKING:
    from stompcodec.broker.sessions.session import Session
    from stompcodec.codec import Frame

__all__ = ["abort", "begin", "commit", "keep"]


def begin(session: Session, frame: Frame) -> None:
    """BEGIN.

    Raises:
        Refused: the session has one of that name, or too many.
    """
    name, config = session.header(frame, "transaction") or "", session.broker.config
    if name in session.transactions:
        raise Refused("transaction exists", "This session has an open transaction of that name.")
    if len(session.transactions) >= config.max_transactions:
        raise Refused("too many transactions", f"A session has at most {config.max_transactions} open.")
    session.transactions[name] = transaction = Transaction(name)
    session.hold_transaction(0, transaction.base)
    session.answer(frame)


def keep(session: Session, name: str, operation: Sending | Settling) -> None:
    """Put an operation into a transaction.

    Raises:
        Refused: there is no such transaction, or those of the session are too large.
    """
    transaction = session.transactions.get(name)
    if transaction is None:
        if isinstance(operation, Settling):
            operation.consumer.give_back(operation.deliveries)
        raise Refused("no such transaction", "BEGIN it first.")
    session.hold_transaction(transaction.add(operation))
    most = session.broker.config.max_transaction_octets
    if session.transaction_octets > most:
        raise Refused("transactions too large", f"Those of a session have at most {most} octets together.")


def _ended(session: Session, frame: Frame) -> Transaction:
    transaction = session.transactions.pop(session.header(frame, "transaction") or "", None)
    if transaction is None:
        raise Refused("no such transaction", "BEGIN it first.")
    session.hold_transaction(-transaction.octets, -transaction.base)
    return transaction


def commit(session: Session, frame: Frame) -> None:
    """COMMIT.

    Raises:
        Refused: there is no such transaction, or it cannot take effect: then nothing of it has.
    """
    transaction = _ended(session, frame)
    if transaction.is_persistent or (transaction.retains and session.broker.stores_some):
        session.store_waits(frame)
    if len(transaction.operations) > AT_ONCE and not transaction.is_persistent and session.behind is None:
        session.work(frame, _committing(session, transaction, frame))
        return
    try:
        if transaction.stores:
            check_space(session, (None,))
        _take_effect(session, transaction, frame)
    except Refused:
        session.router.stop((), transaction.abort())
        raise
    session.answer(frame)


def abort(session: Session, frame: Frame) -> None:
    """ABORT.

    Raises:
        Refused: there is no such transaction.
    """
    session.router.stop((), _ended(session, frame).abort())
    session.answer(frame)


def _take_effect(session: Session, transaction: Transaction, frame: Frame) -> None:
    """Everything takes effect: at once, or if something of it is stored, when that is on the disk.

    Args:
        session: whose it is.
        transaction: that is not among those of the session any more.
        frame: the COMMIT.

    Raises:
        Refused: it cannot, so nothing of it has.
    """
    if transaction.keyed:
        _drop_known(session, transaction, frame)
    sinks = [
        sink_of(session, operation.goal) if isinstance(operation, Sending) else None
        for operation in transaction.operations
    ]
    waiting = sum(isinstance(entry, Sending) and entry.message.due is not None for entry in transaction.operations)
    if waiting:
        session.broker.delayed.check_room(waiting)
    first = None
    for operation in transaction.operations:
        if isinstance(operation, Sending):
            session.broker.place(operation.message)
            first = first or operation.message.seq
    queues: list[Sequence[Queue]] = [()] * len(sinks)
    if transaction.is_persistent:
        queues = _store(session, transaction, sinks)
        session.behind = session.broker.journal.batch
        session.broker.journal.charge(session.behind, transaction.base + transaction.octets)
        session.plain = False
    for operation in transaction.operations if transaction.keyed else ():
        if isinstance(operation, Sending) and operation.mark is not None:
            stored, broker = operation.message.persistent, session.broker
            broker.sent.enter(operation.mark, broker.now, stored=stored, batch=session.behind)
    in_order(session, partial(_apply, session, transaction, sinks, queues), first)


def _drop_known(session: Session, transaction: Transaction, frame: Frame) -> None:
    """Leave out the SENDs whose idempotency keys are known, or come twice."""
    sent = session.broker.sent
    first: dict[tuple[bytes, bytes], Mark] = {}
    fresh: list[Sending | Settling] = []
    for operation in transaction.operations:
        mark = operation.mark if isinstance(operation, Sending) else None
        if mark is not None:
            earlier = first.setdefault((mark.scope, mark.key), mark)
            if earlier is not mark:
                sent.count(session, earlier.body != mark.body)
                continue
            if sent.is_known(session, mark, frame):
                continue
        fresh.append(operation)
    transaction.operations = fresh


def _committing(session: Session, transaction: Transaction, frame: Frame) -> Iterator[Line]:
    """As `_take_effect`, of what is not stored, a share in each turn; then answer the COMMIT."""
    pinned: dict[Queue, None] = {}
    try:
        yield from _committing_some(session, transaction, frame, pinned)
    finally:
        for queue in pinned:
            queue.go_on()


def _committing_some(
    session: Session, transaction: Transaction, frame: Frame, pinned: dict[Queue, None]
) -> Iterator[Line]:
    turns, operations = session.broker.turns, transaction.operations
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
        session.router.stop((), transaction.abort())
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
        _apply_some(session, share, found, [()] * len(share), rejected)
    for (queue, requeue), deliveries in rejected.items():
        session.router.reject(queue, deliveries, requeue)
    session.answer(frame)


def _store(session: Session, transaction: Transaction, sinks: list[Sink | None]) -> list[Sequence[Queue]]:
    """What it does in the store. Returns the queues that each message is stored for."""
    store = session.broker.journal.store
    assert store is not None
    found: list[Sequence[Queue]] = []
    for operation, sink in zip(transaction.operations, sinks):
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
    session: Session, transaction: Transaction, sinks: list[Sink | None], queues: list[Sequence[Queue]], committed: bool
) -> None:
    """What it does outside of the store. Or, if the commit has failed, as if it had been aborted."""
    if not committed:
        session.router.stop((), transaction.abort())
        return
    rejected: dict[tuple[Source, bool], list[Delivery]] = {}
    _apply_some(session, transaction.operations, sinks, queues, rejected)
    for (queue, requeue), deliveries in rejected.items():  # together, so that they come back in order
        session.router.reject(queue, deliveries, requeue)


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
