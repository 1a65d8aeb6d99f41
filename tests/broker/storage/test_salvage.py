"""`stompcodec broker check` and `salvage`: what they say, what they refuse, and what they leave alone."""

import errno
import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from broker.storage.storing import BIG, SUBSCRIPTION, change, content, fill, filled, flip, killed, message, put
from client.feeding import wait_for

from stompcodec.broker.storage.large import BodyFolder
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

pytest.importorskip("click")
from click.testing import CliRunner

from stompcodec.cli.app import app


def run(*words):
    result = CliRunner().invoke(app, ["broker", *map(str, words)])
    return result.exit_code, result.output


def test_a_whole_folder(data, new):
    fill(data)
    status, said = run("check", data)
    assert (status, said.count("\n")) == (0, 1)
    assert "10 messages" in said
    assert "0 messages lost" in said
    status, said = run("salvage", data, new, "--json")
    record = json.loads(said)
    assert (status, record["whole"], record["messages"], record["subscriptions"]) == (0, True, 10, 1)
    assert content(new)[0] == content(data)[0]
    with closing(SqliteStore(new)) as store:
        assert store.subscriptions() == [SUBSCRIPTION]


@pytest.mark.parametrize("links", [True, False])
def test_a_backup_of_a_store_in_use_is_whole(data, new, monkeypatch, links):
    """What comes before the database is copied is in it; so is a large body that goes afterwards."""
    store, copied, copy_all = fill(data, close=False), [], BodyFolder.copy_all
    put(store, message(20, BIG))
    before = {(one.queue, one.seq) for one in store.load()}
    bodies = set((data / "bodies").iterdir())

    def copy(self):
        if copied:
            store.remove("q", message(20, BIG))
            store.commit()
            wait_for(lambda: not bodies <= set((data / "bodies").iterdir()))
        copy_all(self)
        copied.append(self)
        if len(copied) == 1:
            put(store, message(21, BIG))

    monkeypatch.setattr(BodyFolder, "copy_all", copy)
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "Cross-device link")))
    assert store.backup(new) == (new / "messages.sqlite").stat().st_size
    monkeypatch.undo()
    for folder, said in ((new, "exists already"), (new / "a/b", "new/a does not exist")):
        with pytest.raises(StoreError, match=said):
            store.backup(folder)
    assert {path.stat().st_nlink for path in (new / "bodies").iterdir()} == {1}  # damage of one leaves the other whole
    put(store, message(22))
    store.close()
    assert check(data).whole
    assert check(new).whole
    assert content(new)[0].keys() == before | {("q", 21)}
    assert not list(new.parent.glob(".*"))


