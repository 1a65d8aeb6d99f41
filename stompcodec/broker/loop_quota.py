"""The loop quota: how long a session may occupy the event loop, and how longer work is split into shares."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import inf
from typing import Protocol

#: Messages or sessions processed in one step. The rest waits for the next turn, so that others are served too.
AT_ONCE = 1000
#: That many while other sessions are active, which wait for up to two steps: together less than a millisecond.
FEW = 10
#: Seconds that a step beside active sessions may take if it has more messages than those, which are quick.
_MOMENT = 0.0004
#: Seconds for which a session counts as active after it sent something.
_ACTIVE = 0.1

#: Seconds for which one session may occupy the loop while others wait.
_SHARE = 0.005


class Waiter(Protocol):
    """An object that continues when its turn comes: a session, a queue, or `Work`."""

    def take_turn(self, now: float) -> object:
        """Do one share of the remaining work."""


class Line(Protocol):
    """A place to wait: for the next turn (`LoopQuota`), or for the next write of the store (`Journal`)."""

    def line_up(self, waiter: Waiter) -> None:
        """Have `take_turn` called later."""


class Work:
    """A task that is too long for one turn. `steps` does one share each time it is resumed, and yields where to wait
    for the next one.

    >>> quota = LoopQuota()
    >>> quota.line_up(Work(iter([quota])))
    >>> for _ in range(2):
    ...     quota.next(0.0)
    >>> len(quota.blocked)
    0
    """

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterator[Line]) -> None:
        self._steps = steps

    def take_turn(self, now: float) -> None:
        """Do the next share."""
        line = next(self._steps, None)
        if line is not None:
            line.line_up(self)


class Paused(Exception):
    """Raised when a frame is not finished yet: the next frame of its session has to wait."""


class LoopQuota:
    """The time of the loop, and the sessions that have used their share and wait for the next turn.

    One read can contain thousands of frames, and a single frame can take milliseconds: a SEND to a thousand
    subscriptions, or a RECEIVE with a long selector.

    >>> LoopQuota().used_up(0.0)
    False
    """

    __slots__ = ("_front_last", "blocked", "clock", "front", "heard", "since", "wake")

    def __init__(self) -> None:
        #: Returns the time in seconds. Set by the shell; a clock that stands still never ends a share.
        self.clock: Callable[[], float] = lambda: 0.0
        #: When the loop began the reads before the next turn. Set by the shell. All reads have one share together; a
        #: session read after that handles a few frames and gets a turn of its own for the rest.
        self.since = inf
        #: When a session was active last: when it sent a message, or another session than before was read. Set by the
        #: shell.
        self.heard = -inf
        #: Sessions and other work that waits for a turn.
        self.blocked: OrderedDict[Waiter, None] = OrderedDict()
        #: The line of work that delays the next commit. Each of the two lines has every second turn.
        self.front = Front(self)
        self._front_last = False
        #: Requests another turn. Set by the broker.
        self.wake: Callable[[], object] = lambda: None

    def used_up(self, began: float) -> bool:
        """Return whether a session that began at that time, or all reads of this turn, have used up their share."""
        return self.clock() - (began if began < self.since else self.since) > _SHARE

    @property
    def step(self) -> int:
        """The number of messages that are processed in one step now."""
        return FEW if self.clock() - self.heard < _ACTIVE else AT_ONCE

    def step_after(self, count: int, began: float) -> int:
        """Return the number of transient messages that are processed in a step that began at that time and has
        processed `count`. Beside active sessions it grows by `FEW` for a moment: a turn costs more than the messages.
        """
        step = self.step
        quick = step <= count < AT_ONCE and self.clock() - began < _MOMENT
        return min(count + FEW, AT_ONCE) if quick else step

    def next(self, now: float) -> None:
        """Continue the one that has waited longest; every second turn goes to the front."""
        front, others = self.front.blocked, self.blocked
        self._front_last = bool(front) and not (self._front_last and others)
        waiter, _ = (front if self._front_last else others).popitem(last=False)
        waiter.take_turn(now)

    @property
    def waiting(self) -> bool:
        """Return whether anybody waits for the next turn."""
        return bool(self.blocked or self.front.blocked)

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter continue in a later turn, after all that are waiting already."""
        self.blocked[waiter] = None
        self.wake()


class Front:
    """The short line of `LoopQuota`, for work that delays the next commit until it is done.

    >>> quota = LoopQuota()
    >>> quota.line_up(Work(print(text) or quota for text in ("first", "second")))
    >>> quota.front.line_up(Work(print(text) or quota.front for text in ("ahead", "ahead again")))
    >>> while quota.waiting:
    ...     quota.next(0.0)
    ahead
    first
    ahead again
    second
    """

    __slots__ = ("_quota", "blocked")

    def __init__(self, quota: LoopQuota) -> None:
        self._quota = quota
        self.blocked: OrderedDict[Waiter, None] = OrderedDict()

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter continue in one of the next two turns, however many sessions are waiting."""
        self.blocked[waiter] = None
        self._quota.wake()
