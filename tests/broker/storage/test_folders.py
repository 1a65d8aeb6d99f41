"""Folders of the broker: nothing of somebody else is removed, written to or taken for ours; no loss is started on."""

import logging
import os
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from functools import partial

import pytest
from broker.harness import Bench
from broker.moves import pattern
from broker.storage.storing import BIG, OURS, change, fill, filled, killed, message, put_file, start, stop, tree, use
from broker.storage.test_salvage import run
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec.broker.config import Config
from stompcodec.broker.core import store_of
from stompcodec.broker.storage import folder as folder_of_store
from stompcodec.broker.storage import tables as schema
from stompcodec.broker.storage.folder import MARKER, FolderLock
from stompcodec.broker.storage.large import BodyFolder
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError


@pytest.mark.skipif(not hasattr(os, "major"), reason="only Linux tells")
@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [*((kind, True) for kind in ("nfs4", "cifs", "smb3", "ceph", "fuse.sshfs")), ("ext4", False), ("fuseblk", False)],
)
def test_a_folder_on_the_network_is_refused_without_force_fs(kind, is_refused, tmp_path, monkeypatch):
    device, mounts = os.stat(tmp_path).st_dev, tmp_path / "mountinfo"
    monkeypatch.setattr(folder_of_store, "_MOUNTS", str(mounts))
    own = f"36 35 {os.major(device)}:{os.minor(device)} / / rw,noatime master:1 - {kind} server:/a rw\n"
    mounts.write_bytes(b"22 27 0:999 / /caf\xe9 rw - nfs4 b:/ rw\n" + own.encode())
    config = Config(data=str(tmp_path / "new" / "data"))
    if is_refused:
        with pytest.raises(StoreError, match=rf"on a file system of the network, {kind},.*--force-fs"):
            store_of(config)
        assert not (tmp_path / "new").exists()
        config = config.replace(force_fs=True)
    store_of(config).close()


# ---- folders that are not marked ----
def put_link(path):
    target = path.parents[2] / "elsewhere"
    target.write_bytes(b"mine")
    path.symlink_to(target)


def put_folder(path):
    path.mkdir()
    put_file(path / OURS)


FOREIGN = [
    *(("orders.csv", put_file), (OURS.upper(), put_file), (OURS + ".csv", put_file), (".hidden", put_file)),
    *((OURS, put_link), (OURS, put_folder), (OURS, os.mkfifo)),
]


def each_foreign(test):
    parts = pytest.mark.parametrize("part", ["bodies", "incoming", "large"])
    return pytest.mark.parametrize(("name", "put"), FOREIGN)(parts(test))


@each_foreign
def test_a_folder_with_files_of_others_is_refused(part, name, put, tmp_path):
    folder = tmp_path / "data" / part
    folder.mkdir(parents=True)
    put(folder / name)
    before = tree(tmp_path)
    with pytest.raises(StoreError) as caught:
        Bench(large_folder=str(folder)) if part == "large" else start(tmp_path / "data")
    assert tree(tmp_path) == before
    texts = (name, "messages.large_folder") if part == "large" else (f"{part}/{name}", "store.data (--data)")
    for text in (*texts, "name another folder for "):
        assert text in str(caught.value)


