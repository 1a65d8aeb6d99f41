"""Messages, subscriptions and transactions for asyncio."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import Any

from stompcodec.arguments import checks
from stompcodec.client.aio.link import AsyncLink
from stompcodec.client.aio.waiting import (
    AsyncBody,
    AsyncBodyReader,
    AsyncPauses,
    AsyncReceipt,
    AsyncWaiters,
    AsyncWorkers,
    Queue,
    call_handler,
    sleep,
)
from stompcodec.client.handlers import LONGEST, Hand, Handling, Retries, holding, leave, log, note, own_hand, take_up
from stompcodec.client.headers import HeaderSource
from stompcodec.client.messages import BaseMessage, BaseTransaction
from stompcodec.client.messages import Subscription as Base
from stompcodec.client.middleware import ProcessEvent, async_around, started
from stompcodec.client.outbox import seconds_of
from stompcodec.client.shell import end_of, now, outgoing
from stompcodec.errors import LocalProtocolError, StompError


@checks("ack")
class AsyncMessage(BaseMessage):
    """A received message.

    >>> import asyncio
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url) as client:
    ...         await client.send("/queue/a", "hello", {"n": "1"})
    ...         message = await client.subscribe("/queue/a", ack="client").get(5)
    ...         await message.ack()
    ...         return message.text(), message.body, message.headers["n"], message.redelivered
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    ('hello', b'hello', '1', False)
    """

    __slots__ = ()
    subscription: AsyncSubscription

    async def ack(
        self, headers: HeaderSource | None = None, *, receipt: bool = False, timeout: float | None = None
    ) -> None:
        """Acknowledge it; in mode `client` all earlier ones, too. In mode `auto` it does nothing.

        Args:
            headers: more headers of ACK, for brokers that have some. Those that name the message are the client's.
            receipt: return when the broker has confirmed.
            timeout: seconds to wait for that.

        Raises:
            StaleAckError: it is of an older connection, or its subscription has ended: the broker delivers it again.
            LocalProtocolError: it was refused before, or is part of a transaction that has not ended.
            ReceiptTimeoutError: it was part of a transaction whose outcome is unknown.
            RejectedError, ConnectionLostError, ReceiptTimeoutError: with `receipt`.
        """
        link = self.subscription.link
        if receipt is not False or headers or timeout is not None or not link.engine.acknowledge(self):
            await link.settle(self, "ACK", headers, receipt=receipt, timeout=timeout)

    async def nack(
        self,
        *,
        requeue: bool | None = None,
        discard: bool = False,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Refuse it, with an effect that depends on the broker: see docs/broker.md.

        Args:
            requeue: True to have it delivered again, False to have it dropped or dead-lettered, None for the broker's
                default.
            discard: as requeue=False, also where the broker drops it.
            receipt, timeout: as for `ack`.

        Raises:
            LocalProtocolError: the broker would drop it, it or STOMP 1.0 does not support that, or the mode is `auto`.
            StaleAckError, RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `ack`.
        """
        link = self.subscription.link
        wanted = link.core.link.dialect.refusing(requeue, discard)
        await link.settle(self, "NACK", requeue=wanted, receipt=receipt, timeout=timeout)

    def processing(self, *, requeue: bool | None = None) -> contextlib.AbstractAsyncContextManager[AsyncMessage]:
        """Return a context that ends with ACK, unless the message was settled inside.

        If the block raises, our broker gets NACK, and delivers the message again up to its `max_attempts`. With
        `dead_letter=`, and at other brokers, the message is given up, as that of a handler after its last call
        (docs/client.md). If the block is interrupted or cancelled, the broker gets the message back.

        Args:
            requeue: end with `nack(requeue=...)` instead.

        Raises:
            LocalProtocolError: the broker does not support `requeue`.
        """
        dialect = self.subscription.link.core.link.dialect
        if requeue is not None:
            dialect.nack_headers(dialect.refusing(requeue, False))
        return self._processing(requeue)

    @contextlib.asynccontextmanager
    async def _processing(self, requeue: bool | None) -> AsyncIterator[AsyncMessage]:
        link = self.subscription.link
        link.core.link.expect_handlers()
        try:
            with holding(self):
                if link.layers is None:
                    yield self
                else:
                    event = ProcessEvent(link.core.link, self, "block")
                    async with async_around(link.layers["process"], "process", event):
                        yield self
        except BaseException as error:
            if not self.settled:
                await self._end_badly(error, requeue)
            raise
        if self.subscription.explicit and not self.settled:
            await self.ack()

    async def _end_badly(self, error: BaseException, requeue: bool | None) -> None:
        """Settle it after its block has raised. What fails here is only logged: the error of the block says more."""
        link, dialect = self.subscription.link, self.subscription.link.core.link.dialect
        try:
            named = self.subscription.dead_letter or link.options.dead_letter
            again = (dialect.nacked == "counted" and named is None) or not isinstance(error, Exception)
            if requeue is None and not again:
                await link.give_up(self, error)
            elif requeue is not None or dialect.requeues:
                await link.settle(self, "NACK", requeue=requeue)
        except Exception as failure:
            note(failure)
        if self.subscription.explicit and not self.settled:
            if self.subscription.cumulative and not link.core.is_stale(self):
                self.subscription.stuck = self.subscription.stuck or self.seq
            leave(self)

    def open(self) -> AsyncBodyReader:
        """Return a reader of the body, in memory or in a file, for an `async with` block.

        Raises:
            OSError: the body could not be kept in a file, for example on a full disk.
        """
        # threads only: return self.reader()
        return AsyncBodyReader(self.reader())  # asyncio only

    async def reply(
        self,
        body: bytes | str,
        headers: HeaderSource | None = None,
        *,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Send a reply to its reply-to, with its correlation-id. Arguments as for `AsyncClient.send`.

        Raises:
            LocalProtocolError: it has no reply-to, or one that no message can be sent to.
            ValueError: a header belongs to the client, or is another correlation-id.
        """
        link = self.subscription.link
        make, core = partial(link.sending, receipt=receipt, timeout=timeout, is_reply=True), link.core.link
        message = outgoing(*self.answer(body, headers, core.dialect), usual=link.options.persistent)
        core.expect_handlers()
        with holding(self):
            await link.send(make, message, timeout, "reply", receipt=receipt)


@checks("__init__", "begin", "get")
class AsyncSubscription(Base):
    """A subscription, which is restored on new connections. Iterate over it, or call `get` or `take`.

    >>> import asyncio
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url) as client, client.subscribe("/queue/a") as subscription:
    ...         await client.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
    ...         async for message in subscription:
    ...             return message.body, (await subscription.get(timeout=5)).body
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    (b'1', b'2')
    """

    batch: deque[AsyncMessage]

    def __init__(self, link: AsyncLink, destination: str, **options: Any) -> None:
        super().__init__(destination, **options)
        self.link = link
        self.receipt: AsyncReceipt  # for its confirmation; set by the client
        self.workers = AsyncWorkers()
        self._waiters = AsyncWaiters(self)
        self._work: _Work | None = None  # with a handler
        self.wake = self._waiters.wake

    def __await__(self) -> Generator[Any, None, AsyncSubscription]:
        yield from self.receipt.__await__()
        return self

    async def __aenter__(self) -> AsyncSubscription:
        await self.receipt.wait()  # asyncio only
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.link.engine.is_gone:
            await self.unsubscribe(wait=False)

    def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        return self

    async def __anext__(self) -> AsyncMessage:
        while True:
            try:
                return self.batch.popleft()
            except IndexError:
                if not await self._refill(None):
                    raise StopAsyncIteration from None

    async def get(self, timeout: float | None = None) -> AsyncMessage | None:
        """Return the next message, or None after the timeout, and when the subscription ends meanwhile.

        Args:
            timeout: seconds; None for no limit.

        Raises:
            LocalProtocolError: it had ended before, and there is a timeout: without one the end is None, too.
            RejectedError, ConnectionLostError: the subscription was refused, the client has given up, or the server
                sent an ERROR that belongs to no call.
        """
        until = None if timeout is None else end_of(timeout)
        while True:
            try:
                return self.batch.popleft()
            except IndexError:
                over = until is not None and self.deaf and self.error is self.news is None
                if over and not self.inbox and not self.batch:  # in the order in which another thread moves them
                    raise LocalProtocolError("the subscription was closed, so no message comes") from None
                if not await self._refill(until):
                    return None

    async def take(self, most: int, timeout: float | None = None) -> list[AsyncMessage]:
        """Wait for messages, and return up to `most` of them; an empty list where `get` returns None."""
        first = await self.get(timeout)
        if first is None:
            return []
        taken, is_layered = [first], self.link.layers is not None  # they pass the middleware one by one
        with contextlib.suppress(IndexError):
            while len(taken) < most:
                if is_layered and not self.batch and self.inbox and not await self._refill(now()):
                    break
                taken.append(self.batch.popleft())
        return taken

    async def _refill(self, until: float | None) -> bool:
        """Wait for messages; return False at the end of the subscription, or of the time."""
        engine = self.link.engine
        engine.check()
        self.link.delivery.check()  # asyncio only
        await sleep(0)  # asyncio only: lets other tasks run once per batch
        if self.may_stall and not self.inbox:
            polls = self._work is not None or (until is not None and now() >= until)
            engine.do(self.link.core.waits, self, now(), polls=polls)
        if self.link.layers is not None:
            return await self._refill_through(until)
        while True:
            with engine.lock:
                if self.inbox:
                    engine.take(self)
                if self.batch:
                    return True
                if self._is_over(until):
                    return False
                waiter = self._waiters.enter()
            await self._waiters.wait(waiter, until)

    def _is_over(self, until: float | None) -> bool:
        """Return whether there is nothing to wait for; raise the server's ERROR, or the error that ended it."""
        news, self.news = self.news, None
        if news is not None:
            raise news
        if self.deaf and self.error is not None:
            raise self.error
        return self.deaf or (until is not None and now() >= until)

    async def _refill_through(self, until: float | None) -> bool:
        """Do what `_refill` does with one message, which passes the middleware."""
        engine, since = self.link.engine, started()
        while True:
            with engine.lock:
                if self.batch:
                    return True
                message: AsyncMessage | None = engine.take_one(self)
                if message is None:
                    if self._is_over(until):
                        return False
                    waiter = self._waiters.enter()
            if message is None:
                await self._waiters.wait(waiter, until)
            elif await self._passes(message, since):
                return True
            elif until is not None and now() >= until:  # else a message that is refused again and again holds it up
                return False

    async def _passes(self, message: AsyncMessage, since: int) -> bool:
        """Pass a message through the middleware, and put it into the batch, unless it is refused."""
        work = self._work
        receive = partial(self.link.receive, message, "taken" if work is None else "handler", since)
        try:
            await receive()
        except Exception as error:
            if work is None:
                await self.link.refuse(message, error)
            if work is None or not await work.retry(message, error, receive):
                return False
        except BaseException:
            with self.link.engine.lock:
                self.link.core.inbound.put_back(self, message)
            self._waiters.wake()
            raise
        self.batch.append(message)
        return True

    async def unsubscribe(self, *, delete: bool = False, wait: bool = True, timeout: float | None = None) -> None:
        """End it, and its iterators. Unacknowledged messages return to the broker.

        Args:
            delete: delete a durable subscription.
            wait: for the receipt, at most `timeout` seconds.

        Raises:
            ConnectionLostError, LocalProtocolError: with `delete`, the broker could not be told.
            RejectedError, ReceiptTimeoutError: with `wait`.
        """
        link = self.link
        if not wait:
            link.engine.do(link.core.inbound.unsubscribe, self, now(), delete=delete)
            return
        call = link.call(f"UNSUBSCRIBE of {self.id}", "UNSUBSCRIBE", timeout)
        await link.start(call, link.core.inbound.unsubscribe, self, delete=delete).wait()

    # ---- handlers ----

    def begin(self, receipt: AsyncReceipt, handling: Handling) -> None:
        """Begin to handle messages once it is confirmed. If that fails, or is interrupted, unsubscribe."""
        self.receipt = receipt
        try:
            # threads only: receipt.wait()
            if handling.handler is not None:
                self._handle(handling)
        except BaseException:
            self.link.engine.do(self.link.core.inbound.unsubscribe, self, now())
            raise

    def _handle(self, handling: Handling) -> None:
        """Start the tasks that call a handler."""
        concurrency, key, self._work = handling.concurrency, handling.key, _Work(self, handling)
        work, self.wake = self._work, self._wake
        if key is None or concurrency == 1:
            runs = [work.run] * concurrency
        else:
            lanes = [Queue[AsyncMessage | None](100) for _ in range(concurrency)]
            runs = [partial(work.deal, lanes, key), *(partial(work.run_lane, lane) for lane in lanes)]
        self.workers.start(f"stompcodec-{self.id}", runs)

    def _wake(self) -> None:
        self._waiters.wake()
        if self.deaf and self._work is not None:
            self._work.pauses.wake()

    async def join(self, timeout: float | None = None) -> None:
        """Wait until the handler's tasks have ended, except the calling one; at most `timeout` seconds.

        With on_error="stop" it raises the error of the handler.
        """
        self.link.engine.check()
        self.link.delivery.check()  # asyncio only
        await self.workers.join(None if timeout is None else seconds_of("timeout", timeout))
        if self.error is not None:
            raise self.error


