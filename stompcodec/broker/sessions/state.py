"""The state of the broker and of a session that plain messages need: compiled, these fields are those of C structs.

`Broker` and `Session` are built on it. What they do is in core.py and session.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompcodec.broker.memory import CONNECTION, Account
from stompcodec.broker.queues.outbox import Outbox
from stompcodec.broker.storage.journal import Batch, Journal
from stompcodec.broker.values import Unready
from stompcodec.codec import Frame
from stompcodec.states import State

if TYPE_CHECKING:
    from stompcodec.broker.loop_quota import LoopQuota
    from stompcodec.broker.queues.consumer import Consumer
    from stompcodec.broker.queues.queue import Queue
    from stompcodec.broker.routing.topic import Topic
    from stompcodec.broker.sessions.transaction import Transaction


class BrokerState:
    """What plain messages need of the broker."""

    __slots__ = (
        *("account", "dirty", "ident", "journal", "max_transaction_octets", "now", "plain", "quota", "send_budget"),
        *("seq", "stores_all", "stores_some", "write_high"),
    )

    account: Account
    journal: Journal
    quota: LoopQuota
    #: The beginning of message-ids; their seq follows.
    ident: bytes
    #: The seq of the latest message.
    seq: int
    #: The time in seconds, from a monotonic clock.
    now: float
    #: Bytes of messages that the outbox of a session takes in a turn, and that a transport takes.
    send_budget: int
    write_high: int
    max_transaction_octets: int
    #: Sessions to flush when the turn ends.
    dirty: list[Any]
    #: Messages without special headers are plain.
    plain: bool
    #: Messages with persistent:true are stored; and those to a queue that do not say.
    stores_some: bool
    stores_all: bool


class Footprint:
    """The bytes of memory used by one session, recorded in the broker's account.

    >>> from stompcodec.broker.memory import Account
    >>> footprint = Footprint(account := Account(2**30))
    >>> footprint.hold_transaction(100, base=50)
    >>> footprint.spare, account.held
    (150, 150)
    """

    __slots__ = ("_account", "_bases", "below", "fixed", "pending", "transactions", "unwritten")

    def __init__(self, account: Account) -> None:
        self._account = account
        #: The connection, its subscriptions and its remembered destinations.
        self.fixed = 0
        #: Unfinished frames, and frames that wait for the session's turn.
        self.pending = 0
        #: Bytes that the layers below have received and not passed on.
        self.below = 0
        #: Operations of open transactions; and the transactions themselves, which do not count toward the limit.
        self.transactions = self._bases = 0
        #: Output that is not written yet, including what waits for a large message.
        self.unwritten = 0

    @property
    def spare(self) -> int:
        """Bytes that ending the session would free: unfinished frames, transactions and unwritten output."""
        return self.pending + self.transactions + self._bases + self.unwritten

    def charge(self, cost: int) -> None:
        """Add the cost of a subscription or a remembered destination, or subtract it if negative."""
        self.fixed += cost
        self._account.charge(cost)

    def check(self, cost: int) -> None:
        """Raise Refused if another subscription would use too much memory."""
        if not self._account.has_room(cost, self.fixed):
            remedy = "All subscriptions and destinations together take too much of the broker's limits.memory."
            raise Unready("no memory for another subscription", remedy)

    def hold_pending(self, pending: int) -> None:
        """Set the cost of received bytes that are not processed yet."""
        self._account.hold(pending - self.pending)
        self.pending = pending

    def hold_transaction(self, octets: int, base: int = 0) -> None:
        """Add the cost of operations and of transactions themselves, or subtract it if negative."""
        self.transactions += octets
        self._bases += base
        self._account.hold(octets + base)

    def hold_unwritten(self, unwritten: int, ended: bool) -> None:
        """Set the number of unwritten bytes. Those of an ended session do not count as held."""
        more = unwritten - self.unwritten
        self.unwritten = unwritten
        if ended:
            self._account.used += more
        else:
            self._account.hold(more)

    def release(self) -> None:
        """Release everything except the connection and unwritten output, when the session ends."""
        self._account.hold(-self.pending - self.transactions - self._bases)
        self._account.held -= self.unwritten
        self.pending = self.transactions = self._bases = 0
        if self.fixed:
            self.charge(CONNECTION - self.fixed)

    def close(self) -> None:
        """Release the rest, when the transport is closed."""
        self._account.used -= self.unwritten
        self.unwritten = 0
        self.charge(-self.fixed)


class PendingCommit:
    """The receipts of a session that wait for the commit of one batch. `fault` is the receipt-id of the ERROR if it
    fails; None for none.
    """

    __slots__ = ("batch", "fault", "receipts", "session")

    def __init__(self, session: Any, batch: Batch, fault: str | None) -> None:
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
        message = "the message could not be stored"
        remedy = b"The broker could not write to its disk: send the message again later. See the broker's log.\n"
        if session.broker.journal.lost is not None:
            message = "the message may or may not be stored"
            remedy = b"The files of the broker's store are gone: see its log before you send the message again.\n"
        headers = {"message": message, "content-type": "text/plain"}
        if self.fault is not None:
            headers["receipt-id"] = self.fault
        session.refuse(message, Frame("ERROR", headers, remedy))


class SessionState:
    """What plain messages need of a session."""

    __slots__ = (
        *("acknowledged", "behind", "broker", "by_number", "cached_targets", "closing", "ended", "memory", "outbox"),
        *("pending_commit", "plain", "received", "transactions"),
    )

    broker: Any  # a BrokerState, and what `Host` describes
    outbox: Outbox
    memory: Footprint
    #: Its SENDs may be plain: CONNECTED was sent, and no transaction is being committed.
    plain: bool
    #: SENDs that came, and messages that it has acknowledged.
    received: int
    acknowledged: int
    #: It receives nothing any more; and its transport closes when everything is written.
    ended: bool
    closing: bool
    #: Subscriptions by their numbers.
    by_number: dict[str, Consumer]
    #: The queue or topic of each destination it has sent to.
    cached_targets: dict[str, Queue | Topic]
    transactions: dict[str, Transaction]
    #: The commit that receipts wait for; None for none.
    pending_commit: PendingCommit | None
    #: The batch of a transaction that is being committed: later SENDs take effect after it.
    behind: Batch | None
