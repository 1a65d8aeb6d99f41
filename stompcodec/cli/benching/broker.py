"""The measurements of `bench pub`, `bench sub` and `bench rtt`: threads with connections, counted for a time."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from stompcodec.cli.connecting import connected
from stompcodec.errors import ReceiptTimeoutError

if TYPE_CHECKING:
    from stompcodec import Frame
    from stompcodec.cli.show.summary import Sizes
    from stompcodec.client import Client, Receipt, Subscription

#: Receipts that a worker may wait for at once.
_WINDOW = 500
#: Seconds between two checks whether time is over.
_LOOK = 0.1
#: Most messages counted at once.
_BATCH = 1000
#: A feed runs ahead of its consumers by at most this many messages, or about this many bytes.
_AHEAD = 10_000
_AHEAD_OCTETS = 16 * 2**20
#: Seconds without messages after which missing ones count as lost, or as taken by others.
_QUIET = 0.5


def body_of(size: int) -> bytes:
    """Return a body of text, of a size in bytes.

    >>> body_of(18)
    b'0123456789abcdef01'
    """
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


@contextmanager
def clients(number: int, **broker: Any) -> Iterator[list[Client]]:
    """Open this many connections with the verb's options. Raises as `connect`."""
    from stompcodec.client import Client

    with ExitStack() as stack:
        first = stack.enter_context(connected(**broker))
        # The others reuse its options, so that a passcode is prompted for only once.
        yield [
            first,
            *(stack.enter_context(Client(first.addresses, first.options).open()) for _ in range(1, number)),
        ]


