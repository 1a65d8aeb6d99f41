"""A broker of the thinnest kind: it feeds one client encoded MESSAGE frames as fast as that takes them."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable

from load import PREFETCH
from loads import BLOCK, KIB, body

LIMIT = 60.0  # seconds for a client to take what is sent
END = b"END"  # the body of the last message


class Feeder:
    """Plays the broker for one client: CONNECTED, receipts, then MESSAGEs until the time is over, then END."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def serve(self, size: int, ack: str, seconds: float, count: int | None, is_alive: Callable[[], bool]) -> int:
        """Feed one client for some seconds, or `count` messages that all differ; as soon as it comes.

        Return how many messages it was sent.
        """
        self.listener.settimeout(LIMIT)
        while not select.select([self.listener], [], [], 0.1)[0]:
            if not is_alive():
                raise ConnectionError("the client did not come")
        client, _ = self.listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(LIMIT)
        with client:
            said = b""
            while b"SUBSCRIBE\n" not in said or not said.rstrip(b"\r\n").endswith(b"\0"):
                more = client.recv(64 * KIB)
                if not more:
                    raise ConnectionError("the client went away before it subscribed")
                if b"CONNECT\n" in more or b"STOMP\n" in more:
                    client.sendall(b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0")
                self._receipts(client, more)
                said += more
            found = re.search(rb"SUBSCRIBE\n[^\0]*?\bid:([^\n\r]*)", said)
            name = found[1] if found else b"0"
            sent = self._feed(client, name, size, ack, seconds, count)
            client.settimeout(LIMIT)
            while more := client.recv(64 * KIB):  # ACKs, UNSUBSCRIBE, DISCONNECT
                self._receipts(client, more)
        return sent

    @staticmethod
    def _receipts(client: socket.socket, data: bytes) -> None:
        for receipt in re.findall(rb"\nreceipt:([^\n\r]*)", data):
            client.sendall(b"RECEIPT\nreceipt-id:" + receipt + b"\n\n\0")

    @staticmethod
    def _frame(name: bytes, number: int, ack: str, text: bytes) -> bytes:
        lines = b"MESSAGE\nsubscription:%s\nmessage-id:m-%08d\n" % (name, number)
        if ack != "auto":
            lines += b"ack:a-%08d\n" % number
        return lines + b"destination:/queue/bench\ncontent-length:%d\n\n%s\0" % (len(text), text)

    def _feed(self, client: socket.socket, name: bytes, size: int, ack: str, seconds: float, count: int | None) -> int:
        number = 0
        client.setblocking(False)
        deadline = time.perf_counter() + seconds
        frames = BLOCK // (size + 120)
        acked = 0
        while (number < count) if count else (time.perf_counter() < deadline):
            if ack != "auto" or number == 0 or count:  # marks of a delivery are not used twice
                numbers = range(number, number + min(frames, PREFETCH))
                block = b"".join(self._frame(name, at, ack, body(size, 0, at)) for at in numbers)
            number += min(frames, PREFETCH)
            waiting = memoryview(block)
            while waiting or (ack != "auto" and number - acked > 2 * PREFETCH):
                reads, writes, _ = select.select([client], [client] if waiting else [], [], LIMIT)
                if not reads and not writes:
                    raise ConnectionError("the client takes nothing more")
                if reads:
                    more = client.recv(64 * KIB)
                    if not more:
                        raise ConnectionError("the client went away")
                    acked += more.count(b"\0")
                if writes:
                    waiting = waiting[client.send(waiting) :]
        client.setblocking(True)
        client.sendall(self._frame(name, number, ack, END))
        return number
