"""Bugs planted into the broker, one at a time, to see that the simulation finds each of them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from simulation.plan import plan_of
from simulation.records import Violation
from simulation.world import run

from stompcodec import Frame
from stompcodec.broker import core, hot
from stompcodec.broker.core import Broker
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Fifo
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.dispatcher import Returned
from stompcodec.broker.queues.paging import Paging
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.ready import ReadyMessages
from stompcodec.broker.routing import durables
from stompcodec.broker.routing.dead_letters import DeadLetters, Retries
from stompcodec.broker.routing.delayed import Delayed
from stompcodec.broker.routing.idempotency import SentKeys
from stompcodec.broker.sessions import commands, commit, plain, receipts, subscribe
from stompcodec.broker.sessions import send as sending
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.state import PendingCommit
from stompcodec.broker.sessions.transaction import Sending, Transaction
from stompcodec.broker.storage import journal, sqlite
from stompcodec.broker.storage import sqlite_writer as writer
from stompcodec.broker.storage.tables import Totals

#: What to replace: the object, the name in it, and what makes the broken thing of the right one.
Bug = tuple[tuple[Any, str, Callable[[Any], Any]], ...]
#: By what is wrong.
BUGS: dict[str, Bug] = {}


def _bug(name: str, attribute: str, *places: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a bug: in place of the right function the decorated one is called, with that before the other arguments."""

    def add(broken: Callable[..., Any]) -> Callable[..., Any]:
        def make(right: Any) -> Callable[..., Any]:
            return lambda *args, **named: broken(right, *args, **named)

        BUGS[name] = (*BUGS.get(name, ()), *((where, attribute, make) for where in places))
        return broken

    return add


def _always(result: Any) -> Callable[[Any], Any]:
    """A method that does nothing, and returns this."""
    return lambda _right: lambda self, *args: result


@_bug("a receipt goes out before its commit", "hold_receipts", commands, commit, subscribe)
@_bug("a receipt goes out before its commit", "hold_receipts_of", plain)
def _receipt_before_commit(_right: Any, session: Session, frame: Any) -> None:
    pass


@_bug("receipts do not wait for the commit of frames before", "send_receipt", receipts, commit, plain)
def _receipts_first(right: Any, session: Session, value: str) -> None:
    pending, session.pending_commit = session.pending_commit, None
    right(session, value)
    session.pending_commit = pending


@_bug("an ACK takes the delivery of another session", "take", Consumer)
def _ack_of_another(right: Any, self: Consumer, tag: int) -> Any:
    for other in self.queue.consumers:
        if other is not self and tag in other.unacked:
            self.unacked[tag], other.unacked[tag] = other.unacked[tag], self.unacked.get(tag, other.unacked[tag])
    return right(self, tag)


@_bug("a transaction is stored by half", "_placed", commit)
def _half_stored(right: Any, session: Session, transaction: Transaction, queues: Any) -> Any:
    sends = [number for number, operation in enumerate(transaction.operations) if isinstance(operation, Sending)]
    if len(sends) > 1:  # the last one comes into memory alone
        queues = [None if number == sends[-1] else queue for number, queue in enumerate(queues)]
    return right(session, transaction, queues)


@_bug("expired messages stay in the account", "expire", Queue)
def _leak(right: Any, self: Queue, message: Message) -> None:
    count, octets = self.count, self.octets
    right(self, message)
    self.count, self.octets = count - 1, octets  # its bytes stay


@_bug("a lost transaction stays in the account", "end", Session)
def _leaked_transaction(right: Any, self: Session) -> None:
    orphans = [op for each in self.transactions.values() for op in each.operations if isinstance(op, Sending)]
    right(self)
    if orphans:
        self.broker.account.used += 1


@_bug("commits are not synced", "open_database", writer)
def _unsynced(right: Any, path: Any, **options: Any) -> Any:
    connection = right(path, **options)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


@_bug("what went through a crash is not marked", "_name_of", sqlite.SqliteStore)
def _forgets_suspects(right: Any, self: Any, number: int) -> Any:  # for what is loaded, and for pages
    named = right(self, number)
    return None if named is None else (named[0], 0)


