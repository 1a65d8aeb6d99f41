"""Paged queues where it hurts: consumers that want none of many messages, and what happens while a page is read."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench, FaultyStore, Peer
from broker.paged import QUEUE, filled, numbers, queue_of

from stompcodec import Parser
from stompcodec.broker.storage.store import MemoryStore


class Slow(MemoryStore):
    """A store that answers when it is told to, and counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self.asked: list[tuple[Any, ...]] = []
        self.reads = 0

    def read(self, *args: Any) -> None:
        self.reads += 1
        if self.slow:
            self.asked.append(args)
        else:
            super().read(*args)

    def answer(self, bench: Bench) -> None:
        self.slow = False
        asked, self.asked = self.asked, []
        for args in asked:
            super().read(*args)
        bench.turn()


def test_a_selector_that_matches_nothing_reads_the_queue_once_and_keeps_nothing() -> None:
    store = Slow()
    bench, sender = filled(1000, window=10, store=store)
    first, second = bench.peer(), bench.peer()
    for peer in (first, second):
        before = store.reads
        peer.subscribe(QUEUE, selector="1 = 0")
        assert store.reads - before <= 1000 // 10 + 1
    before = store.reads
    for number in range(20):
        sender.put(QUEUE, str(number), persistent="true")
        bench.wait(1.0)
    assert store.reads == before
    queue = queue_of(bench)
    assert queue.paging is not None
    assert len(queue.messages) == 10
    assert queue.paging.chunk_cost < 10 * 600
    assert bench.broker.account.used < 100_000


@pytest.mark.parametrize("selector", ["1 = 0", "number = '37'"])
def test_receive_looks_on_page_by_page(selector: str) -> None:
    store = Slow()
    bench, sender = filled(0, window=1, store=store)
    for number in range(50):
        sender.put(QUEUE, str(number), persistent="true", number=str(number))
    peer = bench.peer()
    peer.parser = Parser(None, commands=("EMPTY",))
    peer.raw(b"RECEIVE\ndestination:/queue/a\nselector:%b\n\n\0" % selector.encode())
    (frame,) = peer.take()
    assert (frame.command, frame.body) == (("EMPTY", b"") if selector == "1 = 0" else ("MESSAGE", b"37"))
    assert store.reads <= 52


def test_a_group_whose_consumer_is_slow_holds_up_no_other() -> None:
    bench, sender = filled(0)
    for number in range(60):
        sender.put(QUEUE, str(number), persistent="true", JMSXGroupID="ab"[number % 3 > 0])
    slow, other = bench.peer(), bench.peer()
    slow.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    other.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    for _ in range(60):
        for frame in other.take():
            other.ack(frame)
    assert numbers(slow) == [0]
    assert queue_of(bench).total == 20
    slow.lose()
    seen = []
    for _ in range(30):
        for frame in other.take():
            seen.append(int(frame.body))
            other.ack(frame)
    assert seen == list(range(0, 60, 3))


def under_way(store: Slow) -> tuple[Bench, Peer, Any]:
    """A broker that waits for a page, and its consumer, which has a message."""
    bench, _sender = filled(20, store=store)
    taker = bench.peer()
    store.slow = True
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    first, second = taker.take()
    taker.ack(first)
    taker.take()
    assert store.asked
    return bench, taker, second


def test_a_nack_while_a_page_is_read() -> None:
    store = Slow()
    bench, taker, frame = under_way(store)
    taker.nack(frame)
    again = taker.take()[0]
    assert (again.body, again.get("redelivered")) == (frame.body, "true")
    taker.lose()
    store.answer(bench)
    other = bench.peer()
    other.subscribe(QUEUE)
    assert numbers(other) == list(range(1, 20))


def test_a_consumer_that_is_lost_while_a_page_is_read() -> None:
    store = Slow()
    bench, taker, _frame = under_way(store)
    taker.lose()
    other = bench.peer()
    other.subscribe(QUEUE, selector="1 = 1")
    store.answer(bench)
    assert numbers(other) == list(range(1, 20))


def test_a_commit_that_fails_while_a_page_is_read() -> None:
    class SlowAndFaulty(Slow, FaultyStore):
        def __init__(self) -> None:
            FaultyStore.__init__(self)
            self.slow, self.asked, self.reads = False, [], 0

    store = SlowAndFaulty()
    bench, taker, frame = under_way(store)
    store.faulty = True
    taker.ack(frame, receipt="r")
    sender = bench.peer()
    sender.put(QUEUE, "99", persistent="true", receipt="r")
    assert sender.take()[-1].command == "ERROR"
    assert taker.closed
    store.faulty = False
    store.answer(bench)
    bench.wait(3.0)
    other = bench.peer()
    other.subscribe(QUEUE)
    assert numbers(other) == list(range(1, 20))
    bench.wait(3.0)
    assert not list(store.load())


