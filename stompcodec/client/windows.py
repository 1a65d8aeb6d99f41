"""The windows of a client: it has them grow, and names a subscription that gets no messages."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from stompcodec.client.link import ClientLink
from stompcodec.client.message import BaseMessage
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame
from stompcodec.errors import LocalProtocolError, RejectedError

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
        subscription.inbox = _Noted(self.note, subscription.inbox)
        if subscription.last is not None:
            self._held[subscription.last.seq] = (subscription.id, 0, subscription.last)

    def note(self, message: BaseMessage) -> None:
        """Count a message of any of the consumers."""
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


class _Noted(deque[Any]):
    """An inbox that tells of each message."""

    def __init__(self, note: Callable[[BaseMessage], None], messages: Iterable[Any]) -> None:
        super().__init__(messages)
        self._note = note

    def append(self, message: Any) -> None:
        self._note(message)
        super().append(message)


log = logging.getLogger("stompcodec.client")

#: The seconds between two looks at subscriptions that hold messages, and those without messages before one is named.
LOOK, _SILENT = 15.0, 60.0
_MOST = 2**31 - 1
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
        changed = {"id": name, dialect.window: str(min(octets, _MOST))}
        call = link.calls.make(f"SUBSCRIBE of {name} to {subscription.destination}", math.inf)
        call.subject, call.after = subscription, partial(self._answered, name)
        pairs = [(key, changed.get(key, value)) for key, value in asked]
        link.put(Frame("SUBSCRIBE", [*pairs, ("receipt", call.id)]), call, bound=True)
        self._asked[name] = call
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
        """Return the call of the spare that an ERROR without receipt-id is about; None if it is not about one.

        Artemis says the id of the consumer. Otherwise it is the only spare without an answer.
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
