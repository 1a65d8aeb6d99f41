"""What the tests of the live source share: a broker that can be looked into, and queries that can be waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from client.broker import BrokerThread
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker import serve

__all__ = ["LiveBroker", "Rows", "publish", "runner", "running", "wait_for"]


class LiveBroker(BrokerThread):
    """Our broker in a thread; it can be asked what it has."""

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with serve(self.config) as self.server:
            self.port, self.ws_port, self.tls_port = self.server.port, self.server.ws_port, self.server.tls_port
            self._ready.set()
            await self._stop.wait()

    def count(self, queue: str) -> int:
        """Messages of a queue that are not acknowledged, delivered or not."""
        while True:
            with contextlib.suppress(RuntimeError):  # it changes while we look
                found = self.server.broker.queues.get(("/", queue))
                return 0 if found is None else found.count


def publish(url: str, queue: str, count: int, first: int = 0, body: bytes = b"") -> None:
    """Messages with numbers from `first` on, in the header n."""
    with stomp.connect(url) as client:
        for number in range(first, first + count):
            client.send(queue, body, {"n": str(number)})
        client.ping()


def wait_for(what: Callable[[], object], query: Any = None) -> None:
    until = time.monotonic() + patience(120)
    while not what():
        assert query is None or query.exception() is None, query.exception()
        assert time.monotonic() < until
        time.sleep(0.02)


class Rows:
    """A sink that keeps rows by batch: a batch that comes again takes the place of what it was."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.fail = False
        """Whether the sink fails, once it has the rows of a batch."""

    def __call__(self, frame: Any, batch: int) -> None:
        self.batches[batch] = rows = [tuple(row) for row in frame.collect()]
        if self.fail and rows:
            raise RuntimeError("the sink fails")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def column(self, number: int = 0) -> list[Any]:
        return [row[number] for row in self.rows]


@contextlib.contextmanager
def running(
    spark: Any,
    folder: Path,
    sink: Rows,
    options: dict[str, Any],
    *,
    schema: str = "n int",
    **trigger: Any,
) -> Iterator[Any]:
    """A query from a broker into a sink; its spool and its checkpoint are in the folder."""
    given = {"spoolDir": str(folder / "spool"), **{name: str(value) for name, value in options.items()}}
    frames = spark.readStream.format("stomp").options(**given).schema(schema).load()
    writer = frames.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(**(trigger or {"processingTime": "50 milliseconds"})).start()
    try:
        yield query
    finally:
        query.stop()


def runner(spool: Path) -> int:
    """The process in which the recorder of this spool runs: it holds its lock. Linux only."""
    lock = os.path.realpath(spool / "lock")
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and any(os.path.realpath(link) == lock for link in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody holds {lock}")
