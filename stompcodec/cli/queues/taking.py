"""Batches of messages, taken from a queue until it is empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stompcodec.cli.queues.looking import Interrupted, Looking

if TYPE_CHECKING:
    from stompcodec.client import Message, Subscription
    from stompcodec.client.unreadable import OnUnreadable

#: The most messages of a batch by default, and that wait here.
BATCH = 100
#: The most bytes of a batch, unless its one message is larger; and that our broker delivers ahead.
_BATCH_BYTES = 8 * 2**20
_AHEAD_BYTES = 16 * 2**20
#: The most messages that stay and yet do not count in the window, and their bytes.
_MOST_HELD, _MOST_HELD_BYTES = 10_000, 256 * 2**20
#: Bytes in a `credit` header, which has to name some.
_UNBOUNDED = 2**40
#: Seconds to wait for a message before the broker is asked whether there is one.
_LOOK = 0.1


class Taking:
    """The way to take the messages of a queue.

    Args:
        looking: the queue; `stopped` is asked before each batch, and True ends the taking.
        most: how many messages at most; None for all.
        exact: have our broker deliver no more than that, so that no other message counts as redelivered.
        idle: seconds without a message after which the queue counts as empty.
        batch: the most messages of a batch.
        stay: how many messages are known to stay in the queue, and their bytes, so that they do not fill the window.
    """

    def __init__(
        self,
        looking: Looking,
        *,
        most: int | None,
        exact: bool,
        idle: float,
        batch: int = BATCH,
        stay: tuple[int, int] = (0, 0),
    ) -> None:
        self.looking = looking
        self.most = most
        self._stay, self._stay_bytes = min(stay[0], _MOST_HELD), min(stay[1], _MOST_HELD_BYTES)
        self._exact, self._idle, self._batch = exact, idle, batch
        #: Messages that are neither acknowledged nor to be: they return to the queue at the end.
        self.held = 0
        #: The messages are dead letters that go back.
        self.returns = False
        #: The broker shows messages, and did not deliver them: others have them, or an exclusive consumer is there.
        self.withheld = False

    @property
    def is_full(self) -> bool:
        """True if messages that stay fill the window, so that no others come."""
        return self.held >= BATCH + self._stay

    def subscribe(self, ack: str = "client-individual", on_unreadable: OnUnreadable = "ignore") -> Subscription:
        """Subscribe to the queue. `on_unreadable` is what to do if the tool is lenient."""
        from stompcodec.client.dialects import BROKERS

        client, kind, queue, selector, *_ = self.looking
        headers = {}
        if kind.is_ours and self._exact and self.most is not None:
            headers = {"credit": f"{self.most},{_UNBOUNDED},false"}
        elif kind.is_ours:
            headers = {"consumer-window-size": str(_AHEAD_BYTES + self._stay_bytes)}
        if kind.is_ours:
            headers["attempts"] = "named"  # if a SEND is refused, that is no attempt of any message
        window = (BATCH if self.most is None else min(BATCH, self.most)) + self._stay
        passed = self.looking.passed
        if passed is not None:
            window += passed.count  # each that stays holds a place
        options: Any = {"prefetch": BROKERS[client.dialect].beside(window, headers.items())}
        options |= {"selector": selector, "headers": headers}
        options["on_unreadable"] = "raise" if passed is None else on_unreadable
        return client.subscribe(queue, ack=ack, **options)

    def batches(self, subscription: Subscription) -> Iterator[list[Message]]:
        """Yield batches until the queue is empty, `most` were taken, or all that were delivered are held."""
        left, last, stopped = self.most, time.monotonic(), self.looking.stopped
        while not stopped() and left != 0 and not self.is_full:
            taken = subscription.take(self._batch if left is None else min(self._batch, left), _LOOK)
            if taken:
                for batch in _split(taken):
                    if stopped():
                        return
                    yield batch
                left = None if left is None else left - len(taken)
                last = time.monotonic()
            elif self._is_over(last):
                return

    def _is_over(self, last: float) -> bool:
        """Return whether the queue counts as empty. `last` is the time of the last message."""
        try:
            if self.looking.kind.shows and self.looking.is_empty():
                return True
        except Interrupted:
            return True
        over = time.monotonic() - last > self._idle
        self.withheld = over and self.looking.kind.shows
        return over


def _split(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield messages in pieces of at most `_BATCH_BYTES`, or with one message."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and size + len(message.body) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch
