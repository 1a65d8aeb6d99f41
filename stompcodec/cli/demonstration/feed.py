"""A broker, a producer and a consumer in one process, and the counts of a feed sent through them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompcodec import Frame
    from stompcodec.broker import Config
    from stompcodec.broker.server import Server
    from stompcodec.client import Client, Receipt

#: Messages without a receipt on the way to the broker, and without an ACK on the way to the consumer.
_WINDOW = 200
#: Seconds after which the demonstration gives up.
_PATIENCE = 60.0
_QUEUE = "/queue/railway"


@contextmanager
def broker_url(config: Config) -> Iterator[str]:
    """Run a broker in a thread meanwhile, and yield its URL. The port of its config may be 0."""
    from stompcodec.broker import serve
    from stompcodec.testing.faults import LoopThread

    async def start() -> Server:
        server = serve(config)
        await server.start()
        return server

    thread = LoopThread("broker")
    server = thread.run(start())
    try:
        yield f"stomp://127.0.0.1:{server.port}"
    finally:
        thread.run(server.stop())
        thread.end()


class Tally:
    """The counts. Each is written by one thread, and read by all.

    >>> Tally(3).lost
    3
    """

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.sent = self.confirmed = self.received = self.acknowledged = 0
        self.octets = self.misplaced = self.damaged = 0
        self.seen: Counter[int] = Counter()
        self.seconds = 0.0

    @property
    def lost(self) -> int:
        """Frames that never came."""
        return self.frames - len(self.seen)

    @property
    def twice(self) -> int:
        """Deliveries beyond the first of each frame."""
        return sum(self.seen.values()) - len(self.seen)


class Feed:
    """A sender of frames through a broker, which receives them, with a receipt and an ACK for each."""

    def __init__(self, frames: Sequence[Frame], url: str) -> None:
        self._frames = frames
        self._url = url
        self._digests = [hashlib.blake2b(frame.body, digest_size=8).digest() for frame in frames]
        self.tally = Tally(len(frames))

    def run(self, progress: Callable[[Tally], object] = lambda tally: None) -> Tally:
        """Run to the end, or until `_PATIENCE` is over; call `progress` a few times per second."""
        import stompcodec.client as stomp

        started = time.monotonic()
        with (
            ThreadPoolExecutor(2) as threads,
            stomp.connect(self._url) as producer,
            stomp.connect(self._url) as consumer,
        ):
            subscribed = threading.Event()
            both = [threads.submit(self._take, consumer, subscribed), threads.submit(self._send, producer, subscribed)]
            while time.monotonic() - started < _PATIENCE:
                done, others = wait(both, 0.1, FIRST_EXCEPTION)
                progress(self.tally)
                for thread in done:
                    thread.result()  # or raise its error
                if not others:
                    break
            self.tally.seconds = time.monotonic() - started
        return self.tally

    def _send(self, client: Client, subscribed: threading.Event) -> None:
        tally = self.tally
        waiting: deque[Receipt] = deque()
        subscribed.wait(_PATIENCE)
        for number, frame in enumerate(self._frames):
            headers = {
                name: value for name, value in frame.headers.items() if name in ("content-type", "content-encoding")
            }
            headers |= {"persistent": "true", "number": str(number), "feed": frame.headers["destination"]}
            waiting.append(client.send_for_receipt(_QUEUE, frame.body, headers))
            tally.sent += 1
            if len(waiting) >= _WINDOW:
                waiting.popleft().wait()
                tally.confirmed += 1
        while waiting:
            waiting.popleft().wait()
            tally.confirmed += 1

    def _take(self, client: Client, subscribed: threading.Event) -> None:
        tally, expected = self.tally, 0
        with client.subscribe(_QUEUE, ack="client-individual", prefetch=_WINDOW) as subscription:
            subscribed.set()
            while len(tally.seen) < tally.frames:
                message = subscription.get(timeout=_PATIENCE)
                if message is None:
                    return
                number = int(message.headers["number"])
                tally.received += 1
                tally.octets += len(message.body)
                tally.misplaced += number != expected
                tally.damaged += hashlib.blake2b(message.body, digest_size=8).digest() != self._digests[number]
                expected = number + 1
                tally.seen[number] += 1
                last = len(tally.seen) == tally.frames
                message.ack(receipt=last)  # the last receipt confirms that all were taken
                tally.acknowledged += 1
