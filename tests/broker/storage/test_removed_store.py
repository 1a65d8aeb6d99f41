"""Files that are removed or replaced under a running broker: nothing more is confirmed, and it ends with an error."""

import errno
import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import sys
import urllib.error
import urllib.request

import pytest
from broker.harness import Bench
from broker.storage.storing import message, put, read, seqs
from crash.process import BrokerProcess
from patience import patience

from stompcodec import client as stomp
from stompcodec.broker.config import Config
from stompcodec.broker.server import run
from stompcodec.broker.storage.folder import FolderLock
from stompcodec.broker.storage.large import Spool
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.tables import Leftovers
from stompcodec.broker.values import Refused
from stompcodec.capture.index import CaptureBusyError, Lock
from stompcodec.errors import StompError, StoreError

if sys.platform == "win32":
    pytest.skip("Windows keeps open files where they are", allow_module_level=True)
import fcntl

GONE = "was removed or replaced"


def opened(data):
    store = SqliteStore(data)
    put(store, message(1))
    return store


@pytest.fixture
def store(data):
    """A store whose files are going to be gone: closing it says so."""
    store = opened(data)
    yield store
    with pytest.raises(StoreError, match=GONE):
        store.close()


def replace_database(data):
    shutil.copyfile(data / "messages.sqlite", data.parent / "backup")
    os.replace(data.parent / "backup", data / "messages.sqlite")


def new_folder(data):
    data.rename(data.parent / "away")
    data.mkdir()


def other_folder(data):
    """Put a copy in the place of the folder, as a switch of a link or of a volume does."""
    shutil.copytree(data, data.parent / "copy")
    data.rename(data.parent / "away")
    (data.parent / "copy").rename(data)


