"""Sorted destinations: the numbers they are sorted by are those of their rows, and only a page of rows is made."""

from __future__ import annotations

import pytest
from broker.management.managing import Managed

from stompcodec.broker.management.questions import Clock, sort_key
from stompcodec.broker.management.schema import SORTS


@pytest.fixture(scope="module")
def bench() -> Managed:
    """Queues and topics whose numbers differ."""
    bench = Managed()
    sender, taker, slow = bench.peer(), bench.peer(), bench.peer()
    for number in range(1, 6):
        for _ in range(number):
            sender.put(f"/queue/{number}", b"x" * number)
    taker.subscribe("/queue/3", id="3", ack="client-individual", prefetch_count="2")
    taker.subscribe("/queue/5", id="5", ack="client-individual", prefetch_count="1")
    taker.subscribe("/topic/a", id="a")
    slow.subscribe("/topic/a", id="a", ack="client")
    slow.subscribe("/topic/b", id="b")
    for _ in range(3):
        sender.put("/topic/a", b"xyz")
    sender.put("/queue/late", b"x", AMQ_SCHEDULED_DELAY="100000")
    message = next(frame for frame in taker.inbox if frame.get("destination") == "/queue/5")
    taker.nack(message)
    return bench


@pytest.mark.parametrize("column", SORTS)
def test_a_key_is_what_the_row_says_and_the_highest_are_first_on_all_pages(bench: Managed, column: str) -> None:
    for _ in range(3):  # the rates are known from the second time on
        host, now = bench.broker.virtual_host("/"), bench.broker.now
        rows = {row["destination"]: row for row in bench.result("destinations")}
        clock = Clock(now, bench.management.ages)
        for things in (host.queues, host.topics):
            for name, thing in things.items():
                assert sort_key(thing, column, clock) == (rows[name][column] or 0), (name, column)
        found = bench.result("destinations", sort=column, limit=3)
        values = [row[column] or 0 for row in found]
        assert values == sorted(values, reverse=True)
        assert sorted(row["destination"] for row in found) == sorted(rows)
        bench.now += 2.0
        bench.turn()
