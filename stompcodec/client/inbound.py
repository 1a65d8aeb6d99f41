"""What comes to a client, without I/O: messages into inboxes, answers to calls, and subscriptions that come back.

After CONNECTED the order is fixed: subscriptions first, then, once they are confirmed, what waits in the outbox. Too
many messages that nobody takes make reading pause; what brokers hold back by `prefetch` never gets so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stompcodec.client.link import DELETE, ClientLink, log
from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call, Group
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame
from stompcodec.errors import (
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    StompError,
)
from stompcodec.states import State

__all__ = ["Inbound", "said"]

#: Octets of a server's words that are shown. Some send stack traces.
_MOST_SAID = 300
#: RabbitMQ takes the host of the URL for its virtual host, and has none of that name.
_VHOST_HINT = (
    " (write the virtual host into the URL: stomp://host/%2F for the one called /, stomp://host/name for another)"
)
#: Reading pauses at the marks of the options; while calls wait for receipts, at so many times them.
_URGENT = 4


def said(frame: Frame) -> str:
    """A server's words in an ERROR, in one line that is fit to be shown.

    >>> said(Frame("ERROR", {"message": "no"}, b"such queue\\nat Server.java:1"))
    'no: such queue'
    """
    first = frame.body[:_MOST_SAID].decode("utf-8", "replace").strip().partition("\n")[0].strip()
    summary = (frame.get("message") or "ERROR")[:_MOST_SAID]
    words = f"{summary}: {first}" if first and first not in summary else summary
    return "".join(character if character.isprintable() else " " for character in words)


class Inbound:
    """What comes to a client: messages, answers, and subscriptions that come back."""

    def __init__(self, link: ClientLink, new_id: Callable[[], str], message_class: type[BaseMessage]) -> None:
        self.link = link
        self.new_id = new_id
        self.message_class = message_class  # what a MESSAGE becomes
        self.subscriptions: dict[str, Subscription] = {}  # what a new connection restores
        self.touched: list[Subscription] = []  # those with news
        self.paused = False  # the shell has to leave octets in the kernel
        self.backlog = 0  # messages in inboxes
        self.backlog_octets = 0
        self.replies: dict[str, Call] = {}  # requests, by correlation-id
        self.fetches: dict[str, Call] = {}  # calls of RECEIVE, by subscription
        self._excused_at = 0.0
        self._to_restore: list[Subscription] = []
        self._restoring: dict[str, Subscription] = {}  # by the receipt that is waited for
        self._one_by_one = False  # an ERROR without receipt-id came while restoring: find out which one it was
        self.reply_subscription: Subscription | None = None

    def receive(self, data: Any, now: float) -> None:
        """Take in octets. Whatever a peer sends raises nothing: the connection is lost, and `connection` is None."""
        link = self.link
        connection = link.connection
        if connection is None:
            return
        link.now = now
        subscriptions, touched, trace, epoch = self.subscriptions, self.touched, link.trace, link.epoch
        message_class = self.message_class
        try:
            for frame in connection.receive(data, now):
                if trace is not None:
                    trace.append(("in", frame))
                if frame.command != "MESSAGE":
                    self._control(frame)
                    continue
                name = frame.get("subscription")
                subscription = subscriptions.get(name) if name is not None else self._by_destination(frame)
                if subscription is None or subscription.deaf:
                    if name in self.fetches:
                        self._fetched(self.fetches[name], frame)
                    continue
                if not subscription.confirmed:
                    self._confirm(subscription)
                subscription.seq = seq = subscription.seq + 1
                message = message_class(frame, subscription, epoch, seq)
                if subscription is self.reply_subscription:
                    self._reply(frame.get("correlation-id"), message)
                    continue
                size = len(frame.body)
                subscription.open += 1
                subscription.inbox.append(message)
                subscription.inbox_octets += size
                self.backlog += 1
                self.backlog_octets += size
                if not subscription.touched:
                    subscription.touched = True
                    touched.append(subscription)
        except RemoteProtocolError as error:
            link.break_off(error)
        self.weigh()
        link.leave_broken()

    def take(self, subscription: Subscription) -> None:
        """Move all that is in an inbox to where consumers take it from."""
        inbox = subscription.inbox
        self.backlog -= len(inbox)
        self.backlog_octets -= subscription.inbox_octets
        subscription.inbox_octets = 0
        subscription.batch.extend(inbox)
        inbox.clear()
        self.weigh()

    # ---- frames of the server ----

    def _control(self, frame: Frame) -> None:
        """Anything but MESSAGE."""
        command = frame.command
        if command == "RECEIPT":
            call = self.link.calls.sent.get(frame.headers["receipt-id"])
            if call is None or call.needs_reply:
                return
            if call.command == "SUBSCRIBE":
                self._confirm(call.subject)
            self.link.finish(call)
            if call.command == "DISCONNECT":
                self.link.end(None)
        elif command == "CONNECTED":
            self.link.connected(frame)
        elif command == "ERROR":
            self._refused(frame)

    def _refused(self, frame: Frame) -> None:
        """ERROR: tied to a call by receipt-id, else raised from iterators, and logged.

        In 1.2 the session is over with it (S12-ERR-02), and before CONNECTED in any version. Then iterators go on
        with the next connection, unless there is none.
        """
        call = self.link.calls.sent.get(frame.get("receipt-id") or "")
        words = said(frame)
        if call is not None:
            self._refused_call(call, words, RejectedError(f"{call.what} was rejected: {words}", frame))
            return
        # It may be about any frame of a block, which sent again would be refused again.
        firsts: dict[Group, Call] = {}
        for each in self.link.calls.sent.values():
            if each.group is not None:
                firsts.setdefault(each.group, each)
        self._refused_session(words, frame)
        for call in firsts.values():
            what = f"{call.what}, or what was sent behind, was rejected: {words}"
            self.link.finish(call, RejectedError(what, frame))

    def _refused_call(self, call: Call, words: str, error: RejectedError) -> None:
        if self._is_over():
            ended = ConnectionLostError(f"the server ended the session: {words}")
            ended.__cause__ = error
            self.link.break_off(ended)
        if call.command == "SUBSCRIBE":
            self.close_subscription(call.subject, error)
        self.link.finish(call, error)

    def _refused_session(self, words: str, frame: Frame) -> None:
        """Handle an ERROR that names no call."""
        link = self.link
        if link.phase == "connecting":
            hint = _VHOST_HINT if "virtual host" in words.lower() else ""
            link.break_off(RejectedError(f"CONNECT was rejected: {words}{hint}", frame))
            return
        error = RejectedError(f"the server sent an ERROR: {words}", frame)
        log.error("%s", error)
        if self._is_over():
            link.break_off(error)
            if link.phase == "restoring":
                self._blame(error)
            return
        for subscription in self.subscriptions.values():
            subscription.news = error
            self.touch(subscription)

    def _is_over(self) -> bool:
        """Return whether an ERROR has ended the connection."""
        return self.link.connection is None or self.link.connection.state is State.FAILED

    def _fetched(self, call: Call, frame: Frame) -> None:
        """The message that a RECEIVE asked for. Its receipt comes behind it."""
        subscription: Subscription = call.subject
        subscription.seq = subscription.open = 1
        call.result = self.message_class(frame, subscription, self.link.epoch, 1)

    def _by_destination(self, frame: Frame) -> Subscription | None:
        """Servers of 1.0 may leave the subscription header out."""
        destination = frame.get("destination")
        return next((each for each in self.subscriptions.values() if each.destination == destination), None)

    def _reply(self, key: str | None, message: BaseMessage) -> None:
        """An answer to a request. One without correlation-id can only be told where a single request waits."""
        if key is None and len(self.replies) == 1:
            key = next(iter(self.replies))
        call = self.replies.get(key or "")
        if call is None:
            log.info("a reply came that nobody waits for (any more)")
        else:
            self.link.finish(call, result=message)

    def expect(self, calls: dict[str, Call], key: str, call: Call) -> None:
        """Keep a call in `replies` or `fetches` until it has its outcome."""
        calls[key] = call
        call.after = lambda _: calls.pop(key, None)

    # ---- subscriptions ----

    def subscribe(self, subscription: Subscription, now: float, call: Call) -> None:
        """Subscribe; the call is accepted once the broker has confirmed, or at once where it shall not.

        Raises:
            LocalProtocolError: the id is taken, the client is closed, or the broker cannot do what is asked.
        """
        self.link.now = now
        self.link.check_open()
        if subscription.id in self.subscriptions:
            raise LocalProtocolError(f"there is a subscription with the id {subscription.id!r} already")
        call.command, call.subject, call.after = "SUBSCRIBE", subscription, self._answered
        subscription.call = call
        self.subscriptions[subscription.id] = subscription
        self.link.calls.open(call, now)
        if self.link.in_session:
            try:
                self._send_subscribe(subscription)
            except StompError:
                del self.subscriptions[subscription.id]
                call.done = True
                raise
        elif not subscription.confirm:
            self.link.finish(call)

    def unsubscribe(
        self, subscription: Subscription, now: float, call: Call | None = None, *, delete: bool = False
    ) -> None:
        """End a subscription. With explicit acks, what is not acknowledged goes back to the broker.

        Args:
            delete: end a durable subscription for good. The call fails where the broker could not be told.
        """
        self.link.now = now
        reach = self.link.in_session and subscription.subscribed and not subscription.closed
        for_good = delete and subscription.durable is not None and not subscription.deleted
        over = subscription.closed
        headers = subscription.unsubscribe_headers(self.link.dialect, self.link.options.client_id, delete)
        self.close_subscription(subscription, None)
        if not reach or self.link.state in ("closing", "closed"):
            if call is not None:
                self.link.finish(call, _not_deleted(subscription, over) if for_good else None)
            return
        if for_good and self.link.dialect.delete_apart:
            self.link.put(Frame("UNSUBSCRIBE", [("id", subscription.id)]), None, bound=True)
        subscription.deleted = for_good
        if call is not None:
            headers.append(("receipt", call.id))
            if for_good:
                call.command = DELETE
        self.link.put(Frame("UNSUBSCRIBE", headers), call, bound=True)

    # ---- subscriptions come back ----

    def _restore(self) -> None:
        """Subscribe again; one by one where one of them is suspected. Once all are confirmed the outbox flows."""
        if self.link.phase != "restoring" or self.link.broken is not None:
            return
        while self._to_restore and not (self._one_by_one and self._restoring):
            subscription = self._to_restore.pop(0)
            if subscription.closed or subscription.subscribed:
                continue
            try:
                self._send_subscribe(subscription)
            except StompError as error:
                log.error("cannot subscribe to %s: %s", subscription.destination, error)
                self.close_subscription(subscription, error)
        if not self._restoring and not self._to_restore:
            self._one_by_one = False
            self.link.restored()

    def restore_all(self) -> None:
        """Subscribe again, on a new connection."""
        self._to_restore = list(self.subscriptions.values())
        self._restore()

    def cut(self) -> None:
        """Drop what the lost connection delivered and nobody took."""
        self._to_restore = []
        self._restoring.clear()
        self.paused = False
        for subscription in self.subscriptions.values():
            subscription.subscribed = subscription.confirmed = False
            subscription.left = 0
            if subscription.explicit:  # they come again
                self.forget(subscription)
                subscription.open = 0
                subscription.settled_to = subscription.seq

    def _send_subscribe(self, subscription: Subscription) -> None:
        """Send SUBSCRIBE on this connection."""
        subscription.attempt_headers = self.link.dialect.attempts
        subscription.folds_case = self.link.version == "legacy"
        if subscription is self.reply_subscription and self.link.dialect.implicit_replies:
            self._confirm(subscription)
            return
        headers = self.subscribe_headers(subscription)
        call = subscription.call
        if not subscription.confirm and not self._one_by_one:
            self.link.transmit(Frame("SUBSCRIBE", headers))
            self._confirm(subscription)
            return
        if call is None or call.done:
            what = f"SUBSCRIBE to {subscription.destination}"
            call = self.link.calls.make(what, self.link.options.receipt_timeout, "SUBSCRIBE")
            call.subject, call.after = subscription, self._answered
            self.link.calls.open(call, self.link.now)
        self.link.transmit(Frame("SUBSCRIBE", [*headers, ("receipt", call.id)]), call)
        subscription.subscribed = True
        subscription.receipt_id = call.id
        if self.link.phase == "restoring":
            self._restoring[call.id] = subscription

    def _answered(self, call: Call) -> None:
        """Go on restoring after the outcome of a SUBSCRIBE; give up a subscription that was not confirmed in time."""
        subscription: Subscription = call.subject
        if self._restoring.pop(call.id, None) is not None:
            self._restore()
        if isinstance(call.error, ReceiptTimeoutError):
            if subscription.call is call:
                self.unsubscribe(subscription, self.link.now)
                subscription.error = call.error
            else:
                log.warning("%s", call.error)

    def subscribe_headers(self, subscription: Subscription) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE or RECEIVE, as `Subscription.subscribe_headers`."""
        options = self.link.options
        return subscription.subscribe_headers(self.link.dialect, options.client_id, options.topic_queues, self.new_id)

    def _confirm(self, subscription: Subscription) -> None:
        """The broker has it: by RECEIPT, or by a first message."""
        subscription.subscribed = subscription.confirmed = True
        for call in (subscription.call, self.link.calls.sent.get(subscription.receipt_id)):
            if call is not None:
                self.link.finish(call)

    def _blame(self, error: RejectedError) -> None:
        """An ERROR without receipt-id ends a restore: a subscription that is refused must not come back for ever."""
        if len(self._restoring) == 1:
            ((_, subscription),) = self._restoring.items()
            self.close_subscription(subscription, error)
        else:
            self._one_by_one = True

    def close_subscription(self, subscription: Subscription, error: Exception | None) -> None:
        """It leaves the set that is restored. Iterators end, or raise the error."""
        if subscription.closed:
            return
        if self.subscriptions.get(subscription.id) is subscription:
            del self.subscriptions[subscription.id]
        subscription.closed = subscription.deaf = True
        subscription.error = error
        if subscription.explicit:
            self.forget(subscription)
        why = error or ConnectionLostError("the subscription was closed")
        if subscription is self.reply_subscription:
            self.reply_subscription = None
            for call in list(self.replies.values()):
                self.link.finish(call, why)
        if subscription.call is not None:
            self.link.finish(subscription.call, why)
        restoring = [key for key, each in self._restoring.items() if each is subscription]
        for key in restoring:
            self.link.finish(self.link.calls.sent[key], why)
        self.touch(subscription)

    def end(self, error: Exception | None) -> None:
        """End all subscriptions."""
        for subscription in list(self.subscriptions.values()):
            self.close_subscription(subscription, error)

    def forget(self, subscription: Subscription) -> None:
        """Drop what was not handed out."""
        self.backlog -= len(subscription.inbox)
        self.backlog_octets -= subscription.inbox_octets
        subscription.open -= subscription.forget()
        self.weigh()

    def touch(self, subscription: Subscription) -> None:
        """Its consumer has to look."""
        if not subscription.touched:
            subscription.touched = True
            self.touched.append(subscription)

    # ---- the last resort against too much ----

    def weigh(self) -> None:
        """Pause reading at a mark, go on at half of it. Calls that wait for receipts must not wait for a consumer."""
        share = max(
            self.backlog / self.link.options.inbox_messages,
            self.backlog_octets / self.link.options.inbox_octets,
        )
        mark = _URGENT if self.link.calls.sent else 1
        if not self.paused and share >= mark and self.link.connection is not None:
            self.paused, self._excused_at = True, self.link.now
        elif self.paused and share < (mark if mark > 1 else 0.5):
            if self.link.connection is not None:
                self.link.connection.excuse(self.unread())
            self.paused = False

    def unread(self) -> float:
        """Seconds since we stopped reading that are not yet excused."""
        if not self.paused:
            return 0.0
        since, self._excused_at = self._excused_at, self.link.now
        return max(self.link.now - since, 0.0)


def _not_deleted(subscription: Subscription, over: bool) -> StompError:
    """Return why a durable subscription is still there."""
    what = f"the durable subscription {subscription.durable!r} was not deleted"
    if over:
        return LocalProtocolError(f"{what}: it had been unsubscribed before; subscribe again, then delete it")
    return ConnectionLostError(f"{what}: there is no connection", sent=False)
