"""Faults on demand: messages that cannot be written to some sessions, on every road that there is to a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from stompcodec.broker.queues.consumer import Consumer


class Planted(Exception):
    """The fault. Nothing in the broker expects it."""


class _Head(bytes):
    """The head of a MESSAGE as a consumer has it, which looks at what is written with it."""

    look: Callable[[int], None]

    def __mod__(self, values: Any) -> bytes:
        first = values[0] if isinstance(values, tuple) else values
        self.look(first if isinstance(first, int) else int(first.rpartition(b"-")[2]))
        return bytes(self) % values

    def join(self, tails: Any) -> bytes:
        for tail in tails:
            self.look(int(tail[len(b"message-id:") : tail.index(b"\n")].rpartition(b"-")[2]))
        return bytes(self).join(tails)


class FaultHook:
    """Makes `fails(consumer, seq)` decide what cannot be written, and keeps a record of what failed.

    Every road to a consumer begins with its head: that is where the fault comes from. It watches the consumers that
    begin while it is entered.
    """

    def __init__(self) -> None:
        self.fails: Callable[[Consumer, int], bool] = lambda consumer, seq: False
        #: Consumer and seq of each fault, in order.
        self.faults: list[tuple[Consumer, int]] = []
        self._patch = patch.object(Consumer, "_heads", self._heads())

    def _heads(self) -> Any:
        plain = Consumer._heads

        def heads(consumer: Consumer, ident: bytes) -> tuple[bytes, ...]:
            made = tuple(_Head(head) for head in plain(consumer, ident))
            for head in made:
                head.look = lambda seq: self.look(consumer, seq)
            return made

        return heads

    def look(self, consumer: Consumer, seq: int) -> None:
        if self.fails(consumer, seq):
            self.faults.append((consumer, seq))
            raise Planted(f"seq {seq}")

    @contextmanager
    def when(self, fails: Callable[[Consumer, int], bool]) -> Iterator[None]:
        """Faults for as long as the block runs."""
        before, self.fails = self.fails, fails
        try:
            yield
        finally:
            self.fails = before

    def __enter__(self) -> FaultHook:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