@pytest.mark.parametrize("content", [None, "lost+found", "broker.toml", "bodies", "incoming/lost+found"])
def test_a_folder_without_any_is_taken(content, tmp_path):
    """An empty one, the root of a disk, one with the configuration beside the data."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    if content == "broker.toml":
        (folder / content).write_text("")
    elif content is not None:
        (folder / content).mkdir(parents=True)
    before = tree(folder)
    use(folder)
    use(folder)
    assert before.items() <= tree(folder).items()
    assert (folder / MARKER).read_bytes() == b"stompcodec data 1\n"


@pytest.mark.parametrize("content", ["lost+found", OURS, "nothing"])
def test_a_folder_for_large_messages_is_taken(content, tmp_path):
    folder = tmp_path / "deep" / "large"
    if content != "nothing":
        folder.mkdir(parents=True)
        put_file(folder / content) if content == OURS else (folder / content).mkdir()
    for _ in range(2):
        bench = Bench(large_folder=str(folder), large=1000)
        bench.peer().put("/queue/a", pattern(5000))
        assert not (folder / OURS).exists()
        stop(bench)
        assert {path.name for path in folder.iterdir()} == {"lock", MARKER} | ({content} & {"lost+found"})


def link(data, name):
    target = data.parent / "target"
    target.mkdir()
    put_file(target / OURS)
    (data / name).symlink_to(target, target_is_directory=True)


def database(data, application):
    change(data, "CREATE TABLE a (b)", f"PRAGMA application_id = {application}")


def database_elsewhere(data):
    use(data.parent / "other")
    (data / "messages.sqlite").symlink_to(data.parent / "other" / "messages.sqlite")


LOCK, STORE, FOLDER = "'lock' does not belong to this broker", "is not a stompcodec store", "name another folder"
#: What somebody has done to a data folder, and what the broker says to it.
DEEDS = {
    "lock": (lambda data: (data / "lock").write_text("the key to the cellar\n"), LOCK),
    "lock is a link": (lambda data: link(data, "lock"), LOCK),
    "lock is a folder": (lambda data: (data / "lock").mkdir(), LOCK),
    "database": (lambda data: database(data, 7), STORE),
    "database without an application": (lambda data: database(data, 0), STORE),
    "no database": (lambda data: (data / "messages.sqlite").write_bytes(b"no database at all" * 1000), "backup"),
    "locked database": (lambda data: (database(data, 7), FolderLock(data).release()), STORE),
    "database is a link": (database_elsewhere, r"'messages\.sqlite' does not belong to this broker"),
    "marker": (lambda data: (data / MARKER).write_bytes(b"my notes\n"), "is not a marker of stompcodec"),
    "marker is a link": (lambda data: link(data, MARKER), "is not a marker of stompcodec"),
    "newer marker": (lambda data: (data / MARKER).write_bytes(b"stompcodec data 2\n"), "newer version"),
    "other marker": (lambda data: (data / MARKER).write_bytes(b"stompcodec other 1\n"), "not the data folder"),
    "bodies is a link": (lambda data: link(data, "bodies"), FOLDER),
    "incoming is a link": (lambda data: link(data, "incoming"), FOLDER),
    "used, bodies is a link": (lambda data: (use(data), (data / "bodies").rmdir(), link(data, "bodies")), FOLDER),
    "used, incoming is a link": (lambda data: (use(data), (data / "incoming").rmdir(), link(data, "incoming")), FOLDER),
}


@pytest.mark.parametrize(("deed", "why"), DEEDS.values(), ids=DEEDS)
def test_what_is_not_ours_is_refused_and_stays_as_it_is(deed, why, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    deed(data)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=why):
        start(data)
    if (data / MARKER).exists() or (data / MARKER).is_symlink():
        with pytest.raises(StoreError):
            Bench(large_folder=str(data))
    made = {"data/lock", "data/bodies"} if why == "backup" else set()  # only SQLite can say that
    assert {name: value for name, value in tree(tmp_path).items() if name not in made} == before


# ---- folders that are marked ----
@each_foreign
def test_what_others_put_into_our_folders_stays(part, name, put, tmp_path):
    data, ours = tmp_path / "data", f"data/{part}/fedcba9876543210-1"
    config = {"large_folder": str(data / "large")} if part == "large" else {}
    stop(start(data, **config))
    (data / part).mkdir(exist_ok=True)
    put(data / part / name)
    put_file(tmp_path / ours)
    before = tree(tmp_path)
    for _ in range(2):
        bench = start(data, **config)
        peer = bench.peer()
        peer.put("/queue/a", pattern(5000))
        peer.lose()
        stop(bench)
    del before[ours]
    after = tree(tmp_path)
    for each, value in before.items():
        assert after.get(each) == value or "sqlite" in each or "lock" in each
    assert ours not in after


names = st.text("0123456789abcdefABCDEFg-_. ٣", min_size=1, max_size=24) | st.from_regex(
    "[0-9a-f]{14,18}-[0-9]{0,21}", fullmatch=True
)


@given(name=names.filter(lambda name: name not in (".", "..")))
@example(name="0123456789abcdef-")
@example(name="0123456789abcdef-1\n")
@example(name="0123456789abcdef--1")
def test_only_our_own_names_are_removed(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("bodies")
    put_file(path / name)
    folder = BodyFolder(path)
    head, _, tail = name.partition("-")
    ours = len(head) == 16 and set(head) <= set("0123456789abcdef") and 0 < len(tail) < 20
    ours = ours and set(tail) <= set("0123456789")
    assert folder.sweep({name}) == 0
    assert folder.sweep(()) == ours
    assert (path / name).exists() is not ours
    folder.close()


def test_a_folder_that_becomes_a_link_while_the_broker_runs(tmp_path):
    """What is removed then is what lies in the folder that was opened."""
    data, target = tmp_path / "data", tmp_path / "target"
    bench = start(data)
    peer = bench.peer()
    peer.put("/queue/a", pattern(5000))
    (name,) = os.listdir(data / "incoming")
    os.rename(data / "incoming", data / "moved")
    target.mkdir()
    put_file(target / name)
    (data / "incoming").symlink_to(target, target_is_directory=True)
    peer.lose()
    stop(bench)
    assert (os.listdir(target), os.listdir(data / "moved")) == ([name], [])


def test_the_folder_that_was_named_may_be_a_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real, target_is_directory=True)
    use(link)
    (tmp_path / "large").mkdir()
    (tmp_path / "to").symlink_to(tmp_path / "large", target_is_directory=True)
    stop(start(link, large_folder=str(tmp_path / "to")))
    stop(start(link, large_folder=str(link / "incoming")))


def test_a_folder_of_one_kind_is_not_taken_for_another(tmp_path):
    data, large = tmp_path / "data", tmp_path / "large"
    stop(start(data, large_folder=str(large)))
    put_file(data / "bodies" / OURS)
    before = tree(tmp_path)
    for folder in (data, data / "bodies", data / "incoming"):
        with pytest.raises(StoreError, match="name another folder"):
            Bench(large_folder=str(folder))
    with pytest.raises(StoreError, match="is the folder of large messages of a broker, and not the data folder"):
        SqliteStore(large)
    assert tree(tmp_path) == before


def test_two_brokers_do_not_share_a_folder_of_large_messages(tmp_path):
    large = str(tmp_path / "large")
    first = Bench(large_folder=large, large=1000)
    first.peer().put("/queue/a", pattern(5000))
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=r"is in use by process [0-9]+ \(stop that broker, or name another folder\)"):
        Bench(large_folder=large)
    assert tree(tmp_path) == before
    stop(first)
    stop(Bench(large_folder=large))


@pytest.mark.parametrize("marker", [b"", b"stompcodec da", b"stompcodec data 1", b"\0" * 18, b"stomp\0\0"], ids=repr)
def test_a_marker_that_was_being_written(marker, tmp_path):
    (tmp_path / MARKER).write_bytes(marker)
    use(tmp_path)
    assert (tmp_path / MARKER).read_bytes() == b"stompcodec data 1\n"


def test_each_guard_holds_by_itself(tmp_path):
    """Names are looked at when files are listed, and again when one is removed; a link is not opened."""
    folder = BodyFolder(tmp_path / "bodies")
    for name in ("orders.csv", OURS):
        put_file(tmp_path / "bodies" / name)
    assert folder.names() == [OURS]
    assert not folder.remove("orders.csv")
    assert not folder.remove("../bodies/orders.csv")
    assert folder.remove(OURS)
    assert os.listdir(tmp_path / "bodies") == ["orders.csv"]
    folder.close()
    (tmp_path / "link").symlink_to(tmp_path / "bodies", target_is_directory=True)
    with pytest.raises(StoreError, match="is a symbolic link"):
        BodyFolder(tmp_path / "link")


def test_a_folder_that_is_a_file(tmp_path):
    put_file(tmp_path / "data")
    with pytest.raises(StoreError, match=r"cannot be used.*name another one"):
        SqliteStore(tmp_path / "data")
    with pytest.raises(StoreError, match="cannot be used"):
        Bench(large_folder=str(tmp_path / "data"))
    assert tree(tmp_path) == {"data": b"mine"}


def test_names_in_the_database_lead_nowhere_else(tmp_path, caplog):
    """A row that was tampered with names a file outside: it is neither read nor removed."""
    data = tmp_path / "data"
    filled(data, message(1, BIG))
    (name,) = os.listdir(data / "bodies")
    os.rename(data / "bodies" / name, tmp_path / name)
    change(data, f"UPDATE body SET file = '../../{name}'")
    store = SqliteStore(data)
    with caplog.at_level(logging.ERROR):
        assert list(store.load()) == []
    with suppress(StoreError):
        store.commit()
    store.close()
    assert (tmp_path / name).exists()


def foreign_of(data):
    found = tree(data) if data.exists() else {}
    return {name: value for name, value in found.items() if "orders" in name or "lost+found" in name}


@pytest.mark.long
@pytest.mark.no_asan  # its allocator hangs in a child that was forked beside threads
@pytest.mark.parametrize("empty", [True, False])
def test_killed_while_it_starts(empty, tmp_path):
    """At each operation on files, and again at one: the next one starts, and nothing of others or stored is gone."""
    rnd = random.Random(7)
    number, going = 0, True
    while going:
        data, config = tmp_path / f"{number}" / "data", {"large_folder": str(tmp_path / f"{number}" / "large")}
        if not empty:  # files of others, where ours do not go
            config = {}
            (data / "lost+found").mkdir(parents=True)
            put_file(data / "orders.csv")
            (data / "bodies" / "lost+found").mkdir(parents=True)
        foreign, going = foreign_of(data), killed(number, partial(start, data, **config))
        if number % 4 == 0:
            killed(rnd.randrange(number + 1), partial(start, data, **config))
        stop(start(data, **config))
        assert (data / MARKER).read_bytes() == b"stompcodec data 1\n"
        assert foreign_of(data) == foreign
        number += 1
    assert number > (25 if empty else 15), "this many operations make a start"


def lose(data, how):
    """Take the tables away, in one way or another."""
    path = data / "messages.sqlite"
    if how == "empty":
        os.truncate(path, 0)
    elif how == "dropped":
        change(data, "DROP TABLE message", "DROP TABLE body")
    elif how == "cut":
        os.truncate(path, 8192)
    else:
        path.unlink()
        if how != "missing":
            deed = {"header of ours": f"PRAGMA application_id = {0x53544D50}", "of others": "CREATE TABLE a (b)"}
            change(data, "PRAGMA journal_mode = WAL", *([deed[how]] if how in deed else []), "VACUUM")


#: What is said of it, where the folder was closed.
LOSSES = {"missing": "missing", "empty": "empty", "without tables": "no tables", "header of ours": ""}
LOSSES |= {"of others": "", "dropped": "", "cut": ""}


def left_by_a_kill(data, tmp_path):
    """Put a folder as a kill leaves it: with a log."""
    store = fill(tmp_path / "running", close=False)
    shutil.copytree(tmp_path / "running", data)
    store.close()
    assert (data / "messages.sqlite-wal").stat().st_size > 0


@pytest.mark.parametrize(
    ("killed", "how"),
    [
        (killed, how) for killed in (False, True) for how in LOSSES if not (killed and how == "cut")
    ],  # nothing is cut off
)
def test_a_folder_without_its_tables_is_refused_and_nothing_is_removed(killed, how, tmp_path):
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
    before = {name: value for name, value in tree(data).items() if not name.endswith("-shm") and "lock" not in name}
    assert sum(name.startswith("bodies/") for name in before) >= 2
    for _ in range(2):
        with pytest.raises(StoreError, match=r"backup|name another data folder|stompcodec broker salvage") as caught:
            start(data)
        said = (LOSSES[how], "from a backup", "name another folder") if LOSSES[how] and not killed else ()
        for text in (str(data), "messages.sqlite", *said):
            assert text in str(caught.value)
    if how in ("missing", "empty") or not killed:
        status, said = run("check", data)
        assert (status, "damaged: " in said, "the next start removes" in said) == (1, True, False)
        assert LOSSES[how] in said
    if how == "missing" and not killed:
        status, said = run("salvage", data, tmp_path / "new")
        assert (status, "messages.sqlite is missing" in said, (tmp_path / "new").exists()) == (2, True, False)
    after = tree(data)
    assert {name: after.get(name) for name in before} == before


def test_the_marker_is_not_needed_where_bodies_are_left(tmp_path):
    data = tmp_path / "data"
    fill(data)
    for path in (*data.glob("messages.sqlite*"), data / MARKER):
        path.unlink()
    before = tree(data)
    with pytest.raises(StoreError, match="bodies"):
        SqliteStore(data)
    assert tree(data) == before
    assert run("check", data)[0] == 1


# ---- other versions ----
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
    assert os.listdir(tmp_path) == ["data"]


def test_a_newer_version_is_refused(tmp_path):
    data = tmp_path / "data"
    filled(data, message(1))
    newer = schema.VERSION + 1
    change(data, f"PRAGMA user_version = {newer}")
    with pytest.raises(StoreError, match=f"has version {newer}, and this program knows only {schema.VERSION}"):
        SqliteStore(data)
    assert salvage(data, tmp_path / "flipped").messages == 1, "its tables are ours: the header is damaged"
    assert f"has version {newer}, and this program knows only" in check(data).problems[0]
    change(data, "ALTER TABLE message ADD COLUMN more")
    for verb in (check, lambda folder: salvage(folder, tmp_path / "new")):
        with pytest.raises(StoreError, match=f"has version {newer}"):
            verb(data)
    assert sorted(os.listdir(tmp_path)) == ["data", "flipped"]