class _Work:
    """The work of a handler's tasks."""

    def __init__(self, subscription: AsyncSubscription, handling: Handling) -> None:
        self.subscription = subscription
        self.handling = handling
        assert handling.handler is not None
        self.handler = subscription.link.processed(handling.handler)
        self.retries = Retries(handling)
        self.pauses = AsyncPauses()
        self.hands: set[Hand] = set()  # of the calls under way
        self.stopped = False

    async def _messages(self) -> AsyncIterator[AsyncMessage]:
        """Yield messages until the subscription ends; the core has logged ERRORs of the server."""
        while not self.stopped:
            try:
                yield await self.subscription.__anext__()
            except StopAsyncIteration:
                return
            except StompError as error:
                if self.subscription.deaf and not self.stopped:
                    log.error("%s", error)
                    return
            except Exception:
                if not self.stopped:
                    raise

    async def _take(self, message: AsyncMessage) -> None:
        """Handle a message. What is sent meanwhile names it."""
        hand = take_up(message)
        self.hands.add(hand)
        try:
            await self.call(message)
        finally:
            self.hands.discard(hand)
            hand.message = None

    async def run(self) -> None:
        """Handle messages, in one of several tasks that share the subscription."""
        async for message in self._messages():
            await self._take(message)

    async def deal(self, lanes: list[Queue[AsyncMessage | None]], key: Callable[[AsyncMessage], object]) -> None:
        """Distribute messages by key: those with equal keys go to the same task, in order."""
        async for message in self._messages():
            try:
                lane = lanes[hash(key(message)) % len(lanes)]
            except Exception as error:
                await self._give_up(message, error, 1)
                continue
            await lane.put(message)
        for lane in lanes:
            await lane.put(None)

    async def run_lane(self, lane: Queue[AsyncMessage | None]) -> None:
        """Handle the messages that `deal` puts into a queue."""
        while (message := await lane.get()) is not None:
            if not (self.stopped or self.subscription.link.core.is_stale(message)):
                await self._take(message)

    async def call(self, message: AsyncMessage) -> None:
        """Call the handler, and settle the message."""
        try:
            await call_handler(self.handler, message)
        except Exception as error:
            if not await self.retry(message, error, partial(call_handler, self.handler, message)):
                return
        await self.subscription.link.handled(message)
        if self.retries.watched:
            await self._succeed()

    # ---- failures ----

    async def retry(self, message: AsyncMessage, error: Exception, call: Callable[[], Awaitable[None]]) -> bool:
        """Call again what has failed with a message, after pauses; return whether it succeeded, else all is done."""
        retries, pause = self.retries, None
        calls = before = 0 if self.handling.attempts == 1 else retries.calls_of(message)
        while True:
            calls += 1
            if not self.handling.acts_at_once and self._is_theirs(message):
                retries.keep(message, calls)
                return False
            if self._ends(message, error, calls):
                await self._give_up(message, error, calls)
                return False
            first, pause = pause is None, retries.pause(pause, error)
            if first:
                retries.say(message, error, pause)
            if not await self._pause(message, pause):
                retries.keep(message, calls)
                return False
            message.count_calls(calls - before)
            try:
                await call()
            except Exception as failure:
                error = failure
            else:
                log.info("%s: message %s was handled at call %d", self.subscription.destination, message.id, calls + 1)
                return True

    def _ends(self, message: AsyncMessage, error: Exception, calls: int) -> bool:
        """Return whether a failed call was the last one; abort what the handler left open, before it is repeated."""
        handling, link = self.handling, self.subscription.link
        if handling.acts_at_once:
            return True
        if link.core.link.transactions:
            try:
                link.engine.do(link.core.abort_left, message, now())
            except StompError as failure:
                note(failure)
        return link.engine.look(partial(link.core.is_settled, message)) or self.retries.is_last(calls, error)

    def _is_theirs(self, message: AsyncMessage) -> bool:
        """Return whether the broker has a message back, so that it is not handled here."""
        core = self.subscription.link.core
        return not core.is_sent_only(message) and core.is_stale(message)

    async def _pause(self, message: AsyncMessage, seconds: float, narrows: bool = True) -> bool:
        """Pause before the next call; return whether it follows. The window is not held in the longest pauses."""
        subscription, link, hand = self.subscription, self.subscription.link, own_hand()
        if narrows and seconds >= LONGEST:
            await self._begin_again(True)
        hand.pauses = True
        await self.pauses.rest(seconds, lambda: subscription.deaf or self.stopped)
        hand.pauses = False
        if subscription.deaf or self.stopped:
            with contextlib.suppress(StompError):
                link.engine.do(link.core.let_go, message)
            return False
        return not self._is_theirs(message) and not link.engine.look(partial(link.core.is_settled, message))

    async def _give_up(self, message: AsyncMessage, error: Exception, calls: int) -> None:
        """Settle a message that failed; stop if that is the policy for the error."""
        rest = partial(self._hold, message)
        if not await self.subscription.link.failed(message, self.handling, error, calls, rest):
            self.stopped = True
        elif message.settled:
            self.retries.held = None
        elif self._is_theirs(message):
            self.retries.keep(message, calls)

    async def _hold(self, message: AsyncMessage) -> bool:
        """Pause after a copy of a message has failed; return whether it is to be sent again."""
        self.retries.held = self.retries.pause(self.retries.held)
        return await self._pause(message, self.retries.held, narrows=False)

    async def _succeed(self) -> None:
        """Begin anew after failures."""
        self.retries.succeed()
        if self.subscription.owed:
            self.subscription.owed -= 1
            self.retries.watched = True
        else:
            await self._begin_again(False)

    async def _begin_again(self, narrow: bool) -> None:
        """Begin the subscription again with a window of one message, or its own, unless another call is under way."""
        subscription, link = self.subscription, self.subscription.link
        if subscription.is_narrow is narrow:
            return
        own = own_hand()
        if any(not each.pauses for each in list(self.hands) if each is not own):
            return
        call = link.call(f"UNSUBSCRIBE of {subscription.id}", "UNSUBSCRIBE", None)
        with contextlib.suppress(StompError):  # then it begins again on the next connection
            await link.start(call, link.core.inbound.begin_again, subscription, narrow=narrow).wait()


