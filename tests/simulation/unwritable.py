"""Messages that cannot be written to sessions of old versions, for a time: their sessions end, and others get them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from simulation.rules import Rules
from simulation.watcher import key_of

from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer

_EACH = 3  # One message in that many cannot be written.


class Unwritable(Exception):
    """The fault. Nothing in the broker expects it."""


@contextmanager
def unwritable(rules: Rules) -> Iterator[None]:
    """Have deliveries fail while `rules.unwritable` is a number: those of the messages that have that rest."""
    send = Consumer.send

    def failing(self: Consumer, message: Message) -> Any:
        if rules.unwritable is not None and self.version != "1.2":
            key = key_of(message.tail[message.tail.index(b"\n\n") + 2 :])
            if key is not None and key % _EACH == rules.unwritable:
                rules.failed.add(key)
                raise Unwritable(f"message {key}")
        return send(self, message)

    with patch.object(Consumer, "send", failing):
        yield
