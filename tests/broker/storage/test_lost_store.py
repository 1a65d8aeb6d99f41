"""A data folder whose database is gone, of another program or version: it is refused, and nothing of it is touched."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from broker.folders import OURS, put_file, start, tree
from broker.storage.storing import change, content, fill, message, put
from broker.storage.test_salvage import run

from stompcodec.broker.storage import tables as schema
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError


def lose(data, how):
    """Take the tables away, in one way or another."""
    database = data / "messages.sqlite"
    if how == "missing":
        database.unlink()
    elif how == "empty":
        os.truncate(database, 0)
    elif how == "dropped":
        change(data, "DROP TABLE message", "DROP TABLE body")
    elif how == "cut":
        os.truncate(database, 8192)
    else:
        database.unlink()
        with closing(sqlite3.connect(database)) as other:
            other.execute("PRAGMA journal_mode = WAL")
            if how == "header of ours":
                other.execute(f"PRAGMA application_id = {0x53544D50}")
            elif how == "of somebody else":
                other.execute("CREATE TABLE a (b)")
            other.execute("VACUUM")


WAYS = ["missing", "empty", "without tables", "header of ours", "of somebody else", "dropped", "cut"]


def left_by_a_kill(data, tmp_path):
    """Put a folder as a kill leaves it: with a log."""
    running = tmp_path / "running"
    store = fill(running, close=False)
    shutil.copytree(running, data)
    store.close()
    assert (data / "messages.sqlite-wal").stat().st_size > 0


@pytest.mark.parametrize(
    ("killed", "how"),
    [(killed, how) for killed in (False, True) for how in WAYS if not (killed and how == "cut")],  # nothing is cut off
)
def test_it_is_refused_and_nothing_is_removed(killed, how, tmp_path):
    data = tmp_path / "data"
    if killed:
        left_by_a_kill(data, tmp_path)
        log = (data / "messages.sqlite-wal").read_bytes()
    else:
        fill(data)
    lose(data, how)
    if killed and how in ("missing", "empty"):  # else SQLite takes it over, and nothing is lost
        (data / "messages.sqlite-wal").write_bytes(log)
    put_file(data / "bodies" / OURS)
    before = {name: value for name, value in tree(data).items() if not name.endswith("-shm")}
    assert sum(name.startswith("bodies/") for name in before) >= 2
    for _ in range(2):
        with pytest.raises(StoreError, match=r"backup|name another data folder|stompcodec broker salvage") as caught:
            start(data)
        assert str(data) in str(caught.value)
        assert "messages.sqlite" in str(caught.value)
    if how in ("missing", "empty") or not killed:
        status, said = run("check", data)
        assert status == 1, said
        assert "damaged: " in said
        assert "the next start removes" not in said
    after = tree(data)
    assert {name: after.get(name) for name in before if "lock" not in name} == {
        name: value for name, value in before.items() if "lock" not in name
    }


@pytest.mark.parametrize(("how", "word"), [("missing", "missing"), ("empty", "empty"), ("without tables", "no tables")])
def test_it_is_said_what_is_lost_and_what_to_do(how, word, tmp_path):
    data = tmp_path / "data"
    fill(data)
    lose(data, how)
    with pytest.raises(StoreError) as caught:
        SqliteStore(data)
    for text in (word, "from a backup", "name another folder"):
        assert text in str(caught.value)
    assert word in "".join(check(data).problems)
    if how == "missing":
        status, said = run("salvage", data, tmp_path / "new")
        assert status == 2
        assert "messages.sqlite is missing" in said
        assert not (tmp_path / "new").exists()


def test_the_marker_is_not_needed_where_bodies_are_left(tmp_path):
    """The marker went with the database."""
    data = tmp_path / "data"
    fill(data)
    for path in (*data.glob("messages.sqlite*"), data / "stompcodec-folder"):
        path.unlink()
    before = tree(data)
    with pytest.raises(StoreError, match="bodies"):
        SqliteStore(data)
    assert tree(data) == before
    assert run("check", data)[0] == 1


def test_a_killed_broker_that_never_wrote_its_log_back_starts(tmp_path):
    """Its tables are in the log alone."""
    data = tmp_path / "data"
    left_by_a_kill(data, tmp_path)
    assert (data / "messages.sqlite").read_bytes()[68:72] == bytes(4)
    assert check(data).whole
    assert len(content(data)[0]) == 10


def test_a_database_that_goes_while_the_broker_runs(tmp_path):
    """A broker that has to open it again does not make a new one."""
    data = tmp_path / "data"
    store = fill(data, close=False)
    (data / "messages.sqlite").unlink()
    store._writer._db.close()
    store._writer._db = None
    store.append("q", message(1))
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.commit()
    assert not (data / "messages.sqlite").exists()
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.close()


# ---- other programs, and other versions ----


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


@pytest.mark.parametrize("version", [1, 6])
def test_a_folder_of_an_unreleased_build_is_refused_with_the_build_that_reads_it(tmp_path, version):
    data = tmp_path / "data"
    data.mkdir()
    with closing(sqlite3.connect(data / "messages.sqlite")) as connection:
        connection.executescript(UNRELEASED + f"PRAGMA user_version = {version};")
    before = (data / "messages.sqlite").read_bytes()
    (data / "lock").touch()
    for verb in (SqliteStore, check, lambda folder: salvage(folder, tmp_path / "new")):
        with pytest.raises(StoreError, match=r"before the first release.*\(build [0-9a-f]{8} does"):
            verb(data)
    assert (data / "messages.sqlite").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_a_newer_version_is_refused(tmp_path):
    data = tmp_path / "data"
    store = SqliteStore(data)
    put(store, message(1))
    store.close()
    newer = schema.VERSION + 1
    change(data, f"PRAGMA user_version = {newer}")
    with pytest.raises(StoreError, match=f"has version {newer}, and this program knows only {schema.VERSION}"):
        SqliteStore(data)
    assert salvage(data, tmp_path / "flipped").messages == 1, "its tables are ours: the header is damaged"
    change(data, "ALTER TABLE message ADD COLUMN more")
    for verb in (check, lambda folder: salvage(folder, tmp_path / "new")):
        with pytest.raises(StoreError, match=f"has version {newer}"):
            verb(data)
    assert sorted(os.listdir(tmp_path)) == ["data", "flipped"]
