"""The cost of a frame and of a turn does not depend on the depth of a queue. Bytecode instructions are counted."""

from functools import partial

import pytest
from broker.bytecodes import bytecodes
from broker.loop import QUEUE, Loop

from stompcodec import BACKEND, serialize
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.message import Message
from stompcodec.broker.queues import paging as ready_messages
from stompcodec.broker.queues.backlog import Fifo
from stompcodec.codec import Frame

#: The parser in Python has instructions of its own: they are not the broker's.
pytestmark = pytest.mark.skipif(BACKEND != "c", reason="counts the broker, not the parser in Python")


class Line(Fifo):
    """A line that nobody may look through."""

    def __iter__(self):
        raise AssertionError("all messages are looked at")

    def copy(self):
        raise AssertionError("all messages are copied")


def deepen(bench, count, line):
    """Fill a queue with `count` messages, without a frame for each."""
    queue = bench.broker.virtual_host("/").destinations.queue(QUEUE)
    queue.messages.line = line
    for _ in range(count):
        message = Message(b"%d", 0, QUEUE, b"\n\0")
        bench.broker.place(message)
        queue.load(message)


DEEDS = {
    "priority": ("SEND", {"priority": "9"}),
    "group": ("SEND", {"JMSXGroupID": "a"}),
    "selector": ("SUBSCRIBE", {"id": "1", "selector": "a = 1"}),
    "exclusive": ("SUBSCRIBE", {"id": "1", "exclusive": "true", "ack": "client", "prefetch_count": "10"}),
    "consumer of priority": ("SUBSCRIBE", {"id": "1", "x_priority": "7", "ack": "client", "prefetch_count": "10"}),
    "browser": ("SUBSCRIBE", {"id": "1", "browser": "true", "ack": "client", "prefetch_count": "10"}),
    "browser from now on": ("SUBSCRIBE", {"id": "1", "browser": "true", "from_seq": "-1"}),
    "receive": ("RECEIVE", {"id": "1", "selector": "a IS NULL"}),
}


@pytest.mark.long
@pytest.mark.parametrize("deed", DEEDS)
def test_the_first_of_its_kind_costs_the_same_however_deep_the_queue_is(deed):
    """Frames that change a queue from a plain line into one that can be searched."""
    command, headers = DEEDS[deed]
    found = []
    for count in (1, 2 * AT_ONCE, 20 * AT_ONCE):  # the first time pays for caches
        bench = Loop()
        peer = bench.peer()
        deepen(bench, count, Line())
        pairs = {name.replace("_", "-"): value for name, value in headers.items()}
        octets = serialize(Frame(command, {"destination": QUEUE, **pairs}), version="1.2", commands=["RECEIVE"])
        do = partial(_deed, bench, peer, octets)
        found.append(do() if count == 1 else bytecodes(do))
    assert found[2] <= 1.01 * found[1]


def _deed(bench, peer, octets):
    peer.session.receive(octets, 0.0)
    bench.one_turn()
    assert not peer.session.ended


def most_steps(bench):
    """Let the broker go on until it rests, and return the instructions of the turn that took most."""
    most = bytecodes(bench.one_turn)
    while not bench.rests:
        most = max(most, bytecodes(bench.one_turn))
    return most


def expire_all(bench):
    """All have expired."""
    _expire(bench, 1)


def expire_some(bench):
    """Every second one has, also in the middle."""
    _expire(bench, 2)


def _expire(bench, each):
    queue = bench.broker.queues["/", QUEUE]
    for message in list(queue.messages)[::each]:
        message.expires = bench.date - 1
    queue.expiry.pending = True
    bench.now += 100
    bench.broker.tick(bench.now)


def give_back(bench):
    """The first and the last message come back together."""
    queue = bench.broker.queues["/", QUEUE]
    queue.requeue([queue.messages.line.pop(), queue.messages.line.popleft()])


def fail_to_store(bench):
    """The newest message has to leave again."""
    peer = bench.peer()
    bench.store.faulty = True
    peer.session.receive(peer.octets_of("SEND", destination=QUEUE, persistent="true", receipt="1"), 0.0)


@pytest.mark.parametrize("do", [expire_all, expire_some, give_back, fail_to_store])
def test_no_turn_costs_more_in_a_deeper_queue(monkeypatch, do):
    monkeypatch.setattr(ready_messages, "_SHORT", AT_ONCE)
    found = []
    for count in (2 * AT_ONCE, 4 * AT_ONCE):
        bench = Loop()
        deepen(bench, count, Fifo())
        found.append(bytecodes(partial(do, bench)) if do in (give_back, fail_to_store) else do(bench) or 0)
        found[-1] = max(found[-1], most_steps(bench))
        left = {expire_all: 0, expire_some: count // 2}.get(do, count)
        queue = bench.broker.queues["/", QUEUE]
        seqs = [message.seq for message in (queue.messages.line.popleft() for _ in range(len(queue.messages)))]
        assert seqs == sorted(seqs)
        assert len(seqs) == queue.count == left
    assert found[1] <= 1.2 * found[0]
