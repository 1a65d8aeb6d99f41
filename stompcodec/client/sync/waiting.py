"""Waiting and running handlers in threads. `aio/waiting.py` has the same names for asyncio."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from functools import partial
from queue import Queue
from time import sleep
from typing import Any

from stompcodec.client.bodies import BodyReader, Source, Spool, Streamed, opened, pieces_of
from stompcodec.client.engine import Engine, News, Watcher
from stompcodec.client.handlers import check_returned, ended_by
from stompcodec.client.hub import ended, is_finalizing, process, refuse
from stompcodec.client.options import Options
from stompcodec.client.outbox import Call, Upload
from stompcodec.client.shell import Bulk, Outgoings, Sending
from stompcodec.errors import ReceiptTimeoutError, StompError

__all__ = [
    "Body",
    "BodyReader",
    "Delivery",
    "Messages",
    "Pauses",
    "Queue",
    "Receipt",
    "Waiters",
    "Workers",
    "begin",
    "call_handler",
    "each",
    "feed",
    "open_source",
    "read_piece",
    "send",
    "sleep",
]

#: The messages of `send_many`.
Messages = Outgoings
#: The body of `send`: text, bytes, or a source of bytes.
Body = str | bytes | Streamed
#: The I/O thread ends every call in time. If it fails to, callers wait this many seconds longer.
_GRACE = 5.0


class Receipt:
    """The receipt of a call, which may be waited for later.

    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as broker, connect(broker.url) as client:
    ...     receipt = client.send_for_receipt("/queue/a", b"hello")
    ...     receipt.wait()
    ...     receipt.done
    True
    """

    __slots__ = ("_call", "_process", "_waiters")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._process = process.mark
        # Each waiting thread has its own lock, so that an interrupted one leaves nothing locked.
        self._waiters: list[threading.Lock] = []
        call.wake = self._wake

    def _wake(self) -> None:
        # They stay in the list, so that an interrupt loses none of them.
        for waiter in self._waiters:
            with contextlib.suppress(RuntimeError):  # it was woken before
                waiter.release()

    def __repr__(self) -> str:
        return repr(self._call).replace("Call", "Receipt", 1)

    @property
    def done(self) -> bool:
        """True once the outcome is known."""
        return self._call.done

    def wait(self) -> Any:
        """Return when the broker has accepted, at the latest after the timeout of the call.

        Raises:
            RejectedError: the broker refused.
            ReceiptTimeoutError, ConnectionLostError: the outcome is unknown; with `sent` False nothing was sent.
        """
        call = self._call
        if self._process is not process.mark:
            raise refuse()
        if not call.done and is_finalizing():  # nobody would wake this thread
            raise ended()
        if call.read is not None and not call.done:
            call.read(call)
        if not call.done:
            waiter = threading.Lock()
            waiter.acquire()
            self._waiters.append(waiter)
            left = min(max(call.timeout, 0.0) + _GRACE, threading.TIMEOUT_MAX)
            # Invariant: `done` is set before `_wake` looks at the waiters, so none is missed.
            if not call.done and not waiter.acquire(timeout=left) and not call.done:
                raise ReceiptTimeoutError(f"{call.what}: no answer in {call.timeout:g} s")
        if call.error is not None:
            raise call.error
        return call.result


def send(link: Any, sending: Sending, timeout: float | None) -> None:
    """Send a message once there is room, and wait for its receipt if it has one."""
    receipt = link.push(sending, timeout)
    if receipt is not None:
        receipt.wait()


def begin(link: Any, give: Callable[[], Any], body: object, length: int | None) -> None:
    """Send a message through middleware, or from a source."""
    give()


class Waiters:
    """Threads that wait for messages of a subscription, each with its own lock.

    A Condition would not do: it is Python code, which an interrupt leaves half done, with its lock held.
    """

    def __init__(self, subscription: Any) -> None:
        self._locks: deque[threading.Lock] = deque()
        self._subscription = subscription
        subscription.waiting = self._locks

    def enter(self) -> threading.Lock:
        """Return a lock for `wait`. The caller holds the client's lock, under which messages arrive."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        return lock

    def wait(self, waiter: threading.Lock, until: float | None) -> None:
        """Wait until `wake` is called, or until a point in time."""
        subscription = self._subscription
        read = subscription.link.delivery.read
        try:
            if read is not None and read(subscription, until):
                return
            left = -1.0 if until is None else min(max(until - time.monotonic(), 0), threading.TIMEOUT_MAX)
            waiter.acquire(timeout=left)
        finally:
            with contextlib.suppress(ValueError):
                self._locks.remove(waiter)

    def wake(self) -> None:
        """Wake all threads."""
        with contextlib.suppress(IndexError):
            while True:
                self._locks.popleft().release()


