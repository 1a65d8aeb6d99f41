"""Handlers of BEGIN, COMMIT and ABORT."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.message import Message
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.consumer import Consumer, Delivery, Source
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.idempotency import Mark
from stompcodec.broker.sessions import plain
from stompcodec.broker.sessions.receipts import confirm, hold_receipts, send_receipt
from stompcodec.broker.sessions.send import check_space, in_order, put_late, queue_of
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.subscribe import release
from stompcodec.broker.sessions.transaction import QueueOrTopic, Sending, Settling, Transaction
from stompcodec.broker.storage.store import Store
from stompcodec.broker.values import REDELIVERY_DELAYS, CreditGrant, Refused, read_values
from stompcodec.codec import Frame

#: Headers of an ACK that is not plain.
_SPECIAL_HEADERS = ("transaction", "credit")


def ack(session: Session, frame: Frame) -> None:
    """Handle ACK. One delivery in 1.2 takes the road of plain.py; `_acknowledge` handles everything else."""
    get = frame.get
    number, _, tag = get("id", "").partition("-")
    consumer = session.by_number.get(number)
    if (
        consumer is None
        or not consumer.single
        or frame.has_any(*_SPECIAL_HEADERS)
        or not tag.isdecimal()
        or len(tag) >= 20
        or not plain.acknowledge(session, consumer, int(tag), get("receipt"))
    ):
        _acknowledge(True, session, frame)


def _acknowledge(accepted: bool, session: Session, frame: Frame) -> None:
    """Handle ACK or NACK in all their forms."""
    get = frame.get
    values = read_values(session, frame)
    accepted = accepted or session.broker.config.nack == "drop"
    requeue, credit = values.get("requeue", True), values.get("credit")
    if credit is not None and _grant(session, frame, credit):
        return
    consumer, tag = _delivery(session, frame)
    receipt = get("receipt")
    if consumer is None:
        if receipt is not None:
            raise Refused("no such delivery", "Its subscription has ended, and the message returned to its queue.")
        return
    if consumer.request.browser:
        _browsed(session, consumer, tag, accepted, frame)
        return
    wanted = next((values[name] for name in REDELIVERY_DELAYS if name in values), consumer.request.redelivery_delay)
    pause = None if accepted or wanted is None else wanted / 1000
    transaction = get("transaction")
    if transaction is not None and session.broker.config.transactional_acks:
        if not (accepted or session.broker.config.nack_in_transaction):
            raise Refused("a NACK in a transaction", "ActiveMQ refuses it, and goes on: send it without the header.")
        operation = Settling(consumer, consumer.take(tag), accepted, requeue, pause)
        defer(session, transaction if session.exact else transaction.strip(" "), operation)
        deliveries = None
    else:
        deliveries = consumer.take(tag)
        if credit is not None:
            consumer.grant(credit)
        session.acknowledged += len(deliveries) if accepted else 0
        for _tag, message in deliveries:
            if message.persistent and accepted:
                hold_receipts(session, frame)
                break
    if deliveries is not None and len(deliveries) > AT_ONCE:
        session.work(frame, _settling(session, consumer, deliveries, frame, accepted, requeue, pause))
        return
    if receipt is not None:  # before messages that may be redelivered
        send_receipt(session, receipt if session.exact else receipt.strip(" "))
    if deliveries is not None and accepted:
        consumer.queue.settle(deliveries)
    elif deliveries is not None:
        session.virtual_host.dead_letters.reject(consumer.queue, deliveries, requeue, pause)
    if consumer.window:
        if not consumer.in_ring:
            consumer.queue.offer(consumer)
    elif deliveries is not None:  # not deferred: otherwise COMMIT does this
        release(session, consumer)


nack = partial(_acknowledge, False)


def _delivery(session: Session, frame: Frame) -> tuple[Consumer | None, int]:
    """Return the consumer (None if it has ended) and number of the delivery of an ACK, or raise Refused."""
    if session.version == "1.2":
        number, _, tag = (frame.get("id") or "").partition("-")
        consumer = session.by_number.get(number)
        if tag.isdecimal() and len(tag) < 20:  # bounded, because a peer chose the number
            if consumer is not None:
                return consumer, int(tag)
            if number.isdecimal() and len(number) < 20 and int(number) < session.next_number:
                return None, 0
    # In 1.2 the id may be a message-id, as stomp-php's of NACK: at RabbitMQ and Artemis the two are the same.
    message_id, key = session.header(frame, "message-id") or frame.get("id", ""), session.header(frame, "subscription")
    for consumer in session.consumers.values():
        if key in (None, consumer.key) and (found := consumer.tag_of(message_id)) is not None:
            return consumer, found
    names = "ack header" if session.version == "1.2" else "message-id and the subscription"
    raise Refused("no such delivery", f"Use the {names} of the MESSAGE.")


def _settling(
    session: Session,
    consumer: Consumer,
    deliveries: list[Delivery],
    frame: Frame,
    accepted: bool,
    requeue: bool = True,
    pause: float | None = None,
) -> Iterator[Line]:
    """Settle or return very many deliveries, a share in each turn, then confirm the frame. The deliveries are in order,
    and already taken from the consumer. `requeue`: after a NACK, the messages may be delivered again, after `pause`.
    """
    queue, journal = consumer.queue, session.broker.journal
    persistent = accepted and any(message.persistent for _tag, message in deliveries)
    if not accepted:
        queue.suspend()
        deliveries = deliveries[::-1]  # each share returns in front of the previous one
    for at in range(0, len(deliveries), AT_ONCE):
        some = deliveries[at : at + AT_ONCE]
        if at:
            yield journal.line if persistent else session.broker.quota
        if persistent and not session.ended:
            hold_receipts(session, frame)
        if accepted:
            queue.settle(some)
        else:
            session.virtual_host.dead_letters.reject(queue, some[::-1], requeue, pause)
    if not session.ended:
        confirm(session, frame)
    if not accepted:
        queue.go_on()
    if not consumer.in_ring and not consumer.closed:
        queue.offer(consumer)


def _browsed(session: Session, consumer: Consumer, tag: int, accepted: bool, frame: Frame) -> None:
    """Handle ACK or NACK of a browser. Raise Refused if the delivery is unknown, or the frame names a transaction."""
    browser = consumer.queue
    assert isinstance(browser, Browser)
    if session.header(frame, "transaction") is not None and session.broker.config.transactional_acks:
        raise Refused("a browser has no transactions", "Acknowledge browsed messages without a transaction header.")
    messages = browser.acknowledge(tag)
    if accepted and len(messages) > AT_ONCE:
        session.work(frame, _settling(session, consumer, [(0, message) for message in messages], frame, accepted))
        return
    if accepted:
        if any(message.persistent for message in messages):
            hold_receipts(session, frame)
        browser.settle([(0, message) for message in messages])
    confirm(session, frame)
    if not consumer.in_ring and not consumer.closed:
        browser.offer(consumer)


def _grant(session: Session, frame: Frame, more: CreditGrant) -> bool:
    """Add the credit of an ACK in auto mode, which acknowledges nothing, and whose header `subscription` names the
    subscription. Return False if it is an ACK of another mode.
    """
    found = session.consumers.get(f"id:{session.header(frame, 'subscription')}")
    if found is None or found.acks or found.request.credit is None:
        return False
    found.grant(more)
    confirm(session, frame)
    found.queue.offer(found)
    return True


class _Last(NamedTuple):
    """What a transaction does last, when everything else has taken effect."""

    rejected: dict[tuple[Source, bool, float | None], list[Delivery]]
    """The deliveries of NACKs by their queue, by whether they may be delivered again, and after how many seconds."""
    received: list[Consumer]
    """The consumers of RECEIVEs whose message is settled: they end."""


class _Share(NamedTuple):
    """The part of a long transaction that one turn handles."""

    operations: list[Sending | Settling]
    queues: list[QueueOrTopic | None]
    """The target of each operation; None if nothing takes the message."""
    stored_in: list[Sequence[Queue]]
    """The queues for which each message is stored."""
    octets: int
    """Bytes that count toward the limit."""


def begin(session: Session, frame: Frame) -> None:
    """Handle BEGIN. Raise Refused if the session has an open transaction of that name, or too many."""
    name, config = session.header(frame, "transaction") or "", session.broker.config
    if name in session.transactions:
        raise Refused("transaction exists", "This session has an open transaction of that name.")
    if len(session.transactions) >= config.max_transactions:
        raise Refused("too many transactions", f"A session may have {config.max_transactions} open transactions.")
    session.transactions[name] = transaction = Transaction(name)
    session.memory.hold_transaction(0, transaction.base)
    confirm(session, frame)


def defer(session: Session, name: str, operation: Sending | Settling) -> None:
    """Add an operation to a transaction. Raise Refused if it is unknown, or those of the session are too large."""
    transaction = session.transactions.get(name)
    if transaction is None and isinstance(operation, Settling):
        operation.consumer.give_back(operation.deliveries)
    plain.hold(session, _known(transaction).add(operation))


def _known(transaction: Transaction | None) -> Transaction:
    if transaction is None:
        raise Refused("no such transaction", "Send BEGIN with that name first.")
    return transaction


def _ended(session: Session, frame: Frame) -> Transaction:
    transaction = _known(session.transactions.pop(session.header(frame, "transaction") or "", None))
    session.memory.hold_transaction(-transaction.octets, -transaction.base)
    return transaction


def commit(session: Session, frame: Frame) -> None:
    """Handle COMMIT. Raise Refused if the transaction is unknown, or cannot take effect; then nothing has."""
    transaction = _ended(session, frame)
    if transaction.weight > AT_ONCE:
        session.work(frame, _committing(session, transaction, frame))
        return
    if transaction.is_persistent or (transaction.retains and session.broker.stores_some):
        hold_receipts(session, frame)
    try:
        if transaction.stores:
            check_space(session, (None,))
        _take_effect(session, transaction, frame)
    except Refused:
        session.virtual_host.stop((), transaction.abort())
        raise
    _confirm(session, transaction, frame)


def _confirm(session: Session, transaction: Transaction, frame: Frame) -> None:
    """Send the receipts of the SENDs that waited for the COMMIT, and its own."""
    for receipt in transaction.receipts:
        send_receipt(session, receipt)
    confirm(session, frame)


def abort(session: Session, frame: Frame) -> None:
    """Handle ABORT. Raise Refused if the transaction is unknown."""
    session.virtual_host.stop((), _ended(session, frame).abort())
    confirm(session, frame)


def _take_effect(session: Session, transaction: Transaction, frame: Frame) -> None:
    """Make a transaction, which was removed from the session, take effect: at once, or after the commit if some of it
    is stored. Raise Refused if it cannot; then nothing has.
    """
    queue = _only_queue(session, transaction)
    if queue is not None:
        _send_all(session, transaction, queue)
        return
    if transaction.keyed:
        _drop_known(session, transaction, frame)
    cached, operations = session.cached_targets, transaction.operations
    queues = [
        (cached.get(operation.target.destination) or queue_of(session, operation.target))
        if isinstance(operation, Sending)
        else None
        for operation in operations
    ]
    if transaction.delayed:
        waiting = sum(isinstance(entry, Sending) and entry.message.due is not None for entry in operations)
        session.broker.delayed.check_room(waiting)
    first = session.broker.seq + 1
    stored_in = _placed(session, transaction, queues)
    if transaction.is_persistent:
        session.behind = session.broker.journal.batch
        session.broker.journal.charge(session.behind, transaction.base + transaction.octets)
        session.plain = False
    for operation in transaction.operations if transaction.keyed else ():
        if isinstance(operation, Sending) and operation.mark is not None:
            stored, broker = bool(operation.message.persistent), session.broker
            broker.sent.enter(operation.mark, broker.now, stored=stored, batch=session.behind)
    sends = session.broker.seq >= first
    in_order(session, partial(_apply, session, transaction, queues, stored_in), first if sends else None)


def _only_queue(session: Session, transaction: Transaction) -> Queue | None:
    """Return the queue to which a transaction sends plain persistent messages, if it does nothing else."""
    target = transaction.only_target
    if target is None or target.queue.__class__ is not Queue:
        return None
    queue: Queue = target.queue
    is_plain = queue.arguments is None and queue.journal is not None
    return queue if is_plain and session.cached_targets.get(target.destination) is queue else None


def _send_all(session: Session, transaction: Transaction, queue: Queue) -> None:
    """Do what `_take_effect` does with a transaction of `_only_queue`, in fewer steps."""
    journal, first = session.broker.journal, session.broker.seq + 1
    messages = plain.store_all(session, queue, transaction.operations)
    session.behind = journal.batch
    journal.charge(session.behind, transaction.base + transaction.octets)
    session.plain = False
    in_order(session, partial(_put_all, session, queue, messages), first)


def _put_all(session: Session, queue: Queue, messages: list[Message], committed: bool) -> None:
    """Put the messages of `_send_all` into the queue after the commit."""
    if not committed or queue.put_committed(messages):
        return
    for message in messages:
        put_late(session, queue, message, (queue,))


def _drop_known(session: Session, transaction: Transaction, frame: Frame) -> None:
    """Leave out SENDs whose idempotency keys are known or occur twice."""
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
    transaction.keep(fresh)


def _committing(session: Session, transaction: Transaction, frame: Frame) -> Iterator[Line]:
    """Do what `_take_effect` does, a share in each turn; then confirm the COMMIT.

    Operations that are stored go into the open batch of the store, which is not written meanwhile. After its commit
    they take effect, and the next batch waits until they have.
    """
    journal = session.broker.journal
    stored = transaction.is_persistent or session.behind is not None
    pinned: dict[Queue, None] = {}
    cost = transaction.base + transaction.octets
    journal.keep(cost)
    try:
        try:
            shares = yield from _resolved(session, transaction, pinned)
            while stored and journal.batch.is_long:
                yield journal
            _check(session, transaction)
        except Refused:
            session.virtual_host.stop((), transaction.abort())
            if session.ended:
                return
            raise
        if not stored:
            yield from _at_once(session, transaction, frame, shares)
            return
        journal.keep(-cost)
        charged, cost = cost, 0
        yield from _staged(session, frame, shares, charged)
        journal.batch.actions.append(partial(_after_commit, session, transaction, shares, pinned.copy()))
        pinned.clear()
        _confirm(session, transaction, frame)
    finally:
        journal.keep(-cost)
        for queue in pinned:
            queue.go_on()


def _resolved(
    session: Session, transaction: Transaction, pinned: dict[Queue, None]
) -> Generator[Line, None, deque[_Share]]:
    """Look up all targets, some in each turn. If one SEND cannot be delivered, nothing takes effect."""
    quota, shares, waiting = session.broker.quota, deque[_Share](), 0
    for operations in _in_shares(transaction.operations):
        if session.ended:
            raise Refused("the session has ended", "COMMIT again.")
        queues: list[QueueOrTopic | None] = []
        octets = 0
        for entry in operations:
            octets += entry.octets
            queue = queue_of(session, entry.target) if isinstance(entry, Sending) else None
            waiting += isinstance(entry, Sending) and entry.message.due is not None
            queues.append(queue)
            if isinstance(queue, Queue) and queue not in pinned:  # keeps an idle queue from being removed
                pinned[queue] = None
                queue.suspensions += 1
        shares.append(_Share(operations, queues, [()] * len(queues), octets))
        yield quota
    if waiting:
        session.broker.delayed.check_room(waiting)
    return shares


def _check(session: Session, transaction: Transaction) -> None:
    """Check a long transaction again before it takes effect. Raise Refused if it cannot."""
    if session.ended:
        raise Refused("the session has ended", "COMMIT again.")
    if session.broker.journal.short and transaction.stores:
        check_space(session, (None,))


def _at_once(session: Session, transaction: Transaction, frame: Frame, shares: deque[_Share]) -> Iterator[Line]:
    """Make a long transaction take effect if none of it is stored."""
    last = _Last({}, [])
    while shares:
        share = shares.popleft()
        for at, entry in enumerate(share.operations):
            if not isinstance(entry, Sending):
                continue
            if entry.mark is not None:
                if session.broker.sent.is_known(session, entry.mark, frame):
                    share.queues[at] = None
                    continue
                session.broker.sent.enter(entry.mark, session.broker.now, stored=False)
            session.broker.place(entry.message)
        _apply_some(session, share.operations, share.queues, share.stored_in, last)
        if shares:
            yield session.broker.quota
    _finish(session, last)
    if transaction.retains and session.broker.stores_some and not session.ended:
        hold_receipts(session, frame)
    _confirm(session, transaction, frame)


def _staged(session: Session, frame: Frame, shares: deque[_Share], cost: int) -> Iterator[Line]:
    """Add the stored operations to the open batch."""
    broker = session.broker
    journal, sent = broker.journal, broker.sent
    store = journal.store
    assert store is not None
    batch = journal.stage()
    try:
        hold_receipts(session, frame)
        session.behind, session.plain = batch, False
        journal.charge(batch, cost)
        batch.first = broker.seq + 1 if batch.first is None else min(batch.first, broker.seq + 1)
        for number, share in enumerate(shares):
            if number:
                yield broker.quota.front
            for at, entry in enumerate(share.operations):
                queue = share.queues[at]
                if isinstance(entry, Settling):
                    _settle_stored(store, entry)
                    continue
                if entry.mark is not None:  # others may have sent it in the meantime
                    if sent.is_known(session, entry.mark, frame):
                        share.queues[at] = None
                        continue
                    sent.enter(entry.mark, broker.now, stored=bool(entry.message.persistent), batch=batch)
                broker.place(entry.message)
                if queue is not None:
                    share.stored_in[at] = queue.stores(entry.message)
                    for each in share.stored_in[at]:
                        store.append(each.key, entry.message)
    finally:
        journal.staging = False


def _after_commit(
    session: Session, transaction: Transaction, shares: deque[_Share], pinned: dict[Queue, None], committed: bool
) -> Iterator[Line] | None:
    """Take effect after the commit, or abort if it has failed."""
    if committed:
        transaction.operations = []  # released share by share
        return _applying(session, shares, pinned)
    session.virtual_host.stop((), transaction.abort())
    for queue in pinned:
        queue.go_on()
    return None


def _applying(session: Session, shares: deque[_Share], pinned: dict[Queue, None]) -> Iterator[Line]:
    journal = session.broker.journal
    batch = journal.busy
    assert batch is not None
    last = _Last({}, [])
    try:
        while shares:
            share = shares.popleft()
            _apply_some(session, share.operations, share.queues, share.stored_in, last)
            journal.charge(batch, -share.octets)
            if shares:
                yield session.broker.quota.front
        _finish(session, last)
    finally:
        for queue in pinned:
            queue.go_on()


def _settle_stored(store: Store, operation: Settling) -> None:
    queue = operation.consumer.queue
    if operation.accepted and queue.journal is not None:  # a topic's subscription stores nothing
        for _tag, message in operation.deliveries:
            if message.persistent:
                store.remove(queue.key, message)


def _placed(session: Session, transaction: Transaction, queues: list[QueueOrTopic | None]) -> list[Sequence[Queue]]:
    """Number the messages of a transaction, and store it. Return the queues for which each message is stored."""
    store = session.broker.journal.store if transaction.is_persistent else None
    place = session.broker.place
    found: list[Sequence[Queue]] = []
    for operation, queue in zip(transaction.operations, queues):
        stored_in: Sequence[Queue] = ()
        if isinstance(operation, Sending):
            message = operation.message
            place(message)
            if store is not None and queue is not None:
                stored_in = queue.stores(message)
                for each in stored_in:
                    store.append(each.key, message)
        elif store is not None:
            _settle_stored(store, operation)
        found.append(stored_in)
    return found


def _apply(
    session: Session,
    transaction: Transaction,
    queues: list[QueueOrTopic | None],
    stored_in: list[Sequence[Queue]],
    committed: bool,
) -> None:
    """Apply a transaction to the queues after the commit, or abort it if that has failed."""
    if not committed:
        session.virtual_host.stop((), transaction.abort())
        return
    last = _Last({}, [])
    _apply_some(session, transaction.operations, queues, stored_in, last)
    _finish(session, last)


def _finish(session: Session, last: _Last) -> None:
    """Requeue or drop the deliveries of NACKs, those of a queue in order. Then end the consumers of RECEIVEs."""
    for (queue, requeue, pause), deliveries in last.rejected.items():
        session.virtual_host.dead_letters.reject(queue, deliveries, requeue, pause)
    for consumer in last.received:
        release(session, consumer)


def _apply_some(
    session: Session,
    operations: Sequence[Sending | Settling],
    queues: Sequence[QueueOrTopic | None],
    stored_in: Sequence[Sequence[Queue]],
    last: _Last,
) -> None:
    for operation, queue, stored in zip(operations, queues, stored_in):
        if isinstance(operation, Settling):
            consumer, source = operation.consumer, operation.consumer.queue
            if not consumer.window:
                last.received.append(consumer)
            if operation.accepted:
                session.acknowledged += len(operation.deliveries)
                source.settle(operation.deliveries, stored=True)
            else:
                key = source, operation.requeue, operation.pause
                last.rejected.setdefault(key, []).extend(operation.deliveries)
        elif queue is not None:
            put_late(session, queue, operation.message, stored)


def _in_shares(operations: list[Sending | Settling]) -> Iterator[list[Sending | Settling]]:
    """Divide operations, in order, into shares of at most about AT_ONCE messages."""
    share: list[Sending | Settling] = []
    left = AT_ONCE
    for operation in operations:
        pieces: list[Sending | Settling] = [operation]
        if isinstance(operation, Settling) and len(operation.deliveries) > left:
            starts = range(0, len(operation.deliveries), AT_ONCE)
            pieces = [operation._replace(deliveries=operation.deliveries[at : at + AT_ONCE]) for at in starts]
        for piece in pieces:
            weight = len(piece.deliveries) if isinstance(piece, Settling) else 1
            if weight > left and share:
                yield share
                share, left = [], AT_ONCE
            share.append(piece)
            left -= weight
    if share:
        yield share
