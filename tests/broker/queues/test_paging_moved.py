"""Messages that were moved into a paged queue, and whose commit failed: they are written again, and read after that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker.harness import Bench, FaultyStore, Peer
from broker.paged import numbers, queue_of


def due(bench: Bench, sender: Peer, name: str) -> None:
    """Delayed messages are due before they are stored."""
    for number in (100, 101):
        sender.put(name, str(number), persistent="true", delay="1")
    bench.date += 0.1
    bench.wait(0.1)


def dead(bench: Bench, sender: Peer, name: str) -> None:
    """Messages become dead letters."""
    taker = bench.peer()
    taker.subscribe("/queue/a", ack="client-individual")
    for frame in taker.take():
        taker.nack(frame)


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("move", [due, dead])
def test_what_is_written_again_is_not_read_before(move: Callable[[Bench, Peer, str], None], window: int) -> None:
    name, store = "/queue/DLQ.a", FaultyStore()
    bench = Bench(store, window_messages=window, max_attempts=1)
    sender = bench.peer()
    for number in range(window):
        sender.put(name, str(number), persistent="true")
    if move is dead:
        for number in (100, 101):
            sender.put("/queue/a", str(number), persistent="true")
    store.background = True
    sender.put("/queue/other", "a commit that takes long", persistent="true")
    move(bench, sender, name)
    store.finish()
    bench.turn()
    store.faulty = True
    store.finish()
    bench.turn()
    store.faulty = False
    queue, taker = queue_of(bench, name), bench.peer()
    assert queue.total == window + 2
    taker.subscribe(name)
    for _ in range(4):
        bench.wait(3.0)
        if store.job is not None:
            store.finish()
            bench.turn()
    assert numbers(taker) == [*range(window), 100, 101]
    assert (queue.total, queue.paging) == (0, None)
    assert list(store.load(queue.key)) == []
