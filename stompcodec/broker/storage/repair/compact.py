"""Compaction of a data file made by an older version, so that it gives space back by itself afterwards."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stompcodec.broker.storage.folder_lock import DATABASE, FolderLock, examine_data
from stompcodec.broker.storage.sqlite_schema import fault, open_database
from stompcodec.errors import StoreError


def compact(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Rewrite the data file without empty pages, and return its size before and after, in bytes.

    It takes some seconds per GiB, and needs free space of twice the size of the content. An interrupted call changes
    nothing. Raise StoreError if the folder is not a data folder, is in use by a broker, or the disk lacks space.

    >>> import tempfile
    >>> from stompcodec.broker.storage.sqlite import SqliteStore
    >>> with tempfile.TemporaryDirectory() as name:
    ...     SqliteStore(name).close()
    ...     before, after = compact(name)
    >>> after <= before
    True
    """
    path = Path(folder)
    database = path / DATABASE
    if not database.is_file():
        raise StoreError(f"{path} is not a broker's data folder (it has no {DATABASE})")
    examine_data(path)
    lock = FolderLock(path)
    try:
        with _temporary(path):
            return _rewrite(database)
    except sqlite3.Error as error:
        raise fault(f"{database} cannot be compacted", error) from error
    finally:
        lock.release()


def _rewrite(database: Path) -> tuple[int, int]:
    connection = open_database(database)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        before = database.stat().st_size
        (pages,), (free,), (size,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        needed, there = 2 * (pages - free) * size, shutil.disk_usage(database.parent).free
        if needed > there:
            raise StoreError(
                f"{database} holds {needed // 2} bytes, and {there} are free on the disk (free {needed - there} more)"
            )
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    return before, database.stat().st_size


@contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """Let SQLite put its temporary file beside the data: /tmp may be too small, and visible to other users."""
    before = os.environ.get("SQLITE_TMPDIR")
    os.environ["SQLITE_TMPDIR"] = str(folder.absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ["SQLITE_TMPDIR"]
        else:
            os.environ["SQLITE_TMPDIR"] = before
