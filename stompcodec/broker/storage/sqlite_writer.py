"""The disk side of a store: one connection to SQLite, with its faults.

It writes batches to the SQLite file and to the files of large bodies, and reads them.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import get_ident
from time import perf_counter
from typing import Any
from zlib import crc32

from stompcodec.broker.message import Message
from stompcodec.broker.storage.folder import (
    DATABASE,
    Damage,
    FolderLock,
    HelperThread,
    Places,
    Reserve,
    StoreGone,
    examine_data,
    examine_wal,
    free_space,
    is_full,
    kind_of,
    mark,
)
from stompcodec.broker.storage.large import Bodies, BodyFile, BodyFolder, Copies, copy
from stompcodec.broker.storage.sqlite_reader import NameOf, Reader, held
from stompcodec.broker.storage.store import CallSoon, Done, Held, SentKey, Storable, Subscribed
from stompcodec.broker.storage.tables import (
    COLUMNS,
    CRC,
    INSERT_SPECIAL,
    LARGE,
    MOST_SEQ,
    NO_LEFTOVER,
    SEQ_BITS,
    Batch,
    Leftovers,
    Row,
    Share,
    State,
    Total,
    Totals,
    connect,
    delete,
    execute,
    fault,
    inserts,
    is_transient,
    message_crc,
    open_database,
    raw,
    read_keys,
    read_subscriptions,
    record_crc,
    row_of,
    shifted,
    special_of,
    start_crc,
    write_keys,
    write_subscription,
)
from stompcodec.disk import PRIVATE, Access, create, guard, make_folder, sync, sync_folder
from stompcodec.errors import StoreError

#: Keys are less.
_FAR = 2**63
#: Approximate size of the WAL, in bytes, at which it is copied into the database.
_WAL = 16 * 2**20
#: The value of PRAGMA auto_vacuum for a file that gives pages back a few at a time.
_INCREMENTAL = 2
#: Free pages to keep in the file, and pages to give back in one step, which is a commit of at most 1 MiB.
_SPARE, _PER_STEP = 128, 128
#: With less free space than `_NEAR`, a WAL longer than `_SHORT` is copied at once, and truncated when the disk is idle:
#: copying makes the database longer, and must fit into the reserve when the disk is full. With enough space it stays as
#: long as it is, up to 2 * `_WAL`: a commit that makes a file longer also writes the file system's journal.
_SHORT = 2**20
_NEAR = 8 * _WAL
#: Seconds that one commit counts for in `pace` at most: even the fastest disk has outliers.
_LONG = 0.002
#: From this pace on, the time for which the thread waited for a CPU is read and left out of `pace`: beside processes
#: that compute, the disk would seem to be slow. Below it, reading that would only cost CPU.
_DOUBTED = 0.0002
#: Run time and time in the line for a CPU, both in ns, and number of time slices of the thread that reads it.
_SCHEDULED = "/proc/thread-self/schedstat"
#: Approximate bytes that go into the WAL besides the tails: per row, and per commit.
_ROW, _COMMIT = 200, 16384

_ROW_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT, _INSERTS = inserts(_ROW_VALUES)
#: A plain message: persistent, priority 4, no expiry, never delivered. Constants in SQL spare their binding.
_PLAIN = "(?, ?, ?, ?, 1, NULL, 4, 0, 0, ?)"
_INSERT_PLAIN, _INSERTS_PLAIN = inserts(_PLAIN)
_PLAIN_COLUMNS = _INSERT_PLAIN.count("?")
#: The module sqlite3 looks for an adapter of bytes, but not of a bytearray. Up to this size the copy takes less time.
_COPIED = 4096
_UPDATE = f"UPDATE message SET attempts = ?, redelivered = ?, crc = (crc & {CRC}) | ? WHERE key = ?"
_LIVE = NO_LEFTOVER.replace("persistent", "message.persistent").replace(":leftovers", "?")
_GET = f"""SELECT {COLUMNS}, due, special.crc FROM message LEFT JOIN special USING (key)
    WHERE message.key BETWEEN ? AND ? AND {_LIVE} ORDER BY message.key"""
#: Leftovers removed in one transaction.
_LEFTOVERS = 4000
_OF_QUEUE = f"SELECT {{1}} FROM message WHERE key >= {{0}} << {SEQ_BITS} AND key < ({{0}} + 1) << {SEQ_BITS} LIMIT 1"
_HOLDS = _OF_QUEUE.format(":number", 1)


class Writer:
    """The files of a store. Any thread may use it, but only one at a time. Its arguments and errors are those of
    `SqliteStore`; `helper` removes the files of large bodies.
    """

    #: Some durable subscriptions could not be read. It is the class's until it is set: CPython takes longer for objects
    #: of 30 attributes or more.
    incomplete = False

    def __init__(
        self,
        folder: Path,
        log: logging.Logger,
        clock: Callable[[], float] = perf_counter,
        access: Access = PRIVATE,
        helper: HelperThread | None = None,
        reserve: int = 0,
    ) -> None:
        self._log = log
        self._timer = Timer(clock)
        self._path = folder / DATABASE
        self._access = access
        self._db: sqlite3.Connection | None = None
        self._wal = 0
        self.damage = Damage(log)
        self.totals = Totals(self.damage)
        #: Number of batches that have failed.
        self.failures = 0
        #: Keys of a batch whose COMMIT failed. The batch may be on the disk all the same.
        self._doubtful: list[int] = []
        self._doubtful_keys: list[int] = []
        #: Moving average of the commit time in seconds, without waiting for a CPU. A single commit counts for at most
        #: `_LONG`.
        self.pace = 0.0
        #: Bytes of messages written, to the database or to files of their own.
        self.written = 0
        #: Pages were freed: the file gets shorter at the next checkpoint.
        self._gave_back = False
        #: Number of committed batches.
        self.commits = 0
        #: Jobs that the helper has finished.
        self.ended = 0
        examine_data(folder)
        self._lock = FolderLock(folder, access=access)
        self._places = Places(self._path)
        #: Why nothing more can be stored; None while the files are where they were opened.
        self._lost: StoreGone | None = None
        self._open_folder(folder, reserve, helper)

    def _open_folder(self, folder: Path, reserve: int, helper: HelperThread | None) -> None:
        try:
            self._reserve = Reserve(folder / "reserve", self._access, reserve)
            if reserve and free_space(folder) < reserve:
                self._reserve.release()  # otherwise the broker could not start
            self._bodies = Bodies(folder / "bodies", self._access, helper)
            self._examine_wal()
            self._db = self._opened(new=kind_of(folder) is None)
            mark(folder, "data", self._access)
            self._reserve.take()
            self._read_state(self._db)
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise fault(f"the data folder {folder} cannot be used", error) from error
        except StoreError:
            self._release()
            raise

    def _opened(self, *, new: bool = False) -> sqlite3.Connection:
        """Open the database, or create it. SQLite gives the WAL the permissions of the database."""
        if new:
            with suppress(FileExistsError):
                os.close(create(self._path, os.O_RDWR | os.O_EXCL, self._access))
        elif (lost := self.look()) is not None:
            raise lost
        elif not self._path.exists():
            raise StoreError(f"{self._path} is missing (stop the broker, and restore the data folder from a backup)")
        files = [f"{self._path}{end}" for end in ("", "-wal", "-shm")]
        for file in files:
            guard(file, self._access)
        db = open_database(self._path, new=new)
        for file in files[1:]:  # SQLite sets their group only if it runs as root
            guard(file, self._access)
        self._places.note()
        return db

    def look(self) -> StoreError | None:
        """Return an error if the database, its WAL, or the folder of bodies is not at its path any more: what is
        written to it would not be found by the next broker. From then on, nothing can be stored.
        """
        with suppress(OSError):  # unknown: commits fail on that
            self._look()
        return self._lost

    def _look(self) -> StoreError | None:
        """Look as `look` does. Raise OSError if it is unknown what is at a path."""
        if self._lost is None:
            gone = self._places.gone()
            if gone is None and not self._bodies.folder.is_there():
                gone = str(self._bodies.folder.path)
            if gone is not None:
                self._lose(gone)
        return self._lost

    def _lose(self, gone: str) -> StoreError:
        aside = None
        with suppress(OSError):
            aside = self._places.put_aside()
        more = "" if aside is None else f"; what was not in it yet is in {aside}, for the replaced file only"
        self._lost = StoreGone(
            f"{gone} was removed or replaced while the broker used it: what was stored is not there any more{more} "
            "(restore the data folder from a backup, or put its files back, and start the broker again)"
        )
        return self._lost

    @property
    def leftovers(self) -> Leftovers:
        """The transient messages of earlier runs."""
        return self.totals.leftovers

    def _examine_wal(self) -> None:
        """Check the WAL that the last broker left, before SQLite recovers what it can from it."""
        path = self._path.with_name(f"{self._path.name}-wal")
        wal = examine_wal(path)
        if wal.lost:
            aside = path.with_name(f"{path.name}.damaged")
            with suppress(OSError), open(path, "rb") as source:
                target = create(aside, os.O_WRONLY | os.O_TRUNC, self._access)
                with open(target, "wb") as copy:
                    shutil.copyfileobj(source, copy)
            self.damage.found(
                f"{path} has a bad frame after {len(wal.taken)} good ones: {wal.lost} transactions or more behind it"
                f" are lost (a copy is in {aside.name})"
            )
        elif wal.torn:
            self._log.warning(
                "%s: the last transaction is incomplete, after a power cut or damage, and is ignored", path
            )

    def _read_state(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT clean, seq, subscriptions, crc FROM state").fetchone()
        if row is None:
            db.execute("INSERT INTO state VALUES (0, 0, NULL, 0)")
            row = 0, 0, None, 0
        clean, seq, count, crc = row
        if crc != record_crc(clean, seq, count):
            self.damage.found("the table of the store's state, which says how the last broker ended")
            clean, count = 0, None
        #: The folder was not closed by its last user.
        self.unclean = not clean
        self._state = State(0, int(seq), count)
        rows = raw(db, "SELECT id, name, suspect, count, high, crc FROM queue")
        db.execute("BEGIN IMMEDIATE")
        self._write_state(db, self._state)
        self.totals.read(db, rows, self.unclean)
        db.execute("COMMIT")
        totals = self.totals.known
        #: Numbers of the queues that hold messages, by name.
        self.queues: dict[str, int] = {total.name: number for number, total in totals.items()}
        #: For each queue number, messages with lower keys went through a crash.
        self.suspects: dict[int, int] = {number: total.suspect for number, total in totals.items()}
        self.leftovers.find(db)
        self.mark: int = max(self._state.seq, self.leftovers.upto)
        self._files = {
            key: BodyFile(file.decode("utf-8", "replace"), size, crc)
            for key, file, size, crc in raw(db, "SELECT key, file, size, crc FROM body")
            if isinstance(file, bytes)
        }
        #: Numbers of the queues that may have rows in the table `special`.
        self._special = set(_numbers(db))
        names = {body.file for body in self._files.values()}
        if names <= set(self._bodies.folder.names()):  # otherwise a damaged name may mean one of the files
            self._bodies.folder.sweep(names)

    def _write_state(self, db: sqlite3.Connection, state: State) -> None:
        db.execute("UPDATE state SET clean = ?, seq = ?, subscriptions = ?, crc = ?", (*state, record_crc(*state)))

    def rows(self, base: int | None = None) -> Iterator[Row]:
        """Yield each message, or each of the queue whose least key is `base`, in the order of keys. Damaged ones are
        reported and left in the file. Raise StoreError if the database cannot be read.
        """
        assert self._db is not None
        number = last = high = bound = -1
        count = counted = 0
        damage, totals = self.damage, self.totals
        try:
            low, far = (-_FAR, _FAR - 1) if base is None else (base, base + (1 << SEQ_BITS) - 1)
            for columns in raw(self._db, _GET, low, far, self.leftovers.upto):
                key = columns[0]
                if key <= last:
                    damage.found("the order of the messages: some may be missing, and others come twice")
                    continue
                last = key
                if key >> SEQ_BITS != number:
                    self._loaded(number, counted, high, count)
                    number = key >> SEQ_BITS
                    count = counted = 0
                    total = totals.known.get(number)
                    bound = -1 if total is None else total.high
                high = key
                count += 1
                counted += key <= bound
                row = self._row(columns)
                if row is None:
                    self.keep_aside(key)
                else:
                    yield row
            self._loaded(number, counted, high, count)
        except sqlite3.Error as error:
            raise fault(f"{self._path} cannot be read", error) from error

    def _loaded(self, number: int, count: int, high: int, all_of_it: int) -> None:
        """Compare the total of a queue with what was read of it, unless leftovers were passed over."""
        if number not in self.leftovers.counts:
            self.totals.loaded(number, count, high, all_of_it)

    def held(self) -> Iterator[Held]:
        """Yield every queue that holds messages. Raise StoreError if the database cannot be read."""
        assert self._db is not None
        try:
            yield from held(self._db, self.totals, self.leftovers, self.damage, self.keep_aside)
        except sqlite3.Error as error:
            raise fault(f"{self._path} cannot be read", error) from error

    def _row(self, columns: tuple[Any, ...]) -> Row | None:
        """Return a message, or None if it is damaged, which is reported."""
        row = row_of(columns[:-2], self._files.get(columns[0]), self._bodies.folder.path, columns[-2:])
        if isinstance(row, Row):
            return row
        self.damage.message(row.id, row.destination, row.why)
        return None

    def keep_aside(self, key: int) -> None:
        """Leave a damaged row in the file, and do not use its key again."""
        self.totals.aside.setdefault(key >> SEQ_BITS, set()).add(key)
        seq = key & (1 << SEQ_BITS) - 1
        if seq < MOST_SEQ:
            self.mark = max(self.mark, seq)

    def subscriptions(self) -> list[Subscribed]:
        """Return all durable subscriptions, or raise StoreError. Damaged ones are reported and left in the file."""
        assert self._db is not None
        try:
            found, rows = read_subscriptions(self._db, self.damage)
        except sqlite3.Error as error:
            raise fault(f"{self._path} cannot be read", error) from error
        self.incomplete = self.incomplete or len(found) < rows
        count = self._state.subscriptions
        if count is not None and count != rows:
            self.incomplete = True
            self.damage.found(f"{count - rows} durable subscriptions are missing")
        return found

    def keys(self) -> Iterator[SentKey]:
        """Yield each idempotency key, by number. Damaged ones are reported. Raise StoreError if they cannot be read."""
        assert self._db is not None
        try:
            yield from read_keys(self._db, self.damage)
        except sqlite3.Error as error:
            raise fault(f"{self._path} cannot be read", error) from error

    def reader(self, name_of: NameOf) -> Reader:
        return Reader(self._path, self._bodies.folder.path, name_of, self.leftovers, self._places)

    def backup(self, new: Path) -> int:
        """Copy what is committed to a new data folder, and return the bytes of its database. Unlike the others, this
        method may be called in one thread while another one uses the writer. Raise StoreError if it fails.
        """
        if os.path.lexists(new):
            raise StoreError(f"{new} exists already (name a folder that does not)")
        if not new.parent.is_dir():
            raise StoreError(f"{new.parent} does not exist (make that folder, or mount its disk)")
        part, bodies, access = new.with_name(f".{new.name}.{os.urandom(4).hex()}"), self._bodies.folder, self._access
        target = part / DATABASE
        try:
            make_folder(part, access)
            copied = BodyFolder(part / "bodies", access)
            bodies.copies = copies = Copies(copied)
            try:
                bodies.copy_all()
                os.close(create(target, os.O_WRONLY | os.O_EXCL, access))
                with closing(connect(self._path, reads=True)) as db:
                    db.execute("VACUUM INTO ?", (str(target),))
                bodies.copy_all()  # those that came meanwhile; those that went were kept as they were removed
                for path in [] if copies.error is not None else list(copied.path.iterdir()):
                    if path.stat().st_nlink > 1:  # a fault of the disk must not damage the backup, too
                        os.replace(copy(path, copied, copied.new_name()), path)
            finally:
                bodies.copies = None
                copied.close()
            if (error := copies.error or self._lost) is not None:
                raise error
            for path in (target, *copied.path.iterdir()):
                with open(path, "rb") as file:
                    sync(file.fileno())
            sync_folder(copied.path)
            mark(part, "data", access)
            os.rename(part, new)
            sync_folder(new.parent)
        except (OSError, sqlite3.Error, StoreError) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise error if isinstance(error, StoreError) else fault(f"{new} cannot be made", error) from error
        return (new / DATABASE).stat().st_size

    def holds(self, number: int) -> bool:
        """Return whether a queue may have messages. Must not be called between `write` and `commit`."""
        try:
            return self._db is None or self._db.execute(_HOLDS, {"number": number}).fetchone() is not None
        except sqlite3.Error:
            return True

    def write(self, batch: Batch) -> StoreError | None:
        """Write the rows of a batch, and leave the transaction open. After an error it is rolled back.

        A batch of one message is left to `commit`: one statement needs no BEGIN and no COMMIT.
        """
        if self._lost is not None:
            return self._lost
        try:
            db = self._db
            if db is None or self._doubtful or self._doubtful_keys:
                db = self._clear_doubts()
            if batch.is_single:
                plain, others = self._rows(batch)
                (batch.single,) = plain or others
                self._wal += _COMMIT + _ROW
            else:
                self._write(batch, db)
        except Exception as error:
            undone = self._undo(batch, error)
            return self.write(batch) if self._may_retry(error) else undone
        return None

    def _may_retry(self, error: Exception) -> bool:
        """Return whether the disk was full and there is room now: the reserve has just been released, or after that a
        long WAL was truncated, which could not start over while pages were being read.
        """
        if not is_full(error):
            return False
        if self._reserve.release():
            self._log.warning("%s: the disk is full, and the reserve is used: free some space", self._path.parent)
            return True
        if self._db is None or self._wal_size <= _SHORT:
            return False
        with suppress(OSError, sqlite3.Error, StoreError):
            self._shrink_wal(self._db)
        return self._wal_size <= _SHORT

    @property
    def in_doubt(self) -> bool:
        """True if a failed COMMIT may have written its batch after all."""
        return bool(self._doubtful or self._doubtful_keys)

    def clear_doubts(self) -> StoreError | None:
        """Delete what a failed COMMIT may have written after all. It remains in doubt after an error."""
        try:
            self._clear_doubts()
        except Exception as error:
            return self._undo(Batch(), error)
        return None

    def _clear_doubts(self) -> sqlite3.Connection:
        """Return the connection, without rows in doubt, before another batch can come into doubt."""
        db = self._db = self._opened() if self._db is None else self._db
        if self.in_doubt:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM message WHERE key = ?", zip(self._doubtful))
            db.executemany("DELETE FROM body WHERE key = ?", zip(self._doubtful))
            db.executemany("DELETE FROM special WHERE key = ?", zip(self._doubtful))
            write_keys(db, {}, self._doubtful_keys)
            db.execute("COMMIT")
            self._doubtful, self._doubtful_keys = [], []
        return db

    def _write(self, batch: Batch, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        batch.obsolete = []
        if batch.dropped:
            db.executemany("DELETE FROM queue WHERE id = ?", zip(batch.dropped))
        totals = {number: Total.new(name, number) for name, number in batch.queues.items()}
        if batch.late:
            totals.update(self.totals.raised(key for key in batch.late if key in batch.puts))
        if batch.removes:
            totals = self._remove(batch, db, totals)
        for share in batch.clears:
            self._clear(batch, db, totals, share)
        if batch.obsolete:
            db.executemany("DELETE FROM body WHERE key = ?", zip(batch.obsolete))
        if batch.puts:
            plain, others = self._rows(batch)
            execute(db, _INSERT_PLAIN, _INSERTS_PLAIN, plain)
            execute(db, _INSERT, _INSERTS, others)
        if batch.special:
            db.executemany(INSERT_SPECIAL, batch.special)
        if batch.written:
            db.executemany(
                "INSERT INTO body VALUES (?, ?, ?, ?)", [(key, *file) for key, file in batch.written.items()]
            )
            self._bodies.sync()
        if batch.updates:
            values = [(key, message.attempts, message.redelivered) for key, message in batch.updates.items()]
            rows = [(attempts, again, shifted(attempts, again), key) for key, attempts, again in values]
            db.executemany(_UPDATE, rows)
        if batch.keys or batch.forgotten:
            write_keys(db, batch.keys, batch.forgotten)
        for queue, subscription in batch.subscriptions.items():
            write_subscription(db, queue, subscription)
        state = self._state
        if batch.reserved is not None:
            state = state._replace(seq=batch.reserved)
        if batch.subscriptions:
            state = state._replace(subscriptions=db.execute("SELECT count(*) FROM subscription").fetchone()[0])
        if state != self._state:
            self._write_state(db, state)
            batch.state = state
        if totals:
            self.totals.write(db, totals)
            batch.totals = totals
        self._wal += _COMMIT + _ROW * len(batch)

    def _remove(self, batch: Batch, db: sqlite3.Connection, totals: dict[int, Total]) -> dict[int, Total]:
        """Delete messages, and return the totals that the transaction leaves."""
        totals = {**totals, **self.totals.lowered(batch.removes, totals)}
        gone = delete(db, batch.removes)
        if gone != len(batch.removes):
            totals = {number: total._replace(rows=None) for number, total in totals.items()}
            if not self.failures:
                self.damage.found(f"{len(batch.removes) - gone} settled messages were missing already")
        if self._files:
            batch.obsolete = [key for key in batch.removes if key in self._files]
        if self._special:
            special = [(key,) for key in batch.removes if key >> SEQ_BITS in self._special]
            db.executemany("DELETE FROM special WHERE key = ?", special)
        return totals

    def _clear(self, batch: Batch, db: sqlite3.Connection, totals: dict[int, Total], share: Share) -> None:
        """Delete a share of a queue, except for damaged messages that were set aside."""
        number, after, upto, most, held = share
        where = "WHERE key > ? AND key <= ?"
        if number in self.leftovers.counts:  # they are removed on their own, and passed over once
            where += f" AND {NO_LEFTOVER.replace(':leftovers', str(self.leftovers.upto))}"
            of, to, done = self.leftovers.cleared
            after = done if (of, to) == (number, upto) else after
        stay = [*self.totals.aside.get(number, ()), *held]
        if stay:
            where += f" AND key NOT IN ({', '.join(map(str, stay))})"
        (last,) = db.execute(
            f"SELECT max(key) FROM (SELECT key FROM message {where} ORDER BY key LIMIT ?)", (after, upto, most)
        ).fetchone()
        if last is None:
            return
        self.leftovers.cleared = number, upto, last
        total = totals.get(number) or self.totals.known.get(number)
        if total is not None and total.rows is not None:
            counted = db.execute(f"SELECT count(*) FROM message {where}", (after, min(last, total.high))).fetchone()[0]
            if counted:
                totals[number] = total._replace(rows=total.rows - counted)
        if self._files:
            large = db.execute(f"SELECT body.key FROM body JOIN message USING (key) {where}", (after, last))
            batch.obsolete += [key for (key,) in large if key in self._files]
        self._wal += _ROW * db.execute(f"DELETE FROM message {where}", (after, last)).rowcount
        if number in self._special:
            db.execute(f"DELETE FROM special {where}", (after, last))

    def _rows(self, batch: Batch) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        """Return the rows of plain messages, without their constants, and those of all others."""
        batch.special = []
        plain: list[tuple[object, ...]] = []
        others: list[tuple[object, ...]] = []
        octets, start, before, upper = 0, 0, "", -1
        for key, put in batch.puts.items():
            # The hot path: builds the rows of `_row_of` in fewer steps, which saves a tenth of the cost of storing a
            # message.
            if put.__class__ is Message and put.is_usual:
                destination, ident, tail = put.destination, put.ident, put.tail
                size = len(tail)
                if size < LARGE:
                    octets += size
                    if destination != before or key >> 32 != upper:
                        before, upper = destination, key >> 32
                        start = start_crc(destination, upper)
                    crc = crc32(tail, crc32(ident, start ^ key))
                    blob = bytearray(tail) if size <= _COPIED else tail
                    plain.append((key, ident.decode(), destination, blob, crc))
                    continue
            row = self._row_of(batch, key, put)
            octets += len(row[3] or b"")
            others.append(row)
        self._wal += octets
        self.written += octets
        return plain, others

    def _row_of(self, batch: Batch, key: int, put: Storable) -> tuple[Any, ...]:
        """Return a row of the table `message`. Put its body into a file first if it needs one."""
        tail: bytes | None = put.tail
        file = None
        if put.body is not None:  # kept in a file; the row's tail has no body
            batch.written[key] = file = self._bodies.adopt(put.body)
            self.written += put.body.size
        elif len(put.tail) >= LARGE:  # the file holds the whole tail
            batch.written[key] = file = self._bodies.write(put.tail)
            self.written += len(put.tail)
            tail = None
        expires = None if put.expires is None else float(put.expires)  # the type in which SQLite returns it
        row = (put.id, put.destination, tail, put.persistent == 1, expires, put.priority)
        attempts, redelivered = put.attempts, put.redelivered
        due = None if put.due is None else float(put.due)
        special = special_of(key, due, expires, put.priority, put.persistent == 1)
        if special is not None:
            batch.special.append(special)
        return key, *row, attempts, int(redelivered), message_crc(key, *row, attempts, redelivered, file)

    def work(self, batch: Batch, staged: bool, done: Done, call_soon: CallSoon) -> None:
        """Write a batch, unless it is staged (written) already, commit it, and tell the loop. Runs in the helper."""
        error = None if staged else self.write(batch)
        if error is None:
            error = self.commit(batch)
        copies = self.due and not staged
        self.ended += not copies  # before the answer, so that the next commit need not be given to the helper
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            call_soon(partial(done, error))
        if copies:  # after the answer, since it takes its time
            self.checkpoint()
            self.ended += 1

    def commit(self, batch: Batch) -> StoreError | None:
        """End the transaction that `write` left open. After an error it is rolled back."""
        assert self._db is not None
        doubted = self.pace >= _DOUBTED
        waited, start = self._timer.waited() if doubted else 0.0, self._timer.clock()
        try:
            if batch.single is None:
                self._db.execute("COMMIT")
            else:
                self._db.execute(_INSERT_PLAIN if len(batch.single) == _PLAIN_COLUMNS else _INSERT, batch.single)
            is_there = self._places.are_there(self._places.noted)
            if batch.written and is_there:
                is_there = self._bodies.folder.is_there()
        except Exception as error:
            self._doubtful, self._doubtful_keys = list(batch.puts), list(batch.keys)
            self.totals.doubt(batch.totals)
            undone = self._undo(batch, error)
            if self._may_retry(error):
                return self.write(batch) or self.commit(batch)
            return undone
        if not is_there:  # committed, but not where the next broker looks
            return self.look() or self._lose(str(self._path))
        self.commits += 1
        taken = self._timer.clock() - start
        if doubted:
            taken = max(0.0, taken - (self._timer.waited() - waited))
        self.pace += (min(taken, _LONG) - self.pace) / 8
        for key in batch.obsolete:
            self._bodies.folder.discard(self._files.pop(key).file)
        self._files.update(batch.written)
        if batch.dropped:
            self._special.difference_update(batch.dropped)
        if batch.special:
            self._special.update(row[0] >> SEQ_BITS for row in batch.special)
        if batch.reserved is not None:
            self.mark = batch.reserved
        if batch.state is not None:
            self._state = batch.state
        try:
            if batch.dropped or batch.totals:
                self.totals.committed(self._db, batch.dropped, batch.totals)
        except sqlite3.Error as error:  # only a read failed
            self._log.warning("%s", fault(f"{self._path} cannot be read", error))
        return None

    def _undo(self, batch: Batch, error: Exception) -> StoreError:
        self.failures += 1
        self.leftovers.cleared = 0, 0, 0
        batch.single = None
        for body in batch.written.values():
            self._bodies.folder.discard(body.file)
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")
            healthy = is_transient(error)
        except sqlite3.Error:
            healthy = False
        if not healthy:  # the connection may cache pages that it misread: the next batch opens a new one
            self._disconnect()
        return error if isinstance(error, StoreError) else fault("nothing could be stored", error)

    @property
    def due(self) -> bool:
        """True if the WAL is long enough for a checkpoint."""
        return self._wal >= (_SHORT if self._reserve.is_near or self._reserve.released else _WAL)

    @property
    def is_short_of_space(self) -> bool:
        """True if the disk is nearly full: a checkpoint has little to copy, and must not wait."""
        return self._reserve.is_near or self._reserve.released

    def checkpoint(self) -> None:
        """Copy the WAL into the database, so that it starts over at its beginning. This takes long."""
        self._wal = 0
        if self._db is None or self.look() is not None:
            return
        try:
            self.totals.take(self._db)
            self._copy_wal(self._db, "PASSIVE")
        except (OSError, sqlite3.Error, StoreError) as error:  # nothing is lost; if it persists, commits report it
            said = fault(f"{self._path}-wal grows, because it cannot be copied into the database", error)
            self._log.warning("%s", said)

    def tidy(self) -> bool:
        """Do one step of maintenance while the disk is idle, and return whether there is more to do.

        First the totals are brought up to date, then free pages are given back a few at a time, and finally the WAL is
        copied, so that it starts over, and truncated if it is long.
        """
        try:
            db = self._db or self._clear_doubts()  # without a connection no message could be stored for lack of space
            if db.in_transaction or self._look() is not None:
                return False
            self._reserve.take()
            self.totals.take(db)
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            (kind,) = db.execute("PRAGMA auto_vacuum").fetchone()
            if kind == _INCREMENTAL and free > _SPARE:
                # `execute` would end the statement after its first page.
                db.executescript(f"PRAGMA incremental_vacuum({min(free - _SPARE, _PER_STEP)})")
                self._gave_back = True
                self._wal += _SHORT
                if self._wal > 4 * _SHORT:
                    self._shorten(db)
                return True
            if self._gave_back or self._wal or self._is_long:
                self._shorten(db)
                self._gave_back = False
        except (OSError, sqlite3.Error, StoreError) as error:  # for example on a full disk: it is tried again
            self._log.info("%s", fault(f"{self._path} cannot give space back", error))
        return False

    def remove_leftovers(self) -> bool:
        """Remove some transient messages of earlier runs. Return whether more are left, and the WAL may grow."""
        leftovers = self.leftovers
        try:
            db = self._db or self._clear_doubts()
            low, high = leftovers.first(db, _LEFTOVERS)
            among = "persistent = 0 AND key BETWEEN ? AND ?"
            keys = [key for (key,) in db.execute(f"SELECT key FROM message WHERE {among}", (low, high))]
            large, totals = [key for key in keys if key in self._files], self.totals.lowered(keys, {})
            db.execute("BEGIN IMMEDIATE")
            db.execute(f"DELETE FROM message WHERE {among}", (low, high))
            gone = db.execute(f"DELETE FROM special WHERE {among}", (low, high)).rowcount
            db.executemany("DELETE FROM body WHERE key = ?", zip(large))
            self.totals.write(db, totals)
            db.execute("COMMIT")
            if (lost := self._look()) is not None:  # the files belong to another database now
                raise lost
            self.totals.committed(db, (), totals)
        except Exception as error:
            self._log.info("transient messages of an earlier run are removed later: %s", self._undo(Batch(), error))
            return False
        leftovers.removed(low >> SEQ_BITS, gone)
        for key in large:
            self._bodies.folder.discard(self._files.pop(key).file)
        self._wal += _COMMIT + _ROW * gone
        if self.due:
            self.checkpoint()
        if self._wal_size > 4 * _WAL:  # it could not start over, because pages were being read
            with suppress(OSError, sqlite3.Error, StoreError):
                self.totals.take(db)
                self._shrink_wal(db)
        return bool(leftovers.counts) and self._wal_size <= 4 * _WAL

    @property
    def _wal_size(self) -> int:
        with suppress(OSError):
            return os.stat(f"{self._path}-wal").st_size
        return 0

    @property
    def _is_long(self) -> bool:
        return self._wal_size > (_SHORT if self.is_short_of_space else 2 * _WAL)

    def _shorten(self, db: sqlite3.Connection) -> None:
        """Copy the WAL into the database, which shortens one that gave pages back, and truncate a long WAL."""
        self._copy_wal(db, "TRUNCATE" if self._is_long else "PASSIVE")
        self._wal = 0

    def _shrink_wal(self, db: sqlite3.Connection) -> None:
        """Copy the WAL into the database, truncate it, and shorten a database that gave pages back."""
        self._copy_wal(db, "TRUNCATE")
        self._wal = 0

    def _copy_wal(self, db: sqlite3.Connection, how: str) -> None:
        """Copy the WAL into the database, unless one of them is gone, for then the WAL may be all that is left."""
        if (lost := self._look()) is not None:
            raise lost
        db.execute(f"PRAGMA wal_checkpoint({how})").fetchone()

    def size(self) -> int:
        """Return the bytes of the database and its WAL."""
        total = 0
        for end in ("", "-wal"):
            with suppress(OSError):
                total += os.stat(f"{self._path}{end}").st_size
        return total

    def room(self, idle: bool = True) -> int | None:
        """Return how many bytes can be stored, on the disk and in free pages of the file, or None if unknown.

        Free pages count only if the disk has room for a WAL, through which all writes go, and if the connection is
        idle, so that they can be counted.
        """
        try:
            free = free_space(self._path.parent)
            self._reserve.is_near = free < _NEAR
            if self._db is None or not idle or free < _WAL:
                return free
            (pages,) = self._db.execute("PRAGMA freelist_count").fetchone()
            return free + int(pages) * 8192
        except (OSError, sqlite3.Error):
            return None

    def flush(self) -> None:
        """Wait until the files of discarded large bodies are removed."""
        self._bodies.folder.remover.flush()

    def close(self, clean: bool = True) -> None:
        """Record a clean end if it is one. Release the folder even if StoreError says that it could not be written."""
        try:
            lost = self.look()
            if lost is not None:
                raise lost
            if clean and self._db is not None:
                self.totals.take(self._db, everything=True)
                self._write_state(self._db, self._state._replace(clean=1))
                self._copy_wal(self._db, "TRUNCATE")
        except (OSError, sqlite3.Error) as error:
            raise fault(f"{self._path} was not closed cleanly", error) from error
        finally:
            self._release()

    def _release(self) -> None:
        self._disconnect()
        self._timer.close()
        bodies: Bodies | None = self.__dict__.get("_bodies")
        if bodies is not None:
            bodies.folder.close()
        self._lock.release()

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None
            self._places.noted = self._places.noted[:1]  # the last connection that is closed removes the WAL


class Timer:
    """A clock, and the time for which threads were ready to run and waited for a CPU. Each thread has a file of the
    kernel for that, which stays open: opening it takes three times as long as reading it.

    >>> timer = Timer(); timer.waited() >= 0.0; timer.close()
    True
    """

    __slots__ = ("_files", "clock")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self._files: dict[int, int] = {}

    def waited(self) -> float:
        """Return the seconds for which this thread has waited since it began; 0.0 if the system does not say."""
        thread = get_ident()
        file = self._files.get(thread, -1)
        try:
            if file < 0:
                self._files[thread] = file = os.open(_SCHEDULED, os.O_RDONLY)
            os.lseek(file, 0, os.SEEK_SET)
            return int(os.read(file, 100).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            self._forget(thread)  # of an earlier thread, perhaps, that has ended
            return 0.0

    def _forget(self, thread: int) -> None:
        with suppress(KeyError, OSError):
            os.close(self._files.pop(thread))

    def close(self) -> None:
        for thread in list(self._files):
            self._forget(thread)


def _numbers(db: sqlite3.Connection) -> Iterator[int]:
    """Yield the numbers of the queues that have rows in the table `special`."""
    (key,) = db.execute("SELECT min(key) FROM special").fetchone()
    while key is not None:
        number = key >> SEQ_BITS
        yield number
        (key,) = db.execute("SELECT min(key) FROM special WHERE key >= ?", (number + 1 << SEQ_BITS,)).fetchone()
