"""How long a session may keep the loop, and how work that takes longer is done a share at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import inf
from typing import Protocol

__all__ = ["AT_ONCE", "Line", "Paused", "Turns", "Waiter", "Work"]

#: Messages, or sessions, that are dealt with in one go. What is left waits for the next turn, and others have theirs.
AT_ONCE = 1000

#: Seconds for which one session may keep the loop, while others wait.
_SHARE = 0.005


class Waiter(Protocol):
    """What goes on when its turn has come: a session, a queue, or `Work`."""

    def take_turn(self, now: float) -> object:
        """Do a share of what there is to do."""


class Line(Protocol):
    """Where one can wait: for the next turn (`Turns`), or until the store has written something (`Journal`)."""

    def line_up(self, waiter: Waiter) -> None:
        """Call `take_turn` later."""


class Work:
    """Something that takes longer than one turn should, and is done a share at a time.

    Args:
        steps: does a share each time that it is resumed, and says where to wait for the next one.

    >>> turns = Turns()
    >>> turns.line_up(Work(iter([turns])))
    >>> for _ in range(2):
    ...     turns.next(0.0)
    >>> len(turns.blocked)
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
    """A frame is not done yet: the next one of its session has to wait."""


class Turns:
    """The time of the loop, and who has had a share of it and waits for the next turn.

    One read can hold thousands of frames, and a frame can cost milliseconds: SEND to a thousand subscriptions, RECEIVE
    with a long selector.

    >>> Turns().is_over(0.0)
    False
    """

    __slots__ = ("blocked", "clock", "since", "wake")

    def __init__(self) -> None:
        #: The time in seconds. Set by the shell; time that stands still takes nobody's turn.
        self.clock: Callable[[], float] = lambda: 0.0
        #: When the loop began with the reads that it does before the next turn. Set by the shell, too. They have one
        #: share together: whoever is read when that is over does a few frames, and has a turn of its own for the rest.
        self.since = inf
        #: Sessions, and other work that is done a share at a time.
        self.blocked: OrderedDict[Waiter, None] = OrderedDict()
        #: Asks for another turn. Set by the broker.
        self.wake: Callable[[], object] = lambda: None

    def is_over(self, began: float) -> bool:
        """Return whether a session that began at that time has had its share, or all that were read since the turn."""
        return self.clock() - (began if began < self.since else self.since) > _SHARE

    def next(self, now: float) -> None:
        """Let the one go on that has waited longest."""
        waiter, _ = self.blocked.popitem(last=False)
        waiter.take_turn(now)

    def line_up(self, waiter: Waiter) -> None:
        """Have somebody go on in a later turn, behind all who wait already."""
        self.blocked[waiter] = None
        self.wake()
