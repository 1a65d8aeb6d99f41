"""Check and salvage the data folder of a broker that is not running, without writing to it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from stompcodec.broker.message import due_of
from stompcodec.broker.storage import tables
from stompcodec.broker.storage.folder import DATABASE, TABLES, examine_wal, find_loss, is_body, kind_of, shown
from stompcodec.broker.storage.large import BodyFile
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import SentKey, Stored, Subscribed
from stompcodec.disk import lock, lock_folder, sync_folder, unlock
from stompcodec.errors import StoreError

#: Rows read by one statement, and the rowids of all rows.
_AT_ONCE, _ALL = 200, (-(2**63), 2**63 - 1)
#: Places where rows behind a damaged page are looked for, without one that is found.
_MOST_LOOKS = 10_000
#: Problems listed from SQLite's own check.
_MOST_LISTED = 100
_COPY = "damaged.sqlite"


class Tables:
    """The tables of a database that nobody writes to. `problem` is called with each problem.

    If its first page is damaged, which has the schema, or the file is gone and only its WAL is there, a copy in the
    folder `scratch` gets the first page of a new database: each store of this version has the same. Without `scratch`,
    there are no tables then. Raise StoreError if the database is of another version, or cannot be opened for another
    reason than damage.
    """

    def __init__(self, path: Path, problem: Callable[[str], object], scratch: Path | None = None) -> None:
        self._path, self._problem = path, problem
        self._copy: Path | None = None
        self._db: sqlite3.Connection | None = None
        #: The statements that made the tables, by name.
        self._tables: dict[str, str] = {}
        try:
            if not self._open(path) and scratch is not None:
                self._copy = scratch / _COPY
                _mend(path, self._copy)
                self._open(self._copy)
            missing = [name for name in TABLES if name not in self._tables]
            if missing:
                self._problem(f"the tables {', '.join(missing)} cannot be found")
            version = self.number("PRAGMA user_version") if self._tables else 0
            other = tables.refusal(path, version, self._tables)
            if other is not None and not set(self._tables.values()) <= set(tables.SCHEMA):
                raise StoreError(other)
            if other is not None:  # its tables are ours: it can be read, though the broker refuses it
                self._problem(other)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, and remove the copy."""
        if self._db is not None:
            self._db.close()
        if self._copy is not None:
            for end in ("", "-wal", "-shm"):
                self._copy.with_name(self._copy.name + end).unlink(missing_ok=True)

    def _open(self, path: Path) -> bool:
        if self._db is not None:
            self._db.close()
        if not (path.exists() and path.stat().st_size):
            return False
        log = path.with_name(f"{path.name}-wal")
        how = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"  # creates no file
        try:
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
            self._db.text_factory = bytes
            rows = self._db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        except sqlite3.DatabaseError as error:
            if "unable to open" in str(error) or "readonly" in str(error):
                raise tables.fault(f"{self._path} cannot be read", error) from error
            self._problem(f"SQLite cannot read {self._path.name}: {error}")
            return False
        self._tables = {str(name, "utf-8", "replace"): str(sql, "utf-8", "replace") for name, sql in rows}
        return all(name in self._tables for name in TABLES)

    def rows(self, table: str, spans: Sequence[tuple[int, int]] = ()) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows of a table, with texts as bytes: rowid and columns. They are in order if nothing is damaged.

        Around damage, each of the `spans` of rowids (first, end) is looked through by itself.
        """
        if self._db is None or table not in self._tables:
            return
        reading = _Table(self._db, table)
        yield from reading.forward(*_ALL)
        if reading.error is None:
            return
        self._problem(f"the table {table} is damaged behind row {reading.at}: {reading.error}")
        first = reading.at
        for low, end in [*spans, *([] if spans else [_ALL])]:
            if end > first:
                yield from reading.around(max(low - 1, first), end)

    def check(self) -> list[str]:
        """Return what SQLite's own check finds."""
        assert self._db is not None
        try:
            lines = self._db.execute(f"PRAGMA integrity_check({_MOST_LISTED})").fetchall()
        except sqlite3.DatabaseError as error:
            return [f"SQLite cannot read {self._path.name}: {error}"]
        return [part for (line,) in lines for part in line.decode("utf-8", "replace").splitlines() if part != "ok"]

    def number(self, select: str) -> int:
        assert self._db is not None
        (found,) = self._db.execute(select).fetchone()
        return int(found)


