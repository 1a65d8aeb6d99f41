"""Queues that are paged: a broker with a small window, what is in it, and a store whose pages come late."""

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.harness import Bench, FaultyStore, Peer

from stompcodec.broker.queues.queue import Queue
from stompcodec.errors import StoreError

QUEUE = "/queue/a"


def filled(count: int, window: int = 3, store: Any = None, **config: Any) -> tuple[Bench, Peer]:
    bench = Bench(store, window_messages=window, **config)
    sender = bench.peer()
    for number in range(count):
        sender.put(QUEUE, str(number), persistent="true")
    return bench, sender


def queue_of(bench: Bench, name: str = QUEUE) -> Queue:
    return bench.broker.queues["/", name]


def numbers(peer: Peer) -> list[int]:
    return [int(body) for body in peer.bodies()]


class Pages(FaultyStore):
    """A store whose pages come when it is told to give them, or cannot be read."""

    def __init__(self, background: bool = False) -> None:
        super().__init__(background)
        self.slow = self.broken = False
        self.asked: list[Callable[[], object]] = []

    def read(self, *args: Any) -> None:
        self._page(super().read, args, 5)

    def deferred(self, *args: Any) -> None:
        self._page(super().deferred, args, 3)

    def _page(self, give: Callable[..., object], args: tuple[Any, ...], found: int) -> None:
        if self.broken:
            args[found + 1](partial(args[found], StoreError("the disk is gone")))
        elif self.slow:
            self.asked.append(partial(give, *args))
        else:
            give(*args)

    def answer(self) -> None:
        self.slow = False
        while self.asked:
            self.asked.pop(0)()
