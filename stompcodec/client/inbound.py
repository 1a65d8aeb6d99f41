"""What comes to a client, without I/O: messages into inboxes, answers to calls, and subscriptions that come back.

After CONNECTED the order is fixed: subscriptions first, then, once they are confirmed, what waits in the outbox. Too
many messages that nobody takes make reading pause; what brokers hold back by `prefetch` never gets so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stompcodec.client.link import Link, log
from stompcodec.client.message import BaseMessage
from stompcodec.client.options import Options
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame
from stompcodec.errors import ConnectionLostError, RejectedError, RemoteProtocolError, StompError
from stompcodec.states import State

__all__ = ["Intake", "said"]

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


class Intake(Link):
    """The part of the core that receives."""

    def __init__(
        self, options: Options, new_id: Callable[[], str], message_class: type[BaseMessage] = BaseMessage
    ) -> None:
        super().__init__(options)
        self.new_id = new_id
        self.message_class = message_class  # what a MESSAGE becomes
        self.subscriptions: dict[str, Subscription] = {}  # what a new connection restores
        self.touched: list[Subscription] = []  # those with news
        self.paused = False  # the shell has to leave octets in the kernel
        self.backlog = 0  # messages in inboxes
        self.backlog_octets = 0
        self._excused_at = 0.0
        self._to_restore: list[Subscription] = []
        self._one_by_one = False  # an ERROR without receipt-id came while restoring: find out which one it was
        self._reply_subscription: Subscription | None = None

    def receive(self, data: Any, now: float) -> None:
        """Take in octets. Whatever a peer sends raises nothing: the connection is lost, and `connection` is None."""
        connection = self.connection
        if connection is None:
            return
        self._now = now
        subscriptions, touched, trace, epoch = self.subscriptions, self.touched, self.trace, self.epoch
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
                    if name in self._fetches:
                        self._fetched(self._fetches[name], frame)
                    continue
                if not subscription.confirmed:
                    self._confirm(subscription)
                subscription.seq = seq = subscription.seq + 1
                message = message_class(frame, subscription, epoch, seq)
                if subscription is self._reply_subscription:
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
            self._break(error)
        self._weigh()
        self._leave_broken()

    def take(self, subscription: Subscription) -> None:
        """Move all that is in an inbox to where consumers take it from."""
        inbox = subscription.inbox
        self.backlog -= len(inbox)
        self.backlog_octets -= subscription.inbox_octets
        subscription.inbox_octets = 0
        subscription.batch.extend(inbox)
        inbox.clear()
        self._weigh()

    # ---- frames of the server ----

    def _control(self, frame: Frame) -> None:
        """Anything but MESSAGE."""
        command = frame.command
        if command == "RECEIPT":
            call = self.calls.sent.get(frame.headers["receipt-id"])
            if call is None or call.needs_reply:
                return
            if call.command == "SUBSCRIBE":
                self._confirm(call.subject)
            self._finish(call)
            if call.command == "DISCONNECT":
                self.end(None)
        elif command == "CONNECTED":
            self._connected(frame)
        elif command == "ERROR":
            self._refused(frame)

    def _refused(self, frame: Frame) -> None:
        """ERROR: tied to a call by receipt-id, else raised from iterators, and logged.

        In 1.2 the session is over with it (S12-ERR-02), and before CONNECTED in any version. Then iterators go on
        with the next connection, unless there is none.
        """
        words = said(frame)
        call = self.calls.sent.get(frame.get("receipt-id") or "")
        over = self.connection is None or self.connection.state is State.FAILED
        if call is not None:
            error = RejectedError(f"{call.what} was rejected: {words}", frame)
            if over:
                ended = ConnectionLostError(f"the server ended the session: {words}")
                ended.__cause__ = error
                self._break(ended)
            if call.command == "SUBSCRIBE":
                self.close_subscription(call.subject, error)
            self._finish(call, error)
            return
        if self._phase == "asked":
            hint = _VHOST_HINT if "virtual host" in words.lower() else ""
            self._break(RejectedError(f"CONNECT was rejected: {words}{hint}", frame))
            return
        error = RejectedError(f"the server sent an ERROR: {words}", frame)
        log.error("%s", error)
        if over:
            self._break(error)
            if self._phase == "restoring":
                self._blame(error)
            return
        for subscription in self.subscriptions.values():
            subscription.news = error
            self.touch(subscription)

    def _fetched(self, call: Call, frame: Frame) -> None:
        """The message that a RECEIVE asked for. Its receipt comes behind it."""
        subscription: Subscription = call.subject
        subscription.seq = subscription.open = 1
        call.result = self.message_class(frame, subscription, self.epoch, 1)

    def _by_destination(self, frame: Frame) -> Subscription | None:
        """Servers of 1.0 may leave the subscription header out."""
        destination = frame.get("destination")
        return next((each for each in self.subscriptions.values() if each.destination == destination), None)

    def _reply(self, key: str | None, message: BaseMessage) -> None:
        """An answer to a request. One without correlation-id can only be told where a single request waits."""
        if key is None and len(self._replies) == 1:
            key = next(iter(self._replies))
        call = self._replies.get(key or "")
        if call is None:
            log.info("a reply came that nobody waits for (any more)")
        else:
            self._finish(call, result=message)

    # ---- subscriptions come back ----

    def _restore(self) -> None:
        """Subscribe again; one by one where one of them is suspected. Once all are confirmed the outbox flows."""
        if self._phase != "restoring" or self._broken is not None:
            return
        while self._to_restore and not (self._one_by_one and self._restoring):
            subscription = self._to_restore.pop(0)
            if subscription.closed or subscription.subscribed:
                continue
            try:
                self._subscribe(subscription)
            except StompError as error:
                log.error("cannot subscribe to %s: %s", subscription.destination, error)
                self.close_subscription(subscription, error)
        if not self._restoring and not self._to_restore:
            self._one_by_one = False
            self._up()

    def _connected(self, frame: Frame) -> None:
        self._to_restore = list(self.subscriptions.values())
        super()._connected(frame)

    def _cut(self, reason: ConnectionLostError) -> None:
        self._to_restore = []
        self.paused = False
        for subscription in self.subscriptions.values():
            subscription.subscribed = subscription.confirmed = False
            subscription.left = 0
            if subscription.explicit:  # they come again
                self.forget(subscription)
                subscription.open = 0
                subscription.settled_to = subscription.seq
        super()._cut(reason)

    def _subscribe(self, subscription: Subscription) -> None:
        """Send SUBSCRIBE on this connection."""
        subscription.attempt_headers = self.dialect.attempts
        subscription.folds_case = self.version == "legacy"
        if subscription is self._reply_subscription and self.dialect.implicit_replies:
            self._confirm(subscription)
            return
        headers = self._subscribe_headers(subscription)
        call = subscription.call
        if not subscription.confirm and not self._one_by_one:
            self._transmit(Frame("SUBSCRIBE", headers))
            self._confirm(subscription)
            return
        if call is None or call.done:
            what = f"SUBSCRIBE to {subscription.destination}"
            call = self.calls.make(what, self.options.receipt_timeout, "SUBSCRIBE")
            call.subject = subscription
            self.calls.open(call, self._now)
        self._transmit(Frame("SUBSCRIBE", [*headers, ("receipt", call.id)]), call)
        subscription.subscribed = True
        subscription.receipt_id = call.id
        if self._phase == "restoring":
            self._restoring[call.id] = subscription

    def _subscribe_headers(self, subscription: Subscription) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE or RECEIVE, as `Subscription.subscribe_headers`."""
        options = self.options
        return subscription.subscribe_headers(self.dialect, options.client_id, options.topic_queues, self.new_id)

    def _confirm(self, subscription: Subscription) -> None:
        """The broker has it: by RECEIPT, or by a first message."""
        subscription.subscribed = subscription.confirmed = True
        for call in (subscription.call, self.calls.sent.get(subscription.receipt_id)):
            if call is not None:
                self._finish(call)

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
        if subscription is self._reply_subscription:
            self._reply_subscription = None
            for call in list(self._replies.values()):
                self._finish(call, why)
        if subscription.call is not None:
            self._finish(subscription.call, why)
        restoring = [key for key, each in self._restoring.items() if each is subscription]
        for key in restoring:
            self._finish(self.calls.sent[key], why)
        self.touch(subscription)

    def _end_subscriptions(self, error: Exception | None) -> None:
        for subscription in list(self.subscriptions.values()):
            self.close_subscription(subscription, error)

    def forget(self, subscription: Subscription) -> None:
        """Drop what was not handed out."""
        self.backlog -= len(subscription.inbox)
        self.backlog_octets -= subscription.inbox_octets
        subscription.open -= subscription.forget()
        self._weigh()

    def touch(self, subscription: Subscription) -> None:
        """Its consumer has to look."""
        if not subscription.touched:
            subscription.touched = True
            self.touched.append(subscription)

    # ---- the last resort against too much ----

    def _weigh(self) -> None:
        """Pause reading at a mark, go on at half of it. Calls that wait for receipts must not wait for a consumer."""
        share = max(
            self.backlog / self.options.inbox_messages,
            self.backlog_octets / self.options.inbox_octets,
        )
        mark = _URGENT if self.calls.sent else 1
        if not self.paused and share >= mark and self.connection is not None:
            self.paused, self._excused_at = True, self._now
        elif self.paused and share < (mark if mark > 1 else 0.5):
            if self.connection is not None:
                self.connection.excuse(self._unread())
            self.paused = False

    def _unread(self) -> float:
        """Seconds since we stopped reading that are not yet excused."""
        if not self.paused:
            return 0.0
        since, self._excused_at = self._excused_at, self._now
        return max(self._now - since, 0.0)
