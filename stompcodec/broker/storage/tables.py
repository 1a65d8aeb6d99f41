"""The tables of a store: how their file is opened, their rows and checksums, and batches of changes to them."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from stompcodec.broker.storage.folder import APPLICATION, DATABASE, TABLES, Damage, shown
from stompcodec.broker.storage.large import Body, BodyFile, read_body, stored_body
from stompcodec.broker.storage.store import SentKey, Storable, Subscribed
from stompcodec.errors import StoreError

#: The bits of a message's checksum that are a CRC-32. The higher bits are `shifted`.
CRC = 2**32 - 1
#: Greatest number of attempts that fits into a message's checksum.
_MOST_ATTEMPTS = 2**29


def message_crc(
    key: int,
    ident: str,
    destination: str,
    tail: bytes | None,
    persistent: bool,
    expires: float | None,
    priority: int,
    attempts: int,
    redelivered: bool,
    file: BodyFile | None = None,
) -> int:
    """Return the checksum of a message: a CRC-32 of the fixed columns, and above it a copy of the changing ones.

    `attempts` and `redelivered` change in place, in SQL, and so does their copy. Thus an update does not vouch for
    columns that it has not read. The size and checksum of the body's file are covered as well.

    >>> crc = message_crc(1, "m-1", "/queue/a", b"\\n\\n\\0", True, None, 4, 0, False)
    >>> again = message_crc(1, "m-1", "/queue/a", b"\\n\\n\\0", True, None, 4, 2, True)
    >>> again == crc | shifted(2, True), crc == crc & CRC
    (True, True)
    """
    crc = (start_crc(destination, key >> 32) ^ key) & CRC
    crc = crc32(ident.encode("utf-8", "surrogateescape"), crc)
    if expires is not None or priority != 4 or persistent != 1 or tail is None:
        crc = crc32(f"{persistent:d} {expires!r} {priority} {tail is None:d}\n".encode(), crc)
    if tail is not None:
        crc = crc32(tail, crc)
    if file is not None:
        crc = crc32(b"%d %d" % (file.size, file.crc), crc)
    return crc | shifted(attempts, redelivered) if attempts or redelivered else crc


def start_crc(destination: str, upper: int) -> int:
    """Return the part of a checksum that messages of a destination share, and keys without their lower 32 bits
    (`upper`).

    A message without a file or an expiry, with priority 4 and never delivered, has the checksum `crc32(tail,
    crc32(ident, start ^ key))`; `crc32` only uses the lower 32 bits of its start. The writer computes it this way.
    """
    return crc32(f"{upper}\n{destination}".encode("utf-8", "surrogateescape"))


def shifted(attempts: int, redelivered: bool) -> int:
    """Return attempts and the redelivered flag as encoded in a message's checksum.

    >>> shifted(1, False) >> 32
    2
    """
    return (min(attempts, _MOST_ATTEMPTS) << 1 | bool(redelivered)) << 32


def record_crc(*columns: str | int | None) -> int:
    """Return the checksum of a row of any other table.

    >>> record_crc("a", 1) == record_crc("a", True), record_crc("a", None) == record_crc("a", "")
    (True, False)
    """
    parts = (str(int(column)) if isinstance(column, int) else repr(column) for column in columns)
    return crc32("\n".join(parts).encode("utf-8", "surrogateescape"))


def key_crc(number: int, scope: bytes, key: bytes, body: int, at: int) -> int:
    """Return the checksum of a row of the table `sent`.

    >>> key_crc(1, b"ab", b"c", 0, 0) == key_crc(1, b"a", b"bc", 0, 0)
    False
    """
    return crc32(b"%d %d %d %d " % (number, len(scope), body, at) + scope + key)


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
        """Return the totals lowered by the removal of these keys; the transaction has changed `totals` already."""
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
        """Apply a transaction that deleted queues (`dropped`) and wrote totals. Drained ones may have rows in `db`."""
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


def row_of(
    columns: Sequence[Any], file: BodyFile | None, bodies: Path, special: Sequence[Any], verify: bool = False
) -> Row | Bad:
    """Return the message of a row with texts as bytes. `file` is what the table `body` says of it, and `special` the
    due time and the checksum in the table `special`. `verify` reads files of large messages for their checksums.
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
        tail = read_body(bodies, file) if file is not None else None
    elif file is not None:
        body = stored_body(bodies, file, verify or attempts > 0)
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
    return message.due is not None or message.expires is not None or message.priority != 4 or message.persistent != 1


