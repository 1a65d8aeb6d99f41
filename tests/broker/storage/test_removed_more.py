"""What else may become of the files of a running broker: its lock, bodies and log; and errors of stat."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.process import ROOT, BrokerProcess
from patience import patience

from stompcodec.broker.config.config import Config
from stompcodec.broker.errors import Refused
from stompcodec.broker.process import run
from stompcodec.broker.sessions.plain import EXTENSION
from stompcodec.broker.storage import folder_lock
from stompcodec.broker.storage.folder_lock import FolderLock
from stompcodec.broker.storage.large import Spool
from stompcodec.broker.storage.rows import Leftovers
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored
from stompcodec.capture.index import CaptureBusyError, Lock
from stompcodec.errors import StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps open files where they are")
GONE = "was removed or replaced"


def message(seq: int, size: int = 1) -> Stored:
    return Stored("q", seq, f"m-{seq}", "/queue/a", b"\n\n" + b"x" * size + b"\0")


def opened(data: Path) -> SqliteStore:
    store = SqliteStore(data)
    store.append("q", message(1))
    store.commit()
    return store


def replace_database(data: Path) -> None:
    backup = data.parent / "backup"
    shutil.copyfile(data / "messages.sqlite", backup)
    os.replace(backup, data / "messages.sqlite")


# ---- the lock ----


@pytest.mark.parametrize("verb", [check, lambda data: salvage(data, data.parent / "new")], ids=["check", "salvage"])
def test_no_tool_reads_a_folder_in_use_though_the_lock_file_was_removed(
    verb: Callable[[Path], object], tmp_path: Path
) -> None:
    store = opened(tmp_path / "data")
    (tmp_path / "data" / "lock").unlink()
    with pytest.raises(StoreError, match="a broker uses the data folder"):
        verb(tmp_path / "data")
    store.close()
    verb(tmp_path / "data")


@pytest.mark.parametrize("kind", [lambda path: FolderLock(path), lambda path: Lock(path / "lock")])
def test_a_released_lock_is_not_kept_by_a_forked_process(kind: Callable[[Path], FolderLock], tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", [lambda path: FolderLock(path), lambda path: Lock(path / "lock")])
def test_a_forked_process_does_not_release_the_lock(kind: Callable[[Path], FolderLock], tmp_path: Path) -> None:
    held = kind(tmp_path)
    child = multiprocessing.get_context("fork").Process(target=held.release)
    child.start()
    child.join(patience(20))
    assert child.exitcode == 0
    with pytest.raises((StoreError, CaptureBusyError), match=r"in use|another process"):
        kind(tmp_path)
    held.release()


def failing(number: int, *, on: Callable[[int], bool]) -> Callable[[int, int], None]:
    """A flock that fails on some descriptors."""
    import fcntl

    flock = fcntl.flock

    def failed(file: int, how: int) -> None:
        if on(file) and how & fcntl.LOCK_EX:
            raise OSError(number, os.strerror(number))
        flock(file, how)

    return failed


def is_folder(file: int) -> bool:
    return bool(os.fstat(file).st_mode & 0o040000)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
@pytest.mark.parametrize("kind", [lambda path: FolderLock(path), lambda path: Lock(path / "lock")])
def test_a_disk_without_locks_is_not_taken_for_another_broker(
    kind: Callable[[Path], FolderLock], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", failing(number, on=lambda file: not is_folder(file)))
    with pytest.raises(StoreError, match=f"lock.*{os.strerror(number)}") as raised:
        kind(tmp_path)
    assert not isinstance(raised.value, CaptureBusyError)
    assert "in use" not in str(raised.value)


def test_a_folder_that_cannot_be_locked_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fcntl.flock", failing(errno.ENOLCK, on=is_folder))
    opened(tmp_path / "data").close()
    (record,) = (each for each in caplog.records if "cannot lock folders" in each.getMessage())
    assert record.levelno == logging.WARNING
    assert str(tmp_path / "data") in record.getMessage()


# ---- large bodies ----


def replace_folder(folder: Path) -> None:
    folder.rename(folder.parent.parent / "away")
    folder.mkdir()


BODY_DEEDS: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "renamed": lambda folder: folder.rename(folder.parent.parent / "away"),
    "replaced": replace_folder,
}


@pytest.mark.parametrize("deed", BODY_DEEDS)
def test_no_large_body_is_confirmed_into_a_folder_that_has_gone(deed: str, tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    BODY_DEEDS[deed](tmp_path / "data" / "bodies")
    for seq in (2, 3):
        store.append("q", message(seq, 100_000))
        with pytest.raises(StoreError, match=f"{GONE}|No such file"):
            store.commit()
    found = store.look()
    assert found is not None
    assert f"bodies {GONE}" in str(found)
    with pytest.raises(StoreError, match=GONE):
        store.close()


def test_the_look_of_each_second_misses_the_bodies(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    (tmp_path / "data" / "bodies").rename(tmp_path / "away")
    assert f"bodies {GONE}" in str(store.look())
    with pytest.raises(StoreError, match=GONE):
        store.close()


@pytest.mark.parametrize("deed", BODY_DEEDS)
def test_no_large_message_is_taken_into_a_folder_that_has_gone(deed: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    spool = Spool(tmp_path / "data" / "incoming", 1 << 20, shared=True)
    draft = spool.draft()
    draft.write(b"x")
    draft.done()
    BODY_DEEDS[deed](tmp_path / "data" / "incoming")
    with pytest.raises(Refused):
        spool.draft()
    spool.close()


# ---- the write-ahead log ----


@pytest.mark.parametrize("way", ["checkpoint", "tidy", "remove_leftovers"])
def test_nothing_is_moved_or_removed_for_a_database_that_has_gone(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in its write-ahead log is all that is left of it."""
    store = opened(tmp_path / "data")
    store.append("q", message(2, 100_000)._replace(persistent=False))
    store.commit()
    told: list[str] = []
    writer = store._writer
    monkeypatch.setattr(Leftovers, "first", lambda self, db, most: (0, 1 << 60))
    monkeypatch.setattr(Leftovers, "removed", lambda self, number, gone: None)
    assert writer._db is not None
    writer._wal, writer._gave_back = 1 << 30, True
    replace_database(tmp_path / "data")
    writer._db.set_trace_callback(told.append)
    monkeypatch.setattr(writer._bodies.folder, "discard", lambda name: told.append("discard"))
    getattr(writer, way)()
    assert not [said for said in told if "wal_checkpoint" in said or "vacuum" in said or said == "discard"]
    with pytest.raises(StoreError, match=GONE):
        store.close()


