"""The migration to version 6: a data folder of 7001fc9 with every kind of message, killed at any moment."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from crash.process import ROOT

from stompcodec.broker.message import due_of
from stompcodec.broker.storage import sqlite_schema as schema
from stompcodec.broker.storage.repair.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

ARCHIVE = Path(__file__).with_name("of_7001fc9.tar.xz")
DELAYED = 62


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """The folder, as a crash left it, and what its own broker read there."""
    folder = tmp_path_factory.mktemp("7001fc9")
    options = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, **options)
    return folder / "data", json.loads((folder / "expected.json").read_text())


@pytest.fixture
def old(origin, tmp_path):
    return shutil.copytree(origin[0], tmp_path / "old"), origin[1]


def paged(store):
    """All messages of a store: those of each queue in pages, then delayed ones."""
    found = []
    for held in store.held():
        after, count = -1, len(found)
        while after < held.last:
            pages = []
            store.read(held.queue, after, held.last, 40, 10**6, pages.append, None)
            found += pages[0].messages
            after = pages[0].last
        assert len(found) - count == held.total - held.deferred
    pages = []
    store.deferred((), 1000, 10**9, pages.append, None)
    assert pages[0].after is None
    assert [one.due for one in pages[0].messages] == sorted(due_of(one.tail) for one in pages[0].messages)
    assert len(pages[0].messages) == DELAYED
    return found + pages[0].messages


def record(one):
    """A message as in the list of its own broker."""
    fields = (one.queue, one.seq, one.id, one.destination, zlib.crc32(one.tail), len(one.tail), one.persistent)
    body = None if one.body is None else [one.body.size, one.body.crc]
    return [*fields, one.expires, one.priority, one.attempts, one.redelivered, body]


def compare(folder, expected):
    """Open a folder, and compare everything in it with what its own broker read."""
    wanted = sorted(expected["messages"], key=lambda row: row[:2])
    store = SqliteStore(folder)
    try:
        assert [list(one)[:-1] for one in store.subscriptions()] == expected["subscriptions"]
        assert sorted(map(record, store.load())) == wanted
        assert sorted(map(record, paged(store))) == wanted
        times = sorted(row[7] for row in wanted if row[7] is not None)
        pages = []
        store.expired(3e9, (), 1000, 10**9, pages.append, None)
        assert [one.expires for one in pages[0].messages] == times
        for held in store.held():
            for priority in {0, 2, 7, 9, *held.priorities}:
                store.read(held.queue, -1, held.last, 1000, 10**9, pages.append, None, priority)
                assert {one.priority for one in pages[-1].messages} == {priority} & set(held.priorities)
        assert store.damage.findings == 0
    finally:
        store.close()
    assert check(folder).whole


def test_a_folder_of_7001fc9_keeps_every_message(old, caplog):
    folder, expected = old
    compare(folder, expected)
    said = "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert "migrating 466 messages to version 6, which needs " in said
    assert said.count("the migration to version 6 is complete") == 1


def test_a_folder_of_7001fc9_is_salvaged(old, tmp_path):
    folder, expected = old
    assert check(folder).whole
    assert salvage(folder, tmp_path / "new").messages == 466
    compare(tmp_path / "new", expected)


class Killed(BaseException):
    """The process ends here."""


def dying(folder, at, image, statements):
    """A connection at whose statement number `at` the process is killed: the disk is copied to `image`. Only those
    statements count that begin with one of `statements`."""
    left = [at]

    def count(statement):
        if statement.startswith(statements):
            left[0] -= 1
            if left[0] == 0:
                shutil.copytree(folder, image)
                raise Killed

    class Dying(sqlite3.Connection):
        def execute(self, statement, *values):
            count(statement)
            return super().execute(statement, *values)

        def executemany(self, statement, *values):
            count(statement)
            return super().executemany(statement, *values)

    def connect(path):
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Dying)

    return connect


def kill(folder, at, image, statements, monkeypatch):
    """Open a store, and kill it at a statement. Returns False if it did not come to that."""
    monkeypatch.setattr(schema, "connect", dying(folder, at, image, statements))
    connection = None
    try:
        connection = schema.open_database(folder / "messages.sqlite")
    except Killed:
        return True
    finally:
        monkeypatch.undo()
        if connection is not None:
            connection.close()
    return False


def versions_agree(folder):
    """A broker of an older version refuses a folder in which anything of the new one is."""
    with closing(sqlite3.connect(folder / "messages.sqlite")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return ("special" in tables) == (version == 6)


TRANSACTIONS = pytest.param(("BEGIN", "COMMIT"), 12, id="transaction")
STATEMENTS = pytest.param("", 60, id="statement", marks=pytest.mark.slow)


@pytest.mark.parametrize(("statements", "least"), [TRANSACTIONS, STATEMENTS])
def test_a_migration_that_is_killed_at_any_moment_goes_on(old, statements, least, tmp_path, monkeypatch):
    folder, expected = old
    at, more, chance = 0, True, random.Random(5)
    while more:
        at += 1
        source, image = shutil.copytree(folder, tmp_path / f"{at}"), tmp_path / f"{at}-killed"
        # A share ends among delayed messages.
        monkeypatch.setattr(schema, "_END", schema._END.replace("20000", "320"))
        more = kill(source, at, image, statements, monkeypatch)
        if more:
            again = tmp_path / f"{at}-again"
            if at % 3 == 0 and kill(image, chance.randrange(1, least), again, statements, monkeypatch):
                image = again
            assert versions_agree(shutil.copytree(image, tmp_path / f"{at}-looked"))
            if at % 5 == 0:
                assert check(image).whole
            compare(image, expected)
        for path in tmp_path.glob(f"{at}*"):
            shutil.rmtree(path)
    assert at > least, "this many statements make a migration"


def killed_rounds(origin, folder, rounds, seed=0):
    """Start the broker with copies of a folder, and kill it in the middle of the migration, up to three times each.
    Yield the number of kills, and whether everything is as after a migration that nobody killed.
    """
    chance = random.Random(seed)
    image = shutil.copytree(origin, folder / "image")
    lasts = started(image, None)
    wanted = content(image)
    for _ in range(rounds):
        shutil.rmtree(image)
        shutil.copytree(origin, image, copy_function=lambda a, b: (os.link if "bodies" in a else shutil.copy2)(a, b))
        kills = 0
        while kills < 3 and started(image, chance.uniform(0, lasts / (kills + 1))) is None:
            kills += 1
        if kills == 3:
            started(image, None)
        yield kills, content(image) == wanted


def started(folder, life):
    """Start the broker, and kill it so many seconds after its migration began; with None, when it is complete. Returns
    the seconds that the migration took, or None if it was killed before it said so.
    """
    if is_migrated(folder):  # it was killed before it could say so
        return 0.0
    command = [sys.executable, "-m", "stompcodec.cli", "broker", "--data", str(folder), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    timer = None
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        began, took = 0.0, None
        for line in process.stderr:
            if b" needs " in line or b" continues" in line:
                began = time.monotonic()
                if life is not None:
                    timer = threading.Timer(life, process.kill)
                    timer.start()
            elif b"is complete" in line:
                took = time.monotonic() - began
                process.kill()
    if timer is not None:
        timer.join()
    return took


def is_migrated(folder):
    with closing(sqlite3.connect(f"{(folder / 'messages.sqlite').as_uri()}?mode=ro", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return version == len(schema.MIGRATIONS) and "filling" not in tables


def content(folder):
    """The rows that a migration leaves in the tables of messages."""
    with closing(sqlite3.connect(folder / "messages.sqlite")) as connection:
        sums = "count(*), sum(key % 1000003), sum(length(tail)), sum(length(id) * (key % 1009)), total(expires)"
        return (
            connection.execute(f"SELECT {sums} FROM message").fetchall(),
            zlib.crc32(repr(connection.execute("SELECT * FROM special ORDER BY key").fetchall()).encode()),
            connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall(),
        )


def multiply(folder, count):
    """Store the messages of a folder again and again, except for large ones, until there are so many."""
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as connection:
        connection.execute("CREATE TEMP TABLE old AS SELECT * FROM message WHERE key NOT IN (SELECT key FROM body)")
        (size,) = connection.execute("SELECT count(*) FROM old").fetchone()
        connection.execute("BEGIN")
        for _ in range(count // size):
            connection.execute("UPDATE old SET key = key + (1 << 30)")
            connection.execute("INSERT INTO message SELECT * FROM old")
        connection.execute("COMMIT")


@pytest.mark.slow
def test_a_long_migration_that_is_killed_goes_on(old, tmp_path):
    """Kills are SIGKILL, and some migrations are killed more than once."""
    folder, _ = old
    multiply(folder, 1_000_000)
    kills, right = zip(*killed_rounds(folder, tmp_path, 30))
    assert all(right)
    assert sum(kills) > 20


@pytest.mark.parametrize("after", [-1, 2**62])
def test_a_migration_that_was_killed_before_or_behind_its_shares_says_that_it_is_complete(old, caplog, after):
    folder, expected = old
    SqliteStore(folder).close()
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE filling (after INTEGER NOT NULL)")
        connection.execute("INSERT INTO filling VALUES (?)", (after,))
    assert not is_migrated(folder)
    caplog.clear()
    SqliteStore(folder).close()
    said = [record.getMessage().rpartition(" migration to version 6 ")[2] for record in caplog.records]
    assert said == ["was interrupted, and continues", "is complete"]
    assert is_migrated(folder)
    compare(folder, expected)


def test_a_migration_says_how_much_space_it_needs(old, monkeypatch):
    folder, expected = old
    monkeypatch.setattr(schema, "free_space", lambda path: 1_000_000)
    says = r"holds 466 messages, and its migration to version 6 needs (\d+) bytes of free space, but 1000000 are free"
    with pytest.raises(StoreError, match=says):
        SqliteStore(folder)
    with closing(sqlite3.connect(folder / "messages.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    monkeypatch.undo()
    compare(folder, expected)


def test_messages_that_are_damaged_do_not_stop_a_migration(old):
    folder, _ = old
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM message WHERE instr(tail, 'deliver-at') LIMIT 4")]
        for key, tail in zip(keys, (b"deliver-at:5", "text", 7, b"\xff")):
            connection.execute("UPDATE message SET tail = ? WHERE key = ?", (tail, key))
        connection.execute("UPDATE body SET file = x'ff' WHERE key IN (SELECT key FROM message WHERE tail IS NULL)")
    store = SqliteStore(folder)
    assert len(list(store.held())) == 9
    assert len(list(store.load())) > 455
    store.close()
