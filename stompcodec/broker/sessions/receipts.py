"""Receipts: sent after the commit if the session has stored something, otherwise at once."""

from __future__ import annotations

from stompcodec.broker.queues.consumer import EOL
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.storage.journal import Batch
from stompcodec.codec import Frame, serialize
from stompcodec.states import State


class PendingCommit:
    """The receipts of a session that wait for the commit of one batch. `fault` is the receipt-id of the ERROR if it
    fails; None for none.
    """

    __slots__ = ("batch", "fault", "receipts", "session")

    def __init__(self, session: Session, batch: Batch, fault: str | None) -> None:
        self.session = session
        self.batch = batch
        self.fault = fault
        #: RECEIPT frames, serialized.
        self.receipts: list[bytes] = []
        batch.waiters.append(self)

    def stop(self) -> None:
        """Stop deliveries to the session, whose operations are about to be undone."""
        self.session.outbox.send_budget = 0

    def committed(self) -> None:
        """Send the receipts after the commit."""
        session = self.session
        if session.behind is self.batch:
            session.behind = None
            session.plain = session.exact and session.broker.plain
        if session.closing:
            return
        if session.waits_on:
            self._wait_on()
        outbox = session.outbox
        outbox.chunks += self.receipts
        if session.pending_commit is self:
            session.pending_commit = None
            session.closing = session.ended and not outbox.downloads
        outbox.schedule_flush()

    def stays_behind(self) -> bool:
        """Return True if the receipts must wait until a long transaction has taken effect. Otherwise send them."""
        session = self.session
        if session.behind is not self.batch:
            self.committed()
            return False
        journal = session.broker.journal
        if session.block(journal):  # otherwise it could send as fast as the transaction takes effect
            journal.blocked[session] = None
        return True

    def _wait_on(self) -> None:
        """Pass the receipts on to the next commit, which stores what has just taken effect."""
        session = self.session
        session.waits_on = False
        if session.pending_commit is self or session.pending_commit is None:
            session.pending_commit = PendingCommit(session, session.broker.journal.batch, self.fault)
        session.pending_commit.receipts[:0] = self.receipts
        self.receipts = []

    def not_committed(self) -> None:
        """End the session with ERROR instead of the receipts: nothing was stored."""
        session = self.session
        if session.closing:
            return
        session.pending_commit = None
        if session.connection.state is State.FAILED:  # its ERROR was among the held receipts
            session.close()
            return
        headers = {"message": "the message could not be stored", "content-type": "text/plain"}
        if self.fault is not None:
            headers["receipt-id"] = self.fault
        remedy = b"The broker could not write to its disk: send the message again later. See the broker's log.\n"
        session.refuse(headers["message"], Frame("ERROR", headers, remedy))


def hold_receipts(session: Session, frame: Frame) -> None:
    """Hold receipts back until the next commit, because a frame stores something."""
    hold_receipts_of(session, frame.get("receipt") if session.exact else session.header(frame, "receipt"))


def hold_receipts_of(session: Session, receipt: str | None) -> None:
    """Hold receipts back until the next commit, because a frame with that receipt stores something."""
    journal, pending = session.broker.journal, session.pending_commit
    if pending is None or pending.batch is not journal.batch:
        session.pending_commit = PendingCommit(session, journal.batch, receipt)
    if journal.behind and session.block(journal):
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
        octets = b"RECEIPT\nreceipt-id:%b\n\n\0\n" % value.encode()
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
