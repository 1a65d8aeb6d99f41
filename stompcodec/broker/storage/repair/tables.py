"""The tables of a damaged database, read by SQLite row by row, as far as it finds a way to them; nothing is written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from stompcodec.broker.storage.folder_lock import TABLES
from stompcodec.broker.storage.sqlite_schema import PAGE, SCHEMA, fault, open_database, refusal
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
            ours = set(self._tables.values()) <= set(SCHEMA)  # then a newer version in the header is damage
            other = refusal(path, 0 if ours else self.number("PRAGMA user_version"), self._tables)
            if other is not None:
                raise StoreError(other)
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
        """Open a file, and return whether its tables are there."""
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
                raise fault(f"{self._path} cannot be read", error) from error
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
        """Return the number that a statement finds."""
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
    open_database(copy, new=True).close()
    page = bytearray(copy.read_bytes()[:PAGE])
    page[92:96] = b"\xff" * 4  # so that SQLite takes the size of the file for that of the database
    if path.exists() and path.stat().st_size:
        shutil.copyfile(path, copy)
    with open(copy, "r+b") as file:
        file.write(page)
    with suppress(FileNotFoundError):
        shutil.copyfile(path.with_name(f"{path.name}-wal"), copy.with_name(f"{copy.name}-wal"))
