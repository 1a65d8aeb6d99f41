"""Check and salvage the data folder of a broker that is not running, without writing to it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stompcodec.broker.message import due_of
from stompcodec.broker.storage.body_files import Body, BodyFile, file_crc
from stompcodec.broker.storage.checksums import is_intact, message_crc
from stompcodec.broker.storage.damage import shown
from stompcodec.broker.storage.folder_lock import APPLICATION, DATABASE, TABLES, find_loss, is_body, kind_of
from stompcodec.broker.storage.rows import special_crc
from stompcodec.broker.storage.small_tables import sent_key, subscribed_of
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_file.pages import Pages
from stompcodec.broker.storage.sqlite_schema import MIGRATIONS
from stompcodec.broker.storage.store import SentKey, Stored, Subscribed
from stompcodec.broker.storage.totals import SEQ_BITS, Total
from stompcodec.disk import lock, lock_folder, sync_folder, unlock
from stompcodec.errors import StoreError

#: Problems listed from SQLite's own check.
_MOST_LISTED = 100
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
    unchecked: int = 0
    """Intact messages from an older version, which have no checksum."""
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
        """The findings as a dictionary for JSON."""
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
    with _unused(path), _read(path):
        reading = _Reading(path, behind=False)
        if reading.newer is not None:
            reading.findings.problems.append(reading.newer)
        for _ in reading.keys():
            pass
        for _ in reading.messages():
            pass
        reading.compare_totals()
        reading.look_at_files()
        if not reading.findings.problems:
            _ask_sqlite(path / DATABASE, reading.findings)
    return reading.findings


def salvage(folder: str | os.PathLike[str], new: str | os.PathLike[str]) -> Findings:
    """Copy what is intact into a new data folder, even from a file that SQLite cannot read.

    The new folder appears when it is complete. An interrupted copy leaves a folder beside it, whose name begins with a
    dot and ends in `.salvage`; the next call removes it. Large bodies are hard-linked if both folders are on one disk.
    The old folder is not changed. Raise StoreError if it is not a data folder, belongs to a newer version, cannot be
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
        reading = _Reading(path, behind=True)
        if reading.newer is not None:
            reading.close()
            raise StoreError(reading.newer)
        store = SqliteStore(part)
        try:
            _copy(reading, store)
        finally:
            store.close()
        reading.compare_totals()
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
    """A reader of everything in a data folder, row by row. Iterate over `messages` to the end before the other results.
    If `behind`, it also reads frames of the WAL after a damaged one.
    """

    def __init__(self, folder: Path, *, behind: bool) -> None:
        self.folder = folder
        self.findings = findings = Findings(str(folder))
        self._behind = behind
        self.unclean = True
        self.mark = 0
        self.totals: dict[int, Total] = {}
        self.subscriptions: list[Subscribed] = []
        self._files: dict[int, BodyFile] = {}
        #: When delayed messages are due, by key.
        self._due: dict[int, float] = {}
        self._counted: Counter[int] = Counter()
        self._rows: Counter[int] = Counter()
        database = folder / DATABASE
        lost = find_loss(folder)
        if lost is not None:
            findings.problems.append(lost)
        self._pages = Pages(database, findings.problems.append, behind=behind)
        wal = self._pages.wal
        if wal.lost:
            what = f"the WAL has a bad frame after {len(wal.taken)} good ones: {wal.lost} transactions or more are lost"
            findings.problems.append(what)
        elif wal.torn:
            findings.notes.append("the last transaction in the WAL is incomplete, after a power cut or damage")
        self._roots = self._pages.tables() if self._pages.count else {}
        self.newer = self._newer(database)
        self._columns()

    def close(self) -> None:
        """Close the file, which `messages` does at its end."""
        self._pages.close()

    def _newer(self, database: Path) -> str | None:
        """Return what to say of a file whose version is newer than this program; None for others. Its version is in its
        header, which may be damaged, and in the table `migration`.
        """
        noted = [rowid for rowid, _ in self._pages.rows(self._roots["migration"])] if "migration" in self._roots else []
        application, in_header = self._pages.identity
        version, known = max(noted, default=in_header), len(MIGRATIONS)
        if application != APPLICATION or min(version, in_header) <= known:
            return None
        return f"{database} has version {version}, but this command knows at most {known} (use a newer one)"

    def _columns(self) -> None:
        """Read the small tables."""
        missing = [name for name in TABLES if name not in self._roots]
        if missing and self._pages.count:
            self.findings.problems.append(f"the tables {', '.join(missing)} cannot be found")
        for name, read in (
            ("state", self._state),
            ("queue", self._queue),
            ("body", self._body),
            ("subscription", self._subscription),
            ("special", self._special),
        ):
            if name in self._roots:
                for rowid, row in self._pages.rows(self._roots[name]):
                    if not read(rowid, row):
                        self.findings.problems.append(f"a row of the table {name} is damaged: {shown(_text(row))}")
        expected = self._expected_subscriptions
        if expected is not None and expected != len(self.subscriptions):
            missing_count = expected - len(self.subscriptions)
            self.findings.problems.append(f"{missing_count} durable subscriptions are missing or damaged")
        self.findings.subscriptions = len(self.subscriptions)

    _expected_subscriptions: int | None = None

    def _state(self, _rowid: int, row: list[Any]) -> bool:
        clean, seq, count, crc = [*row, None, None, None][:4]
        if not _is(crc, clean, seq, count):
            return False
        self.unclean, self.mark, self._expected_subscriptions = not clean, seq or 0, count
        return True

    def _queue(self, rowid: int, row: list[Any]) -> bool:
        _, name, suspect, count, high, crc = [*row, *[None] * 6][:6]
        high = -1 if high is None else high
        if not isinstance(name, bytes) or not isinstance(suspect, int) or not isinstance(high, int):
            return False
        text = name.decode("utf-8", "replace")
        if not _is(crc, rowid, text, suspect, count, high):
            return False
        self.totals.setdefault(rowid, Total(text, suspect, count, high))
        return True

    def _body(self, rowid: int, row: list[Any]) -> bool:
        if len(row) != 4 or not isinstance(row[1], bytes) or not all(isinstance(one, int) for one in row[2:]):
            return False
        self._files.setdefault(rowid, BodyFile(row[1].decode("utf-8", "replace"), row[2], row[3]))
        return True

    def _special(self, rowid: int, row: list[Any]) -> bool:
        due = row[1] if len(row) == 6 else ""
        if due is not None:
            if not isinstance(due, (int, float)):
                return False
            self._due[rowid] = due = float(due)
        return bool(row[5] == special_crc(rowid, due))

    def _subscription(self, _rowid: int, row: list[Any]) -> bool:
        names = (*Subscribed._fields[:7], *_LATER_COLUMNS)
        values = dict(zip(names, (one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in row)))
        crc = values.pop("crc", None)
        columns = [values.get(name) for name in Subscribed._fields]
        if not _is(crc, *columns) or not all(isinstance(one, str) for one in columns[:3]):
            return False
        self.subscriptions.append(subscribed_of(columns))
        return True

    def keys(self) -> Iterator[SentKey]:
        """Yield every intact idempotency key. Read it to its end before `messages`, which closes the file."""
        damaged = 0
        done: set[int] = set()
        for number, row in self._pages.rows(self._roots["sent"]) if "sent" in self._roots else ():
            key = sent_key((number, *row[1:]))
            if key is None:
                damaged += 1
            elif number not in done:
                done.add(number)
                self.findings.keys += 1
                yield key
        if damaged:
            self.findings.problems.append(f"{damaged} rows of the table sent, idempotency keys, are damaged")

    def messages(self) -> Iterator[Stored]:
        """Yield every intact message, by queue and seq if the pages are in order."""
        last, disorder = -1, False
        done: set[int] = set()
        if "message" in self._roots:
            for key, row in self._pages.rows(self._roots["message"]):
                disorder = disorder or key <= last
                last = key
                if self._behind:
                    if key in done:
                        continue
                    done.add(key)
                yield from self._message(key, row)
        if disorder:
            self.findings.problems.append("the messages are not in order: some may be missing, or there twice")
        strays = 0
        for key, row in self._pages.strays() if self._behind or self.findings.problems else ():
            if len(row) == _MESSAGE_COLUMNS and row[-1] is not None and self._crc_of(key, row) == row[-1]:
                strays += 1
                if key not in done:
                    done.add(key)
                    yield from self._message(key, row)
        if strays:
            self.findings.notes.append(f"{strays} messages were found in pages that belong to no table")
        self.close()
        self.findings.queues = sum(count > 0 for count in self._counted.values())

    def _crc_of(self, key: int, row: list[Any]) -> int | None:
        try:
            _, ident, destination, tail, persistent, expires, priority, attempts, redelivered, *_ = row
            return message_crc(
                key,
                ident.decode(errors="surrogateescape"),
                destination.decode(errors="surrogateescape"),
                tail,
                persistent,
                None if expires is None else float(expires),
                priority,
                attempts,
                redelivered,
                self._files.get(key),
            )
        except (AttributeError, TypeError, ValueError):
            return None

    def _message(self, key: int, row: list[Any]) -> Iterator[Stored]:
        number, seq = key >> SEQ_BITS, key & (1 << SEQ_BITS) - 1
        total = self.totals.get(number)
        if total is None or key <= total.high:
            self._rows[number] += 1
        row = [*row, None][:_MESSAGE_COLUMNS] if len(row) == _MESSAGE_COLUMNS - 1 else row
        crc, body = row[-1], None
        found = self._crc_of(key, row) if len(row) == _MESSAGE_COLUMNS else None
        if found is None or (crc is not None and crc != found):
            self._lose(row, "its row is damaged")
            return
        _, ident, destination, tail, persistent, expires, priority, attempts, redelivered, _crc = row
        file = self._files.get(key)
        if file is not None:
            path = self.folder / "bodies" / file.file
            try:
                whole = is_body(file.file) and path.stat().st_size == file.size and file_crc(path) == file.crc
            except OSError:
                whole = False
            if not whole:
                self._lose(row, "its file is missing or damaged")
                return
            if tail is None:
                tail = path.read_bytes()
            else:
                body = Body(path, file.size, file.crc)
        if not isinstance(tail, bytes) or b"\n\n" not in tail:
            self._lose(row, "its file is missing" if tail is None else "its row is damaged")
            return
        if total is None:
            self._lose(row, "the name of its queue is lost")
            return
        self.findings.messages += 1
        self.findings.octets += len(tail) + (0 if body is None else body.size)
        self.findings.unchecked += crc is None
        self._counted[number] += 1
        again = bool(redelivered) or key < total.suspect or self.unclean
        due = self._due.get(key) or due_of(tail)
        content: Any = (destination.decode(), tail, bool(persistent), expires, priority, attempts, again, body, due)
        yield Stored(total.name, seq, ident.decode(), *content)

    def _lose(self, row: list[Any], why: str) -> None:
        ident, destination = (
            shown(one.decode("utf-8", "replace")) if isinstance(one, bytes) else ""
            for one in [*row, None, None, None][1:3]
        )
        self.findings.lost.append({"id": ident, "destination": destination, "why": why})

    def compare_totals(self) -> None:
        """Compare the rows of each queue with its total."""
        for number, total in self.totals.items():
            if total.rows is not None and total.rows != self._rows[number]:
                less = total.rows - self._rows[number]
                name = shown(total.name.replace("\0", " ", 1))
                what = f"{less} messages are missing" if less > 0 else f"{-less} rows more than its total says"
                self.findings.problems.append(f"the queue {name}: {what}")

    def look_at_files(self) -> None:
        """Note body files that belong to no message."""
        known = {file.file for file in self._files.values()}
        with suppress(FileNotFoundError):
            left = [name for name in os.listdir(self.folder / "bodies") if is_body(name) and name not in known]
            if left:
                end = ": the next start removes them" if not self.findings.problems else ""
                self.findings.notes.append(f"{len(left)} files in bodies belong to no message{end}")


