"""Delays between attempts to connect, refused logins, and the pace of restoring after connections that failed.

Normally all subscriptions and unanswered messages are restored at once on a new connection. But a frame that is sent
again after each reconnect, and that ends each connection, would be repeated for ever: a SUBSCRIBE that the server
refuses without naming it, or a SEND that it answers by closing. So after `MOST_SHORT` connections in a row that the
server ended within `SOON` seconds of restoring, the next ones restore one frame at a time, each until its answer or for
`STEP` seconds. Then the client knows by name what ended two such connections.

Deliveries are not to be spent on this search, since brokers count them: a frame that was under way at the end of a
connection is the first one on the next connection. But nothing at all is sent there for a step: a server that ends this
connection, too, ends each one whatever is sent, and nothing is to blame.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stompcodec.arguments import checks
from stompcodec.client.messages import Subscription
from stompcodec.client.outbox import Call
from stompcodec.errors import RejectedError, SilentFeedError
from stompcodec.transport.owner import CloseCodeError
from stompcodec.values import shown_duration

#: Seconds from the first to the last refused login that end a client: a broker that restarts may refuse for a while.
SPAN = 60.0
#: The longest delay between rounds, in seconds, and the one after `LONG` seconds without a connection.
MOST, MOST_LATER = 5.0, 30.0
LONG = 300.0
#: A connection that ends within this many seconds of restoring may have ended because of it.
SOON = 1.0
#: The most connections in a row that may end so soon, before the next one restores one frame at a time.
MOST_SHORT = 3
#: The seconds for which a frame is under way alone, unless it is answered before. They are doubled, up to the most, as
#: long as refusals come for another frame each time: answers may be late.
STEP, _MOST_STEP = 0.5, 2.0
#: The number of connections that a frame may end before it is given up.
_CONVICTED = 2
#: Close codes of WebSocket by which a server refuses what it has received: those of RFC 6455, section 7.4.1, but not
#: the ones for going away, a restart or overload; and those of applications.
_REFUSALS = frozenset({*range(1002, 1012), *range(4000, 5000)})
#: Faults of a program, which another attempt would meet again: `connect` raises them as they are.
BUGS = (TypeError, AttributeError, NameError, LookupError, AssertionError, NotImplementedError)
#: What is restored: a subscription, or the call of a message that is sent again.
Item = Subscription | Call


@checks()
@dataclass(frozen=True)
class Backoff:
    """A policy of growing delays, with jitter so that many clients do not reconnect at once.

    Args:
        first: the delay after the first failed round over all addresses, in seconds.
        factor: by which each delay grows. With the default, a client that has been away for a while is back within
            half of that time.
        most: the longest delay, in seconds; None for 5 s, and 30 s after 5 minutes without a connection, or for
            `first` if that is longer.
        jitter: the random share of a delay, from 0 (none) to 1 (all of it).
        attempts: the number of rounds before the client gives up; None for no limit.

    Raises:
        ValueError: a number is out of its range.

    >>> list(Backoff(first=1.0, factor=2.0, attempts=4).delays(lambda: 1.0))
    [1.0, 2.0, 4.0, 5.0]
    """

    first: float = 0.1
    factor: float = 1.25
    most: float | None = None
    jitter: float = 0.5
    attempts: int | None = None

    def __post_init__(self) -> None:
        most = max(MOST, self.first) if self.most is None else self.most
        if not 0 < self.first <= most or math.isinf(self.first):
            raise ValueError(f"first is {self.first} and most is {most}: write 0 < first <= most, in seconds")
        if not self.factor >= 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"factor is {self.factor} and jitter is {self.jitter}: they must be >= 1 and 0 to 1")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}: it must be 1 or more, or None for no limit")

    def delays(self, random: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
        """Yield the seconds to wait before each round.

        Args:
            random: returns numbers from 0 to 1, as `random.random`.
            clock: returns the time in seconds. The connection was lost when the first delay is asked for.
        """
        delay, count, began = self.first, 0, clock()
        while self.attempts is None or count < self.attempts:
            yield delay * (1 - self.jitter + self.jitter * random())
            most = self.most
            if most is None:
                most = max(self.first, MOST if clock() - began < LONG else MOST_LATER)
            delay, count = min(delay * self.factor, most), count + 1


class Refusals:
    """The refused logins in a row, which a client counts: more attempts could lock the account. `most` (None for no
    limit) end the attempts, if there are `span` seconds or more from the first to the last of them.
    """

    def __init__(self, most: int | None, span: float) -> None:
        self._most, self.span = most, span
        self._count, self._first = 0, 0.0
        self.are_enough = False
        """True if it is time to give up."""

    def note(self, now: float) -> bool:
        """Count a refused login; return whether to give up."""
        if not self._count:
            self._first = now
        self._count += 1
        is_often = self._most is not None and self._count >= self._most
        self.are_enough = is_often and now - self._first >= self.span
        return self.are_enough

    def forget(self) -> None:
        """Begin anew: there was a session, or the broker refused for another reason."""
        self._count, self.are_enough = 0, False


class Expected:
    """The longest time in seconds without a message that is expected of a feed (None for no limit): a broker may beat
    for months and send nothing.

    >>> expected = Expected(300.0)
    >>> for number, now in ((0, 0.0), (1, 299.0), (1, 598.0)):
    ...     expected.check(number, now)
    >>> expected.check(1, 599.0)
    Traceback (most recent call last):
        ...
    stompcodec.errors.SilentFeedError: no message came for 5m: is the destination right, and does its sender run?
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._last, self._since = seconds, -1.0, 0.0
        self.silence = 0.0
        """The seconds without a message, up to the last check."""

    def check(self, last: float, now: float, *, busy: bool = False) -> None:
        """Raise SilentFeedError if `last` (number or time of the last message) stayed for too long, and not `busy`."""
        if busy or last != self._last:
            self._last, self._since = last, now
        self.silence = now - self._since
        if self._seconds is not None and self.silence >= self._seconds:
            why = "is the destination right, and does its sender run?"
            raise SilentFeedError(f"no message came for {shown_duration(self._seconds)}: {why}")


