"""Queues that are paged: a broker with a small window, and what is in it."""

from __future__ import annotations

from typing import Any

from broker.harness import Bench, Peer

from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue

__all__ = ["QUEUE", "filled", "numbers", "queue_of", "ready_of"]

QUEUE = "/queue/a"


def filled(count: int, window: int = 3, store: Any = None, **config: Any) -> tuple[Bench, Peer]:
    """Return a broker with `count` persistent messages, and their sender."""
    bench = Bench(store, window_messages=window, **config)
    sender = bench.peer()
    for number in range(count):
        sender.put(QUEUE, str(number), persistent="true")
    return bench, sender


def queue_of(bench: Bench, name: str = QUEUE) -> Queue:
    return bench.broker.queues["/", name]


def numbers(peer: Peer) -> list[int]:
    return [int(body) for body in peer.bodies()]


def ready_of(bench: Bench, queue: Queue) -> list[Message]:
    """Return the READY messages of a queue in their order: those in memory, and those that are in the store only."""
    journal, paging = bench.broker.journal, queue.paging
    if paging is None:
        return list(queue.messages)
    written = [message for place, message in journal.batch.put if place is queue]
    stored = [*journal.messages(bench.store.load(queue.key)), *written]
    paged = {message.seq: message for message in stored if message.due is None and queue.is_paged(message)}
    assert paging.count == len(paged) + paging.deferred
    return sorted([*queue.messages, *paged.values()], key=queue.messages.place)
