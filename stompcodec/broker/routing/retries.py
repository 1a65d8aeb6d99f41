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

    __slots__ = ("_account", "_heap", "_most", "_now", "_number")

    def __init__(self, account: Account, now: Callable[[], float], most: int) -> None:
        self._account, self._now, self._most = account, now, most
        self._heap: list[_Entry] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next(self) -> float | None:
        """The time at which the first of them may be delivered; None without any."""
        return self._heap[0][0] if self._heap else None

    def hold(self, queue: Queue, messages: list[Message], seconds: float) -> None:
        """Requeue messages after a number of seconds."""
        if seconds > 0 and len(self._heap) + len(messages) > self._most:
            self._forget_ended()
        if seconds <= 0 or queue.closed or len(self._heap) + len(messages) > self._most:
            queue.requeue(messages)
            return
        due = self._now() + seconds
        self._account.used += DELAY * len(messages)
        for message in queue.hold(messages):
            self._number += 1
            heapq.heappush(self._heap, (due, self._number, queue, message.seq))

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
            queue.resume(seqs)

    def _forget_ended(self) -> None:
        """Forget those whose queue has ended."""
        kept = [entry for entry in self._heap if entry[3] in entry[2].held]
        self._account.used -= DELAY * (len(self._heap) - len(kept))
        heapq.heapify(kept)
        self._heap = kept
