"""ACK and NACK of what a browser was shown, and the credit that an ACK gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.subscribe_request import read_credit
from stompcodec.broker.sessions.receipts import confirm, hold_receipts
from stompcodec.broker.sessions.settling import settling

if TYPE_CHECKING:
    from stompcodec.broker.queues.consumer import Consumer
    from stompcodec.broker.sessions.session import Session
    from stompcodec.codec import Frame

__all__ = ["acknowledge", "grant"]


def acknowledge(session: Session, consumer: Consumer, tag: int, accepted: bool, frame: Frame) -> None:
    """ACK or NACK of what a browser was shown. `through-seq:N` on ACK is for everything up to there, shown or not.

    Raises:
        Refused: there is no such delivery, or it is in a transaction.
    """
    browser = consumer.queue
    assert isinstance(browser, Browser)
    if session.header(frame, "transaction") is not None and session.broker.config.transactional_acks:
        raise Refused("a browser has no transactions", "Acknowledge what it has shown without a transaction header.")
    text = session.header(frame, "through-seq")
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refused("bad through-seq", "It is a sequence number, as the browser's include-seq header has it.")
    through = None if text is None or not accepted else int(text)
    messages = browser.acknowledge(tag, through)
    if through is not None and len(messages) > AT_ONCE:
        session.work(frame, _taking(session, browser, consumer, through, frame))
        return
    if accepted and len(messages) > AT_ONCE:
        session.work(frame, settling(session, consumer, [(0, message) for message in messages], frame, accepted))
        return
    if accepted:
        if any(message.persistent for message in messages):
            hold_receipts(session, frame)
        browser.settle([(0, message) for message in messages])
    confirm(session, frame)
    if not consumer.in_ring and not consumer.closed:
        browser.offer(consumer)


def _taking(session: Session, browser: Browser, consumer: Consumer, through: int, frame: Frame) -> Iterator[Line]:
    """Take very many messages out of a queue, all up to a seq, then answer the ACK."""
    messages, journal = browser.first(through), session.broker.journal
    while messages:
        persistent = any(message.persistent for message in messages)
        if persistent and not session.ended:
            hold_receipts(session, frame)
        browser.settle([(0, message) for message in messages])
        messages = browser.first(through)
        if messages:
            yield journal.line if persistent else session.broker.quota
    if not session.ended:
        confirm(session, frame)
    if not consumer.in_ring and not consumer.closed:
        browser.offer(consumer)


def grant(session: Session, consumer: Consumer | None, frame: Frame) -> bool:
    """The `credit` header of ACK: more for a subscription that had one, too. True: that is all that the ACK is about.

    Args:
        session: that sent it.
        consumer: whose delivery it acknowledges; None if that is not known yet: in auto mode nothing is acknowledged,
            and the header `subscription` says what it is for.
        frame: the ACK.

    Raises:
        Refused: it is no credit.
    """
    text = session.header(frame, "credit")
    if text is None:
        return False
    more = read_credit("credit", text, more=True)
    if consumer is not None:
        consumer.grant(more)
        return False
    found = session.consumers.get(f"id:{session.header(frame, 'subscription')}")
    if found is None or found.acks or found.request.credit is None:
        return False
    found.grant(more)
    confirm(session, frame)
    found.queue.offer(found)
    return True
