"""What tests have clients of a broker, and its store, do again and again; bodies of `LARGE` bytes are large here."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from broker.harness import Bench, FaultyStore, Peer
from patience import patience

from stompcodec import Frame
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

LARGE, QUEUE = 1000, "/queue/a"


def client(bench: Bench, client_id: str = "c", version: str = "1.2", **headers: str) -> Peer:
    """Return a peer that has connected with a client-id, as a user of a name, and so on."""
    return bench.client(version, **({"client_id": client_id} if client_id else {}), **headers)


def taker(bench: Bench, destination: str = QUEUE, id: str = "1", version: str = "1.2", **headers: str) -> Peer:
    peer = bench.peer(version)
    peer.subscribe(destination, id, **headers)
    return peer


def left(bench: Bench, destination: str = QUEUE, **headers: str) -> list[bytes]:
    peer = taker(bench, destination, **headers)
    bodies = peer.bodies()
    peer.lose()
    return bodies


def messages(peer: Peer) -> list[Frame]:
    return [frame for frame in peer.take() if frame.command == "MESSAGE"]


def put_all(peer: Peer, bodies: Iterable[object], destination: str = QUEUE, **headers: str) -> None:
    for body in bodies:
        peer.put(destination, str(body), **headers)


def receive(peer: Peer, command: str, body: bytes | str = b"", **headers: str) -> None:
    """Have the broker read a frame, and no turn."""
    peer.session.receive(peer.octets_of(command, body, **headers), 0.0)


def refusal(peer: Peer) -> str:
    message = peer.error().headers["message"]
    return message


@contextmanager
def transaction(peer: Peer, end: str = "COMMIT", **headers: str) -> Iterator[None]:
    """BEGIN transaction t, and end it after the block."""
    peer.send("BEGIN", transaction="t")
    yield
    peer.send(end, transaction="t", **headers)


def commit(bench: Bench) -> None:
    bench.store.finish()
    bench.turn()


def finish(bench: Bench) -> None:
    while bench.store.job is not None:
        commit(bench)


def pattern(size: int) -> bytes:
    """A body in which no place is like another."""
    return (b"".join(b"%d\0\xff " % number for number in range(size // 4 + 1)))[:size]


def bench_of(store: Any = None, **config: Any) -> Bench:
    return Bench(store, large=LARGE, **config)


def files(bench: Bench) -> int:
    bench.broker.spool.flush()
    folder = bench.broker.spool._folder
    return 0 if folder is None else sum(path.name != "lock" for path in folder.path.iterdir())


def assert_empty(bench: Bench) -> None:
    gc.collect()
    assert (files(bench), bench.broker.spool.octets, bench.octets) == (0, 0, 0)


class Slow(Peer):
    """A peer behind a transport that takes little: after each output it is full, until `drain`."""

    def flush(self) -> None:
        before = len(self.octets)
        super().flush()
        if len(self.octets) > before and not self.closed:
            self.session.writable(False, self.bench.now)

    def drain(self) -> None:
        self.session.writable(True, self.bench.now)
        self.bench.turn()


def settle(bench: Bench, done: Callable[[], bool] = lambda: True) -> None:
    """Wait for the threads of the store, and for what they have to bring."""
    bench.turn()
    give_up = time.monotonic() + patience(30)
    while bench.broker.journal.busy is not None or bench.broker.journal.open or not done():
        assert time.monotonic() < give_up
        time.sleep(0.001)
        bench.turn()
    if isinstance(bench.store, SqliteStore):
        bench.store._writer.flush()


def stored_bench(folder: Path, **config: Any) -> Bench:
    return bench_of(SqliteStore(folder), data=str(folder), **config)


def send(peer: Peer, key: str | None, body: str = "x", destination: str = QUEUE, **headers: str) -> None:
    if key is not None:
        headers = {"idempotency-key": key, **headers}
    peer.put(destination, body, **{"receipt": "r", **headers})
    if isinstance(peer.bench.store, SqliteStore):
        settle(peer.bench)


def receipts(peer: Peer) -> int:
    """How many RECEIPTs have come; nothing else may have."""
    frames = peer.take()
    assert all(frame.command == "RECEIPT" for frame in frames), frames
    return len(frames)


def held(bench: Bench, queue: str = QUEUE) -> list[str]:
    found = bench.broker.queues.get(("/", queue))
    return [] if found is None else [message.frame.body.decode() for message in found.messages]


def raw_send(bench: Bench, peer: Peer, header: str, key: str, body: bytes = b"x", more: bytes = b"") -> None:
    """SEND with a header as it is spelled."""
    peer.raw(
        b"SEND\ndestination:%b\nreceipt:r\n%b%b:%b\n\n%b\0"
        % (QUEUE.encode(), more, header.encode(), key.encode(), body)
    )


def filled(count: int, window: int = 3, store: Any = None, **config: Any) -> tuple[Bench, Peer]:
    bench, sender = Bench.with_peers(1, store, window_messages=window, **config)
    for number in range(count):
        sender.put(QUEUE, str(number), persistent="true")
    return bench, sender


def queue_of(bench: Bench, name: str = QUEUE) -> Queue:
    return bench.broker.queues["/", name]


def numbers(peer: Peer) -> list[int]:
    return [int(body) for body in peer.bodies()]


class Pages(FaultyStore):
    """A store whose pages come when it is told to give them, or cannot be read."""

    def __init__(self, background: bool = False) -> None:
        super().__init__(background)
        self.slow = self.broken = False
        self.asked = []

    def read(self, *args: Any) -> None:
        self._page(super().read, args, 5)

    def deferred(self, *args: Any) -> None:
        self._page(super().deferred, args, 3)

    def _page(self, give: Callable[..., object], args: tuple[Any, ...], found: int) -> None:
        if self.broken:
            args[found + 1](partial(args[found], StoreError("the disk is gone")))
        elif self.slow:
            self.asked.append(partial(give, *args))
        else:
            give(*args)

    def answer(self) -> None:
        self.slow = False
        while self.asked:
            self.asked.pop(0)()
