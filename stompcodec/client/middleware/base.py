"""The bases of middleware, one method for each place where it is called."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any

from stompcodec.client.middleware.events import (
    ConnectEvent,
    Event,
    ProcessEvent,
    ReceiveEvent,
    SendEvent,
    SendManyEvent,
    SettleEvent,
)

#: Where an error of the inner code may be suppressed: a message whose error is suppressed counts as processed.
_SUPPRESSIBLE = "process"


@contextmanager
def around(
    layers: Iterable[Middleware | AsyncMiddleware],
    place: str,
    event: Event,
    adapt: Callable[[Any], Any] = lambda context: context,
) -> Iterator[None]:
    """Enter the middleware of a place, the first one first, and leave it in the opposite order.

    An error may be replaced on its way out, but only around `process` may it be suppressed. `adapt` is called with each
    context manager, and returns the one to enter.
    """
    failure: BaseException | None = None
    is_inside = False
    with ExitStack() as stack:
        try:
            for layer in layers:
                stack.enter_context(adapt(getattr(layer, place)(event)))
            is_inside = True
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None and not (is_inside and place == _SUPPRESSIBLE):
        raise failure


@asynccontextmanager
async def async_around(layers: Iterable[Middleware | AsyncMiddleware], place: str, event: Event) -> AsyncIterator[None]:
    """Do what `around` does, with middleware of both kinds."""
    failure: BaseException | None = None
    is_inside = False
    async with AsyncExitStack() as stack:
        try:
            for layer in layers:
                context = getattr(layer, place)(event)
                if isinstance(context, AbstractAsyncContextManager) and isinstance(layer, AsyncMiddleware):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            is_inside = True
            yield
        except BaseException as error:
            failure = error
            raise
    if failure is not None and not (is_inside and place == _SUPPRESSIBLE):
        raise failure


#: The places, which are the names of the methods below.
PLACES = ("connect", "send", "send_many", "receive", "process", "settle")


class Middleware:
    """The base of middleware, for threads and asyncio. Each method returns a context manager around one step.

    A subclass overrides the methods of the places it needs, with `contextlib.contextmanager`. The option `middleware`
    lists instances; the first one is the outermost. docs/middleware.md has the outcomes of exceptions.

    >>> import contextlib
    >>> class Stamp(Middleware):
    ...     @contextlib.contextmanager
    ...     def send(self, event):
    ...         event.headers["stamp"] = "1"
    ...         yield
    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as broker, connect(broker.url, middleware=[Stamp()]) as client:
    ...     client.send("/queue/a", b"hello")
    ...     client.subscribe("/queue/a").get(5).headers["stamp"]
    '1'
    """

    def connect(self, event: ConnectEvent) -> AbstractContextManager[object]:
        """Return a context around an attempt to connect. It runs in a thread of its own."""
        return nullcontext()

    def send(self, event: SendEvent) -> AbstractContextManager[object]:
        """Return a context around sending a message."""
        return nullcontext()

    def send_many(self, event: SendManyEvent) -> AbstractContextManager[object]:
        """Return a context around a call of `send_many`, whose messages pass `send`, too."""
        return nullcontext()

    def receive(self, event: ReceiveEvent) -> AbstractContextManager[object]:
        """Return a context around handing a message to the program, or to its handler."""
        return nullcontext()

    def process(self, event: ProcessEvent) -> AbstractContextManager[object]:
        """Return a context around a handler, or around the block of `message.processing()`."""
        return nullcontext()

    def settle(self, event: SettleEvent) -> AbstractContextManager[object]:
        """Return a context around ACK or NACK of a message."""
        return nullcontext()


class AsyncMiddleware:
    """The base of middleware that awaits something, for asyncio alone: `Middleware` with `asynccontextmanager`.

    It runs in the client's event loop, `connect` included.

    >>> import asyncio, contextlib
    >>> class Slow(AsyncMiddleware):
    ...     @contextlib.asynccontextmanager
    ...     async def send(self, event):
    ...         await asyncio.sleep(0)
    ...         event.headers["slow"] = "yes"
    ...         yield
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url, middleware=[Slow()]) as client:
    ...         await client.send("/queue/a", b"hello")
    ...         return (await client.subscribe("/queue/a").get(5)).headers["slow"]
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    'yes'
    """

    def connect(self, event: ConnectEvent) -> AbstractAsyncContextManager[object]:
        """Return a context around an attempt to connect."""
        return nullcontext()

    def send(self, event: SendEvent) -> AbstractAsyncContextManager[object]:
        """Return a context around sending a message."""
        return nullcontext()

    def send_many(self, event: SendManyEvent) -> AbstractAsyncContextManager[object]:
        """Return a context around a call of `send_many`, whose messages pass `send`, too."""
        return nullcontext()

    def receive(self, event: ReceiveEvent) -> AbstractAsyncContextManager[object]:
        """Return a context around handing a message to the program, or to its handler."""
        return nullcontext()

    def process(self, event: ProcessEvent) -> AbstractAsyncContextManager[object]:
        """Return a context around a handler, or around the block of `message.processing()`."""
        return nullcontext()

    def settle(self, event: SettleEvent) -> AbstractAsyncContextManager[object]:
        """Return a context around ACK or NACK of a message."""
        return nullcontext()


#: For each place the middleware that overrides its method, outermost first.
Layers = dict[str, list["Middleware | AsyncMiddleware"]]


def checked(middleware: Iterable[object]) -> None:
    """Check the option `middleware`.

    Raises:
        TypeError: one of them is of another class, or the class itself instead of an instance.

    >>> checked([Middleware])
    Traceback (most recent call last):
        ...
    TypeError: middleware holds <class 'stompcodec.client.middleware.base.Middleware'>: give instances of Middleware
    """
    for each in middleware:
        if not isinstance(each, (Middleware, AsyncMiddleware)):
            raise TypeError(f"middleware holds {each!r:.100}: give instances of Middleware")


def layers_of(middleware: Iterable[Middleware | AsyncMiddleware]) -> Layers:
    """Return the middleware of each place.

    >>> layers_of([Middleware()])["send"]
    []
    """
    given = list(middleware)
    return {place: [each for each in given if _overrides(each, place)] for place in PLACES}


def _overrides(layer: Middleware | AsyncMiddleware, place: str) -> bool:
    base = AsyncMiddleware if isinstance(layer, AsyncMiddleware) else Middleware
    return getattr(type(layer), place) is not getattr(base, place) or place in vars(layer)
