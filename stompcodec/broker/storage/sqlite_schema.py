"""The database file of a store: its schema, how it is opened, and how older versions are migrated."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stompcodec.broker.message import due_of
from stompcodec.broker.storage.folder_lock import APPLICATION, DATABASE, TABLES, is_body
from stompcodec.broker.storage.rows import INSERT_SPECIAL, Special, raw, special_of
from stompcodec.broker.storage.space import free_space
from stompcodec.broker.storage.totals import SEQ_BITS
from stompcodec.errors import StoreError

#: Step n migrates a file from version n to n + 1; a new file goes through all of them. Released steps never change.
#: The key of a message is its queue's id times 2**45 plus its seq, so messages are ordered by queue. Messages with keys
#: below `suspect` went through a crash and may have been delivered before it.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE queue (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, suspect INTEGER NOT NULL DEFAULT 0)",
        """CREATE TABLE message (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL,
            destination TEXT NOT NULL,
            tail BLOB,  -- NULL: in a file of its own
            persistent INTEGER NOT NULL,
            expires REAL,  -- seconds since 1970
            priority INTEGER NOT NULL,
            attempts INTEGER NOT NULL,
            redelivered INTEGER NOT NULL
        )""",
        "CREATE TABLE body (key INTEGER PRIMARY KEY, file TEXT NOT NULL, size INTEGER NOT NULL, crc INTEGER NOT NULL)",
        "CREATE TABLE state (clean INTEGER NOT NULL)",
        "INSERT INTO state VALUES (1)",
        "CREATE TABLE migration (version INTEGER PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    ),
    (
        """CREATE TABLE subscription (
            queue TEXT PRIMARY KEY,
            prefix TEXT NOT NULL,
            name TEXT NOT NULL,
            literal INTEGER NOT NULL,
            selector TEXT,
            shared INTEGER NOT NULL,
            auto_delete INTEGER NOT NULL
        )""",
        "ALTER TABLE state ADD COLUMN seq INTEGER NOT NULL DEFAULT 0",
    ),
    ("ALTER TABLE subscription ADD COLUMN owner TEXT",),  # NULL: made without users, or before owners were recorded
    (  # adds columns only, which is quick in a large file; NULL means never checked or counted
        "ALTER TABLE message ADD COLUMN crc INTEGER",
        "ALTER TABLE queue ADD COLUMN count INTEGER",
        "ALTER TABLE queue ADD COLUMN high INTEGER NOT NULL DEFAULT -1",
        "ALTER TABLE queue ADD COLUMN crc INTEGER",
        "ALTER TABLE subscription ADD COLUMN crc INTEGER",
        "ALTER TABLE state ADD COLUMN subscriptions INTEGER",
        "ALTER TABLE state ADD COLUMN crc INTEGER",
    ),
    (  # idempotency keys: `scope` and `key` are digests, `body` a CRC-32, `at` in ms since 1970
        """CREATE TABLE sent (
            number INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            key BLOB NOT NULL,
            body INTEGER NOT NULL,
            at INTEGER NOT NULL,
            crc INTEGER NOT NULL
        )""",
    ),
    (  # messages that are delayed, expire, are transient, or have a priority other than 4; and how far `_fill` has come
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
        "CREATE TABLE filling (after INTEGER NOT NULL)",
        "INSERT INTO filling VALUES (-1)",
    ),
)

#: The first version that is read in pages.
PAGED = 6
_PAGE = 8192
#: Seconds to wait for another program that writes to the file. The loop is blocked meanwhile.
_BUSY = 0.25
#: The versions of SQLite that mend the fault of `has_wal_fault`: the last one, and those of older lines.
_MENDED = ((3, 44, 6), (3, 50, 7), (3, 51, 3))

#: Messages examined in one transaction, and after how many progress is logged.
_SHARE, _TOLD = 20_000, 1_000_000
#: A WAL of this many bytes is copied into the database.
_WAL = 2**24
#: Bytes of a row in the table and in its indexes; they are needed in the database and in the WAL.
_ENTRY = 2 * 120
#: Bytes read of a file that holds a large message, to find its headers.
_HEAD = 2**18

_MAYBE = """(expires IS NOT NULL OR priority <> 4 OR persistent = 0 OR tail IS NULL
    OR instr(tail, CAST('deliver-at:' AS BLOB)))"""
_COUNT = f"SELECT count(*), total({_MAYBE}) FROM message"
_END = f"SELECT max(key) FROM (SELECT key FROM message WHERE key > ? ORDER BY key LIMIT {_SHARE})"
_CANDIDATES = f"""SELECT message.key, tail, persistent, expires, priority, file
    FROM message LEFT JOIN body ON body.key = message.key WHERE message.key > ? AND message.key <= ? AND {_MAYBE}"""

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


def open_database(path: Path, *, new: bool = False, log: logging.Logger | None = None) -> sqlite3.Connection:
    """Connect to the file, and migrate it to the newest version. If it is `new`, create the tables if there are none.

    Transactions are begun and ended explicitly. Each commit is on the disk when it returns. Only explicit checkpoints
    copy the WAL into the database. Raise StoreError if the file is not a store, lacks its tables, belongs to a newer
    version, or cannot be used.
    """
    try:
        connection = connect(path)
    except sqlite3.Error as error:
        raise fault(f"{path} cannot be opened", error) from error
    try:
        _check(connection, path, new)  # first, so that a foreign database is not changed
        _prepare(connection)
        _migrate(connection, path, log or logging.getLogger("stompcodec.broker"))
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise fault(f"{path} cannot be opened", error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA page_size = {_PAGE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # applies to new files only
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA cache_size = -16384")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA trusted_schema = OFF")


def _check(connection: sqlite3.Connection, path: Path, new: bool) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    version = _version(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if application != APPLICATION and (application or version or tables):
        raise StoreError(f"{path} is not a stompcodec store (name another data folder)")
    missing = [name for name in TABLES if name not in tables]
    if missing and not (new and not version and not tables):
        raise StoreError(
            f"{path} lacks the tables {', '.join(missing)} (restore the data folder from a backup; to start over, "
            "name another folder)"
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} has version {version}, but this broker supports at most {len(MIGRATIONS)} (install a newer one)"
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path, log: logging.Logger) -> None:
    """Migrate step by step. Each step is one transaction, so a fault leaves a file of a known version."""
    before = _version(connection)
    if 0 < before < PAGED:
        _look_ahead(connection, path, log)
    for version in range(before, len(MIGRATIONS)):
        with _transaction(connection):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute("INSERT INTO migration (version) VALUES (?)", (version + 1,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'filling'").fetchone() is not None:
        _fill(connection, path, log, before >= PAGED)


# ---- version 6: rows for the table `special` ----
#
# The file has version 6 from the beginning of this migration, so that no older broker writes to it in between. The
# table `filling` exists until everything is done, and says how far it is. All transactions are short, and a migration
# that was interrupted at any moment continues with the next start.


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write in one transaction, which is rolled back after an error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _look_ahead(db: sqlite3.Connection, path: Path, log: logging.Logger) -> None:
    """Log how much free space the migration needs, as a warning: others are not shown by default. Raise StoreError if
    the disk has less.
    """
    if db.execute("SELECT 1 FROM message LIMIT 1").fetchone() is None:
        return
    log.info("%s: counting the messages to be migrated to version 6", path)
    count, candidates = db.execute(_COUNT).fetchone()
    needed, free = int(_ENTRY * candidates) + 2 * _WAL, free_space(path.parent)
    log.warning(
        "%s: migrating %d messages to version 6, which needs %d bytes of free space (%d are free); older brokers will "
        "refuse the folder",
        *(path, count, needed, free),
    )
    if needed > free:
        raise StoreError(
            f"{path} holds {count} messages, and its migration to version 6 needs {needed} bytes of free space, but "
            f"{free} are free on the disk (free {needed - free} more; nothing was changed)"
        )


def _fill(db: sqlite3.Connection, path: Path, log: logging.Logger, continues: bool) -> None:
    """Do what is left of the migration: a share of the messages in each transaction."""
    (after,) = db.execute("SELECT after FROM filling").fetchone()
    examined = 0
    if continues:
        log.warning("%s: the migration to version 6 was interrupted, and continues", path)
    while (end := db.execute(_END, (after,)).fetchone()[0]) is not None:
        with _transaction(db):
            found = (_special(path.parent / "bodies", columns) for columns in raw(db, _CANDIDATES, after, end))
            db.executemany(INSERT_SPECIAL, [row for row in found if row is not None])
            db.execute("UPDATE filling SET after = ?", (end,))
        after = end
        _checkpoint(db, path)
        examined += _SHARE
        if examined % _TOLD == 0:
            log.warning("%s: the migration has examined %d messages", path, examined)
    with _transaction(db):
        db.execute("DROP TABLE filling")
    if examined or continues:
        log.warning("%s: the migration to version 6 is complete", path)


def _special(bodies: Path, columns: tuple[Any, ...]) -> Special | None:
    """Return the row of a message for the table `special`; None if it needs none, or is damaged."""
    key, tail, persistent, expires, priority, file = columns
    with suppress(AttributeError, OSError, TypeError, ValueError):  # damage is reported when the message is read
        if tail is None and is_body(file.decode()):
            with open(bodies / file.decode(), "rb") as stream:
                tail = stream.read(_HEAD)
        return special_of(key, due_of(tail), expires, priority, persistent)
    return None


def _checkpoint(db: sqlite3.Connection, path: Path) -> None:
    """Copy a long WAL into the database."""
    with suppress(OSError):
        if os.stat(f"{path}-wal").st_size > _WAL:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
