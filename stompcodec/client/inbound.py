"""The receiving half of a client, without I/O: messages, answers to calls, subscriptions and their windows.

After CONNECTED the order is fixed: subscriptions first, then, once they are confirmed, the outbox. Reading pauses while
too many messages wait for consumers; `prefetch` normally stops the broker long before. `Windows` has windows grow, and
names a subscription that gets no messages.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakSet

from stompcodec.client.backoff import is_refusal
from stompcodec.client.bodies import ReceivedBody
from stompcodec.client.dialects import BROKERS, MOST, PARTING, caution_durable, caution_empty
from stompcodec.client.link import DELETE, ClientLink, log, lost_by
from stompcodec.client.messages import BaseMessage, Noted, Place, Subscription, kept
from stompcodec.client.outbox import Call, Group
from stompcodec.client.runs import Runs
from stompcodec.codec import END_OF_BODY, Frame
from stompcodec.errors import (
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    StompError,
)
from stompcodec.states import State

#: The bytes that a broker may count more for a message.
_MORE = 64


class Spares:
    """The consumers of one subscription on one connection, once there is more than one, and what they hold."""

    def __init__(self, subscription: Subscription) -> None:
        self.windows: dict[str, int] = {}
        """The windows of the spares, by id, in bytes."""
        self.octets: dict[str, int] = {}
        """The bytes of their unsettled messages, by id."""
        self.largest = 0
        self._held: dict[int, tuple[str, int, BaseMessage]] = {}  # by `seq`
        subscription.inbox = Noted(self.note, subscription.inbox)
        if subscription.last is not None:
            self._held[subscription.last.seq] = (subscription.id, 0, subscription.last)

    def note(self, message: BaseMessage) -> None:
        name = message.frame.get("subscription") or message.subscription.id
        size = message.size + _MORE + sum(len(key) + len(value) for key, value in message.frame.headers.pairs())
        self._held[message.seq] = (name, size, message)
        self.largest = max(self.largest, size)
        if name in self.octets:
            self.octets[name] += size

    def has_room(self) -> bool:
        """Return whether one of them would deliver a message, if there was one."""
        return any(self.octets[name] < window for name, window in self.windows.items())

    def settle(self, covered: Iterable[int]) -> list[BaseMessage]:
        """Count messages as settled; return the last one of each consumer, in order."""
        lasts: dict[str, BaseMessage] = {}
        for seq in covered:
            name, size, message = self._held.pop(seq, ("", 0, None))
            if message is not None:
                lasts.pop(name, None)
                lasts[name] = message
            if name in self.octets:
                self.octets[name] -= size
        return list(lasts.values())


#: The seconds between two looks at subscriptions that hold messages, and those without messages before one is named.
LOOK, _SILENT = 15.0, 60.0
#: The bytes of headers for which a message counts that was not measured.
_HEADERS = 1024
#: The connections in a row that may end before a spare is confirmed, until there are no more of its subscription.
_ENDS = 2


class Windows:
    """The windows of a client's subscriptions."""

    def __init__(self, link: ClientLink, subscriptions: dict[str, Subscription]) -> None:
        self._link = link
        self._subscriptions = subscriptions
        self.spares: dict[str, Subscription] = {}
        """The subscriptions with spares, by the ids of these."""
        self._asked: dict[str, Call] = {}  # the SUBSCRIBE of spares without an answer yet, by their ids
        self.look_at = math.inf
        """When to look for silent subscriptions."""
        self._seen: dict[str, tuple[Subscription, int, float]] = {}  # id -> the last `seq`, and when it was new

    # ---- growing ----

    def waits(self, subscription: Subscription, *, polls: bool) -> None:
        """Grow the window of a subscription if it may be full: its program waits, or `polls`, and holds messages.

        Raises LocalProtocolError if the program waits for ever: ACKs of its own open transaction fill the window.
        """
        window, held = subscription.window, subscription.open + len(subscription.claims)
        if subscription.inbox or subscription.batch or window is None or self._link.phase != "up":
            return
        if not subscription.open and not subscription.claims:
            subscription.octets, subscription.octets_from = 0, subscription.seq
        elif held < window and self._may_be_full(subscription, held, window):
            self.grow(subscription, held, window)
        elif held >= window and not polls and not self._link.dialect.acks_transacted:
            claims = list(subscription.claims.values())
            if claims and all(each.is_own for each in claims):
                raise LocalProtocolError(
                    f"no message of {subscription.destination} comes before COMMIT: {held} unsettled ones, of which "
                    f"transaction {claims[0].id} acknowledges {len(claims)}, fill the prefetch of {window}, and "
                    f"{self._link.dialect.name} gets the ACKs after COMMIT: commit earlier, or give a larger prefetch="
                )

    def _may_be_full(self, subscription: Subscription, held: int, window: int) -> bool:
        if subscription.spares is not None:
            return not subscription.spares.has_room()
        return subscription.octets + held * _HEADERS >= window * 1024

    def grow(self, subscription: Subscription, held: int, window: int) -> None:
        """Add a spare that takes the rest of the `prefetch`, where it shares the messages of a queue."""
        link, dialect = self._link, self._link.dialect
        asked = subscription.asked
        if subscription.deaf or window == 1 or not self._shares(subscription):
            return
        if not set(dialect.prefetch_headers(window)) <= set(asked):  # the program has chosen another window
            return
        if subscription.spares is None:
            subscription.spares = Spares(subscription)
        spares: Spares = subscription.spares
        mean = subscription.octets // max(subscription.seq - subscription.octets_from, 1)
        size = max(spares.largest, mean + _HEADERS)
        # A message comes while there is a byte left, so the last one needs no more.
        octets = max((window - held - 1) * size + 1, 2 * max(spares.windows.values(), default=0))
        name = f"{subscription.id}~{len(spares.windows) + 1}"
        while name in self._subscriptions or name in self.spares:
            name += "~"
        changed = {"id": name, dialect.window: str(min(octets, MOST))}
        call = link.calls.make(f"SUBSCRIBE of {name} to {subscription.destination}", math.inf)
        call.subject, call.after = subscription, partial(self._answered, name)
        pairs = [(key, changed.get(key, value)) for key, value in asked]
        self._asked[name] = call
        link.put(Frame("SUBSCRIBE", [*pairs, *call.receipt]), call, bound=True)
        spares.windows[name], spares.octets[name] = octets, 0
        self.spares[name] = subscription
        log.debug(
            "%s: %d messages fill the window: %s takes %d bytes more", subscription.destination, held, name, octets
        )

    def _shares(self, subscription: Subscription) -> bool:
        """Return whether a spare would share its messages, and the broker has not refused one."""
        asked, shared = subscription.asked, self._link.dialect.shared
        if not subscription.confirmed or subscription.durable is not None or subscription.refusals >= _ENDS:
            return False
        browses = any(name == "browser" and value.lower() == "true" for name, value in asked)
        return bool(shared) and set(shared) <= set(asked) and not browses

    def refused(self, frame: Frame) -> Call | None:
        """Return the call of the spare that an ERROR without receipt-id is about: Artemis names it, else it is the only
        one without an answer.
        """
        if frame.get("receipt-id"):
            return None
        sent = {name: call for name, call in self._asked.items() if call.sent}
        words = (frame.get("message") or "") + (frame.body or b"").decode("utf-8", "replace")
        said = max((name for name in sent if name in words), key=len, default=None)
        if said is None and len(sent) == 1:
            said = next(iter(sent))
        return None if said is None else sent[said]

    def _answered(self, name: str, call: Call) -> None:
        """Note the outcome of the SUBSCRIBE of a spare: without one, each connection could end by the next one."""
        subscription: Subscription = call.subject
        if self._asked.get(name) is call:
            del self._asked[name]
        if call.error is None:
            subscription.refusals = 0
        if call.error is None or not call.sent or self._link.state in ("closing", "closed"):
            return
        before, by = subscription.refusals, _ENDS if isinstance(call.error, RejectedError) else 1
        subscription.refusals += by
        self.spares.pop(name, None)
        if before < _ENDS <= subscription.refusals and not subscription.closed:
            log.warning(
                "%s: the broker takes no further consumer (%s). It may stop before you hold prefetch=%s messages: "
                "subscribe with the header %s:-1, or with a smaller prefetch=",
                *(subscription.destination, call.error, subscription.window, self._link.dialect.window),
            )

    def end(self, subscription: Subscription, *, tell: bool) -> None:
        """Forget the spares of a subscription that ends; with `tell` the broker has to end them, too."""
        if subscription.spares is None:
            return
        for name in subscription.spares.windows:
            if self.spares.pop(name, None) is not None and tell:
                self._link.put(Frame("UNSUBSCRIBE", [("id", name)]), None, bound=True)
        subscription.spares = None
        subscription.inbox = deque(subscription.inbox)

    # ---- looking ----

    def look(self, now: float) -> None:
        """Name subscriptions that hold unsettled messages, and got none for a minute; each of them once."""
        if now < self.look_at:
            return
        self.look_at, seen = math.inf, self._seen
        self._seen = {}
        for name, subscription in self._subscriptions.items():
            if subscription.explicit:
                self.look_at = now + LOOK
            if subscription.claims and subscription.may_stall:
                self._say_unknown(subscription)
            if not subscription.explicit or not subscription.open:
                continue
            was, seq, since = seen.get(name, (None, 0, now))
            if was is not subscription or seq != subscription.seq:
                since = now
            elif subscription.window is not None and not (subscription.inbox or subscription.batch):
                held = subscription.open + len(subscription.claims)
                if held < subscription.window and not (subscription.spares and subscription.spares.has_room()):
                    self.grow(subscription, held, subscription.window)
            self._seen[name] = (subscription, subscription.seq, since)
            if now - since >= _SILENT and not subscription.is_named:
                subscription.is_named = True
                self._name(subscription)

    def _say_unknown(self, subscription: Subscription) -> None:
        """Name a transaction whose COMMIT has no answer, once, if the ACKs that it holds back fill the window."""
        unknown = [each for each in subscription.claims.values() if each.state == "unknown"]
        held, window = subscription.open + len(subscription.claims), subscription.window
        is_full = window is not None and held >= window and not (subscription.inbox or subscription.batch)
        if not unknown or not is_full or subscription.stopped_by is unknown[0]:
            return
        subscription.stopped_by, subscription.is_named = unknown[0], True
        log.warning(
            "%s: no message comes before the answer to the COMMIT of transaction %s, which is overdue: %d unsettled "
            "messages fill the prefetch of %d, and the ACKs of %d of them are sent after it. To get the messages again "
            "without it, close the client, and connect again",
            *(subscription.destination, unknown[0].id, held, window, len(unknown)),
        )

    def _name(self, subscription: Subscription) -> None:
        taken = subscription.open - len(subscription.inbox) - len(subscription.batch)
        mean = subscription.octets / max(subscription.seq - subscription.octets_from - len(subscription.inbox), 1)
        window = "not known" if subscription.window is None else f"{subscription.window} messages"
        octets = dict(subscription.asked).get(self._link.dialect.window)
        log.warning(
            "%s: no message came for %d s, while %d unsettled messages of about %d bytes are held; the window is %s%s. "
            "If more are waiting, settle these, or subscribe with a larger prefetch=",
            subscription.destination,
            _SILENT,
            subscription.open,
            taken * mean + subscription.inbox_octets,
            window,
            "" if octets is None else f" ({self._link.dialect.window}:{octets})",
        )