class _Table:
    """A table that is read from both ends up to damage, and then in the gaps between."""

    def __init__(self, db: sqlite3.Connection, table: str) -> None:
        self._db = db
        self._select = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ? AND rowid < ? ORDER BY rowid"
        #: The last row that was read, and why there was no further one.
        self.at = 0
        self.error: sqlite3.Error | None = None

    def forward(self, low: int, end: int, step: int = 1) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows between two rowids, up to damage; downwards if `step` is -1. `error` says why it ended."""
        self.at, self.error, most = low if step > 0 else end, None, _AT_ONCE
        while True:
            between = (self.at, end) if step > 0 else (low, self.at)
            try:
                rows = self._some(between, step, most)
            except sqlite3.DatabaseError as error:
                self.error = error
                if most == 1:
                    return
                most = 1  # one by one up to the damage
                continue
            for rowid, *row in rows:
                self.at = rowid
                yield rowid, row
            if len(rows) < most:
                self.error = None
                return

    def _some(self, between: tuple[int, int], step: int, most: int) -> list[tuple[Any, ...]]:
        order = "" if step > 0 else " DESC"
        rows = self._db.execute(f"{self._select}{order} LIMIT {most}", between).fetchall()
        ids = [row[0] for row in rows]
        if any((after - before) * step <= 0 for before, after in pairwise(ids)):
            raise sqlite3.DatabaseError("its rows are not in order")
        return rows

    def around(self, low: int, end: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows between two rowids: before damage, behind it, and what is found between damaged pages."""
        yield from self.forward(low, end)
        if self.error is None:
            return
        low = self.at
        yield from self.forward(low, end, -1)
        gaps, looks = [(low, self.at)], 0  # nothing can be read behind the first rowid of a gap
        while gaps and looks < _MOST_LOOKS:
            low, end = gaps.pop()
            if end - low < 3:
                continue
            middle, looks = (low + end) // 2, looks + 1
            for found in self.forward(middle, end):
                looks = 0
                yield found
            if self.error is not None:
                gaps.append((self.at, end))
            gaps.append((low, middle + 1))  # the nearest one is next


def _mend(path: Path, copy: Path) -> None:
    """Copy a database, with its WAL, and give it the first page of a new one. If it is gone, only its WAL counts."""
    tables.open_database(copy, new=True).close()
    page = bytearray(copy.read_bytes()[: tables.PAGE])
    page[92:96] = b"\xff" * 4  # so that SQLite takes the size of the file for that of the database
    if path.exists() and path.stat().st_size:
        shutil.copyfile(path, copy)
    with open(copy, "r+b") as file:
        file.write(page)
    with suppress(FileNotFoundError):
        shutil.copyfile(path.with_name(f"{path.name}-wal"), copy.with_name(f"{copy.name}-wal"))


#: Counts messages that are not in the table `special` as they are in `message`, and rows there without a message.
_WRONG = """SELECT (SELECT count(*) FROM message LEFT JOIN special USING (key)
    WHERE (message.expires IS NOT NULL OR message.priority <> 4 OR NOT message.persistent) AND (special.key IS NULL
    OR special.expires IS NOT message.expires OR special.priority <> message.priority))
    + (SELECT count(*) FROM special WHERE key NOT IN (SELECT key FROM message))"""
#: Messages copied in one commit, and bytes in them.
_BATCH, _BATCH_OCTETS = 500, 4 * 2**20


