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
from stompcodec.broker.server import Server, serve
from stompcodec.broker.session import Session
from stompcodec.client import connect_async

QUEUE = "/queue/a"


@pytest.fixture
def bench() -> Bench:
    """Each look at the clock finds it a second later: a share is over after eight frames."""
    bench = Bench()

    def clock() -> float:
        bench.now += 1
        return bench.now

    bench.broker.turns.clock = clock
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
    assert bench.woken is bool(bench.broker.turns.blocked), "as long as somebody waits there is a next turn"


def test_a_share_at_a_time(bench: Bench) -> None:
    sender = bench.peer()
    sender.session.receive(many(20), bench.now)
    assert (waiting(bench), sender.session.paused, bench.woken) == (8, True, True)
    for expected in (16, 20):
        one_turn(bench)
        assert waiting(bench) == expected
    assert not sender.session.paused
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [b"%d" % number for number in range(20)]


def test_others_have_their_turns(bench: Bench) -> None:
    """Each goes on by one share a turn, whoever has waited longest."""
    peers = [bench.peer() for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.session.receive(many(20, start=100 * number), bench.now)
    assert waiting(bench) == 24
    for expected in (32, 40, 48, 52, 56, 60):
        assert bench.broker.turns.blocked
        one_turn(bench)
        assert waiting(bench) == expected
    assert not bench.broker.turns.blocked
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    bodies = [int(body) for body in consumer.bodies()]
    assert sorted(bodies) == [*range(20), *range(100, 120), *range(200, 220)]
    assert all([body for body in bodies if body // 100 == n] == list(range(100 * n, 100 * n + 20)) for n in range(3))


def test_what_comes_meanwhile_stands_behind(bench: Bench) -> None:
    """A transport may have read more than one piece before it knows that it should not."""
    sender = bench.peer()
    sender.session.receive(many(20), bench.now)
    sender.session.receive(many(20, start=20), bench.now)
    assert len(bench.broker.turns.blocked) == 1
    bench.turn()
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [b"%d" % number for number in range(40)]


def test_a_receipt_comes_when_its_frame_was_read(bench: Bench) -> None:
    sender = bench.peer()
    sender.session.receive(many(20) + serialize(Frame("DISCONNECT", {"receipt": "bye"})), bench.now)
    one_turn(bench)
    assert sender.take() == []
    bench.turn()
    assert [frame.headers["receipt-id"] for frame in sender.take()] == ["bye"]
    assert sender.closed


def test_one_that_is_lost_has_sent_it_all(bench: Bench) -> None:
    sender = bench.peer()
    sender.session.receive(many(50), bench.now)
    sender.lose()
    assert waiting(bench) == 50
    assert not bench.broker.turns.blocked


@pytest.mark.parametrize("wrong", [b"NONSENSE\n\n\0", serialize(Frame("ACK", {"id": "nothing"}))])
def test_what_is_wrong_is_found_in_its_place(bench: Bench, wrong: bytes) -> None:
    sender = bench.peer()
    sender.session.receive(many(20) + wrong + many(20), bench.now)
    bench.turn()
    assert waiting(bench) == 20
    assert [frame.command for frame in sender.take()] == ["ERROR"]
    assert not bench.broker.turns.blocked


def test_one_that_is_shut_out_waits_no_more(bench: Bench) -> None:
    sender = bench.peer()
    sender.session.receive(many(50), bench.now)
    bench.broker.stop(bench.now)
    assert not bench.broker.turns.blocked
    bench.turn()
    assert [frame.command for frame in sender.take()] == ["ERROR"]


def test_silence_while_it_waits_is_not_held_against_it(bench: Bench) -> None:
    sender = bench.peer(connect=False)
    sender.connect(heart_beat="1000,0")
    sender.session.receive(many(500), bench.now)
    bench.now += 1000
    assert sender.session.tick(bench.now)


def test_a_server_gives_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that runs, over sockets: everything comes, in order."""
    monkeypatch.setattr("stompcodec.broker.bounds._SHARE", -1.0)

    async def main() -> list[Any]:
        async with (
            serve(Config(port=0)) as server,
            connect_async(f"stomp://127.0.0.1:{server.port}") as client,
            client.subscribe(QUEUE) as messages,
        ):
            for number in range(300):
                await client.send(QUEUE, b"%d" % number)
            return [(await anext(messages)).body for _ in range(300)]

    assert asyncio.run(main()) == [b"%d" % number for number in range(300)]


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

        server.turn = counted  # type: ignore[method-assign]
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
        plain = Session.handlers["SEND"]

        def counted(session: Session, frame: Frame) -> None:
            self.frames += 1
            self._passed += 0.001 * self.running
            plain(session, frame)

        class Counted(Session):
            __slots__ = ()
            handlers = {**Session.handlers, "SEND": counted}  # noqa: RUF012

        return Counted
