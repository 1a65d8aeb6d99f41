"""The database file of a store: its schema, and how it is opened."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stompcodec.broker.storage.damage import Damage, shown
from stompcodec.broker.storage.folder_lock import APPLICATION, DATABASE, TABLES
from stompcodec.broker.storage.rows import SEQ_BITS, key_crc, raw, record_crc
from stompcodec.broker.storage.store import SentKey, Subscribed
from stompcodec.errors import StoreError

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
    """Return whether a database is empty, as only a `new` one may be. Raise StoreError if it is not a store of this
    version.
    """
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
