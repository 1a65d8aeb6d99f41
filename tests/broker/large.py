"""Brokers and peers for tests of large messages, which are those of `LARGE` octets and more here."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.harness import Bench, Peer
from patience import patience

from stompcodec.broker.storage.sqlite import SqliteStore

LARGE = 1000
QUEUE = "/queue/a"


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
