"""Messages and subscriptions for threads: iterating, settling, and handlers in threads."""

# scripts/unasync.py writes this from aio/messages.py: change that one, then `make docs`.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from stompcodec.client.handlers import Policy, answer_of, decide, leave, log, note
from stompcodec.client.message import BaseMessage
from stompcodec.client.shell import now
from stompcodec.client.subscription import Subscription as Base
from stompcodec.client.sync.link import Link
from stompcodec.client.sync.waiting import Queue, Receipt, Waiters, Workers, call_handler
from stompcodec.errors import StompError

__all__ = ["Message", "Subscription"]


class Message(BaseMessage):
    """A message that was delivered to us. As `stompcodec.client.Message`, awaited."""

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
        link = self.subscription.link
        if receipt or headers or not link.engine.acknowledge(self):
            answer = link.settle(self, "ACK", headers=headers, receipt=receipt, timeout=timeout)
            if receipt:
                answer.wait()

    def nack(self, *, requeue: bool | None = None, receipt: bool = False, timeout: float | None = None) -> None:
        """Refuse it. What follows from that differs: see the table of brokers in the documentation.

        Args:
            requeue: True to have it delivered again, False to have it dropped or dead-lettered, None for what the
                broker does by itself.

        Raises:
            LocalProtocolError: the broker cannot do that, STOMP 1.0 has no NACK, or the mode is `auto`.
            StaleAckError, RejectedError, ConnectionLostError, ReceiptTimeoutError: as for `ack`.
        """
        answer = self.subscription.link.settle(self, "NACK", requeue=requeue, receipt=receipt, timeout=timeout)
        if receipt:
            answer.wait()

    def processing(self, *, requeue: bool | None = None) -> contextlib.AbstractContextManager[Message]:
        """Return a context: ACK at its end, NACK if it raises; nothing if it was settled inside.

        Raises:
            LocalProtocolError: the NACK of this broker cannot do what `requeue` asks for.
        """
        self.subscription.link.core.link.dialect.nack_headers(requeue)
        return self._processing(requeue)

    @contextlib.contextmanager
    def _processing(self, requeue: bool | None) -> Iterator[Message]:
        try:
            yield self
        except BaseException:
            if self.subscription.explicit and not self.settled:
                try:
                    self.nack(requeue=requeue)
                except StompError as failure:  # the user's error says more
                    note(failure)
                    leave(self)
            raise
        if self.subscription.explicit and not self.settled:
            self.ack()

    def reply(
        self,
        body: bytes | str,
        headers: Mapping[str, str] | None = None,
        *,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Send an answer to where the message asks for it: its reply-to, with its correlation-id.

        Raises:
            LocalProtocolError: it has no reply-to.
        """
        link = self.subscription.link
        answer = link.push(link.sending(*self.answer(body, headers), receipt=receipt, timeout=timeout), timeout)
        if answer is not None:
            answer.wait()


class Subscription(Base):
    """A subscription: `for` over it, or take messages by `get`. It survives reconnects; `with` ends it.

    It is asked for at once. Awaiting it waits until the broker has confirmed, and so does the first message.
    """

    def __init__(self, link: Link, destination: str, **options: Any) -> None:
        super().__init__(destination, **options)
        self.link = link
        self.receipt: Receipt  # for its confirmation; set by the client
        self.workers = Workers()
        self._waiters = Waiters()
        self.wake = self._waiters.wake

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.link.engine.is_copy:
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
        until = None if timeout is None else now() + timeout
        while True:
            try:
                return self.batch.popleft()  # type: ignore[no-any-return]
            except IndexError:
                if not self._refill(until):
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

    def _refill(self, until: float | None) -> bool:
        """Wait for messages; return False at the end, and when the time is over."""
        engine = self.link.engine
        engine.check()
        while True:
            with engine.lock:
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
                if until is not None and now() >= until:
                    return False
                waiter = self._waiters.enter()
            self._waiters.wait(waiter, until)

    def unsubscribe(self, *, delete: bool = False, wait: bool = True, timeout: float | None = None) -> None:
        """End it; iterators end. Messages that are not acknowledged go back to the broker.

        Args:
            delete: end a durable subscription for good.
            wait: for the receipt.
        """
        link = self.link
        if not wait:
            link.engine.do(link.core.inbound.unsubscribe, self, now(), delete=delete)
            return
        call = link.call(f"UNSUBSCRIBE of {self.id}", "UNSUBSCRIBE", timeout)
        link.start(call, link.core.inbound.unsubscribe, self, delete=delete).wait()

    # ---- handlers ----

    def handle(self, handler: Callable[[Message], Any], on_error: Policy, concurrency: int, key: Any) -> None:
        """Start the threads that call a handler."""
        work = _Work(self, handler, on_error)
        if key is None or concurrency == 1:
            runs = [work.run] * concurrency
        else:
            lanes = [Queue[Message | None](100) for _ in range(concurrency)]
            runs = [partial(work.deal, lanes, key), *(partial(work.run_lane, lane) for lane in lanes)]
        self.workers.start(f"stompcodec-{self.id}", runs)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the handler's threads have ended. A handler may call this for itself: it does not wait then.

        Raises:
            Exception: what the handler raised, with on_error="stop".
        """
        self.workers.join(timeout)
        if self.error is not None:
            raise self.error


class _Work:
    """A handler, and what it does with messages."""

    def __init__(self, subscription: Subscription, handler: Callable[[Message], Any], on_error: Policy) -> None:
        self.subscription = subscription
        self.handler = handler
        self.on_error = on_error
        self.stopped = False

    def _messages(self) -> Iterator[Message]:
        """All that come, to the end of the subscription; an ERROR of the server was logged already."""
        while not self.stopped:
            try:
                yield self.subscription.__next__()
            except StopIteration:
                return
            except StompError as error:
                if self.subscription.deaf:
                    log.error("%s", error)
                    return

    def run(self) -> None:
        """One worker; several of them share the subscription."""
        for message in self._messages():
            self.call(message)

    def deal(self, lanes: list[Queue[Message | None]], key: Callable[[Message], object]) -> None:
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

    def run_lane(self, lane: Queue[Message | None]) -> None:
        """A worker behind `deal`."""
        while (message := lane.get()) is not None:
            if not self.stopped:
                self.call(message)

    def call(self, message: Message) -> None:
        """Call the handler; what it raises never gets further than this."""
        try:
            call_handler(self.handler, message)
        except Exception as error:
            self._failed(message, error)
            return
        if message.subscription.explicit and not message.settled:
            self._settle(message, "ACK", None)

    def _failed(self, message: Message, error: Exception) -> None:
        policy = decide(self.on_error, message, error)
        link, explicit = message.subscription.link.core.link, message.subscription.explicit
        answer = answer_of(policy, link.dialect, link.version)
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
            message.subscription.link.settle(message, command, requeue=requeue)
        except StompError as error:
            note(error)