#: What may become of the files of a store.
DEEDS = {
    **{"database removed": lambda data: (data / "messages.sqlite").unlink(), "database replaced": replace_database},
    **{"log removed": lambda data: (data / "messages.sqlite-wal").unlink(), "folder removed": shutil.rmtree},
    **{"folder renamed": lambda data: data.rename(data.parent / "away"), "folder made anew": new_folder},
    "folder replaced": other_folder,
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("commits", [True, False])
def test_nothing_is_confirmed_after_the_files_have_gone(commits, deed, store, data):
    assert store.look() is None
    DEEDS[deed](data)
    for seq in (2, 3) if commits else ():
        with pytest.raises(StoreError, match=rf"messages\.sqlite(-wal)? {GONE}"):
            put(store, message(seq))
    if commits:
        store.remove("q", message(1))
        with pytest.raises(StoreError, match=GONE):
            store.commit()


def test_a_store_that_has_to_open_its_database_again_makes_no_new_one(store, data):
    (data / "messages.sqlite").unlink()
    store._writer._db.close()
    store._writer._db = None
    with pytest.raises(StoreError, match=GONE):
        put(store, message(2))
    assert not (data / "messages.sqlite").exists()


def test_a_sender_is_not_told_to_send_again_what_may_be_stored(data):
    bench = Bench(SqliteStore(data))
    peer = bench.peer()
    peer.put("/queue/a", "one", persistent="true", receipt="1")
    assert peer.next("RECEIPT")
    DEEDS["folder renamed"](data)
    peer.put("/queue/a", "two", persistent="true", receipt="2")
    assert peer.error().headers["message"] == "the message may or may not be stored"
    with pytest.raises(StoreError, match=GONE):
        bench.store.close()


def store_one(client):
    client.send("/queue/a", b"x", {"persistent": "true"}, receipt=True)


@pytest.mark.long
@pytest.mark.parametrize("idle", [False, True])
def test_a_broker_ends_when_its_files_have_gone(idle, tmp_path):
    """With a status of its own. One that is idle looks once per second, so that its probe does not say it is well."""
    with BrokerProcess(tmp_path / "b", config="[web]\nhealth = true\n") as broker:
        probe = f"http://127.0.0.1:{broker.ws_port}/readyz"
        with urllib.request.urlopen(probe, timeout=patience(20)) as answer:
            assert answer.status == 200
        with stomp.connect(f"stomp://127.0.0.1:{broker.port}", reconnect=None) as client:
            store_one(client)
            shutil.rmtree(broker.folder / "data")
            if not idle:
                with pytest.raises(StompError):
                    store_one(client)
        assert broker._process.wait(patience(60)) == 3
        assert f"{GONE} while the broker used it" in broker.tail()
        assert not (broker.folder / "data").exists()
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(probe, timeout=patience(20))


def test_one_connection_writes_and_copies_the_log(data, monkeypatch):
    """Two that do are the pattern of a fault of SQLite up to 3.51.2, which damages the database."""
    told, connect = {}, sqlite3.connect

    def watched(*given, **more):
        made = connect(*given, **more)
        made.set_trace_callback(told.setdefault(len(told), []).append)
        return made

    monkeypatch.setattr(sqlite3, "connect", watched)
    monkeypatch.setattr("stompcodec.broker.storage.sqlite_writer._WAL", 1 << 20)
    store = SqliteStore(data)
    calls, seq = [], 0
    while not any("wal_checkpoint(PASSIVE)" in said for each in told.values() for said in each):
        seq += 1
        assert seq < 3000, "the WAL is never copied"
        store.append("q", message(seq, 60_000))
        store.commit_later(lambda error: None, calls.append)
        store._settle()
        while calls:
            calls.pop(0)()
    store.tidy(calls.append, urgent=True)
    store._settle()
    read(store, 0, 100, 1 << 20)
    store.close()
    changing = ("INSERT", "DELETE", "UPDATE", "BEGIN IMMEDIATE", "PRAGMA wal_checkpoint", "PRAGMA incremental")
    writers = {number for number, said in told.items() for each in said if each.lstrip().startswith(changing)}
    assert len(writers) == 1
    assert len(told) >= 2, "no page was read"


@pytest.mark.parametrize("how", ["with its lock file", "without", "on a disk without locks of folders"])
def test_a_folder_has_one_user(how, data, monkeypatch):
    """Folders cannot be locked on NFS, where an exclusive lock needs a file that is open for writing."""
    if "disk" in how:
        monkeypatch.setattr("stompcodec.broker.storage.folder.lock_folder", lambda *given: None)
    first = FolderLock(data)
    if how == "without":
        (data / "lock").unlink()
    who = "another process" if how == "without" else f"process {os.getpid()}"
    for _ in range(2):
        with pytest.raises(StoreError, match=f"is in use by {who}"):
            FolderLock(data)
    first.release()
    FolderLock(data).release()


@pytest.mark.parametrize("verb", [check, lambda data: salvage(data, data.parent / "new")], ids=["check", "salvage"])
def test_no_tool_reads_a_folder_in_use_though_the_lock_file_was_removed(verb, data):
    store = opened(data)
    (data / "lock").unlink()
    with pytest.raises(StoreError, match="a broker uses the data folder"):
        verb(data)
    store.close()
    verb(data)


each_lock = pytest.mark.parametrize("kind", [FolderLock, lambda path: Lock(path / "lock")], ids=["data", "capture"])


@each_lock
def test_a_released_lock_is_not_kept_by_a_forked_process(kind, tmp_path):
    held = kind(tmp_path)
    fork, (reader, writer) = multiprocessing.get_context("fork"), os.pipe()
    child = fork.Process(target=os.read, args=(reader, 1), daemon=True)
    child.start()
    held.release()
    kind(tmp_path).release()
    os.write(writer, b"x")
    child.join(patience(20))
    os.close(reader)
    os.close(writer)


@each_lock
def test_a_forked_process_does_not_release_the_lock(kind, tmp_path):
    held = kind(tmp_path)
    child = multiprocessing.get_context("fork").Process(target=held.release)
    child.start()
    child.join(patience(20))
    assert child.exitcode == 0
    with pytest.raises((StoreError, CaptureBusyError), match=r"in use|another process"):
        kind(tmp_path)
    held.release()


def failing(monkeypatch, number, folders):
    flock = fcntl.flock

    def failed(file, how):
        if stat.S_ISDIR(os.fstat(file).st_mode) is folders and how & fcntl.LOCK_EX:
            raise OSError(number, os.strerror(number))
        flock(file, how)

    monkeypatch.setattr("fcntl.flock", failed)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
@each_lock
def test_a_disk_without_locks_is_not_taken_for_another_broker(kind, number, tmp_path, monkeypatch):
    failing(monkeypatch, number, False)
    with pytest.raises(StoreError, match=f"lock.*{os.strerror(number)}") as raised:
        kind(tmp_path)
    assert not isinstance(raised.value, CaptureBusyError)
    assert "in use" not in str(raised.value)


def test_a_folder_that_cannot_be_locked_is_named_once(data, monkeypatch, caplog):
    failing(monkeypatch, errno.ENOLCK, True)
    opened(data).close()
    (record,) = (each for each in caplog.records if "cannot lock folders" in each.getMessage())
    assert (record.levelno, str(data) in record.getMessage()) == (logging.WARNING, True)


def move_away(folder):
    folder.rename(folder.parents[1] / "away")


BODY_DEEDS = {"removed": shutil.rmtree, "renamed": move_away, "replaced": lambda path: (move_away(path), path.mkdir())}


@pytest.mark.parametrize("deed", BODY_DEEDS.values(), ids=BODY_DEEDS)
def test_no_large_body_is_confirmed_into_a_folder_that_has_gone(deed, store, data):
    deed(data / "bodies")
    for seq in (2, 3):
        assert f"bodies {GONE}" in str(store.look())
        with pytest.raises(StoreError, match=f"{GONE}|No such file"):
            put(store, message(seq, 100_000))


@pytest.mark.parametrize("deed", BODY_DEEDS.values(), ids=BODY_DEEDS)
def test_no_large_message_is_taken_into_a_folder_that_has_gone(deed, data):
    data.mkdir()
    spool = Spool(data / "incoming", 1 << 20, shared=True)
    draft = spool.draft()
    draft.write(b"x")
    _kept = draft.done()  # else its file is discarded beside the deed
    deed(data / "incoming")
    with pytest.raises(Refused):
        spool.draft()
    spool.close()


@pytest.mark.parametrize("way", ["checkpoint", "tidy", "remove_leftovers"])
def test_nothing_is_moved_or_removed_for_a_database_that_has_gone(way, store, data, monkeypatch):
    """What is in its write-ahead log is all that is left of it."""
    put(store, message(2, 100_000, persistent=False))
    told, writer = [], store._writer
    monkeypatch.setattr(Leftovers, "first", lambda self, db, most: (0, 1 << 60))
    monkeypatch.setattr(Leftovers, "removed", lambda self, number, gone: None)
    writer._wal, writer._gave_back = 1 << 30, True
    replace_database(data)
    writer._db.set_trace_callback(told.append)
    monkeypatch.setattr(writer._bodies.folder, "discard", lambda name: told.append("discard"))
    getattr(writer, way)()
    assert not [said for said in told if "wal_checkpoint" in said or "vacuum" in said or said == "discard"]


def test_the_log_of_a_replaced_database_is_neither_lost_nor_applied(data, tmp_path):
    opened(data).close()
    backup = (data / "messages.sqlite").read_bytes()
    for end in (".replaced", ".replaced.1"):
        store = SqliteStore(data)
        put(store, message(2))
        octets = (data / "messages.sqlite-wal").read_bytes()
        (tmp_path / "new").write_bytes(backup)
        os.replace(tmp_path / "new", data / "messages.sqlite")
        with pytest.raises(StoreError, match=rf"messages\.sqlite-wal{end}"):
            store.close()
        assert (data / f"messages.sqlite-wal{end}").read_bytes() == octets
        assert not (data / "messages.sqlite-wal").exists()
        assert not (data / "messages.sqlite-shm").exists()
        assert (data / "messages.sqlite").read_bytes() == backup
    store = SqliteStore(data)
    assert seqs(store.load()) == [1]
    store.close()


def test_the_log_of_a_removed_database_stays(data):
    """It can be put back beside it, and `find_loss` refuses a start."""
    store = opened(data)
    (data / "messages.sqlite").unlink()
    with pytest.raises(StoreError, match=GONE):
        store.close()
    assert (data / "messages.sqlite-wal").stat().st_size > 0


def test_no_page_is_read_from_another_database(store, data):
    replace_database(data)
    page = read(store)
    assert isinstance(page, StoreError)
    assert GONE in str(page)


def test_what_is_unknown_fails_one_commit_only(data, tmp_path):
    """As without the right to look, or on an error of the disk; here it is a path that goes round in circles."""
    store = opened(data)
    data.rename(tmp_path / "away")
    data.symlink_to("data")
    with pytest.raises(StoreError, match=os.strerror(errno.ELOOP)):
        put(store, message(2))
    assert store.look() is None
    store._writer._wal = 1 << 30
    store._writer.checkpoint()
    data.unlink()
    (tmp_path / "away").rename(data)
    put(store, message(3))
    store.close()
    store = SqliteStore(data)
    assert seqs(store.load()) == [1, 3]
    store.close()


@pytest.mark.parametrize(
    ("version", "is_told"),
    [((3, 40, 1), True), ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 7), False), ((3, 51, 3), False)],
)
def test_an_sqlite_with_the_fault_is_named_by_a_warning(version, is_told, data, monkeypatch, caplog):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "sqlite_version", ".".join(map(str, version)))
    run(Config(port=0, data=str(data)), started=lambda server: signal.raise_signal(signal.SIGTERM))
    told = [each.levelname for each in caplog.records if f"SQLite {sqlite3.sqlite_version} has" in each.getMessage()]
    assert told == (["WARNING"] if is_told else [])
