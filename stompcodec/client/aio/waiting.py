"""Waiting and running handlers with asyncio; `sync/waiting.py` has the same names."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import os
import selectors
import threading
import time
import warnings
from asyncio import Queue, sleep
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar

from stompcodec.arguments import checks
from stompcodec.client.bodies import (
    PIECE,
    BodyReader,
    BodySourceError,
    Pieces,
    Source,
    Spool,
    Streamed,
    checked,
    may_block,
    opened,
    pieces_of,
)
from stompcodec.client.engine import Engine, News
from stompcodec.client.handlers import check_returned, ended_by
from stompcodec.client.hub import process, refuse
from stompcodec.client.options import Options
from stompcodec.client.outbox import Call, Upload, seconds_of
from stompcodec.client.shell import LOOK, Bulk, Outgoings, Sending
from stompcodec.errors import LocalProtocolError, StompError

__all__ = [
    "AsyncBody",
    "AsyncBodyReader",
    "AsyncDelivery",
    "AsyncPauses",
    "AsyncReceipt",
    "AsyncWaiters",
    "AsyncWorkers",
    "Messages",
    "Queue",
    "as_coroutine",
    "begin",
    "call_handler",
    "each",
    "elsewhere",
    "feed",
    "leave",
    "open_source",
    "read_piece",
    "send",
    "sleep",
]

_F = TypeVar("_F", bound=Callable[..., Any])
#: The messages of `send_many`.
Messages = Outgoings | AsyncIterable[Any]
#: The body of `send`: text, bytes, or a source of bytes.
AsyncBody = str | bytes | Streamed | AsyncIterable[bytes]
#: A piece of so many bytes is written to a temporary file by another thread.
_LARGE = 64 * 1024


class AsyncReceipt:
    """The receipt of a call, which may be awaited later.

    >>> import asyncio
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url) as client:
    ...         receipt = await client.send_for_receipt("/queue/a", b"hello")
    ...         await receipt
    ...         return receipt.done
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    True
    """

    __slots__ = ("_call", "_futures", "_process")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._process = process.mark
        self._futures: list[asyncio.Future[None]] = []  # one for each task that waits
        call.wake = self._wake

    def _wake(self) -> None:
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)

    def __repr__(self) -> str:
        return repr(self._call).replace("Call", "Receipt", 1)

    @property
    def done(self) -> bool:
        """True once the outcome is known."""
        return self._call.done

    async def wait(self) -> Any:
        """Return when the broker has accepted, at the latest after the timeout of the call.

        Raises:
            RejectedError: the broker refused.
            ReceiptTimeoutError, ConnectionLostError: the outcome is unknown; with `sent` False nothing was sent.
        """
        call = self._call
        if self._process is not process.mark:
            raise refuse()
        if not call.done:  # `_wake` follows in this event loop
            loop = asyncio.get_running_loop()
            if loop is not call.loop and call.loop is not None:
                raise elsewhere()
            future: asyncio.Future[None] = loop.create_future()
            self._futures.append(future)
            await future
        if call.error is not None:
            raise call.error
        return call.result

    def __await__(self) -> Generator[Any, None, Any]:
        return self.wait().__await__()


def elsewhere() -> LocalProtocolError:
    """Return the error for a call in another event loop than the client's."""
    return LocalProtocolError(
        "this client was opened in another event loop, and only works there: open a client in each asyncio.run, or do "
        "everything in one"
    )


def leave(link: Any, timeout: float) -> bool:
    """Return whether a client that another event loop has opened is closed already; False in its own one.

    Raises:
        LocalProtocolError: it is not. If its own loop has ended, it is told to close, without waiting for that.
    """
    try:
        link.delivery.check()
    except LocalProtocolError:
        core, is_closed = link.core, link.core.link.state == "closed"
        if link.delivery.loop.is_closed() and not is_closed:
            link.engine.do(core.close, time.monotonic(), core.link.calls.make("close", 2 * timeout), timeout)
        if not is_closed:
            raise
        return True
    return False


def as_coroutine(function: _F) -> _F:
    """Mark a function whose result is awaited as what it was before: a coroutine function, for `create_autospec`."""
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        return mark(function)  # type: ignore[no-any-return]
    function._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)  # type: ignore[attr-defined]
    return function