def is_refusal(error: BaseException | None) -> bool:
    """Return whether a connection ended by an answer of the server: an ERROR, or a close code that refuses something.

    An ERROR with a receipt-id does not count: it says itself what was refused.
    """
    if isinstance(error, RejectedError):
        return error.frame.get("receipt-id") is None
    return isinstance(error, CloseCodeError) and error.code in _REFUSALS


def name_of(item: Item) -> str:
    """Return the words for an item in errors and logs."""
    return item.what if isinstance(item, Call) else f"SUBSCRIBE to {item.destination}"


class Pace:
    """The pace of one client, over all its connections. Times are in seconds of its clock."""

    def __init__(self) -> None:
        self.short = 0
        """The last connections in a row that ended soon."""
        self.is_slow = False
        """True while this connection restores one frame at a time."""
        self.item: Item | None = None
        """The subscription or message that is under way alone."""
        self.until = math.inf
        """When the next frame follows, if there is no answer before; infinite if nothing is waited for."""
        self.refusal: BaseException | None = None
        """The answer of the server to `item`; in some versions of STOMP the session goes on after an ERROR."""
        self._step = STEP
        self._ended_at: float | None = None  # when all was restored
        self._counts: dict[Item, int] = {}  # connections that ended with it under way

    def begin(self, now: float) -> None:
        """Note that a session has begun, which restores what there is; first nothing, if it may convict something."""
        self.is_slow, self._ended_at = self.short >= MOST_SHORT, None
        self.rest()
        if self.is_slow and any(self._counts.values()):
            self.until = now + self._step

    @property
    def is_free(self) -> bool:
        """True if the next frame may be sent."""
        return self.until == math.inf

    def start(self, item: Item, now: float) -> None:
        """Note that a frame has been sent, and that nothing else is under way."""
        self.item, self.until, self.refusal = item, now + self._step, None

    def passed(self, item: Item) -> bool:
        """Note that a frame was answered, or that its time is over; return False if it is not the one under way."""
        if item is not self.item:
            return False
        self._counts.pop(item, None)
        self.rest()
        return True

    def end(self, now: float) -> None:
        self.is_slow, self._ended_at = False, now
        self._counts.clear()  # they have passed, or have ended
        self.rest()

    @property
    def is_restored(self) -> bool:
        """True if all was restored in this session, or the last one."""
        return self._ended_at is not None

    def is_suspect(self, item: Item) -> bool:
        """Return whether a connection has ended while this was under way alone, and it has not passed since."""
        return item in self._counts

    def lost(self, error: BaseException | None, now: float, theirs: bool = True) -> Item | None:
        """Note the end of a session, which the server has ended or this side; return what must not be sent again.

        A subscription is convicted only by answers of the server: see `is_refusal`. A message is convicted by any end.
        """
        if self._ended_at is not None and now - self._ended_at > SOON:
            self.short, self._step = 0, STEP
            return None
        if not theirs:
            return None
        was_slow, item = self.short >= MOST_SHORT, self.item
        self.short += 1
        self.refusal = error if is_refusal(error) else self.refusal
        if item is None and not self.is_free:
            self._counts.clear()
            return None
        count = 0
        if item is not None:
            convicts = isinstance(item, Call) or self.refusal is not None
            count = self._counts[item] = self._counts.get(item, 0) + convicts
        if item is None or count == 1:
            self._step = min(2 * self._step, _MOST_STEP) if was_slow else STEP
        if count < _CONVICTED:
            return None
        assert item is not None
        del self._counts[item]
        self._step = STEP
        return item

    def rest(self) -> None:
        """Note that nothing is under way alone, as without a session."""
        self.item, self.until, self.refusal = None, math.inf, None
