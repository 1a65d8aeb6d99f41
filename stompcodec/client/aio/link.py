"""What messages, subscriptions and transactions for asyncio use of their client, and the receipt that they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

from stompcodec.client.core import ClientCore
from stompcodec.client.engine import Engine
from stompcodec.client.forks import process, refuse
from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription

__all__ = ["AsyncLink", "AsyncReceipt"]


class AsyncReceipt:
    """A call whose outcome may be awaited later: accepted, rejected, or unknown."""

    __slots__ = ("_call", "_future", "_process")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._process = process.mark
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.wake = self._wake

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def __repr__(self) -> str:
        return repr(self._call).replace("Call", "Receipt", 1)

    @property
    def done(self) -> bool:
        """Whether the outcome is there."""
        return self._call.done

    async def wait(self) -> Any:
        """Wait for the outcome, at most for the time-out of the call. Returns when the broker accepted.

        Raises:
            RejectedError: the broker refused.
            ReceiptTimeoutError, ConnectionLostError: the outcome is unknown; `sent` tells if anything left at all.
        """
        if self._process is not process.mark:
            raise refuse()
        await asyncio.shield(self._future)
        if self._call.error is not None:
            raise self._call.error
        return self._call.result

    def __await__(self) -> Generator[Any, None, Any]:
        return self.wait().__await__()


class AsyncLink(Protocol):
    """A client, as its messages, subscriptions and transactions see it."""

    @property
    def engine(self) -> Engine: ...

    @property
    def core(self) -> ClientCore: ...

    def _call(self, what: str, command: str, timeout: float | None) -> Call: ...

    async def send(self, *args: Any, **options: Any) -> AsyncReceipt | None: ...

    async def push(self, attempt: Callable[[], bool], octets: int, timeout: float | None) -> None: ...

    async def wait_connected(self, timeout: float | None = None) -> None: ...

    async def settle(
        self,
        message: BaseMessage,
        command: str,
        *,
        headers: Mapping[str, str] | None = None,
        requeue: bool | None = None,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None: ...

    async def unsubscribe(
        self, subscription: Subscription, *, delete: bool, wait: bool, timeout: float | None
    ) -> None: ...
