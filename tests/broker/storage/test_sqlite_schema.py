"""The data folder: one broker at a time, files of older and newer versions, and files of others."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from patience import patience

import stompcodec
from stompcodec.broker.storage import sqlite_schema as schema
from stompcodec.broker.storage.repair.salvage import check, salvage
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


#: Version 1 as it was released. It must never change: files of it are out there.
VERSION_1 = """
PRAGMA application_id = 1398033744;
CREATE TABLE queue (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, suspect INTEGER NOT NULL DEFAULT 0);
CREATE TABLE message (key INTEGER PRIMARY KEY, id TEXT NOT NULL, destination TEXT NOT NULL, tail BLOB,
    persistent INTEGER NOT NULL, expires REAL, priority INTEGER NOT NULL, attempts INTEGER NOT NULL,
    redelivered INTEGER NOT NULL);
CREATE TABLE body (key INTEGER PRIMARY KEY, file TEXT NOT NULL, size INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE state (clean INTEGER NOT NULL);
CREATE TABLE migration (version INTEGER PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
INSERT INTO state VALUES (1);
INSERT INTO migration (version) VALUES (1);
INSERT INTO queue VALUES (3, 'orders', 0);
INSERT INTO message VALUES ((3 << 45) + 8, 'm-8', '/queue/a', x'613a620a0a686900', 1, 2e9, 4, 0, 0);
INSERT INTO message VALUES ((3 << 45) + 9, 'm-9', '/queue/a', x'0a0a00', 1, NULL, 9, 2, 1);
PRAGMA user_version = 1;
"""
CONTENT_1 = {
    ("orders", 8): Stored("orders", 8, "m-8", "/queue/a", b"a:b\n\nhi\0", expires=2e9),
    ("orders", 9): Stored("orders", 9, "m-9", "/queue/a", b"\n\n\0", priority=9, attempts=2, redelivered=True),
}


@pytest.fixture
def old(tmp_path):
    """A folder with a file of version 1."""
    connection = sqlite3.connect(tmp_path / "messages.sqlite")
    connection.executescript(VERSION_1)
    connection.close()
    return tmp_path


def version_of(folder):
    connection = sqlite3.connect(folder / "messages.sqlite")
    versions = [row[0] for row in connection.execute("SELECT version FROM migration ORDER BY version")]
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return version, versions


def test_a_file_of_version_1_is_read(old):
    assert content(old) == CONTENT_1


def test_new_files_have_the_schema_of_version_1(old, tmp_path_factory):
    new = tmp_path_factory.mktemp("new")
    SqliteStore(new).close()
    for folder in (old, new):
        content(folder)

    def columns(folder):
        connection = sqlite3.connect(folder / "messages.sqlite")
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        ]
        found = {table: connection.execute(f"PRAGMA table_info({table})").fetchall() for table in tables}
        connection.close()
        return found

    assert columns(new) == columns(old)
    assert version_of(new) == version_of(old)


STEPS = (
    (
        "ALTER TABLE queue ADD COLUMN note TEXT NOT NULL DEFAULT ''",
        "UPDATE message SET priority = 0 WHERE priority = 9",
    ),
    ("CREATE TABLE more (id)", "UPDATE queue SET name = name || '!'"),
)


def set_version(folder, version):
    with closing(sqlite3.connect(folder / "messages.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def test_an_older_file_goes_through_every_step(old, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS + STEPS)
    found = content(old)
    newest = len(schema.MIGRATIONS)
    assert version_of(old) == (newest, [*range(1, newest + 1)])
    expected = {("orders!", seq): kept._replace(queue="orders!") for (_, seq), kept in CONTENT_1.items()}
    expected["orders!", 9] = expected["orders!", 9]._replace(priority=0)
    assert found == expected
    assert content(old) == expected  # and not through them again
    monkeypatch.undo()
    says = f"has version {newest}, but this broker supports at most {newest - 2} \\(install a newer one"
    with pytest.raises(StoreError, match=says):
        SqliteStore(old)
    database = old / "messages.sqlite"
    says = f"{database} has version {newest}, but this command knows at most {newest - 2} (use a newer one)"
    assert says in check(old).problems
    beside = tmp_path_factory.mktemp("beside")
    with pytest.raises(StoreError, match=re.escape(says)):
        salvage(old, beside / "new")
    assert not list(beside.iterdir())
    set_version(old, newest - 2)  # the header and the table do not agree: one of them is damaged
    assert salvage(old, beside / "new").messages == len(CONTENT_1)
    assert not [problem for problem in check(old).problems if "version" in problem]


def test_a_step_that_fails_leaves_the_version_before(old, monkeypatch):
    released = schema.MIGRATIONS
    broken = (STEPS[0], ("UPDATE queue SET name = 'lost'", "this is no SQL"))
    monkeypatch.setattr(schema, "MIGRATIONS", released + broken)
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(old)
    reached = len(released) + 1
    assert version_of(old) == (reached, [*range(1, reached + 1)])
    monkeypatch.setattr(schema, "MIGRATIONS", released + STEPS)
    assert {queue for queue, _ in content(old)} == {"orders!"}


def test_what_version_1_did_not_have_is_empty(old):
    store = SqliteStore(old)
    assert (list(store.subscriptions()), store.mark) == ([], 0)
    store.close()