@_bug("ABORT forgets the messages that were acknowledged", "abort", Transaction)
def _no_give_back(right: Any, self: Transaction) -> Any:
    self.operations = [operation for operation in self.operations if isinstance(operation, Sending)]
    return right(self)


@_bug("a window has room for one more", "__init__", Consumer)
def _one_too_many(right: Any, self: Consumer, *args: Any) -> None:
    right(self, *args)
    self.credit += 1


@_bug("an ACK gives no credit back", "take", Consumer)
def _no_credit_back(right: Any, self: Consumer, tag: int) -> Any:
    credit, taken = self.credit, right(self, tag)
    self.credit = credit
    return taken


def _no_credit_by_the_quick_road(right: Any) -> Any:
    def acknowledge(session: Session, frame: Frame) -> None:
        consumer = session.by_number.get(frame.get("id", "").partition("-")[0])
        if consumer is not None:
            consumer.credit -= consumer.single
        right["ACK"](session, frame)

    return {**right, "ACK": acknowledge}


BUGS["an ACK gives no credit back"] += ((core, "HANDLERS", _no_credit_by_the_quick_road),)


def _unmarked(message: Message) -> Message:
    message.attempts = message.special = 0
    return message


@_bug("the mark is lost in a group", "_requeue_one", Returned)
def _unmarked_in_groups(right: Any, self: Returned, queue: Queue, dispatcher: Any, message: Message) -> None:
    right(self, queue, dispatcher, message if message.group is None else _unmarked(message))


@_bug("the mark is lost while its message is not stored yet", "update", sqlite.SqliteStore)
def _unmarked_before_commit(right: Any, self: Any, queue: str, message: Any) -> None:
    if self._key(queue, message.seq) not in self._open.puts:
        right(self, queue, message)


@_bug("the mark of a crash is gone after the next start", "read", Totals)
def _unmarked_next_time(right: Any, self: Totals, db: Any, rows: Any, unclean: bool) -> None:
    right(self, db, rows, unclean)
    if not unclean:
        self.known = {number: total._replace(suspect=0) for number, total in self.known.items()}


@_bug("the mark is lost when the commit of an ACK fails", "unsettle", Queue)
def _unmarked_unsettled(_right: Any, self: Queue, messages: list[Message]) -> None:
    if not self.closed:
        for message in messages:
            self.count_in(message)
            if self.paging is not None:
                self.paging.keep_out(self.messages.rank(message), message.seq)
            self.add_ready(message)
            self.came_late(message.seq)
        self.put_in_order()
        self.dispatch()


def _cursor(change: Callable[[int, int], int]) -> Callable[[Any], Any]:
    """The next page begins elsewhere: `change` takes where it should begin, and what was asked for."""

    def wrong(right: Any) -> Any:
        def extend(self: Paging, rank: int, after: int, *args: Any) -> None:
            right(self, rank, after, *args)
            if rank in self._spans:
                self._spans[rank].cursor = change(self._spans[rank].cursor, after)

        return extend

    return wrong


@_bug("messages that are gone are read again by a page under way", "leaves", Paging)
def _forgotten_at_once(_right: Any, self: Paging, seq: int, batch: Any) -> None:
    for span in self._spans.values():
        span.out.discard(seq)


