"""Subscriptions: their options, their received messages, and their state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from stompcodec.client.dialects import BROKERS, BrokerDialect
from stompcodec.client.owned import HeaderSource, pairs_of
from stompcodec.client.receipts import Call
from stompcodec.client.unreadable import Comings, OnUnreadable, checked
from stompcodec.codec import Frame

#: Messages that brokers deliver ahead if `prefetch` does not say how many.
_WINDOW = 1000
ACK_MODES = ("auto", "client", "client-individual")
#: How the names of queues begin, where they are known to be queues.
_QUEUES = ("/queue/", "/amq/queue/", "queue/", "queue://", "jms.queue.")
#: The largest prefetch: brokers read 32 bits.
_MOST = 2**31 - 1


class Subscription:
    """A subscription, which is restored on each new connection.

    The I/O thread puts messages into `inbox`. Consumers move all of them into `batch` at once, so that threads meet
    once per batch, not once per message.
    """

    stuck = (
        0  # the `seq` of a message, in mode `client`, that has failed and stays unsettled: no later one may cover it
    )
    # Of its window, see `windows`:
    octets_from = 0  # the `seq` after which `octets` are counted
    last: Any = None  # the last message that consumers took, in mode `client`
    asked: Sequence[tuple[str, str]] = ()  # the headers of its SUBSCRIBE on this connection
    is_named = False  # the log has said that it holds messages, and gets none
    stopped_by: Any = None  # the last transaction that the log has named, as its COMMIT has no answer
    refusals = 0  # of its further consumers, in a row: see `Windows.refused`

    def __init__(
        self,
        destination: str,
        *,
        id: str,
        ack: str = "auto",
        prefetch: int | None = None,
        selector: str | None = None,
        durable: str | None = None,
        headers: HeaderSource = (),
        confirm: bool = True,
        usual: int | None = None,
        on_unreadable: OnUnreadable = "raise",
        dead_letter: str | None = None,
    ) -> None:
        _check({"destination": destination, "id": id}, {"selector": selector, "durable": durable}, ack, prefetch)
        self.destination = destination
        self.id = durable or id
        self.ack = ack
        self.prefetch = usual if prefetch is None else prefetch
        self._is_usual = prefetch is None  # headers may choose another one
        self.selector, self.durable = selector, durable
        self.headers = list(pairs_of("SUBSCRIBE", headers))
        self.confirm, self.dead_letter = confirm, checked_letter(dead_letter)
        self.on_unreadable, self.comings = checked(on_unreadable), Comings()
        self.explicit, self.cumulative = ack != "auto", ack == "client"
        self.dialect, self.folds_case = BROKERS["unknown"], False  # of its broker; header names are in lower case
        self.inbox: deque[Any] = deque()
        self.inbox_octets = self.streamed = 0  # of the inbox; and its messages with a body in a file
        self.batch: deque[Any] = deque()
        self.octets, self.may_stall = 0, False  # bytes that consumers took; a program that waits may have to act first
        self.spares: Any = None  # its further consumers on this connection
        self.seq = 0  # number of received messages, over all connections
        self.open = 0  # unsettled messages of this connection, with those in inbox and batch
        self.settled_to = 0  # the `seq` of the last cumulative acknowledgement
        self.reopened: set[int] = set()  # those up to there that an ABORT has made unsettled again
        self.claims: dict[int, Any] = {}  # `seq` -> the transaction that settles the message, or may have settled it
        self.subscribed, self.confirmed, self.receipt_id = False, False, ""  # SUBSCRIBE was sent here, and confirmed
        self.call: Call | None = None  # waits for the first confirmation
        self.touched = False  # it is in the list of those to wake
        self.wake: Callable[[], object] | None = None  # has consumers look for news
        self.waiting: Collection[object] = ()  # threads that wait for messages
        self.in_turn, self.came_at = 0, -math.inf  # messages that came one by one: see `Engine._is_talk`; the last time
        self.deaf = self.closed = False  # no more messages will be accepted; and none can be settled
        self.ended: float = 0  # the broker has all messages up to this `seq` back; infinite once it is closed
        self.deleted = False  # the durable one was ended
        self.is_narrow, self.owed = False, 0  # the window is one, as the handler fails; until so many are handled
        self.is_handled, self.left = False, 0  # it has a handler; the messages that failed ones left unsettled
        self.error: Exception | None = None  # why it ended
        self.news: Exception | None = None  # an ERROR that belongs to no call; raised once

    def __repr__(self) -> str:
        return f"<Subscription {self.id} to {self.destination!r} ack={self.ack}>"

    def subscribe_headers(
        self, dialect: BrokerDialect, client_id: str | None, topic_queues: str, unique: Callable[[], str]
    ) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE in the broker's dialect; LocalProtocolError: it does not support an option.

        `client_id` is the one in CONNECT; `unique` returns a name that no other subscription has. ValueError: with the
        window in its headers no messages come.
        """
        dialect.check_window(self.ack, self.headers)
        headers = [("id", self.id), ("destination", self.destination), ("ack", self.ack)]
        for _argument, pairs in self._written(dialect, client_id):
            headers += pairs
        if self.is_handled and dialect.names_causes:
            headers.append(("attempts", "named"))
        asked = self.headers
        if self.is_narrow:
            names = {name for name, _ in dialect.prefetch_headers(1)}
            asked = [pair for pair in asked if pair[0] not in names]
        given = {name for name, _ in asked}
        headers += dialect.type_headers(self.destination, asked, self.durable is not None)
        if self.durable is None:
            headers += dialect.topic_headers(self.destination, topic_queues, given, unique)
        made = [pair for pair in headers if pair[0] not in given] + asked
        dialect.check_selector(dict(made).get("selector"))
        return made

    @property
    def window(self) -> int | None:
        """The messages that may be unacknowledged on this connection; None if it is not known."""
        return 1 if self.is_narrow else self.prefetch

    @property
    def keeps_messages(self) -> bool:
        """Whether the broker keeps messages while there is no subscription, as far as that is known."""
        is_queue = self.destination.startswith(_QUEUES) and "topic" not in self.destination
        return self.durable is not None or is_queue

    def _is_shared(self, dialect: BrokerDialect) -> bool:
        """Return whether other consumers may take the messages, too, as far as that is known."""
        if self.durable is not None:
            return False
        if not dialect.shared:
            return self.keeps_messages
        types = [*self.headers, *dialect.type_headers(self.destination, self.headers, False)]
        return not set(dialect.shared).isdisjoint(types)

    def _written(self, dialect: BrokerDialect, client_id: str | None) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield arguments and the headers that they write, which `headers` may name as well."""
        if self.selector is not None:
            yield "selector", [("selector", self.selector)]
        window = self.window
        if window is not None:
            yield "prefetch", dialect.prefetch_headers(window, self.ack, wide=not self._is_shared(dialect))
        if self.durable is not None:
            yield "durable", dialect.durable_headers(self.durable, client_id)

    def check(self, dialect: BrokerDialect, client_id: str | None) -> None:
        """Raise ValueError if a header and an argument differ, if the broker would close for the name, or if dead
        letters would come back.
        """
        dialect.check_value("destination", self.destination)
        if self.dead_letter is not None and dialect.is_read(self.destination, self.dead_letter):
            raise ValueError(
                f"dead_letter is {self.dead_letter!r:.60}: messages that are given up would come back, as"
                f" {self.destination!r:.60} is the same queue. Name another one"
            )
        given = dict(reversed(self.headers))  # the first of repeated ones counts
        for argument, pairs in self._written(dialect, client_id):
            if argument == "prefetch" and self._is_usual:
                continue
            for name, value in pairs:
                if given.get(name, value) != value:
                    raise ValueError(
                        f"headers= holds {name!r} as {given[name]!r:.60}, and {argument}= writes it as {value!r:.60}: "
                        "give one of them"
                    )

    def unsubscribe_headers(self, dialect: BrokerDialect, client_id: str | None, delete: bool) -> list[tuple[str, str]]:
        """Return the headers of UNSUBSCRIBE; `delete` deletes a durable subscription."""
        headers = [("id", self.id)]
        if delete and self.durable is not None:
            headers += dialect.durable_headers(self.durable, client_id)
        return headers

    def covered(self, seq: int) -> list[int]:
        """Return the `seq` of the messages that an ACK or NACK of this one settles; in mode `client` with earlier ones,
        and none if it is settled already.
        """
        if not self.cumulative:
            return [seq]
        if seq <= self.settled_to and seq not in self.reopened:
            return []
        earlier = [each for each in self.reopened if each <= seq]
        return [*sorted(earlier), *range(self.settled_to + 1, seq + 1)]

    def settle(self, covered: Sequence[int]) -> None:
        """Count messages as settled, or as part of a transaction."""
        self.open -= len(covered)
        if self.cumulative:
            self.settled_to = max(self.settled_to, covered[-1])
            self.reopened.difference_update(covered)

    def reopen(self, covered: Sequence[int]) -> None:
        """Count messages as unsettled again, in any mode: their transaction was aborted."""
        self.open += len(covered)
        if self.cumulative:
            self.reopened.update(covered)

    def is_last_of(self, frame: Frame) -> bool:
        """Count a message that cannot be read; return whether the subscription has to end. See `Comings.is_last`."""
        return self.comings.is_last(frame, self.seq, self.prefetch or _WINDOW, self.dialect)

    def give_back(self) -> None:
        """Count all messages so far as those of the broker."""
        self.open = self.left = self.stuck = 0
        self.ended = self.settled_to = self.seq
        self.reopened.clear()

    def forget(self) -> int:
        """Drop messages that no consumer has taken; return their number."""
        count = len(self.inbox) + len(self.batch)
        self.inbox.clear()
        self.inbox_octets = self.streamed = 0
        self.batch.clear()
        return count


def checked_letter(dead_letter: str | None) -> str | None:
    """Return the option `dead_letter`; raise TypeError or ValueError if it is no destination."""
    if dead_letter is not None and not isinstance(dead_letter, str):
        raise TypeError(f"dead_letter is {dead_letter!r:.60}: it must be str, or None")
    if dead_letter == "":
        raise ValueError("dead_letter is empty: name a queue")
    return dead_letter


def _check(texts: dict[str, str], more: dict[str, str | None], ack: str, prefetch: int | None) -> None:
    """Raise TypeError or ValueError for an argument that cannot be; `more` may be None."""
    for name, text in (*texts.items(), *more.items()):
        if not isinstance(text, str) and (text is not None or name in texts):
            raise TypeError(f"{name} is {text!r:.60}: it must be str")
    if ack not in ACK_MODES:
        raise ValueError(f"ack is {ack!r:.60}: use {', '.join(ACK_MODES)}")
    if prefetch is not None and type(prefetch) is not int:
        raise TypeError(f"prefetch is {prefetch!r:.60}: it must be a number of messages")
    if prefetch is not None and not 0 < prefetch <= _MOST:
        raise ValueError(f"prefetch is {prefetch!r:.60}: it must be 1 to {_MOST} messages")
