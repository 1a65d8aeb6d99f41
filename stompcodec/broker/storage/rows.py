"""Batches of changes to a store's tables, and rows as they are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from stompcodec.broker.storage.body_files import Bodies, Body, BodyFile
from stompcodec.broker.storage.checksums import message_crc, record_crc
from stompcodec.broker.storage.damage import shown
from stompcodec.broker.storage.store import SentKey, Storable, Subscribed
from stompcodec.broker.storage.totals import Total

#: Tails of at least this many bytes get a file of their own.
LARGE = 65536
#: Rows written by one statement: as many as possible, then as many as remain.
GROUP, FEWER = 64, 16
#: Statements for that many rows.
Groups = tuple[tuple[int, str], ...]
#: Consecutive keys, from which number on they are deleted as a range.
_RUN = 16
_DELETE = "DELETE FROM message WHERE key = ?"
_DELETES: Groups = tuple((size, f"DELETE FROM message WHERE key IN (?{', ?' * (size - 1)})") for size in (GROUP, FEWER))
_DELETE_RUN = "DELETE FROM message WHERE key BETWEEN ? AND ?"

#: A row of the table `special`.
Special = tuple[int, float | None, float | None, int, int, int]


class Share(NamedTuple):
    """A share of a queue to clear: at most `most` messages with `after` < key <= `upto`, without those `held`."""

    number: int
    after: int
    upto: int
    most: int
    held: list[int]


class Batch:
    """The changes of one transaction. Messages are identified by their keys, queues by their numbers.

    >>> batch = Batch()
    >>> batch.removes[1 << 45] = None
    >>> len(batch)
    1
    """

    __slots__ = (
        *("clears", "dropped", "forgotten", "keys", "late", "obsolete", "puts", "queues", "removes", "reserved"),
        *("single", "special", "state", "subscriptions", "totals", "updates", "written"),
    )

    def __init__(self) -> None:
        self.puts: dict[int, Storable] = {}
        self.removes: dict[int, None] = {}
        self.updates: dict[int, Storable] = {}
        #: Puts whose seq is not higher than all counted ones.
        self.late: list[int] = []
        #: Queues to register, by name, and numbers of queues to forget.
        self.queues: dict[str, int] = {}
        self.dropped: list[int] = []
        self.clears: list[Share] = []
        #: Durable subscriptions by the keys of their queues, None to delete one; and the seq to reserve.
        self.subscriptions: dict[str, Subscribed | None] = {}
        self.reserved: int | None = None
        #: Idempotency keys to store, by number, and numbers of those to delete.
        self.keys: dict[int, SentKey] = {}
        self.forgotten: dict[int, None] = {}
        #: Files of large bodies: those written for this batch, and the keys of those to remove after it.
        self.written: dict[int, BodyFile] = {}
        self.obsolete: list[int] = []
        #: Rows of messages that are delayed, expire, or have another priority than 4.
        self.special: list[Special] = []
        #: The row, plain or not, if the batch is one message: the INSERT is then the whole transaction.
        self.single: tuple[object, ...] | None = None
        #: Totals of queues that it lowers, and the state it leaves.
        self.totals: dict[int, Total] = {}
        self.state: State | None = None

    def __len__(self) -> int:
        messages = len(self.puts) + len(self.removes) + len(self.updates)
        if not (self.subscriptions or self.keys or self.forgotten or self.clears or self.reserved is not None):
            return messages
        beside = len(self.subscriptions) + len(self.keys) + len(self.forgotten) + len(self.clears)
        return messages + beside + (self.reserved is not None)

    @property
    def is_single(self) -> bool:
        """True if the batch is a single small message."""
        if len(self.puts) != 1 or len(self) != 1 or self.queues or self.dropped or self.late:
            return False
        (put,) = self.puts.values()
        return not is_large(put) and not is_special(put)


class State(NamedTuple):
    """The row of the table `state`."""

    clean: int = 0
    """The broker was closed properly."""
    seq: int = 0
    """The greatest seq that was reserved."""
    subscriptions: int | None = None
    """Number of durable subscriptions; None if unknown."""


class Row(NamedTuple):
    """A message as read from the table."""

    key: int
    id: str
    destination: str
    tail: bytes
    persistent: bool
    expires: float | None
    priority: int
    attempts: int
    redelivered: bool
    due: float | None
    body: Body | None


class Bad(NamedTuple):
    """A damaged message: its readable parts, and why it cannot be used."""

    key: int
    id: str
    destination: str
    why: str


#: The columns of the table `message`.
COLUMNS = """message.key, id, destination, tail, message.persistent, message.expires, message.priority, attempts,
    redelivered, message.crc"""
#: Writes a row of the table `special`.
INSERT_SPECIAL = "INSERT OR REPLACE INTO special VALUES (?, ?, ?, ?, ?, ?)"


def special_of(key: int, due: float | None, expires: float | None, priority: int, persistent: bool) -> Special | None:
    """Return the row of the table `special` for a message; None if it needs none."""
    if due is None and expires is None and priority == 4 and persistent:
        return None
    return key, due, expires, priority, int(persistent), special_crc(key, due)


def special_crc(key: int, due: float | None) -> int:
    """Return the checksum of a row of the table `special`. Its other columns are in the table `message`, too."""
    return record_crc(key, repr(due))


def row_of(columns: tuple[Any, ...], file: BodyFile | None, bodies: Bodies, special: Sequence[Any]) -> Row | Bad:
    """Return the message of a row with texts as bytes. `file` is what the table `body` says of it, and `special` the
    due time and the checksum in the table `special`.
    """
    key, ident, destination, tail, persistent, expires, priority, attempts, redelivered, crc = columns
    due, due_crc = special
    body = None
    try:
        ident, destination = ident.decode(errors="surrogateescape"), destination.decode(errors="surrogateescape")
        fixed = (key, ident, destination, tail, persistent, expires, priority)
        sound = crc == message_crc(*fixed, attempts, redelivered, file)
    except (AttributeError, TypeError, ValueError):
        ident, destination, sound = shown(repr(ident)[:200]), shown(repr(destination)[:200]), False
    if not sound:
        return Bad(key, ident, destination, "its row is damaged")
    if due is not None and special_crc(key, due) != due_crc:
        return Bad(key, ident, destination, "its due time is damaged")
    if tail is None:
        tail = bodies.read(file) if file is not None else None
    elif file is not None:
        body = bodies.body(file, verify=attempts > 0)
        tail = tail if body is not None else None
    if tail is None:
        return Bad(key, ident, destination, "its file is missing or damaged")
    flags = bool(persistent), expires, priority, attempts, bool(redelivered)
    return Row(key, ident, destination, tail, *flags, due, body)


def raw(db: sqlite3.Connection, select: str, *values: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows with texts as bytes, because a damaged text may not be UTF-8."""
    cursor, factory = db.cursor(), db.text_factory
    cursor.execute(select, values)
    try:
        while True:
            db.text_factory = bytes
            rows = cursor.fetchmany(GROUP)
            db.text_factory = factory
            if not rows:
                return
            yield from rows
    finally:
        db.text_factory = factory


