"""The load's side of the wire: all connections in one thread, on plain sockets and the parser alone."""

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from patience import patience

import stompcodec

_FULL = 256 * 1024  # Octets that may wait to be sent before a worker makes no more.


class Link:
    def __init__(self, worker: Any, port: int) -> None:
        self.worker = worker
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setblocking(False)
        self.parser, self.out = stompcodec.Parser(None), bytearray()
        self.ready = False  # CONNECTED came.
        version = "" if worker.version == "1.0" else f"accept-version:{worker.version}\n"
        client = worker.client_id and f"client-id:{worker.client_id}\n"
        self.out += f"CONNECT\n{version}host:/\n{client}login:guest\npasscode:guest\n\n\0".encode()

    @property
    def full(self) -> bool:
        return len(self.out) > _FULL

    def send(self, frame: bytes) -> None:
        self.out += frame

    def read(self) -> bool:
        """Take what came. False at the end of the stream."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return True
        except TimeoutError:
            raise
        except OSError:
            return False
        for frame in self.parser.feed(data):
            if self.ready:
                self.worker.frame(frame)
            elif frame.command == "CONNECTED":
                self.ready = True
                self.parser.version = frame.get("version") or "1.0"
                self.worker.connected()
            else:
                raise AssertionError(f"{frame!r} instead of CONNECTED")
        return bool(data)

    def write(self) -> bool:
        try:
            del self.out[: self.socket.send(self.out)]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class Load:
    """The workers and their links, driven by `run`. `port` is where the broker listens, None while it does not."""

    def __init__(self) -> None:
        self.port, self.workers, self._selector = None, [], selectors.DefaultSelector()

    def close(self) -> None:
        for worker in self.workers:
            self.drop(worker)
        self._selector.close()

    def run(self, until: Callable[[], bool], timeout: float = 60.0) -> None:
        """Move frames until something holds, for at most `timeout` seconds of a quiet machine."""
        give_up = time.monotonic() + patience(timeout)
        while not until():
            if time.monotonic() > give_up:
                raise TimeoutError(f"still not after {timeout} s: {getattr(until, '__name__', until)}")
            self.step()

    def for_seconds(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.run(lambda: time.monotonic() >= end, seconds + 60)

    def step(self, wait: float = 0.02) -> None:
        for worker in self.workers:
            if worker.link is None:
                self._connect(worker)
            if worker.link is not None:
                self._pump(worker, worker.link)
        for key, events in self._selector.select(wait):
            link: Link = key.data
            if link.worker.link is not link:
                continue  # dropped in this very step
            alive = not events & selectors.EVENT_WRITE or link.write()
            if not (alive and link.read()):
                self._read_out(link)
                self.drop(link.worker)

    def read_out(self, cut: Callable[[], object] = lambda: None) -> None:
        """The broker is gone, or out of reach once `cut` is done: take all that it sent, to the end of every stream."""
        self.port = None
        cut()
        for worker in self.workers:
            if worker.link is not None:
                self._read_out(worker.link, cut)
                self.drop(worker)

    def drop(self, worker: Any) -> None:
        link, worker.link = worker.link, None
        if link is not None:
            self._selector.unregister(link.socket)
            link.socket.close()
            worker.lost()

    def _read_out(self, link: Link, cut: Callable[[], object] = lambda: None) -> None:
        link.socket.settimeout(0.2)
        for _ in range(100):
            try:
                while link.read():
                    pass
                return
            except TimeoutError:  # the proxy was still connecting it to the broker
                cut()
        raise AssertionError("a connection that was lost does not end")

    def _connect(self, worker: Any) -> None:
        if self.port is None:
            return
        try:
            worker.link = Link(worker, self.port)
        except OSError:
            return
        self._selector.register(worker.link.socket, selectors.EVENT_READ, worker.link)

    def _pump(self, worker: Any, link: Link) -> None:
        if link.ready and not link.full:
            worker.pump()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.out else 0)
        if self._selector.get_key(link.socket).events != events:
            self._selector.modify(link.socket, events, link)


def encoded(command: str, headers: Iterable[tuple[str, object]], body: bytes = b"") -> bytes:
    """A frame of names and values that need no escapes; with content-length where there is a body."""
    lines = [command, *(f"{name}:{value}" for name, value in headers)]
    if body:
        lines.append(f"content-length:{len(body)}")
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0"