class Pauses:
    """Threads that pause between two calls of a handler."""

    def __init__(self) -> None:
        self._locks: deque[threading.Lock] = deque()

    def rest(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait so many seconds, or until `wake` is called; not at all if it is over."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            if not is_over():  # after it is in the list, so that no `wake` is missed
                lock.acquire(timeout=seconds)
        finally:
            with contextlib.suppress(ValueError):
                self._locks.remove(lock)

    def wake(self) -> None:
        """Wake all threads."""
        with contextlib.suppress(IndexError):
            while True:
                self._locks.popleft().release()


class Workers:
    """The threads that call a handler."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def start(self, name: str, runs: Iterable[Callable[[], None]]) -> None:
        """Start a thread for each function."""
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait until they have ended, except the calling thread; at most `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if until is None else min(max(until - time.monotonic(), 0), threading.TIMEOUT_MAX))

    stop = join


class Delivery:
    """The engine's way to waiting threads, and to the one that calls `on_frame` and `on_state`."""

    #: A waiting thread takes nothing but its receipt, or its messages, and leaves other frames to the I/O thread: an
    #: interrupt (Ctrl-C) in the core's `receive` would lose or halve frames.
    reads_all = False
    #: What `send` returns when all is done.
    sent = None

    def __init__(self, options: Options) -> None:
        self._options = options
        self.selector = select.poll() if hasattr(select, "poll") else None
        self._watcher: Watcher | None = None
        self.read: Callable[[Any, float | None], bool] | None = None
        """Reads messages of a subscription, in a thread that waits for them until a time; returns whether some came."""

    def start(self, engine: Engine) -> None:
        """Start the thread that calls `on_frame` and `on_state`, if one is set; have threads that wait read."""
        if self.selector is not None:
            engine.core.link.calls.read = partial(engine.read_for, self.selector.poll)
            self.read = partial(engine.read_messages, self.selector.poll)
        if self._options.on_frame or self._options.on_state:
            self._watcher = Watcher(self._options)

    def stop(self, engine: Engine, timeout: float) -> None:
        """Wait until the I/O thread and that of the callbacks have ended, at most `timeout` seconds each."""
        engine.join(timeout)
        if self._watcher is not None:
            self._watcher.stop(timeout)

    def note(self, news: News) -> None:
        """Queue these news for the callbacks: under the lock, so that those of another thread do not overtake."""
        if self._watcher is not None:
            self._watcher.put(news)

    def deliver(self, news: News) -> None:
        """Wake those who wait for these news."""
        news.wake()

    def credential(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Return a credential."""
        return ask()


def call_handler(handler: Callable[[Any], object], message: object) -> None:
    """Call a handler and raise its error, with a RuntimeError for SystemExit, which would silently end the thread."""
    try:
        result = handler(message)
    except SystemExit as error:
        raise ended_by(error) from error
    if result is not None:
        check_returned(result)


def each(messages: Messages) -> Iterator[Any]:
    """Return an iterator over all messages."""
    return iter(messages)


def feed(bulk: Bulk, messages: Messages) -> None:
    """Send all messages, and wait for room and receipts."""
    for steps in (bulk.add(messages), bulk.finish()):
        for receipt in steps:
            if receipt is not None:
                with contextlib.suppress(StompError):  # `bulk` handles it
                    receipt.wait()


def open_source(body: Any, length: int | None, folder: str | os.PathLike[str] | None) -> Source:
    """Return the source of a body. One whose length is not known is written to a temporary file first."""
    if isinstance(body, AsyncIterable):
        raise TypeError("the body is an asynchronous iterable: send it by the client of connect_async")
    source = opened(body, length)
    if source is not None:
        return source
    spool, pieces = Spool(folder), pieces_of(body)
    try:
        assert not isinstance(pieces, AsyncIterable)
        spool.fill(pieces)
    except BaseException:
        spool.close()
        raise
    return spool.source()


def read_piece(source: Source, at: int, upload: Upload) -> bytes:
    """Return the next piece of a body."""
    return source.read(at, upload.wants(at))
