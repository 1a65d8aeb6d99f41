"""The database file of a store: its schema, how it is opened, and how older versions are migrated."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stompcodec.broker.storage.folder_lock import APPLICATION, TABLES
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
)

_PAGE = 8192
#: Seconds to wait for another program that writes to the file. The loop is blocked meanwhile.
_BUSY = 0.25

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


def is_transient(error: Exception) -> bool:
    """Return whether an error leaves the connection usable: the disk is full, or the file is locked.

    >>> [is_transient(sqlite3.OperationalError(said)) for said in ("database is locked", "disk I/O error")]
    [True, False]
    """
    return isinstance(error, OSError) or any(sign in str(error) for sign in ("full", "locked"))


def open_database(path: Path, *, new: bool = False) -> sqlite3.Connection:
    """Connect to the file, and migrate it to the newest version. If it is `new`, create the tables if there are none.

    Transactions are begun and ended explicitly. Each commit is on the disk when it returns. Only explicit checkpoints
    copy the WAL into the database. Raise StoreError if the file is not a store, lacks its tables, belongs to a newer
    version, or cannot be used.
    """
    try:
        connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise fault(f"{path} cannot be opened", error) from error
    try:
        _check(connection, path, new)  # first, so that a foreign database is not changed
        _prepare(connection)
        _migrate(connection)
    except sqlite3.Error as error:
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


def _migrate(connection: sqlite3.Connection) -> None:
    """Migrate step by step. Each step is one transaction, so a fault leaves a file of a known version."""
    for version in range(_version(connection), len(MIGRATIONS)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute("INSERT INTO migration (version) VALUES (?)", (version + 1,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
