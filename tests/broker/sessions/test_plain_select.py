"""Plain messages to a consumer with a selector: C writes them to its outbox, and asks the selector once for each."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench

from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.selectors.selector import Selector
from stompcodec.broker.sessions import plain

pytestmark = pytest.mark.skipif(plain.EXTENSION is None, reason="the plain road is not built, or switched off")


class Calls:
    """Counts the messages that Python puts and gives, and those that selectors are asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.python = self.asked = 0
        for kind, name in ((Queue, "put_plain"), (Dispatcher, "give_plain"), (Dispatcher, "give")):
            self._count(monkeypatch, kind, name, "python")
        self._count(monkeypatch, Selector, "matches", "asked")

    def _count(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, field: str) -> None:
        done = getattr(kind, name)

        def counted(*arguments: Any) -> Any:
            setattr(self, field, getattr(self, field) + 1)
            return done(*arguments)

        monkeypatch.setattr(kind, name, counted)


def colored(*colors: str) -> bytes:
    return b"".join(f"SEND\ndestination:/queue/a\ncolor:{color}\n\n{color}\0".encode() for color in colors)


@pytest.mark.parametrize("whole_frames", [False, True])
def test_a_selector_is_asked_once_and_python_only_for_what_it_refuses(
    whole_frames: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a", selector="color = 'red'")
    sender.raw(colored("red", "red"))  # Python makes the consumer the only one
    consumer.take()
    calls = Calls(monkeypatch)
    sender.raw(colored("red", "blue", "red", "green", "red"))
    assert [message.body for message in consumer.take()] == [b"red"] * 3
    assert (calls.python, calls.asked) == (0, 5)
    (queue,) = bench.broker.queues.values()
    assert [message.frame.body for message in queue.messages] == [b"blue", b"green"]
    assert queue.count == 2


@pytest.mark.parametrize("how", ["second consumer", "acknowledges", "no budget"])
def test_what_is_left_to_python(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe("/queue/a", selector="color = 'red'", ack="client" if how == "acknowledges" else "auto")
    sender.raw(colored("red", "red"))
    if how == "second consumer":
        consumer.subscribe("/queue/a", id="2")
    if how == "no budget":
        consumer.session.outbox.send_budget = 1
    calls = Calls(monkeypatch)
    sender.raw(colored("red", "red"))
    bench.turn()
    assert calls.python > 0
    assert [message.body for message in consumer.take()] == [b"red"] * 4


@pytest.mark.parametrize("past", [0, 1])
def test_a_sender_waits_when_messages_that_match_nothing_fill_the_queue(past: int) -> None:
    bench = Bench(max_queue_messages=5)
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe("/queue/a", selector="color = 'red'")
    sender.raw(colored("red", "red", *["blue"] * (5 + past)))
    assert sender.session.paused is bool(past)


def test_the_budget_of_the_consumer_counts_each_message() -> None:
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe("/queue/a", selector="color = 'red'")
    sender.raw(colored("red", "red"))
    left = []
    for _ in range(3):
        sender.session.receive(colored("red"), bench.now)
        left.append(consumer.session.outbox.send_budget)
    size = len(b"destination:/queue/a\ncolor:red\ncontent-length:3\n\nred\0")
    assert [left[0] - left[1], left[1] - left[2]] == [size, size]
