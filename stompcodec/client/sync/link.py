"""The link between a client, its engine and core, and its messages, subscriptions and transactions."""

# scripts/unasync.py writes this from aio/link.py: change that one, then `make docs`.

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from stompcodec.arguments import checked
from stompcodec.client.bodies import Source, is_whole
from stompcodec.client.handlers import Handling, answer_of, copy_of, decide, has_key, leave, log, note, text_of, way_of
from stompcodec.client.headers import HeaderSource, pairs_of
from stompcodec.client.messages import BaseMessage, BaseTransaction
from stompcodec.client.middleware import (
    ProcessEvent,
    Received,
    ReceiveEvent,
    SendEvent,
    SendManyEvent,
    Sent,
    SettleEvent,
    around,
    started,
)
from stompcodec.client.outbox import OutboxFullError, Upload, seconds_of
from stompcodec.client.shell import BaseLink, Bulk, Content, Outgoing, Passed, Sending, now, outgoing
from stompcodec.client.sync.waiting import (
    Delivery,
    Messages,
    Receipt,
    call_handler,
    each,
    feed,
    open_source,
    read_piece,
)
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError, StompError


class Link(BaseLink):
    """The engine and core of a `Client`, with the operations that wait, and those that pass its middleware."""

    delivery_class = Delivery
    receipt_class = Receipt

    delivery: Delivery

    # ---- waiting ----

    def push(self, sending: Sending, timeout: float | None) -> Receipt | None:
        """Send a message once the outbox has room, or raise OutboxFullError; return its receipt if it has one."""
        seconds = self.options.receipt_timeout if timeout is None else seconds_of("timeout", timeout)
        until: float | None = None  # set when it first has to wait
        while not sending.attempt():
            until = now() + seconds if until is None else until
            call = self.call("waiting for room", "", max(until - now(), 0))
            receipt = Receipt(call)
            self.engine.do(self.core.when_room, call, now(), sending.octets)
            try:
                receipt.wait()
            except ReceiptTimeoutError:
                raise OutboxFullError(f"the outbox had no room in {seconds} s: nothing was sent") from None
        answer: Receipt | None = sending.receipt
        return answer

    def wait_connected(self, timeout: float | None) -> None:
        """Wait until there is a connection and all subscriptions are restored."""
        self.start(self.call("waiting for a connection", "", timeout), self.core.when_connected).wait()

    # ---- sending ----

    @checked
    def give(
        self,
        destination: str,
        body: Any,
        headers: HeaderSource | None,
        content: Content,
        receipt: bool,
        timeout: float | None,
        resend: bool | None,
        persistent: bool | None,
        length: int | None,
        *,
        wait: bool = True,
        transaction: BaseTransaction | None = None,
    ) -> Any:
        """Send a message as `Client.send`. Return its receipt if it has one; with `wait` None."""
        more: dict[str, Any] = {"receipt": receipt, "resend": resend, "transaction": transaction}
        said: dict[str, Any] = {"persistent": persistent, "usual": self.options.persistent}
        if is_whole(body):
            message = outgoing(destination, body, headers, content, **said)
            sending = partial(self.sending, timeout=timeout, **more)
            return self.send(sending, message, timeout, receipt=receipt, wait=wait, transaction=transaction)
        if content[1] is not None:
            raise ValueError("content_encoding is for str and bytes: give a source of bytes that are encoded already")
        if resend and not wait:
            raise LocalProtocolError("resend=True with a streamed body needs `send`, which keeps the source")
        self.engine.check()
        message = outgoing(destination, b"", headers, content, **said)
        source = open_source(body, length, self.options.spool_folder)
        try:
            return self._send_source(message, source, timeout, wait, more)
        finally:
            source.close()

    def _send_source(
        self, message: Outgoing, source: Source, timeout: float | None, wait: bool, more: dict[str, Any]
    ) -> Receipt | None:
        """Do what `send` does, with a body from a source."""
        if self.layers is None:
            return self._stream(message, source, timeout, wait, more)
        receipt, transaction = more["receipt"], more["transaction"]
        id = None if transaction is None else transaction.id
        event = SendEvent(
            *(self.core.link, message.pairs, None, False, "send"), size=source.size, receipt=receipt, transaction=id
        )
        with around(self.layers["send"], "send", event):
            if event.is_streamed:
                streamed = Outgoing(event.headers.pairs(), b"", message.text)
                answer = self._stream(streamed, source, timeout, wait, more)
            else:
                answer = self._send(self.sending(_changed(event), timeout, **more), timeout, wait)
        return answer

    def _stream(
        self, message: Outgoing, source: Source, timeout: float | None, wait: bool, more: dict[str, Any]
    ) -> Receipt | None:
        """Send a message whose body comes from a source, to the end of its body, or with `wait` to its receipt."""
        upload: Upload | None = None
        try:
            sending, upload = self.streaming(message, source, timeout, to_the_end=wait, **more)
            self.push(sending, timeout)
            self._feed(upload, source)
        except BaseException as error:
            if upload is not None:
                self.engine.do(self.core.give_up, upload, f"given up ({type(error).__name__})", now())
            raise
        answer: Receipt | None = sending.receipt
        return None if wait else answer

    def _feed(self, upload: Upload, source: Source) -> None:
        """Hand over the pieces of a body as they are asked for."""
        while True:
            call = self.call(f"{upload.what}, whose body waits to be sent", "", upload.timeout)
            receipt = Receipt(call)
            self.engine.do(self.core.ask, upload, now(), call)
            at = receipt.wait()
            if at is None:
                return
            if at >= 0:
                piece = read_piece(source, at, upload)
                upload.check(at, piece)
                self.engine.do(self.core.feed, upload, at, piece, now())

    def send(
        self,
        make: Callable[[Outgoing], Sending],
        message: Outgoing,
        timeout: float | None = None,
        by: Sent = "send",
        *,
        receipt: bool = False,
        wait: bool = True,
        transaction: BaseTransaction | None = None,
    ) -> Any:
        """Send a message as `make` says. Return its receipt if it has one, or with `wait` the result of that."""
        if self.layers is None:
            return self._send(make(message), timeout, wait)
        id = None if transaction is None else transaction.id
        event = SendEvent(
            self.core.link, message.pairs, message.body, bool(message.text), by, receipt=receipt, transaction=id
        )
        with around(self.layers["send"], "send", event):
            result = self._send(make(_changed(event)), timeout, wait)
        return result

    def _send(self, sending: Sending, timeout: float | None, wait: bool) -> Any:
        answer = self.push(sending, timeout)
        return answer.wait() if wait and answer is not None else answer

    def request(self, message: Outgoing, timeout: float | None) -> Any:
        """Send a request, and return the reply."""
        since = started()
        reply = self.send(partial(self.requesting, timeout=timeout), message, timeout, "request")
        if self.layers is not None:
            self.receive(reply, "reply", since)
        return reply

    def send_many(self, bulk: Bulk, messages: Messages) -> None:
        """Send all messages, and wait for room and receipts."""
        if self.layers is None:
            feed(bulk, messages)
            return
        event = SendManyEvent(self.core.link, bulk.receipts, bulk.transaction_id)
        with around(self.layers["send_many"], "send_many", event):
            try:
                feed(bulk, self._through(bulk, messages, event))
            finally:
                event.messages = bulk.given

    def _through(self, bulk: Bulk, messages: Messages, batch: SendManyEvent) -> Iterator[Any]:
        """Yield messages as the middleware leaves them, or with its error."""
        assert self.layers is not None
        for given in each(messages):
            for message in bulk.opened(given):
                try:
                    one = bulk.content(message)
                    event = SendEvent(
                        *(self.core.link, one.pairs, one.body, bool(one.text), "many"),
                        transaction=bulk.transaction_id,
                        batch=batch,
                    )
                    with around(self.layers["send"], "send", event):
                        pass
                    passed = Passed(_changed(event))
                except Exception as error:
                    passed = Passed(None, error)
                yield passed

    # ---- receiving ----

    def receive(self, message: BaseMessage, by: Received, since: int) -> None:
        """Pass a message through the middleware, which may change it, and raise what it raises."""
        assert self.layers is not None
        event = ReceiveEvent(self.core.link, message, by, since)
        with around(self.layers["receive"], "receive", event):
            pass
        event.apply()

    def processed(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler with the middleware around it."""
        if self.layers is None:
            return handler
        layers = self.layers["process"]

        def handle(message: BaseMessage) -> None:
            with around(layers, "process", ProcessEvent(self.core.link, message, "handler")):
                call_handler(handler, message)

        return handle

    def refuse(self, message: BaseMessage, error: Exception) -> None:
        """Refuse a message whose taking the middleware did not allow, so that the program gets the next one.

        In mode `client` it stays unsettled: a NACK would refuse earlier ones, too, which the program holds.
        """
        subscription = message.subscription
        log.error("middleware refused a message of %s", subscription.destination, exc_info=error)
        if subscription.cumulative and not self.core.is_stale(message):
            subscription.stuck = subscription.stuck or message.seq
        if not subscription.explicit or subscription.cumulative:
            return
        try:
            if self.core.link.dialect.requeues:
                self.settle(message, "NACK")
            else:
                self.give_up(message, error)
        except Exception as failure:
            note(failure)
        if not message.settled:
            leave(message)

    # ---- settling ----

    @checked
    def settle(
        self,
        message: BaseMessage,
        command: str,
        headers: HeaderSource | None = None,
        *,
        requeue: bool | None = None,
        receipt: bool = False,
        timeout: float | None = None,
        transaction: BaseTransaction | None = None,
    ) -> None:
        """Send ACK or NACK for a message, and wait for its receipt if it has one."""
        more: dict[str, Any] = {"receipt": receipt, "timeout": timeout, "transaction": transaction}
        if self.layers is None or not message.subscription.explicit or message.settled:
            answer = self.settling(message, command, headers, requeue=requeue, **more)
            if answer is not None:
                answer.wait()
            return
        id = None if transaction is None else transaction.id
        pairs = () if headers is None else pairs_of("ACK", headers)
        event = SettleEvent(self.core.link, message, command, pairs, receipt=receipt, transaction=id)
        with around(self.layers["settle"], "settle", event):
            answer = self.settling(message, command, event.headers, requeue=requeue, **more)
            if answer is not None:
                answer.wait()

    def handled(self, message: BaseMessage) -> None:
        """Acknowledge a message whose handler returned, unless that has settled it."""
        try:
            is_done = self.layers is None and self.engine.acknowledge(message)
        except StompError:  # in a copy of the client, for example: the other way says so
            is_done = False
        if not is_done:
            self._answer(message, "ACK", None)

    def failed(
        self,
        message: BaseMessage,
        handling: Handling,
        error: Exception,
        calls: int,
        rest: Callable[[], bool],
    ) -> bool:
        """Settle a message whose handler has failed for the last time; return False if the subscription stops."""
        subscription, link = message.subscription, self.core.link
        policy = decide(handling.on_error or "nack", message, error, calls)
        answer = answer_of(policy, link.version)
        if policy == "nack" and (handling.attempts > 1 or not link.dialect.requeues):
            policy = policy if self.give_up(message, error, rest) else "stop"
        elif answer is not None:
            self._answer(message, *answer)
        if subscription.explicit and not message.settled:
            leave(message)
        if policy == "stop":
            self.engine.do(self.core.inbound.unsubscribe, subscription, now())
            subscription.error = error
        return policy != "stop"

    def give_up(self, message: BaseMessage, error: object, rest: Callable[[], bool] | None = None) -> bool:
        """Give a message up that cannot be handled; return False if there is no way, so that it stays unsettled.

        Either a NACK makes a dead letter of it, or the client sends a copy, and then ACK. After a copy without RECEIPT
        it stays unsettled, unless `rest`, which pauses, returns True to go on.
        """
        link, destination = self.core.link, message.subscription.destination
        self.core.is_sent_only(message)
        while not (self.engine.look(partial(self.core.is_settled, message)) or self.core.is_stale(message)):
            way = way_of(message, link.dialect, link.version, self.options.dead_letter)
            if way.why:
                log.error("%s: message %s stays unsettled: %s", destination, message.id, way.why)
            if way.command == "NACK":
                self._answer(message, "NACK", False)
            if way.command != "SEND":
                return not way.why
            copy = copy_of(message, link.dialect, way.to, error, self.options.client_id)
            try:
                self.copy(message, copy)
            except Exception as failure:
                words = "%s: message %s stays unsettled, since its copy to %s %s: %s"
                what = "failed" if rest is None else "failed, and the subscription pauses"
                log.error(words, destination, message.id, way.to, what, failure)
                is_twice = isinstance(failure, ReceiptTimeoutError) and failure.sent and not has_key(copy, link.dialect)
                while rest is not None and rest():
                    if not is_twice:  # else it may be there, and another one, too
                        break
                else:
                    return True
            else:
                self._answer(message, "ACK", None)
                return True
        if self.core.is_stale(message):
            log.warning("not settled: message %s, whose connection or subscription has ended, comes again", message.id)
        return True

    def copy(
        self,
        message: BaseMessage,
        pairs: list[tuple[str, str]],
        timeout: float | None = None,
        transaction: BaseTransaction | None = None,
    ) -> None:
        """Send a copy of a message with these headers; without a transaction wait until the broker has confirmed it."""
        text = text_of(message, self.core.link.dialect)
        more: dict[str, Any] = {"receipt": transaction is None, "transaction": transaction}
        if message.received is None:

            def make(copy: Outgoing) -> Sending:
                copy.text = copy.text and text
                return self.sending(copy, timeout, resend=False, **more)

            self.send(make, Outgoing(pairs, message.body, text), timeout, **more)
            return
        with message.reader() as reader:
            source = open_source(reader, None, self.options.spool_folder)
            self._send_source(Outgoing(pairs, b"", text), source, timeout, True, {**more, "resend": False})

    def _answer(self, message: BaseMessage, command: str, requeue: bool | None) -> None:
        """Settle a message for its handler, unless that has done so; log if it cannot be settled."""
        if not message.subscription.explicit or message.settled:
            return
        try:
            if self.layers is None:
                self.settling(message, command, requeue=requeue)
            else:
                self.settle(message, command, requeue=requeue)
        except Exception as failure:
            note(failure)


def _changed(event: SendEvent) -> Outgoing:
    """Return a message as the middleware leaves it."""
    return Outgoing(event.headers.pairs(), event.body, event.is_text)
