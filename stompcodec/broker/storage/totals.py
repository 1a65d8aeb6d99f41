"""The totals of a store: how many messages each queue holds, kept beside the rows, so that a missing row is noticed.

A total counts the rows up to one key, `high`. Removing such a row lowers the total in the same transaction. Newer rows
are not counted yet, so a message that is soon consumed costs nothing here. `take` counts them before the WAL is copied
into the database, where a row may get lost without a trace. (In the WAL, frames have checksums.)

Transient messages are stored only until the next start. Those that an earlier run has left are `Leftovers`: they are
never delivered, and are removed beside other work. Until then the totals count them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from stompcodec.broker.storage.checksums import record_crc
from stompcodec.broker.storage.damage import Damage, shown

#: Bits of a key that hold the seq of a message. The higher bits are the number of its queue.
SEQ_BITS = 45
#: Valid seqs are less, as `Store.append` says.
MOST_SEQ = 2**42
#: Queues counted in one step while other work waits, and rows of a queue that are compared with its total.
_MOST_AT_ONCE, _MOST_COMPARED = 500, 20_000
_REPLACE = "INSERT OR REPLACE INTO queue (id, name, suspect, count, high, crc) VALUES (?, ?, ?, ?, ?, ?)"
_EMPTY = f"""SELECT id FROM queue WHERE NOT EXISTS (
    SELECT 1 FROM message WHERE key >= queue.id << {SEQ_BITS} AND key < (queue.id + 1) << {SEQ_BITS})"""
_LAST = f"""SELECT id, (SELECT max(key) FROM message
    WHERE key >= queue.id << {SEQ_BITS} AND key < (queue.id + 1) << {SEQ_BITS}) FROM queue"""
_COUNT = "SELECT count(*), max(key) FROM message WHERE key > ? AND key < ?"
_TRANSIENT = "FROM special INDEXED BY special_transient WHERE persistent = 0 AND key"
#: A condition that excludes leftovers, which have seqs up to `:leftovers`.
NO_LEFTOVER = f"(persistent <> 0 OR (key & {(1 << SEQ_BITS) - 1}) > :leftovers)"


class Total(NamedTuple):
    """A row of the table `queue`."""

    name: str
    suspect: int = 0
    """Messages with lower keys went through a crash."""
    rows: int | None = 0
    """Number of messages with keys up to `high`; None if unknown."""
    high: int = -1

    @classmethod
    def new(cls, name: str, number: int) -> Total:
        """Return the total of a queue without messages."""
        return cls(name, 0, 0, (number << SEQ_BITS) - 1)


class Leftovers:
    """The transient messages of earlier runs that are still in the store: those with a seq up to `upto`, -1 for none.
    All messages of this run have higher ones. `counts` says how many there are, by queue number.
    """

    __slots__ = ("cleared", "counts", "upto")

    def __init__(self) -> None:
        self.upto = -1
        self.counts: dict[int, int] = {}
        #: The share of a queue among them that the writer cleared last, and up to which key.
        self.cleared = 0, 0, 0

    def find(self, db: sqlite3.Connection) -> None:
        """Treat all transient messages as leftovers. To be called at the start."""
        (key,) = db.execute(f"SELECT min(key) {_TRANSIENT} >= 0").fetchone()
        while key is not None:
            number = key >> SEQ_BITS
            end = number + 1 << SEQ_BITS
            (count,) = db.execute(f"SELECT count(*) {_TRANSIENT} >= ? AND key < ?", (key, end)).fetchone()
            (last,) = db.execute(f"SELECT max(key) {_TRANSIENT} < ?", (end,)).fetchone()
            self.counts[number] = count
            self.upto = max(self.upto, last & (1 << SEQ_BITS) - 1)
            (key,) = db.execute(f"SELECT min(key) {_TRANSIENT} >= ?", (end,)).fetchone()

    def first(self, db: sqlite3.Connection, most: int) -> tuple[int, int]:
        """Return the lowest and highest key of the first leftovers of one queue, at most `most` of them."""
        number = next(iter(self.counts))
        base = number << SEQ_BITS
        keys = f"SELECT key {_TRANSIENT} BETWEEN ? AND ? ORDER BY key LIMIT ?"
        found = db.execute(f"SELECT min(key), max(key) FROM ({keys})", (base, base + self.upto, most)).fetchone()
        return (base, base - 1) if found[0] is None else found

    def removed(self, number: int, count: int) -> None:
        """Note that `count` leftovers of a queue were removed; 0 means that none was left."""
        self.counts[number] -= count
        if not count or not self.counts[number]:
            del self.counts[number]
        if not self.counts:
            self.upto = -1


class Totals:
    """The totals of all queues, by queue number. Any thread may use it, but only one at a time, as with the writer.
    Differences that it finds are reported to `damage`.
    """

    def __init__(self, damage: Damage) -> None:
        self._damage = damage
        self.known: dict[int, Total] = {}
        #: `high` of each total above 0. Usually empty, because most messages are soon consumed.
        self._highs: dict[int, int] = {}
        #: The greatest counted seq of any queue.
        self.top = 0
        #: Numbers of the queues left to count in this round.
        self._round: list[int] = []
        #: Queues whose total on disk is out of date.
        self._stale: set[int] = set()
        #: Keys of damaged rows, which stay in the file, by queue.
        self.aside: dict[int, set[int]] = {}
        #: Queues that were read to their ends since the last `take`.
        self.ended: set[int] = set()
        #: Kept here because the writer has as many attributes as CPython looks up quickly.
        self.leftovers = Leftovers()

    def read(self, db: sqlite3.Connection, rows: Iterable[tuple[object, ...]], unclean: bool) -> None:
        """Read the table of totals, and delete queues that hold nothing. If `unclean`, the last broker crashed, so all
        messages are suspect.

        `rows` are the id, name (bytes), suspect, count, high and crc of each queue.
        """
        for row in rows:
            number, name, suspect, count, high, crc = row
            text = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
            sound = isinstance(number, int) and isinstance(suspect, int) and isinstance(high, int)
            sound = sound and isinstance(name, bytes) and (count is None or isinstance(count, int))
            if not sound or crc != record_crc(number, text, suspect, count, high):  # type: ignore[arg-type]
                self._damage.found(f"the name or total of a queue, perhaps {shown(text)}; its messages are kept aside")
                continue
            self._set(number, Total(text, suspect, count, high))  # type: ignore[arg-type]
        changes: dict[int, Total] = {}
        for (number,) in db.execute(_EMPTY).fetchall():
            if number in self.known:
                self._drop(number)
                db.execute("DELETE FROM queue WHERE id = ?", (number,))
        if unclean:
            for number, last in db.execute(_LAST).fetchall():
                if number in self.known and last is not None:
                    changes[number] = self.known[number]._replace(suspect=last + 1)
            self.write(db, changes)
            for number, total in changes.items():
                self._set(number, total)

    def _set(self, number: int, total: Total) -> None:
        self.known[number] = total
        self.top = max(self.top, total.high & (1 << SEQ_BITS) - 1 if total.high >= number << SEQ_BITS else 0)
        if total.rows:
            self._highs[number] = total.high
        else:
            self._highs.pop(number, None)

    def _drop(self, number: int) -> None:
        total = self.known.pop(number, None)
        self._highs.pop(number, None)
        if total is not None and total.rows:
            self._damage.missing(total.rows, total.name)

    def write(self, db: sqlite3.Connection, changes: dict[int, Total]) -> None:
        """Write totals in the open transaction. They take effect with `committed`."""
        if changes:
            db.executemany(
                _REPLACE, [(number, *total, record_crc(number, *total)) for number, total in changes.items()]
            )

    def raised(self, keys: Iterable[int]) -> dict[int, Total]:
        """Return the totals raised by new messages with these keys. Only keys below `high` raise a total."""
        found: dict[int, Total] = {}
        for key in keys:
            total = found.get(key >> SEQ_BITS) or self.known.get(key >> SEQ_BITS)
            if total is not None and key <= total.high and total.rows is not None:
                found[key >> SEQ_BITS] = total._replace(rows=total.rows + 1)
        return found

    def lowered(self, removes: Iterable[int], totals: dict[int, Total]) -> dict[int, Total]:
        """Return the totals lowered by the removal of these keys. `totals` are those that the transaction has changed
        already.
        """
        highs = self._highs
        if not highs:
            return {}
        counts = Counter[int]()
        for key in removes:
            number = key >> SEQ_BITS
            if key <= highs.get(number, -1):
                counts[number] += 1
        return {
            number: total._replace(rows=(total.rows or 0) - count)
            for number, count in counts.items()
            for total in (totals.get(number) or self.known[number],)
        }

    def committed(self, db: sqlite3.Connection, dropped: Iterable[int], changes: dict[int, Total]) -> None:
        """Apply a transaction that has deleted queues (`dropped`) and written totals. A drained queue may have rows
        left in `db`.
        """
        for number in dropped:
            self._drop(number)
        for number, total in changes.items():
            self._set(number, total)
            if total.rows is not None and total.rows <= len(self.aside.get(number, ())):
                self._compare(db, number, total)

    def _compare(self, db: sqlite3.Connection, number: int, total: Total) -> None:
        """Compare the total of a queue with its rows, if they are few."""
        if total.rows is None or total.rows > _MOST_COMPARED or total.high < number << SEQ_BITS:
            return
        left = db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM message WHERE key >= ? AND key <= ? LIMIT {total.rows + 1000})",
            (number << SEQ_BITS, total.high),
        ).fetchone()[0]
        if left != total.rows:
            self._damage.missing((total.rows or 0) - left, total.name)
            self._set(number, total._replace(rows=None))

    def doubt(self, numbers: Iterable[int]) -> None:
        """Mark the totals of these queues as unknown, for example after a disk error. They are counted again."""
        for number in numbers:
            total = self.known.get(number)
            if total is not None:
                self._set(number, total._replace(rows=None))

    def loaded(self, number: int, count: int, high: int, all_of_it: int) -> None:
        """Compare the total of a queue that was read to its end, and adopt what was found: `count` rows with keys up to
        its `high`, `all_of_it` rows in all, and `high`, the highest key.
        """
        total = self.known.get(number)
        if total is None:
            return
        if total.rows is not None and total.rows != count:
            self._damage.missing(total.rows - count, total.name)
        if (total.rows, total.high) != (all_of_it, high):
            self._set(number, total._replace(rows=all_of_it, high=high))
            self._stale.add(number)

    def read_up_to(self, key: int) -> None:
        """Note that a queue was read up to a key. At its end, `take` compares its total with its rows."""
        total = self.known.get(key >> SEQ_BITS)
        if total is not None and key >= total.high:
            self.ended.add(key >> SEQ_BITS)

    def take(self, db: sqlite3.Connection, everything: bool = False) -> None:
        """Count new rows of all queues (`everything`), or of a few, to be quick. It takes a transaction of its own."""
        while self.ended:
            number = self.ended.pop()
            if number in self.known:
                self._compare(db, number, self.known[number])
        if everything or not self._round:
            self._round = list(self.known)
        numbers = self._round if everything else self._round[-_MOST_AT_ONCE:]
        changes: dict[int, Total] = {}
        for number in numbers:
            total = self.known.get(number)
            if total is None:
                continue
            start = (number << SEQ_BITS) - 1 if total.rows is None else total.high
            new, last = db.execute(_COUNT, (start, number + 1 << SEQ_BITS)).fetchone()
            if new or total.rows is None or number in self._stale:
                changes[number] = total._replace(
                    rows=(total.rows or 0) + new, high=total.high if last is None else last
                )
        if changes:
            db.execute("BEGIN IMMEDIATE")
            try:
                self.write(db, changes)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        for number, total in changes.items():
            self._set(number, total)
            self._stale.discard(number)
        del self._round[-len(numbers) :]
