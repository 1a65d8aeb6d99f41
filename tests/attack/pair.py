"""A well-behaved producer and its consumer, which notice every loss, repeat and delay.

Usage: pair.py NAME SECONDS PORT; prints one line of JSON at the end.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

from patience import patience

import stompcodec
from stompcodec import Frame

__all__ = ["Side"]

#: Seconds between two messages: a feed, and no flood.
PAUSE = 0.002


class Side:
    """One connection that waits for each answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), patience(60))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.parser = stompcodec.Parser("1.2")
        self.frames: list[Frame] = []
        self.send("CONNECT", ("accept-version", "1.2"), ("host", "/"), ("login", "guest"), ("passcode", "guest"))
        assert self.frame().command == "CONNECTED"

    def send(self, command: str, *headers: tuple[str, str], body: bytes = b"") -> None:
        """Write one frame."""
        self.socket.sendall(stompcodec.serialize(Frame(command, headers, body), "1.2"))

    def frame(self) -> Frame:
        """Return the next frame.

        Raises:
            AssertionError: an ERROR arrived, or the connection ended.
            TimeoutError: nothing arrived in time.
        """
        while not self.frames:
            data = self.socket.recv(65536)
            assert data, "the broker closed the connection"
            self.frames.extend(self.parser.feed(data))
        frame = self.frames.pop(0)
        assert frame.command != "ERROR", (dict(frame.headers), frame.body)
        return frame


def produce(side: Side, queue: str, stored: bool, seconds: float) -> tuple[int, list[float]]:
    """Send numbered messages, each after the receipt of the one before. Return how many, and the seconds of each."""
    delays, number, end = [], 0, time.monotonic() + seconds
    persistent = [("persistent", "true" if stored else "false")]
    while (began := time.monotonic()) < end:
        side.send("SEND", ("destination", queue), ("receipt", str(number)), *persistent, body=b"%d" % number)
        assert side.frame().headers["receipt-id"] == str(number)
        delays.append(time.monotonic() - began)
        number += 1
        time.sleep(PAUSE)
    side.send("SEND", ("destination", queue), ("receipt", "end"), *persistent, body=b"end")
    assert side.frame().headers["receipt-id"] == "end"
    return number, delays


def consume(side: Side, queue: str, found: dict[str, int]) -> None:
    """Take and acknowledge messages until the end; count what is missing, repeated, or out of order."""
    expected = 0
    side.send("SUBSCRIBE", ("id", "0"), ("destination", queue), ("ack", "client-individual"))
    while True:
        frame = side.frame()
        if frame.command == "RECEIPT":
            continue
        side.send("ACK", ("id", frame.headers["ack"]), ("receipt", frame.headers["ack"]))
        if bytes(frame.body) == b"end":
            found["taken"] = expected
            return
        number = int(bytes(frame.body))
        found["wrong"] += number != expected
        expected = number + 1


def main() -> None:
    name, seconds, port = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    queue, found = f"/queue/pair.{name}", {"taken": -1, "wrong": 0}
    producer, consumer = Side(port), Side(port)
    taking = threading.Thread(target=consume, args=(consumer, queue, found), daemon=True)
    taking.start()
    sent, delays = produce(producer, queue, name == "stored", seconds)
    taking.join(patience(60))
    delays.sort()
    quantiles = {f"p{part}": 1000 * delays[int(len(delays) * part / 100)] for part in (50, 95, 99)}
    lost = sent - found["taken"] if found["taken"] >= 0 else sent
    print(json.dumps({"sent": sent, "lost": lost, "wrong": found["wrong"], **quantiles, "max": 1000 * delays[-1]}))


if __name__ == "__main__":
    main()