class Worker:
    """A connection and its counts. Its thread writes them, others read them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.count = 0
        """Counted messages."""
        self.octets = 0
        """Bytes in their bodies."""
        self.handled = 0
        """Messages received, including those after the end."""
        self.first = self.last = 0.0
        """Times of the first and last counted message, by the monotonic clock; 0 for none."""

    def counted(self, number: int, octets: int) -> None:
        """Count messages."""
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.count += number
        self.octets += octets


class Crew:
    """Workers, one per connection, that run in parallel until time is over. The first error stops all."""

    def __init__(self, connections: list[Client]) -> None:
        self.workers = [Worker(client) for client in connections]
        self.over = threading.Event()
        """Set when messages no longer count."""
        self.done = threading.Event()
        """Set when no more messages are taken."""
        self.began = self.ended = 0.0
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    @property
    def count(self) -> int:
        return sum(worker.count for worker in self.workers)

    @property
    def octets(self) -> int:
        return sum(worker.octets for worker in self.workers)

    @property
    def handled(self) -> int:
        return sum(worker.handled for worker in self.workers)

    def start(self, work: Callable[[Worker], object]) -> None:
        """Start a function for each worker, in threads. Time counts from now on."""
        self.began = time.monotonic()
        for worker in self.workers:
            self.also(work, worker)

    def also(self, work: Callable[[Worker], object], worker: Worker) -> threading.Thread:
        """Start a function for one worker."""

        def run() -> None:
            try:
                work(worker)
            except BaseException as error:  # the main thread raises it
                self._error = self._error or error
                self.over.set()
                self.done.set()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def until_first(self, seconds: float, stopped: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Wait for the first message, at which time begins to count, but no longer than this many seconds."""
        until = time.monotonic() + seconds
        while not (self.count or stopped() or self.over.is_set() or time.monotonic() >= until):
            tell("waiting for the first message")
            self.over.wait(0.001)
        self.began = min((worker.first for worker in self.workers if worker.first), default=time.monotonic())

    def until_over(self, seconds: float, stopped: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Wait until this many seconds have passed since the beginning, showing the rate now and then."""
        until = self.began + seconds
        before, at = 0, self.began
        while not (stopped() or self.over.is_set()) and (left := until - time.monotonic()) > 0:
            self.over.wait(min(_LOOK, left))
            now, number = time.monotonic(), self.count
            if now - at >= 2 * _LOOK:
                tell(f"{number:,} messages, {(number - before) / (now - at):,.0f}/s, {max(left, 0):.0f} s left")
                before, at = number, now
        self.ended = time.monotonic()
        self.over.set()

    def finish(self) -> None:
        """Wait for all workers to end; raise the error of the first one that failed."""
        self.over.set()
        self.done.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def drain(self, feeding: threading.Thread) -> None:
        """Take the rest of a feed without counting it, as long as messages come."""
        before = -1
        while not self.done.is_set() and (feeding.is_alive() or self.handled != before):
            before = self.handled
            self.done.wait(_QUIET)


def publish(worker: Worker, crew: Crew, message: Frame, receipts: bool) -> None:
    """Send a message repeatedly until the crew's time is over, and count those that the broker has confirmed.

    With `receipts` a receipt is requested for each message, else now and then.
    """
    if receipts:
        _publish_with_receipts(worker, crew, message)
        return
    size = len(message.body)

    def messages() -> Iterator[Frame]:
        while not crew.over.is_set():
            worker.count += 1  # for the progress line; confirmed messages are counted at the end
            yield message

    confirmed = _send_many(worker.client, messages())
    worker.count = 0
    worker.counted(confirmed, confirmed * size)


def _send_many(client: Client, messages: Iterator[Frame]) -> int:
    from stompcodec.client import SendManyError

    try:
        return client.send_many(messages)
    except SendManyError as error:
        raise error.reason from None


def _publish_with_receipts(worker: Worker, crew: Crew, message: Frame) -> None:
    destination, *headers = message.headers.pairs()
    size = len(message.body)
    waiting: deque[Receipt] = deque()
    while not crew.over.is_set() or waiting:
        if not crew.over.is_set():
            waiting.append(worker.client.send_for_receipt(destination[1], message.body, headers))
        while waiting and (waiting[0].done or len(waiting) >= _WINDOW or crew.over.is_set()):
            waiting.popleft().wait()
            worker.counted(1, size)


def consume(worker: Worker, crew: Crew, subscription: Subscription) -> None:
    """Take and acknowledge messages until the crew is done, and count them until time is over."""
    cumulative = subscription.ack == "client"
    while not crew.done.is_set():
        taken = subscription.take(_BATCH if worker.handled else 1, _LOOK)  # a batch, once the clock runs
        if not taken or crew.done.is_set():
            continue
        if not crew.over.is_set():
            worker.counted(len(taken), sum(len(message.frame.body) for message in taken))
        worker.handled += len(taken)
        if subscription.explicit:
            for message in taken[-1:] if cumulative else taken:
                message.ack()


def feed(worker: Worker, crew: Crew, message: Frame) -> None:
    """Send a message repeatedly until the crew's time is over, but not far ahead of these consumers."""
    ahead = max(4, min(_AHEAD, _AHEAD_OCTETS // max(len(message.body), 1)))

    def messages() -> Iterator[Frame]:
        sent = lost = 0
        seen, moved = 0, time.monotonic()
        while not crew.over.is_set():
            if sent < crew.handled + lost + ahead:
                sent += 1
                yield message
                continue
            handled, now = crew.handled, time.monotonic()
            if handled != seen:
                seen, moved = handled, now
            elif now - moved > _QUIET:
                lost, moved = sent - handled, now
            time.sleep(0.0005)

    _send_many(worker.client, messages())


class RoundTrips:
    """A client that sends messages to itself, one at a time, by a destination of its own."""

    def __init__(self, worker: Worker, destination: str, body: bytes, seconds: float) -> None:
        from stompcodec.cli.show.summary import Sizes

        self.times: Sizes = Sizes()
        """In ns."""
        self._worker = worker
        self._destination = destination
        self._body = body
        self._seconds = seconds
        self._subscription = worker.client.subscribe(destination)
        self._key = uuid.uuid4().hex
        self._numbers = count()

    def once(self, crew: Crew) -> int:
        """Send a message, wait for it, and return the time in ns, or 0 if time was over before it came.

        Raises ReceiptTimeoutError if it did not come back in time, and as `Client.send`.
        """
        key = f"{self._key}-{next(self._numbers)}"
        began = time.perf_counter_ns()
        self._worker.client.send(self._destination, self._body, [("bench-trip", key)])
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            message = self._subscription.get(_LOOK)
            if message is not None and message.frame.get("bench-trip") == key:  # others may send there, too
                return time.perf_counter_ns() - began
            if message is None and crew.over.is_set():
                return 0
        raise ReceiptTimeoutError(f"no message came back from {self._destination} in {self._seconds:g} s")

    def run(self, crew: Crew) -> None:
        """Make one round trip after the other until time is over."""
        while not crew.over.is_set():
            taken = self.once(crew)
            if taken:
                self.times.add(taken)
                self._worker.counted(1, len(self._body))
