"""Entering and leaving the middleware of a place, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from stompcodec.client.middleware.base import AsyncMiddleware, Middleware
from stompcodec.client.middleware.events import Event

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
