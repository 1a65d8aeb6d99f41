"""Calls: requests that a program waits for, each with one outcome and a deadline.

A call is accepted (`error` is None), rejected (RejectedError), or its outcome is unknown (ConnectionLostError,
ReceiptTimeoutError). Every call gets exactly one outcome.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import count
from typing import Any

_TIDY = 1024


def seconds_of(name: str, value: float) -> float:
    """Return a time in seconds as a float. `math.inf` is for ever; a negative time has passed already.

    Raises TypeError if it is no number, ValueError if it is nan, or an integer too large for a float.
    """
    if type(value) is float and value == value:
        return value
    given: Any = value
    if isinstance(given, str | bytes | bytearray) or not (hasattr(given, "__float__") or hasattr(given, "__index__")):
        raise TypeError(f"{name} is {given!r:.60}: it must be a number of seconds")
    try:
        seconds = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large an integer: use math.inf for no limit") from None
    if math.isnan(seconds):
        raise ValueError(f"{name} is nan: it must be a number of seconds")
    return seconds


class Group:
    """Calls that keep an order: once one has failed, those that were not sent yet are not sent."""

    failed: Exception | None = None


@dataclass(eq=False, slots=True)
class Call:
    """A request that is waited for. The shell calls `wake`, under no lock, when it has its outcome.

    `what` names it in messages, as in "SEND to /queue/a". The timeout is in seconds from the time it is opened. With
    `resend` it is sent again if the connection is lost before its receipt.
    """

    what: str
    timeout: float
    command: str = ""
    _: KW_ONLY
    resend: bool = False
    id: str = ""
    deadline: float = 0.0
    done: bool = False
    error: Exception | None = None
    result: Any = None
    sent: bool = False  # its frame was passed to a connection, at least once
    frame: Any = None  # kept while it may be sent again
    group: Group | None = None
    needs_reply: bool = False
    subject: Any = None  # the subscription or transaction it is about
    after: Callable[[Call], object] | None = None  # called with the outcome, in the core
    wake: Callable[[], object] | None = None
    loop: Any = None  # the event loop in which it may be awaited
    read: Callable[[Call], object] | None = None  # called by a thread that waits for it; it may return without outcome

    def __repr__(self) -> str:
        state = "waits" if not self.done else "accepted" if self.error is None else type(self.error).__name__
        return f"<Call {self.what}: {state}>"


class Calls:
    """The open calls, and the finished ones whose callers were not woken yet."""

    def __init__(self) -> None:
        self.sent: dict[str, Call] = {}  # by receipt-id, in the order of sending: their frames went to the connection
        self.finished: list[Call] = []
        self.deadlines = Deadlines()
        self.read: Callable[[Call], object] | None = None  # that of all calls
        self._ids = count(1)

    def make(self, what: str, timeout: float, command: str = "", *, resend: bool = False) -> Call:
        """Return a new call with a unique id, not open yet. Any thread may call this."""
        call = Call(what, seconds_of("timeout", timeout), command, resend=resend)
        call.id = f"r{next(self._ids)}"
        call.read = self.read
        return call

    def open(self, call: Call, now: float) -> None:
        """Start the time of a call."""
        self.deadlines.add(call, now)

    def finish(self, call: Call, error: Exception | None = None, result: Any = None) -> bool:
        """Give a call its outcome; return False if it has one already."""
        if call.done:
            return False
        call.error = error
        call.result = result
        call.frame = None
        call.done = True  # after the outcome: other threads look at it without a lock
        self.sent.pop(call.id, None)
        self.finished.append(call)
        return True


class Deadlines:
    """The deadlines of calls, in one queue for each timeout: calls with the same timeout expire in their order."""

    def __init__(self) -> None:
        self._queues: dict[float, deque[Call]] = {}
        self.soonest = math.inf  # the first deadline that was added since the I/O thread last set this
        self._tidy_at: dict[float, int] = {}  # the length at which finished calls are removed

    def add(self, call: Call, now: float) -> None:
        """Set the deadline of a call."""
        call.deadline = now + call.timeout
        if call.deadline < self.soonest:
            self.soonest = call.deadline
        queue = self._queues.get(call.timeout)
        if queue is None:
            queue = self._queues[call.timeout] = deque()
        while queue and queue[0].done:
            queue.popleft()
        if len(queue) >= self._tidy_at.get(call.timeout, _TIDY):
            queue = self._queues[call.timeout] = deque(each for each in queue if not each.done)
            self._tidy_at[call.timeout] = max(_TIDY, 2 * len(queue))
        queue.append(call)

    def next(self) -> float | None:
        """Return the first deadline, in seconds; None without open calls."""
        first = None
        for timeout, queue in list(self._queues.items()):
            while queue and queue[0].done:
                queue.popleft()
            if not queue:
                del self._queues[timeout]
                self._tidy_at.pop(timeout, None)
            elif first is None or queue[0].deadline < first:
                first = queue[0].deadline
        return first

    def expired(self, now: float) -> Iterator[Call]:
        """Take out and yield the calls whose deadline has passed."""
        for queue in list(self._queues.values()):
            while queue and (queue[0].done or queue[0].deadline <= now):
                call = queue.popleft()
                if not call.done:
                    yield call
