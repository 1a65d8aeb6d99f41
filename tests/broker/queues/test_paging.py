"""Queues of which only a window is in memory: order, restarts, limits, browsers, expiry, purges and errors."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench, FaultyStore
from broker.paged import QUEUE, filled, numbers, queue_of

from stompcodec import Limits, Parser
from stompcodec.broker.config.config import Config
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.errors import ConfigError, StoreError

#: Limits that go with little memory.
SMALL: dict[str, Any] = {"limits": Limits(max_body=10_000, max_headers=100, max_header_line=1000), "large": 10_000}


# ---- the window ----


def test_only_the_window_is_in_memory_and_the_order_is_kept() -> None:
    bench, _sender = filled(50)
    queue = queue_of(bench)
    assert (len(queue.messages), queue.count, queue.total) == (3, 3, 50)
    taker = bench.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    seen = []
    while frames := [frame for frame in taker.take() if frame.command == "MESSAGE"]:
        seen += [int(frame.body) for frame in frames]
        assert queue.count <= 3 + 3 + 2
        for frame in frames:
            taker.ack(frame)
    assert seen == list(range(50))
    assert queue.paging is None
    assert queue.total == 0
    assert not list(bench.store.load())


def test_transient_messages_keep_their_places_among_paged_ones() -> None:
    bench, sender = filled(0)
    for number in range(40):
        sender.put(QUEUE, str(number), **({"persistent": "true"} if number % 3 else {}))
    assert queue_of(bench).total == 40
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(40))


def test_what_comes_while_a_page_is_read_does_not_overtake_it() -> None:
    bench, sender = filled(20)
    taker = bench.peer()
    asked: list[Any] = []
    read = bench.store.read
    bench.store.read = lambda *args: asked.append(args)
    taker.subscribe(QUEUE)
    assert numbers(taker) == [0, 1, 2]
    sender.put(QUEUE, "20", persistent="true")
    sender.put(QUEUE, "21")
    assert numbers(taker) == []
    bench.store.read = read
    for args in asked:
        read(*args)
    bench.turn()
    assert numbers(taker) == list(range(3, 22))


def test_priorities_are_paged_each_by_itself() -> None:
    bench, sender = filled(0, window=2)
    for number in range(60):
        sender.put(QUEUE, str(number), persistent="true", priority=str(number % 3 + 3))
    assert len(queue_of(bench).messages) == 6
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == [n for rank in (2, 1, 0) for n in range(60) if n % 3 == rank]


def test_a_selector_finds_what_is_behind_the_window_and_others_get_the_rest() -> None:
    bench, sender = filled(0)
    for number in range(60):
        sender.put(QUEUE, str(number), persistent="true", color="red" if number % 10 == 9 else "blue")
    picky, other = bench.peer(), bench.peer()
    picky.subscribe(QUEUE, selector="color = 'red'", ack="client-individual")
    assert numbers(picky) == [9, 19, 29, 39, 49, 59]
    assert len(queue_of(bench).messages) == 3
    other.subscribe(QUEUE)
    assert numbers(other) == [n for n in range(60) if n % 10 != 9]
    picky.lose()
    assert numbers(other) == [9, 19, 29, 39, 49, 59]


def test_a_store_that_keeps_nothing_is_not_paged_to() -> None:
    bench, _sender = filled(20, store=MemoryStore(keeps=False))
    assert queue_of(bench).count == 20
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(20))


# ---- limits ----


def test_large_messages_fill_the_window_by_their_bytes() -> None:
    bench, sender = filled(0, window=100, window_octets=30_000)
    for number in range(30):
        sender.put(QUEUE, f"{number:9000}", persistent="true")
    queue = queue_of(bench)
    taker = bench.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    seen = []
    while frames := [frame for frame in taker.take() if frame.command == "MESSAGE"]:
        seen += [int(frame.body) for frame in frames]
        assert queue.octets < 45_000
        for frame in frames:
            taker.ack(frame)
    assert seen == list(range(30))


def test_one_message_above_the_window_is_read_all_the_same() -> None:
    bench, sender = filled(0, window_octets=50)
    for number in range(10):
        sender.put(QUEUE, f"{number:100}", persistent="true")
    again = Bench(bench.store, window_messages=3, window_octets=50)
    taker = again.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(10))


def test_queues_are_paged_earlier_when_memory_is_short() -> None:
    bench = Bench(window_octets=2**20, memory=2**20, max_queue_octets=2**20, **SMALL)
    sender = bench.peer()
    for number in range(200):
        sender.put(QUEUE, f"{number:9000}", persistent="true")
        assert not sender.session.paused
    assert queue_of(bench).total == 200
    assert queue_of(bench).count < 60
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(200))


def test_senders_wait_at_a_limit_of_messages_paged_ones_included() -> None:
    bench, sender = filled(10, max_queue_messages=10)
    assert not sender.session.paused
    sender.put(QUEUE, "10", persistent="true")
    assert sender.session.paused
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(11))
    assert not sender.session.paused


def test_the_error_of_a_full_queue_lists_what_is_not_paged() -> None:
    bench, _sender = filled(0, max_queue_messages=3)
    peer = bench.peer()
    peer.subscribe(QUEUE, ack="client", prefetch_count="9")
    for _ in range(9):
        if not peer.closed:
            peer.put(QUEUE)
    text = peer.error().body.decode()
    for kind in ("not persistent", "not acknowledged", "x-max-length", "topics.durable_overflow"):
        assert kind in text


@pytest.mark.parametrize("argument", ["x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_a_queue_with_a_length_is_not_paged(argument: str, overflow: str) -> None:
    bench = Bench(window_messages=3)
    sender, taker = bench.peer(), bench.peer()
    taker.subscribe(QUEUE, **{argument: "1000" if "bytes" in argument else "15", "x-overflow": overflow})
    taker.send("UNSUBSCRIBE", id="1")
    for number in range(10):
        sender.put(QUEUE, str(number), persistent="true")
    assert queue_of(bench).paging is None
    again = Bench(bench.store, window_messages=3)
    sender = again.peer()
    assert queue_of(again).paging is None
    for number in range(10, 40):
        if not sender.closed:
            sender.put(QUEUE, str(number), persistent="true")
    assert sender.closed is (overflow == "reject-publish")
    queue = queue_of(again)
    assert queue.paging is None
    assert queue.count == len(list(again.store.load())) < 30
    taker = again.peer()
    taker.subscribe(QUEUE)
    found = numbers(taker)
    assert found == list(range(found[0], found[-1] + 1))
    assert (found[0], found[-1]) == ((0, len(found) - 1) if sender.closed else (40 - len(found), 39))


def test_a_durable_subscription_that_drops_is_not_paged() -> None:
    config: dict[str, Any] = {"durable_overflow": "drop", "max_queue_messages": 20, "window_messages": 3}
    bench = Bench(**config)
    sender, reader = bench.peer(), bench.peer(connect=False)
    durable = {"id": "news", "durable-subscription-name": "news"}
    reader.connect(**{"client-id": "ada"})
    reader.subscribe("/topic/t", **durable)
    reader.lose()
    for number in range(15):
        sender.put("/topic/t", str(number), persistent="true")
    again = Bench(bench.store, **config)
    sender, reader = again.peer(), again.peer(connect=False)
    for number in range(15, 50):
        sender.put("/topic/t", str(number), persistent="true")
    assert len(list(again.store.load())) == 20
    reader.connect(**{"client-id": "ada"})
    reader.subscribe("/topic/t", **durable)
    assert numbers(reader) == list(range(30, 50))


@pytest.mark.parametrize(
    "values",
    [{"window_messages": 0}, {"window_messages": -1}, {"window_octets": 0}, {"window_octets": -1}]
    + [{"window_octets": Config().memory + 1}, {"window_messages": Config().memory // 420 + 1}],
)
def test_a_window_that_cannot_be_is_a_configuration_error(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**values)
    assert caught.value.key == next(iter(values))
    Config(window_messages=1, window_octets=Config().memory)
    Config(window_messages=Config().memory // 420)


# ---- restart, purge, expiry ----


def test_a_restart_leaves_a_long_queue_in_the_store() -> None:
    bench, _sender = filled(50)
    again = Bench(bench.store, window_messages=3)
    queue = queue_of(again)
    assert (queue.count, queue.total) == (0, 50)
    taker = again.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    frame = taker.next("MESSAGE")
    assert frame.body == b"0"
    assert queue.count <= 4
    third = Bench(bench.store, window_messages=3)
    taker = third.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(50))


def test_a_durable_subscription_that_ends_takes_its_paged_messages_along() -> None:
    bench = Bench(window_messages=3)
    reader, sender = bench.peer(connect=False), bench.peer()
    reader.connect(**{"client-id": "ada"})
    reader.subscribe("/topic/t", id="news", **{"durable-subscription-name": "news"})
    reader.send("UNSUBSCRIBE", id="news")
    for number in range(30):
        sender.put("/topic/t", str(number), persistent="true")
    assert len(list(bench.store.load())) == 30
    reader.send("UNSUBSCRIBE", id="x", **{"durable-subscription-name": "news"})
    bench.wait(5.0)
    assert not list(bench.store.load())


def test_paged_messages_expire() -> None:
    bench, sender = filled(10, dead_letter_expired=True)
    for number in range(10, 30):
        sender.put(QUEUE, str(number), persistent="true", expiration="1000")
    sender.put(QUEUE, "30", persistent="true")
    bench.date += 10.0
    bench.wait(5.0)
    assert queue_of(bench).total == 11
    assert queue_of(bench, "/queue/DLQ.a").total == 20
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == [*range(10), 30]


# ---- RECEIVE and browsers ----


def test_receive_waits_for_the_first_page() -> None:
    bench, _sender = filled(10)
    again = Bench(bench.store, window_messages=3)
    peer = again.peer()
    peer.parser = Parser(None, commands=("EMPTY",))
    for number in range(10):
        peer.raw(b"RECEIVE\ndestination:/queue/a\n\n\0")
        assert peer.next("MESSAGE").body == str(number).encode()
    peer.raw(b"RECEIVE\ndestination:/queue/a\n\n\0")
    assert peer.take()[0].command == "EMPTY"


def test_a_browser_sees_all_and_removes_what_it_acknowledges() -> None:
    bench, sender = filled(40)
    sender.put(QUEUE, "40")
    browser = bench.peer()
    browser.subscribe(QUEUE, browser="true", ack="client", **{"include-seq": "seq", "browser-end": "true"})
    frames = [frame for frame in browser.take() if frame.command == "MESSAGE"]
    assert [int(frame.body) for frame in frames[:-1]] == list(range(41))
    assert frames[-1].headers["browser"] == "end"
    queue = queue_of(bench)
    assert queue.total == 41
    browser.send("ACK", id=frames[30].headers["ack"])
    assert queue.total == 10
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(31, 41))


# ---- errors ----


class Unreadable(MemoryStore):
    """A store whose pages cannot be read for a while."""

    broken = True

    def read(self, *args: Any) -> None:
        if self.broken:
            args[6](lambda: args[5](StoreError("the disk is gone")))
        else:
            super().read(*args)


def test_a_page_that_cannot_be_read_is_read_again() -> None:
    store = Unreadable()
    bench, sender = filled(10, store=store)
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == [0, 1, 2]
    sender.put(QUEUE, "10", persistent="true")
    bench.wait(3.0)
    assert numbers(taker) == []
    store.broken = False
    bench.wait(3.0)
    assert numbers(taker) == list(range(3, 11))


def test_a_page_for_a_browser_that_cannot_be_read_is_read_again() -> None:
    store = Unreadable()
    bench, _sender = filled(10, store=store)
    browser = bench.peer()
    browser.subscribe(QUEUE, browser="true", ack="client")
    assert numbers(browser) == [0, 1, 2]
    bench.wait(3.0)
    assert numbers(browser) == []
    store.broken = False
    bench.wait(3.0)
    assert browser.bodies() == [b"%d" % number for number in range(3, 10)] + [b""]  # the last one is the end


def test_missing_rows_are_passed_over() -> None:
    bench, _sender = filled(10)
    for key in list(bench.store._kept)[5:8]:
        del bench.store._kept[key]
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == [0, 1, 2, 3, 4, 8, 9]
    assert queue_of(bench).total == 0
    assert queue_of(bench).paging is None


def test_what_could_not_be_stored_is_not_paged() -> None:
    store = FaultyStore(background=False)
    bench, sender = filled(10, store=store)
    store.faulty = True
    sender.send("SEND", b"lost", destination=QUEUE, persistent="true", receipt="r")
    assert sender.take()[-1].command == "ERROR"
    store.faulty = False
    assert queue_of(bench).total == 10
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(10))


def test_a_page_is_asked_for_once_at_a_time() -> None:
    bench, _sender = filled(20)
    under_way: list[str] = []
    read = bench.store.read

    def counting(*args: Any) -> None:
        assert not under_way, "another page is being read"
        done = args[5]
        under_way.append("a page")
        read(*args[:5], lambda page: (under_way.clear(), done(page)), *args[6:])

    bench.store.read = counting
    taker = bench.peer()
    taker.subscribe(QUEUE)
    assert numbers(taker) == list(range(20))
