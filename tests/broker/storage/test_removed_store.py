"""Files that are removed or replaced under a running broker: nothing is confirmed any more, and it ends with an error.

A folder is used by one broker, whatever happens to the files in it. One connection to SQLite writes and copies.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.process import ROOT, BrokerProcess
from patience import patience

from stompcodec.broker.storage.folder_lock import FolderLock, Places
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored
from stompcodec.codec import Frame, Parser, serialize
from stompcodec.errors import StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps open files where they are")


def _replace_database(data: Path) -> None:
    backup = data.parent / "backup"
    shutil.copyfile(data / "messages.sqlite", backup)
    os.replace(backup, data / "messages.sqlite")


def _new_folder(data: Path) -> None:
    data.rename(data.parent / "away")
    data.mkdir()


def _other_folder(data: Path) -> None:
    """Put a copy in the place of the folder, as a switch of a link or of a volume does."""
    shutil.copytree(data, data.parent / "copy")
    data.rename(data.parent / "away")
    (data.parent / "copy").rename(data)


#: What may become of the files of a store.
DEEDS: dict[str, Callable[[Path], object]] = {
    "database removed": lambda data: (data / "messages.sqlite").unlink(),
    "database replaced": _replace_database,
    "log removed": lambda data: (data / "messages.sqlite-wal").unlink(),
    "folder removed": shutil.rmtree,
    "folder renamed": lambda data: data.rename(data.parent / "away"),
    "folder made anew": _new_folder,
    "folder replaced": _other_folder,
}
each_deed = pytest.mark.parametrize("deed", DEEDS)


def message(seq: int) -> Stored:
    return Stored("q", seq, f"m-{seq}", "/queue/a", b"\n\nx\0")


@each_deed
def test_no_commit_is_confirmed_after_the_files_have_gone(deed: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    store.append("q", message(1))
    store.commit()
    assert store.look() is None
    DEEDS[deed](tmp_path / "data")
    for seq in (2, 3):
        store.append("q", message(seq))
        with pytest.raises(StoreError, match=r"messages\.sqlite(-wal)? was removed or replaced"):
            store.commit()
    store.remove("q", message(1))
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.commit()
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.close()


@each_deed
def test_a_clean_end_is_not_claimed_after_the_files_have_gone(deed: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    store.append("q", message(1))
    store.commit()
    DEEDS[deed](tmp_path / "data")
    with pytest.raises(StoreError, match="was removed or replaced"):
        store.close()


def test_a_log_that_sqlite_makes_anew_is_not_a_loss(tmp_path: Path) -> None:
    """The last connection removes it when it is closed, as after an error of the disk."""
    store = SqliteStore(tmp_path / "data")
    store._writer._disconnect()
    assert not (tmp_path / "data" / "messages.sqlite-wal").exists()
    assert store.look() is None
    store.append("q", message(1))
    store.commit()
    (tmp_path / "data" / "messages.sqlite-wal").unlink()
    assert store.look() is not None


def test_a_file_is_looked_for_without_opening_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a database file would drop the locks that SQLite holds on it."""
    path = tmp_path / "a.sqlite"
    path.touch()
    places = Places(path)
    places.note()
    monkeypatch.setattr(os, "open", lambda *given, **more: pytest.fail("it was opened"))
    assert places.gone() is None


