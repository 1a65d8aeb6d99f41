"""The client without I/O: what users ask for, on top of what comes (`inbound`) and what is sent (`link`).

A shell calls `opened`, `receive`, `writable`, `lost`, `tick`, writes what `take_output` gives, and after each of them
looks at `connection` (None: abort the transport), `paused`, `calls.finished`, `touched`, `events` and `trace`. The
core is not thread-safe: a shell holds one lock around it, and runs no code of users under that lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stompcodec.client.inbound import said
from stompcodec.client.link import DELETE
from stompcodec.client.message import BaseMessage
from stompcodec.client.offers import Offers
from stompcodec.client.options import Options
from stompcodec.client.outbox import Block, OutboxFullError
from stompcodec.client.receipts import Call, Group
from stompcodec.client.subscription import Subscription
from stompcodec.client.transaction import BaseTransaction
from stompcodec.codec import Frame
from stompcodec.errors import (
    ConnectionLostError,
    LocalProtocolError,
    RejectedError,
    RemoteProtocolError,
    StaleAckError,
    StompError,
)

__all__ = ["REPLIES", "ClientCore"]

#: The temporary queue for replies, and the id of its subscription: some brokers use the name for both.
REPLIES = "/temp-queue/replies"


class ClientCore(Offers):
    """One client over all its connections.

    Args:
        options: as `connect` takes them.
        new_id: makes ids that nobody else makes, for correlation and for what may be sent twice.
        make_replies: makes the subscription by which replies to requests come.
        message_class: what a MESSAGE becomes.

    >>> core = ClientCore(Options(heart_beat=(0, 0)), lambda: "id")
    >>> core.opened(0.0, host="h", login=None, passcode=None, whole_frames=False)
    >>> core.take_output(0.0)
    [b'CONNECT\\naccept-version:1.0,1.1,1.2\\nhost:h\\n\\n\\x00']
    >>> core.receive(b"CONNECTED\\nversion:1.2\\n\\n\\0", 0.1)
    >>> core.send(Frame("SEND", {"destination": "/queue/a"}, b"hello"), 0.2), core.take_output(0.2)
    (True, [b'SEND\\ndestination:/queue/a\\ncontent-length:5\\n\\nhello\\x00'])
    """

    def __init__(
        self,
        options: Options,
        new_id: Callable[[], str],
        make_replies: Callable[[], Subscription] = lambda: Subscription(REPLIES, id=REPLIES),
        message_class: type[BaseMessage] = BaseMessage,
    ) -> None:
        super().__init__(options, new_id, message_class)
        self._make_replies = make_replies
        self._drained: list[Subscription] = []

    # ---- waiting ----

    def when_room(self, call: Call, now: float, octets: int, frames: int = 1) -> None:
        """The call is accepted once the outbox has room for a body of so many octets, or for a block."""
        self.calls.open(call, now)
        self._room.append((call, octets, frames))

    def when_connected(self, call: Call, now: float) -> None:
        """The call is accepted once there is a connection and the subscriptions are back.

        Raises:
            LocalProtocolError: the client is closed.
        """
        self._check_open()
        if self._phase == "up":
            self._finish(call)
        else:
            self.calls.open(call, now)
            self._waiters.append(call)

    # ---- sending ----

    def send(self, frame: Frame, now: float, call: Call | None = None, *, text: bool = False) -> bool:
        """Send a frame of the user's; with a call, one whose receipt header is the call's id.

        Args:
            text: leave out content-length where the broker would take it for a sign of a binary message.

        Returns:
            False when the outbox is full: wait for room (`when_room`) and try again.

        Raises:
            LocalProtocolError: the client is closed.
            OutboxFullError: it is full, and the options say not to wait.
            FrameError: the frame cannot be written in this version of STOMP.
        """
        self._now = now
        self._check_open()
        if not self.outbox.has_room(len(frame.body)):
            if self.options.outbox_full == "raise":
                raise OutboxFullError(f"{self.outbox.frames} frames wait to be sent already")
            return False
        self._put(frame, call, text=text)
        return True

    def send_block(
        self, block: Block, now: float, call: Call | None = None, transaction: BaseTransaction | None = None
    ) -> bool:
        """Send many frames at once; with a call, the last of them has its id as receipt header.

        Returns:
            False when the outbox has no room: wait for it (`when_room`) and try again.

        Raises:
            LocalProtocolError: the client is closed.
            ConnectionLostError, LocalProtocolError: as `BaseTransaction.check`.
            StompError: an earlier call of its group has failed, by this.
        """
        self._now = now
        if transaction is not None:
            transaction.check()
        self._check_open()
        if call is not None and call.group is not None and call.group.failed is not None:
            raise call.group.failed
        if not self.outbox.has_room(len(block.body), block.count):
            return False
        self._put(block, call, bound=transaction is not None)
        return True

    def _refused(self, frame: Frame) -> None:
        """An ERROR that names no call may be about any frame of a block, and sent again it would come again."""
        firsts: dict[Group, Call] = {}
        if frame.get("receipt-id") not in self.calls.sent:
            for call in self.calls.sent.values():
                if call.group is not None:
                    firsts.setdefault(call.group, call)
        super()._refused(frame)
        for call in firsts.values():
            what = f"{call.what}, or what was sent behind, was rejected: {said(frame)}"
            self._finish(call, RejectedError(what, frame))

    def request(self, pairs: list[tuple[str, str]], body: bytes, now: float, call: Call, *, text: bool = False) -> bool:
        """SEND with a reply-to of ours. The call's result is the message that comes back. Otherwise as `send`."""
        self._now = now
        self._check_open()
        if self._reply_subscription is None:
            self._reply_subscription = self._make_replies()
            try:
                self.subscribe(self._reply_subscription, now, self.calls.make("replies", self.options.receipt_timeout))
            except StompError:
                self._reply_subscription = None
                raise
        key = self.new_id()
        pairs = [*pairs, ("reply-to", REPLIES), ("correlation-id", key), ("receipt", call.id)]
        call.needs_reply, call.subject = True, key
        if not self.send(Frame("SEND", pairs, body), now, call, text=text):
            return False
        self._replies[key] = call
        return True

    # ---- subscriptions ----

    def subscribe(self, subscription: Subscription, now: float, call: Call) -> None:
        """Subscribe; the call is accepted once the broker has confirmed, or at once where it shall not.

        Raises:
            LocalProtocolError: the id is taken, the client is closed, or the broker cannot do what is asked.
        """
        self._now = now
        self._check_open()
        if subscription.id in self.subscriptions:
            raise LocalProtocolError(f"there is a subscription with the id {subscription.id!r} already")
        call.command, call.subject = "SUBSCRIBE", subscription
        subscription.call = call
        self.subscriptions[subscription.id] = subscription
        self.calls.open(call, now)
        if self.in_session:
            try:
                self._subscribe(subscription)
            except StompError:
                del self.subscriptions[subscription.id]
                call.done = True
                raise
        elif not subscription.confirm:
            self._finish(call)

    def unsubscribe(
        self, subscription: Subscription, now: float, call: Call | None = None, *, delete: bool = False
    ) -> None:
        """End a subscription. With explicit acks, what is not acknowledged goes back to the broker.

        Args:
            delete: end a durable subscription for good. The call fails where the broker could not be told.
        """
        self._now = now
        reach = self.in_session and subscription.subscribed and not subscription.closed
        for_good = delete and subscription.durable is not None and not subscription.deleted
        over = subscription.closed
        headers = subscription.unsubscribe_headers(self.dialect, self.options.client_id, delete)
        self.close_subscription(subscription, None)
        if not reach or self.state in ("closing", "closed"):
            if call is not None:
                self._finish(call, _not_deleted(subscription, over) if for_good else None)
            return
        if for_good and self.dialect.delete_apart:
            self._put(Frame("UNSUBSCRIBE", [("id", subscription.id)]), None, bound=True)
        subscription.deleted = for_good
        if call is not None:
            headers.append(("receipt", call.id))
            if for_good:
                call.command = DELETE
        self._put(Frame("UNSUBSCRIBE", headers), call, bound=True)

    def _drop_subscription(self, subscription: Subscription) -> None:
        self.unsubscribe(subscription, self._now)

    # ---- settling ----

    def acknowledge(self, message: BaseMessage) -> bool:
        """The quick way for what most acknowledgements are; False where `settle` has to look at it.

        It may only skip: nothing is in the way of the frame, and no header of it needs an escape.
        """
        subscription = message.subscription
        connection = self.connection
        ack = message.frame.get("ack")
        if (
            ack is None
            or message.settled
            or message.epoch != self.epoch
            or subscription.ack != "client-individual"
            or subscription.closed
            or self.version != "1.2"
            or self.state != "connected"
            or self._phase != "up"
            or not self._writable
            or self.outbox
            or self.trace is not None
            or connection is None
            or ":" in ack
            or "\\" in ack
            or not ack.isprintable()
        ):
            return False
        connection.output.append(b"ACK\nid:%b\n\n\0" % ack.encode())
        message.settled = "ACK"
        subscription.open -= 1
        return True

    def settle(
        self,
        message: BaseMessage,
        command: str,
        now: float,
        call: Call | None = None,
        *,
        requeue: bool | None = None,
        transaction: BaseTransaction | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """ACK or NACK a message. Nothing is sent where that was done already, or where acks are automatic.

        Raises:
            StaleAckError: the message came by an older connection, or its subscription is over. Nothing was sent.
            LocalProtocolError: it was settled the other way, or this version or broker cannot do it.
            ConnectionLostError, LocalProtocolError: as `BaseTransaction.check`.
        """
        self._now = now
        subscription = message.subscription
        if transaction is not None:
            transaction.check()
        if not subscription.explicit or message.settled:
            self._settle_again(message, command, call)
            return
        if message.epoch != self.epoch or subscription.closed or self.state in ("closing", "closed"):
            raise StaleAckError(f"{command} after the end of its connection or subscription: the message comes again")
        if subscription.cumulative and message.seq <= subscription.settled_to:
            self._settle_again(message, command, call)
            return
        headers = self._ack_headers(message, command)
        if command == "NACK":
            headers += self.dialect.nack_headers(requeue, transaction is not None)
        headers += (more or {}).items()
        if transaction is not None:
            headers.append(("transaction", transaction.id))
        if call is not None:
            headers.append(("receipt", call.id))
        self._put(Frame(command, headers), call, bound=True)
        count = message.seq - subscription.settled_to if subscription.cumulative else 1
        if transaction is not None:
            transaction.settled.append((message, subscription.settled_to, count))
        message.settled = command
        subscription.open -= count
        if subscription.cumulative:
            subscription.settled_to = message.seq

    def _settle_again(self, message: BaseMessage, command: str, call: Call | None) -> None:
        """The message needs nothing more: saying the same again is fine."""
        if command != (message.settled or "ACK"):
            why = f"it had {message.settled} before" if message.settled else "it is acknowledged without a word"
            raise LocalProtocolError(f"no {command} for this message: {why}")
        if call is not None:
            self._finish(call)

    def _ack_headers(self, message: BaseMessage, command: str) -> list[tuple[str, str]]:
        """What names the message: each version does it otherwise (S12-ACK-01, S11-ACK-01, S11-ACK-02, S10-ACK-01)."""
        if self.version == "1.2":
            ack = message.frame.get("ack")
            if ack is None:
                raise RemoteProtocolError("the server sent this message without an ack header: it cannot be settled")
            return [("id", ack)]
        if self.version in ("1.0", "legacy"):
            if command == "NACK":
                raise LocalProtocolError(
                    f"STOMP {self.version} has no NACK: leave the message, it comes again after a reconnect"
                )
            return [("message-id", message.id)]
        return [("message-id", message.id), ("subscription", message.subscription.id)]

    # ---- transactions ----

    def begin(self, transaction: BaseTransaction, now: float) -> bool:
        """BEGIN; False where there is no connection just now: wait (`when_connected`) and try again."""
        self._now = now
        self._check_open()
        if self._phase != "up":
            return False
        self._put(Frame("BEGIN", [("transaction", transaction.id)]), None, bound=True)
        transaction.state, transaction.epoch = "open", self.epoch
        self._transactions[transaction.id] = transaction
        return True

    def send_in(
        self, transaction: BaseTransaction, pairs: list[tuple[str, str]], body: bytes, now: float, *, text: bool
    ) -> bool:
        """SEND in a transaction. Returns and raises as `send` and `BaseTransaction.check`."""
        self._now = now
        transaction.check()
        self._check_open()
        if not self.outbox.has_room(len(body)):
            if self.options.outbox_full == "raise":
                raise OutboxFullError(f"{self.outbox.frames} frames wait to be sent already")
            return False
        frame = Frame("SEND", [*pairs, ("transaction", transaction.id)], body)
        self._put(frame, None, bound=True, text=text)
        return True

    def finish_transaction(self, transaction: BaseTransaction, command: str, now: float, call: Call) -> None:
        """COMMIT or ABORT. The call's outcome is that of all that was done in it.

        Raises:
            ConnectionLostError, LocalProtocolError: as `BaseTransaction.check`.
        """
        self._now = now
        transaction.check()
        self._check_open()
        call.command, call.subject = command, transaction
        if command == "ABORT":
            transaction.undo()
        self._put(Frame(command, [("transaction", transaction.id), ("receipt", call.id)]), call, bound=True)
        transaction.state = "committing" if command == "COMMIT" else "aborted"

    # ---- the end ----

    def close(self, now: float, call: Call, timeout: float | None = None) -> None:
        """Say goodbye behind all that waits. The call is accepted once the client is closed.

        Args:
            timeout: seconds to wait for the answer to DISCONNECT; None for the option `close_timeout`.
        """
        self._now = now
        if self.state == "closed":
            self._finish(call)
            return
        self.calls.open(call, now)
        self._closers.append(call)
        if self.state == "closing":
            return
        self._enter("closing", None)
        if not self.in_session:
            self.end(None)
            return
        seconds = self.options.close_timeout if timeout is None else timeout
        bye = self.calls.make("DISCONNECT", seconds, "DISCONNECT")
        self._put(Frame("DISCONNECT", [("receipt", bye.id)]), bye, bound=True)

    def drain(self, now: float) -> None:
        """Let nothing more in: what is handed out can be finished, what is not goes back to the broker.

        Automatic acknowledgements cannot be taken back: those messages stay to be taken.
        """
        self._now = now
        for subscription in list(self.subscriptions.values()):
            if subscription.explicit:
                subscription.deaf = True
                self.forget(subscription)
                self.touch(subscription)
            elif subscription is not self._reply_subscription:
                self.unsubscribe(subscription, now)
                self._drained.append(subscription)

    def is_quiet(self) -> bool:
        """Nothing waits: no frame, no receipt, no message that was handed out, none that is to be taken."""
        if self.outbox.frames or self.calls.sent:
            return False
        if any(each.explicit and each.open > 0 for each in self.subscriptions.values()):
            return False
        return not any(each.inbox or each.batch for each in self._drained)


def _not_deleted(subscription: Subscription, over: bool) -> StompError:
    """Return why a durable subscription is still there."""
    what = f"the durable subscription {subscription.durable!r} was not deleted"
    if over:
        return LocalProtocolError(f"{what}: it had been unsubscribed before; subscribe again, then delete it")
    return ConnectionLostError(f"{what}: there is no connection", sent=False)
