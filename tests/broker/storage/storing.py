"""Messages for stores, what a data folder holds, and changes of it that no broker makes."""

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from broker.harness import AtOnce, Bench, FaultyStore
from broker.moves import pattern, settle
from patience import patience

from stompcodec.broker.message import Message
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.sqlite_writer import Writer
from stompcodec.broker.storage.store import Page, Stored, Subscribed

#: The highest seq.
ALL = 2**42 - 1
#: Octets of a body that has a file of its own.
BIG = 70_000
#: The key of seq 0 of the first queue.
KEY = 1 << 45
MIB = 2**20
SUBSCRIPTION = Subscribed("/\0\0dme.a", "/topic/", "a", selector="x = 1")


class SmallStore(FaultyStore):
    left, asked = 1000 * MIB, 0

    def room(self) -> int:
        self.asked += 1
        return self.left


def message(seq: int, body: bytes | int = 10, queue: str = "q", **values: Any) -> Stored:
    if isinstance(body, int):
        body = (b"%d " % seq * body)[:body]
    return Stored(queue, seq, f"m-{seq}", "/queue/a", b"a:b\n\n" + body + b"\0", **values)


def put(store: Any, *messages: Stored) -> None:
    for one in messages:
        store.append(one.queue, one)
    store.commit()


def filled(folder: Path, *messages: Stored) -> None:
    """Put messages into a store, which is closed."""
    with closing(SqliteStore(folder)) as store:
        put(store, *messages)


def seqs(found: Any) -> list[int]:
    return [one.seq for one in (found.messages if isinstance(found, Page) else found)]


def read(store, after=-1, most=1000, octets=10**8, queue="q", priority=None):
    found = []
    store.read(queue, after, ALL, most, octets, found.append, None, priority)
    (one,) = found
    return one


def deferred(store: Any) -> Page:
    found = []
    store.deferred((), 10, 10**6, found.append, None)
    (one,) = found
    return one


def inline(folder: Path) -> SqliteStore:
    """A store whose helpers work in this thread."""
    store = SqliteStore(folder, helper=AtOnce(), page_helper=AtOnce())
    store._writer._db.execute("PRAGMA synchronous = OFF")  # nobody cuts the power
    return store


def content(folder: Path) -> tuple[dict[tuple[str, int], Stored], SqliteStore]:
    """What a store gives back that is opened anew; and the store, which is closed."""
    store = SqliteStore(folder)
    try:
        store.subscriptions()
        return {(one.queue, one.seq): one for one in store.load()}, store
    finally:
        store.close()


async def commit_later(store: SqliteStore) -> Any:
    loop = asyncio.get_running_loop()
    answered = loop.create_future()
    store.commit_later(answered.set_result, loop.call_soon_threadsafe)
    return await asyncio.wait_for(answered, patience(60))


def fill(folder: Path, count: int = 5, *, close: bool = True) -> SqliteStore:
    store = SqliteStore(folder)
    store.subscribe(SUBSCRIPTION)
    for seq in range(1, count + 1):
        expires, priority = (2e9, 9) if seq % 3 == 0 else (None, 4)
        store.append("/\0/queue/a", message(seq, BIG if seq == 2 else 10, expires=expires, priority=priority))
        store.append("/\0/queue/b", Message(b"i-%d" % seq, seq, "/queue/b", b"c:d\n\nplain\0", True))
        store.commit()
    if close:
        store.close()
    return store


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "messages.sqlite", isolation_level=None)) as other:
        for statement in statements:
            other.execute(statement)


def flip(path: Path, bit: int) -> None:
    octets = bytearray(path.read_bytes())
    octets[bit // 8] ^= 1 << bit % 8
    path.write_bytes(octets)


def synced(monkeypatch: Any) -> list[str]:
    """What goes to the disk from now on, in order: files of a size, folders, and commits."""
    steps = []
    sync, commit = os.fsync, Writer.commit

    def noted(file: int) -> None:
        found = os.fstat(file)
        steps.append("folder" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} octets")
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Writer, "commit", lambda writer, batch: (steps.append("commit"), commit(writer, batch))[1])
    return steps


class Unsure:
    """A connection whose COMMIT succeeds and reports a failure, as when the last fsync fails."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        result = self.connection.execute(statement, *values)
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return result


OURS = "0123456789abcdef-17"


def start(data: Path, **config: Any) -> Bench:
    store = SqliteStore(data)
    try:
        return Bench(store, large=1000, data=str(data), **config)
    except BaseException:
        store.close()
        raise


def stop(bench: Bench) -> None:
    bench.store.close()
    bench.broker.spool.close()


def tree(folder: Path) -> dict[str, bytes | str]:
    """All there is, links as what they say."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"to {os.readlink(path)}"
        else:
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


def use(data: Path) -> None:
    bench = start(data)
    peer = bench.peer()
    for size in (10, 5000, 70_000, 200_000):
        peer.put("/queue/u", pattern(size), persistent="true", receipt="r")
    settle(bench)
    peer.subscribe("/queue/u", ack="client-individual")
    for message in [frame for frame in peer.take() if frame.command == "MESSAGE"]:
        peer.ack(message)
    settle(bench)
    stop(bench)


def put_file(path: Path) -> None:
    path.write_bytes(b"mine")


def kill_at(number: int) -> None:
    """End this process at its n-th operation on files, or commit."""
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(9)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            count()
            return function(*args, **options)

        return call

    for name in ("write", "pwrite", "fsync", "ftruncate", "close"):
        setattr(os, name, counted(getattr(os, name)))
    SqliteStore.commit = counted(SqliteStore.commit)
    watched = {"open", "os.mkdir", "os.chmod", "os.chown", "os.remove", "os.rmdir", "os.rename", "os.link"}

    def hook(event: str, _args: object) -> None:
        if event in watched or event.startswith("sqlite3.connect"):
            count()

    sys.addaudithook(hook)


def killed(number: int, do: Callable[[], object]) -> bool:
    """Have a process do something, which is killed at its n-th operation; whether it got so far."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    child = os.fork()
    if child == 0:
        code = 3
        try:
            kill_at(number)
            do()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9), "it was refused"
    return os.waitstatus_to_exitcode(status) == 9
