"""One session does not keep the loop: what it has sent is read a share at a time, in order, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from broker.harness import Bench
from broker.sockets import Client, run, send

from stompcodec import Frame, serialize
from stompcodec.broker.config import Config
from stompcodec.broker.server import Server, _Peer, serve
from stompcodec.broker.sessions.commands import HANDLERS
from stompcodec.broker.sessions.session import Session

QUEUE = "/queue/a"


@pytest.fixture
def bench() -> Bench:
    """Each look at the clock finds it a second later: a share is over after eight frames."""
    bench = Bench()

    def clock() -> float:
        bench.now += 1
        return bench.now

    bench.broker.quota.clock = clock
    return bench


def many(count: int, *, start: int = 0, **headers: str) -> bytes:
    frames = (Frame("SEND", {"destination": QUEUE, **headers}, b"%d" % (start + n)) for n in range(count))
    return b"".join(serialize(frame) for frame in frames)


def waiting(bench: Bench) -> int:
    """How many messages there are."""
    queue = bench.broker.queues.get(("/", QUEUE))
    return 0 if queue is None else len(queue.messages)


def one_turn(bench: Bench) -> None:
    bench.woken = False
    for session in bench.broker.turn(bench.now):
        bench.peers[session].flush()
    assert bench.woken is bool(bench.broker.quota.blocked), "as long as somebody waits there is a next turn"


def test_a_share_at_a_time(bench: Bench) -> None:
    """What comes meanwhile stands behind: a transport may have read more before it knows that it should not."""
    sender = bench.peer()
    sender.session.receive(many(20), bench.now)
    assert (waiting(bench), sender.session.paused, bench.woken) == (8, True, True)
    one_turn(bench)
    assert waiting(bench) == 16
    sender.session.receive(many(20, start=20) + serialize(Frame("DISCONNECT", {"receipt": "bye"})), bench.now)
    assert len(bench.broker.quota.blocked) == 1
    one_turn(bench)
    assert 24 <= waiting(bench) < 40
    assert sender.take() == []
    bench.turn()
    assert not sender.session.paused
    assert [frame.headers["receipt-id"] for frame in sender.take()] == ["bye"]
    assert sender.closed
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [b"%d" % number for number in range(40)]


def test_others_have_their_turns(bench: Bench) -> None:
    """Each goes on by one share a turn, whoever has waited longest."""
    peers = [bench.peer() for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.session.receive(many(20, start=100 * number), bench.now)
    assert waiting(bench) == 24
    for expected in (32, 40, 48, 52, 56, 60):
        assert bench.broker.quota.blocked
        one_turn(bench)
        assert waiting(bench) == expected
    assert not bench.broker.quota.blocked
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    bodies = [int(body) for body in consumer.bodies()]
    assert sorted(bodies) == [*range(20), *range(100, 120), *range(200, 220)]
    assert all([body for body in bodies if body // 100 == n] == list(range(100 * n, 100 * n + 20)) for n in range(3))


@pytest.mark.parametrize(("lost", "sent"), [(True, 50), (False, 8)])
def test_one_that_is_lost_has_sent_it_all_and_one_that_is_shut_out_waits_no_more(
    bench: Bench, lost: bool, sent: int
) -> None:
    sender = bench.peer()
    sender.session.receive(many(50), bench.now)
    if lost:
        sender.lose()
    else:
        bench.broker.stop(bench.now)
    assert not bench.broker.quota.blocked
    assert waiting(bench) == sent
    bench.turn()
    assert [frame.command for frame in sender.take()] == [] if lost else ["ERROR"]


def test_what_is_read_in_one_pass_has_one_share() -> None:
    """Many senders at once: each does a few frames, then they take turns, so that others are served in between."""
    handled: list[int] = []  # frames between two turns of the loop
    clock = _Counting()

    async def main(server: Server) -> None:
        turn = server.turn

        def counted() -> None:
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
            await client.close()

    run(main, clock=clock, sessions=clock.session_class())
    assert sum(handled) >= 12 * 501
    # One that waited has 10 ms, at 1 ms for each frame; so have all that are read, and 8 frames each.
    assert max(handled) <= 10 + 8 + 10 + 12 * 8


class _Counting:
    """A clock that goes on by 1 ms with every frame."""

    def __init__(self) -> None:
        self.frames = 0
        self.running = False
        self._passed = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self._passed

    time = staticmethod(time.time)

    def session_class(self) -> type[Session]:
        plain = HANDLERS["SEND"]

        def counted(session: Session, frame: Frame) -> None:
            self.frames += 1
            self._passed += 0.001 * self.running
            plain(session, frame)

        class Counted(Session):
            __slots__ = ()

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self.handlers = {**HANDLERS, "SEND": counted}

        return Counted


# ---- the loop ----


class Wire:
    """A connection that counts what is asked of it."""

    peer, secure, whole_frames, buffered, handshake = "test", False, False, 0, ()

    def __init__(self) -> None:
        self.calls: list[str] = []

    def write(self, chunks: list[bytes]) -> None:
        pass

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        pass


def test_who_is_read_again_when_the_share_of_all_is_over_waits() -> None:
    """Else one wire that always has something is read many times before others are."""

    async def main() -> list[list[str]]:
        async with serve(Config(port=0)) as server:
            wires = [Wire(), Wire()]
            peers = [_Peer(server, "stomp") for _ in wires]
            for peer, wire in zip(peers, wires):
                peer.opened(wire)
                peer.received(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
            server.turn()
            server.broker.quota.clock = lambda: server.now() + 1
            for peer in peers:
                peer.received(many(1))
            peers[0].received(many(1))
            seen = [list(wire.calls) for wire in wires]
            server.broker.quota.clock = server.now
            for _ in range(3):
                server.turn()
            for peer in peers:
                peer.lost(None)
            return [*seen, *(wire.calls for wire in wires)]

    assert asyncio.run(main()) == [["pause"], [], ["pause", "resume"], []]
