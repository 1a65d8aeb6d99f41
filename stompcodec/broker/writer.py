"""The disk's side of a store: batches into the SQLite file and into files of large bodies, and all of it back."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from stompcodec.broker.bodies import Bodies, BodyFile
from stompcodec.broker.folder import DATABASE, FolderLock, examine_data, mark
from stompcodec.broker.schema import fault, is_passing, open_database
from stompcodec.broker.store import Storable, Subscribed
from stompcodec.errors import StoreError
from stompcodec.file_access import PRIVATE, Access, create, guard

__all__ = ["SEQ_BITS", "Batch", "Writer", "is_large"]

#: Bits of a key that hold the seq of a message; above them is the number of its queue.
SEQ_BITS = 45
#: Octets from which on a tail is a file of its own.
_LARGE = 65536
#: Octets in the WAL, roughly, from which on it is taken over into the database.
_WAL = 16 * 2**20
#: Seconds. Single commits that take longer come on the fastest disk.
_LONG = 0.002
#: Octets that go into the WAL beside the tails, roughly: for each row, and for each commit.
_ROW, _COMMIT = 200, 16384

#: Rows that one statement writes, and how many make it worth while.
_GROUP, _MANY = 64, 256
_INSERT = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERTS = _INSERT + ", (?, ?, ?, ?, ?, ?, ?, ?, ?)" * (_GROUP - 1)
_DELETE = "DELETE FROM message WHERE key = ?"
_DELETES = f"DELETE FROM message WHERE key IN (?{', ?' * (_GROUP - 1)})"
_GET = (
    "SELECT key, id, destination, tail, persistent, expires, priority, attempts, redelivered FROM message ORDER BY key"
)
_OF_QUEUE = f"SELECT {{1}} FROM message WHERE key >= {{0}} << {SEQ_BITS} AND key < ({{0}} + 1) << {SEQ_BITS} LIMIT 1"
_HOLDS = _OF_QUEUE.format(":number", 1)


class Batch:
    """What one transaction writes. Messages are known by their keys, queues by numbers.

    >>> batch = Batch()
    >>> batch.removes[1 << SEQ_BITS] = None
    >>> len(batch)
    1
    """

    def __init__(self) -> None:
        self.puts: dict[int, Storable] = {}
        self.removes: dict[int, None] = {}
        self.updates: dict[int, Storable] = {}
        #: Queues to register, by name, and numbers of queues to forget.
        self.queues: dict[str, int] = {}
        self.dropped: list[int] = []
        #: Durable subscriptions by the keys of their queues, None for one that is gone; and the seq to reserve.
        self.subscriptions: dict[str, Subscribed | None] = {}
        self.reserved: int | None = None
        #: Files of large bodies: written for this batch, and useless after it.
        self.written: dict[int, BodyFile] = {}
        self.obsolete: list[str] = []
        #: The one row that is all of it: the statement that ends the transaction is the transaction.
        self.single: tuple[object, ...] | None = None

    def __len__(self) -> int:
        beside = len(self.subscriptions) + (self.reserved is not None)
        return len(self.puts) + len(self.removes) + len(self.updates) + beside

    @property
    def is_single(self) -> bool:
        """One small message is all of it."""
        if len(self.puts) != 1 or len(self) != 1 or self.queues or self.dropped:
            return False
        return not any(map(is_large, self.puts.values()))


class Writer:
    """The files of a store. Used by one thread at a time, whichever.

    Args:
        folder: made if it is missing.
        log: where it is told what cannot be raised.
        clock: the time in seconds, by which commits are measured.
        access: rights of the files, and of the folder, if it is made.

    Raises:
        StoreError: the folder is in use, of a newer version, holds what is not ours, or cannot be used.
    """

    def __init__(
        self, folder: Path, log: logging.Logger, clock: Callable[[], float] = perf_counter, access: Access = PRIVATE
    ) -> None:
        self._log = log
        self._clock = clock
        self._path = folder / DATABASE
        self._access = access
        self._db: sqlite3.Connection | None = None
        self._wal = 0
        #: Keys of a batch whose COMMIT failed. On the disk it may be whole, and be found there.
        self._doubtful: list[int] = []
        #: How long commits take, in seconds: a moving mean, in which none counts for more than `_LONG`.
        self.pace = 0.0
        #: Most of the WAL is in the database already: a checkpoint has little left to do.
        self.copied = False
        examine_data(folder)
        self._lock = FolderLock(folder, access=access)
        try:
            self._bodies = Bodies(folder / "bodies", access)
            self._db = self._opened()
            mark(folder, "data", access)
            self._read_state(self._db)
        except (OSError, sqlite3.Error) as error:
            self._let_go()
            raise fault(f"the data folder {folder} cannot be used", error) from error
        except StoreError:
            self._let_go()
            raise

    def _opened(self) -> sqlite3.Connection:
        """The database, whose files have their rights: SQLite gives a WAL those of the database."""
        with suppress(FileExistsError):
            os.close(create(self._path, os.O_RDWR | os.O_EXCL, self._access))
        files = [f"{self._path}{end}" for end in ("", "-wal", "-shm")]
        for file in files:
            guard(file, self._access)
        db = open_database(self._path)
        for file in files[1:]:  # their group is SQLite's business only where it runs as root
            guard(file, self._access)
        return db

    def _read_state(self, db: sqlite3.Connection) -> None:
        #: The last user of the folder did not close it.
        self.unclean = not db.execute("SELECT clean FROM state").fetchone()[0]
        db.execute("UPDATE state SET clean = 0")
        db.execute(f"DELETE FROM queue WHERE NOT EXISTS ({_OF_QUEUE.format('queue.id', 1)})")
        if self.unclean:
            db.execute(f"UPDATE queue SET suspect = ({_OF_QUEUE.format('queue.id', 'max(key) + 1')})")
        #: Numbers by name, of queues that hold something.
        self.queues: dict[str, int] = dict(db.execute("SELECT name, id FROM queue").fetchall())
        #: By number: below that key, messages went through a crash.
        self.suspects: dict[int, int] = dict(db.execute("SELECT id, suspect FROM queue").fetchall())
        self.mark: int = db.execute("SELECT seq FROM state").fetchone()[0]
        self._files = {key: BodyFile(*rest) for key, *rest in db.execute("SELECT key, file, size, crc FROM body")}
        self._bodies.sweep({body.file for body in self._files.values()})

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Key, id, destination, tail, body, persistent, expires, priority, attempts and redelivered of each message.

        The body is None where the tail holds it. The tail is None where a file is gone or torn.

        Raises:
            StoreError: something cannot be read.
        """
        assert self._db is not None
        try:
            for key, ident, destination, tail, *rest in self._db.execute(_GET):
                file, body = self._files.get(key), None
                if tail is None:
                    tail = self._bodies.read(file) if file is not None else None
                elif file is not None:
                    body = self._bodies.body(file)
                    tail = tail if body is not None else None
                yield key, ident, destination, tail, body, *rest
        except sqlite3.Error as error:
            raise fault(f"{self._path} cannot be read", error) from error

    def subscriptions(self) -> list[Subscribed]:
        """All durable subscriptions.

        Raises:
            StoreError: they cannot be read.
        """
        assert self._db is not None
        try:
            rows = self._db.execute(
                "SELECT queue, prefix, name, literal, selector, shared, auto_delete, owner "
                "FROM subscription ORDER BY queue"
            ).fetchall()
        except sqlite3.Error as error:
            raise fault(f"{self._path} cannot be read", error) from error
        return [
            Subscribed(queue, prefix, name, bool(literal), selector, bool(shared), bool(auto_delete), owner)
            for queue, prefix, name, literal, selector, shared, auto_delete, owner in rows
        ]

    def holds(self, number: int) -> bool:
        """Whether a queue may have messages. Not to be asked between `write` and `commit`."""
        try:
            return self._db is None or self._db.execute(_HOLDS, {"number": number}).fetchone() is not None
        except sqlite3.Error:
            return True

    def write(self, batch: Batch) -> StoreError | None:
        """The rows of a batch, in a transaction that stays open. After an error there is none, and nothing is kept.

        A batch of one message, which is what a sender that waits for each receipt makes, is left to `commit`: a
        transaction of one statement needs no BEGIN and no COMMIT.
        """
        try:
            if self._db is None:
                self._db = self._opened()
            if self._doubtful:
                self._clear_doubts(self._db)
            if batch.is_single:
                (batch.single,) = self._rows(batch)
                self._wal += _COMMIT + _ROW
            else:
                self._write(batch, self._db)
        except Exception as error:
            return self._undo(batch, error)
        return None

    def _clear_doubts(self, db: sqlite3.Connection) -> None:
        """Takes out what a COMMIT may have written although it failed, before any other batch comes into doubt."""
        db.execute("BEGIN IMMEDIATE")
        db.executemany("DELETE FROM message WHERE key = ?", zip(self._doubtful))
        db.executemany("DELETE FROM body WHERE key = ?", zip(self._doubtful))
        db.execute("COMMIT")
        self._doubtful = []

    def _write(self, batch: Batch, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        if batch.dropped:
            db.executemany("DELETE FROM queue WHERE id = ?", zip(batch.dropped))
        if batch.queues:
            db.executemany("INSERT OR REPLACE INTO queue (name, id) VALUES (?, ?)", batch.queues.items())
        if batch.removes:
            _execute(db, _DELETE, _DELETES, [(key,) for key in batch.removes])
            if self._files:
                large = [key for key in batch.removes if key in self._files]
                batch.obsolete = [self._files[key].file for key in large]
                db.executemany("DELETE FROM body WHERE key = ?", zip(large))
        if batch.puts:
            _execute(db, _INSERT, _INSERTS, self._rows(batch))
        if batch.written:
            db.executemany(
                "INSERT INTO body VALUES (?, ?, ?, ?)", [(key, *file) for key, file in batch.written.items()]
            )
            self._bodies.sync()
        if batch.updates:
            rows = [(message.attempts, message.redelivered, key) for key, message in batch.updates.items()]
            db.executemany("UPDATE message SET attempts = ?, redelivered = ? WHERE key = ?", rows)
        for queue, subscription in batch.subscriptions.items():
            db.execute("DELETE FROM subscription WHERE queue = ?", (queue,))
            if subscription is not None:
                db.execute("INSERT INTO subscription VALUES (?, ?, ?, ?, ?, ?, ?, ?)", subscription)
        if batch.reserved is not None:
            db.execute("UPDATE state SET seq = ?", (batch.reserved,))
        self._wal += _COMMIT + _ROW * len(batch)

    def _rows(self, batch: Batch) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = [
            (
                key,
                put.id,
                put.destination,
                put.tail,
                put.persistent,
                put.expires,
                put.priority,
                put.attempts,
                put.redelivered,
            )
            for key, put in batch.puts.items()
        ]
        sizes = [len(put.tail) for put in batch.puts.values()]
        self._wal += sum(sizes)
        if max(sizes) >= _LARGE or any(put.body is not None for put in batch.puts.values()):
            for at, (key, put) in enumerate(batch.puts.items()):
                if put.body is not None:  # beside the row, whose tail is without
                    batch.written[key] = self._bodies.adopt(put.body)
                elif sizes[at] >= _LARGE:  # instead of the tail in the row
                    batch.written[key] = self._bodies.write(put.tail)
                    rows[at] = (*rows[at][:3], None, *rows[at][4:])
                    self._wal -= sizes[at]
        return rows

    def commit(self, batch: Batch) -> StoreError | None:
        """Ends the transaction that `write` left open. After an error nothing of it is kept."""
        assert self._db is not None
        start = self._clock()
        try:
            if batch.single is None:
                self._db.execute("COMMIT")
            else:
                self._db.execute(_INSERT, batch.single)
        except Exception as error:
            self._doubtful = list(batch.puts)
            return self._undo(batch, error)
        self.pace += (min(self._clock() - start, _LONG) - self.pace) / 8
        for key in batch.removes:
            self._files.pop(key, None)
        self._files.update(batch.written)
        for file in batch.obsolete:
            self._bodies.discard(file)
        if batch.reserved is not None:
            self.mark = batch.reserved
        return None

    def _undo(self, batch: Batch, error: Exception) -> StoreError:
        for body in batch.written.values():
            self._bodies.discard(body.file)
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")
            healthy = is_passing(error)
        except sqlite3.Error:
            healthy = False
        if not healthy:  # the connection may remember pages that it misread: the next batch begins with a new one
            self._disconnect()
        return error if isinstance(error, StoreError) else fault("nothing could be stored", error)

    @property
    def due(self) -> bool:
        """The WAL is long enough for a checkpoint."""
        return self._wal >= _WAL

    def copy(self) -> None:
        """Takes what the WAL holds so far over into the database, while another thread may go on with commits.

        What they add remains, so the WAL goes on; `checkpoint` then takes the rest over, which is little.
        """
        try:
            with closing(sqlite3.connect(self._path, isolation_level=None)) as other:
                other.execute("PRAGMA synchronous = FULL")
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            self._log.warning("%s", fault(f"{self._path}-wal cannot be taken over", error))
        self.copied = True

    def checkpoint(self) -> None:
        """Takes the WAL over into the database, so that it starts again from its beginning. Takes its time."""
        self._wal = 0
        self.copied = False
        if self._db is None:
            return
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:  # nothing is lost; if it lasts, commits fail, and tell those who wait
            self._log.warning("%s", fault(f"{self._path}-wal grows, for it cannot be taken over", error))

    def flush(self) -> None:
        """Wait until the files of large bodies that nobody needs are gone."""
        self._bodies.flush()

    def close(self) -> None:
        """Says that all ended well, and lets go of the folder.

        Raises:
            StoreError: that could not be written. The folder is let go.
        """
        try:
            if self._db is not None:
                self._db.execute("UPDATE state SET clean = 1")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise fault(f"{self._path} was not closed cleanly", error) from error
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._disconnect()
        bodies: Bodies | None = self.__dict__.get("_bodies")
        if bodies is not None:
            bodies.close()
        self._lock.release()

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None


def _execute(db: sqlite3.Connection, one: str, group: str, rows: list[tuple[object, ...]]) -> None:
    """Like executemany; many rows are written in groups. That takes a little longer, but Python lets go of the GIL for
    each statement, and when the loop is busy, the helper has to wait for it as often.
    """
    at, many = 0, len(rows) >= _MANY
    while many and len(rows) - at >= _GROUP:
        db.execute(group, tuple(chain.from_iterable(rows[at : at + _GROUP])))
        at += _GROUP
    if at < len(rows):
        db.executemany(one, rows[at:])


def is_large(message: Storable) -> bool:
    """Whether it has a file of its own, or gets one, which takes its time."""
    return len(message.tail) >= _LARGE or message.body is not None
