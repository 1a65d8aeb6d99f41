"""Feeding a queue of a real broker, and looking at what became of it."""

import errno
import threading
import time
from collections.abc import Callable

from patience import patience

import stompcodec.client as stomp
from stompcodec.capture import writer as segment

__all__ = ["fill_disk", "left", "publish", "wait_for"]


def publish(url: str, queue: str, count: int, first: int = 0, size: int = 0) -> None:
    with stomp.connect(url) as client:
        for number in range(first, first + count):
            client.send(queue, b"%d " % number + bytes(size))
        client.ping()


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + patience(seconds)
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


def fill_disk(monkeypatch, is_full, part=lambda data: len(data) // 2):
    """Let a write of a capture fail for want of space where `is_full` says so, with a part of the data written."""
    real, lock = segment.write, threading.Lock()

    def write(file: int, data: bytes) -> None:
        with lock:  # what `is_full` has seen is so until it is written
            if is_full(data):
                real(file, data[: part(data)])
                raise OSError(errno.ENOSPC, "No space left on device")
            real(file, data)

    monkeypatch.setattr(segment, "write", write)


def left(url: str, queue: str) -> int:
    """Count the messages that the broker still has: they come to a new subscriber before one that is sent now."""
    with stomp.connect(url) as client:
        client.send(queue, b"the last one", receipt=True)
        subscription = client.subscribe(queue, ack="client-individual", prefetch=10_000)
        count = 0
        while (message := subscription.get(patience(60))) is not None and message.body != b"the last one":
            count += 1
        assert message is not None
        message.ack(receipt=True)
        return count
