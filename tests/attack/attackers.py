"""Peers that try to hurt the others: each attack is a function, and runs in a process of its own at idle priority.

Usage: attackers.py NAME SECONDS PORT WS_PORT LEGACY_PORT
"""

from __future__ import annotations

import base64
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["ATTACKS", "Ports", "be_idle"]

HEAD_LINE = b"h%d:" + b"x" * 65000 + b"\n"
MIB = 2**20


class Ports(NamedTuple):
    """The ports of the broker under attack."""

    plain: int
    ws: int
    legacy: int


def be_idle() -> None:
    """Give this process what nobody else wants of the processor."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # Linux shares the processor between terminal sessions first, whatever their priority
        Path("/proc/self/autogroup").write_text("19")


def connect_frame(version: str = "1.2") -> bytes:
    """Return CONNECT for one version; 1.0 has no accept-version."""
    line = b"" if version == "1.0" else b"accept-version:%b\n" % version.encode()
    return b"CONNECT\n%bhost:/\nlogin:guest\npasscode:guest\n\n\0" % line


class Flood:
    """One connection after the other that sends the pieces of a script as fast as the broker takes them.

    Args:
        port: where to connect.
        script: makes the bytes that one connection sends. The connection closes at its end, and stays open without
            another word after an empty piece.
        opening: bytes to send first, whose answer has to arrive before the script begins.
    """

    def __init__(self, port: int, script: Callable[[], Iterator[bytes]], opening: bytes) -> None:
        self.port = port
        self.script = script
        self.opening = opening
        self.socket: socket.socket | None = None
        self.pieces: Iterator[bytes] = iter(())
        self.out = memoryview(b"")
        self.holding = False
        """The script is at an end, and the connection stays."""
        self.retry_at = 0.0

    def open(self) -> bool:
        """Connect and log in. Return False if the broker refuses at the moment."""
        try:
            self.socket = socket.create_connection(("127.0.0.1", self.port), 10)
            self.socket.sendall(self.opening)
            self.socket.recv(65536)
            self.socket.setblocking(False)
        except OSError:
            self.close()
            return False
        self.pieces = self.script()
        self.out = memoryview(b"")
        self.holding = False
        return True

    def close(self) -> None:
        """Drop the connection and try again a little later."""
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.retry_at = time.monotonic() + 0.05

    def pump(self, readable: bool) -> None:
        """Send what fits, and read away what arrives."""
        assert self.socket is not None
        try:
            if readable and not self.socket.recv(65536):
                self.close()
                return
            for _ in range(16):
                if self.holding:
                    return
                if not self.out:
                    self.out = memoryview(next(self.pieces))
                self.holding = not self.out
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except (OSError, StopIteration):
            self.close()


def flood(
    seconds: float, count: int, port: int, script: Callable[[], Iterator[bytes]], opening: bytes | None = None
) -> None:
    """Run a number of floods side by side, for some seconds."""
    floods = [Flood(port, script, connect_frame() if opening is None else opening) for _ in range(count)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with selectors.DefaultSelector() as selector:
            for one in floods:
                if one.socket is None and time.monotonic() > one.retry_at:
                    one.open()
                if one.socket is not None:
                    wanted = selectors.EVENT_READ if one.holding else selectors.EVENT_READ | selectors.EVENT_WRITE
                    selector.register(one.socket, wanted, one)
            if not selector.get_map():
                time.sleep(0.02)
                continue
            for key, events in selector.select(0.1):
                key.data.pump(bool(events & selectors.EVENT_READ))
    for one in floods:
        one.close()


# ---- the attacks ----


def _ws_frame(data: bytes, opcode: int, final: bool) -> bytes:
    """Return one masked WebSocket frame of less than 126 bytes; the mask is zero."""
    return struct.pack("!BB", opcode | (0x80 if final else 0), 0x80 | len(data)) + b"\0\0\0\0" + data


def fragments(seconds: float, ports: Ports) -> None:
    """Send WebSocket fragments of one byte, and empty ones, over eight connections."""
    key = base64.b64encode(b"0123456789abcdef").decode()
    upgrade = (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{ports.ws}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n"
    ).encode()
    body = b"".join(_ws_frame(piece, 0, False) for piece in (b"x", b"", b"y") * 4000)

    def script() -> Iterator[bytes]:
        yield _ws_frame(b"SEND\ndestination:/queue/attack.fragments\nexpiration:1000\n\n", 1, False)
        for _ in range(4):
            yield body
        yield _ws_frame(b"\0", 0, True)

    def whole() -> Iterator[bytes]:
        yield _ws_frame(connect_frame(), 1, True)
        while True:
            yield from script()

    flood(seconds, 8, ports.ws, whole, upgrade)


def storms(seconds: float, ports: Ports) -> None:
    """Subscribe 990 times to one topic over each of twelve connections, and close them at once."""
    subscribes = b"".join(b"SUBSCRIBE\nid:%d\ndestination:/topic/attack.storm\n\n\0" % n for n in range(990))
    flood(seconds, 12, ports.plain, lambda: iter([subscribes, b"SEND\ndestination:/topic/attack.storm\n\nx\0"]))


def empty(seconds: float, ports: Ports) -> None:
    """Send empty messages that nobody consumes, over four connections."""
    block = b"SEND\ndestination:/queue/attack.empty\n\n\0" * 1000

    def script() -> Iterator[bytes]:
        while True:
            yield block

    flood(seconds, 4, ports.plain, script)


def heads(seconds: float, ports: Ports) -> None:
    """Begin 60 frames with 1,000 header lines of 64 KiB each, and never end one."""

    def script() -> Iterator[bytes]:
        yield b"SEND\ndestination:/queue/attack.heads\n"
        for number in range(990):
            yield HEAD_LINE % number
        yield b""

    flood(seconds, 60, ports.plain, script)


def transactions(seconds: float, ports: Ports) -> None:
    """Fill transactions of 60 sessions up to their own bound, and leave them open."""
    send = b"SEND\ndestination:/queue/attack.tx\ntransaction:t\ncontent-length:65536\n\n" + b"x" * 65536 + b"\0"

    def script() -> Iterator[bytes]:
        yield b"BEGIN\ntransaction:t\n\n\0"
        for _ in range(1000):
            yield send
        yield b""

    flood(seconds, 60, ports.plain, script)


def uploads(seconds: float, ports: Ports) -> None:
    """Send half of large messages of 4 MiB over 40 connections, and close."""
    piece = b"x" * 65536

    def script() -> Iterator[bytes]:
        yield b"SEND\ndestination:/queue/attack.large\npersistent:true\ncontent-length:%d\n\n" % (4 * MIB)
        for _ in range(32):
            yield piece

    flood(seconds, 40, ports.plain, script)


def names(seconds: float, ports: Ports) -> None:
    """Make 12,000 queues with a message each, over and over again, from one connection."""

    def script() -> Iterator[bytes]:
        for start in range(0, 12000, 100):
            yield b"".join(
                b"SEND\ndestination:/queue/attack.name-%d\nexpiration:2000\n\nx\0" % number
                for number in range(start, start + 100)
            )

    flood(seconds, 1, ports.plain, script)


def poison(seconds: float, ports: Ports) -> None:
    """Subscribe to the queues of the pairs with a header that STOMP 1.0 cannot carry on MESSAGE."""
    bad = b"SUBSCRIBE\nid:1\ndestination:%b\nack:client-individual\ninclude-seq:s:eq\n\n\0"

    def script() -> Iterator[bytes]:
        for queue in (b"/queue/pair.stored", b"/queue/pair.plain"):
            yield bad % queue

    flood(seconds, 4, ports.plain, script, connect_frame("1.0"))


#: Name -> attack.
ATTACKS: dict[str, Callable[[float, Ports], None]] = {
    attack.__name__: attack for attack in (fragments, storms, empty, heads, transactions, uploads, names, poison)
}


def main() -> None:
    name, seconds, *numbers = sys.argv[1:]
    be_idle()
    ATTACKS[name](float(seconds), Ports(*map(int, numbers)))


if __name__ == "__main__":
    main()
