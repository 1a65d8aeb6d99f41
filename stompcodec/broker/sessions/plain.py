"""Plain SENDs and ACKs: their headers say no more than where to, whether to store, which transaction and which receipt.

They come as frames (commands.py, commit.py), or without a frame from the reader of heads in C (`src/hot/road.pyx`), and
take this one road from there. Everything else is done by the handlers of commands.py and commit.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stompcodec.broker.message import Message, plain_message, shared
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.heads import ident_of
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.receipts import hold_receipts_of, send_receipt
from stompcodec.broker.sessions.send import check_space
from stompcodec.broker.values import Refused

if TYPE_CHECKING:
    from stompcodec.broker.sessions.session import Session
    from stompcodec.broker.sessions.transaction import Sending, Settling


def send(
    session: Session, target: Queue | Topic, destination: str, tail: bytes, persistent: bool, receipt: str | None
) -> None:
    """Put a SEND into its queue or topic. Raise Refused if it is to be stored, and the disk is full."""
    broker = session.broker
    broker.seq = seq = broker.seq + 1
    session.received += 1
    ident = ident_of(broker.ident, seq)
    if persistent:
        put_persistent(session, target, plain_message(ident, seq, shared(destination), tail, True), receipt)
    elif isinstance(target, Queue):
        queue = target
        if queue.put_plain(destination, ident, seq, tail):
            queue.block(session)
    else:
        topic = target
        if topic.put_plain(destination, ident, seq, tail):
            topic.block(session)
    if receipt is not None:
        send_receipt(session, receipt)


def put_persistent(session: Session, target: Queue | Topic, message: Message, receipt: str | None) -> None:
    """Put a persistent message. The caller sends the receipt, which waits for the commit. Raise Refused if the disk is
    full.
    """
    journal, pending = session.broker.journal, session.pending_commit
    if journal.short:
        check_space(session, (target,))
    if pending is None or pending.batch is not journal.batch or journal.busy is not None:
        hold_receipts_of(session, receipt)
    if isinstance(target, Queue):
        queue = target
        if queue.put_new(message):
            queue.block(session)
    elif target.put(message):
        target.block(session)


def defer(
    session: Session,
    name: str,
    target: Queue | Topic,
    destination: str,
    tail: bytes,
    persistent: bool,
    receipt: str | None,
) -> None:
    """Add a SEND to a transaction. Raise Refused if that is unknown, or those of the session are too large."""
    transaction = session.transactions.get(name)
    if transaction is None:
        raise Refused("no such transaction", "Send BEGIN with that name first.")
    session.received += 1
    hold(session, transaction.send(target, plain_message(b"", 0, shared(destination), tail, persistent)))
    if receipt is not None and session.broker.config.receipts_at_commit:
        hold(session, transaction.keep_receipt(receipt))
    elif receipt is not None:
        send_receipt(session, receipt)


def hold(session: Session, octets: int) -> None:
    """Account for an operation of a transaction. Raise Refused if those of the session are too large."""
    memory, most = session.memory, session.broker.max_transaction_octets
    memory.hold_transaction(octets)
    if memory.transactions > most:
        raise Refused("transactions too large", f"The open transactions of a session may hold {most} bytes together.")


def acknowledge(session: Session, consumer: Consumer, tag: int, receipt: str | None) -> bool:
    """Acknowledge one delivery of a consumer that is `single`. Return False, having done nothing, if there is none of
    that number.
    """
    message = consumer.unacked.pop(tag, None)
    if message is None:
        return False
    queue = consumer.queue
    consumer.credit += 1
    session.acknowledged += 1
    if message.persistent:
        hold_receipts_of(session, receipt)
        if queue.journal is not None and not queue.closed:
            queue.journal.settle(queue, message)
    queue.count_out(1, message.size)
    if receipt is not None:
        send_receipt(session, receipt)
    if not consumer.in_ring:
        queue.offer(consumer)
    return True


def store_all(session: Session, queue: Queue, operations: Sequence[Sending | Settling]) -> list[Message]:
    """Number the messages of a transaction and append them to the store. Return them."""
    broker, store, key = session.broker, session.broker.journal.store, queue.key
    assert store is not None
    append, seq, messages = store.append, broker.seq, []
    for operation in operations:
        message = operation.message  # type: ignore[union-attr]  # only SENDs
        seq += 1
        message.seq = seq
        message.ident = ident_of(broker.ident, seq)
        append(key, message)
        messages.append(message)
    broker.seq = seq
    return messages
