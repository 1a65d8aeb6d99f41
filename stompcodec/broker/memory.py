"""Memory: one account of the bytes that the broker holds for its peers, and what happens when they are too many.

Whatever a peer can make the broker keep is in `Account.used`: messages wherever they wait, unfinished frames,
transactions, output that is not written yet, subscriptions with their selectors, destinations, and connections. Each is
counted with a fixed cost, measured as resident memory of a process that holds many of them, plus its bytes.

    0 ............ first ............ second ......... limit
                   |                  |
                   |                  the session that holds most in frames and transactions is ended
                   senders wait whose queue holds more than what is left below `second`

The less memory is left, the smaller a queue has to be for its senders to go on. So the largest ones wait first, and a
queue that is always nearly empty hardly ever does.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Protocol

__all__ = [
    "CONNECTION",
    "DELAY",
    "DESTINATION",
    "KEY",
    "LOW",
    "MARK",
    "MESSAGE",
    "OPERATION",
    "SCOPE",
    "Account",
    "Holder",
    "Part",
    "below_cost",
    "destination_cost",
    "frame_cost",
    "selector_cost",
    "sink_cost",
    "subscription_cost",
    "transaction_cost",
]

# Resident bytes of one, besides the bytes of its content (CPython 3.11, x86-64, 90,000 of each).
#: A message in a queue: 330 where it is READY in a plain queue, 420 where it is unacknowledged or its queue has
#: priorities or groups, 530 where it is unacknowledged in STOMP 1.1.
MESSAGE = 420
#: A message that waits for its time, besides.
DELAY = 500
#: A SEND, ACK or NACK in a transaction.
OPERATION = 420
#: A subscription: 2,400 where it is to a topic, and so has a queue of its own, 800 more while something waits there,
#: else 1,400. Its id is kept six times.
_SUBSCRIPTION, _IDS = 3200, 6
#: A selector, and each character of it.
_SELECTOR, _SELECTOR_CHARACTER = 1000, 60
#: A queue, a topic or a durable subscription.
DESTINATION = 1800
#: A connection, with what the transport keeps for it.
CONNECTION = 5120
#: A destination that a session remembers.
_SINK = 120
#: The mark of a SEND with an idempotency key in a transaction.
MARK = 250
#: An idempotency key, and a scope of such keys: its dictionary, and the destination in it.
KEY, SCOPE = 640, 900
#: Bytes of an unfinished frame: the buffer grows by doubling, and the one before is free only afterwards. And each
#: header line of it, of 1,000 at the most.
_UNFINISHED, _LINES, _MOST_LINES = 2, 8, 32768
#: And of what the layers of a transport keep.
_BELOW = 2

#: What the interpreter and the libraries take of the limit, but never more than this part of it.
_PROGRAM, _PROGRAM_PART = 32 * 2**20, 7 / 16
#: The marks, as parts of what is left.
_FIRST, _SECOND = 3 / 4, 15 / 16
#: Sessions together may hold this part of it in unfinished frames, transactions and output.
_SESSIONS = 1 / 2
#: Connections, subscriptions and destinations may take this part of it, and one session a quarter of that.
_FIXED, _FIXED_SHARE = 1 / 2, 4
#: Idempotency keys may take this part of it.
_KEYS = 1 / 8
#: Senders that waited go on when their queue is down to this part of what stopped them, not for each message anew.
LOW = 0.75
#: However little memory is left, a queue may hold this part of the limit, as a power of 2: 16 KiB of 1 GiB.
_FLOOR = 16
#: Waiting senders are looked at again when this part of the limit has become free.
_STEP = 0.01


class Holder(Protocol):
    """What holds messages, and makes their senders wait: a queue."""

    @property
    def is_low(self) -> bool:
        """There is room again."""

    def release_blocked(self) -> None:
        """Let the senders go on."""


class Account:
    """The bytes that the broker holds, by its own count, and who waits until there are fewer.

    Args:
        limit: `limits.memory`, in bytes.

    >>> account = Account(2**30)
    >>> account.first < account.second < account.limit
    True
    """

    __slots__ = (
        "_look_at",
        "first",
        "fixed",
        "floor",
        "held",
        "limit",
        "most_fixed",
        "most_held",
        "most_keys",
        "reserve",
        "second",
        "used",
        "waiting",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        room = limit - min(_PROGRAM, int(limit * _PROGRAM_PART))
        #: Above it, senders to the largest queues wait.
        self.first = int(room * _FIRST)
        #: Above it, the session that holds most is ended.
        self.second = int(room * _SECOND)
        #: A queue that holds no more than this is never too large.
        self.floor = limit >> _FLOOR
        #: What sessions may hold in any case, and what they may hold as long as there is memory.
        self.reserve = self.second - self.first
        self.most_held = int(room * _SESSIONS)
        #: All bytes, and those of sessions: unfinished frames, transactions, and output that is not written.
        self.used = 0
        self.held = 0
        #: Bytes of connections, subscriptions, destinations: of what stays until its owner goes. And the most of that.
        self.fixed = 0
        self.most_fixed = int(room * _FIXED)
        #: What idempotency keys may take.
        self.most_keys = int(room * _KEYS)
        #: Queues whose senders wait for memory, in order.
        self.waiting: dict[Holder, None] = {}
        self._look_at = 0.0

    @property
    def is_short(self) -> bool:
        """Senders to the largest queues have to wait."""
        return self.used > self.first

    def has_room(self, cost: int, own: int = 0) -> bool:
        """Whether there may be one more connection, subscription or destination.

        Args:
            cost: of it.
            own: what the session has of them.
        """
        return self.fixed + cost <= self.most_fixed and own + cost <= self.most_fixed // _FIXED_SHARE

    def charge(self, cost: int) -> None:
        """A connection, subscription or destination is there; with a negative cost, it is gone."""
        self.fixed += cost
        self.used += cost

    def hold(self, cost: int) -> None:
        """A session holds more in unfinished frames, transactions or output; or less, if it is negative."""
        self.held += cost
        self.used += cost

    @property
    def is_full(self) -> bool:
        """There is nothing left, whoever asks for it."""
        return self.used > self.second

    @property
    def is_overheld(self) -> bool:
        """A session has to end, so that others can go on."""
        held = self.held
        return held > self.reserve and (held > self.most_held or self.used > self.second)

    def is_large(self, cost: int, part: float = 1.0) -> bool:
        """Whether a queue is too large for the memory that is left.

        Args:
            cost: what it holds, in bytes.
            part: how much of that memory it may take.

        >>> account = Account(2**30)
        >>> account.is_large(2**30), account.is_large(1000)
        (False, False)
        >>> account.used = account.first + 1
        >>> account.is_large(2**30), account.is_large(1000)
        (True, False)
        """
        return self.used > self.first and cost > max(self.floor, (self.second - self.used) * part)

    def wait(self, stock: Holder) -> None:
        """Senders to a queue wait for memory: `release` looks at them again."""
        look_at = self.used - self.limit * _STEP
        self._look_at = max(look_at, self._look_at) if self.waiting else look_at
        self.waiting[stock] = None

    def release(self, always: bool = False) -> None:
        """Let senders go on whose queues are not too large any more. To be called at the end of a turn.

        Args:
            always: look, however little has become free. To be done every now and then.
        """
        if not always and self.used > self._look_at:
            return
        self._look_at = self.used - self.limit * _STEP
        for stock in list(self.waiting):
            if stock.is_low:
                stock.release_blocked()


class Part:
    """A part of the account with a limit of its own, which stands for the account where it is charged.

    >>> account = Account(2**30); part = Part(account, 100)
    >>> part.used += 7
    >>> account.used, part.used
    (7, 7)
    """

    __slots__ = ("_account", "_used", "first", "limit", "second", "waiting")

    def __init__(self, account: Account, limit: int) -> None:
        self._account = account
        self.limit = limit
        self._used = 0
        #: Nobody waits for memory here: whoever charges it looks at the limit.
        self.first = self.second = 2**62
        self.waiting: dict[Holder, None] = {}

    @property
    def used(self) -> int:
        """Bytes."""
        return self._used

    @used.setter
    def used(self, used: int) -> None:
        self._account.used += used - self._used
        self._used = used

    @property
    def is_full(self) -> bool:
        """As in Account."""
        return self._account.is_full

    def is_large(self, _cost: int, _part: float = 1.0) -> bool:
        """As in Account; nothing is."""
        return False

    def wait(self, stock: Holder) -> None:
        """As in Account; nobody does."""


def frame_cost(buffered: int) -> int:
    """The cost of an unfinished frame.

    Args:
        buffered: bytes of it that have come.

    >>> frame_cost(0), frame_cost(100), frame_cost(2**20)
    (0, 1000, 2129920)
    """
    return _UNFINISHED * buffered + min(_LINES * buffered, _MOST_LINES)


def below_cost(octets: int) -> int:
    """Return the cost of bytes that the layers of a transport keep, such as an unfinished frame of WebSocket.

    Their buffer has room to spare, and pieces of it that were free come back to the system late.

    >>> below_cost(0), below_cost(2**20)
    (0, 2097152)
    """
    return _BELOW * octets


def subscription_cost(name: str, destination: str, selector: str | None) -> int:
    """The cost of a subscription.

    Args:
        name: by which its session knows it; it holds the id.
        destination: as SUBSCRIBE has it.
        selector: its text; None for none.
    """
    return _SUBSCRIPTION + _IDS * getsizeof(name) + getsizeof(destination) + selector_cost(selector)


def selector_cost(selector: str | None) -> int:
    """The cost of a selector of that text; 0 for none."""
    return 0 if selector is None else _SELECTOR + _SELECTOR_CHARACTER * len(selector)


def sink_cost(destination: str) -> int:
    """The cost of a destination that a session remembers."""
    return _SINK + getsizeof(destination)


def destination_cost(name: str) -> int:
    """The cost of a queue, topic or durable subscription of that name, which is kept three times."""
    return DESTINATION + 3 * getsizeof(name)


def transaction_cost(name: str) -> int:
    """The cost of an open transaction that nothing is in."""
    return OPERATION + getsizeof(name)
