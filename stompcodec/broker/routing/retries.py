"""Retries: messages that wait between a NACK and their next delivery."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.memory import DELAY, Account
from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue

#: When a message may be delivered again, a unique number, its queue and its seq.
_Entry = tuple[float, int, Queue, int]


class Retries:
    """The messages of a broker that wait for their next attempt, at most `most`: further ones do not wait.

    They are in the `held` of their queues. The pause is not stored: after a restart they are READY.
    """

    __slots__ = ("_account", "_heap", "_most", "_new", "_now", "_number")

    def __init__(self, account: Account, now: Callable[[], float], most: int) -> None:
        self._account, self._now, self._most = account, now, most
        self._heap: list[_Entry] = []
        #: Seconds, queue and seq of those whose pause begins at the end of this turn: only then is the time known.
        self._new: list[tuple[float, Queue, int]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._new)

    @property
    def next(self) -> float | None:
        """The time at which the first of them may be delivered; None without any. To be asked after each turn."""
        for seconds, queue, seq in self._new:
            self._number += 1
            heapq.heappush(self._heap, (self._now() + seconds, self._number, queue, seq))
        self._new.clear()
        return self._heap[0][0] if self._heap else None

    def hold(self, queue: Queue, messages: list[Message], seconds: float) -> None:
        """Requeue messages after a number of seconds."""
        if seconds > 0 and len(self) + len(messages) > self._most:
            self._forget_ended()
        if seconds <= 0 or queue.closed or len(self) + len(messages) > self._most:
            queue.requeue(messages)
            return
        self._account.used += DELAY * len(messages)
        self._new += [(seconds, queue, message.seq) for message in queue.returned.hold(queue, messages)]

    def release(self, now: float) -> None:
        """Requeue those whose time has come."""
        due: dict[Queue, list[int]] = {}
        for _ in range(AT_ONCE):  # the rest at the next call
            if not self._heap or self._heap[0][0] > now:
                break
            _, _, queue, seq = heapq.heappop(self._heap)
            self._account.used -= DELAY
            due.setdefault(queue, []).append(seq)
        for queue, seqs in due.items():
            queue.returned.resume(queue, seqs)

    def _forget_ended(self) -> None:
        """Forget those whose queue has ended."""
        before = len(self)
        self._new = [entry for entry in self._new if entry[2] in entry[1].returned.held]
        self._heap = [entry for entry in self._heap if entry[3] in entry[2].returned.held]
        heapq.heapify(self._heap)
        self._account.used -= DELAY * (before - len(self))
