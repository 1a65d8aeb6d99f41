"""`stompcodec broker check` and `salvage`: what they say, what they refuse, and what they leave alone."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from broker.storage.storing import SUBSCRIPTION, change, content, fill, flip, message, put
from patience import patience

import stompcodec
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

pytest.importorskip("click")
from click.testing import CliRunner

from stompcodec.cli.app import app

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(stompcodec.__file__).parents[1])}


def run(*words):
    result = CliRunner().invoke(app, ["broker", *map(str, words)])
    return result.exit_code, result.output


def test_a_whole_folder(tmp_path):
    fill(tmp_path / "data")
    status, said = run("check", tmp_path / "data")
    assert (status, said.count("\n")) == (0, 1)
    assert "10 messages" in said
    assert "0 messages lost" in said
    status, said = run("salvage", tmp_path / "data", tmp_path / "new", "--json")
    record = json.loads(said)
    assert (status, record["whole"], record["messages"], record["subscriptions"]) == (0, True, 10, 1)
    assert content(tmp_path / "new")[0] == content(tmp_path / "data")[0]
    store = SqliteStore(tmp_path / "new")
    assert store.subscriptions() == [SUBSCRIPTION]
    store.close()


def test_damage_is_listed(tmp_path):
    fill(tmp_path / "data")
    change(tmp_path / "data", "UPDATE message SET tail = x'0a0a00' WHERE id = 'm-3'", "DELETE FROM subscription")
    (file,) = [path for path in (tmp_path / "data" / "bodies").iterdir() if "-" in path.name]
    flip(file, 100_000)
    status, said = run("check", tmp_path / "data")
    assert status == 1
    assert "lost: m-3 of /queue/a: its row is damaged" in said
    assert "lost: m-2 of /queue/a: its file is missing or damaged" in said
    assert "1 durable subscriptions are missing" in said
    status, said = run("salvage", tmp_path / "data", tmp_path / "new", "--json")
    record = json.loads(said)
    assert (status, record["messages"]) == (1, 8)
    assert sorted(message["id"] for message in record["lost"]) == ["m-2", "m-3"]
    assert check(tmp_path / "new").whole


@pytest.mark.parametrize("killed", [False, True])
def test_marks_and_flags_are_copied(tmp_path, killed):
    """Of a folder that was not closed all is redelivered."""
    store = SqliteStore(tmp_path / "running")
    given = message(7, expires=2e9, priority=8, attempts=3, redelivered=not killed)
    store.reserve(1000)
    put(store, given)
    if killed:
        shutil.copytree(tmp_path / "running", tmp_path / "data")
    store.close()
    assert salvage(tmp_path / ("data" if killed else "running"), tmp_path / "new").whole
    store = SqliteStore(tmp_path / "new")
    assert (list(store.load()), store.mark, store.unclean) == ([given._replace(redelivered=True)], 1000, False)
    store.close()


@pytest.mark.parametrize("page", [1, 2, 4, 8])
def test_a_page_of_zeros(tmp_path, page):
    """Also where SQLite calls the file malformed: what other pages hold is copied, and nothing that was not sent."""
    store = SqliteStore(tmp_path / "data")
    sent = {("q", seq): message(seq, 1000) for seq in range(100)}
    put(store, *sent.values())
    store.close()
    database = tmp_path / "data" / "messages.sqlite"
    octets = bytearray(database.read_bytes())
    octets[(page - 1) * 8192 : page * 8192] = bytes(8192)
    database.write_bytes(octets)
    with closing(sqlite3.connect(database)) as connection:
        try:
            (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.Error:
            sound = "malformed"
    assert check(tmp_path / "data").whole is (sound == "ok")
    report = salvage(tmp_path / "data", tmp_path / "new")
    assert report.whole or sound != "ok"
    found, _ = content(tmp_path / "new")
    assert found.items() <= sent.items()
    if page > 4:
        assert len(found) >= 90


@pytest.mark.parametrize("step", [2, 7])
def test_what_lies_between_damaged_pages_is_copied(tmp_path, step):
    """Queues whose seqs have gaps, and each n-th page of theirs is zeros."""
    store = SqliteStore(tmp_path / "data")
    sent = {(f"q{seq % 2}", seq * 7): message(seq * 7, 1000, f"q{seq % 2}") for seq in range(300)}
    put(store, *sent.values())
    store.close()
    database = tmp_path / "data" / "messages.sqlite"
    octets = bytearray(database.read_bytes())
    leaves = [at for at in range(16 * 8192, len(octets), 8192) if octets[at] == 13]
    lost = 0
    for at in leaves[::step]:
        lost += int.from_bytes(octets[at + 3 : at + 5], "big")  # the rows of the page
        octets[at : at + 8192] = bytes(8192)
    database.write_bytes(octets)
    report = salvage(tmp_path / "data", tmp_path / "new")
    assert not report.whole
    found, _ = content(tmp_path / "new")
    assert found.items() <= sent.items()
    assert len(leaves) > 30
    assert len(found) == len(sent) - lost


@pytest.mark.parametrize("octets", [b"", b"garbage" * 10_000, b"SQLite format 3\0" + bytes(9000), None])
def test_a_file_that_holds_nothing_or_less(tmp_path, octets):
    fill(tmp_path / "data", 5 if octets is not None else 200)
    database = tmp_path / "data" / "messages.sqlite"
    if octets is None:
        os.truncate(database, database.stat().st_size - 8192 - 77)
    else:
        database.write_bytes(octets)
    assert run("check", tmp_path / "data")[0] == 1
    report = salvage(tmp_path / "data", tmp_path / "new")
    assert not report.whole
    assert (0 < report.messages < 400) if octets is None else report.messages == 0
    assert check(tmp_path / "new").whole


# ---- what is refused ----


def test_a_new_folder_that_exists_is_refused(tmp_path):
    fill(tmp_path / "data")
    for name in ("folder", "file", "link"):
        target = tmp_path / name
        {"folder": target.mkdir, "file": target.touch, "link": lambda: os.symlink("nowhere", tmp_path / "link")}[name]()
        status, said = run("salvage", tmp_path / "data", target)
        assert status == 2
        assert "exists already" in said
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_folder_that_a_broker_uses_is_refused(tmp_path):
    store = fill(tmp_path / "data", close=False)
    for words in (("check", tmp_path / "data"), ("salvage", tmp_path / "data", tmp_path / "new")):
        status, said = run(*words)
        assert status == 2
        assert "a broker uses" in said
    store.close()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["check", "salvage"])
def test_what_is_no_data_folder_is_refused(tmp_path, verb):
    for name in ("missing", "empty"):
        if name == "empty":
            (tmp_path / name).mkdir()
        words = (verb, tmp_path / name, *([tmp_path / "new"] if verb == "salvage" else []))
        status, said = run(*words)
        assert status == 2
        assert str(tmp_path / name) in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


# ---- kills ----

KILLED = """
import os, sys
from stompcodec.broker.storage import salvage
from stompcodec.broker.storage import sqlite
left = int(sys.argv[3])
commit = sqlite.SqliteStore.commit
def counted(store):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    commit(store)
salvage._BATCH = 20
sqlite.SqliteStore.commit = counted
rename = os.rename
def renamed(*paths):
    if left == 0:
        os._exit(9)
    rename(*paths)
os.rename = renamed
salvage.salvage(sys.argv[1], sys.argv[2])
"""


@pytest.mark.long
def test_killed_at_any_commit(tmp_path):
    """The new folder is not there, or complete; what is left is removed by the next call."""
    fill(tmp_path / "data", 40)
    expected, _ = content(tmp_path / "data")
    for left in range(20):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "data"), str(tmp_path / "new"), str(left)]
        status = subprocess.run(command, env=ENVIRONMENT, timeout=patience(60)).returncode
        if status == 0:
            break
        assert status == 9
        assert not (tmp_path / "new").exists()
    else:
        pytest.fail("it never ends")
    assert left > 3
    assert content(tmp_path / "new")[0] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "new"]


def test_what_is_in_the_way_and_not_ours_stays(tmp_path):
    fill(tmp_path / "data")
    part = tmp_path / ".new.salvage"
    part.mkdir()
    (part / "notes.txt").touch()
    with pytest.raises(StoreError, match="in the way"):
        salvage(tmp_path / "data", tmp_path / "new")
    assert (part / "notes.txt").exists()
