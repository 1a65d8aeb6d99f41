"""The client for asyncio: the same names as for threads, awaited.

Its I/O is not done in the user's event loop but in the I/O thread of `engine`: a loop that is blocked for minutes, by a
handler that computes, keeps its connection and its heart-beats. The price is one hand-over a chunk that was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping
from typing import Any

from stompcodec.client.aio.calls import AsyncTransaction
from stompcodec.client.aio.link import AsyncReceipt
from stompcodec.client.aio.messages import AsyncMessage, AsyncSubscription
from stompcodec.client.bulk import Bulk, Outgoings
from stompcodec.client.engine import News
from stompcodec.client.handlers import Policy, check_possible, checked_policy
from stompcodec.client.hooks import show
from stompcodec.client.message import BaseMessage
from stompcodec.client.options import Options
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.shell import LOOK, BaseClient, HeaderSource, now, outgoing, timeout_of_connect
from stompcodec.client.subscription import Subscription as BaseSubscription
from stompcodec.errors import ReceiptTimeoutError, StompError
from stompcodec.uri import Address

__all__ = ["AsyncClient", "connect_async"]


def connect_async(url: str | list[Address], **options: Any) -> AsyncClient:
    """A client for asyncio: `async with connect_async(url) as client`, or `client = await connect_async(url)`.

    Args:
        url: stomp://login:passcode@host:61613/vhost, stomp+ssl:, ws:, wss:, failover:(a,b), or a list of addresses.
        options: the fields of `Options`.

    Raises:
        ConnectionLostError: when it is awaited: no broker can be reached.
        RejectedError: when it is awaited: the broker refused the login.
        ConfigError, ValueError, TypeError: the URL or an option makes no sense.
    """
    return AsyncClient(url, Options(**options))


class AsyncClient(BaseClient):
    """A client for asyncio; `connect_async` makes it. It belongs to the event loop in which it was opened."""

    subscription_class = AsyncSubscription
    message_class = AsyncMessage
    _loop: asyncio.AbstractEventLoop

    def __init__(self, url: str | list[Address], options: Options) -> None:
        super().__init__(url, options)
        self._subscriptions: list[AsyncSubscription] = []

    async def open(self) -> AsyncClient:
        """Connect; once."""
        self._loop = asyncio.get_running_loop()
        call = self.core.link.calls.make("connect", timeout_of_connect(self.options, len(self.engine.addresses)))
        receipt = AsyncReceipt(call)
        self.engine.do(self.core.when_connected, call, now())
        self.engine.start()
        try:
            await receipt
        except BaseException:
            await self.close()
            raise
        return self

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self.open().__await__()

    async def __aenter__(self) -> AsyncClient:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- sending ----

    async def send(
        self,
        destination: str,
        body: bytes | str = b"",
        headers: HeaderSource | None = None,
        *,
        receipt: bool = False,
        wait: bool = True,
        timeout: float | None = None,
        content_encoding: str | None = None,
        resend: bool | None = None,
    ) -> AsyncReceipt | None:
        """Send a message. Without a connection it waits in the outbox.

        Args:
            body: octets, or text, which goes as UTF-8.
            headers: further headers.
            receipt: return when the broker has it. Without, what was sent just before a loss may be lost.
            wait: with False, return an `AsyncReceipt` at once instead, to await it later.
            timeout: seconds to wait, for room in the outbox and again for the receipt.
            content_encoding: compress the body: gzip or deflate.
            resend: send it again if the connection is lost before the receipt; None for the client's option.

        Raises:
            RejectedError: the broker refused it.
            ConnectionLostError, ReceiptTimeoutError: the outcome is unknown; with `sent` False nothing left.
            OutboxFullError: there was no room in time.
            FrameError, TypeError: the message cannot be written.
            LocalProtocolError: the client is closed.
        """
        message = outgoing(destination, body, headers, content_encoding)
        call = self._call(f"SEND to {destination}", "SEND", timeout) if receipt else None
        frame = self._send_frame(message, call, resend)
        result = None if call is None else AsyncReceipt(call)
        if not self.engine.do(self.core.send, frame, now(), call, text=message.text):
            await self.push(
                lambda: self.engine.do(self.core.send, frame, now(), call, text=message.text), len(frame.body), timeout
            )
        if result is not None and wait:
            await result
            return None
        return result

    async def send_many(
        self,
        messages: Outgoings | AsyncIterable[Any],
        *,
        transaction: AsyncTransaction | None = None,
        receipt_every: int = 1000,
        timeout: float | None = None,
        resend: bool | None = None,
    ) -> int:
        """Send many messages, in large pieces, without waiting for each: the fastest way, and no outcome is lost.

        Args:
            messages: an iterable, asynchronous or not, of `(destination, body)`, `(destination, body, headers)` or SEND
                frames. They are taken as there is room for them, never all at once.
            transaction: send as part of it. There is no receipt then but that of `commit`.
            receipt_every: ask for a receipt at least every so many messages (and 256 KiB); 0 for none. Receipts are
                waited for later, at most as many messages are without one as the outbox may hold.
            timeout: seconds to wait, for room in the outbox and for each receipt.
            resend: as for `send`.

        Returns:
            How many there were. With receipts the broker has them all.

        Raises:
            SendManyError: not all were accepted; it tells the outcome of each.
            LocalProtocolError, ValueError: an argument makes no sense.
        """
        self.engine.check()
        bulk = Bulk(self, AsyncReceipt, transaction, receipt_every, timeout, resend)
        if isinstance(messages, AsyncIterable):
            async for message in messages:
                await self._steps(bulk.add((message,)))
        else:
            await self._steps(bulk.add(messages))
        await self._steps(bulk.finish())
        return bulk.given

    async def _steps(self, steps: Iterable[AsyncReceipt | None]) -> None:
        for receipt in steps:
            if receipt is None:  # the loop's turn
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(StompError):  # `bulk` looks at it
                await receipt

    async def request(
        self,
        destination: str,
        body: bytes | str = b"",
        timeout: float | None = None,
        headers: HeaderSource | None = None,
        *,
        content_encoding: str | None = None,
    ) -> AsyncMessage:
        """Send a message and wait for the answer, which comes to a temporary queue of this client.

        Raises:
            ReceiptTimeoutError: no answer came in time.
            ConnectionLostError: the connection was lost, and the temporary queue with it.
            RejectedError and others: as for `send`.
        """
        call = self._call(f"request to {destination}", "SEND", timeout)
        receipt = AsyncReceipt(call)
        message = outgoing(destination, body, headers, content_encoding)

        def attempt() -> bool:
            return self.engine.do(self.core.request, message.pairs, message.body, now(), call, text=message.text)

        await self.push(attempt, len(message.body), timeout)
        reply: AsyncMessage = await receipt
        return reply

    def transaction(self, *, timeout: float | None = None) -> AsyncTransaction:
        """A transaction: `async with client.transaction() as tx:`."""
        return AsyncTransaction(self, f"t{next(self._ids)}", timeout)

    # ---- receiving ----

    def subscribe(
        self,
        destination: str,
        *,
        ack: str = "auto",
        prefetch: int | None = None,
        selector: str | None = None,
        durable: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        confirm: bool = True,
        timeout: float | None = None,
        handler: Callable[[AsyncMessage], Any] | None = None,
        on_error: Policy = "nack",
        concurrency: int = 1,
        key: Callable[[AsyncMessage], object] | None = None,
    ) -> AsyncSubscription:
        """Subscribe at once; await what this returns to have it confirmed, or iterate over it.

        Args:
            ack: "auto", "client" (an ack covers all before it) or "client-individual".
            prefetch: how many messages may be on their way and not acknowledged; 100 unless `ack` is auto.
            selector: which messages, in the broker's language.
            durable: the name of a durable subscription.
            id: of the subscription; one is made up.
            headers: further headers of SUBSCRIBE; they win over what is made of the arguments before.
            confirm: ask for a receipt. Without it, a refusal is an ERROR that belongs to nobody.
            timeout: seconds to wait for the receipt.
            handler: called with each message, in order; it may be a coroutine function. It settles by itself: ACK when
                it is done, `on_error` when it raises, and nothing where it has settled.
            on_error: nack, requeue, discard, ack, ignore (leave it alone: it counts for `prefetch` until you settle
                it), stop (unsubscribe), or a function of message and error that returns one of them.
            concurrency: call the handler in so many tasks; the order is lost, except that
            key: messages for which this function returns the same go to the same task, in order.

        Raises:
            LocalProtocolError: the id is taken, or this broker cannot do what is asked.
            ValueError: an argument makes no sense.
            RejectedError, ConnectionLostError, ReceiptTimeoutError: when it is awaited or iterated over.
        """
        checked_policy(on_error)
        if handler is not None and ack != "auto":
            check_possible(on_error, self.core.link.dialect)
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: it must be 1 or more")
        rest = {"selector": selector, "durable": durable, "id": id, "headers": headers, "confirm": confirm}
        subscription: AsyncSubscription = self._new_subscription(destination, ack, prefetch, **rest)
        receipt = AsyncReceipt(self._call(f"SUBSCRIBE to {destination}", "SUBSCRIBE", timeout))
        self.engine.do(self.core.inbound.subscribe, subscription, now(), receipt._call)
        subscription.receipt = receipt
        if handler is not None:
            self._subscriptions.append(subscription)
            subscription.handle(handler, on_error, concurrency, key)
        return subscription

    def on_message(self, destination: str, **options: Any) -> Callable[[Callable[[AsyncMessage], Any]], Any]:
        """A decorator: subscribe with the function as handler. Options as for `subscribe`."""

        def decorate(handler: Callable[[AsyncMessage], Any]) -> Callable[[AsyncMessage], Any]:
            self.subscribe(destination, handler=handler, **options)
            return handler

        return decorate

    async def receive(
        self,
        destination: str,
        *,
        ack: str = "auto",
        selector: str | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        timeout: float | None = None,
    ) -> AsyncMessage | None:
        """Take one message, if there is one right now. Not every broker has the command for it, RECEIVE.

        Args:
            ack: "auto", or "client-individual": then it comes again unless it is acknowledged on this connection.
            selector: which messages, in the broker's language.
            headers: further headers of RECEIVE; they win over what is made of the arguments before.
            timeout: seconds to wait for a connection, and again for the answer.

        Raises:
            LocalProtocolError: this broker does not offer it.
            RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `send`.
        """
        subscription = self._new_subscription(destination, ack, None, selector=selector, headers=headers)
        call = self._call(f"RECEIVE from {destination}", "RECEIVE", timeout)
        receipt = AsyncReceipt(call)
        while not self.engine.do(self.core.fetch, subscription, now(), call):
            await self.wait_connected(timeout)
        message: AsyncMessage | None = await receipt
        return message

    async def unsubscribe(
        self, subscription: BaseSubscription, *, delete: bool, wait: bool, timeout: float | None
    ) -> None:
        """As `AsyncSubscription.unsubscribe`."""
        receipt = AsyncReceipt(self._call(f"UNSUBSCRIBE of {subscription.id}", "UNSUBSCRIBE", timeout))
        call = receipt._call if wait else None
        self.engine.do(self.core.inbound.unsubscribe, subscription, now(), call, delete=delete)
        if wait:
            await receipt

    async def settle(
        self,
        message: BaseMessage,
        command: str,
        *,
        headers: Mapping[str, str] | None = None,
        requeue: bool | None = None,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None:
        """As `AsyncMessage.ack` and `AsyncMessage.nack`."""
        if not receipt:
            self.engine.do(self.core.settle, message, command, now(), None, requeue=requeue, more=headers)
            return
        answer = AsyncReceipt(self._call(f"{command} of {message.id}", command, timeout))
        self.engine.do(self.core.settle, message, command, now(), answer._call, requeue=requeue, more=headers)
        await answer

    # ---- the connection ----

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until there is a connection and the subscriptions are back.

        Raises:
            ReceiptTimeoutError: there was none in time.
        """
        receipt = AsyncReceipt(self._call("waiting for a connection", "", timeout))
        self.engine.do(self.core.when_connected, receipt._call, now())
        await receipt

    async def ping(self, timeout: float | None = None) -> float:
        """How long the broker takes to answer, in seconds: PING where it offers that, else an empty transaction.

        Raises:
            RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `send`.
        """
        call = self._call("PING", "PING", timeout)
        receipt = AsyncReceipt(call)
        started = time.monotonic()
        if self.engine.do(self.core.ping, now(), call):
            await receipt
            return time.monotonic() - started
        transaction = await self.transaction(timeout=timeout).begin()
        started = time.monotonic()
        await transaction.abort(timeout=timeout)
        return time.monotonic() - started

    async def drain(self, timeout: float = 30.0) -> None:
        """Finish and close: nothing more comes in, what was handed out is finished and settled, what waits is sent.

        Messages with explicit acks that were not handed out go back to the broker.

        Raises:
            ReceiptTimeoutError: not all was done in time. The client is closed in any case.
        """
        self.engine.check()
        until = time.monotonic() + timeout
        quiet = False
        try:
            if self.state != "closed":
                self.engine.do(self.core.drain, now())
            for subscription in self._subscriptions:
                with contextlib.suppress(Exception):
                    await subscription.join(max(until - time.monotonic(), 0))
            while not (quiet := self._is_quiet()) and time.monotonic() < until and self.state != "closed":
                await asyncio.sleep(LOOK)
        finally:
            await self.close()
        if not quiet:
            raise ReceiptTimeoutError(f"not all was finished in {timeout} s")

    def _is_quiet(self) -> bool:
        with self.engine.lock:
            return self.core.is_quiet()

    async def close(self, timeout: float | None = None) -> None:
        """Say goodbye and close. What waits is sent before, if there is a connection. To close again does nothing.

        In a child process that was forked it only closes descriptors: the parent's connection goes on.

        Args:
            timeout: seconds for everything; None for the option `close_timeout`.
        """
        if self.engine.is_copy:
            self.engine.let_go()
            return
        seconds = self.options.close_timeout if timeout is None else timeout
        call = self.core.link.calls.make("close", 2 * seconds)
        receipt = AsyncReceipt(call)
        self.engine.do(self.core.close, now(), call, seconds)
        with contextlib.suppress(StompError):
            await receipt
        await self._joined(seconds)
        for subscription in self._subscriptions:
            with contextlib.suppress(Exception):
                await subscription.join(seconds)
            subscription.cancel()

    async def _joined(self, timeout: float) -> None:
        """Until the I/O thread has ended."""
        until = time.monotonic() + timeout
        while self.engine.running and time.monotonic() < until:
            await asyncio.sleep(LOOK)

    async def push(self, attempt: Callable[[], bool], octets: int, timeout: float | None) -> None:
        """Try until the outbox has room."""
        if attempt():
            return
        seconds = self.options.receipt_timeout if timeout is None else timeout
        until = now() + seconds
        while True:
            receipt = AsyncReceipt(self.core.link.calls.make("waiting for room", max(until - now(), 0)))
            self.engine.do(self.core.when_room, receipt._call, now(), octets)
            try:
                await receipt
            except ReceiptTimeoutError:
                raise OutboxFullError(f"the outbox had no room in {seconds} s: nothing was sent") from None
            if attempt():
                return

    # ---- the engine's side ----

    def deliver(self, news: News) -> None:
        with contextlib.suppress(RuntimeError):  # the user's loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, news)

    def _deliver(self, news: News) -> None:
        for call in news.calls:
            if call.wake is not None:
                call.wake()
        for subscription in news.subscriptions:
            if isinstance(subscription, AsyncSubscription):
                subscription.wake()
        show(self.options, news)

    def credential(self, ask: Callable[[], Any], timeout: float) -> Any:
        """Ask the user's function: a coroutine function in the user's loop, any other in a thread."""
        if inspect.iscoroutinefunction(ask):
            return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(timeout)
        return ask()
