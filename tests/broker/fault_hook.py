"""Faults on demand: messages that cannot be written to some sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing import registry


class Planted(Exception):
    """The fault. Nothing in the broker expects it."""


class FaultHook:
    """Makes `fails(consumer, seq)` decide what cannot be written, and keeps a record of what failed.

    It watches the consumers that begin while it is entered: their bodies are converted, which looks at each message.
    Where messages are written as they are, `consumer.before = None` makes the next one fail.
    """

    def __init__(self) -> None:
        self.fails: Callable[[Consumer, int], bool] = lambda consumer, seq: False
        #: Consumer and seq of each fault, in order.
        self.faults: list[tuple[Consumer, int]] = []
        self._patch = patch.object(registry, "Consumer", self._begin)

    def _begin(self, *args: Any) -> Consumer:
        consumer = Consumer(*args)
        consumer.direct = consumer.direct_selective = False
        consumer.conversion = _Looking(self, consumer, consumer.conversion)
        return consumer

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


class _Looking:
    """The conversion of a consumer, or none, which looks at the message first."""

    def __init__(self, hook: FaultHook, consumer: Consumer, conversion: Any) -> None:
        self._hook, self._consumer, self._conversion = hook, consumer, conversion

    def apply(self, message: Message) -> Message:
        self._hook.look(self._consumer, message.seq)
        return message if self._conversion is None else self._conversion.apply(message)