#: What is found late.
LATE = (
    *("messages in memory are read again by pages", "messages that are gone are read again by a page under way"),
    *("pages are read before all of their messages are stored", "new messages overtake paged ones"),
)
#: What few seeds find, and where to look for it.
RARE = {
    "the mark is lost while its message is not stored yet": (312, 422, 1501),  # one in 500
    "the mark is lost with a delivery that fails": range(370, 430),
    "the mark is lost with a last commit that fails": range(90, 150),
}
BUGS |= {
    "idempotency keys are gone after a restart": ((sqlite.SqliteStore, "keys", _always([])),),
    "idempotency keys of failed commits stay": (
        (SentKeys, "_written", lambda right: lambda self, batch, changes, _done: right(self, batch, changes, True)),
    ),
    "messages with a key are delivered before they are stored": ((commands, "put_keyed", lambda _right: sending.put),),
    "idempotency keys in transactions are ignored": ((commit, "_drop_known", _always(None)),),
    "the redelivered mark is lost": ((Message, "again", lambda _right: lambda self: self),),
    "the mark is lost where consumers differ": (
        (Returned, "_requeue_one", lambda right: lambda self, *where: right(self, *where[:-1], _unmarked(where[-1]))),
    ),
    "the mark is lost in a page": (
        (journal.Journal, "messages", lambda right: lambda self, page: [*map(_unmarked, right(self, page))]),
    ),
    "the mark is not stored": ((journal.Journal, "update", _always(None)),),
    "the mark is lost with a last commit that fails": (
        (writer.Writer, "close", lambda right: lambda self, clean=True: right(self)),
    ),
    "the mark is lost with a delivery that fails": (
        (
            *(Queue, "delivery_failed"),
            lambda right: lambda self, to, message, error: right(self, to, _unmarked(message), error),
        ),
    ),
    "what comes back goes behind all others": (
        (Fifo, "put_back", lambda _right: lambda self, messages: self.extend(messages)),
    ),
    "expired messages are delivered": ((Queue, "is_expired", _always(False)),),
    "delayed messages come too early": (
        (Delayed, "_add", lambda right: lambda self, due, *what: right(self, due - 0.2, *what)),
    ),
    "a NACK has half its pause": (
        (Retries, "hold", lambda right: lambda self, queue, messages, pause: right(self, queue, messages, pause / 2)),
    ),
    "what was held does not come back": ((Returned, "resume", _always(None)),),
    "a durable subscription forgets its selector in a restart": (
        (
            *(durables.Durables, "restore"),
            lambda right: lambda self, row, name: right(self, row._replace(selector=None), name),
        ),
    ),
    "durable subscriptions are gone after a restart": ((sqlite.SqliteStore, "subscriptions", _always([])),),
    "dead letters are lost": (
        (DeadLetters, "bury", lambda right: lambda self, *what: what[-1] == "max-attempts" or right(self, *what)),
    ),
    "a failed commit is answered by receipts": (
        (PendingCommit, "not_committed", lambda _right: lambda self: self.committed()),
    ),
    "seqs are given away twice": ((Broker, "_reserve", _always(None)),),
    "delivered messages of auto consumers stay stored": ((journal.Journal, "remove", _always(None)),),
    "a subscription ends without its oldest message": (
        (Consumer, "close", lambda right: lambda self: right(self)[1:]),
    ),
    "priorities are ignored": ((ReadyMessages, "_rank", _always(None)),),
    "a page is read twice": ((Paging, "_extend", _cursor(lambda _at, after: after)),),
    "a message between two pages is skipped": ((Paging, "_extend", _cursor(lambda at, _after: at + 1)),),
    "messages in memory are read again by pages": ((Paging, "keep_out", _always(None)),),
    "pages are read before all of their messages are stored": (
        (Paging, "_written", lambda _right: lambda self, last: last),
    ),
    "new messages overtake paged ones": ((Paging, "allows", _always(True)),),
}


def is_compiled(bug: Bug) -> bool:
    """Return whether a bug replaces something in a module that may be compiled."""
    names = {getattr(where, "__module__", None) or where.__name__ for where, _, _ in bug}
    return not names.isdisjoint(f"stompcodec.broker.{name}" for name in hot.MODULES)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The broker has that bug, which may be one of the handlers, so they have all frames."""
    before = hot.switch(False)
    right = [(where, name, where.__dict__[name]) for where, name, _ in bug]
    for where, name, broken in bug:
        setattr(where, name, broken(where.__dict__[name]))
    try:
        yield
    finally:
        for where, name, value in right:
            setattr(where, name, value)
        hot.switch(before)


def find(bug: Bug, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Return the first seed that finds a bug, and what it says; None if none does."""
    with planted(bug):
        for seed in seeds:
            outcome = run(plan_of(seed))
            if isinstance(outcome.fault, Violation):
                return seed, str(outcome.fault)
            if outcome.fault is not None:
                raise outcome.fault
    return None
