"""Messages on disk whose acknowledgement waits for `release`."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping

from stompcodec.client.sync.messages import Message, Subscription
from stompcodec.codec import Frame
from stompcodec.errors import StaleAckError


def acknowledge(messages: Iterable[Message]) -> None:
    """Acknowledge messages. The broker delivers those of a lost connection again."""
    for message in messages:
        with contextlib.suppress(StaleAckError):
            message.ack()


class Held:
    """Messages that may be acknowledged once offsets of chains are released. Any thread may call its methods.

    A written message waits for the end of its frame. A duplicate waits for all that the capture held when it was
    received, since the original is somewhere in there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[str, deque[tuple[int, Message]]] = {}
        self._again: deque[tuple[dict[str, int], Message]] = deque()
        self._released: dict[str, int] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._written.values())) + len(self._again)

    def hold(self, chain: str, end: int, message: Message) -> None:
        """Hold a message whose frame ends at this offset of a chain."""
        _slim(message)
        with self._lock:
            if end > self._released.get(chain, 0):
                self._written.setdefault(chain, deque()).append((end, message))
                return
        acknowledge([message])

    def hold_again(self, ends: Mapping[str, int], messages: Iterable[Message]) -> None:
        """Hold duplicates that were received when the chains had these ends."""
        messages = list(messages)
        for message in messages:
            _slim(message)
        with self._lock:
            if not self._covered(ends):
                self._again.extend((dict(ends), message) for message in messages)
                return
        acknowledge(messages)

    def release(self, offsets: Mapping[str, int]) -> int:
        """Acknowledge the messages below these offsets of chains; return their number."""
        done: list[Message] = []
        with self._lock:
            for chain, offset in offsets.items():
                self._released[chain] = max(offset, self._released.get(chain, 0))
            for chain, waiting in self._written.items():
                while waiting and waiting[0][0] <= self._released.get(chain, 0):
                    done.append(waiting.popleft()[1])
            while self._again and self._covered(self._again[0][0]):
                done.append(self._again.popleft()[1])
        acknowledge(done)
        return len(done)

    def drop_stale(self, subscriptions: Collection[Subscription], epoch: int) -> None:
        """Drop messages of connections before this one: the broker delivers them again."""

        def stale(message: Message) -> bool:
            return message.epoch < epoch and message.subscription in subscriptions

        with self._lock:
            for chain, waiting in self._written.items():
                self._written[chain] = deque(each for each in waiting if not stale(each[1]))
            self._again = deque(each for each in self._again if not stale(each[1]))

    def _covered(self, ends: Mapping[str, int]) -> bool:
        return all(self._released.get(chain, 0) >= end for chain, end in ends.items())


def _slim(message: Message) -> None:
    """Drop the body, which is on disk."""
    if message.body:
        message.frame = Frame(message.frame.command, message.frame.headers.pairs(), b"")
