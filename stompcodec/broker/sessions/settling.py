"""Settling: an ACK or NACK that covers very many deliveries, a share in each turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.sessions.receipts import confirm, hold_receipts

if TYPE_CHECKING:
    from stompcodec.broker.queues.consumer import Consumer, Delivery
    from stompcodec.broker.sessions.session import Session
    from stompcodec.codec import Frame

__all__ = ["settling"]


def settling(
    session: Session, consumer: Consumer, deliveries: list[Delivery], frame: Frame, accepted: bool, requeue: bool = True
) -> Iterator[Line]:
    """Acknowledge deliveries, or give them back, then answer the frame.

    Args:
        session: that sent it.
        consumer: whose deliveries they were.
        deliveries: in order. They are unacknowledged no more.
        frame: the ACK or NACK.
        accepted: ACK; False for NACK.
        requeue: of NACK: there may be another attempt.
    """
    queue, journal = consumer.queue, session.broker.journal
    persistent = accepted and any(message.persistent for _tag, message in deliveries)
    if not accepted:
        queue.suspend()
        deliveries = deliveries[::-1]  # each share comes back in front of the one before
    for at in range(0, len(deliveries), AT_ONCE):
        some = deliveries[at : at + AT_ONCE]
        if at:
            yield journal.line if persistent else session.broker.quota
        if persistent and not session.ended:
            hold_receipts(session, frame)
        if accepted:
            queue.settle(some)
        else:
            session.virtual_host.reject(queue, some[::-1], requeue)
    if not session.ended:
        confirm(session, frame)
    if not accepted:
        queue.go_on()
    if not consumer.in_ring and not consumer.closed:
        queue.offer(consumer)
