"""The client for asyncio.

Its I/O is not done in the event loop but in the I/O thread of `engine`, so that a blocked loop keeps its connection and
its heart-beats. The price is that messages change threads, once per chunk that was read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any

from stompcodec.arguments import checks
from stompcodec.client.aio.link import AsyncLink
from stompcodec.client.aio.messages import AsyncMessage, AsyncSubscription, AsyncTransaction
from stompcodec.client.aio.waiting import AsyncBody, AsyncReceipt, Messages, as_coroutine, begin, leave, send, sleep
from stompcodec.client.bodies import is_whole
from stompcodec.client.handlers import ATTEMPTS, GIVE_UP, Errors, Handling, Policy
from stompcodec.client.headers import HeaderSource
from stompcodec.client.messages import OnUnreadable
from stompcodec.client.middleware import started
from stompcodec.client.options import Options
from stompcodec.client.shell import LOOK, BaseClient, Bulk, end_of, now, outgoing
from stompcodec.errors import ReceiptTimeoutError, StompError
from stompcodec.uri import Brokers


@checks("send", "send_for_receipt")
class AsyncClient(BaseClient):
    """A client for asyncio, as `connect_async` returns it. It belongs to the event loop in which it was opened.

    >>> import asyncio
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url) as client:
    ...         await client.send("/queue/a", b"hello", receipt=True)
    ...         async for message in client.subscribe("/queue/a", ack="client-individual"):
    ...             async with message.processing():
    ...                 return message.body
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    b'hello'
    """

    _link_class = AsyncLink

    def __init__(self, url: Brokers, options: Options) -> None:
        self._link: AsyncLink = self._link_class(url, options, AsyncSubscription, AsyncMessage)
        self._opened = False
        self._subscriptions: list[AsyncSubscription] = []

    async def open(self) -> AsyncClient:
        """Connect, unless that was done before, and return the client. Errors are those of `connect`."""
        if self._opened:
            self._link.delivery.check()  # asyncio only
            return self
        self._opened = True
        link = self._link
        link.delivery.start(link.engine)
        receipt = link.start(link.call_of_connect(), link.core.when_connected)
        link.engine.start()
        try:
            await receipt.wait()
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

    @as_coroutine  # asyncio only
    def send(
        self,
        destination: str,
        body: AsyncBody = b"",
        headers: HeaderSource | None = None,
        *,
        receipt: bool = False,
        persistent: bool | None = None,
        timeout: float | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        resend: bool | None = None,
        length: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Send a message. Without a connection it waits in the outbox.

        Args:
            body: bytes, text (sent as UTF-8), or a source: a Path, binary file or iterable (docs/large-bodies.md).
            headers: more headers, except those that an argument or the client gives, such as receipt.
            receipt: return when the broker has confirmed. Without it, a lost connection may lose the message.
            persistent, resend: keep it over a restart; send it again if no receipt came. None: the client's options.
            timeout: seconds to wait for room in the outbox, and again for the receipt.
            content_type, content_encoding: such as application/json; gzip or deflate, to compress the body.
            length: the bytes that an iterable will give. Without it they are written to a temporary file first.

        Raises:
            RejectedError: the broker refused it.
            BodySourceError: an iterable or file gave fewer or more bytes than announced, or none in time.
            ConnectionLostError, ReceiptTimeoutError: the outcome is unknown; with `sent` False it was not sent.
            OutboxFullError, LocalProtocolError: the outbox had no room in time; the client is closed.
            FrameError, TypeError, ValueError: the message cannot be written, or a header belongs to the client.
        """
        link = self._link
        if (
            type(body) is bytes
            and headers is None
            and receipt is False
            and resend is None
            and persistent is None
            and timeout is None
            and not (content_type or content_encoding)
            and length is None
            and link.engine.send(destination, body)
        ):
            return link.delivery.sent
        parts = (destination, body, headers, (content_type, content_encoding), receipt, timeout, resend, persistent)
        if link.layers is None and length is None and is_whole(body):
            return send(link, partial(link.given, *parts), timeout)  # asyncio only
            # threads only: return send(link, link.given(*parts), timeout)
        return begin(link, partial(link.give, *parts, length), body, length)

    async def send_for_receipt(
        self,
        destination: str,
        body: AsyncBody = b"",
        headers: HeaderSource | None = None,
        *,
        persistent: bool | None = None,
        timeout: float | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        resend: bool | None = None,
        length: int | None = None,
    ) -> AsyncReceipt:
        """Send a message, and return its receipt, to wait for later.

        Args:
            destination and others: as for `send`. A body that is sent piece by piece has been sent when this returns,
                and is not sent again.

        Raises:
            OutboxFullError, FrameError, TypeError, LocalProtocolError: as for `send`; the receipt raises the others.
        """
        link, more = self._link, (headers, (content_type, content_encoding))
        if link.layers is None and length is None and is_whole(body):
            receipt = await link.push(link.given(destination, body, *more, True, timeout, resend, persistent), timeout)
        else:
            receipt = await link.give(destination, body, *more, True, timeout, resend, persistent, length, wait=False)
        assert receipt is not None
        return receipt

    async def send_many(
        self,
        messages: Messages,
        *,
        transaction: AsyncTransaction | None = None,
        receipt_every: int = 1000,
        persistent: bool | None = None,
        timeout: float | None = None,
        resend: bool | None = None,
    ) -> int:
        """Send many messages in large writes, without waiting for each: the fastest way to send.

        Args:
            messages: `(destination, body)`, `(destination, body, headers)` or SEND frames. They are taken as there is
                room for them. With asyncio they may come from an asynchronous iterable.
            transaction: send as part of it. Then only `commit` has a receipt.
            receipt_every: the number of messages after which to ask for a receipt, at least once per 256 KiB; 0 for
                none. The messages without receipt never exceed the limits of the outbox.
            persistent, resend: as for `send`, for messages whose headers do not say.
            timeout: seconds to wait for room in the outbox, and for each receipt.

        Returns:
            The number of messages. With receipts the broker has all of them.

        Raises:
            SendManyError: not all were accepted; it has the outcome of each.
            LocalProtocolError, ValueError: an argument is invalid.
        """
        self._link.engine.check()
        self._link.delivery.check_opened()  # asyncio only
        bulk = Bulk(self._link, AsyncReceipt, transaction, receipt_every, timeout, resend, persistent)
        await self._link.send_many(bulk, messages)
        return bulk.given

    async def request(
        self,
        destination: str,
        body: bytes | str = b"",
        timeout: float | None = None,
        headers: HeaderSource | None = None,
        *,
        persistent: bool | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
    ) -> AsyncMessage:
        """Send a message with a reply-to of this client, and return the reply.

        Args:
            timeout: seconds to wait for the reply; None for the option `receipt_timeout`.
            headers: as for `send`; reply-to and correlation-id are the client's, too.
            persistent: as for `send`, but without it and the option False: after a restart nobody waits for the reply.

        Raises:
            ReceiptTimeoutError: there was no reply in time.
            ConnectionLostError: the connection was lost, and with it the queue for replies.
            RejectedError and others: as for `send`.
        """
        usual = bool(self.options.persistent)
        message = outgoing(destination, body, headers, (content_type, content_encoding), "request", persistent, usual)
        reply: AsyncMessage = await self._link.request(message, timeout)
        return reply

    def transaction(self, *, timeout: float | None = None) -> AsyncTransaction:
        """Return a new transaction, to be entered by `async with`.

        Args:
            timeout: seconds to wait for a connection when it begins, and for the receipt when it ends.
        """
        return AsyncTransaction(self._link, timeout)

    # ---- receiving ----

    def subscribe(
        self,
        destination: str,
        *,
        ack: str | None = None,
        prefetch: int | None = None,
        selector: str | None = None,
        durable: str | None = None,
        id: str | None = None,
        headers: HeaderSource = (),
        confirm: bool = True,
        timeout: float | None = None,
        on_unreadable: OnUnreadable = "raise",
        handler: Callable[[AsyncMessage], object | Awaitable[object]] | None = None,
        on_error: Policy | None = None,
        concurrency: int = 1,
        key: Callable[[AsyncMessage], object] | None = None,
        attempts: int = ATTEMPTS,
        give_up: Errors = GIVE_UP,
        dead_letter: str | None = None,
    ) -> AsyncSubscription:
        """Subscribe at once. Await what this returns to have it confirmed, or iterate over it.

        Args:
            ack: "auto", "client" (an ack covers all earlier messages) or "client-individual"; None for
                "client-individual" with a handler, and "auto" without.
            prefetch: the number of messages that may be unacknowledged; 100 unless `ack` is auto.
            selector: selects messages, in the broker's language.
            durable, id: the name of a durable subscription; the id of another one, if it matters.
            headers: more headers of SUBSCRIBE, except those that arguments give, such as ack.
            confirm, timeout: ask for a receipt (without it, a refusal belongs to no call); seconds to wait for it.
            on_unreadable: for messages that are no valid STOMP: raise, skip, ack or ignore, as docs/client.md says.
            handler: a function or coroutine function. It is called in a task with each message, in order; then follows
                ACK, unless it has settled the message. If it raises, it is called again with the same message.
            on_error: what becomes of a message that is given up: nack, requeue, discard, ack, or a function of message
                and error that returns one. ignore and stop act at the first failure.
            concurrency: the number of tasks for the handler. Only with `key` more than one keep an order:
            key: a function; messages for which it returns equal values go to the same task.
            attempts: how often the handler is called with one message, with pauses of 0.1 s to 30 s between.
            give_up, dead_letter: exceptions that give a message up at once (ten in a row); where the copies go.

        Raises:
            RejectedError, ConnectionLostError, ReceiptTimeoutError: it was not confirmed.
            LocalProtocolError, ValueError, TypeError: the id is taken, an option is invalid, or the broker lacks it.
        """
        link = self._link
        rest = {"selector": selector, "durable": durable, "id": id, "headers": headers, "on_unreadable": on_unreadable}
        rest["dead_letter"] = dead_letter
        handling = Handling(handler, ack, on_error, concurrency, key, attempts, give_up).checked(link.core.link.dialect)
        return self._subscribe(handling, timeout, destination, handling.ack, prefetch, handler, confirm, **rest)

    def _subscribe(self, handling: Handling, timeout: float | None, *parts: Any, **rest: Any) -> AsyncSubscription:
        """Send SUBSCRIBE, and begin to handle messages; `parts` and `rest` are those of the subscription."""
        link = self._link
        link.delivery.check()  # asyncio only
        subscription: AsyncSubscription = link.subscription(*parts, **rest)
        call = link.call(f"SUBSCRIBE to {subscription.destination}", "SUBSCRIBE", timeout)
        receipt = link.start(call, link.core.inbound.subscribe, subscription)
        subscription.begin(receipt, handling)
        if handling.handler is not None:
            self._subscriptions.append(subscription)
        return subscription

    async def receive(
        self,
        destination: str,
        *,
        ack: str = "auto",
        selector: str | None = None,
        durable: str | None = None,
        id: str | None = None,
        headers: HeaderSource = (),
        timeout: float | None = None,
    ) -> AsyncMessage | None:
        """Return a message if there is one right now, else None. Only some brokers have the command, RECEIVE.

        If the call times out or is cancelled, its message may come later. It is lost in mode auto; otherwise the client
        returns it to the broker by NACK, which counts as a delivery. So it is if middleware raises, which this raises.

        Args:
            ack: "auto", or "client-individual": then it has to be acknowledged on this connection.
            selector, durable: as for `subscribe`; takes the messages of a durable one that was unsubscribed from.
            id, headers: of the subscription for this message, if it matters; more headers of RECEIVE.
            timeout: seconds to wait for a connection, and again for the answer.

        Raises:
            LocalProtocolError: the broker does not offer it, the id is taken, or `durable` is an active subscription.
            TypeError, ValueError: an argument is invalid.
            RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `send`.
        """
        link = self._link
        rest = {"selector": selector, "durable": durable, "id": id, "headers": headers}
        subscription = link.subscription(destination, ack, None, **rest)
        call = link.call(f"RECEIVE from {destination}", "RECEIVE", timeout)
        receipt, since = AsyncReceipt(call), started()
        while not link.engine.do(link.core.fetch, subscription, now(), call):
            await link.wait_connected(timeout)
        try:
            message: AsyncMessage | None = await receipt.wait()
            if message is not None and link.layers is not None:
                await link.receive(message, "receive", since)
        except GeneratorExit:
            raise
        except BaseException:  # cancelled, interrupted, or refused by the middleware
            link.engine.do(link.core.abandon, now(), call)
            raise
        return message

    # ---- the connection ----

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until there is a connection and all subscriptions are restored.

        Args:
            timeout: seconds; None for the option `receipt_timeout`.

        Raises:
            ReceiptTimeoutError: there was no connection in time.
            ConnectionLostError: the client has given up.
        """
        await self._link.wait_connected(timeout)

    async def ping(self, timeout: float | None = None) -> float:
        """Return the seconds that the broker takes to answer PING, or an empty transaction if it does not offer PING.

        Raises:
            RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `send`.
            LocalProtocolError: the client is closed, or has `receipts=False`.
        """
        link = self._link
        call = link.call("PING", "PING", timeout)
        receipt, started = AsyncReceipt(call), now()
        while not link.engine.do(link.core.ping, now(), call):
            await link.wait_connected(timeout)
            started = now()
        await receipt.wait()
        return now() - started

    async def drain(self, timeout: float = 30.0) -> None:
        """Stop receiving, wait until taken messages are settled and everything is sent, and close.

        Messages with explicit acks that were not taken return to the broker.

        Raises:
            ReceiptTimeoutError: it took longer than `timeout` seconds. The client is closed nevertheless.
        """
        engine, core = self._link.engine, self._link.core
        engine.check()
        self._link.delivery.check()  # asyncio only
        until = end_of(timeout)
        quiet = False
        try:
            if self.state != "closed":
                engine.do(core.drain, now())
            for subscription in self._subscriptions:
                await subscription.workers.join(max(until - time.monotonic(), 0))
            while not (quiet := engine.look(core.is_quiet)) and time.monotonic() < until and self.state != "closed":
                await sleep(LOOK)
        finally:
            await self.close()
        if not quiet:
            raise ReceiptTimeoutError(f"the client was not drained in {timeout} s")

    async def close(self, timeout: float | None = None) -> None:
        """Send what waits in the outbox, disconnect, and close. To close again does nothing.

        In a forked child process it only closes descriptors: the parent's connection goes on. So it does while the
        interpreter shuts down, in a `__del__` for example: what waits in the outbox is not sent.

        Args:
            timeout: seconds; None for the option `close_timeout`.
        """
        link = self._link
        if link.engine.is_gone:
            link.engine.let_go()
            return
        seconds = self.options.close_timeout if timeout is None else timeout
        if leave(link, seconds):  # asyncio only
            return  # asyncio only
        goodbye = link.start(link.call("close", "", 2 * seconds), link.core.close, timeout=seconds)
        with contextlib.suppress(StompError):
            await goodbye.wait()
        await link.delivery.stop(link.engine, seconds)
        for subscription in self._subscriptions:
            await subscription.workers.stop(seconds)