class Sent(asyncio.Future[None], Coroutine[Any, Any, None]):
    """A `send` that is over when it returns.

    It is a future that is done, of which `asyncio.gather` makes no task, and a coroutine for `asyncio.create_task`.
    """

    @classmethod
    def in_loop(cls) -> Sent:
        """Return one for the running event loop. It may be awaited any number of times."""
        sent = cls(loop=asyncio.get_running_loop())
        sent.set_result(None)
        return sent

    def send(self, value: object) -> NoReturn:
        """End at once: the message was sent."""
        raise StopIteration

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> NoReturn:
        """Raise the error."""
        raise kind if value is None else value

    def close(self) -> None:
        """Do nothing: there is nothing left to do."""


def send(link: Any, make: Callable[[], Sending], timeout: float | None) -> Coroutine[Any, Any, None]:
    """Send the message that `make` returns, now if there is room; return what awaits room and its receipt.

    Errors are raised when that is awaited. What is sent first, also by `send` of the link's client, stays first.
    """
    try:
        link.delivery.check_opened()
        sending = make()
        if timeout is not None:
            seconds_of("timeout", timeout)
        if not sending.attempt():
            return _named(_send_later(link, sending, timeout))
    except Exception as error:
        return _named(_fail(error))
    sent: Sent = link.delivery.sent
    return sent if sending.receipt is None else _named(sending.receipt.wait())


def _named(coroutine: Any) -> Coroutine[Any, Any, None]:
    """Return a coroutine with the name that the program wrote: a warning about a missing `await` shows it."""
    coroutine.__qualname__ = "AsyncClient.send"
    return coroutine  # type: ignore[no-any-return]


class Begun(Coroutine[Any, Any, None]):
    """A coroutine that has run up to where it first waits. It goes on when this is awaited, in a context of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], context: Context, waits_for: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._first = [waits_for]

    def send(self, value: Any) -> Any:
        """Go on, and return what it waits for next."""
        return self._first.pop() if self._first else self._context.run(self._coroutine.send, value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        """Raise an error where it waits."""
        self._first.clear()
        return self._context.run(self._coroutine.throw, kind if value is None else value)

    def close(self) -> None:
        """End it where it waits."""
        self._first.clear()
        self._context.run(self._coroutine.close)

    def __del__(self) -> None:
        if self._first:
            warnings.warn("coroutine 'AsyncClient.send' was never awaited", RuntimeWarning, stacklevel=1)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __await__(self) -> Generator[Any, None, None]:
        return self  # type: ignore[return-value]  # it has all methods that `await` needs


def begin(
    link: Any, give: Callable[[], Coroutine[Any, Any, None]], body: object, length: int | None
) -> Coroutine[Any, Any, None]:
    """Send a message through middleware, or from a source, as far as that goes now; return what awaits the rest.

    Code of users that awaits something runs in the task that awaits this.
    """
    coroutine, context = _named(give()), copy_context()
    if link.awaits_middleware or (isinstance(body, AsyncIterable) and length is None):
        return coroutine
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration:
        sent: Sent = link.delivery.sent
        return sent
    except Exception as error:
        return _named(_fail(error))
    return Begun(coroutine, context, waits_for)


async def _send_later(link: Any, sending: Sending, timeout: float | None) -> None:
    receipt = await link.push(sending, timeout)
    if receipt is not None:
        await receipt.wait()


async def _fail(error: Exception) -> None:
    raise error


class _Futures:
    """The futures of tasks that wait."""

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []

    def enter(self) -> asyncio.Future[None]:
        """Return a future to wait for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        return future

    async def _wait(self, future: asyncio.Future[None], seconds: float | None) -> None:
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            with contextlib.suppress(ValueError):
                self._futures.remove(future)

    def wake(self) -> None:
        """Wake all tasks. Called in the event loop."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)


class AsyncWaiters(_Futures):
    """Tasks that wait for messages of a subscription. They `enter` under the client's lock."""

    def __init__(self, subscription: object) -> None:
        super().__init__()

    async def wait(self, waiter: asyncio.Future[None], until: float | None) -> None:
        """Wait until `wake` is called, or until a point in time."""
        await self._wait(waiter, None if until is None else max(until - time.monotonic(), 0))