@dataclass
class Findings:
    """The result of `check` or `salvage`."""

    folder: str
    messages: int = 0
    """Number of intact messages."""
    octets: int = 0
    """Bytes in them: headers and bodies."""
    queues: int = 0
    """Queues that hold intact messages."""
    subscriptions: int = 0
    """Intact durable subscriptions."""
    keys: int = 0
    """Intact idempotency keys."""
    lost: list[dict[str, str]] = field(default_factory=list)
    """Damaged messages: id and destination, as far as they can be read, and why."""
    problems: list[str] = field(default_factory=list)
    """All other damage."""
    notes: list[str] = field(default_factory=list)
    """Remarks that are not damage."""

    @property
    def whole(self) -> bool:
        """True if nothing is damaged."""
        return not self.lost and not self.problems

    @property
    def record(self) -> dict[str, Any]:
        return {"whole": self.whole, **vars(self)}


def check(folder: str | os.PathLike[str]) -> Findings:
    """Read everything in the data folder of a broker that is not running, and report damage. Nothing is changed. Raise
    StoreError if the folder is not a data folder, cannot be read, or is in use by a broker.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     SqliteStore(name).close()
    ...     check(name).whole
    True
    """
    path = Path(folder)
    with _unused(path), _read(path), _Reading(path) as reading:
        for _ in reading.keys():
            pass
        for _ in reading.messages():
            pass
        reading.compare_totals()
        reading.look_at_files()
        if not reading.findings.problems:
            reading.ask_sqlite()
    return reading.findings


def salvage(folder: str | os.PathLike[str], new: str | os.PathLike[str]) -> Findings:
    """Copy what is intact into a new data folder, as far as SQLite finds it, also in a file that it calls malformed.

    The new folder appears when it is complete. An interrupted copy leaves a folder beside it, whose name begins with a
    dot and ends in `.salvage`; the next call removes it. Large bodies are hard-linked if both folders are on one disk.
    The old folder is not changed. Raise StoreError if it is not a data folder, belongs to another version, cannot be
    read, or is in use by a broker, or if the new one exists, or cannot be created.
    """
    path, target = Path(folder), Path(new).absolute()
    if os.path.lexists(target):
        raise StoreError(f"{target} exists already (name a folder that does not)")
    part = target.with_name(f".{target.name}.salvage")
    with _unused(path), _read(path):
        if not any((path / name).is_file() for name in (DATABASE, f"{DATABASE}-wal")):
            raise StoreError(f"nothing can be copied from {path}: {DATABASE} is missing (look for a backup)")
        _clear(part)
        try:
            with closing(SqliteStore(part)) as store, _Reading(path, part) as reading:
                _copy(reading, store)
                reading.compare_totals()
        except StoreError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        if os.path.lexists(target):
            raise StoreError(f"{target} exists by now (name another folder, and start again)")
        os.rename(part, target)
        sync_folder(target.parent)
    return reading.findings


@contextmanager
def _read(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: {error.strerror} (check the disk and its permissions)"
        ) from error


