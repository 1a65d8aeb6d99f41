"""Messages and subscriptions for threads: iterating, settling, and handlers in worker threads."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from stompcodec.client.handlers import Policy, answer_of, checked_policy, decide, ended_by, leave, note
from stompcodec.client.message import BaseMessage
from stompcodec.client.subscription import Subscription as Base
from stompcodec.client.sync.link import Link
from stompcodec.errors import StompError

__all__ = ["Message", "Subscription"]


class Message(BaseMessage):
    """A message that was delivered to us."""

    __slots__ = ()
    subscription: Subscription

    def ack(
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
            client.settle(self, "ACK", headers=headers, receipt=receipt, timeout=timeout)

    def nack(self, *, requeue: bool | None = None, receipt: bool = False, timeout: float | None = None) -> None:
        """Refuse it. What follows from that differs: see the table of brokers in the documentation.

        Args:
            requeue: True to have it delivered again, False to have it dropped or dead-lettered, None for what the
                broker does by itself.

        Raises:
            LocalProtocolError: the broker cannot do that, STOMP 1.0 has no NACK, or the mode is `auto`.
            StaleAckError, RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `ack`.
        """
        self.subscription.client.settle(self, "NACK", requeue=requeue, receipt=receipt, timeout=timeout)

    def processing(self, *, requeue: bool | None = None) -> Processing:
        """Return a context: ACK at its end, NACK if it raises; nothing if it was settled inside.

        Raises:
            LocalProtocolError: the NACK of this broker cannot do what `requeue` asks for.
        """
        self.subscription.client.core.link.dialect.nack_headers(requeue)
        return Processing(self, requeue)

    def reply(self, body: bytes | str, headers: Mapping[str, str] | None = None, **options: Any) -> None:
        """Send an answer to where the message asks for it: its reply-to, with its correlation-id.

        Raises:
            LocalProtocolError: it has no reply-to.
        """
        self.subscription.client.send(*self.answer(body, headers), **options)


class Processing:
    """What `Message.processing` gives."""

    def __init__(self, message: Message, requeue: bool | None) -> None:
        self._message = message
        self._requeue = requeue

    def __enter__(self) -> Message:
        return self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        message = self._message
        if message.settled or not message.subscription.explicit:
            return
        if error is None:
            message.ack()
            return
        try:
            message.nack(requeue=self._requeue)
        except StompError as failure:  # the user's error says more
            note(failure)
            leave(message)


class Subscription(Base):
    """A subscription: iterate over it, or take messages by `get`. It survives reconnects; `with` ends it.

    Several threads may take messages from one subscription.
    """

    client: Link

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Locks that consumers wait for. Not a Condition: that is Python code, which an interrupt leaves half done, with
        # the client's lock held or released twice.
        self._waiters: list[threading.Lock] = []
        self._workers: list[threading.Thread] = []

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.client.engine.is_copy:
            self.unsubscribe(wait=False)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while True:
            try:
                return self.batch.popleft()  # type: ignore[no-any-return]
            except IndexError:
                if not self._refill(None):
                    raise StopIteration from None

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None where the subscription is over, or nothing came in time.

        Args:
            timeout: seconds; None to wait for as long as the client lives.

        Raises:
            RejectedError, ConnectionLostError: the subscription was refused, the client has given up, or the server
                sent an ERROR that belongs to no call.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self.batch.popleft()  # type: ignore[no-any-return]
            except IndexError:
                if not self._refill(None if until is None else until - time.monotonic()):
                    return None

    def take(self, most: int, timeout: float | None = None) -> list[Message]:
        """Up to `most` messages: what is there, once something is there. Empty as `get` gives None."""
        first = self.get(timeout)
        if first is None:
            return []
        taken = [first]
        with contextlib.suppress(IndexError):
            while len(taken) < most:
                taken.append(self.batch.popleft())
        return taken

    def _refill(self, timeout: float | None) -> bool:
        """Wait for messages; False at the end, and when the time is over."""
        engine = self.client.engine
        engine.check()
        until = None if timeout is None else time.monotonic() + timeout
        waiter: threading.Lock | None = None
        while True:
            with engine.lock:
                if waiter in self._waiters:  # the time is over
                    self._waiters.remove(waiter)
                if self.inbox:
                    engine.take(self)
                if self.batch:
                    return True
                news, self.news = self.news, None
                if news is not None:
                    raise news
                if self.deaf:
                    if self.error is not None:
                        raise self.error
                    return False
                left = -1.0 if until is None else min(until - time.monotonic(), threading.TIMEOUT_MAX)
                if until is not None and left <= 0:
                    return False
                waiter = threading.Lock()
                waiter.acquire()
                self._waiters.append(waiter)
            try:
                waiter.acquire(timeout=left)
            except BaseException:
                with engine.lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
                raise

    def wake(self) -> None:
        """Have all consumers look for what is new. The caller holds the client's lock."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.release()

    def unsubscribe(self, *, delete: bool = False, wait: bool = True, timeout: float | None = None) -> None:
        """End it; iterators end. Messages that are not acknowledged go back to the broker.

        Args:
            delete: end a durable subscription for good.
            wait: for the receipt.
        """
        self.client.unsubscribe(self, delete=delete, wait=wait, timeout=timeout)

    # ---- handlers ----

    def handle(self, handler: Callable[[Message], object], on_error: Policy, concurrency: int, key: Any) -> None:
        """Start the threads that call a handler."""
        work = _Work(self, handler, checked_policy(on_error))
        name = f"stompcodec-{self.id}"
        if key is None or concurrency == 1:
            targets: list[Callable[[], None]] = [work.run] * concurrency
        else:
            lanes = [queue.Queue[Message | None](maxsize=100) for _ in range(concurrency)]
            targets = [partial(work.deal, lanes, key), *(partial(work.run_lane, lane) for lane in lanes)]
        self._workers = [threading.Thread(target=target, name=name, daemon=True) for target in targets]
        for worker in self._workers:
            worker.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the handler's threads have ended. A handler may call this for itself: it does not wait then.

        Raises:
            Exception: what the handler raised, with on_error="stop".
        """
        until = None if timeout is None else time.monotonic() + timeout
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(None if until is None else max(until - time.monotonic(), 0))
        if self.error is not None:
            raise self.error


class _Work:
    """A handler, and what it does with messages."""

    def __init__(self, subscription: Subscription, handler: Callable[[Message], object], on_error: Policy) -> None:
        self.subscription = subscription
        self.handler = handler
        self.on_error = on_error
        self.stopped = False

    def _messages(self) -> Iterator[Message]:
        """All that come, to the end of the subscription; an ERROR of the server was logged already."""
        while not self.stopped:
            try:
                message = self.subscription.get()
            except StompError:
                if self.subscription.deaf:
                    return
                continue
            if message is None:
                return
            yield message

    def run(self) -> None:
        """One worker; several of them share the subscription."""
        for message in self._messages():
            self.call(message)

    def deal(self, lanes: list[queue.Queue[Message | None]], key: Callable[[Message], object]) -> None:
        """Messages with one key go to one worker, so that their order is kept."""
        for message in self._messages():
            try:
                lane = lanes[hash(key(message)) % len(lanes)]
            except Exception as error:
                self._failed(message, error)
                continue
            lane.put(message)
        for lane in lanes:
            lane.put(None)

    def run_lane(self, lane: queue.Queue[Message | None]) -> None:
        """A worker behind `deal`."""
        while True:
            message = lane.get()
            if message is None:
                return
            if not self.stopped:
                self.call(message)

    def call(self, message: Message) -> None:
        """Call the handler; what it raises never gets further than this."""
        try:
            self.handler(message)
        except Exception as error:
            self._failed(message, error)
            return
        except SystemExit as error:  # it would end this thread without a word, and with it the subscription's work
            self._failed(message, ended_by(error))
            return
        if message.subscription.explicit and not message.settled:
            self._settle(message, "ACK", None)

    def _failed(self, message: Message, error: Exception) -> None:
        policy = decide(self.on_error, message, error)
        core, explicit = message.subscription.client.core, message.subscription.explicit
        answer = answer_of(policy, core.link.dialect, core.link.version)
        if answer is not None and explicit and not message.settled:
            self._settle(message, *answer)
        if explicit and not message.settled:
            leave(message)
        if policy == "stop":
            self.stopped = True
            self.subscription.unsubscribe(wait=False)
            self.subscription.error = error

    def _settle(self, message: Message, command: str, requeue: bool | None) -> None:
        try:
            message.subscription.client.settle(message, command, requeue=requeue)
        except StompError as error:
            note(error)
