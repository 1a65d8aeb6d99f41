"""Messages, subscriptions and transactions for threads."""

# scripts/unasync.py writes this from aio/messages.py: change that one, then `make docs`.

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any

from stompcodec.arguments import checks
from stompcodec.client.handlers import LONGEST, Hand, Handling, Retries, holding, leave, log, note, own_hand, take_up
from stompcodec.client.headers import HeaderSource
from stompcodec.client.messages import BaseMessage, BaseTransaction
from stompcodec.client.messages import Subscription as Base
from stompcodec.client.middleware import ProcessEvent, around, started
from stompcodec.client.outbox import seconds_of
from stompcodec.client.shell import end_of, now, outgoing
from stompcodec.client.sync.link import Link
from stompcodec.client.sync.waiting import (
    Body,
    BodyReader,
    Pauses,
    Queue,
    Receipt,
    Waiters,
    Workers,
    call_handler,
)
from stompcodec.errors import LocalProtocolError, StompError


@checks("ack")
class Message(BaseMessage):
    """A received message.

    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> def main(url):
    ...     with connect(url) as client:
    ...         client.send("/queue/a", "hello", {"n": "1"})
    ...         message = client.subscribe("/queue/a", ack="client").get(5)
    ...         message.ack()
    ...         return message.text(), message.body, message.headers["n"], message.redelivered
    >>> with StompBroker() as broker:
    ...     main(broker.url)
    ('hello', b'hello', '1', False)
    """

    __slots__ = ()
    subscription: Subscription

    def ack(self, headers: HeaderSource | None = None, *, receipt: bool = False, timeout: float | None = None) -> None:
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
            link.settle(self, "ACK", headers, receipt=receipt, timeout=timeout)

    def nack(
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
        link.settle(self, "NACK", requeue=wanted, receipt=receipt, timeout=timeout)

    def processing(self, *, requeue: bool | None = None) -> contextlib.AbstractContextManager[Message]:
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

    @contextlib.contextmanager
    def _processing(self, requeue: bool | None) -> Iterator[Message]:
        link = self.subscription.link
        link.core.link.expect_handlers()
        try:
            with holding(self):
                if link.layers is None:
                    yield self
                else:
                    event = ProcessEvent(link.core.link, self, "block")
                    with around(link.layers["process"], "process", event):
                        yield self
        except BaseException as error:
            if not self.settled:
                self._end_badly(error, requeue)
            raise
        if self.subscription.explicit and not self.settled:
            self.ack()

    def _end_badly(self, error: BaseException, requeue: bool | None) -> None:
        """Settle it after its block has raised. What fails here is only logged: the error of the block says more."""
        link, dialect = self.subscription.link, self.subscription.link.core.link.dialect
        try:
            named = self.subscription.dead_letter or link.options.dead_letter
            again = (dialect.nacked == "counted" and named is None) or not isinstance(error, Exception)
            if requeue is None and not again:
                link.give_up(self, error)
            elif requeue is not None or dialect.requeues:
                link.settle(self, "NACK", requeue=requeue)
        except Exception as failure:
            note(failure)
        if self.subscription.explicit and not self.settled:
            if self.subscription.cumulative and not link.core.is_stale(self):
                self.subscription.stuck = self.subscription.stuck or self.seq
            leave(self)

    def open(self) -> BodyReader:
        """Return a reader of the body, in memory or in a file, for an `with` block.

        Raises:
            OSError: the body could not be kept in a file, for example on a full disk.
        """
        return self.reader()

    def reply(
        self,
        body: bytes | str,
        headers: HeaderSource | None = None,
        *,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Send a reply to its reply-to, with its correlation-id. Arguments as for `Client.send`.

        Raises:
            LocalProtocolError: it has no reply-to, or one that no message can be sent to.
            ValueError: a header belongs to the client, or is another correlation-id.
        """
        link = self.subscription.link
        make, core = partial(link.sending, receipt=receipt, timeout=timeout, is_reply=True), link.core.link
        message = outgoing(*self.answer(body, headers, core.dialect), usual=link.options.persistent)
        core.expect_handlers()
        with holding(self):
            link.send(make, message, timeout, "reply", receipt=receipt)


@checks("__init__", "begin", "get")
class Subscription(Base):
    """A subscription, which is restored on new connections. Iterate over it, or call `get` or `take`.

    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> def main(url):
    ...     with connect(url) as client, client.subscribe("/queue/a") as subscription:
    ...         client.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
    ...         for message in subscription:
    ...             return message.body, (subscription.get(timeout=5)).body
    >>> with StompBroker() as broker:
    ...     main(broker.url)
    (b'1', b'2')
    """

    batch: deque[Message]

    def __init__(self, link: Link, destination: str, **options: Any) -> None:
        super().__init__(destination, **options)
        self.link = link
        self.receipt: Receipt  # for its confirmation; set by the client
        self.workers = Workers()
        self._waiters = Waiters(self)
        self._work: _Work | None = None  # with a handler
        self.wake = self._waiters.wake

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.link.engine.is_gone:
            self.unsubscribe(wait=False)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while True:
            try:
                return self.batch.popleft()
            except IndexError:
                if not self._refill(None):
                    raise StopIteration from None

    def get(self, timeout: float | None = None) -> Message | None:
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
                if not self._refill(until):
                    return None

    def take(self, most: int, timeout: float | None = None) -> list[Message]:
        """Wait for messages, and return up to `most` of them; an empty list where `get` returns None."""
        first = self.get(timeout)
        if first is None:
            return []
        taken, is_layered = [first], self.link.layers is not None  # they pass the middleware one by one
        with contextlib.suppress(IndexError):
            while len(taken) < most:
                if is_layered and not self.batch and self.inbox and not self._refill(now()):
                    break
                taken.append(self.batch.popleft())
        return taken

    def _refill(self, until: float | None) -> bool:
        """Wait for messages; return False at the end of the subscription, or of the time."""
        engine = self.link.engine
        engine.check()
        if self.may_stall and not self.inbox:
            polls = self._work is not None or (until is not None and now() >= until)
            engine.do(self.link.core.waits, self, now(), polls=polls)
        if self.link.layers is not None:
            return self._refill_through(until)
        while True:
            with engine.lock:
                if self.inbox:
                    engine.take(self)
                if self.batch:
                    return True
                if self._is_over(until):
                    return False
                waiter = self._waiters.enter()
            self._waiters.wait(waiter, until)

    def _is_over(self, until: float | None) -> bool:
        """Return whether there is nothing to wait for; raise the server's ERROR, or the error that ended it."""
        news, self.news = self.news, None
        if news is not None:
            raise news
        if self.deaf and self.error is not None:
            raise self.error
        return self.deaf or (until is not None and now() >= until)

    def _refill_through(self, until: float | None) -> bool:
        """Do what `_refill` does with one message, which passes the middleware."""
        engine, since = self.link.engine, started()
        while True:
            with engine.lock:
                if self.batch:
                    return True
                message: Message | None = engine.take_one(self)
                if message is None:
                    if self._is_over(until):
                        return False
                    waiter = self._waiters.enter()
            if message is None:
                self._waiters.wait(waiter, until)
            elif self._passes(message, since):
                return True
            elif until is not None and now() >= until:  # else a message that is refused again and again holds it up
                return False

    def _passes(self, message: Message, since: int) -> bool:
        """Pass a message through the middleware, and put it into the batch, unless it is refused."""
        work = self._work
        receive = partial(self.link.receive, message, "taken" if work is None else "handler", since)
        try:
            receive()
        except Exception as error:
            if work is None:
                self.link.refuse(message, error)
            if work is None or not work.retry(message, error, receive):
                return False
        except BaseException:
            with self.link.engine.lock:
                self.link.core.inbound.put_back(self, message)
            self._waiters.wake()
            raise
        self.batch.append(message)
        return True

    def unsubscribe(self, *, delete: bool = False, wait: bool = True, timeout: float | None = None) -> None:
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
        link.start(call, link.core.inbound.unsubscribe, self, delete=delete).wait()

    # ---- handlers ----

    def begin(self, receipt: Receipt, handling: Handling) -> None:
        """Begin to handle messages once it is confirmed. If that fails, or is interrupted, unsubscribe."""
        self.receipt = receipt
        try:
            receipt.wait()
            if handling.handler is not None:
                self._handle(handling)
        except BaseException:
            self.link.engine.do(self.link.core.inbound.unsubscribe, self, now())
            raise

    def _handle(self, handling: Handling) -> None:
        """Start the threads that call a handler."""
        concurrency, key, self._work = handling.concurrency, handling.key, _Work(self, handling)
        work, self.wake = self._work, self._wake
        if key is None or concurrency == 1:
            runs = [work.run] * concurrency
        else:
            lanes = [Queue[Message | None](100) for _ in range(concurrency)]
            runs = [partial(work.deal, lanes, key), *(partial(work.run_lane, lane) for lane in lanes)]
        self.workers.start(f"stompcodec-{self.id}", runs)

    def _wake(self) -> None:
        self._waiters.wake()
        if self.deaf and self._work is not None:
            self._work.pauses.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the handler's threads have ended, except the calling one; at most `timeout` seconds.

        With on_error="stop" it raises the error of the handler.
        """
        self.link.engine.check()
        self.workers.join(None if timeout is None else seconds_of("timeout", timeout))
        if self.error is not None:
            raise self.error


class _Work:
    """The work of a handler's threads."""

    def __init__(self, subscription: Subscription, handling: Handling) -> None:
        self.subscription = subscription
        self.handling = handling
        assert handling.handler is not None
        self.handler = subscription.link.processed(handling.handler)
        self.retries = Retries(handling)
        self.pauses = Pauses()
        self.hands: set[Hand] = set()  # of the calls under way
        self.stopped = False

    def _messages(self) -> Iterator[Message]:
        """Yield messages until the subscription ends; the core has logged ERRORs of the server."""
        while not self.stopped:
            try:
                yield self.subscription.__next__()
            except StopIteration:
                return
            except StompError as error:
                if self.subscription.deaf and not self.stopped:
                    log.error("%s", error)
                    return
            except Exception:
                if not self.stopped:
                    raise

    def _take(self, message: Message) -> None:
        """Handle a message. What is sent meanwhile names it."""
        hand = take_up(message)
        self.hands.add(hand)
        try:
            self.call(message)
        finally:
            self.hands.discard(hand)
            hand.message = None

    def run(self) -> None:
        """Handle messages, in one of several threads that share the subscription."""
        for message in self._messages():
            self._take(message)

    def deal(self, lanes: list[Queue[Message | None]], key: Callable[[Message], object]) -> None:
        """Distribute messages by key: those with equal keys go to the same thread, in order."""
        for message in self._messages():
            try:
                lane = lanes[hash(key(message)) % len(lanes)]
            except Exception as error:
                self._give_up(message, error, 1)
                continue
            lane.put(message)
        for lane in lanes:
            lane.put(None)

    def run_lane(self, lane: Queue[Message | None]) -> None:
        """Handle the messages that `deal` puts into a queue."""
        while (message := lane.get()) is not None:
            if not (self.stopped or self.subscription.link.core.is_stale(message)):
                self._take(message)

    def call(self, message: Message) -> None:
        """Call the handler, and settle the message."""
        try:
            call_handler(self.handler, message)
        except Exception as error:
            if not self.retry(message, error, partial(call_handler, self.handler, message)):
                return
        self.subscription.link.handled(message)
        if self.retries.watched:
            self._succeed()

    # ---- failures ----

    def retry(self, message: Message, error: Exception, call: Callable[[], None]) -> bool:
        """Call again what has failed with a message, after pauses; return whether it succeeded, else all is done."""
        retries, pause = self.retries, None
        calls = before = 0 if self.handling.attempts == 1 else retries.calls_of(message)
        while True:
            calls += 1
            if not self.handling.acts_at_once and self._is_theirs(message):
                retries.keep(message, calls)
                return False
            if self._ends(message, error, calls):
                self._give_up(message, error, calls)
                return False
            first, pause = pause is None, retries.pause(pause, error)
            if first:
                retries.say(message, error, pause)
            if not self._pause(message, pause):
                retries.keep(message, calls)
                return False
            message.count_calls(calls - before)
            try:
                call()
            except Exception as failure:
                error = failure
            else:
                log.info("%s: message %s was handled at call %d", self.subscription.destination, message.id, calls + 1)
                return True

    def _ends(self, message: Message, error: Exception, calls: int) -> bool:
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

    def _is_theirs(self, message: Message) -> bool:
        """Return whether the broker has a message back, so that it is not handled here."""
        core = self.subscription.link.core
        return not core.is_sent_only(message) and core.is_stale(message)

    def _pause(self, message: Message, seconds: float, narrows: bool = True) -> bool:
        """Pause before the next call; return whether it follows. The window is not held in the longest pauses."""
        subscription, link, hand = self.subscription, self.subscription.link, own_hand()
        if narrows and seconds >= LONGEST:
            self._begin_again(True)
        hand.pauses = True
        self.pauses.rest(seconds, lambda: subscription.deaf or self.stopped)
        hand.pauses = False
        if subscription.deaf or self.stopped:
            with contextlib.suppress(StompError):
                link.engine.do(link.core.let_go, message)
            return False
        return not self._is_theirs(message) and not link.engine.look(partial(link.core.is_settled, message))

    def _give_up(self, message: Message, error: Exception, calls: int) -> None:
        """Settle a message that failed; stop if that is the policy for the error."""
        rest = partial(self._hold, message)
        if not self.subscription.link.failed(message, self.handling, error, calls, rest):
            self.stopped = True
        elif message.settled:
            self.retries.held = None
        elif self._is_theirs(message):
            self.retries.keep(message, calls)

    def _hold(self, message: Message) -> bool:
        """Pause after a copy of a message has failed; return whether it is to be sent again."""
        self.retries.held = self.retries.pause(self.retries.held)
        return self._pause(message, self.retries.held, narrows=False)

    def _succeed(self) -> None:
        """Begin anew after failures."""
        self.retries.succeed()
        if self.subscription.owed:
            self.subscription.owed -= 1
            self.retries.watched = True
        else:
            self._begin_again(False)

    def _begin_again(self, narrow: bool) -> None:
        """Begin the subscription again with a window of one message, or its own, unless another call is under way."""
        subscription, link = self.subscription, self.subscription.link
        if subscription.is_narrow is narrow:
            return
        own = own_hand()
        if any(not each.pauses for each in list(self.hands) if each is not own):
            return
        call = link.call(f"UNSUBSCRIBE of {subscription.id}", "UNSUBSCRIBE", None)
        with contextlib.suppress(StompError):  # then it begins again on the next connection
            link.start(call, link.core.inbound.begin_again, subscription, narrow=narrow).wait()


@checks("__init__")
class Transaction(BaseTransaction):
    """A transaction: its `with` block ends with COMMIT, or with ABORT if it raises.

    `state` is new, open or committing; at last committed, aborted, lost (no effect) or unknown: see docs/client.md.

    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> def main(url):
    ...     with connect(url) as client:
    ...         with client.transaction() as transaction:
    ...             transaction.send("/queue/a", b"1")
    ...         return transaction.state
    >>> with StompBroker() as broker:
    ...     main(broker.url)
    'committed'
    """

    def __init__(self, link: Link, timeout: float | None) -> None:
        super().__init__(link.transaction_id())
        self._link = link
        self._timeout = None if timeout is None else seconds_of("timeout", timeout)

    def __enter__(self) -> Transaction:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.state != "aborted":
                self.commit()
        elif self.state == "open":
            with contextlib.suppress(StompError):  # the error of the block says more
                self.abort(wait=False)

    def begin(self) -> Transaction:
        """Begin it, once there is a connection; ReceiptTimeoutError: there was none in time."""
        link = self._link
        while not link.engine.do(link.core.begin, self, now()):
            link.wait_connected(self._timeout)
        return self

    def send(
        self,
        destination: str,
        body: Body = b"",
        headers: HeaderSource | None = None,
        *,
        persistent: bool | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        timeout: float | None = None,
        length: int | None = None,
    ) -> None:
        """Send a message as part of it; only `commit` has a receipt. Arguments as for `Client.send`.

        Raises:
            ConnectionLostError: the connection was lost, and with it the transaction, which took no effect.
            BodySourceError: as for `Client.send`; the transaction is lost with its connection.
        """
        more = (headers, (content_type, content_encoding), False, timeout, None, persistent, length)
        self._link.give(destination, body, *more, transaction=self)

    def ack(self, message: Message) -> None:
        """Acknowledge a message as part of it. Errors are those of `Message.ack` and `send`."""
        self._link.settle(message, "ACK", transaction=self)

    def nack(self, message: Message, *, requeue: bool | None = None, discard: bool = False) -> None:
        """Refuse a message as part of it, as `Message.nack`."""
        wanted = self._link.core.link.dialect.refusing(requeue, discard)
        self._link.settle(message, "NACK", requeue=wanted, transaction=self)

    def commit(self, timeout: float | None = None) -> None:
        """Commit it, and return when the broker has confirmed.

        Args:
            timeout: seconds to wait; None for that of the transaction.

        Raises:
            RejectedError: the broker refused, and it took no effect.
            ConnectionLostError, ReceiptTimeoutError: with `sent` False it took no effect, else that is unknown.
        """
        self._finish("COMMIT", timeout).wait()

    def abort(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """Discard it: drop its messages, and reopen those that it acknowledged.

        Args:
            wait: for the receipt, at most `timeout` seconds.
        """
        receipt = self._finish("ABORT", timeout)
        if wait:
            receipt.wait()

    def _finish(self, command: str, timeout: float | None) -> Receipt:
        link = self._link
        call = link.call(f"{command} of {self.id}", command, self._timeout if timeout is None else timeout)
        receipt: Receipt = link.start(call, link.core.finish_transaction, self, command)
        return receipt