def test_the_log_of_a_replaced_database_is_neither_lost_nor_applied(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opened(data).close()
    shutil.copyfile(data / "messages.sqlite", tmp_path / "backup")
    for end in (".replaced", ".replaced.1"):
        store = SqliteStore(data)
        store.append("q", message(2))
        store.commit()
        octets = (data / "messages.sqlite-wal").read_bytes()
        shutil.copyfile(tmp_path / "backup", tmp_path / "new")
        os.replace(tmp_path / "new", data / "messages.sqlite")
        with pytest.raises(StoreError, match=rf"messages\.sqlite-wal{end}"):
            store.close()
        assert (data / f"messages.sqlite-wal{end}").read_bytes() == octets
        assert not (data / "messages.sqlite-wal").exists()
        assert not (data / "messages.sqlite-shm").exists()
        assert (data / "messages.sqlite").read_bytes() == (tmp_path / "backup").read_bytes()
    store = SqliteStore(data)
    assert [each.id for each in store.load()] == ["m-1"]
    store.close()


def test_the_log_of_a_removed_database_stays(tmp_path: Path) -> None:
    """It can be put back beside it, and `find_loss` refuses a start."""
    store = opened(tmp_path / "data")
    (tmp_path / "data" / "messages.sqlite").unlink()
    with pytest.raises(StoreError, match=GONE):
        store.close()
    assert (tmp_path / "data" / "messages.sqlite-wal").stat().st_size > 0


def test_no_page_is_read_from_another_database(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    replace_database(tmp_path / "data")
    pages: list[object] = []
    store.read("q", 0, 1 << 31, 100, 1 << 20, pages.append, None)
    (page,) = pages
    assert isinstance(page, StoreError)
    assert GONE in str(page)
    with pytest.raises(StoreError, match=GONE):
        store.close()


# ---- errors of stat ----


BACKENDS = pytest.mark.parametrize("backend", ["Python", "C"])


def look_of(backend: str) -> Callable[[tuple[folder_lock.Noted, ...]], bool]:
    if backend == "C" and not hasattr(EXTENSION, "are_at"):
        pytest.skip("no extension")
    return folder_lock._all_there if EXTENSION is None or backend == "Python" else EXTENSION.are_at


@BACKENDS
def test_what_is_unknown_fails_one_commit_only(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the right to look, or on an error of the disk; here it is a path that goes round in circles."""
    monkeypatch.setattr(folder_lock, "_are_there", look_of(backend))
    store = opened(tmp_path / "data")
    store.append("q", message(2))
    (tmp_path / "data").rename(tmp_path / "away")
    (tmp_path / "data").symlink_to("data")
    with pytest.raises(StoreError, match=os.strerror(errno.ELOOP)):
        store.commit()
    assert store.look() is None
    store._writer._wal = 1 << 30
    store._writer.checkpoint()
    (tmp_path / "data").unlink()
    (tmp_path / "away").rename(tmp_path / "data")
    store.append("q", message(3))
    store.commit()
    store.close()
    store = SqliteStore(tmp_path / "data")
    assert [each.id for each in store.load()] == ["m-1", "m-3"]
    store.close()


@BACKENDS
def test_each_error_of_stat_means_the_same_in_both_backends(backend: str, tmp_path: Path) -> None:
    look = look_of(backend)
    path = tmp_path / "a"
    path.touch()
    (tmp_path / "loop").symlink_to("loop")
    noted = os.fsencode(path), path.stat().st_dev, path.stat().st_ino
    assert look((noted,))
    assert not look(((noted[0], noted[1], noted[2] + 1),))
    assert not look(((noted[0], noted[1] + 1, noted[2]),))
    assert not look(((os.fsencode(tmp_path / "b"), *noted[1:]),))
    assert not look(((os.fsencode(path / "b"), *noted[1:]),))
    for unknown in (tmp_path / "loop", tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=str(unknown)) as raised:
            look((noted, (os.fsencode(unknown), *noted[1:])))
        assert raised.value.errno in (errno.ELOOP, errno.ENAMETOOLONG)


# ---- the process ----


@pytest.mark.parametrize(
    ("version", "is_told"),
    [((3, 40, 1), True), ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 7), False), ((3, 51, 3), False)],
)
def test_an_sqlite_with_the_fault_is_named_by_a_warning(
    version: tuple[int, int, int],
    is_told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "sqlite_version", ".".join(map(str, version)))
    stop = lambda server: signal.raise_signal(signal.SIGTERM)  # noqa: E731
    run(Config(port=0, data=str(tmp_path / "data")), started=stop)
    told = [each.levelname for each in caplog.records if f"SQLite {sqlite3.sqlite_version} has" in each.getMessage()]
    assert told == (["WARNING"] if is_told else [])


@pytest.mark.long
def test_a_lost_store_has_a_status_of_its_own(tmp_path: Path) -> None:
    """A supervisor would start a broker with an empty store."""
    with BrokerProcess(tmp_path / "b") as broker:
        taken = subprocess.run(
            [sys.executable, "-m", "stompcodec.cli", "broker", "--port", "0", "--data", str(broker.folder / "data")],
            capture_output=True,
            timeout=patience(60),
            env={**os.environ, "PYTHONPATH": ROOT},
            check=False,
        )
        shutil.rmtree(broker.folder / "data")
        assert broker._process is not None
        assert (taken.returncode, broker._process.wait(patience(60))) == (1, 3)
        assert not (broker.folder / "data").exists()
