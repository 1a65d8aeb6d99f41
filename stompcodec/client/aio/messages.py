"""Messages and subscriptions for asyncio: iterating, settling, and handlers in tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from types import TracebackType
from typing import Any

from stompcodec.client.aio.link import AsyncLink, AsyncReceipt
from stompcodec.client.handlers import Policy, answer_of, checked_policy, decide, ended_by, leave, log, note
from stompcodec.client.message import BaseMessage
from stompcodec.client.subscription import Subscription as Base
from stompcodec.errors import StompError

__all__ = ["AsyncMessage", "AsyncSubscription"]


class AsyncMessage(BaseMessage):
    """A message that was delivered to us. As `stompcodec.client.Message`, awaited."""

    __slots__ = ()
    subscription: AsyncSubscription

    async def ack(
        self, headers: Mapping[str, str] | None = None, *, receipt: bool = False, timeout: float | None = None
    ) -> None:
        """Acknowledge it; in mode `client` all that came before it, too. Nothing is to be done in mode `auto`.

        Args:
            headers: further headers of ACK, where the broker knows some.
            receipt: return once the broker has it.
            timeout: seconds to wait for that.

        Raises:
            StaleAckError: it came by an older connection, or its subscription is over. It comes again.
            RejectedError, ConnectionLostError, ReceiptTimeoutError: with `receipt`.
        """
        client = self.subscription.client
        if receipt or headers or not client.engine.acknowledge(self):
            await client.settle(self, "ACK", headers=headers, receipt=receipt, timeout=timeout)

    async def nack(self, *, requeue: bool | None = None, receipt: bool = False, timeout: float | None = None) -> None:
        """Refuse it. What follows from that differs: see the table of brokers in the documentation.

        Args:
            requeue: True to have it delivered again, False to have it dropped or dead-lettered, None for what the
                broker does by itself.

        Raises:
            LocalProtocolError: the broker cannot do that, STOMP 1.0 has no NACK, or the mode is `auto`.
            StaleAckError, RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `ack`.
        """
        await self.subscription.client.settle(self, "NACK", requeue=requeue, receipt=receipt, timeout=timeout)

    def processing(self, *, requeue: bool | None = None) -> AsyncProcessing:
        """Return a context: ACK at its end, NACK if it raises; nothing if it was settled inside.

        Raises:
            LocalProtocolError: the NACK of this broker cannot do what `requeue` asks for.
        """
        self.subscription.client.core.link.dialect.nack_headers(requeue)
        return AsyncProcessing(self, requeue)

    async def reply(self, body: bytes | str, headers: Mapping[str, str] | None = None, **options: Any) -> None:
        """Send an answer to where the message asks for it: its reply-to, with its correlation-id.

        Raises:
            LocalProtocolError: it has no reply-to.
        """
        await self.subscription.client.send(*self.answer(body, headers), **options)


class AsyncProcessing:
    """What `AsyncMessage.processing` gives."""

    def __init__(self, message: AsyncMessage, requeue: bool | None) -> None:
        self._message = message
        self._requeue = requeue

    async def __aenter__(self) -> AsyncMessage:
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        message = self._message
        if message.settled or not message.subscription.explicit:
            return
        if error is None:
            await message.ack()
            return
        try:
            await message.nack(requeue=self._requeue)
        except StompError as failure:  # the user's error says more
            note(failure)
            leave(message)


class AsyncSubscription(Base):
    """A subscription: `async for` over it, or take messages by `get`. It survives reconnects; `async with` ends it.

    It is asked for at once. Awaiting it waits until the broker has confirmed, and so does the first message.
    """

    client: AsyncLink

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._futures: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.receipt: AsyncReceipt  # for its confirmation; set by the client
        self._checked = False

    def __await__(self) -> Generator[Any, None, AsyncSubscription]:
        yield from self.confirmed_by_broker().__await__()
        return self

    async def confirmed_by_broker(self) -> None:
        """Wait until the broker has confirmed.

        Raises:
            RejectedError, ConnectionLostError, ReceiptTimeoutError: it did not.
        """
        await self.receipt
        self._checked = True

    async def __aenter__(self) -> AsyncSubscription:
        return await self

    async def __aexit__(self, *_: object) -> None:
        if not self.client.engine.is_copy:
            await self.unsubscribe(wait=False)

    def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        return self

    async def __anext__(self) -> AsyncMessage:
        while True:
            try:
                return self.batch.popleft()  # type: ignore[no-any-return]
            except IndexError:
                if not await self._refill():
                    raise StopAsyncIteration from None

    async def get(self, timeout: float | None = None) -> AsyncMessage | None:
        """The next message; None where the subscription is over, or nothing came in time.

        Args:
            timeout: seconds; None to wait for as long as the client lives.

        Raises:
            RejectedError, ConnectionLostError: the subscription was refused, the client has given up, or the server
                sent an ERROR that belongs to no call.
        """
        if self.batch:
            return self.batch.popleft()  # type: ignore[no-any-return]
        try:
            return await asyncio.wait_for(self.__anext__(), timeout)
        except (StopAsyncIteration, asyncio.TimeoutError):
            return None

    async def take(self, most: int, timeout: float | None = None) -> list[AsyncMessage]:
        """Up to `most` messages: what is there, once something is there. Empty as `get` gives None."""
        first = await self.get(timeout)
        if first is None:
            return []
        taken = [first]
        while self.batch and len(taken) < most:
            taken.append(self.batch.popleft())
        return taken

    async def _refill(self) -> bool:
        """Wait for messages; False at the end. Other tasks get their turn once a batch."""
        client = self.client
        client.engine.check()
        if not self._checked:
            await self.confirmed_by_broker()
        await asyncio.sleep(0)
        while True:
            with client.engine.lock:
                if self.inbox:
                    client.engine.take(self)
                if self.batch:
                    return True
                news, self.news = self.news, None
                if news is not None:
                    raise news
                if self.deaf:
                    if self.error is not None:
                        raise self.error
                    return False
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._futures.append(future)
            await future

    def wake(self) -> None:
        """There is news. Called in the loop."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)

    async def unsubscribe(self, *, delete: bool = False, wait: bool = True, timeout: float | None = None) -> None:
        """End it; iterators end. Messages that are not acknowledged go back to the broker.

        Args:
            delete: end a durable subscription for good.
            wait: for the receipt.
        """
        await self.client.unsubscribe(self, delete=delete, wait=wait, timeout=timeout)

    # ---- handlers ----

    def handle(self, handler: Callable[[AsyncMessage], Any], on_error: Policy, concurrency: int, key: Any) -> None:
        """Start the tasks that call a handler."""
        work = _Work(self, handler, checked_policy(on_error))
        if key is None or concurrency == 1:
            runs = [work.run() for _ in range(concurrency)]
        else:
            lanes: list[asyncio.Queue[AsyncMessage | None]] = [asyncio.Queue(100) for _ in range(concurrency)]
            runs = [work.deal(lanes, key), *(work.run_lane(lane) for lane in lanes)]
        self._tasks = [asyncio.get_running_loop().create_task(run) for run in runs]

    async def join(self, timeout: float | None = None) -> None:
        """Wait until the handler's tasks have ended. A handler may call this for itself: it does not wait then.

        Raises:
            Exception: what the handler raised, with on_error="stop".
        """
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        if others:
            await asyncio.wait(others, timeout=timeout)
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """Cancel the handler's tasks, except the one that calls this."""
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()