class Link:
    """A connection to a broker process, without a client that would connect again."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), patience(20))
        self.socket.settimeout(patience(20))
        self._parser, self._frames = Parser("1.2"), []
        self.socket.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        assert self.frame().command == "CONNECTED"

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        self.socket.sendall(serialize(Frame(command, headers, body), "1.2"))

    def frame(self) -> Frame | None:
        """The next frame; None at the end."""
        while not self._frames:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames += self._parser.feed(data)
        return self._frames.pop(0)


def store_one(link: Link, receipt: str) -> str | None:
    """Send a persistent message; the command of the answer, None at the end of the connection."""
    try:
        link.send("SEND", b"x", destination="/queue/a", persistent="true", receipt=receipt)
    except ConnectionError:
        return None
    frame = link.frame()
    return None if frame is None else frame.command


@pytest.mark.long
@each_deed
def test_a_broker_ends_when_its_files_have_gone(deed: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "b") as broker, Link(broker.port) as link:
        assert store_one(link, "1") == "RECEIPT"
        DEEDS[deed](broker.folder / "data")
        assert store_one(link, "2") in ("ERROR", None)
        assert broker._process is not None
        assert broker._process.wait(patience(60)) == 3
        assert "was removed or replaced while the broker used it" in broker.tail()


@pytest.mark.long
def test_an_idle_broker_notices_too(tmp_path: Path) -> None:
    """It looks once per second, so that its probe does not go on to say that it is well."""
    with BrokerProcess(tmp_path / "b", config="[web]\nhealth = true\n") as broker:
        probe = f"http://127.0.0.1:{broker.ws_port}/readyz"
        with urllib.request.urlopen(probe, timeout=patience(20)) as answer:
            assert answer.status == 200
        (broker.folder / "data" / "messages.sqlite").unlink()
        assert broker._process is not None
        assert broker._process.wait(patience(60)) == 3
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(probe, timeout=patience(20))


@pytest.mark.long
def test_a_second_broker_is_refused_though_the_lock_file_was_removed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "b") as broker:
        (broker.folder / "data" / "lock").unlink()
        second = [sys.executable, "-m", "stompcodec.cli", "broker", "--data", str(broker.folder / "data")]
        done = subprocess.run(
            [*second, "--port", "0"],
            capture_output=True,
            text=True,
            timeout=patience(60),
            env={**os.environ, "PYTHONPATH": ROOT},
            check=False,
        )
        assert done.returncode == 1
        assert "is in use by another process" in done.stderr
        with Link(broker.port) as link:
            assert store_one(link, "1") == "RECEIPT"


@pytest.mark.parametrize("remove", [False, True], ids=["with its lock file", "without"])
def test_a_folder_has_one_user(remove: bool, tmp_path: Path) -> None:
    first = FolderLock(tmp_path / "data")
    if remove:
        (tmp_path / "data" / "lock").unlink()
    who = "another process" if remove else f"process {os.getpid()}"
    for _ in range(2):
        with pytest.raises(StoreError, match=f"is in use by {who}"):
            FolderLock(tmp_path / "data")
    first.release()
    FolderLock(tmp_path / "data").release()


def test_a_broker_of_an_older_build_is_noticed(tmp_path: Path) -> None:
    """It locks the file only."""
    import fcntl

    (tmp_path / "lock").write_text("4711\n")
    with (tmp_path / "lock").open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="is in use by process 4711"):
            FolderLock(tmp_path)
    FolderLock(tmp_path).release()


def test_where_folders_cannot_be_locked_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, where an exclusive lock needs a file that is open for writing."""
    monkeypatch.setattr("stompcodec.broker.storage.folder_lock.lock_folder", lambda *given: None)
    first = FolderLock(tmp_path)
    with pytest.raises(StoreError, match="is in use by process"):
        FolderLock(tmp_path)
    first.release()


def test_one_connection_writes_and_copies_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that do are the pattern of a fault of SQLite up to 3.51.2, which damages the database."""
    told: dict[int, list[str]] = {}
    connect = sqlite3.connect

    def watched(*given: object, **more: object) -> sqlite3.Connection:
        made = connect(*given, **more)  # type: ignore[call-overload]
        statements = told.setdefault(len(told), [])
        made.set_trace_callback(statements.append)
        return made

    monkeypatch.setattr(sqlite3, "connect", watched)
    monkeypatch.setattr("stompcodec.broker.storage.sqlite_writer._WAL", 1 << 20)
    store = SqliteStore(tmp_path / "data")
    calls: list[Callable[[], object]] = []
    seq = 0
    while not any("wal_checkpoint(PASSIVE)" in said for each in told.values() for said in each):
        seq += 1
        assert seq < 3000, "the WAL is never copied"
        store.append("q", Stored("q", seq, f"m-{seq}", "/queue/a", b"\n\n" + b"x" * 60_000 + b"\0"))
        store.commit_later(lambda error: None, calls.append)
        store._settle()
        while calls:
            calls.pop(0)()
    store.tidy(calls.append, urgent=True)
    store._settle()
    store.read("q", 0, 1 << 31, 100, 1 << 20, lambda page: None, None)
    store.close()
    changing = ("INSERT", "DELETE", "UPDATE", "BEGIN IMMEDIATE", "PRAGMA wal_checkpoint", "PRAGMA incremental")
    writers = {number for number, said in told.items() for each in said if each.lstrip().startswith(changing)}
    assert len(writers) == 1
    assert len(told) >= 2, "no page was read"