def test_a_durable_subscription_that_ends_while_a_page_is_read() -> None:
    store = Slow()
    bench = Bench(store, window_messages=3)
    sender, reader = bench.peer(), bench.peer(connect=False)
    reader.connect(**{"client-id": "ada"})
    reader.subscribe("/topic/t", id="news", ack="client", prefetch_count="3", **{"durable-subscription-name": "news"})
    store.slow = True
    for number in range(30):
        sender.put("/topic/t", str(number), persistent="true")
    frames = reader.take()
    reader.ack(frames[-1])
    reader.send("UNSUBSCRIBE", id="news")
    assert store.asked
    reader.send("UNSUBSCRIBE", id="x", **{"durable-subscription-name": "news"})
    for _ in range(2):  # again, with the same name
        reader.subscribe("/topic/t", id="news", ack="client", **{"durable-subscription-name": "news"})
        reader.send("UNSUBSCRIBE", id="news")
        store.answer(bench)
    bench.wait(5.0)
    sender.put("/topic/t", "30", persistent="true")
    reader.take()
    reader.subscribe("/topic/t", id="news", **{"durable-subscription-name": "news"})
    assert numbers(reader) == [30]
    assert not list(store.load())


@pytest.mark.parametrize("kind", ["plain", "selecting", "browsing", "receiving"])
def test_a_broker_that_stops_while_a_page_is_read(kind: str) -> None:
    store = Slow()
    bench, _sender = filled(20, store=store)
    taker = bench.peer()
    store.slow = True
    if kind == "receiving":
        bench = Bench(store, window_messages=3)
        taker = bench.peer()
        taker.raw(b"RECEIVE\ndestination:/queue/a\n\n\0")
    elif kind == "selecting":
        taker.subscribe(QUEUE, selector="1 = 0")
    else:
        taker.subscribe(QUEUE, **({"browser": "true"} if kind == "browsing" else {}))
    assert store.asked
    bench.broker.stop(bench.now)
    bench.turn()
    assert taker.closed
    left = len(list(store.load()))
    store.answer(bench)
    again = Bench(store, window_messages=3)
    taker = again.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(20 - left, 20))


def test_a_reader_removes_pages_in_which_nothing_is_left() -> None:
    store = Slow()
    bench, sender = filled(0, store=store)
    for number in range(300):
        sender.put(QUEUE, str(number), persistent="true", color="blue" if number < 250 else "red")
    reader, taker = bench.peer(), bench.peer()
    reader.subscribe(QUEUE, browser="true", ack="client", prefetch_count="400", **{"include-seq": "seq"})
    frames = reader.take()
    taker.subscribe(QUEUE, selector="color = 'blue'", ack="client-individual", prefetch_count="250")
    assert len(taker.take()) == 250
    before = store.reads
    reader.ack(frames[279])
    assert store.reads - before < 200
    assert queue_of(bench).total == 250 + 20
    taker.lose()
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == [*range(250), *range(280, 300)]


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("looker", ["selector", "browser", "RECEIVE"])
def test_pages_of_which_others_have_all_are_passed_over(looker: str, window: int) -> None:
    bench = Bench(window_messages=window)
    sender, holder, peer = bench.peer(), bench.peer(), bench.peer()
    for number in range(20):
        color = "red" if 3 < number < 15 else "blue"
        sender.put(QUEUE, str(number), persistent="true", color=color, number=str(number))
    holder.subscribe(QUEUE, ack="client-individual", selector="color = 'red'", prefetch_count="100")
    assert numbers(holder) == list(range(4, 15))
    if looker == "browser":
        peer.subscribe(QUEUE, browser="true")
        assert [frame.body for frame in peer.take()] == [*(b"%d" % each for each in (*range(4), *range(15, 20))), b""]
    elif looker == "selector":
        peer.subscribe(QUEUE, selector="number > 2")
        assert numbers(peer) == [3, *range(15, 20)]
    else:
        peer.raw(b"RECEIVE\ndestination:/queue/a\nselector:number = 16\n\n\0")
        assert numbers(peer) == [16]
    bench.turn()
    holder.lose()
    bench.wait(3.0)
    rest = bench.peer()
    rest.subscribe(QUEUE, ack="client-individual")
    assert len(numbers(rest)) == {"browser": 20, "selector": 3, "RECEIVE": 19}[looker]


def test_a_browser_forgets_what_others_take_from_its_page() -> None:
    bench = Bench(window_messages=10)
    sender, browser, taker = bench.peer(), bench.peer(), bench.peer()
    for number in range(40):
        sender.put(QUEUE, str(number), persistent="true", color="blue" if number % 2 else "red")
    browser.subscribe(QUEUE, browser="true", ack="client-individual", prefetch_count="22")
    shown = browser.take()
    assert [int(frame.body) for frame in shown] == list(range(22))
    taker.subscribe(QUEUE, selector="color = 'red'")
    assert numbers(taker) == list(range(0, 40, 2))
    bench.peer().subscribe(QUEUE, selector="1 = 0")  # pages are read, so what has left the store is forgotten
    for frame in shown:
        browser.ack(frame, "NACK")
    assert [frame.body for frame in browser.take() if frame.body] == [b"%d" % each for each in range(23, 40, 2)]