@contextmanager
def _unused(folder: Path) -> Iterator[None]:
    """Ensure that no broker uses a folder meanwhile, without writing to it."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder (name the data folder of a broker)")
    if not (folder / DATABASE).exists() and find_loss(folder) is None:
        raise StoreError(f"{folder} is not a broker's data folder (it has no {DATABASE})")
    with ExitStack() as locked:
        try:
            above = lock_folder(folder)
            if above is not None:
                locked.callback(unlock, above, os.getpid())
            with suppress(FileNotFoundError):
                file = os.open(folder / "lock", os.O_RDONLY)
                locked.callback(unlock, file, os.getpid())
                lock(file)
        except BlockingIOError:
            raise StoreError(
                f"a broker uses the data folder {folder} (stop it, or name a copy of the folder)"
            ) from None
        except OSError as error:
            raise StoreError(
                f"{folder / 'lock'} cannot be locked: {error.strerror} (run this as the broker's user, or name a copy "
                "of the folder on another disk)"
            ) from error
        yield


def _clear(part: Path) -> None:
    """Remove the remains of an interrupted call."""
    if not os.path.lexists(part):
        return
    if part.is_symlink() or not part.is_dir() or (kind_of(part) != "data" and any(part.iterdir())):
        marked = not part.is_symlink() and part.is_dir() and (part / "lock").is_file()
        if not marked:
            raise StoreError(f"{part} is in the way, and is not of an interrupted salvage (move it away)")
    with _unused(part) if (part / DATABASE).exists() else nullcontext():
        shutil.rmtree(part)


class _Reading:
    """A reader of everything in a data folder. Read `messages` to the end before the other results. `scratch` is a
    folder for a copy of a database whose first page is damaged, which is not read without it.
    """

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.folder = folder
        self.findings = findings = Findings(str(folder))
        self.unclean = True
        self.mark = 0
        self.totals: dict[int, tables.Total] = {}
        self.subscriptions: list[Subscribed] = []
        self._files: dict[int, BodyFile] = {}
        #: When delayed messages are due, by key.
        self._due: dict[int, float] = {}
        self._counted: Counter[int] = Counter()
        self._rows: Counter[int] = Counter()
        lost = find_loss(folder)
        if lost is not None:
            findings.problems.append(lost)
        wal = examine_wal(folder / f"{DATABASE}-wal")
        if wal.lost:
            what = f"the WAL has a bad frame after {len(wal.taken)} good ones: {wal.lost} transactions or more are lost"
            findings.problems.append(what)
        elif wal.torn:
            findings.notes.append("the last transaction in the WAL is incomplete, after a power cut or damage")
        self._tables = Tables(folder / DATABASE, findings.problems.append, scratch)
        try:
            self._columns()
        except BaseException:
            self._tables.close()
            raise

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._tables.close()

    def _columns(self) -> None:
        for name, read in (
            ("state", self._state),
            ("queue", self._queue),
            ("body", self._body),
            ("subscription", self._subscription),
            ("special", self._special),
        ):
            for rowid, row in self._tables.rows(name):
                if not read(rowid, row):
                    self.findings.problems.append(f"a row of the table {name} is damaged: {shown(_text(row))}")
        expected = self._expected_subscriptions
        if expected is not None and expected != len(self.subscriptions):
            missing_count = expected - len(self.subscriptions)
            self.findings.problems.append(f"{missing_count} durable subscriptions are missing or damaged")
        self.findings.subscriptions = len(self.subscriptions)

    _expected_subscriptions: int | None = None

    def _state(self, _rowid: int, row: list[Any]) -> bool:
        clean, seq, count, crc = row
        if crc != tables.record_crc(clean, seq, count):
            return False
        self.unclean, self.mark, self._expected_subscriptions = not clean, seq or 0, count
        return True

    def _queue(self, rowid: int, row: list[Any]) -> bool:
        _, name, suspect, count, high, crc = row
        if not isinstance(name, bytes) or not isinstance(suspect, int) or not isinstance(high, int):
            return False
        text = name.decode("utf-8", "replace")
        if crc != tables.record_crc(rowid, text, suspect, count, high):
            return False
        self.totals.setdefault(rowid, tables.Total(text, suspect, count, high))
        return True

    def _body(self, rowid: int, row: list[Any]) -> bool:
        if not isinstance(row[1], bytes) or not all(isinstance(one, int) for one in row[2:]):
            return False
        self._files.setdefault(rowid, BodyFile(row[1].decode("utf-8", "replace"), row[2], row[3]))
        return True

    def _special(self, rowid: int, row: list[Any]) -> bool:
        due = row[1]
        if due is not None:
            if not isinstance(due, (int, float)):
                return False
            self._due[rowid] = due = float(due)
        return bool(row[5] == tables.special_crc(rowid, due))

    def _subscription(self, _rowid: int, row: list[Any]) -> bool:
        *columns, crc = (one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in row)
        if crc != tables.record_crc(*columns) or not all(isinstance(one, str) for one in columns[:3]):
            return False
        self.subscriptions.append(tables.subscribed_of(columns))
        return True

    def keys(self) -> Iterator[SentKey]:
        """Yield every intact idempotency key."""
        damaged = 0
        for number, row in self._tables.rows("sent"):
            key = tables.sent_key((number, *row[1:]))
            if key is None:
                damaged += 1
            else:
                self.findings.keys += 1
                yield key
        if damaged:
            self.findings.problems.append(f"{damaged} rows of the table sent, idempotency keys, are damaged")

    def messages(self) -> Iterator[Stored]:
        """Yield every intact message, by queue and seq as far as the pages are in order."""
        spans = [(number << tables.SEQ_BITS, number + 1 << tables.SEQ_BITS) for number in sorted(self.totals)]
        for key, row in self._tables.rows("message", spans):
            yield from self._message(key, row)
        self.findings.queues = sum(count > 0 for count in self._counted.values())

    def _message(self, key: int, row: list[Any]) -> Iterator[Stored]:
        number, seq = key >> tables.SEQ_BITS, key & (1 << tables.SEQ_BITS) - 1
        total = self.totals.get(number)
        if total is None or key <= total.high:
            self._rows[number] += 1
        due = self._due.get(key)
        special = due, tables.special_crc(key, due)
        found = tables.row_of((key, *row[1:]), self._files.get(key), self.folder / "bodies", special, verify=True)
        if isinstance(found, tables.Bad):
            self._lose(row, found.why)
        elif b"\n\n" not in found.tail:
            self._lose(row, "its row is damaged")
        elif total is None:
            self._lose(row, "the name of its queue is lost")
        else:
            self.findings.messages += 1
            self.findings.octets += len(found.tail) + (0 if found.body is None else found.body.size)
            self._counted[number] += 1
            again = found.redelivered or key < total.suspect or self.unclean
            content: Any = (*found[1:8], again, found.body, due or due_of(found.tail))
            yield Stored(total.name, seq, *content)

    def _lose(self, row: list[Any], why: str) -> None:
        ident, destination = (
            shown(one.decode("utf-8", "replace")) if isinstance(one, bytes) else "" for one in row[1:3]
        )
        self.findings.lost.append({"id": ident, "destination": destination, "why": why})

    def compare_totals(self) -> None:
        for number, total in self.totals.items():
            if total.rows is not None and total.rows != self._rows[number]:
                less = total.rows - self._rows[number]
                name = shown(total.name.replace("\0", " ", 1))
                what = f"{less} messages are missing" if less > 0 else f"{-less} rows more than its total says"
                self.findings.problems.append(f"the queue {name}: {what}")

    def ask_sqlite(self) -> None:
        """Have SQLite check the structure of the file, where damage may not show in rows and totals."""
        self.findings.problems += self._tables.check()
        wrong = self._tables.number(_WRONG)
        if wrong:
            self.findings.problems.append(f"{wrong} messages are missing or wrong in the table special")

    def look_at_files(self) -> None:
        """Note body files that belong to no message."""
        known = {file.file for file in self._files.values()}
        with suppress(FileNotFoundError):
            left = [name for name in os.listdir(self.folder / "bodies") if is_body(name) and name not in known]
            if left:
                end = ": the next start removes them" if not self.findings.problems else ""
                self.findings.notes.append(f"{len(left)} files in bodies belong to no message{end}")


def _text(row: list[Any]) -> str:
    return ", ".join(one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in row)[:200]


def _copy(reading: _Reading, store: SqliteStore) -> None:
    for subscription in reading.subscriptions:
        store.subscribe(subscription)
    for key in reading.keys():
        store.remember(key)
        if store.pending >= _BATCH:
            store.commit()
    octets, top = 0, reading.mark
    for message in reading.messages():
        store.append(message.queue, message)
        octets += len(message.tail)
        top = max(top, message.seq)
        if store.pending >= _BATCH or octets > _BATCH_OCTETS:
            store.commit()
            octets = 0
    store.reserve(top)
    store.commit()
