"""The client without I/O: what programs call, above `link` (sending) and `inbound` (receiving).

A shell calls `opened`, `writable`, `lost` and `tick` of the link and `receive` of the inbound half, and writes what
`link.take_output` returns. After each of them it looks at `link.connection` (None: abort the transport), `link.events`,
`link.trace`, `link.calls.finished`, `inbound.paused` and `inbound.touched`. The core is not thread-safe: a shell holds
one lock around it, and runs no code of users under that lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from stompcodec.client.handlers import answer_of, in_hand, note
from stompcodec.client.inbound import Inbound
from stompcodec.client.link import ClientLink, log
from stompcodec.client.messages import SETTLED, BaseMessage, BaseTransaction, Settled, Subscription, unreadable
from stompcodec.client.options import Options
from stompcodec.client.outbox import Block, Call, OutboxFullError, Upload, Waiting
from stompcodec.codec import Frame
from stompcodec.errors import (
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    StaleAckError,
    StompError,
)

_unread_log = logging.getLogger("stompcodec.client.unreadable")


class ClientCore:
    """A client without I/O, over all its connections.

    `new_id` returns unique ids, for correlation and for messages that may be sent twice. `make_replies` returns the
    subscription for replies to a name, which is its id, too, as some brokers use the name for both.

    >>> core = ClientCore(Options(heart_beat=(0, 0)), lambda: "id")
    >>> core.link.opened(0.0, host="h", login=None, passcode=None, whole_frames=False)
    >>> core.link.take_output(0.0)
    [b'CONNECT\\naccept-version:1.0,1.1,1.2\\nhost:h\\n\\n\\x00']
    >>> core.inbound.receive(b"CONNECTED\\nversion:1.2\\n\\n\\0", 0.1)
    >>> core.send(Frame("SEND", {"destination": "/queue/a"}, b"hello"), 0.2), core.link.take_output(0.2)
    (True, [b'SEND\\ndestination:/queue/a\\ncontent-length:5\\n\\nhello\\x00'])
    """

    def __init__(
        self,
        options: Options,
        new_id: Callable[[], str],
        make_replies: Callable[[str], Subscription] = lambda name: Subscription(name, id=name),
        message_class: type[BaseMessage] = BaseMessage,
    ) -> None:
        self.link = ClientLink(options)
        self.inbound = self.link.inbox = Inbound(self.link, new_id, message_class)
        self.inbound.give_back = self._give_back
        self.inbound.violated = self._violated
        self._make_replies = make_replies
        self._drained: list[Subscription] = []
        self._bye: Call | None = None  # DISCONNECT, while it waits for the answer to a COMMIT

    def _ready(self, now: float, transaction: BaseTransaction | None = None) -> ClientLink:
        """Return the link, whose time is now; raise if the client is closed, or as `BaseTransaction.check`."""
        self.link.now = now
        if transaction is not None:
            transaction.check()
        self.link.check_open()
        return self.link

    # ---- waiting ----
    def when_room(self, call: Call, now: float, octets: int, frames: int = 1) -> None:
        """Accept the call once the outbox has room for a body or block of this size."""
        self.link.calls.open(call, now)
        self.link.room.append((call, octets, frames))

    def when_connected(self, now: float, call: Call) -> None:
        """Accept the call once subscriptions are restored on a connection. LocalProtocolError: the client is closed."""
        self.link.check_open()
        if self.link.phase == "up":
            self.link.finish(call)
        else:
            self.link.calls.open(call, now)
            self.link.waiters.append(call)

    # ---- sending ----
    def send(
        self,
        frame: Frame,
        now: float,
        call: Call | None = None,
        *,
        text: bool | str = False,
        transaction: BaseTransaction | None = None,
    ) -> bool:
        """Send a SEND frame; return False if the outbox is full: wait for room (`when_room`) and try again.

        With a call, its receipt header is the call's id. `text` leaves out content-length if it makes the message a
        binary one for this broker. Raises as `Client.send` and `BaseTransaction.check`.
        """
        link = self.link  # as `_ready`, without a call
        link.now = now
        if transaction is not None:
            transaction.check()
        link.check_open()
        if not self._has_room(len(frame.body)):
            return False
        if transaction is not None or link.has_handlers:
            more = [] if transaction is None else [("transaction", transaction.id)]
            frame = Frame("SEND", [*link.cause(), *frame.headers.pairs(), *more], frame.body)
        link.put(frame, call, bound=transaction is not None, text=text)
        return True

    def _has_room(self, octets: int) -> bool:
        """Return whether the outbox has room; raise OutboxFullError if it has none, and the options say so."""
        link = self.link
        if link.outbox.has_room(octets):
            return True
        if link.options.outbox_full == "raise":
            raise OutboxFullError(f"the outbox is full: {link.outbox.frames} frames wait to be sent")
        return False

    def send_block(
        self, block: Block, now: float, call: Call | None = None, transaction: BaseTransaction | None = None
    ) -> bool:
        """Send many frames at once, the last one with the call's receipt; return False if the outbox has no room."""
        self._ready(now, transaction)
        if call is not None and call.group is not None and call.group.failed is not None:
            raise call.group.failed
        if not self.link.outbox.has_room(len(block.body), block.count):
            return False
        self.link.put(block, call, bound=transaction is not None)
        return True

    # ---- sending a body piece by piece: `Upload` has the states ----
    def upload(self, upload: Upload, now: float, transaction: BaseTransaction | None = None) -> bool:
        """Put a SEND into the outbox whose body follows by `ask` and `feed`. Returns and raises as `send`."""
        link = self._ready(now, transaction)
        if not self._has_room(0):
            return False
        if transaction is not None:
            upload.pairs.append(("transaction", transaction.id))
        upload.pairs[:0] = link.cause()
        upload.head(link.version)  # errors go to the caller
        if upload.call is not None:
            upload.call.after = lambda _: link.answered(upload)
        link.outbox.push(Waiting(upload, upload.call, 0 if transaction is None else link.epoch))
        return True

    def ask(self, upload: Upload, now: float, call: Call) -> None:
        """Accept the call when a piece of a body is wanted, with its offset; with -1 to ask again, None at the end."""
        self.link.now = now
        if upload.state != "sent":  # its receipt has a timeout of its own
            self.link.calls.open(call, now)
        upload.asked = call
        self.link.look(upload)

    def feed(self, upload: Upload, at: int, piece: bytes, now: float) -> None:
        """Send the piece of a body that was asked for; b"" at the end."""
        self.link.now = now
        if piece:
            self.link.feed(upload, at, piece)
        else:
            self.link.end_body(upload)

    def give_up(self, upload: Upload, why: str, now: float) -> None:
        """End an upload whose source has failed, or whose caller waits no longer. In its body the connection ends."""
        self.link.now = now
        if upload.state in ("waiting", "open"):
            self.link.fail(upload, ConnectionLostError(f"{upload.what}: {why}", sent=False))
            self.link.leave_broken()
        elif upload.call is not None:
            upload.call.resend = False  # there is no source any more

    def request(self, pairs: list[tuple[str, str]], body: bytes, now: float, call: Call, *, text: bool = False) -> bool:
        """Send a request; the call's result is the reply. Returns and raises as `send`."""
        link, inbound = self._ready(now), self.inbound
        if not self._has_room(len(body)):
            return False
        key = inbound.new_id()
        replies = inbound.reply_subscription or self._make_replies(link.dialect.replies.format(inbound.new_id()))
        pairs = [*link.cause(), *pairs, ("reply-to", replies.destination)]
        if link.suits:
            link.suit(pairs)
        frame = Frame("SEND", [*pairs, ("correlation-id", key), *call.receipt], body)
        if inbound.reply_subscription is None:
            link.try_out(frame)
            inbound.reply_subscription = replies
            try:
                what = f"SUBSCRIBE to {replies.destination} for replies{link.dialect.rights}"
                inbound.subscribe(replies, now, link.calls.make(what, link.options.receipt_timeout))
            except Exception:
                inbound.reply_subscription = None
                raise
        call.needs_reply = True
        link.put(frame, call, text=text)
        inbound.expect(key, call)
        return True

    # ---- PING and RECEIVE, which only some brokers offer ----
    def _offers(self, command: str) -> bool:
        """Return whether the broker named the command in CONNECTED, and no relay passed that on."""
        link = self.link
        if link.server is None or link.is_relayed or command in link.unknown:
            return False
        return command in (link.server.get("commands") or "").split(",")

    def ping(self, now: float, call: Call) -> bool:
        """Send PING, or where it is not offered the BEGIN of an empty transaction. Return False without a connection.
        Over WebSocket there may be a relay, which knows no PING, and reorders BEGIN and ABORT: one waits for the other.
        """
        link, name = self._ready(now), f"ping-{call.id}"
        if not link.options.receipts:
            raise LocalProtocolError("PING not sent: with receipts=False there is no answer to wait for")
        if link.phase != "up":
            return False
        if self._offers("PING") and (link.address is None or not link.address.websocket):
            link.put(Frame("PING", call.receipt), call, bound=True)
            return True

        def abort(call: Call) -> None:
            if call.sent and link.state == "connected" and not isinstance(call.error, RejectedError):
                link.put(Frame("ABORT", [("transaction", name)]), None, bound=True)

        call.command, call.after = "BEGIN", abort
        link.put(Frame("BEGIN", [("transaction", name), *call.receipt]), call, bound=True)
        return True

    def fetch(self, subscription: Subscription, now: float, call: Call) -> bool:
        """Send RECEIVE; the call's result is a message or None. Return False without a connection.

        LocalProtocolError: the broker does not offer RECEIVE, or the id is that of another subscription.
        """
        link, inbound = self._ready(now), self.inbound
        inbound.try_out(subscription)
        if link.phase != "up":
            return False
        if not self._offers("RECEIVE"):
            raise LocalProtocolError("this broker does not offer RECEIVE: subscribe, and take one message")
        subscription.dialect = link.dialect
        subscription.folds_case = link.version == "legacy"
        call.command, call.subject = "RECEIVE", subscription
        headers = inbound.subscribe_headers(subscription)
        if subscription.id in inbound.subscriptions:
            raise LocalProtocolError(f"a subscription with the id {subscription.id!r} exists already")
        link.put(Frame("RECEIVE", [*headers, ("receipt", call.id)]), call, bound=True)
        inbound.expect_message(call)
        return True

    def abandon(self, now: float, call: Call) -> None:
        """End a RECEIVE whose caller waits no longer. Its message is given back, now or when it comes."""
        link = self.link
        link.now = now
        if not call.done:
            if call.id not in link.calls.sent:
                link.outbox.remove(call)
            link.finish(call, ReceiptTimeoutError(f"{call.what}: nobody waits for the answer", sent=call.sent))
        if call.result is not None:
            self._give_back(call.result)

    def _give_back(self, message: BaseMessage) -> None:
        """Refuse a message of RECEIVE that nobody will take, so that the broker delivers it again."""
        if not message.subscription.explicit or message.settled:
            return
        try:
            at_once = [("redelivery-delay", "0")] if self.link.dialect.names_causes else []  # our own broker
            self.settle(message, "NACK", self.link.now, requeue=True, more=at_once)
        except StompError as error:
            log.info("a message of RECEIVE came too late: %s", error)

    # ---- settling ----
    def acknowledge(self, message: BaseMessage) -> bool:
        """Send a common ACK by a fast path; return False if `settle` has to do it.

        Invariant: it sends what `settle` would, because the outbox is empty and no header needs an escape.
        """
        subscription, link = message.subscription, self.link
        connection = link.connection
        ack = message.frame.get("ack")
        if (
            ack is None
            or message.settled
            or message.epoch != link.epoch
            or subscription.ack != "client-individual"
            or message.seq <= subscription.ended
            or subscription.spares is not None
            or link.version != "1.2"
            or link.state != "connected"
            or link.phase != "up"
            or not link.is_writable
            or link.outbox
            or link.is_watched
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
        more: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Send ACK or NACK for a message, unless that was done before or acks are automatic.

        Raises StaleAckError, and LocalProtocolError if it was settled the other way, or by another transaction, or that
        is not supported; ReceiptTimeoutError, if that transaction's outcome is unknown; and as `BaseTransaction.check`.
        """
        self.link.now = now
        subscription = message.subscription
        if transaction is not None:
            transaction.check()
        if subscription.claims:
            _check_claim(message, command, call, transaction)
        if message.settled or self.is_sent_only(message):
            self._settle_again(message, command, call)
            return
        if self.is_stale(message):
            raise _stale(message, command)
        covered = _covered(message, command)
        if not covered:
            self._settle_again(message, command, call)
            return
        headers = self._ack_headers(message, command)
        nack = self.link.dialect.nack_headers(requeue, transaction is not None) if command == "NACK" else ()
        extra = [*nack, *more]
        if (holder := self._holder(message, transaction)) is not None:
            holder.hold(message, command, covered, extra, call)
            return
        headers += extra
        if transaction is not None:
            headers.append(("transaction", transaction.id))
        if call is not None:
            headers += call.receipt
        self.link.put(Frame(command, headers), call, bound=True)
        message.settled = command
        if call is not None:
            message.confirm_by(call)
        self._settle_beside(message, command, covered)
        subscription.settle(covered)
        if transaction is not None:
            transaction.settle(message, command, covered)

    def _settle_beside(self, message: BaseMessage, command: str, covered: Sequence[int]) -> None:
        """Settle messages of several consumers: in mode `client` an ACK covers those of one, so send one for each."""
        spares = message.subscription.spares
        for last in () if spares is None else spares.settle(covered):
            if message.subscription.cumulative and last is not message:
                self.link.put(Frame(command, self._ack_headers(last, command)), None, bound=True)

    def _holder(self, message: BaseMessage, transaction: BaseTransaction | None) -> BaseTransaction | None:
        """Return the transaction that an ACK or NACK has to wait for, where the broker has none for these.

        That is its own. In mode `client` it is any that holds an earlier message, which would be covered.
        """
        subscription = message.subscription
        if self.link.dialect.acks_transacted or (transaction is None and not subscription.claims):
            return None
        if transaction is not None or not subscription.cumulative:
            return transaction
        claims = subscription.claims
        return next((claims[seq] for seq in claims if seq < message.seq), None)

    def _release(self, held: Sequence[Settled]) -> None:
        """Send what a transaction has held back, now that it is committed; not what the broker has back by now."""
        for message, command, covered, extra in held:
            message.settled = ""
            if self.is_stale(message):
                log.info("%s: message %s comes again", message.subscription.destination, message.id)
                continue
            self._settle_beside(message, command, covered)
            self.link.put(Frame(command, [*self._ack_headers(message, command), *(extra or ())]), None, bound=True)
            message.settled = command

    def waits(self, subscription: Subscription, now: float, *, polls: bool) -> None:
        """Look at the window of a subscription whose program waits. See `Windows.waits`."""
        self.link.now = now
        self.inbound.windows.waits(subscription, polls=polls)

    def is_stale(self, message: BaseMessage) -> bool:
        """Return whether the broker has a message back, and delivers it again: it can no longer be settled."""
        subscription = message.subscription
        ended = message.epoch != self.link.epoch or message.seq <= subscription.ended
        return subscription.explicit and (ended or (self.link.state in ("closing", "closed") and self._bye is None))

    def is_sent_only(self, message: BaseMessage) -> bool:
        """Return whether there is nothing to settle: the mode is `auto`, or the server acts as if it was.

        Some brokers send no ack header in 1.2, whatever the mode. Their messages count as acknowledged.
        """
        subscription, link = message.subscription, self.link
        if not subscription.explicit:
            return True
        if link.version != "1.2" or message.frame.get("ack") is not None or message.epoch != link.epoch:
            return False
        log.warning(
            "%s: the server sends messages without an ack header: they count as acknowledged, as with ack='auto'",
            subscription.destination,
        )
        subscription.explicit = subscription.cumulative = False
        return True

    def is_settled(self, message: BaseMessage) -> bool:
        """Return whether a message is settled, or may be: also with later ones, or in a transaction."""
        subscription = message.subscription
        covered = subscription.cumulative and not subscription.covered(message.seq)
        return bool(message.settled) or covered or message.seq in subscription.claims

    def let_go(self, message: BaseMessage) -> None:
        """Leave an unsettled message to the broker, which delivers it again after this connection."""
        subscription = message.subscription
        if self.is_stale(message) or self.is_settled(message) or not subscription.explicit:
            return
        covered = subscription.covered(message.seq) if subscription.cumulative else []
        message.epoch = 0
        if covered:
            subscription.settle(covered)
        else:
            subscription.open -= 1

    def abort_left(self, message: BaseMessage, now: float) -> None:
        """Abort the transactions that the handler of a message has begun, and left open."""
        for transaction in list(self.link.transactions.values()):
            if transaction.begun_for is message and transaction.state == "open":
                call = self.link.calls.make(f"ABORT of {transaction.id}", self.link.options.receipt_timeout)
                self.finish_transaction(transaction, "ABORT", now, call)

    def _settle_again(self, message: BaseMessage, command: str, call: Call | None) -> None:
        """Accept a repeated ACK or NACK; refuse the opposite one, and what claims more than is known."""
        if self.is_stale(message) and (message.settled == "unknown" or (call is not None and not message.is_confirmed)):
            raise _stale(message, command)
        if command != (message.settled or "ACK"):
            why = 'the subscription has ack="auto"'
            if message.subscription.ack != "auto":
                why = "the server sent the message without an ack header, so it counts as acknowledged"
            if message.settled:
                why = f"the message had {message.settled} before"
            elif message.subscription.cumulative:
                why = 'the ACK of a later message covered it, as the subscription has ack="client"'
            raise LocalProtocolError(f"{command} not possible: {why}")
        if call is not None:
            self.link.finish(call)

    def _ack_headers(self, message: BaseMessage, command: str) -> list[tuple[str, str]]:
        """Return the headers that name the message in this version (S12-ACK-01, S11-ACK-01, S11-ACK-02, S10-ACK-01)."""
        if self.link.version == "1.2":
            return [("id", message.frame.headers["ack"])]
        if self.link.version in ("1.0", "legacy"):
            if command == "NACK":
                raise LocalProtocolError(
                    f"STOMP {self.link.version} has no NACK: leave the message unsettled, to get it again"
                )
            return [("message-id", message.id)]
        name = message.frame.get("subscription", message.subscription.id)  # a spare has its own
        return [("message-id", message.id), ("subscription", name)]

    # ---- messages that cannot be read ----
    def _violated(self, error: RemoteProtocolError, before: Frame | None) -> Iterator[Frame] | None:
        """Go on behind a frame that cannot be read, and return what follows; or break off. `before` preceded it."""
        link, inbound = self.link, self.inbound
        if link.connection is None or not link.in_session:
            link.break_off(error)
            return None
        error, frame, is_cut = unreadable(error, before)
        name = None if frame is None else frame.get("subscription")
        subscription = None if name is None else inbound.subscriptions.get(name) or inbound.windows.spares.get(name)
        if frame is not None and is_cut and name is None:
            subscription = inbound.by_destination(frame)
        policy = SETTLED[self._on_unreadable(subscription)]
        frames = None if policy is None else link.connection.go_on()
        if frames is None or policy is None:
            if frame is not None and subscription is not None and subscription.is_last_of(frame):
                inbound.close_subscription(subscription, error)
            link.break_off(error)
            return None
        done = None
        if frame is not None and subscription is not None:
            done = self._settle_unread(subscription, frame, policy, is_cut)
        _unread_log.warning("passed over, %s: %s", f"with {done}" if done else "not settled", error)
        return frames

    def _on_unreadable(self, subscription: Subscription | None) -> str:
        """Return what becomes of a message of this subscription. If it is not known: as all say, if none ends."""
        if subscription is not None:
            return subscription.on_unreadable
        inbound = self.inbound
        every = [each for each in inbound.subscriptions.values() if each is not inbound.reply_subscription]
        return "ignore" if every and all(each.on_unreadable != "raise" for each in every) else "raise"

    def _settle_unread(self, subscription: Subscription, frame: Frame, policy: str, is_cut: bool) -> str | None:
        """Settle a message that is passed over, if it says which it is; return the command, or None."""
        link, inbound = self.link, self.inbound
        if is_cut:  # its beginning was received as a message
            last = subscription.inbox[-1] if subscription.inbox else None
            if last is None or last.frame.get("message-id") != frame.get("message-id"):
                return None  # a consumer has it
            message: BaseMessage = subscription.inbox.pop()
            self.inbound.count(message, -1)
            subscription.open -= 1
            if subscription.spares is not None:
                subscription.spares.settle((message.seq,))
        answer = answer_of(policy, link.version)
        named = frame.get("ack" if link.version == "1.2" else "message-id") is not None
        if answer is None or not named or subscription.cumulative or subscription.deaf or not subscription.explicit:
            return None
        subscription.seq += 1
        subscription.open += 1
        message = inbound.message_class(frame, subscription, link.epoch, subscription.seq)
        try:
            self.settle(message, answer[0], link.now, requeue=answer[1])
        except StompError as error:
            note(error)
        return message.settled or None

    # ---- transactions ----
    def begin(self, transaction: BaseTransaction, now: float) -> bool:
        """Send BEGIN. Return False without a connection: wait (`when_connected`) and try again.

        Raises:
            LocalProtocolError: the transaction has begun already, or the client is closed.
        """
        self._ready(now)
        if transaction.state in ("open", "committing", "unknown"):
            raise LocalProtocolError(f"BEGIN not sent: the transaction is {transaction.state}")
        if self.link.phase != "up":
            return False
        self.link.put(Frame("BEGIN", [*self.link.cause(), ("transaction", transaction.id)]), None, bound=True)
        transaction.state, transaction.epoch, transaction.begun_for = "open", self.link.epoch, in_hand()
        transaction.release = self._release
        transaction.own()
        self.link.transactions[transaction.id] = transaction
        return True

    def finish_transaction(self, transaction: BaseTransaction, command: str, now: float, call: Call) -> None:
        """Send COMMIT or ABORT. The call's outcome is that of the transaction. Raises as `BaseTransaction.check`."""
        self._ready(now, transaction)
        call.command, call.subject, call.after = command, transaction, self._transaction_over
        transaction.finishing = call
        if command == "COMMIT":
            transaction.state = "committing"
        headers = [*self.link.cause(), ("transaction", transaction.id), *call.receipt]
        self.link.put(Frame(command, headers), call, bound=True)
        if command != "COMMIT":
            transaction.end("aborted")

    def _transaction_over(self, call: Call) -> None:
        """Note the outcome of COMMIT or ABORT."""
        transaction: BaseTransaction = call.subject
        link, error = self.link, call.error
        refused = error is not None and (isinstance(error, RejectedError) or not call.sent)
        if transaction.state == "committing":
            transaction.end("committed" if error is None else "aborted" if refused else "unknown")
        if transaction.state != "unknown":  # else the answer may come late
            link.transactions.pop(transaction.id, None)
        if error is not None and not call.sent and link.phase == "up" and link.state == "connected":
            # It was taken out of the outbox. What the transaction holds has to be released nevertheless.
            link.put(Frame("ABORT", [("transaction", transaction.id)]), None, bound=True)
        if self._bye is not None:
            self._part(self._bye)

    # ---- the end ----
    def close(self, now: float, call: Call, timeout: float | None = None) -> None:
        """Send DISCONNECT behind everything in the outbox. The call is accepted at its answer, or after the timeout."""
        link = self.link
        link.now = now
        if link.state == "closed":
            link.finish(call)
            return
        link.calls.open(call, now)
        link.closers.append(call)
        if link.state == "closing":
            return
        link.happened("close")
        if not link.in_session:
            link.end(None)
            return
        seconds = link.options.close_timeout if timeout is None else timeout
        self._part(link.calls.make("DISCONNECT", seconds, "DISCONNECT"))

    def _part(self, bye: Call) -> None:
        """Send DISCONNECT, once no COMMIT is under way whose answer ACKs wait for: these would come too late."""
        link = self.link
        if any(each.has_more for each in link.transactions.values()):
            if self._bye is None:
                self._bye = bye
                link.calls.open(bye, link.now)
            return
        if self._bye is not None:
            self._bye, bye.timeout = None, max(bye.deadline - link.now, 0.0)
        if link.in_session and link.broken is None:
            replies = self.inbound.reply_subscription
            if replies is not None and replies.subscribed and not link.dialect.implicit_replies:
                # Artemis deletes the address with the subscription, and keeps it when a session ends.
                link.put(Frame("UNSUBSCRIBE", [("id", replies.id)]), None, bound=True)
            link.put(Frame("DISCONNECT", [("receipt", bye.id)]), bye, bound=True)
        else:
            bye.done = True

    def drain(self, now: float) -> None:
        """Stop receiving. Messages that consumers have taken can be settled; the others return to the broker.

        With automatic acks the broker has forgotten its messages: they can still be taken.
        """
        self.link.now = now
        inbound = self.inbound
        for subscription in [*inbound.subscriptions.values(), *inbound.apart.values()]:
            if subscription.explicit:
                subscription.deaf = True
                inbound.forget(subscription)
                inbound.touch(subscription)
            elif subscription is not inbound.reply_subscription:
                inbound.unsubscribe(subscription, now)
                self._drained.append(subscription)

    def is_quiet(self) -> bool:
        """Return whether no frame, receipt or message is waiting for anything."""
        if self.link.outbox.frames or self.link.calls.sent:
            return False
        if any(each.explicit and each.open > 0 for each in self.inbound.subscriptions.values()):
            return False
        if any(each.open > 0 for each in self.inbound.fetched):
            return False
        return not any(each.inbox or each.batch for each in self._drained)


def _stale(message: BaseMessage, command: str) -> StaleAckError:
    """Return the error for a message whose connection or subscription has ended."""
    ended = "its connection or subscription has ended"
    if message.settled:
        return StaleAckError(
            f"{command} not sent: {ended}, and nobody knows whether the earlier {message.settled} arrived"
        )
    return StaleAckError(f"{command} not sent: {ended}, and the broker delivers the message again")


def _covered(message: BaseMessage, command: str) -> Sequence[int]:
    """Return `Subscription.covered`. Raise LocalProtocolError if an earlier one of these has failed and is stuck."""
    subscription = message.subscription
    covered, stuck = subscription.covered(message.seq), subscription.stuck
    if stuck and stuck in covered:
        if stuck != message.seq:
            raise LocalProtocolError(
                f"{command} of message {message.id} would settle an earlier message of {subscription.destination} that"
                " failed and was not given up: settle that one first, name dead_letter=, or use ack='client-individual'"
            )
        subscription.stuck = 0
    return covered


def _check_claim(message: BaseMessage, command: str, call: Call | None, transaction: BaseTransaction | None) -> None:
    """Raise an error for a message that another transaction settles, or that one may have settled."""
    claim: BaseTransaction | None = message.subscription.claims.get(message.seq)
    if claim is None or (claim is transaction and call is None):
        return
    what = f"{command} not sent: the message is settled in transaction {claim.id}"
    if claim.state == "unknown":
        raise ReceiptTimeoutError(f"{what}, whose outcome is unknown: its COMMIT had no answer")
    raise LocalProtocolError(f"{what}, which is {claim.state}: commit or abort that")