_REMEMBER = "INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM sent WHERE number = ?"
_GET = "SELECT number, scope, key, body, at, crc FROM sent ORDER BY number"
_FIELDS = ", ".join(Subscribed._fields)
_SUBSCRIBE = f"INSERT INTO subscription ({_FIELDS}, crc) VALUES ({'?, ' * len(Subscribed._fields)}?)"
#: Keys read in one step.
_GROUP = 500


def write_keys(db: sqlite3.Connection, keys: Mapping[int, SentKey], forgotten: Iterable[int]) -> None:
    """Store keys by number, and delete others, in the open transaction."""
    db.executemany(_FORGET, [(number,) for number in forgotten])
    db.executemany(_REMEMBER, [_row_of(key) for key in keys.values()])


def read_keys(db: sqlite3.Connection, damage: Damage) -> Iterator[SentKey]:
    """Yield all keys by number, and report damaged rows: a SEND with such a key would be stored again."""
    cursor = db.execute(_GET)
    while rows := cursor.fetchmany(_GROUP):
        for columns in rows:
            key = sent_key(columns)
            if key is None:
                damage.found("an idempotency key is lost: if its SEND comes again, it is stored again")
            else:
                yield key


def sent_key(columns: Sequence[Any]) -> SentKey | None:
    """Return a key from its row (number, scope, key, body, at, crc); None if the row is damaged.

    >>> sent_key((1, b"scope", b"key", 0, 0, 0)) is None
    True
    """
    try:
        number, scope, key, body, at, crc = columns
        sound = key_crc(number, scope, key, body, at) == crc
    except (TypeError, ValueError):
        return None
    return SentKey(number, scope, key, body, at / 1000) if sound else None


def _row_of(key: SentKey) -> tuple[object, ...]:
    row = (key.number, key.scope, key.key, key.body, int(key.at * 1000))
    return *row, key_crc(*row)


def write_subscription(db: sqlite3.Connection, queue: str, subscription: Subscribed | None) -> None:
    """Replace or delete (None) the durable subscription of a queue."""
    db.execute("DELETE FROM subscription WHERE queue = ?", (queue,))
    if subscription is not None:
        db.execute(_SUBSCRIBE, (*subscription, record_crc(*subscription)))


def subscribed_of(columns: Sequence[Any]) -> Subscribed:
    """Return a durable subscription from the columns of its row."""
    one = Subscribed._make(columns)
    return one._replace(literal=bool(one.literal), shared=bool(one.shared), auto_delete=bool(one.auto_delete))


def read_subscriptions(db: sqlite3.Connection, damage: Damage) -> tuple[list[Subscribed], int]:
    """Return all intact durable subscriptions, and the number of rows. Damaged ones are reported."""
    found: list[Subscribed] = []
    rows = list(raw(db, f"SELECT {_FIELDS}, crc FROM subscription ORDER BY queue"))
    for *columns, crc in rows:
        texts = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in columns]
        if crc == record_crc(*texts):
            found.append(subscribed_of(texts))
        else:
            damage.found(f"a durable subscription, perhaps {shown(str(texts[:3]))}, is lost, and kept aside")
    return found, len(rows)


