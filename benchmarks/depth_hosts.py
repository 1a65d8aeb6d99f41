"""Brokers that are killed and started again on the same data, for depth.py. Linux only (/proc)."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import brokers

import stompcodec

__all__ = ["Host", "Ours", "PeerHost", "count_rows", "hosted"]

#: Seconds that a start may take: some brokers read every stored message first.
PATIENCE = 900.0
#: Heap of peers in Java. The JVM reads this variable after its command line; with 1 GiB, ActiveMQ ends with
#: OutOfMemoryError at 643,000 stored messages.
HEAP = ("_JAVA_OPTIONS", "-Xmx4G")
_POLL = 0.002


class Host:
    """A broker process that can be killed and started again on its data.

    Attributes:
        name: `brokers.OURS` or one of `brokers.PEERS`.
        port: of STOMP on 127.0.0.1; the same after each start.
        folder: holds its data.
    """

    def __init__(self, name: str, port: int, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self.name, self.port, self.folder = name, port, folder
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def broker(self) -> brokers.Broker:
        """The running process, to read its CPU time and memory."""
        assert self._process is not None
        return brokers.Broker(self.name, self.port, self._process.pid)

    def spawn(self) -> float:
        """Start the process, do not wait for it, and return the time on the clock of `time.perf_counter`."""
        assert self._process is None
        with open(self.folder / "bench-log", "ab") as log:
            moment = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return moment

    def wait_until_it_listens(self) -> float:
        """Wait until the port accepts a connection, and return the time."""
        end = time.perf_counter() + PATIENCE
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
                return time.perf_counter()
            if time.perf_counter() > end or self.ended:
                raise brokers.AbsentError(f"{self.name} does not listen: {self.tail()}")
            time.sleep(_POLL)

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def tail(self) -> str:
        """Return the last line of its log."""
        lines = (self.folder / "bench-log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"

    def kill(self) -> None:
        """Kill it as by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def octets(self) -> int:
        """Return the bytes of all files in its folder."""
        return sum(_size(path) for path in self.folder.rglob("*"))

    def stop(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Ours(Host):
    """The installed `stompcodec broker`, with room for a number of messages in one queue.

    Args:
        messages: that one queue has to hold; the limits of a queue are raised to that.
        memory: `limits.memory`, such as "4 GiB"; None for the default.
    """

    def __init__(self, messages: int, memory: str | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="stompcodec-depth-"))
        limits = f'[limits]\nmemory = "{memory}"\n' if memory else ""
        queues = f"[queues]\nmax_messages = {2 * messages + 1000}\nmax_octets = {1000 * messages + 2**28}\n"
        (folder / "broker.toml").write_text(limits + queues, encoding="utf-8")
        port = _free_port()
        command = [sys.executable, "-m", "stompcodec.cli", "broker", "--config", "broker.toml"]
        command += ["--data", "data", "--port", str(port)]
        where = str(Path(stompcodec.__file__).resolve().parent.parent)
        super().__init__(brokers.OURS, port, folder, command, {**os.environ, "PYTHONPATH": where})

    @property
    def database(self) -> Path:
        return self.folder / "data" / "messages.sqlite"

    def octets(self) -> int:
        return sum(_size(path) for path in self.database.parent.glob("messages.sqlite*"))


class PeerHost(Host):
    """A peer that its recipe has started. It is started again with its own command line, environment and folder.

    Args:
        name: one of `brokers.PEERS`.
        recipes: the folder of the recipes.
    """

    def __init__(self, name: str, recipes: Path | None) -> None:
        os.environ.setdefault(*HEAP)
        peer = brokers.start(name, recipes)
        if not isinstance(peer, brokers.Peer) or peer.ran:
            raise brokers.AbsentError("it runs already, and this benchmark would kill it: stop it first")
        self._peer, self._first = peer, peer.pid
        process = Path(f"/proc/{peer.pid}")
        pairs = (line.partition("=") for line in _words(process / "environ"))
        environment = {key: value for key, _, value in pairs}
        super().__init__(name, peer.port, process.joinpath("cwd").resolve(), _words(process / "cmdline"), environment)

    @property
    def broker(self) -> brokers.Broker:
        return self._peer if self._process is None else super().broker

    def spawn(self) -> float:
        return time.perf_counter() if self._runs_first() else super().spawn()

    @property
    def ended(self) -> bool:
        return super().ended and not self._runs_first()

    def kill(self) -> None:
        if self._process is None and self._runs_first():
            for pid in reversed(self._peer.processes()):
                with suppress(OSError):
                    os.kill(pid, 9)
            while self._runs_first():
                time.sleep(_POLL)
        super().kill()

    def _runs_first(self) -> bool:
        """Return whether the process that the recipe started still runs in its folder."""
        with suppress(OSError):
            return Path(f"/proc/{self._first}/cwd").samefile(self.folder)
        return False

    def stop(self) -> None:
        super().kill()
        self._peer.stop()
        super().stop()


@contextmanager
def hosted(name: str, messages: int, memory: str | None, recipes: Path | None) -> Iterator[Host]:
    """Run a broker with empty data.

    Raises:
        brokers.AbsentError: it cannot be started here.
    """
    host: Host = Ours(messages, memory) if name == brokers.OURS else PeerHost(name, recipes)
    try:
        host.spawn()
        host.wait_until_it_listens()
        yield host
    finally:
        host.stop()


def count_rows(database: Path) -> dict[str, float]:
    """Time `SELECT count(*)` over the largest table of a stopped broker: {"rows": …, "seconds": …}."""
    found = {"rows": 0.0, "seconds": 0.0}
    with closing(sqlite3.connect(database)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            start = time.perf_counter()
            (rows,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
            if rows >= found["rows"]:
                found = {"rows": rows, "seconds": time.perf_counter() - start}
    return found


def _size(path: Path) -> int:
    """Return the bytes of a regular file, which may be gone by now."""
    with suppress(OSError):
        return path.stat().st_size if path.is_file() and not path.is_symlink() else 0
    return 0


def _words(path: Path) -> list[str]:
    return [os.fsdecode(word) for word in path.read_bytes().split(b"\0") if word]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