#: Columns that migrations have added to the table `subscription`, in order.
_LATER_COLUMNS = tuple(
    statement.split()[5]
    for step in MIGRATIONS
    for statement in step
    if statement.startswith("ALTER TABLE subscription ADD COLUMN")
)
_MESSAGE_COLUMNS = 10


def _is(crc: object, *columns: Any) -> bool:
    try:
        return is_intact(crc, *columns)
    except (TypeError, ValueError):
        return False


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


def _ask_sqlite(database: Path, findings: Findings) -> None:
    """Have SQLite check the structure of the file, where damage may not show in rows and totals."""
    try:
        log = database.with_name(f"{database.name}-wal")
        how = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"  # creates no file
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?{how}", uri=True)) as connection:
            connection.text_factory = lambda octets: octets.decode("utf-8", "replace")
            for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST_LISTED})"):
                findings.problems += [part for part in line.splitlines() if part != "ok"]
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if "filling" in tables:
                findings.notes.append("a migration was interrupted; it continues at the next start")
            elif "special" in tables:
                (wrong,) = connection.execute(_WRONG).fetchone()
                if wrong:
                    findings.problems.append(f"{wrong} messages are missing or wrong in the table special")
    except sqlite3.Error as error:
        if "unable to open" in str(error) or "readonly" in str(error):
            findings.notes.append(f"SQLite's own check was skipped: {error}")
        else:
            findings.problems.append(f"SQLite cannot read {database.name}: {error}")
