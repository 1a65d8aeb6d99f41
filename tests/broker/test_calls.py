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


@pytest.mark.parametrize(
    ("destination", "ack", "persistent"),
    [
        *((b"/queue/a", "auto", b""), (b"/queue/a", "client-individual", b"")),
        *((b"/queue/a", "client-individual", b"persistent:true\n"), (b"/topic/a", "auto", b"")),
    ],
)
def test_a_message_and_its_ack(destination, ack, persistent):
    """A delivery of a topic is no call at all, and the end of a turn costs by session, not by message."""
    bench = Bench()
    sender, consumers = bench.peer(), [bench.peer() for _ in range(10 if b"topic" in destination else 1)]
    for consumer in consumers:
        consumer.subscribe(destination.decode(), ack=ack, prefetch_count="0")
    octets = b"SEND\ndestination:%b\n%bcontent-length:1024\n\n%b\0" % (destination, persistent, b"x" * 1024) * COUNT
    sent = calls(lambda: sender.session.receive(octets, 0.0))
    if not persistent:
        assert sent <= 8 * COUNT + 50
        taken = []
        assert calls(lambda: taken.extend((each, each.take_output()) for each in bench.broker.turn(0.0))) < 200
        for session, chunks in taken:
            bench.peers[session].inbox += bench.peers[session].parser.feed(b"".join(chunks))
    bench.turn()
    messages = [consumer.take() for consumer in consumers]
    assert [len(each) for each in messages] == [COUNT] * len(consumers)
    if ack != "auto":
        octets = b"".join(b"ACK\nid:%b\n\n\0" % message.headers["ack"].encode() for message in messages[0])
        assert calls(lambda: consumers[0].session.receive(octets, 0.0)) <= 10 * COUNT + 40
        bench.turn()
    assert bench.octets == bench.store.pending == 0
    assert not list(bench.store.load())


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