#: The most bytes of a server's message that are shown. Some send stack traces.
_MOST_SAID = 300
#: RabbitMQ takes the host of the URL for a virtual host, and has none of that name.
_VHOST_HINT = (
    " (write the virtual host into the URL: stomp://host/%2F for the one called /, stomp://host/name for another)"
)
#: Reading pauses at the limits of the options; while calls wait for receipts, at this multiple of them.
_URGENT = 4
#: The most bytes of runs that wait while the recorder syncs.
_RUNS = 6 * 2**20


def said(frame: Frame) -> str:
    """Return the server's words in an ERROR as one printable line."""
    first = (frame.body or b"")[:_MOST_SAID].decode("utf-8", "replace").strip().partition("\n")[0].strip()
    summary = (frame.get("message") or "ERROR")[:_MOST_SAID]
    words = f"{summary}: {first}" if first and first not in summary else summary
    return "".join(character if character.isprintable() else " " for character in words)


class Inbound:
    """The receiving half of a client."""

    def __init__(self, link: ClientLink, new_id: Callable[[], str], message_class: type[BaseMessage]) -> None:
        self.link = link
        self.new_id = new_id
        self.message_class = message_class
        self.subscriptions: dict[str, Subscription] = {}  # those that a new connection restores
        self.windows = Windows(link, self.subscriptions)
        self.touched: list[Subscription] = []  # those with news
        self.paused = False  # the shell has to stop reading
        self.backlog = 0  # messages in inboxes
        self.backlog_octets = 0
        self.replies: dict[str, Call] = {}  # requests, by correlation-id
        self.fetches: dict[str, list[Call]] = {}  # calls of RECEIVE by id, also those that nobody waits for any more
        self.fetched: WeakSet[Subscription] = WeakSet()  # of messages that were fetched on this connection
        self.give_back: Callable[[BaseMessage], None] = lambda _: None  # refuses a message; set by the core
        #: Called with a violation of the server and the frame before it; returns frames to go on with. Set by the core.
        self.violated: Callable[[RemoteProtocolError, Frame | None], Any] = lambda error, _: link.break_off(error)
        self.before: Frame | None = None  # the last frame, with which a malformed one behind it may belong together
        self._excused_at = -math.inf  # set when reading is paused
        self._incoming: BaseMessage | None = None  # its body is being received into a file
        self.in_body = False  # what comes next belongs to a streamed body, wanted or not
        self._to_restore: list[Subscription] = []
        self._restoring: dict[str, Subscription] = {}  # by the receipt that is waited for
        self.apart: dict[str, Subscription] = {}  # those that are ended, to begin again: see `begin_again`
        self.late: list[Subscription] = []  # those whose SUBSCRIBE has to wait: see `_is_early`
        self.reply_subscription: Subscription | None = None
        self.runs: Runs | None = None  # of the subscription that takes them

    def receive(self, data: Any, now: float) -> None:
        """Handle received bytes. Invalid input raises nothing: it ends the connection (`link.connection` is None)."""
        link = self.link
        connection = link.connection
        if connection is None:
            return
        link.now = link.heard_at = now
        if link.phase == "connecting":
            link.first = (link.first + bytes(data[:64]))[:64]
        if self.runs is not None:
            data = self._take_run(self.runs, data)
        frames: Any = connection.receive(data, now)
        while frames is not None:
            frames = self._take(frames)
        self.weigh()
        link.leave_broken()

    def _take(self, frames: Any) -> Any:
        """Handle frames. Return those behind a frame that cannot be read, if the connection goes on; else None."""
        link, message_class, frame = self.link, self.message_class, self.before
        subscriptions, touched, trace, epoch = self.subscriptions, self.touched, link.trace, link.epoch
        try:
            for frame in frames:
                if trace is not None:
                    trace.append(("in", frame))
                if frame.command != "MESSAGE":
                    self._control(frame)
                    continue
                name = frame.get("subscription")
                subscription = subscriptions.get(name) if name is not None else self.by_destination(frame)
                if subscription is None and name is not None:
                    subscription = self.windows.spares.get(name)
                if subscription is None or subscription.deaf:
                    call = None if name is None else self._fetch_of(name)
                    if call is not None:
                        self._fetched(call, frame)
                    elif frame.body is None:
                        self.in_body = True
                    continue
                if not subscription.confirmed:
                    self._confirm(subscription)
                subscription.seq = seq = subscription.seq + 1
                message = message_class(frame, subscription, epoch, seq)
                try:
                    size = len(frame.body)
                except TypeError:  # it is streamed; a test would cost time with each message
                    self._await_body(message)
                    continue
                if not size:
                    caution_empty(link.dialect, frame)
                if subscription is self.reply_subscription:
                    self._reply(frame.get("correlation-id"), message)
                    continue
                subscription.open += 1
                subscription.inbox.append(message)
                subscription.inbox_octets += size
                self.backlog += 1
                self.backlog_octets += size
                if not subscription.touched:
                    subscription.touched = True
                    touched.append(subscription)
        except RemoteProtocolError as error:
            self._incoming, self.in_body, self.before = None, False, None
            return self.violated(error, frame)
        self.before = kept(frame)
        return None

    # ---- runs ----

    def give_runs(self, subscription: Subscription) -> None:
        """Give this subscription, the only one of this client, messages in runs where that is possible."""
        self.runs = Runs(subscription.id)

    def _take_run(self, runs: Runs, data: Any) -> Any:
        """Deliver whole frames as one message with a run; return what is left to the connection."""
        link, connection = self.link, self.link.connection
        subscription = next(iter(self.subscriptions.values()), None)
        if (
            connection is None
            or connection.buffered
            or connection.state is not State.CONNECTED
            or link.version != "1.2"
            or link.trace is not None
            or self.in_body
            or len(self.subscriptions) != 1
            or subscription is None
            or subscription.deaf
            or subscription.spares is not None
        ):
            return runs.let_go(data)
        before = len(runs.held)
        run, rest = runs.take(data, link.options.limits)
        if rest:
            return rest
        connection.passed(before + len(data) - len(runs.held), link.now)
        if run is None:
            return rest
        if not subscription.confirmed:
            self._confirm(subscription)
        subscription.seq += run.messages
        subscription.open += run.messages
        message = self.message_class(run.last, subscription, link.epoch, subscription.seq)
        message.run = run
        subscription.inbox.append(message)
        subscription.inbox_octets += len(run.octets)
        self.backlog += 1
        self.backlog_octets += len(run.octets)
        self.touch(subscription)
        self.before = kept(run.last)
        if not run.last.body:
            caution_empty(link.dialect, run.last)
        return rest

    # ---- bodies in files ----

    def _await_body(self, message: BaseMessage) -> None:
        """Keep a message whose body follows in pieces, until its end."""
        folder = self.link.options.spool_folder
        message.received = ReceivedBody(folder)
        self._incoming, self.in_body = message, True

    def piece(self, piece: Any) -> None:
        """Take a piece of the body that is being received; deliver the message at its end."""
        self.in_body = piece is not END_OF_BODY
        message = self._incoming
        body = None if message is None else message.received
        if message is None or body is None:  # nothing subscribes any more, or it is the body of an ERROR
            return
        if piece is not END_OF_BODY:
            body.write(piece)
            return
        self._incoming, subscription = None, message.subscription
        if subscription is self.reply_subscription:
            self._reply(message.frame.get("correlation-id"), message)
        elif not subscription.deaf and self.subscriptions.get(subscription.id) is subscription:
            subscription.open += 1
            subscription.inbox.append(message)
            self.count(message, 1)
            self.touch(subscription)

    def _take_streamed(self, subscription: Subscription) -> None:
        """Move messages of an inbox to the batch, up to the first with a body in a file: others count as not taken."""
        while subscription.inbox:
            message = subscription.inbox.popleft()
            self.count(message, -1)
            subscription.batch.append(message)
            subscription.octets += message.size
            subscription.last = message if subscription.cumulative else None
            if message.received is not None:
                break
        self.weigh()

    def take(self, subscription: Subscription) -> None:
        """Move the messages of an inbox to the batch, from which consumers take them."""
        if subscription.streamed:
            self._take_streamed(subscription)
            return
        inbox, batch = subscription.inbox, subscription.batch
        count = len(inbox)
        # No call stands between these, so that an interrupt (Ctrl-C) cannot separate them, and no message comes twice.
        self.backlog -= count
        self.backlog_octets -= subscription.inbox_octets
        subscription.octets += subscription.inbox_octets
        subscription.inbox_octets = 0
        batch += inbox
        inbox.clear()
        if subscription.cumulative and batch:
            subscription.last = batch[-1]
        self.weigh()

    def take_one(self, subscription: Subscription) -> BaseMessage:
        """Take the first message out of an inbox, which holds one, for the middleware."""
        inbox = subscription.inbox
        message: BaseMessage = inbox[0]
        size, is_streamed = message.size, message.received is not None
        # No call stands between these, so that an interrupt cannot separate them. One that comes after them, before the
        # caller has kept the message, loses it: it is in no list of the subscription, unlike those that `take` moves.
        subscription.streamed -= is_streamed
        subscription.inbox_octets -= size
        subscription.octets += size
        subscription.last = message if subscription.cumulative else None
        self.backlog -= 1
        self.backlog_octets -= size
        del inbox[0]
        self.weigh()
        return message

    def put_back(self, subscription: Subscription, message: BaseMessage) -> None:
        """Put a message that `take_one` took back in front, unless the broker delivers it again."""
        if subscription.explicit and (message.epoch != self.link.epoch or subscription.deaf):
            return
        subscription.inbox.appendleft(message)
        self.count(message, 1)
        self.weigh()

    def count(self, message: BaseMessage, one: int) -> None:
        """Count a message that was put into an inbox (1), or taken out of it (-1)."""
        subscription, size = message.subscription, message.size
        subscription.streamed += one * (message.received is not None)
        subscription.inbox_octets += one * size
        self.backlog += one
        self.backlog_octets += one * size

    # ---- frames of the server ----

    def _control(self, frame: Frame) -> None:
        """Handle a frame other than MESSAGE."""
        command = frame.command
        if command == "RECEIPT":
            call = self.link.calls.sent.get(frame.headers["receipt-id"])
            if call is None:
                self.link.answered_late(frame.headers["receipt-id"], "committed")
                return
            self.link.calls.answered.add(call.command)
            if call.needs_reply:
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
        elif command == "EMPTY":
            call = self._fetch_of(frame.get("subscription") or "")
            if call is not None and call.done:  # the others wait for their receipts
                self._forget_fetch(call)

    def _refused(self, frame: Frame) -> None:
        """Handle ERROR: with a receipt-id it rejects a call; otherwise it is logged, and iterators raise it.

        It ends the session in 1.2 (S12-ERR-02), and before CONNECTED in any version. Then iterators go on with the next
        connection, if there is one.
        """
        words, replies = said(frame), self.reply_subscription
        sent, receipt = self.link.calls.sent, frame.get("receipt-id") or ""
        call = sent.get(receipt) or self.windows.refused(frame) or self._unknown(words)
        if call is None and replies is not None and replies.destination in words:  # Artemis names no receipt
            call = sent.get(replies.receipt_id)
            if call is None and self.link.state == "closing":  # no right to delete it, behind all that was sent
                self.link.end(None)
                return
        if call is not None:
            self._refused_call(call, words, RejectedError(f"{call.what} was rejected: {words}", frame))
            return
        self.link.answered_late(receipt, "aborted")
        # It may be about any frame of a block; sent again, the block would be refused again.
        firsts: dict[Group, Call] = {}
        for each in sent.values():
            if each.group is not None:
                firsts.setdefault(each.group, each)
        self._refused_session(words, frame)
        for call in firsts.values():
            what = f"{call.what}, or a later message, was rejected: {words}"
            self.link.finish(call, RejectedError(what, frame))

    def _unknown(self, words: str) -> Call | None:
        """Return the call of a command that a relay does not know, though the broker behind it offers it."""
        for call in self.link.calls.sent.values():
            if call.command in ("PING", "RECEIVE") and re.search(rf"\b{call.command}\b", words):
                self.link.unknown.add(call.command)
                return call
        return None

    def _refused_call(self, call: Call, words: str, error: RejectedError) -> None:
        if self._is_over():
            self.link.break_off(lost_by(error, f"the session ended with an ERROR of the server: {words}"))
        if call.command == "SUBSCRIBE":
            self.close_subscription(call.subject, error)
        self.link.finish(call, error)

    def _refused_session(self, words: str, frame: Frame) -> None:
        """Handle an ERROR that names no call."""
        link = self.link
        if link.phase == "connecting":
            folded = words.lower()
            hint = _VHOST_HINT if "virtual host" in folded and "passcode" not in folded else ""
            link.break_off(RejectedError(f"CONNECT was rejected: {words}{hint}", frame))
            return
        error = RejectedError(f"the server sent an ERROR: {words}", frame)
        is_parting = words == PARTING and link.state in ("closing", "closed")
        log.log(logging.INFO if is_parting else logging.ERROR, "%s", error)
        if is_refusal(error):
            link.pace.refusal = error
        if self._is_over():
            link.break_off(error)
            return
        for subscription in self.subscriptions.values():
            subscription.news = error
            self.touch(subscription)

    def _is_over(self) -> bool:
        """Return whether an ERROR has ended the connection."""
        return self.link.connection is None or self.link.connection.state is State.FAILED

    def _fetched(self, call: Call, frame: Frame) -> None:
        """Keep the message that a RECEIVE asked for, until its receipt follows; give it back if nobody waits for it."""
        subscription: Subscription = call.subject
        subscription.seq = subscription.open = 1
        message = self.message_class(frame, subscription, self.link.epoch, 1)
        if call.done:
            self.in_body = message.is_streamed
            self._forget_fetch(call)
            self.give_back(message)
            return
        call.result = message
        if subscription.explicit:
            self.fetched.add(subscription)
        if message.is_streamed:  # complete before the receipt follows
            self._await_body(message)

    def by_destination(self, frame: Frame) -> Subscription | None:
        """Return the subscription of a MESSAGE without subscription header, as servers of 1.0 may send it."""
        destination = frame.get("destination")
        return next((each for each in self.subscriptions.values() if each.destination == destination), None)

    def _reply(self, key: str | None, message: BaseMessage) -> None:
        """Match a reply to its request. One without correlation-id matches only if a single request is open."""
        if key is None and len(self.replies) == 1:
            key = next(iter(self.replies))
        call = self.replies.get(key or "")
        if call is None:
            log.info("a reply matches no open request")
        else:
            self.link.finish(call, result=message)

    def expect(self, key: str, call: Call) -> None:
        """Keep a request in `replies` until it has its outcome."""
        self.replies[key] = call
        call.after = lambda _: self.replies.pop(key, None)

    def expect_message(self, call: Call) -> None:
        """Keep a RECEIVE in `fetches` until it has its outcome, or its message can no longer come."""
        self.fetches.setdefault(call.subject.id, []).append(call)
        call.after = self._fetch_over

    def _fetch_of(self, id: str) -> Call | None:
        """Return the RECEIVE that the next answer with this id is for: the broker answers in order."""
        return next((call for call in self.fetches.get(id, ()) if call.result is None), None)

    def _fetch_over(self, call: Call) -> None:
        if not (isinstance(call.error, ReceiptTimeoutError) and call.sent):  # else its message may come late
            self._forget_fetch(call)

    def _forget_fetch(self, call: Call) -> None:
        id = call.subject.id
        calls = [each for each in self.fetches.pop(id, ()) if each is not call]
        if calls:
            self.fetches[id] = calls

    # ---- subscriptions ----

    def subscribe(self, subscription: Subscription, now: float, call: Call) -> None:
        """Subscribe; the call is accepted when the broker has confirmed, or at once with `confirm=False`.

        Raises LocalProtocolError if the id is taken, the client is closed, or the broker cannot do what is asked;
        FrameError, TypeError or ValueError if SUBSCRIBE cannot be written. Then nothing is kept.
        """
        self.link.now = now
        self.link.check_open()
        if any(subscription.id in each for each in (self.subscriptions, self.apart, self.windows.spares)):
            raise LocalProtocolError(f"a subscription with the id {subscription.id!r} exists already")
        self.try_out(subscription)
        caution_durable(self.link.dialect, subscription.durable, subscription.selector)
        call.command, call.subject, call.after = "SUBSCRIBE", subscription, self._answered
        subscription.call = call
        self.subscriptions[subscription.id] = subscription
        self.link.calls.open(call, now)
        is_slow = self.link.phase == "restoring" and self.link.pace.is_slow
        if self._is_early(subscription):
            self.late.append(subscription)
        elif is_slow:
            self._to_restore.append(subscription)
        elif self.link.in_session:
            try:
                self._send_subscribe(subscription)
            except Exception:
                del self.subscriptions[subscription.id]
                call.done = True
                raise
        if not subscription.confirm:
            self.link.finish(call)
        if is_slow:
            self.restore()

    def unsubscribe(
        self, subscription: Subscription, now: float, call: Call | None = None, *, delete: bool = False
    ) -> None:
        """End a subscription, and with `delete` a durable one for good, or fail if the broker could not be told."""
        self.link.now = now
        reach = self.link.in_session and subscription.subscribed and not subscription.closed
        for_good = delete and subscription.durable is not None and not subscription.deleted
        over = subscription.closed
        headers = subscription.unsubscribe_headers(self.link.dialect, self.link.options.client_id, delete)
        self.windows.end(subscription, tell=reach and self.link.state not in ("closing", "closed"))
        self.close_subscription(subscription, None)
        if not reach or self.link.state in ("closing", "closed"):
            if call is not None:
                self.link.finish(call, _not_deleted(subscription, over) if for_good else None)
            return
        if for_good and self.link.dialect.delete_apart:
            self.link.put(Frame("UNSUBSCRIBE", [("id", subscription.id)]), None, bound=True)
        subscription.deleted = for_good
        if call is not None:
            headers += call.receipt
            if for_good:
                call.command = DELETE
        self.link.put(Frame("UNSUBSCRIBE", headers), call, bound=True)

    def begin_again(self, subscription: Subscription, now: float, call: Call, *, narrow: bool) -> None:
        """End a subscription, and begin it again with a window of one message, or with its own window.

        The call is accepted once it has ended. Messages that the broker has back by that are stale. Nothing is done
        where that would lose messages, or where they would stay with a broker that does not deliver them again.
        """
        link = self.link
        link.now = now
        kind, is_up = link.dialect.unsubscribed, link.phase == "up" and link.state == "connected"
        shared = set(link.dialect.shared)  # without these an address of Artemis loses what waits
        is_lost = bool(shared) and subscription.durable is None and shared.isdisjoint(subscription.asked)
        if not subscription.explicit or not subscription.keeps_messages or not kind or subscription.deaf or is_lost:
            link.finish(call)
            return
        subscription.is_narrow = narrow  # at the latest on the next connection
        # Growing returns the message that is under way, which is to come before all others.
        subscription.owed = subscription.prefetch or 0 if narrow and kind == "behind" else 0
        is_kept = kind == "keeps" and narrow  # a smaller window would not return those that are held
        if is_kept or not is_up or not subscription.confirmed or subscription.claims or subscription.left:
            link.finish(call)
            return
        subscription.subscribed = subscription.confirmed = False
        if kind == "keeps":  # what is under way can be acknowledged by the same id
            link.put(Frame("UNSUBSCRIBE", [("id", subscription.id)]), None, bound=True)
            self.late.append(subscription)
            self.go_on()
            link.finish(call)
            return
        self.windows.end(subscription, tell=True)
        self.forget(subscription)
        subscription.give_back()
        self.apart[subscription.id] = self.subscriptions.pop(subscription.id)
        call.command, call.subject, call.after = "UNSUBSCRIBE", subscription, self._begin
        link.put(Frame("UNSUBSCRIBE", [("id", subscription.id), *call.receipt]), call, bound=True)

    def _begin(self, call: Call) -> None:
        """Begin a subscription again that has ended, now or on the next connection."""
        subscription: Subscription = call.subject
        self.apart.pop(subscription.id, None)
        if subscription.closed:
            return
        self.subscriptions[subscription.id] = subscription
        if self.link.phase == "up" and self.link.state == "connected" and not subscription.deaf:
            self.late.append(subscription)
            self.go_on()

    # ---- restoring subscriptions ----

    def restore(self) -> None:
        """Subscribe again, one by one if the link is slow. When all are confirmed the outbox flows."""
        link = self.link
        if link.phase != "restoring" or link.broken is not None or link.connection is None:
            return
        while self._to_restore and link.pace.is_free:
            subscription = self._to_restore.pop(0)
            if subscription.closed or subscription.subscribed:
                continue
            self._subscribe_or_close(subscription)
            if link.pace.is_slow and not (subscription.closed or subscription.confirmed):
                link.pace.start(subscription, link.now)
        if not self._restoring and not self._to_restore and link.pace.is_free:
            link.restored()

    def pass_over(self, subscription: Subscription) -> None:
        """Go on restoring: a SUBSCRIBE that is under way alone was not answered in its time."""
        if not subscription.confirm and not subscription.closed:
            self._confirm(subscription)
        self.restore()

    def _is_early(self, subscription: Subscription) -> bool:
        """Return whether something must be sent before its SUBSCRIBE: the rest of a body, or UNSUBSCRIBE for its id."""
        link = self.link
        if link.upload is not None and link.phase == "up":
            return True
        leaving = (each.frame for each in link.outbox if each.frame.command == "UNSUBSCRIBE")
        return any(isinstance(frame, Frame) and frame.get("id") == subscription.id for frame in leaving)

    def go_on(self) -> None:
        """Send the SUBSCRIBE of subscriptions that had to wait."""
        late, self.late = self.late, []
        for subscription in late:
            if self._is_early(subscription):
                self.late.append(subscription)
            elif not subscription.closed:
                self._subscribe_or_close(subscription)

    def _subscribe_or_close(self, subscription: Subscription) -> None:
        try:
            self._send_subscribe(subscription)
        except Exception as error:  # it ends this subscription, and none of the others
            log.error("cannot subscribe to %s: %s", subscription.destination, error)
            self.close_subscription(subscription, error)

    def restore_all(self) -> None:
        """Subscribe again, on a new connection."""
        is_suspect = self.link.pace.is_suspect
        self._to_restore = sorted(self.subscriptions.values(), key=lambda each: not is_suspect(each))
        self.restore()

    def cut(self) -> None:
        """Drop messages of the lost connection that no consumer has taken."""
        self._to_restore, self.late = [], []
        self._restoring.clear()
        self.paused = self.in_body = False
        self._incoming = self.before = None
        if self.runs is not None:
            self.runs.let_go(b"")
        self.fetches.clear()
        self.fetched.clear()
        for subscription in self.subscriptions.values():
            subscription.subscribed = subscription.confirmed = False
            subscription.left = 0
            self.windows.end(subscription, tell=False)
            if subscription.place is not None:
                subscription.place.cut()
            if subscription.explicit:  # the broker delivers them again
                self.forget(subscription)
                subscription.give_back()

    def _send_subscribe(self, subscription: Subscription) -> None:
        subscription.dialect = self.link.dialect
        subscription.folds_case = self.link.version == "legacy"
        if subscription is self.reply_subscription and self.link.dialect.implicit_replies:
            self._confirm(subscription)
            return
        headers = self.subscribe_headers(subscription)
        if self.link.dialect.is_stream(headers):
            subscription.place = subscription.place or Place(subscription, self.link.dialect.offset)
            headers = subscription.place.asked(headers)
        subscription.asked = headers
        subscription.may_stall = subscription.explicit and self.link.dialect.may_stall
        if subscription.explicit:
            self.windows.look_at = min(self.windows.look_at, self.link.now + LOOK)
        call = subscription.call
        if not subscription.confirm:
            self.link.transmit(Frame("SUBSCRIBE", headers))
            subscription.subscribed = True
            if not self.link.pace.is_slow:
                self._confirm(subscription)
            return
        if call is None or call.done:
            what = f"SUBSCRIBE to {subscription.destination}"
            call = self.link.calls.make(what, self.link.options.receipt_timeout, "SUBSCRIBE")
            call.subject, call.after = subscription, self._answered
            self.link.calls.open(call, self.link.now)
        self.link.transmit(Frame("SUBSCRIBE", [*headers, *call.receipt]), call)
        subscription.subscribed = True
        subscription.receipt_id = call.id
        if self.link.phase == "restoring":
            self._restoring[call.id] = subscription

    def _answered(self, call: Call) -> None:
        """Go on restoring after the outcome of a SUBSCRIBE. A subscription that was not confirmed in time ends."""
        subscription: Subscription = call.subject
        if self._restoring.pop(call.id, None) is not None:
            self.restore()
        if isinstance(call.error, ReceiptTimeoutError):
            if subscription.call is call:
                for request in [*self.replies.values()] if subscription is self.reply_subscription else ():
                    self.link.finish(request, call.error)
                self.unsubscribe(subscription, self.link.now)
                subscription.error = call.error
            else:
                log.warning("%s", call.error)

    def try_out(self, subscription: Subscription) -> None:
        """Raise what SUBSCRIBE or RECEIVE would raise: what is sent again later was written once before."""
        link, options = self.link, self.link.options
        is_known = link.server is not None or options.dialect != "auto" or subscription.durable is None
        dialect = link.dialect if is_known else BROKERS["stompcodec"]
        subscription.check(dialect, options.client_id)
        headers = subscription.subscribe_headers(dialect, options.client_id, options.topic_queues, lambda: "")
        link.try_out(Frame("SUBSCRIBE", headers))

    def subscribe_headers(self, subscription: Subscription) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE or RECEIVE, as `Subscription.subscribe_headers`."""
        options = self.link.options
        return subscription.subscribe_headers(self.link.dialect, options.client_id, options.topic_queues, self.new_id)

    def _confirm(self, subscription: Subscription) -> None:
        """Mark a subscription as confirmed, by its RECEIPT or a first message."""
        subscription.subscribed = subscription.confirmed = True
        for call in (subscription.call, self.link.calls.sent.get(subscription.receipt_id)):
            if call is not None:
                self.link.finish(call)
        if self.link.pace.passed(subscription):
            self.restore()

    def close_subscription(self, subscription: Subscription, error: Exception | None) -> None:
        """End a subscription on this side. Iterators end, or raise the error."""
        if subscription.closed:
            return
        if self.subscriptions.get(subscription.id) is subscription:
            del self.subscriptions[subscription.id]
        subscription.closed = subscription.deaf = True
        subscription.ended = math.inf
        subscription.error = error
        self.windows.end(subscription, tell=self.link.phase == "up" and self.link.state == "connected")
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
        if self.link.pace.passed(subscription):
            self.restore()
        self.touch(subscription)

    def end(self, error: Exception | None) -> None:
        for subscription in list(self.subscriptions.values()):
            self.close_subscription(subscription, error)

    def forget(self, subscription: Subscription) -> None:
        """Drop messages that no consumer has taken."""
        self.backlog -= len(subscription.inbox)
        self.backlog_octets -= subscription.inbox_octets
        subscription.open -= subscription.forget()
        self.weigh()

    def touch(self, subscription: Subscription) -> None:
        """Have the shell wake the consumers of a subscription."""
        if not subscription.touched:
            subscription.touched = True
            self.touched.append(subscription)

    # ---- back-pressure ----

    def weigh(self) -> None:
        """Pause reading at a limit, resume at half of it. Receipts that calls wait for may stand behind messages."""
        options = self.link.options
        most = options.inbox_octets if self.runs is None else min(options.inbox_octets, _RUNS)
        share = max(self.backlog / options.inbox_messages, self.backlog_octets / most)
        mark = _URGENT if self.link.calls.sent else 1
        if not self.paused and share >= mark and self.link.connection is not None:
            self.paused, self._excused_at = True, self.link.now
        elif self.paused and share < (mark if mark > 1 else 0.5):
            if self.link.connection is not None:
                self.link.connection.excuse(self.unread(), self.link.now)
            self.paused = False

    def unread(self) -> float:
        """Return the seconds since reading was paused or this was last asked."""
        if not self.paused:
            return 0.0
        since, self._excused_at = self._excused_at, self.link.now
        return max(self.link.now - since, 0.0)


def _not_deleted(subscription: Subscription, over: bool) -> StompError:
    """Return the error for a durable subscription that could not be deleted."""
    what = f"the durable subscription {subscription.durable!r} was not deleted"
    if over:
        return LocalProtocolError(f"{what}: it had been unsubscribed before; subscribe again, then delete it")
    return ConnectionLostError(f"{what}: there is no connection", sent=False)
