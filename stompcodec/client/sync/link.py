"""What messages, subscriptions and transactions for threads use of their client, and the receipt that they wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from stompcodec.client.core import ClientCore
from stompcodec.client.engine import Engine
from stompcodec.client.forks import process, refuse
from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.errors import ReceiptTimeoutError

__all__ = ["Link", "Receipt"]

#: The I/O thread ends every call in time. Should it ever fail to, nobody waits much longer.
_GRACE = 5.0


class Receipt:
    """A call whose outcome may be waited for later: accepted, rejected, or unknown."""

    __slots__ = ("_call", "_process", "_waiters")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._process = process.mark
        # Each who waits has a lock of their own, so that one who is interrupted leaves nothing locked.
        self._waiters: list[threading.Lock] = []
        call.wake = self._wake

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.release()

    def __repr__(self) -> str:
        return repr(self._call).replace("Call", "Receipt", 1)

    @property
    def done(self) -> bool:
        """Whether the outcome is there."""
        return self._call.done

    def wait(self) -> Any:
        """Wait for the outcome, at most for the time-out of the call. Returns when the broker accepted.

        Raises:
            RejectedError: the broker refused.
            ReceiptTimeoutError, ConnectionLostError: the outcome is unknown; `sent` tells if anything left at all.
        """
        call = self._call
        if self._process is not process.mark:
            raise refuse()
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        # Invariant: `done` is set before `_wake` looks who waits, so nobody is missed.
        if not call.done and not waiter.acquire(timeout=call.timeout + _GRACE) and not call.done:
            raise ReceiptTimeoutError(f"{call.what}: nothing came back in {call.timeout} s")
        if call.error is not None:
            raise call.error
        return call.result


class Link(Protocol):
    """A client, as its messages, subscriptions and transactions see it."""

    @property
    def engine(self) -> Engine: ...

    @property
    def core(self) -> ClientCore: ...

    def _call(self, what: str, command: str, timeout: float | None) -> Call: ...

    def send(self, *args: Any, **options: Any) -> Receipt | None: ...

    def push(self, attempt: Callable[[], bool], octets: int, timeout: float | None) -> None: ...

    def wait_connected(self, timeout: float | None = None) -> None: ...

    def settle(
        self,
        message: BaseMessage,
        command: str,
        *,
        headers: Mapping[str, str] | None = None,
        requeue: bool | None = None,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None: ...

    def unsubscribe(self, subscription: Subscription, *, delete: bool, wait: bool, timeout: float | None) -> None: ...