def inserts(values: str) -> tuple[str, Groups]:
    """Return the statements that insert one message and groups of messages, given the values of a row.

    FAIL spares SQLite the undoing of a statement that fails half-way: the whole transaction is rolled back then.

    >>> inserts("(?, ?)")[0]
    'INSERT OR FAIL INTO message VALUES (?, ?)'
    """
    one = f"INSERT OR FAIL INTO message VALUES {values}"
    return one, tuple((size, one + f", {values}" * (size - 1)) for size in (GROUP, FEWER))


def execute(db: sqlite3.Connection, one: str, groups: Groups, rows: list[tuple[object, ...]]) -> int:
    """Write rows by a statement for one, and return how many were changed. `groups` are statements for groups of rows,
    by their sizes.

    Groups take less time than `executemany`, which releases the GIL for every row. Each release makes the helper wait
    for a busy loop.
    """
    at = changed = 0
    for size, statement in groups:
        while len(rows) - at >= size:
            changed += db.execute(statement, tuple(chain.from_iterable(rows[at : at + size]))).rowcount
            at += size
    if at < len(rows):
        changed += db.executemany(one, rows[at:]).rowcount
    return changed


def delete(db: sqlite3.Connection, keys: Collection[int]) -> int:
    """Delete messages and return how many there were. Consecutive keys, as after a drain, take one step."""
    if len(keys) < _RUN:
        return execute(db, _DELETE, _DELETES, [(key,) for key in keys])
    ordered, gone, others = sorted(keys), 0, list[int]()
    ends = [at for at, (key, after) in enumerate(pairwise(ordered), 1) if after != key + 1]
    for start, end in pairwise((0, *ends, len(ordered))):
        if end - start < _RUN:
            others += ordered[start:end]
        else:
            gone += db.execute(_DELETE_RUN, (ordered[start], ordered[end - 1])).rowcount
    return gone + execute(db, _DELETE, _DELETES, [(key,) for key in others])


def is_large(message: Storable) -> bool:
    """Return whether a message has, or gets, a file of its own, which makes it slow to write."""
    return len(message.tail) >= LARGE or message.body is not None


def is_special(message: Storable) -> bool:
    """Return whether a message gets a row in the table `special`."""
    return (
        message.due is not None
        or message.expires is not None
        or message.priority != 4
        or message.persistent is not True
    )