class _Work:
    """A handler, and what it does with messages."""

    def __init__(
        self, subscription: AsyncSubscription, handler: Callable[[AsyncMessage], Any], on_error: Policy
    ) -> None:
        self.subscription = subscription
        self.handler = handler
        self.on_error = on_error
        self.stopped = False

    async def _messages(self) -> AsyncIterator[AsyncMessage]:
        """All that come, to the end of the subscription; an ERROR of the server was logged already."""
        while not self.stopped:
            try:
                yield await self.subscription.__anext__()
            except StopAsyncIteration:
                return
            except StompError as error:
                if self.subscription.deaf:
                    log.error("%s", error)
                    return

    async def run(self) -> None:
        """One worker; several of them share the subscription."""
        async for message in self._messages():
            await self.call(message)

    async def deal(
        self, lanes: list[asyncio.Queue[AsyncMessage | None]], key: Callable[[AsyncMessage], object]
    ) -> None:
        """Messages with one key go to one worker, so that their order is kept."""
        async for message in self._messages():
            try:
                lane = lanes[hash(key(message)) % len(lanes)]
            except Exception as error:
                await self._failed(message, error)
                continue
            await lane.put(message)
        for lane in lanes:
            await lane.put(None)

    async def run_lane(self, lane: asyncio.Queue[AsyncMessage | None]) -> None:
        """A worker behind `deal`."""
        while (message := await lane.get()) is not None:
            if not self.stopped:
                await self.call(message)

    async def call(self, message: AsyncMessage) -> None:
        """Call the handler; what it raises never gets further than this."""
        try:
            result = self.handler(message)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as error:
            cancelling = getattr(asyncio.current_task(), "cancelling", None)
            if cancelling is None or cancelling():
                raise
            # Something that the handler waited for was cancelled, not this task: the next message has to come.
            await self._failed(message, ended_by(error))
            return
        except Exception as error:
            await self._failed(message, error)
            return
        if message.subscription.explicit and not message.settled:
            await self._settle(message, "ACK", None)

    async def _failed(self, message: AsyncMessage, error: Exception) -> None:
        policy = decide(self.on_error, message, error)
        core, explicit = message.subscription.client.core, message.subscription.explicit
        answer = answer_of(policy, core.link.dialect, core.link.version)
        if answer is not None and explicit and not message.settled:
            await self._settle(message, *answer)
        if explicit and not message.settled:
            leave(message)
        if policy == "stop":
            self.stopped = True
            await self.subscription.unsubscribe(wait=False)
            self.subscription.error = error

    async def _settle(self, message: AsyncMessage, command: str, requeue: bool | None) -> None:
        try:
            await message.subscription.client.settle(message, command, requeue=requeue)
        except StompError as error:
            note(error)