#: The number of the schema, which a later one increments.
VERSION = 1
#: The key of a message is its queue's id times 2**45 plus its seq, so messages are ordered by queue. Messages with keys
#: below `suspect` went through a crash and may have been delivered before it. Each `crc` is as in `checksums`.
SCHEMA: tuple[str, ...] = (
    """CREATE TABLE queue (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        suspect INTEGER NOT NULL,
        count INTEGER,  -- of messages with keys up to `high`; NULL if unknown
        high INTEGER NOT NULL,
        crc INTEGER NOT NULL
    )""",
    """CREATE TABLE message (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        destination TEXT NOT NULL,
        tail BLOB,  -- NULL: in a file of its own
        persistent INTEGER NOT NULL,
        expires REAL,  -- seconds since 1970
        priority INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        redelivered INTEGER NOT NULL,
        crc INTEGER NOT NULL
    )""",
    "CREATE TABLE body (key INTEGER PRIMARY KEY, file TEXT NOT NULL, size INTEGER NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE state (clean INTEGER NOT NULL, seq INTEGER NOT NULL, subscriptions INTEGER, crc INTEGER NOT NULL)",
    f"INSERT INTO state VALUES (1, 0, 0, {record_crc(1, 0, 0)})",
    """CREATE TABLE subscription (
        queue TEXT PRIMARY KEY,
        prefix TEXT NOT NULL,
        name TEXT NOT NULL,
        literal INTEGER NOT NULL,
        selector TEXT,
        shared INTEGER NOT NULL,
        auto_delete INTEGER NOT NULL,
        owner TEXT,  -- NULL: made without users
        crc INTEGER NOT NULL
    )""",
    # idempotency keys: `scope` and `key` are digests, `body` a CRC-32, `at` in ms since 1970
    """CREATE TABLE sent (
        number INTEGER PRIMARY KEY,
        scope BLOB NOT NULL,
        key BLOB NOT NULL,
        body INTEGER NOT NULL,
        at INTEGER NOT NULL,
        crc INTEGER NOT NULL
    )""",
    # messages that are delayed, expire, are transient, or have a priority other than 4
    """CREATE TABLE special (
        key INTEGER PRIMARY KEY,
        due REAL,  -- seconds since 1970
        expires REAL,  -- as in `message`, like the next two
        priority INTEGER NOT NULL,
        persistent INTEGER NOT NULL,
        crc INTEGER NOT NULL
    )""",
    "CREATE INDEX special_due ON special (due) WHERE due IS NOT NULL",
    "CREATE INDEX special_deferred ON special (key) WHERE due IS NOT NULL",
    "CREATE INDEX special_expires ON special (expires) WHERE expires IS NOT NULL",
    f"CREATE INDEX special_priority ON special (key >> {SEQ_BITS}, priority) WHERE priority <> 4 AND due IS NULL",
    "CREATE INDEX special_transient ON special (key) WHERE persistent = 0",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
#: The last build that reads the data folders of builds before the first release, which have this table.
_LAST_BUILD, _THEIRS = "c34395da", "migration"
PAGE = 8192
#: Seconds to wait for another program that writes to the file. The loop is blocked meanwhile.
_BUSY = 0.25
#: The versions of SQLite that mend the fault of `has_wal_fault`: the last one, and those of older lines.
_MENDED = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
_DAMAGED = "copy the intact messages with stompcodec broker salvage, or restore the data folder from a backup"
#: Remedies, by a part of SQLite's message.
_REMEDIES = (
    ("full", "free space on the disk"),
    ("disk i/o", "look for disk errors in the system log"),
    ("readonly", "let the broker write to its data folder"),
    ("unable to open", "let the broker write to its data folder"),
    ("malformed", _DAMAGED),
    ("not a database", _DAMAGED),
    ("locked", "stop the other program that uses the data folder"),
)


def fault(what: str, error: Exception) -> StoreError:
    """Return the error to raise for a fault of SQLite or of the disk. `what` is what failed, such as "nothing could be
    written".

    >>> print(fault("nothing could be written", sqlite3.OperationalError("database or disk is full")))
    nothing could be written: database or disk is full (free space on the disk)
    """
    said = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in said.lower()), "check the disk")
    if isinstance(error, OSError):
        remedy = "check free space, quotas and permissions of the data folder"
    return StoreError(f"{what}: {said} ({remedy})")


