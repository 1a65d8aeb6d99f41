"""The client for threads. All calls may be made from any thread, also from handlers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stompcodec.client.bulk import Bulk, Outgoings
from stompcodec.client.engine import News
from stompcodec.client.handlers import Policy, check_possible, checked_policy
from stompcodec.client.hooks import Watcher
from stompcodec.client.message import BaseMessage
from stompcodec.client.options import Options
from stompcodec.client.outbox import OutboxFullError
from stompcodec.client.shell import LOOK, BaseClient, HeaderSource, now, outgoing, timeout_of_connect
from stompcodec.client.subscription import Subscription as BaseSubscription
from stompcodec.client.sync.calls import Transaction
from stompcodec.client.sync.link import Receipt
from stompcodec.client.sync.messages import Message, Subscription
from stompcodec.errors import ReceiptTimeoutError, StompError
from stompcodec.uri import Address

__all__ = ["Client", "connect"]


def connect(url: str | list[Address], **options: Any) -> Client:
    """Connect, and wait until there is a session.

    Args:
        url: stomp://login:passcode@host:61613/vhost, stomp+ssl:, ws:, wss:, failover:(a,b), or a list of addresses.
        options: the fields of `Options`.

    Raises:
        ConnectionLostError: no broker can be reached.
        RejectedError: the broker refused the login.
        ConfigError, ValueError, TypeError: the URL or an option makes no sense.
    """
    return Client(url, Options(**options)).open()


class Client(BaseClient):
    """A client for threads; `connect` makes it. Close it, or use it in a `with`."""

    subscription_class = Subscription
    message_class = Message

    def __init__(self, url: str | list[Address], options: Options) -> None:
        super().__init__(url, options)
        self._watcher = Watcher(options) if options.on_frame or options.on_state else None
        self._subscriptions: list[Subscription] = []

    def open(self) -> Client:
        """Connect; once."""
        receipt = Receipt(
            self.core.link.calls.make("connect", timeout_of_connect(self.options, len(self.engine.addresses)))
        )
        self.engine.do(self.core.when_connected, receipt._call, now())
        self.engine.start()
        try:
            receipt.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- sending ----

    def send(
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
    ) -> Receipt | None:
        """Send a message. Without a connection it waits in the outbox.

        Args:
            body: octets, or text, which goes as UTF-8.
            headers: further headers.
            receipt: return when the broker has it. Without, what was sent just before a loss may be lost.
            wait: with False, return a `Receipt` at once instead, to wait for it later.
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
        result = None if call is None else Receipt(call)
        if not self.engine.do(self.core.send, frame, now(), call, text=message.text):
            self.push(
                lambda: self.engine.do(self.core.send, frame, now(), call, text=message.text), len(frame.body), timeout
            )
        if result is not None and wait:
            result.wait()
            return None
        return result

    def send_many(
        self,
        messages: Outgoings,
        *,
        transaction: Transaction | None = None,
        receipt_every: int = 1000,
        timeout: float | None = None,
        resend: bool | None = None,
    ) -> int:
        """Send many messages, in large pieces, without waiting for each: the fastest way, and no outcome is lost.

        Args:
            messages: an iterable of `(destination, body)`, `(destination, body, headers)` or SEND
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
        bulk = Bulk(self, Receipt, transaction, receipt_every, timeout, resend)
        for steps in (bulk.add(messages), bulk.finish()):
            for receipt in steps:
                if receipt is not None:
                    with contextlib.suppress(StompError):  # `bulk` looks at it
                        receipt.wait()
        return bulk.given

    def request(
        self,
        destination: str,
        body: bytes | str = b"",
        timeout: float | None = None,
        headers: HeaderSource | None = None,
        *,
        content_encoding: str | None = None,
    ) -> Message:
        """Send a message and wait for the answer, which comes to a temporary queue of this client.

        Raises:
            ReceiptTimeoutError: no answer came in time.
            ConnectionLostError: the connection was lost, and the temporary queue with it.
            RejectedError and others: as for `send`.
        """
        call = self._call(f"request to {destination}", "SEND", timeout)
        receipt = Receipt(call)
        message = outgoing(destination, body, headers, content_encoding)

        def attempt() -> bool:
            return self.engine.do(self.core.request, message.pairs, message.body, now(), call, text=message.text)

        self.push(attempt, len(message.body), timeout)
        reply: Message = receipt.wait()
        return reply

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """A transaction: `with client.transaction() as tx:`."""
        return Transaction(self, f"t{next(self._ids)}", timeout)

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
        handler: Callable[[Message], object] | None = None,
        on_error: Policy = "nack",
        concurrency: int = 1,
        key: Callable[[Message], object] | None = None,
    ) -> Subscription:
        """Subscribe, and wait until the broker has confirmed.

        Args:
            ack: "auto", "client" (an ack covers all before it) or "client-individual".
            prefetch: how many messages may be on their way and not acknowledged; 100 unless `ack` is auto.
            selector: which messages, in the broker's language.
            durable: the name of a durable subscription.
            id: of the subscription; one is made up.
            headers: further headers of SUBSCRIBE; they win over what is made of the arguments before.
            confirm: ask for a receipt. Without it, a refusal is an ERROR that belongs to nobody.
            timeout: seconds to wait for the receipt.
            handler: called with each message, in a thread of its own, in order. It settles by itself: ACK when it
                returns, `on_error` when it raises, and nothing where it has settled.
            on_error: nack, requeue, discard, ack, ignore (leave it alone: it counts for `prefetch` until you settle
                it), stop (unsubscribe), or a function of message and error that returns one of them.
            concurrency: call the handler in so many threads; the order is lost, except that
            key: messages for which this function returns the same go to the same thread, in order.

        Raises:
            RejectedError: the broker refused.
            ConnectionLostError, ReceiptTimeoutError: the client gave up, or nothing came in time: it is given up.
            LocalProtocolError: the id is taken, or this broker cannot do what is asked.
            ValueError: an argument makes no sense.
        """
        checked_policy(on_error)
        if handler is not None and ack != "auto":
            check_possible(on_error, self.core.link.dialect)
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: it must be 1 or more")
        rest = {"selector": selector, "durable": durable, "id": id, "headers": headers, "confirm": confirm}
        subscription: Subscription = self._new_subscription(destination, ack, prefetch, **rest)
        receipt = Receipt(self._call(f"SUBSCRIBE to {destination}", "SUBSCRIBE", timeout))
        self.engine.do(self.core.inbound.subscribe, subscription, now(), receipt._call)
        receipt.wait()
        if handler is not None:
            self._subscriptions.append(subscription)
            subscription.handle(handler, on_error, concurrency, key)
        return subscription

    def on_message(self, destination: str, **options: Any) -> Callable[[Callable[[Message], Any]], Any]:
        """A decorator: subscribe with the function as handler. Options as for `subscribe`."""

        def decorate(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
            self.subscribe(destination, handler=handler, **options)
            return handler

        return decorate

    def receive(
        self,
        destination: str,
        *,
        ack: str = "auto",
        selector: str | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        timeout: float | None = None,
    ) -> Message | None:
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
        receipt = Receipt(call)
        while not self.engine.do(self.core.fetch, subscription, now(), call):
            self.wait_connected(timeout)
        message: Message | None = receipt.wait()
        return message

    def unsubscribe(self, subscription: BaseSubscription, *, delete: bool, wait: bool, timeout: float | None) -> None:
        """As `Subscription.unsubscribe`."""
        receipt = Receipt(self._call(f"UNSUBSCRIBE of {subscription.id}", "UNSUBSCRIBE", timeout))
        call = receipt._call if wait else None
        self.engine.do(self.core.inbound.unsubscribe, subscription, now(), call, delete=delete)
        if wait:
            receipt.wait()

    def settle(
        self,
        message: BaseMessage,
        command: str,
        *,
        headers: Mapping[str, str] | None = None,
        requeue: bool | None = None,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None:
        """As `Message.ack` and `Message.nack`."""
        if not receipt:
            self.engine.do(self.core.settle, message, command, now(), None, requeue=requeue, more=headers)
            return
        answer = Receipt(self._call(f"{command} of {message.id}", command, timeout))
        self.engine.do(self.core.settle, message, command, now(), answer._call, requeue=requeue, more=headers)
        answer.wait()

    # ---- the connection ----

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until there is a connection and the subscriptions are back.

        Raises:
            ReceiptTimeoutError: there was none in time.
        """
        receipt = Receipt(self._call("waiting for a connection", "", timeout))
        self.engine.do(self.core.when_connected, receipt._call, now())
        receipt.wait()

    def ping(self, timeout: float | None = None) -> float:
        """How long the broker takes to answer, in seconds: PING where it offers that, else an empty transaction.

        Raises:
            RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `send`.
        """
        call = self._call("PING", "PING", timeout)
        receipt = Receipt(call)
        started = time.monotonic()
        if self.engine.do(self.core.ping, now(), call):
            receipt.wait()
            return time.monotonic() - started
        transaction = self.transaction(timeout=timeout).begin()
        started = time.monotonic()
        transaction.abort(timeout=timeout)
        return time.monotonic() - started

    def drain(self, timeout: float = 30.0) -> None:
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
                    subscription.join(max(until - time.monotonic(), 0))
            while not (quiet := self._is_quiet()) and time.monotonic() < until and self.state != "closed":
                time.sleep(LOOK)
        finally:
            self.close()
        if not quiet:
            raise ReceiptTimeoutError(f"not all was finished in {timeout} s")

    def _is_quiet(self) -> bool:
        with self.engine.lock:
            return self.core.is_quiet()

    def close(self, timeout: float | None = None) -> None:
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
        receipt = Receipt(call)
        self.engine.do(self.core.close, now(), call, seconds)
        with contextlib.suppress(StompError):
            receipt.wait()
        self.engine.join(seconds)
        for subscription in self._subscriptions:
            with contextlib.suppress(Exception):
                subscription.join(seconds)
        if self._watcher is not None:
            self._watcher.stop(seconds)

    def push(self, attempt: Callable[[], bool], octets: int, timeout: float | None) -> None:
        """Try until the outbox has room."""
        if attempt():
            return
        seconds = self.options.receipt_timeout if timeout is None else timeout
        until = now() + seconds
        while True:
            receipt = Receipt(self.core.link.calls.make("waiting for room", max(until - now(), 0)))
            self.engine.do(self.core.when_room, receipt._call, now(), octets)
            try:
                receipt.wait()
            except ReceiptTimeoutError:
                raise OutboxFullError(f"the outbox had no room in {seconds} s: nothing was sent") from None
            if attempt():
                return

    # ---- the engine's side ----

    def deliver(self, news: News) -> None:
        for call in news.calls:
            if call.wake is not None:
                call.wake()
        if news.subscriptions:
            with self.engine.lock:
                for subscription in news.subscriptions:
                    if isinstance(subscription, Subscription):
                        subscription.wake()
        if self._watcher is not None:
            self._watcher.put(news)
