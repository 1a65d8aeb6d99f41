"""READY messages on the plain road in C: which it puts and delivers, and which it leaves to Python."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.sessions import plain

pytestmark = pytest.mark.skipif(plain.EXTENSION is None, reason="the plain road is not built, or switched off")


class Calls:
    """Counts the messages that Python puts into queues, and delivers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.put = self.delivered = 0
        put, deliver = Queue.put_plain, Queue.deliver

        def counted_put(queue: Queue, *parts: Any) -> bool:
            self.put += 1
            return put(queue, *parts)

        def counted_deliver(queue: Queue, message: Any) -> Any:
            consumer = deliver(queue, message)
            self.delivered += consumer is not None
            return consumer

        monkeypatch.setattr(Queue, "put_plain", counted_put)
        monkeypatch.setattr(Queue, "deliver", counted_deliver)


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"SEND\ndestination:/queue/a\n\n%d\0" % number for number in range(first, last))


@pytest.mark.parametrize("whole_frames", [False, True])
def test_messages_become_ready_and_are_delivered_in_c(whole_frames: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
    sender.put("/queue/a", "0")
    consumer.ack(consumer.take()[-1])
    used = bench.broker.account.used
    sender.put("/queue/a", "0")
    sender.raw(numbered(1, 4))  # the first READY message is Python's, which makes the line
    calls, got = Calls(monkeypatch), []
    sender.raw(numbered(4, 9))
    for _ in range(9):
        for message in (each for each in consumer.take() if each.command == "MESSAGE"):
            got.append(message.body)
            consumer.ack(message)
            (subscription,) = consumer.session.consumers.values()
            assert len(subscription.unacked) <= 2
            assert bench.broker.queues["/", "/queue/a"].ring.count(subscription) == subscription.in_ring
    assert got == [b"%d" % number for number in range(9)]
    assert (calls.put, calls.delivered) == (0, 0)
    assert bench.broker.queues["/", "/queue/a"].cost == 0
    assert bench.broker.account.used == used


@pytest.mark.parametrize("whole_frames", [False, True])
def test_messages_that_wait_for_room_in_the_outbox_are_delivered_in_c(
    whole_frames: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(write_high=1)
    sender, consumer = bench.peer(), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a")
    sender.put("/queue/a", "0")
    used = bench.broker.account.used
    sender.raw(numbered(1, 4))
    calls = Calls(monkeypatch)
    sender.raw(numbered(4, 9))
    for _ in range(9):
        bench.turn()
    assert [each.body for each in consumer.take()] == [b"%d" % number for number in range(9)]
    assert (calls.put, calls.delivered) == (0, 0)
    assert bench.broker.queues["/", "/queue/a"].cost == 0
    assert bench.broker.account.used == used


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("transient", ["stop", "spool"])
def test_ready_messages_leave_the_window_only_to_be_spooled(
    past: int, transient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(FaultyStore(), window_messages=5, transient=transient)
    sender = bench.peer()
    sender.put("/queue/a", "0")
    calls = Calls(monkeypatch)
    sender.raw(numbered(1, 5 + past))
    queue = bench.broker.queues["/", "/queue/a"]
    spooled = past if transient == "spool" else 0
    assert (queue.count, queue.total) == (5 + past - spooled, 5 + past)
    assert calls.put == spooled


@pytest.mark.parametrize("past", [0, 1])
def test_ready_messages_leave_a_window_of_bytes_only_to_be_spooled(past: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FaultyStore(), transient="spool")
    sender = bench.peer()
    sender.put("/queue/a", "0")
    queue = bench.broker.queues["/", "/queue/a"]
    assert queue.window is not None
    sender.raw(numbered(1, 2))
    each = queue.octets - len(queue.messages.line[0].tail)
    queue.window.octets = (
        queue.octets + each + 1 - past
    )  # the next one fits, and the one behind it if nothing is `past`
    calls = Calls(monkeypatch)
    sender.raw(numbered(2, 4))
    assert (queue.count, queue.total) == (4 - past, 4)
    assert calls.put == past


@pytest.mark.parametrize("past", [0, 1])
def test_the_bound_of_a_queue_without_consumers(past: int) -> None:
    bench = Bench(max_queue_messages=5)
    sender = bench.peer()
    sender.put("/queue/a")
    sender.raw(numbered(1, 5 + past))
    assert sender.session.paused is bool(past)
    assert bench.broker.queues["/", "/queue/a"].count == 5 + past


@pytest.mark.parametrize("kind", ["persistent", "priority", "expires"])
def test_a_message_that_needs_more_is_delivered_by_python_in_its_place(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(FaultyStore())
    sender, consumer = bench.peer(), bench.peer()
    more = {"persistent": "true", "priority": "4", "expires": "9999999999999"}
    for number in range(5):
        sender.put("/queue/a", str(number), **({kind: more[kind]} if number == 2 else {}))
    calls = Calls(monkeypatch)
    consumer.subscribe("/queue/a")
    assert [each.body for each in consumer.take() if each.command == "MESSAGE"] == [b"0", b"1", b"2", b"3", b"4"]
    assert calls.delivered == (kind != "priority")
    assert bench.store.bodies == []