def test_a_backup_that_fails_leaves_nothing(data, new, monkeypatch):
    with closing(fill(data, close=False)) as store:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "Cross-device link")))
        monkeypatch.setattr(shutil, "copyfileobj", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(StoreError, match="cannot be made: full"):
            store.backup(new)
        assert not list(new.parent.glob(f"*{new.name}*"))


def test_damage_is_listed(data, new):
    fill(data)
    change(data, "UPDATE message SET tail = x'0a0a00' WHERE id = 'm-3'", "DELETE FROM subscription")
    (file,) = [path for path in (data / "bodies").iterdir() if "-" in path.name]
    flip(file, 100_000)
    status, said = run("check", data)
    assert status == 1
    assert "lost: m-3 of /queue/a: its row is damaged" in said
    assert "lost: m-2 of /queue/a: its file is missing or damaged" in said
    assert "1 durable subscriptions are missing" in said
    status, said = run("salvage", data, new, "--json")
    record = json.loads(said)
    assert (status, record["messages"], sorted(each["id"] for each in record["lost"])) == (1, 8, ["m-2", "m-3"])
    assert check(new).whole


@pytest.mark.parametrize("killed", [False, True])
def test_marks_and_flags_are_copied(tmp_path, data, new, killed):
    """Of a folder that was not closed all is redelivered."""
    store = SqliteStore(tmp_path / "running")
    given = message(7, expires=2e9, priority=8, attempts=3, redelivered=not killed)
    store.reserve(1000)
    put(store, given)
    if killed:
        shutil.copytree(tmp_path / "running", data)
    store.close()
    assert salvage(data if killed else tmp_path / "running", new).whole
    with closing(SqliteStore(new)) as store:
        assert (list(store.load()), store.mark, store.unclean) == ([given._replace(redelivered=True)], 1000, False)


@pytest.mark.parametrize("page", [1, 2, 4, 8])
def test_a_page_of_zeros(data, new, page):
    """Also where SQLite calls the file malformed: what other pages hold is copied, and nothing that was not sent."""
    sent = {("q", seq): message(seq, 1000) for seq in range(100)}
    filled(data, *sent.values())
    database = data / "messages.sqlite"
    octets = bytearray(database.read_bytes())
    octets[(page - 1) * 8192 : page * 8192] = bytes(8192)
    database.write_bytes(octets)
    with closing(sqlite3.connect(database)) as connection:
        try:
            (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.Error:
            sound = "malformed"
    assert check(data).whole is (sound == "ok")
    assert salvage(data, new).whole or sound != "ok"
    found, _ = content(new)
    assert found.items() <= sent.items()
    assert page <= 4 or len(found) >= 90


@pytest.mark.parametrize("step", [2, 7])
def test_what_lies_between_damaged_pages_is_copied(data, new, step):
    """Queues whose seqs have gaps, and each n-th page of theirs is zeros."""
    sent = {(f"q{seq % 2}", seq * 7): message(seq * 7, 1000, f"q{seq % 2}") for seq in range(300)}
    filled(data, *sent.values())
    octets = bytearray((data / "messages.sqlite").read_bytes())
    leaves = [at for at in range(16 * 8192, len(octets), 8192) if octets[at] == 13]
    lost = 0
    for at in leaves[::step]:
        lost += int.from_bytes(octets[at + 3 : at + 5], "big")  # the rows of the page
        octets[at : at + 8192] = bytes(8192)
    (data / "messages.sqlite").write_bytes(octets)
    assert not salvage(data, new).whole
    found, _ = content(new)
    assert found.items() <= sent.items()
    assert len(leaves) > 30
    assert len(found) == len(sent) - lost


@pytest.mark.parametrize("octets", [b"", b"garbage" * 10_000, b"SQLite format 3\0" + bytes(9000), None])
def test_a_file_that_holds_nothing_or_less(data, new, octets):
    fill(data, 5 if octets is not None else 200)
    database = data / "messages.sqlite"
    if octets is None:
        os.truncate(database, database.stat().st_size - 8192 - 77)
    else:
        database.write_bytes(octets)
    assert run("check", data)[0] == 1
    report = salvage(data, new)
    assert not report.whole
    assert (0 < report.messages < 400) if octets is None else report.messages == 0
    assert check(new).whole


def test_a_new_folder_that_exists_is_refused(tmp_path, data):
    fill(data)
    for name in ("folder", "file", "link"):
        target = tmp_path / name
        {"folder": target.mkdir, "file": target.touch, "link": lambda: os.symlink("nowhere", tmp_path / "link")}[name]()
        status, said = run("salvage", data, target)
        assert (status, "exists already" in said) == (2, True)
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("verb", ["check", "salvage"])
def test_what_is_no_data_folder_is_refused(tmp_path, new, verb):
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        status, said = run(verb, tmp_path / name, *([new] if verb == "salvage" else []))
        assert (status, str(tmp_path / name) in said) == (2, True)
    assert os.listdir(tmp_path) == ["empty"]


def test_what_is_in_the_way_and_not_ours_stays(tmp_path, data, new):
    fill(data)
    part = tmp_path / ".new.salvage"
    part.mkdir()
    (part / "notes.txt").touch()
    with pytest.raises(StoreError, match="in the way"):
        salvage(data, new)
    assert (part / "notes.txt").exists()


@pytest.mark.long
@pytest.mark.no_asan  # its allocator hangs in a child that was forked beside threads
def test_killed_at_any_commit(tmp_path, data, new, monkeypatch):
    monkeypatch.setattr("stompcodec.broker.storage.salvage._BATCH", 20)
    fill(data, 40)
    expected, number = content(data)[0], 0
    while killed(number, lambda: salvage(data, new)) and not new.exists():
        number += 1
    assert number > 30
    assert content(new)[0] == expected
    assert sorted(os.listdir(tmp_path)) == ["data", "new"]
