"""The hot road stays short: Python calls a message, from the octets that came to the outbox."""

import sys

import pytest
from broker.harness import Bench

from stompcodec import BACKEND, Frame
from stompcodec.broker import message
from stompcodec.broker.sessions import commands
from stompcodec.codec import serialize_tail

#: The parser in Python makes calls of its own: they are not the broker's.
pytestmark = pytest.mark.skipif(BACKEND != "c", reason="counts the broker, not the parser in Python")

COUNT = 200


def calls(action):
    """How often a Python function was called, or a generator resumed."""
    seen = []

    def profile(frame, event, _arg):
        if event == "call":
            seen.append(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return len(seen)


def bench_of(*subscriptions):
    bench = Bench()
    sender = bench.peer()
    consumers = [bench.peer() for _ in subscriptions]
    for consumer, (destination, ack) in zip(consumers, subscriptions):
        consumer.subscribe(destination, ack=ack, prefetch_count="0")
    return bench, sender, consumers


def sends(destination, headers=b""):
    return b"SEND\ndestination:%b\n%bcontent-length:1024\n\n%b\0" % (destination, headers, b"x" * 1024) * COUNT


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_a_message_through_a_queue(ack):
    bench, sender, (consumer,) = bench_of(("/queue/a", ack))
    octets = sends(b"/queue/a")
    assert calls(lambda: sender.session.receive(octets, 0.0)) <= 8 * COUNT + 20
    bench.turn()
    messages = consumer.take()
    assert len(messages) == COUNT
    if ack != "auto":
        octets = b"".join(b"ACK\nid:%b\n\n\0" % message.headers["ack"].encode() for message in messages)
        assert calls(lambda: consumer.session.receive(octets, 0.0)) <= 10 * COUNT + 20
        assert bench.octets == 0


def test_an_ack_of_a_stored_message():
    bench, sender, (consumer,) = bench_of(("/queue/a", "client-individual"))
    sender.session.receive(sends(b"/queue/a", b"persistent:true\n"), 0.0)
    bench.turn()
    octets = b"".join(b"ACK\nid:%b\n\n\0" % message.headers["ack"].encode() for message in consumer.take())
    assert calls(lambda: consumer.session.receive(octets, 0.0)) <= 8 * COUNT + 40
    bench.turn()
    assert bench.octets == bench.store.pending == 0
    assert not list(bench.store.load())


def test_a_delivery_of_a_topic_is_no_call_at_all():
    bench, sender, consumers = bench_of(*[("/topic/a", "auto")] * 10)
    octets = sends(b"/topic/a")
    assert calls(lambda: sender.session.receive(octets, 0.0)) <= 8 * COUNT + 50
    bench.turn()
    assert [len(consumer.take()) for consumer in consumers] == [COUNT] * 10


def test_the_end_of_a_turn_costs_by_session_not_by_message():
    bench, sender, _ = bench_of(("/queue/a", "auto"))
    sender.session.receive(sends(b"/queue/a"), 0.0)
    assert calls(lambda: [session.take_output() for session in bench.broker.turn(0.0)]) < 20


def test_a_header_that_only_the_slow_road_reads_keeps_a_send_off_the_quick_one(monkeypatch):
    class Spy:
        """A frame that notes which headers are asked for."""

        def __init__(self, frame):
            self.frame, self.asked = frame, set()

        def get(self, name, default=None):
            self.asked.add(name)
            return self.frame.get(name, default)

        def has_any(self, *names):
            self.asked.update(names)
            return self.frame.has_any(*names)

        def __getattr__(self, name):
            return getattr(self.frame, name)

    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "where this goes is known now")
    session = peer.session
    monkeypatch.setattr(message, "serialize_tail", lambda spy, *args, **how: serialize_tail(spy.frame, *args, **how))
    spy = Spy(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    commands._send_any(session, spy)
    assert len(bench.broker.queues["/", "/queue/a"].messages) == 2
    quick = {"destination", "persistent", "receipt", *session.virtual_host.destinations.routing_headers}
    assert spy.asked - quick == set(commands.SLOW_HEADERS)
