"""What a store's tables hold as the writer handles it: batches of changes, and rows as they are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from stompcodec.broker.storage.body_files import Body, BodyFile
from stompcodec.broker.storage.store import SentKey, Storable, Subscribed
from stompcodec.broker.storage.totals import Total

__all__ = ["GROUP", "LARGE", "Batch", "Row", "State", "execute", "is_large", "raw"]

#: Octets from which on a tail is a file of its own.
LARGE = 65536
#: Rows that one statement writes, and how many make it worth while.
GROUP, MANY = 64, 256


class Batch:
    """What one transaction writes. Messages are known by their keys, queues by numbers.

    >>> batch = Batch()
    >>> batch.removes[1 << 45] = None
    >>> len(batch)
    1
    """

    def __init__(self) -> None:
        self.puts: dict[int, Storable] = {}
        self.removes: dict[int, None] = {}
        self.updates: dict[int, Storable] = {}
        #: Of the puts, those with a seq that is not higher than all that were counted.
        self.late: list[int] = []
        #: Queues to register, by name, and numbers of queues to forget.
        self.queues: dict[str, int] = {}
        self.dropped: list[int] = []
        #: Durable subscriptions by the keys of their queues, None for one that is gone; and the seq to reserve.
        self.subscriptions: dict[str, Subscribed | None] = {}
        self.reserved: int | None = None
        #: Idempotency keys by their numbers, and numbers of those to forget.
        self.keys: dict[int, SentKey] = {}
        self.forgotten: dict[int, None] = {}
        #: Files of large bodies: written for this batch, and useless after it.
        self.written: dict[int, BodyFile] = {}
        self.obsolete: list[str] = []
        #: The one row that is all of it: the statement that ends the transaction is the transaction.
        self.single: tuple[object, ...] | None = None
        #: Totals of queues that it lowers, and what it leaves of the table `state`.
        self.totals: dict[int, Total] = {}
        self.state: State | None = None

    def __len__(self) -> int:
        beside = len(self.subscriptions) + len(self.keys) + len(self.forgotten) + (self.reserved is not None)
        return len(self.puts) + len(self.removes) + len(self.updates) + beside

    @property
    def is_single(self) -> bool:
        """One small message is all of it."""
        if len(self.puts) != 1 or len(self) != 1 or self.queues or self.dropped or self.late:
            return False
        return not any(map(is_large, self.puts.values()))


class State(NamedTuple):
    """The row of the table `state`."""

    clean: int = 0
    """The broker ended as it should."""
    seq: int = 0
    """The greatest seq that was reserved."""
    subscriptions: int | None = None
    """Durable subscriptions; None when that is not known."""


class Row(NamedTuple):
    """A message as it was read."""

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
    """Yield rows with texts as bytes, for a damaged one may be no UTF-8."""
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
    """Return how many rows were changed. Like executemany, but many rows are written in groups.

    That takes a little longer, but Python lets go of the GIL for each statement, and when the loop is busy, the helper
    has to wait for it as often.
    """
    at, many, changed = 0, len(rows) >= MANY, 0
    while many and len(rows) - at >= GROUP:
        changed += db.execute(group, tuple(chain.from_iterable(rows[at : at + GROUP]))).rowcount
        at += GROUP
    if at < len(rows):
        changed += db.executemany(one, rows[at:]).rowcount
    return changed


def is_large(message: Storable) -> bool:
    """Whether it has a file of its own, or gets one, which takes its time."""
    return len(message.tail) >= LARGE or message.body is not None
