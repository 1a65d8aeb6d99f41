"""A broker in this process, without sockets and threads: its sessions, the turns of its loop, and its disk.

What the helper of the store would do in a thread waits here until it is run, so everything happens in one order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from stompcodec import Frame, Parser, serialize
from stompcodec.broker.config.config import Config
from stompcodec.broker.core import Broker
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.storage.sqlite import SqliteStore

VERSION = "1.2"


class Helper:
    """The helper of the store: jobs that wait until they are run."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def give(self, job: Callable[[], object]) -> None:
        self.jobs.append(job)

    def wait(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    def stop(self) -> None:
        self.wait()


class Client:
    """A connected client of the broker, and the frames that it got."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        self.session: Session = broker.core.attach(broker.now)
        self.inbox: list[Frame] = []
        self._parser = Parser(None)
        broker.clients[self.session] = self
        self.send("CONNECT", accept_version=VERSION, host="/")

    def frame(self, command: str, body: bytes = b"", **headers: str) -> bytes:
        """Return the bytes of a frame; underscores in names of headers stand for hyphens."""
        pairs = {name.replace("_", "-"): value for name, value in headers.items()}
        return serialize(Frame(command, pairs, body), None if command == "CONNECT" else VERSION)

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        """Send a frame, and let the broker do all that it does then."""
        self.session.receive(self.frame(command, body, **headers), self.broker.now)
        self.broker.settle()

    def read(self, chunks: list[bytes]) -> None:
        """Take what the broker wrote."""
        for frame in self._parser.feed(b"".join(chunks)):
            if frame.command == "CONNECTED":
                self._parser.version = VERSION
            self.inbox.append(frame)


class InProcess:
    """A broker and its clients.

    Args:
        folder: where stored messages live; None for a broker that stores nothing. Its disk seems to be slow, so that
            commits wait for the helper.
        config: see `Config`.
    """

    def __init__(self, folder: str | None = None, **config: Any) -> None:
        self.now = 0.0
        self.date = 1_000_000.0
        self.helper = Helper()
        #: What is to be called in the loop.
        self.soon: list[Callable[[], object]] = []
        self.clients: dict[Session, Client] = {}
        ticks = itertools.count()
        self.store = folder and SqliteStore(folder, helper=self.helper, clock=lambda: float(next(ticks)))
        self.core = Broker(
            Config(**config),
            self.store or None,
            wall=lambda: self.date,
            epoch="e",
            call_soon=self.soon.append,
            helper=self.helper,
        )
        self.core.open(self.now)

    def __enter__(self) -> InProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.core.stop(self.now)
        self.settle()
        if self.store:
            self.store.close()

    def turn(self) -> None:
        """End a turn of the loop: write what the sessions hold."""
        for session in self.core.turn(self.now):
            chunks = session.take_output()
            if session in self.clients:
                self.clients[session].read(chunks)

    def settle(self) -> None:
        """Take turns until nothing is left to do."""
        self.turn()
        while self.helper.jobs or self.soon:
            self.helper.wait()
            while self.soon:
                self.soon.pop(0)()
            self.turn()
        self.core.next_deadline()  # as the shell asks after each turn

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.date += seconds
        self.core.tick(self.now)
        self.settle()
