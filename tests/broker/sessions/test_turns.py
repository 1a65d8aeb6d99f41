"""One session does not keep the loop: what it has sent is read a share at a time, in order, and nothing is lost."""

import time

import pytest
from broker.harness import Bench
from broker.sockets import Client, run, send, served

from stompcodec import Frame, serialize
from stompcodec.broker.server import _Peer
from stompcodec.broker.sessions.commands import HANDLERS
from stompcodec.broker.sessions.session import Session


@pytest.fixture
def bench():
    """Each look at the clock finds it a second later: a share is over after eight frames."""
    bench = Bench()

    def clock():
        bench.now += 1
        return bench.now

    bench.broker.quota.clock = clock
    return bench


def many(count, *, start=0):
    frames = (Frame("SEND", {"destination": "/queue/a"}, b"%d" % (start + n)) for n in range(count))
    return b"".join(serialize(frame) for frame in frames)


def step(bench):
    bench.step()
    assert bench.woken is bool(bench.broker.quota.blocked), "as long as somebody waits there is a next turn"
    return len(bench.ready())


def test_a_share_at_a_time(bench):
    """What comes meanwhile stands behind: a transport may have read more before it knows that it should not."""
    sender = bench.peer()
    sender.session.receive(many(20), bench.now)
    assert (len(bench.ready()), sender.session.paused, bench.woken) == (8, True, True)
    assert step(bench) == 16
    sender.session.receive(many(20, start=20) + serialize(Frame("DISCONNECT", {"receipt": "bye"})), bench.now)
    assert len(bench.broker.quota.blocked) == 1
    assert 24 <= step(bench) < 40
    assert sender.take() == []
    bench.turn()
    assert not sender.session.paused
    assert [frame.headers["receipt-id"] for frame in sender.take()] == ["bye"]
    assert sender.closed
    assert bench.left() == [b"%d" % number for number in range(40)]


def test_others_have_their_turns(bench):
    """Each goes on by one share a turn, whoever has waited longest."""
    for number, peer in enumerate([bench.peer() for _ in range(3)]):
        peer.session.receive(many(20, start=100 * number), bench.now)
    assert len(bench.ready()) == 24
    for expected in (32, 40, 48, 52, 56, 60):
        assert bench.broker.quota.blocked
        assert step(bench) == expected
    assert not bench.broker.quota.blocked
    bodies = list(map(int, bench.left()))
    assert len(bodies) == 60
    for n in range(3):
        assert [body for body in bodies if body // 100 == n] == list(range(100 * n, 100 * n + 20))


@pytest.mark.parametrize(("lost", "sent"), [(True, 50), (False, 8)])
def test_one_that_is_lost_has_sent_it_all_and_one_that_is_shut_out_waits_no_more(bench, lost, sent):
    sender = bench.peer()
    sender.session.receive(many(50), bench.now)
    if lost:
        sender.lose()
    else:
        bench.broker.stop(bench.now)
    assert not bench.broker.quota.blocked
    assert len(bench.ready()) == sent
    bench.turn()
    assert [frame.command for frame in sender.take()] == ([] if lost else ["ERROR"])


class Counting:
    """A clock that goes on by 1 ms with every frame, and sessions that count frames by it."""

    time = staticmethod(time.time)

    def __init__(self):
        self.frames, self.running, self.passed = 0, False, 0.0

    def monotonic(self):
        return 1000.0 + self.passed

    def session_class(self):
        def counted(session, frame):
            self.frames += 1
            self.passed += 0.001 * self.running
            HANDLERS["SEND"](session, frame)

        class Counted(Session):
            __slots__ = ()

            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                self.handlers = {**HANDLERS, "SEND": counted}

        return Counted


def test_what_is_read_in_one_pass_has_one_share():
    """Many senders at once: each does a few frames, then they take turns, so that others are served in between."""
    handled, clock = [], Counting()  # frames between two turns of the loop

    async def main(server):
        turn = server.turn

        def counted():
            handled.append(clock.frames)
            clock.frames = 0
            turn()

        server.turn = counted
        clients = [await Client.connect(server) for _ in range(12)]
        handled.clear()
        clock.running = True
        for client in clients:
            client.send(send("/topic/nobody") * 500 + send("/topic/nobody", "", "receipt:last"))
        for client in clients:
            assert (await client.frame()).command == "RECEIPT"

    run(main, clock=clock, sessions=clock.session_class())
    assert sum(handled) >= 12 * 501
    # One that waited has 10 ms, at 1 ms for each frame; so have all that are read, and 8 frames each.
    assert max(handled) <= 10 + 8 + 10 + 12 * 8


class Wire:
    peer, secure, whole_frames, buffered, handshake = "test", False, False, 0, ()

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *_: self.calls.append(name) if "reading" in name else None


@served()
async def test_who_is_read_again_when_the_share_of_all_is_over_waits(server):
    """Else one wire that always has something is read many times before others are."""
    wires, peers = [Wire(), Wire()], [_Peer(server, "stomp") for _ in range(2)]
    for peer, wire in zip(peers, wires):
        peer.opened(wire)
        peer.received(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
    server.turn()
    server.broker.quota.clock = lambda: server.now() + 1
    for peer in (*peers, peers[0]):
        peer.received(many(1))
    assert [wire.calls for wire in wires] == [["pause_reading"], []]
    server.broker.quota.clock = server.now
    for _ in range(3):
        server.turn()
    for peer in peers:
        peer.lost(None)
    assert [wire.calls for wire in wires] == [["pause_reading", "resume_reading"], []]
