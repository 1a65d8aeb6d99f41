"""A STOMP server that counts what it is sent, in a process of its own; and two ways for Spark to send to it.

It says yes to everything and keeps nothing, so that what is measured is the sender. It answers CONNECT and receipts.
"""

from __future__ import annotations

import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

_RECEIPT = re.compile(rb"\nreceipt:([^\r\n]+)")
_VERSIONS = re.compile(rb"\naccept-version:([^\r\n]+)")


class Sink:
    """The server, seen from the benchmark."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.port = int(self._ask())

    def _ask(self, order: str = "") -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if order:
            print(order, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def count(self, expected: int) -> int:
        """How many messages came since the last call. Some may be on their way: it waits until they came."""
        count, end = 0, time.monotonic() + 10
        while count < expected and time.monotonic() < end:
            count += int(self._ask("count"))
        return count

    def close(self) -> None:
        self._process.communicate(timeout=10)


def serve() -> None:
    """In the process of the server. An order on stdin is answered with the messages since the last one."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    buffer = bytearray(2**20)
    rests: dict[socket.socket, bytes] = {}
    count = 0
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    if not sys.stdin.readline():
                        return
                    print(count, flush=True)
                    count = 0
                elif key.fileobj is listener:
                    peer = listener.accept()[0]
                    rests[peer] = b""
                    selector.register(peer, selectors.EVENT_READ)
                else:
                    peer = key.fileobj
                    size = _receive(peer, buffer)
                    if not size:
                        selector.unregister(peer)
                        del rests[peer]
                        peer.close()
                        continue
                    count += _take(peer, rests, buffer[:size])


def _receive(peer: socket.socket, buffer: bytearray) -> int:
    try:
        return peer.recv_into(buffer)
    except ConnectionError:
        return 0


def _take(peer: socket.socket, rests: dict[socket.socket, bytes], data: bytearray) -> int:
    """Look at the frames that are whole; the rest is kept. Gives how many are messages."""
    whole, nul, rest = data.rpartition(b"\0")
    if not nul:
        rests[peer] += rest
        return 0
    whole = rests[peer] + whole
    rests[peer] = bytes(rest)
    answers = [b"RECEIPT\nreceipt-id:%b\n\n\0" % found for found in _RECEIPT.findall(whole)]
    if whole.lstrip(b"\r\n").startswith((b"CONNECT\n", b"STOMP\n")):
        offered = _VERSIONS.search(whole)
        version = max(offered[1].split(b",")) if offered else b"1.0"
        answers.insert(0, b"CONNECTED\nversion:%b\nheart-beat:0,0\n\n\0" % version)
    if answers:
        peer.sendall(b"".join(answers))
    return whole.count(b"SEND\n")


# ---- who sends ----


def send_by_hand(port: int) -> Any:
    """What a user gives to `foreachPartition`: a connection of stomp.py for each task, and no receipts."""

    def send(rows: Iterable[Any]) -> None:
        import stomp

        connection = stomp.Connection12([("127.0.0.1", port)])
        connection.connect(wait=True)
        for row in rows:
            connection.send(row.destination, bytes(row.body), content_type="application/json")
        connection.disconnect()

    return send


def by_hand(table: Any, port: int) -> None:
    """Send a DataFrame (destination, body) with stomp.py."""
    table.foreachPartition(send_by_hand(port))


def by_writer(table: Any, port: int) -> None:
    """The same with ours: a transaction for each task, and receipts for everything."""
    writer = table.write.format("stomp").option("url", f"stomp://127.0.0.1:{port}")
    writer.mode("append").save()


if __name__ == "__main__":
    serve()
