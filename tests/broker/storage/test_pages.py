"""Pages: the reader of SQLite's file format, on files that sqlite3 wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stompcodec.broker.storage.sqlite_file.pages import Pages


def database(path: Path, page_size: int) -> list[bytes]:
    """Write a database with some rows. Return their texts."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("CREATE TABLE message (text)")
        connection.executemany("INSERT INTO message VALUES (?)", [(str(number) * 50,) for number in range(40)])
        connection.commit()
    return [str(number).encode() * 50 for number in range(40)]


def texts(path: Path, problems: list[str]) -> list[object]:
    with Pages(path, problems.append) as pages:
        return [row[0] for _rowid, row in pages.rows(pages.tables()["message"])]


@pytest.mark.parametrize("page_size", [2**power for power in range(9, 17)])
def test_every_page_size_of_sqlite_is_read(tmp_path: Path, page_size: int) -> None:
    path = tmp_path / "messages.sqlite"
    written, problems = database(path, page_size), list[str]()
    assert texts(path, problems) == written
    assert problems == []


@pytest.mark.parametrize("said", [0, 2, 256, 511, 513, 8193, 65535])
def test_a_damaged_page_size_is_that_of_a_store(tmp_path: Path, said: int) -> None:
    path = tmp_path / "messages.sqlite"
    written, problems = database(path, 8192), list[str]()
    octets = bytearray(path.read_bytes())
    octets[16:18] = said.to_bytes(2, "big")
    path.write_bytes(octets)
    assert texts(path, problems) == written
    assert problems == []