@checks("__init__")
class AsyncTransaction(BaseTransaction):
    """A transaction: its `async with` block ends with COMMIT, or with ABORT if it raises.

    `state` is new, open or committing; at last committed, aborted, lost (no effect) or unknown: see docs/client.md.

    >>> import asyncio
    >>> from stompcodec.client import connect_async
    >>> from stompcodec.testing import StompBroker
    >>> async def main(url):
    ...     async with connect_async(url) as client:
    ...         async with client.transaction() as transaction:
    ...             await transaction.send("/queue/a", b"1")
    ...         return transaction.state
    >>> with StompBroker() as broker:
    ...     asyncio.run(main(broker.url))
    'committed'
    """

    def __init__(self, link: AsyncLink, timeout: float | None) -> None:
        super().__init__(link.transaction_id())
        self._link = link
        self._timeout = None if timeout is None else seconds_of("timeout", timeout)

    async def __aenter__(self) -> AsyncTransaction:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.state != "aborted":
                await self.commit()
        elif self.state == "open":
            with contextlib.suppress(StompError):  # the error of the block says more
                await self.abort(wait=False)

    async def begin(self) -> AsyncTransaction:
        """Begin it, once there is a connection; ReceiptTimeoutError: there was none in time."""
        link = self._link
        link.delivery.check()  # asyncio only
        while not link.engine.do(link.core.begin, self, now()):
            await link.wait_connected(self._timeout)
        return self

    async def send(
        self,
        destination: str,
        body: AsyncBody = b"",
        headers: HeaderSource | None = None,
        *,
        persistent: bool | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        timeout: float | None = None,
        length: int | None = None,
    ) -> None:
        """Send a message as part of it; only `commit` has a receipt. Arguments as for `AsyncClient.send`.

        Raises:
            ConnectionLostError: the connection was lost, and with it the transaction, which took no effect.
            BodySourceError: as for `AsyncClient.send`; the transaction is lost with its connection.
        """
        more = (headers, (content_type, content_encoding), False, timeout, None, persistent, length)
        await self._link.give(destination, body, *more, transaction=self)

    async def ack(self, message: AsyncMessage) -> None:
        """Acknowledge a message as part of it. Errors are those of `AsyncMessage.ack` and `send`."""
        await self._link.settle(message, "ACK", transaction=self)

    async def nack(self, message: AsyncMessage, *, requeue: bool | None = None, discard: bool = False) -> None:
        """Refuse a message as part of it, as `AsyncMessage.nack`."""
        wanted = self._link.core.link.dialect.refusing(requeue, discard)
        await self._link.settle(message, "NACK", requeue=wanted, transaction=self)

    async def commit(self, timeout: float | None = None) -> None:
        """Commit it, and return when the broker has confirmed.

        Args:
            timeout: seconds to wait; None for that of the transaction.

        Raises:
            RejectedError: the broker refused, and it took no effect.
            ConnectionLostError, ReceiptTimeoutError: with `sent` False it took no effect, else that is unknown.
        """
        await self._finish("COMMIT", timeout).wait()

    async def abort(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Discard it: drop its messages, and reopen those that it acknowledged.

        Args:
            wait: for the receipt, at most `timeout` seconds.
        """
        receipt = self._finish("ABORT", timeout)
        if wait:
            await receipt.wait()

    def _finish(self, command: str, timeout: float | None) -> AsyncReceipt:
        link = self._link
        call = link.call(f"{command} of {self.id}", command, self._timeout if timeout is None else timeout)
        receipt: AsyncReceipt = link.start(call, link.core.finish_transaction, self, command)
        return receipt
