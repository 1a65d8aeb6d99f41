"""Memory: one account of the bytes that the broker holds for its clients, and the measures when it fills up.

`Account.used` covers everything that clients can make the broker keep: messages wherever they wait, unfinished frames,
transactions, unwritten output, subscriptions with their selectors, destinations, and connections. Each item counts its
bytes plus a fixed cost, which was measured as resident memory of a process that holds many of them.

    0 ............ first ............ second ......... limit
                   |                  |
                   |                  the session that holds most in frames and transactions is ended
                   senders wait if their queue holds more than what is left below `second`

The less memory is left, the smaller a queue must be for its senders to continue. So senders to the largest queues wait
first, and those to an almost empty queue hardly ever do.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import Any, Protocol

# Resident bytes of each object besides its content (CPython 3.11, x86-64, 90,000 of each).
#: A message in a queue: 330 when READY in a plain queue, 420 when unacknowledged or in a queue with priorities or
#: groups, 530 when unacknowledged in STOMP 1.1.
MESSAGE = 420
_EACH = MESSAGE  # a number of C where this file is compiled, and not seen from outside
#: A scheduled message, in addition.
DELAY = 500
#: A SEND, ACK or NACK in a transaction.
OPERATION = 420
#: A subscription: 1,400 for a queue; 2,400 for a topic, which includes a queue of its own, plus 800 while that is not
#: empty. Its id is stored six times.
_SUBSCRIPTION, _IDS = 3200, 6
#: A selector, and each of its characters.
_SELECTOR, _SELECTOR_CHARACTER = 1000, 60
#: A queue, a topic or a durable subscription.
DESTINATION = 1800
#: A connection, including what the transport keeps for it.
CONNECTION = 5120
#: A destination that a session remembers.
_TARGET = 120
#: The marker of a SEND with an idempotency key in a transaction.
MARK = 250
#: An idempotency key, and a scope of such keys: its dictionary, with the destination.
KEY, SCOPE = 640, 900
#: Each byte of an unfinished frame, because the buffer grows by doubling before the old one is freed; and the cost of
#: its header lines per byte, up to a bound (1,000 lines).
_UNFINISHED, _LINES, _MOST_LINES = 2, 8, 32768
#: Each byte held by the layers of a transport.
_BELOW = 2
#: The share of the limit for interpreter and libraries: a number of bytes, but at most this part.
_PROGRAM, _PROGRAM_PART = 32 * 2**20, 1 / 2
#: The thresholds, as parts of the rest.
_FIRST, _SECOND = 3 / 4, 15 / 16
#: The part that all sessions together may hold in unfinished frames, transactions and output.
_SESSIONS = 1 / 2
#: The part for connections, subscriptions and destinations, of which one session may take a quarter.
_FIXED, _FIXED_SHARE = 1 / 2, 4
#: The part for idempotency keys.
_KEYS = 1 / 8
#: Blocked senders continue when their queue has shrunk to this part of its limit, rather than for each message.
LOW = 0.75
#: However little memory is left, a queue may hold this part of the limit, as a power of 2: 16 KiB of 1 GiB.
_FLOOR = 16
#: Blocked senders are checked again when this part of the limit has been freed.
_STEP = 0.01


class Holder(Protocol):
    """A queue as the account sees it: it holds messages, and makes their senders wait. Its str describes it."""

    @property
    def blocked(self) -> Mapping[Any, None]:
        """The senders that wait."""

    @property
    def is_low(self) -> bool:
        """True if there is room again."""

    def release_blocked(self) -> None:
        """Let the senders continue."""


class Account:
    """The account of the bytes that the broker holds, and of the queues whose senders wait. The limit is in bytes. What
    is charged to a part of it is charged to its `whole`, too.

    >>> account = Account(2**30)
    >>> account.first < account.second < account.limit
    True
    """

    __slots__ = (
        *("_look_at", "first", "fixed", "floor", "held", "limit", "most_fixed", "most_held", "most_keys", "reserve"),
        *("second", "used", "waiting", "whole"),
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.whole: Account | None = None
        room = limit - min(_PROGRAM, int(limit * _PROGRAM_PART))
        #: Above this, senders to the largest queues wait.
        self.first = int(room * _FIRST)
        #: Above this, the session that holds most is ended.
        self.second = int(room * _SECOND)
        #: A queue that holds at most this is never too large.
        self.floor = limit >> _FLOOR
        #: Bytes that sessions may hold in any case, and while there is enough memory.
        self.reserve = self.second - self.first
        self.most_held = int(room * _SESSIONS)
        #: All bytes, and the bytes of sessions: unfinished frames, transactions and unwritten output.
        self.used = 0
        self.held = 0
        #: Bytes of connections, subscriptions and destinations, which stay until their owner goes; and their limit.
        self.fixed = 0
        self.most_fixed = int(room * _FIXED)
        #: Limit for idempotency keys.
        self.most_keys = int(room * _KEYS)
        #: Queues whose senders wait for room, in order; and since when, as `WaitLog` has seen it.
        self.waiting: dict[Holder, float | None] = {}
        self._look_at = 0.0

    @property
    def is_short(self) -> bool:
        """True if senders to the largest queues have to wait."""
        return self.used > self.first

    def has_room(self, cost: int, own: int = 0) -> bool:
        """Return whether another connection, subscription or destination of this cost is allowed, besides the `own`
        cost of those that the session has already.
        """
        return self.fixed + cost <= self.most_fixed and own + cost <= self.most_fixed // _FIXED_SHARE

    def use(self, cost: int) -> None:
        """Count bytes; a negative cost releases them."""
        self.used += cost
        if self.whole is not None:
            self.whole.used += cost

    def use_messages(self, count: int, octets: int) -> None:
        """Count messages that have so many bytes together; negative numbers release them."""
        self.use(octets + count * _EACH)

    def charge(self, cost: int) -> None:
        """Count a connection, subscription or destination; a negative cost removes it."""
        self.fixed += cost
        self.used += cost

    def hold(self, cost: int) -> None:
        """Count what a session holds in unfinished frames, transactions or output; a negative cost releases it."""
        self.held += cost
        self.used += cost

    @property
    def is_full(self) -> bool:
        """True if no memory is left for anything."""
        return self.used > self.second

    @property
    def is_overheld(self) -> bool:
        """True if a session must be ended so that others can continue."""
        held = self.held
        return held > self.reserve and (held > self.most_held or self.used > self.second)

    def is_large(self, cost: int, part: float = 1.0) -> bool:
        """Return whether a queue that holds `cost` bytes has more than its part of the memory that is left.

        >>> account = Account(2**30)
        >>> account.is_large(2**30), account.is_large(1000)
        (False, False)
        >>> account.used = account.first + 1
        >>> account.is_large(2**30), account.is_large(1000)
        (True, False)
        """
        return self.used > self.first and cost > max(self.floor, (self.second - self.used) * part)

    def wait(self, stock: Holder) -> None:
        """Note that senders to a queue wait for memory; `release` checks them again."""
        look_at = self.used - self.limit * _STEP
        self._look_at = max(look_at, self._look_at) if self.waiting else look_at
        self.waiting.setdefault(stock)

    def release(self, always: bool = False) -> None:
        """Let senders continue whose queues are not too large any more. Call it at the end of a turn, and now and then
        with `always`, to check even if little was freed.
        """
        if not always and self.used > self._look_at:
            return
        self._look_at = self.used - self.limit * _STEP
        for stock in list(self.waiting):
            if stock.is_low:
                stock.release_blocked()


class Part(Account):
    """A part of the account with a limit of its own, which whoever charges it checks: no senders wait here.

    >>> account = Account(2**30); part = Part(account, 100)
    >>> part.use(7)
    >>> account.used, part.used
    (7, 7)
    """

    __slots__ = ()

    def __init__(self, account: Account, limit: int) -> None:
        super().__init__(limit)
        self.whole = account
        self.first = self.second = 2**62

    @property
    def is_full(self) -> bool:
        """True if no memory is left in the whole account."""
        return self.whole is not None and self.whole.is_full

    def wait(self, stock: Holder) -> None:
        """Do nothing: no senders wait here."""


def frame_cost(buffered: int) -> int:
    """Return the cost of the received bytes of an unfinished frame.

    >>> frame_cost(0), frame_cost(100), frame_cost(2**20)
    (0, 1000, 2129920)
    """
    return _UNFINISHED * buffered + min(_LINES * buffered, _MOST_LINES)


def below_cost(octets: int) -> int:
    """Return the cost of bytes held by the layers of a transport, such as an unfinished WebSocket frame.

    Their buffers are larger than needed, and freed parts return to the system late.

    >>> below_cost(0), below_cost(2**20)
    (0, 2097152)
    """
    return _BELOW * octets


def subscription_cost(name: str, destination: str, selector: str | None) -> int:
    """Return the cost of a subscription with this name (which contains its id), destination and selector."""
    return _SUBSCRIPTION + _IDS * getsizeof(name) + getsizeof(destination) + selector_cost(selector)


def selector_cost(selector: str | None) -> int:
    """Return the cost of a selector with that text; 0 for None."""
    return 0 if selector is None else _SELECTOR + _SELECTOR_CHARACTER * len(selector)


def target_cost(destination: str) -> int:
    """Return the cost of a destination that a session remembers."""
    return _TARGET + getsizeof(destination)


def destination_cost(name: str) -> int:
    """Return the cost of a queue, topic or durable subscription with that name, which is stored three times."""
    return DESTINATION + 3 * getsizeof(name)


def transaction_cost(name: str) -> int:
    """Return the cost of an empty open transaction."""
    return OPERATION + getsizeof(name)
