"""Reads of stored messages for the queues: counts at the start, and pages, beside the writer.

Pages are read by a connection and a thread of their own. A page is one step of SQLite, without the GIL: the columns of
all rows as JSON, and their tails in one piece. Fetching row by row would release and take the GIL for each row. Rows
that do not come back exactly this way, because they are damaged or rare, are read again one by one.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from stompcodec.broker.storage.folder import Damage, Places, shown
from stompcodec.broker.storage.large import BodyFile
from stompcodec.broker.storage.store import Held, Stored
from stompcodec.broker.storage.tables import (
    COLUMNS,
    MOST_SEQ,
    NO_LEFTOVER,
    SEQ_BITS,
    Bad,
    Leftovers,
    Total,
    Totals,
    connect,
    fault,
    message_crc,
    raw,
    row_of,
    start_crc,
)
from stompcodec.errors import StoreError

#: Rows that are examined for a page in which some are left out: those of other priorities, or delayed ones.
_EXAMINED = 5_000
#: Leftovers that are passed over for a page.
_PASSED = 100_000
#: Rows in a page with rows that cannot be read.
_CAREFUL = 100
#: A time is read as its whole seconds and the rest in this unit. SQLite's decimal numbers would not be exact.
_UNIT = 2**62
_TIME = (
    "CASE WHEN {0} IS NOT NULL THEN json_array(CAST({0} AS INTEGER), "
    f"CAST(({{0}} - CAST({{0}} AS INTEGER)) * {_UNIT} AS INTEGER)) END"
)
#: The bytes that a message takes in memory. A body that was streamed stays in its file.
_SIZE = "coalesce(length(tail), (SELECT size FROM body WHERE body.key = message.key), 0)"
_PAGE = f"""SELECT json_group_array(json_array(key, id, destination, persistent, {_TIME.format("expires")}, priority,
    attempts, redelivered, crc, length(tail))), CAST(group_concat(tail, '') AS BLOB)
    FROM (SELECT {COLUMNS} FROM message {{}})"""
_ROWS = f"SELECT {COLUMNS} FROM message {{}}"
_ROW = _ROWS.format("WHERE key = ?")
_FILE = "SELECT file, size, crc FROM body WHERE key = ?"
_SPECIAL = "SELECT due, crc FROM special WHERE key = ?"
_DUE = "SELECT json_group_array(key) FROM special WHERE due IS NOT NULL AND key IN ({})"
_SUM = "SELECT count(*), count(size), sum(size) FROM (SELECT length(tail) AS size FROM message {})"
_FITTING = f"""SELECT count(*) FROM (SELECT sum(size) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - size AS before
    FROM (SELECT key, {_SIZE} AS size FROM message {{}})) WHERE before < :octets"""
_SIZES = f"SELECT json_group_array(json_array(key, {_SIZE})) FROM message WHERE key IN ({{}})"
_COUNT = "SELECT count(*) FROM message WHERE key > ? AND key <= ?"
_ENDS = "SELECT (SELECT min(key) FROM message WHERE key >= ?1), (SELECT max(key) FROM message WHERE key <= ?2)"
_NEXT = "SELECT min(key) FROM message WHERE key >= ?"
_STRAY = "SELECT key, id, destination FROM message WHERE key BETWEEN ? AND ? ORDER BY key"
_DEFERRED = f"""SELECT key >> {SEQ_BITS}, count(*) FROM special INDEXED BY special_deferred
    WHERE due IS NOT NULL {{}} GROUP BY 1"""

_OTHERS = f"""FROM special INDEXED BY special_priority
    WHERE priority <> 4 AND due IS NULL AND key >> {SEQ_BITS}"""
_NUMBER = f"SELECT min(key >> {SEQ_BITS}) {_OTHERS} > ?"
_PRIORITY = f"SELECT min(priority) {_OTHERS} = ? AND priority > ?"
_LAST_NUMBER = 2 ** (63 - SEQ_BITS) - 1

#: A condition of messages without a due time.
NOT_DEFERRED = """NOT EXISTS (SELECT 1 FROM special INDEXED BY special_deferred
    WHERE special.key = message.key AND due IS NOT NULL)"""
_ANY_DEFERRED = """SELECT EXISTS (SELECT 1 FROM special INDEXED BY special_deferred
    WHERE due IS NOT NULL AND key > :after AND key <= :upto)"""
_BY_KEY = "WHERE key > :after AND key <= :upto {} ORDER BY key LIMIT :most"
_EXAMINE = f"SELECT count(*), max(key) FROM (SELECT key FROM message {_BY_KEY.format('')})"
_FIRST = f"""SELECT key FROM (SELECT key, persistent FROM message {_BY_KEY.format("")})
    WHERE {NO_LEFTOVER} LIMIT 1"""
_THESE = f"""special INDEXED BY special_priority
    WHERE key >> {SEQ_BITS} = :number AND priority = :priority AND priority <> 4 AND due IS NULL
    AND key > :after AND key <= :upto ORDER BY key LIMIT :examined"""
_OF_PRIORITY = f"""SELECT json_group_array(key) FROM (SELECT key FROM (SELECT key, persistent FROM {_THESE})
    WHERE TRUE {{}} LIMIT :most)"""
_EXAMINE_THESE = f"SELECT count(*), max(key) FROM (SELECT key FROM {_THESE})"
_PLACES = """SELECT json_group_array(key) FROM (
    SELECT * FROM (SELECT key FROM special INDEXED BY special_{0}
        WHERE {0} IS NOT NULL AND {0} = :time AND key > :key ORDER BY key LIMIT :most)
    UNION ALL
    SELECT * FROM (SELECT key FROM special INDEXED BY special_{0}
        WHERE {0} IS NOT NULL AND {0} > :time AND {0} <= :before ORDER BY {0}, key LIMIT :most)
    LIMIT :most)"""

#: Returns the name of a queue by its number, and the key below which its messages went through a crash; None if the
#: name is lost.
NameOf = Callable[[int], tuple[str, int] | None]
#: The rows that were found, by key. Those that are damaged are described.
Found = dict[int, Stored | Bad]


class Run(NamedTuple):
    """Messages that were read, in order, and what follows them."""

    rows: list[Stored | Bad]
    end: bool
    """No more messages follow."""
    last: int = 0
    """For a page of a queue: all messages with keys up to this one were read."""
    place: tuple[float, int] | None = None
    """For a page by time: the time and the key of the last message."""


class Reader:
    """A connection that reads pages. One thread at a time may use it. It is opened by the first page, and again after
    an error. Its methods raise StoreError.
    """

    def __init__(self, path: Path, bodies: Path, name_of: NameOf, leftovers: Leftovers, places: Places) -> None:
        self._path = path
        self._places = places
        self._leftovers = leftovers
        self._bodies = bodies
        self._name_of = name_of
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the connection. The next page opens another one."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._db is None:
                self._path.stat()  # SQLite would make a new file
                self._db = connect(self._path, reads=True)
                if (gone := self._places.gone()) is not None:  # SQLite may have opened another file
                    raise FileNotFoundError(errno.ENOENT, f"{gone} was removed or replaced")
                self._db.text_factory = bytes
                self._db.execute("PRAGMA query_only = ON")
            self._db.execute("BEGIN")
            yield self._db
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:  # after a malformed row
                self.close()
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise fault(f"{self._path} cannot be read", error) from error
        except BaseException:
            self.close()
            raise

    def page(
        self, number: int, after: int, upto: int, most: int, octets: int, priority: int | None, by_row: bool = False
    ) -> Run:
        """Return messages of the queue with that number, with `after` < key <= `upto` and without a due time.

        `by_row` takes less time if no other thread needs the GIL.
        """
        values = {"number": number, "after": after, "upto": upto, "octets": octets, "priority": priority}
        values["leftovers"] = self._leftovers.upto  # before the read transaction, which may see more of them
        passed = after
        if priority is not None and priority != 4:
            with self._reading() as db:
                keys, bound = _of_priority(db, values, most + 1)
                rows, last, end = self._chosen(db, keys, most, octets)
                if end and bound is not None:
                    last, end = bound, False
            return Run(self._still(rows), end, upto if end else last)
        with self._reading() as db:
            with suppress(sqlite3.DatabaseError, AttributeError, TypeError, ValueError):  # a row cannot be read
                run = self._plain(db, values, most) if by_row else None
                if run is not None:
                    return run
            try:
                rows, follow, upto = self._ready(db, values, most)
            except sqlite3.DatabaseError as error:
                if type(error) is not sqlite3.DatabaseError:  # otherwise it is a row that cannot be read
                    raise
                rows, follow, passed = self._carefully(db, values, most)
        if follow:
            sound = [key for key, row in rows.items() if isinstance(row, Stored)]
            upto = max(sound or rows, default=passed)
            if upto <= after:
                raise StoreError(f"{self._path} has messages out of order (copy them with stompcodec broker salvage)")
        rows = {key: row for key, row in sorted(rows.items()) if key <= upto and (key > after or isinstance(row, Bad))}
        return Run(self._still(rows), not follow and upto == values["upto"], upto)

    def _plain(self, db: sqlite3.Connection, values: dict[str, Any], most: int) -> Run | None:
        """Return messages row by row; None if some are damaged, in files, or perhaps delayed, or some left out."""
        named = self._name_of(values["number"])
        if named is None or _condition(values):
            return None
        if db.execute(_ANY_DEFERRED, values).fetchone()[0]:
            return None
        queue, suspect = named
        found, octets, last, before, upper, start = list[Stored | Bad](), values["octets"], -1, None, -1, 0
        destination, new = "", tuple.__new__
        rows = db.execute(_ROWS.format(_BY_KEY.format("")), {**values, "most": most + 1})
        for key, ident, place, tail, persistent, expires, priority, attempts, again, crc in rows:
            if octets <= 0 or len(found) == most:
                return Run(found, False, last)
            if place != before or key >> 32 != upper:
                before, upper, destination = place, key >> 32, place.decode()
                start = start_crc(destination, upper)
            if persistent == 1 and expires is None and priority == 4 and not attempts and not again:
                sound = crc32(tail, crc32(ident, start ^ key)) == crc
            else:
                fixed = (key, ident.decode(), destination, tail, persistent, expires, priority)
                sound = crc == message_crc(*fixed, attempts, again)
            if key <= last or not sound or values["priority"] not in (None, priority):
                return None
            last = key
            octets -= len(tail)
            flags = persistent == 1, expires, priority, attempts, again == 1 or key < suspect
            found.append(new(Stored, (queue, key & _SEQ, ident.decode(), destination, tail, *flags, None, None)))
        return Run(found, True, values["upto"])

    def _ready(self, db: sqlite3.Connection, values: dict[str, Any], most: int) -> tuple[Found, bool, int]:
        """Return messages by key, whether more follow, and up to which key they were looked for."""
        where = _condition(values)
        if where:
            first = db.execute(_FIRST, {**values, "most": _PASSED}).fetchone()
            if first is None:
                passed, last = db.execute(_EXAMINE, {**values, "most": _PASSED}).fetchone()
                return {}, False, last if passed == _PASSED else values["upto"]
            values = {**values, "after": first[0] - 1}
        if values["priority"] is not None:
            where += " AND priority = 4"
        if db.execute(_ANY_DEFERRED, values).fetchone()[0]:
            where += f" AND {NOT_DEFERRED}"
        if where:
            bound = min(_EXAMINED, 4 * most + 100)
            examined, last = db.execute(_EXAMINE, {**values, "most": bound}).fetchone()
            if examined == bound:
                values = {**values, "upto": last}
        source = _BY_KEY.format(where)
        count, follow = self._fitting(db, source, {**values, "most": most + 1})
        return self._rows(db, source, {**values, "most": count}) if count else {}, follow, values["upto"]

    def _carefully(self, db: sqlite3.Connection, values: dict[str, Any], most: int) -> tuple[Found, bool, int]:
        """Return messages, whether more follow, and the last key, where some rows cannot be read."""
        most = min(most, _CAREFUL)
        keys = db.execute(f"SELECT key FROM message {_BY_KEY.format('')}", {**values, "most": most + 1}).fetchall()
        found = {key: self._one(db, key) for (key,) in keys[:most]}
        wanted = values["priority"]
        for key, row in list(found.items()):
            if isinstance(row, Stored) and (row.due is not None or wanted not in (None, row.priority)):
                del found[key]
        return _without_leftovers(found, values["leftovers"]), len(keys) > most, keys[:most][-1][0] if keys else 0

    def _fitting(self, db: sqlite3.Connection, source: str, values: dict[str, Any]) -> tuple[int, bool]:
        """Return how many messages the page has, less than the rows that `source` gives, and whether more follow."""
        found, sized, octets = db.execute(_SUM.format(source), values).fetchone()
        count: int = found
        if sized < found or (octets or 0) > values["octets"]:
            (count,) = db.execute(_FITTING.format(source), values).fetchone()
        count = min(count, values["most"] - 1)
        return count, count < found

    def timed(self, column: str, place: tuple[float, int], before: float, most: int, octets: int) -> Run:
        """Return messages by the time in a column, "due" or "expires", behind a place and up to `before`."""
        values = {"time": place[0], "key": place[1], "before": before, "most": most + 1}
        leftovers = self._leftovers.upto
        with self._reading() as db:
            keys = json.loads(db.execute(_PLACES.format(column), values).fetchone()[0])
            wanted = keys
            if column == "expires":
                deferred = set(json.loads(db.execute(_DUE.format(_list(keys))).fetchone()[0]))
                wanted = [key for key in keys if key not in deferred]
            rows, last, end = self._chosen(db, wanted, most, octets)
            if end and keys:
                last, end = keys[-1], len(keys) <= most
            rows = _without_leftovers(rows, leftovers)
            (time,) = db.execute(f"SELECT {column} FROM special WHERE key = ?", (last,)).fetchone() or (0,)
        return Run(self._still(rows), end, place=(time, last))

    def _chosen(self, db: sqlite3.Connection, keys: list[int], most: int, octets: int) -> tuple[Found, int, bool]:
        """Return the first messages with these keys, the key of the last one, and whether these are all."""
        taken = list[int]()
        try:
            sizes = dict(json.loads(db.execute(_SIZES.format(_list(keys))).fetchone()[0]))
        except sqlite3.DatabaseError:  # a row cannot be read
            sizes, most = {}, min(most, _CAREFUL)
        for key in keys[:most]:
            taken.append(key)
            octets -= sizes.get(key, 0)
            if octets <= 0:
                break
        if not taken:
            return {}, -1, True
        found = self._rows(db, f"WHERE key IN ({_list(taken)}) ORDER BY key", {})
        for key in json.loads(db.execute(_DUE.format(_list(taken))).fetchone()[0]):
            if key in found:
                found[key] = self._one(db, key)
        return {key: found[key] for key in taken if key in found}, taken[-1], len(taken) == len(keys)

    def _still(self, rows: Found) -> list[Stored | Bad]:
        """Return the rows, without bad ones that have been removed meanwhile: their files may be gone already."""
        bad = [key for key, row in rows.items() if isinstance(row, Bad)]
        if bad:
            with self._reading() as db:
                for key in bad:
                    if db.execute("SELECT key FROM message WHERE key = ?", (key,)).fetchone() is None:
                        del rows[key]
        return list(rows.values())

    def _rows(self, db: sqlite3.Connection, source: str, values: dict[str, Any]) -> Found:
        """Return the rows from `source`, all in one step if possible."""
        try:
            found = self._at_once(db, source, values)
        except (sqlite3.Error, TypeError, ValueError):
            found = None
        if found is None:
            try:
                found = {columns[0]: self._row(db, columns) for columns in db.execute(_ROWS.format(source), values)}
            except sqlite3.DatabaseError:
                keys = db.execute(f"SELECT key FROM message {source}", values).fetchall()
                found = {key: self._one(db, key) for (key,) in keys}
        return found

    def _one(self, db: sqlite3.Connection, key: int) -> Stored | Bad:
        """Return the message with a key, though its row may be malformed."""
        try:
            columns = db.execute(_ROW, (key,)).fetchone()
        except sqlite3.DatabaseError:
            columns = None
        return Bad(key, "", "", "its row cannot be read") if columns is None else self._row(db, columns)

    def _at_once(self, db: sqlite3.Connection, source: str, values: dict[str, Any]) -> Found | None:
        """Read rows in one step. Return None if they are not consistent."""
        text, tails = db.execute(_PAGE.format(source), values).fetchone()
        found: Found = {}
        at, last, before, upper, start = 0, -1, None, -1, 0
        number, queue, suspect = -1, "", 0
        new = tuple.__new__
        for key, ident, destination, persistent, expires, priority, attempts, again, crc, size in json.loads(text):
            if key <= last:
                return None
            last = key
            if destination != before or key >> 32 != upper:
                before, upper = destination, key >> 32
                start = start_crc(destination, upper)
                if key >> SEQ_BITS != number:
                    number = key >> SEQ_BITS
                    queue, suspect = self._name_of(number) or ("", -1)
            tail = b"" if size is None else tails[at : at + size]
            at += len(tail)
            if persistent == 1 and expires is None and priority == 4 and not attempts and not again:
                sound = crc32(tail, crc32(ident.encode(), start ^ key)) == crc
            else:
                if expires is not None:
                    expires = expires[0] + expires[1] / _UNIT
                sound = crc == message_crc(
                    key, ident, destination, tail, persistent, expires, priority, attempts, again
                )
            if sound and size is not None and suspect >= 0:
                # The hot path: the class itself would take twice as long. `before` is one text for all rows.
                fixed = (queue, key & _SEQ, ident, before, tail, persistent == 1, expires, priority, attempts)
                found[key] = new(Stored, (*fixed, again == 1 or key < suspect, None, None))
            else:
                found[key] = self._one(db, key)
        return found if at == len(tails or b"") else None

    def _row(self, db: sqlite3.Connection, columns: tuple[Any, ...]) -> Stored | Bad:
        key = columns[0]
        file, special = db.execute(_FILE, (key,)).fetchone(), db.execute(_SPECIAL, (key,)).fetchone()
        row = row_of(columns, _file(file), self._bodies, special or (None, None))
        if isinstance(row, Bad):
            return row
        named = self._name_of(key >> SEQ_BITS)
        if named is None:
            return Bad(key, row.id, row.destination, "the name of its queue is lost")
        queue, suspect = named
        flags = row.persistent, row.expires, row.priority, row.attempts, row.redelivered or key < suspect
        return Stored(queue, key & _SEQ, row.id, row.destination, row.tail, *flags, row.body, row.due)


_SEQ = (1 << SEQ_BITS) - 1


def _condition(values: dict[str, Any]) -> str:
    """Return the SQL condition that keeps leftovers out of a page; empty without leftovers."""
    return "" if values["leftovers"] < 0 else f"AND {NO_LEFTOVER}"


def _of_priority(db: sqlite3.Connection, values: dict[str, Any], most: int) -> tuple[list[int], int | None]:
    """Return the first keys of a priority other than 4, and up to which one they were looked for; None for all."""
    where = _condition(values)
    values = {**values, "most": most, "examined": most + _PASSED if where else most}
    keys: list[int] = json.loads(db.execute(_OF_PRIORITY.format(where), values).fetchone()[0])
    if len(keys) == most or not where:
        return keys, None
    examined, last = db.execute(_EXAMINE_THESE, values).fetchone()
    return keys, last if examined == values["examined"] else None


def _without_leftovers(rows: Found, upto: int) -> Found:
    return {key: row for key, row in rows.items() if isinstance(row, Bad) or row.persistent or key & _SEQ > upto}


def _list(keys: list[int]) -> str:
    return ", ".join(map(str, keys))


def _file(row: tuple[Any, ...] | None) -> BodyFile | None:
    """Return the file of a body from its row with texts as bytes; None without one, or if its row is damaged."""
    if row is None or not isinstance(row[0], bytes):
        return None
    return BodyFile(row[0].decode("utf-8", "replace"), *row[1:])


def held(
    db: sqlite3.Connection, totals: Totals, leftovers: Leftovers, damage: Damage, keep_aside: Callable[[int], None]
) -> Iterator[Held]:
    """Yield every queue that holds messages. Messages that can belong to no queue are reported and kept aside."""
    values = {"leftovers": leftovers.upto}
    deferred = dict(db.execute(_DEFERRED.format(_condition(values)), values).fetchall())
    priorities = _priorities(db)
    for number in _strays(db, totals):
        _report(
            db, damage, keep_aside, number << SEQ_BITS, (number + 1 << SEQ_BITS) - 1, "the name of its queue is lost"
        )
    for number, total in list(totals.known.items()):
        base = number << SEQ_BITS
        _report(db, damage, keep_aside, base + MOST_SEQ, base + (1 << SEQ_BITS) - 1, "its row is damaged")
        first, last = db.execute(_ENDS, (base, base + MOST_SEQ - 1)).fetchone()
        if first is None or last is None or not base <= first <= last:
            continue
        left = leftovers.counts.get(number, 0)
        rows = _count(db, totals, number, total, last) - left
        if rows > 0 or not left:
            ends, others = (first - base, last - base), tuple(sorted(priorities[number]))
            yield Held(total.name, rows, deferred.get(number, 0), *ends, others, left > 0)


def _count(db: sqlite3.Connection, totals: Totals, number: int, total: Total, last: int) -> int:
    """Return how many messages a queue holds, and have it counted up to the last one from now on."""
    known = total.rows
    high = (number << SEQ_BITS) - 1 if known is None else total.high
    (new,) = db.execute(_COUNT, (high, last)).fetchone()
    rows: int = (known or 0) + new
    totals.loaded(number, known or 0, max(last, total.high), rows)
    return rows


def _strays(db: sqlite3.Connection, totals: Totals) -> Iterator[int]:
    """Yield the numbers of queues whose names are lost, though they hold messages."""
    (key,) = db.execute("SELECT min(key) FROM message").fetchone()
    while key is not None:
        number = key >> SEQ_BITS
        if number not in totals.known:
            yield number
        (key,) = db.execute(_NEXT, (number + 1 << SEQ_BITS,)).fetchone() if number < _LAST_NUMBER else (None,)


def _report(
    db: sqlite3.Connection, damage: Damage, keep_aside: Callable[[int], None], low: int, high: int, why: str
) -> None:
    """Report messages that cannot be in a queue."""
    for key, ident, destination in raw(db, _STRAY, low, high):
        damage.message(_text(ident), _text(destination), why)
        keep_aside(key)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else shown(repr(value)[:200])


def _priorities(db: sqlite3.Connection) -> dict[int, set[int]]:
    """Return the priorities other than 4 of messages that are not delayed, by queue."""
    found: dict[int, set[int]] = defaultdict(set)
    (number,) = db.execute(_NUMBER, (-1,)).fetchone()
    while number is not None:
        (priority,) = db.execute(_PRIORITY, (number, -1)).fetchone()
        while priority is not None:
            found[number].add(priority)
            (priority,) = db.execute(_PRIORITY, (number, priority)).fetchone()
        (number,) = db.execute(_NUMBER, (number,)).fetchone()
    return found
