"""Receipts: sent at once, or held back until the commit that stores what a frame has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.broker.queues.outbox import EOL
from stompcodec.broker.sessions.state import PendingCommit
from stompcodec.broker.storage.journal import Batch
from stompcodec.codec import Frame, serialize

if TYPE_CHECKING:
    from stompcodec.broker.sessions.session import Session


def hold_receipts(session: Session, frame: Frame) -> None:
    """Hold receipts back until the next commit, because a frame stores something."""
    hold_receipts_of(session, frame.get("receipt") if session.exact else session.header(frame, "receipt"))


def hold_receipts_of(session: Session, receipt: str | None) -> None:
    """Hold receipts back until the next commit, because a frame with that receipt stores something."""
    journal, pending = session.broker.journal, session.pending_commit
    if pending is None or pending.batch is not journal.batch:
        session.pending_commit = PendingCommit(session, journal.batch, receipt)
    if journal.busy is not None and journal.behind and session.block(journal):
        journal.blocked[session] = None


def share_commit(session: Session, batch: Batch, frame: Frame) -> None:
    """Hold receipts back until the commit of a batch that stores an earlier SEND with the same idempotency key."""
    pending = session.pending_commit
    if (pending is not None and pending.batch is batch) or session.shared_batch is batch:
        return
    new = PendingCommit(session, batch, session.header(frame, "receipt"))
    if pending is None or batch is session.broker.journal.batch:
        session.pending_commit = new
    else:  # they already wait for a later batch, and must not be sent if this one fails
        session.shared_batch = batch


def send_receipt(session: Session, value: str) -> None:
    """Send a receipt, or hold it back until the commit that the session waits for."""
    if session.ended:  # the frame itself ended the session
        return
    if value.isalnum() and value.isascii():
        octets = b"RECEIPT\nreceipt-id:" + value.encode("ascii") + b"\n\n\0\n"
    else:
        octets = serialize(Frame("RECEIPT", {"receipt-id": value}), session.version) + EOL
    outbox, pending = session.outbox, session.pending_commit
    (outbox.chunks if pending is None else pending.receipts).append(octets)
    if not outbox.flowing:
        session.count_unread(len(octets))


def confirm(session: Session, frame: Frame) -> None:
    """Send the receipt if the frame asks for one."""
    value = session.header(frame, "receipt")
    if value is not None:
        send_receipt(session, value)