class AsyncPauses(_Futures):
    """Tasks that pause between two calls of a handler."""

    async def rest(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait so many seconds, or until `wake` is called; not at all if it is over."""
        future = self.enter()
        await self._wait(future, 0 if is_over() else seconds)


class AsyncWorkers:
    """The tasks that call a handler."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, runs: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Start a task for each function."""
        self._tasks = [asyncio.get_running_loop().create_task(run(), name=name) for run in runs]

    def _others(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks if task is not asyncio.current_task()]

    async def join(self, timeout: float | None) -> None:
        """Wait until they have ended, except the calling task; at most `timeout` seconds."""
        if others := self._others():
            await asyncio.wait(others, timeout=timeout)

    async def stop(self, timeout: float) -> None:
        """Wait until they have ended, and cancel those that have not after `timeout` seconds."""
        await self.join(timeout)
        for task in self._others():
            task.cancel()


class AsyncDelivery:
    """The engine's way into the event loop, which it enters once per turn of the I/O thread."""

    reads_all = True

    def __init__(self, options: Options) -> None:
        self._options = options
        self.loop: asyncio.AbstractEventLoop | None = None
        self.selector: selectors.BaseSelector | None = None
        self.sent: Sent  # of this loop
        self._process = process.mark
        self._engine: Engine | None = None  # if the loop watches `selector`, or may begin with it
        self._noted: deque[News] = deque()  # for the callbacks, in order

    def start(self, engine: Engine) -> None:
        """Remember the running event loop."""
        self.loop, self._engine, self.sent = asyncio.get_running_loop(), engine, Sent.in_loop()

    def check_opened(self) -> None:
        """Raise LocalProtocolError before `start`: what is sent then would wait for ever."""
        if self.check() is None:
            raise LocalProtocolError("the client is not open: write `await` before connect_async, or `async with`")

    def check(self) -> asyncio.AbstractEventLoop | None:
        """Return the client's event loop, if it was opened; raise LocalProtocolError in another one."""
        loop = self.loop
        try:
            if loop is not None and loop is not asyncio.get_running_loop():
                raise elsewhere() if self._process is process.mark else refuse()
        except RuntimeError:  # in no loop nothing waits
            pass
        return loop

    async def stop(self, engine: Engine, timeout: float) -> None:
        """Wait until the I/O thread has ended, and the one that connected; at most `timeout` seconds."""
        self._unwatch()
        until = time.monotonic() + timeout
        while (engine.running or engine.is_leaving) and time.monotonic() < until:
            await sleep(LOOK)

    def note(self, news: News) -> None:
        """Queue these news for the callbacks: under the lock, so that those of another thread do not overtake."""
        if news.events or news.frames:
            self._noted.append(news)

    def deliver(self, news: News) -> None:
        """Wake those who wait for these news."""
        if self.loop is None:  # the client was never opened
            self._drop()
            return
        try:
            self.loop.call_soon_threadsafe(self._deliver, news)
        except RuntimeError:  # the event loop is closed
            self._drop()

    def _drop(self) -> None:
        """Drop the news that a closed loop cannot show."""
        self._noted.clear()

    def _deliver(self, news: News) -> None:
        news.wake()
        for _ in range(len(self._noted)):  # what is noted meanwhile is shown in a later turn of the loop
            self._noted.popleft().show(self._options)
        if any(state == "closed" for state, _ in news.events):
            self._unwatch()
        elif self.selector is None and not news.events:  # more than the first connection: a conversation
            self._watch()

    def _watch(self) -> None:
        """Have the loop watch a selector, in which the I/O thread puts the socket while the loop shall read.

        The socket itself is not watched: only this thread could undo that, and it may be blocked.
        """
        engine, loop = self._engine, self.loop
        if engine is None or loop is None:
            return
        try:
            selector = selectors.DefaultSelector()
        except OSError:  # no descriptor is left
            return
        try:
            loop.add_reader(selector, engine.read)
        except (NotImplementedError, AttributeError, ValueError, OSError):  # Windows: no such loop, or no such selector
            selector.close()
            self._engine = None
        else:
            self.selector = selector

    def _unwatch(self) -> None:
        """Undo `_watch` for good."""
        engine, selector = self._engine, self.selector
        self._engine = self.selector = None
        if engine is not None and selector is not None and self.loop is not None:
            self.loop.remove_reader(selector)  # type: ignore[arg-type]  # it has a `fileno`
            engine.stop_reading()
            selector.close()

    def credential(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Return a credential: call a coroutine function in the event loop, others in this thread."""
        if inspect.iscoroutinefunction(ask) and self.loop is not None:
            return asyncio.run_coroutine_threadsafe(ask(), self.loop).result(min(timeout, threading.TIMEOUT_MAX))
        return ask()


async def call_handler(handler: Callable[[Any], Any], message: object) -> None:
    """Call a handler and await its result; raise its error, or RuntimeError if what it awaited was cancelled."""
    try:
        result = handler(message)
        if inspect.isawaitable(result):
            await result
        elif result is not None:
            check_returned(result)
    except asyncio.CancelledError as error:
        cancelling = getattr(asyncio.current_task(), "cancelling", None)
        if cancelling is None or cancelling():
            raise
        raise ended_by(error) from error  # this task was not cancelled


async def each(messages: Messages) -> AsyncIterator[Any]:
    """Yield all messages."""
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in messages:
            yield message


async def feed(bulk: Bulk, messages: Messages) -> None:
    """Send all messages, and wait for room and receipts."""
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            await _steps(bulk.add((message,)))
    else:
        await _steps(bulk.add(messages))
    await _steps(bulk.finish())


async def _steps(steps: Iterable[Awaitable[object] | None]) -> None:
    for receipt in steps:
        if receipt is None:  # lets other tasks run
            await sleep(0)
            continue
        with contextlib.suppress(StompError):  # `bulk` handles it
            await receipt


# ---- bodies ----


@checks()
class AsyncBodyReader:
    """A reader of a body, as `message.open` gives it. It reads files in other threads.

    >>> import asyncio
    >>> async def main():
    ...     reader = AsyncBodyReader(BodyReader(b"hello"))
    ...     return await reader.read(2), reader.size, [piece async for piece in reader]
    >>> asyncio.run(main())
    (b'he', 5, [b'llo'])
    """

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self.size = reader.size
        """The bytes of the whole body."""

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, b"" at the end; with -1 all that are left."""
        return await asyncio.to_thread(self._reader.read, size) or b""

    async def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        return await asyncio.to_thread(self._reader.readinto, buffer)

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset; return it."""
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._reader.tell()

    def __aiter__(self) -> AsyncBodyReader:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.read(PIECE)
        if not piece:
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """Let go of the body."""
        self._reader.close()

    async def __aenter__(self) -> AsyncBodyReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def open_source(body: Any, length: int | None, folder: str | os.PathLike[str] | None) -> Source:
    """Return the source of a body. One whose length is not known is written to a temporary file first."""
    source = await asyncio.to_thread(opened, body, length) if may_block(body) else opened(body, length)
    if source is not None:
        return source
    spool, pieces = Spool(folder), pieces_of(body)
    try:
        if isinstance(pieces, AsyncIterable):
            async for piece in pieces:
                await _spool(spool, checked(piece))
        elif isinstance(body, os.PathLike) or hasattr(body, "read"):
            await asyncio.to_thread(spool.fill, pieces)
        else:
            for piece in pieces:
                await _spool(spool, checked(piece))
    except BaseException:
        spool.close()
        raise
    return spool.source()


async def _spool(spool: Spool, piece: bytes) -> None:
    if len(piece) < _LARGE:
        spool.write(piece)
    else:
        await asyncio.to_thread(spool.write, piece)


async def read_piece(source: Source, at: int, upload: Upload) -> bytes:
    """Return the next piece of a body; raise BodySourceError if none comes in the time of the upload."""
    most = upload.wants(at)
    if isinstance(source, Pieces) and not source.is_async:
        return source.read(at, most)
    reading = source.aread(at, most) if isinstance(source, Pieces) else asyncio.to_thread(source.read, at, most)
    task = asyncio.ensure_future(reading)
    try:  # not `wait_for`, which loses a cancellation that comes together with the piece
        await asyncio.wait([task], timeout=None if upload.timeout == math.inf else upload.timeout)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise BodySourceError(f"{upload.what}: the source gave no bytes in {upload.timeout:g} s")
