"""Batches of changes to a store's tables, and rows as they are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from stompcodec.broker.storage.body_files import Body, BodyFile
from stompcodec.broker.storage.store import SentKey, Storable, Subscribed
from stompcodec.broker.storage.totals import Total

#: Tails of at least this many bytes get a file of their own.
LARGE = 65536
#: Rows written by one statement, and the number of rows from which on that pays.
GROUP, MANY = 64, 256


class Batch:
    """The changes of one transaction. Messages are identified by their keys, queues by their numbers.

    >>> batch = Batch()
    >>> batch.removes[1 << 45] = None
    >>> len(batch)
    1
    """

    def __init__(self) -> None:
        self.puts: dict[int, Storable] = {}
        self.removes: dict[int, None] = {}
        self.updates: dict[int, Storable] = {}
        #: Puts whose seq is not higher than all counted ones.
        self.late: list[int] = []
        #: Queues to register, by name, and numbers of queues to forget.
        self.queues: dict[str, int] = {}
        self.dropped: list[int] = []
        #: Durable subscriptions by the keys of their queues, None to delete one; and the seq to reserve.
        self.subscriptions: dict[str, Subscribed | None] = {}
        self.reserved: int | None = None
        #: Idempotency keys to store, by number, and numbers of those to delete.
        self.keys: dict[int, SentKey] = {}
        self.forgotten: dict[int, None] = {}
        #: Files of large bodies: those written for this batch, and those to remove after it.
        self.written: dict[int, BodyFile] = {}
        self.obsolete: list[str] = []
        #: The row, if the batch is one message: the INSERT is then the whole transaction.
        self.single: tuple[object, ...] | None = None
        #: Totals of queues that it lowers, and the state it leaves.
        self.totals: dict[int, Total] = {}
        self.state: State | None = None

    def __len__(self) -> int:
        beside = len(self.subscriptions) + len(self.keys) + len(self.forgotten) + (self.reserved is not None)
        return len(self.puts) + len(self.removes) + len(self.updates) + beside

    @property
    def is_single(self) -> bool:
        """True if the batch is a single small message."""
        if len(self.puts) != 1 or len(self) != 1 or self.queues or self.dropped or self.late:
            return False
        return not any(map(is_large, self.puts.values()))


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
    body: Body | None


def raw(db: sqlite3.Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows with texts as bytes, because a damaged text may not be UTF-8."""
    cursor, factory = db.cursor(), db.text_factory
    cursor.execute(select)
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


def execute(db: sqlite3.Connection, one: str, group: str, rows: list[tuple[object, ...]]) -> int:
    """Write rows and return how many were changed. Large numbers of rows are written in groups.

    Groups take a little longer than `executemany`, which releases the GIL for every row. Each release makes the helper
    wait for a busy loop.
    """
    at, many, changed = 0, len(rows) >= MANY, 0
    while many and len(rows) - at >= GROUP:
        changed += db.execute(group, tuple(chain.from_iterable(rows[at : at + GROUP]))).rowcount
        at += GROUP
    if at < len(rows):
        changed += db.executemany(one, rows[at:]).rowcount
    return changed


def is_large(message: Storable) -> bool:
    """Return whether a message has, or gets, a file of its own, which makes it slow to write."""
    return len(message.tail) >= LARGE or message.body is not None
