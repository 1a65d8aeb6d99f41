"""Handlers of ACK and NACK, including the credit that an ACK can grant."""

from __future__ import annotations

from collections.abc import Iterator

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.consumer import Consumer, Delivery
from stompcodec.broker.sessions.commit import defer
from stompcodec.broker.sessions.receipts import confirm, hold_receipts, hold_receipts_of, send_receipt
from stompcodec.broker.sessions.receive import release
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.transaction import Settling
from stompcodec.broker.values import REDELIVERY_DELAYS, CreditGrant, read_values
from stompcodec.codec import Frame

#: Headers that keep an ACK off the fast path.
_SPECIAL_HEADERS = ("transaction", "credit")


def ack(session: Session, frame: Frame) -> None:
    """Handle ACK. This is the fast path for a single delivery in 1.2; `_acknowledge` handles everything else."""
    get = frame.get
    number, _, tag = get("id", "").partition("-")
    consumer = session.by_number.get(number)
    if (
        consumer is not None
        and consumer.single
        and not frame.has_any(*_SPECIAL_HEADERS)
        and tag.isdecimal()
        and len(tag) < 20
    ):
        message = consumer.unacked.pop(int(tag), None)
        if message is not None:
            queue = consumer.queue
            consumer.credit += 1
            receipt = get("receipt")
            if message.persistent:
                hold_receipts_of(session, receipt)
                if queue.journal is not None and not queue.closed:
                    queue.journal.settle(queue, message)
            queue.count_out_one(message.size)
            if receipt is not None:
                send_receipt(session, receipt)
            if not consumer.in_ring:
                queue.offer(consumer)
            return
    _acknowledge(True, session, frame)


def nack(session: Session, frame: Frame) -> None:
    """Handle NACK."""
    _acknowledge(False, session, frame)


def _acknowledge(accepted: bool, session: Session, frame: Frame) -> None:
    """Handle ACK or NACK in all their forms."""
    get = frame.get
    values = read_values(session, frame)
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
        operation = Settling(consumer, consumer.take(tag), accepted, requeue, pause)
        defer(session, transaction if session.exact else transaction.strip(" "), operation)
        deliveries = None
    else:
        deliveries = consumer.take(tag)
        if credit is not None:
            consumer.grant(credit)
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


def _delivery(session: Session, frame: Frame) -> tuple[Consumer | None, int]:
    """Return the consumer and number of the delivery that an ACK names, or raise Refused. The consumer is None if it
    has ended.
    """
    if session.version == "1.2":
        number, _, tag = (frame.get("id") or "").partition("-")
        consumer = session.by_number.get(number)
        if tag.isdecimal() and len(tag) < 20:  # bounded, because a peer chose the number
            if consumer is not None:
                return consumer, int(tag)
            if number.isdecimal() and len(number) < 20 and int(number) < session.next_number:
                return None, 0
        raise Refused("no such delivery", "Use the ack header of the MESSAGE as the id.")
    message_id = session.header(frame, "message-id") or ""
    key = session.header(frame, "subscription")
    for consumer in session.consumers.values():
        found = consumer.tag_of(message_id) if key is None or consumer.key == key else None
        if found is not None:
            return consumer, found
    raise Refused("no such delivery", "Use the message-id and the subscription of the MESSAGE.")


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