def has_wal_fault(version: tuple[int, ...]) -> bool:
    """Return whether a version of SQLite has a fault that damages a database while two connections write to its WAL or
    copy it.

    >>> [has_wal_fault(version) for version in ((3, 40, 1), (3, 44, 6), (3, 45, 0), (3, 50, 7), (3, 51, 2), (3, 51, 3))]
    [True, False, True, False, True, False]
    """
    mended = next((each for each in _MENDED if each[:2] == version[:2]), _MENDED[-1])
    return version < mended


def warn_of_wal_fault(log: logging.Logger) -> None:
    """Log a warning if this SQLite has the fault. The broker avoids it, but another program may not."""
    if has_wal_fault(sqlite3.sqlite_version_info):
        log.warning(
            "SQLite %s has a fault of its write-ahead log, mended in 3.44.6, 3.50.7 and 3.51.3: let no other program "
            "write to %s while the broker runs (it writes through one connection, and so avoids the fault)",
            *(sqlite3.sqlite_version, DATABASE),
        )


def is_transient(error: Exception) -> bool:
    """Return whether an error leaves the connection usable: the disk is full, or the file is locked.

    >>> [is_transient(sqlite3.OperationalError(said)) for said in ("database is locked", "disk I/O error")]
    [True, False]
    """
    return isinstance(error, OSError) or any(sign in str(error) for sign in ("full", "locked"))


def connect(path: Path, *, reads: bool = False) -> sqlite3.Connection:
    """Return a connection whose transactions are begun and ended explicitly. Any thread may use it, but only one at a
    time. Raise sqlite3.Error if the file cannot be opened.

    One that only `reads` never writes to the database, not even when it is the last one that is closed.
    """
    file = f"{path.absolute().as_uri()}?mode=ro" if reads else path
    found = sqlite3.connect(file, timeout=_BUSY, isolation_level=None, check_same_thread=False, uri=reads)
    if reads:
        found.execute("PRAGMA wal_autocheckpoint = 0")
    return found


def open_database(path: Path, *, new: bool = False) -> sqlite3.Connection:
    """Connect to the file. If it is `new`, create the tables if there are none.

    Transactions are begun and ended explicitly. Each commit is on the disk when it returns. Only explicit checkpoints
    copy the WAL into the database. Raise StoreError if the file is not a store, lacks its tables, belongs to another
    version, or cannot be used.
    """
    try:
        connection = connect(path)
    except sqlite3.Error as error:
        raise fault(f"{path} cannot be opened", error) from error
    try:
        empty = _is_empty(connection, path, new)  # first, so that a foreign database is not changed
        _prepare(connection)
        if empty:
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise fault(f"{path} cannot be opened", error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # applies to new files only
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA trusted_schema = OFF")


def _is_empty(connection: sqlite3.Connection, path: Path, new: bool) -> bool:
    """Return whether a database is empty, as only a `new` one may be. Raise StoreError for one that is not ours."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if application != APPLICATION and (application or version or tables):
        raise StoreError(f"{path} is not a stompcodec store (name another data folder)")
    other = refusal(path, version, tables)
    if other is not None:
        raise StoreError(other)
    missing = [name for name in TABLES if name not in tables]
    if missing and not (new and not version and not tables):
        raise StoreError(
            f"{path} lacks the tables {', '.join(missing)} (restore the data folder from a backup; to start over, "
            "name another folder)"
        )
    return not tables


def refusal(path: Path, version: int, tables: Collection[str]) -> str | None:
    """Return why a database of a version, with these tables, is not read; None for one of this version."""
    if _THEIRS in tables:
        return (
            f"{path} is of a build before the first release, and this version does not read it (build {_LAST_BUILD} "
            "does: consume its messages with that, or name another data folder)"
        )
    if version > VERSION:
        return f"{path} has version {version}, and this program knows only {VERSION} (install a newer one)"
    return None
