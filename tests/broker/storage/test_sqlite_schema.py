"""The data folder: one broker at a time, files of older and newer versions, and files of others."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from patience import patience

import stompcodec
from stompcodec.broker.storage import sqlite_schema as schema
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored
from stompcodec.errors import StoreError

ROOT = str(Path(stompcodec.__file__).parents[1])


def content(folder):
    """What a store holds, by opening it anew."""
    store = SqliteStore(folder)
    try:
        return {(found.queue, found.seq): found for found in store.load()}
    finally:
        store.close()


def test_a_folder_is_for_one_broker(tmp_path):
    store = SqliteStore(tmp_path)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()} \\(stop that broker"):
        SqliteStore(tmp_path)
    store.close()
    SqliteStore(tmp_path).close()


def test_a_broker_that_was_killed_leaves_no_lock(tmp_path):
    code = "import sys; from stompcodec.broker.storage.sqlite import SqliteStore; "
    code += f"store = SqliteStore({str(tmp_path)!r}); "
    code += "print(1, flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": ROOT}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes) as process:
        assert process.stdout.readline().strip() == b"1"
        with pytest.raises(StoreError, match=f"process {process.pid} "):
            SqliteStore(tmp_path)
        process.kill()
        process.wait(patience(20))
    store = SqliteStore(tmp_path)
    assert store.unclean
    store.close()


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="name another one"):
        SqliteStore(tmp_path / "file")


def test_a_file_of_another_program_is_left_alone(tmp_path):
    other = sqlite3.connect(tmp_path / "messages.sqlite")
    other.execute("CREATE TABLE things (id)")
    other.close()
    with pytest.raises(StoreError, match="not a stompcodec store"):
        SqliteStore(tmp_path)
    (tmp_path / "messages.sqlite").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreError, match="backup"):
        SqliteStore(tmp_path)
    (tmp_path / "messages.sqlite").unlink()
    SqliteStore(tmp_path).close()


#: Tables that the builds before the first release made, as far as they tell them.
UNRELEASED = """
PRAGMA application_id = 1398033744;
CREATE TABLE queue (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, suspect INTEGER NOT NULL DEFAULT 0);
CREATE TABLE message (key INTEGER PRIMARY KEY, id TEXT NOT NULL, destination TEXT NOT NULL, tail BLOB,
    persistent INTEGER NOT NULL, expires REAL, priority INTEGER NOT NULL, attempts INTEGER NOT NULL,
    redelivered INTEGER NOT NULL);
CREATE TABLE body (key INTEGER PRIMARY KEY, file TEXT NOT NULL, size INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE state (clean INTEGER NOT NULL);
CREATE TABLE migration (version INTEGER PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
INSERT INTO migration (version) VALUES (1);
"""


@pytest.mark.parametrize("version", [1, 2, 6])
def test_a_folder_of_an_unreleased_build_is_refused_with_the_build_that_reads_it(tmp_path, version):
    data = tmp_path / "data"
    data.mkdir()
    with closing(sqlite3.connect(data / "messages.sqlite")) as connection:
        connection.executescript(UNRELEASED + f"PRAGMA user_version = {version};")
    before = (data / "messages.sqlite").read_bytes()
    (data / "lock").touch()
    for use in (SqliteStore, check, lambda folder: salvage(folder, tmp_path / "new")):
        with pytest.raises(StoreError, match=r"before the first release.*\(build [0-9a-f]{8} does"):
            use(data)
    assert (data / "messages.sqlite").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["data"]


def change(folder, *statements):
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_newer_version_is_refused(tmp_path):
    data = tmp_path / "data"
    store = SqliteStore(data)
    store.append("q", Stored("q", 1, "m-1", "/queue/q", b"\n\nhi\0"))
    store.close()
    newer = schema.VERSION + 1
    change(data, f"PRAGMA user_version = {newer}")
    with pytest.raises(StoreError, match=f"has version {newer}, and this program knows only {schema.VERSION}"):
        SqliteStore(data)
    assert salvage(data, tmp_path / "flipped").messages == 1, "its tables are ours: the header is damaged"
    change(data, "ALTER TABLE message ADD COLUMN more")
    for use in (check, lambda folder: salvage(folder, tmp_path / "new")):
        with pytest.raises(StoreError, match=f"has version {newer}"):
            use(data)
    assert sorted(os.listdir(tmp_path)) == ["data", "flipped"]
