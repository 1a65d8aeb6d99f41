"""Queues that are paged: a broker with a small window, and what is in it."""

from __future__ import annotations

from typing import Any

from broker.harness import Bench, Peer

from stompcodec.broker.queues.queue import Queue

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
