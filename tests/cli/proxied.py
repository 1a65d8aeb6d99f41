"""A proxy in a thread of the test, with what it tells, and raw peers on both of its sides."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from patience import patience

from stompcodec.cli.proxying.bytes import faults_of
from stompcodec.cli.proxying.telling import Entry, Recorder, Tally, Watcher, json_line
from stompcodec.cli.proxying.wire import Place, Proxy, Target
from stompcodec.testing.faults import LoopThread
from stompcodec.uri import parse_uri

__all__ = ["Peer", "Proxied", "last_words", "proxied", "raw"]


class Proxied:
    """A running proxy."""

    def __init__(self, proxy: Proxy, tally: Tally, errors: list[tuple[str, Exception]]) -> None:
        self.proxy = proxy
        self.tally = tally
        self.errors = errors
        self.entries: list[Entry] = []
        self.changed = threading.Condition()

    @property
    def port(self) -> int:
        return self.proxy.place.port

    @property
    def url(self) -> str:
        return str(self.proxy.place)

    def add(self, entry: Entry) -> None:
        with self.changed:
            self.entries.append(entry)
            self.changed.notify_all()

    def wait(self, wanted: Callable[[Entry], object], number: int = 1) -> Entry:
        """The first entry that is wanted, or another one, once it is there."""

        def found() -> list[Entry]:
            return list(filter(wanted, self.entries))

        with self.changed:
            assert self.changed.wait_for(lambda: len(found()) >= number, patience(10)), self.entries
            return found()[number - 1]

    def frame(self, command: str, number: int = 1) -> Entry:
        """The entry of a frame, the first one by default."""
        return self.wait(lambda entry: entry.frame is not None and entry.frame.command == command, number)

    def closed(self, connection: int = 1) -> str:
        """What is told of the end of a connection."""
        return self.wait(lambda entry: entry.kind == "closed" and entry.connection == connection).text

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(json_line(entry)) for entry in self.entries]


@contextlib.contextmanager
def proxied(
    target: str,
    *faults: str,
    place: Place | None = None,
    context: Any = None,
    folder: Path | None = None,
    seed: int = 0,
    **options: Any,
) -> Iterator[Proxied]:
    """Run a proxy; when this ends, all is shown and recorded."""
    tally = Tally()
    recorder = None if folder is None else Recorder(str(folder), tally)
    outputs: list[Callable[[Entry], object]] = []
    errors: list[tuple[str, Exception]] = []
    watcher = Watcher(tally, outputs, recorder, failed=lambda what, error: errors.append((what, error)), **options)
    proxy = Proxy(
        place or Place("127.0.0.1", 0, None, False),
        Target(parse_uri(target)[0], context),
        watcher,
        faults=faults_of(faults, seed) if faults else None,
        whole=folder is not None,
        timeout=patience(10),
    )
    running = Proxied(proxy, tally, errors)
    outputs.append(running.add)
    thread = LoopThread("proxied")
    try:
        thread.run(proxy.start())
        try:
            yield running
        finally:
            thread.run(proxy.stop())
    finally:
        thread.end()
        assert watcher.close(patience(20))
        if recorder is not None:
            recorder.close()
    assert errors == []


class Peer:
    """A socket of a test."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(patience(10))
        self.send = sock.sendall

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.sock.recv(size - len(data))):
            data += more
        return data

    def rest(self) -> bytes:
        return b"".join(iter(lambda: self.sock.recv(65536), b""))

    def end(self) -> None:
        with contextlib.suppress(OSError):  # a cut may have come first
            self.sock.shutdown(socket.SHUT_WR)


def last_words(port: int, data: bytes = b"") -> bytes:
    """What a client reads until it is closed, by a reset or orderly."""
    said = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=patience(10)) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(data)
        while more := client.recv(65536):
            said += more
    return said


@contextlib.contextmanager
def raw(*faults: str, **options: Any) -> Iterator[tuple[Proxied, Callable[[], tuple[Peer, Peer]]]]:
    """A proxy in front of a bare listener, and a function that makes the two peers of a connection."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(patience(10))
        proxy = stack.enter_context(proxied(f"stomp://127.0.0.1:{listener.getsockname()[1]}", *faults, **options))

        def connect() -> tuple[Peer, Peer]:
            near = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            far, _ = listener.accept()
            return Peer(near), Peer(stack.enter_context(far))

        yield proxy, connect
