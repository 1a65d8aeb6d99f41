"""Chunk: a page of paged messages, for consumers that look for messages behind the window."""

from __future__ import annotations

from bisect import bisect_right

from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import Message


class Chunk:
    """Paged messages of one rank that are in memory for consumers to look at: all with `start` < seq <= `end`."""

    __slots__ = ("_messages", "_seqs", "cost", "end", "rank", "start")

    def __init__(self, rank: int, start: int, end: int, messages: list[Message]) -> None:
        self.rank = rank
        self.start = start
        self.end = end
        self._messages = messages
        self._seqs = [message.seq for message in messages]
        self.cost = sum(message.size + MESSAGE for message in messages)

    def after(self, seq: int) -> Message | None:
        """Return the first message with a higher seq; None after the last."""
        at = bisect_right(self._seqs, seq)
        return self._messages[at] if at < len(self._seqs) else None

    def remove(self, seq: int) -> int:
        """Remove a message. Return the bytes that it took."""
        at = bisect_right(self._seqs, seq) - 1
        if at < 0 or self._seqs[at] != seq:
            return 0
        cost = self._messages[at].size + MESSAGE
        del self._messages[at], self._seqs[at]
        self.cost -= cost
        return cost
