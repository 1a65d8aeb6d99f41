"""Random walks over a paged queue whose commits fail: nothing is lost or comes twice, and the counts are right."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from broker.harness import Bench, FaultyStore, Peer

from stompcodec import Frame
from stompcodec.broker.queues.paging import PagedQueue, Paging
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing import registry
from stompcodec.broker.storage.store import Held

QUEUE = "/queue/a"


class Walk:
    """A sender, up to two consumers, and what they know."""

    def __init__(self, seed: int, window: int) -> None:
        self.rng, self.window = Random(seed), window
        self.store = FaultyStore(background=bool(seed % 2))
        #: Sent, stored for sure, and acknowledged for sure. What failed may be neither.
        self.sent: list[int] = []
        self.stored: set[int] = set()
        self.gone: set[int] = set()
        #: Acknowledged by consumers that ended before the receipt.
        self.maybe: set[int] = set()
        self.peers: list[tuple[Peer, list[Frame], dict[str, Any]]] = []
        self.start()

    def start(self) -> None:
        self.bench = Bench(self.store, window_messages=self.window, max_attempts=10**6)
        self.sender = self.bench.peer()

    def finish(self) -> None:
        """End the commits under way. Sessions whose commits failed are ended, and others come."""
        self.bench.turn()
        while self.store.job is not None:
            self.store.finish()
            self.bench.turn()
        self.look()

    def look(self) -> None:
        answers = [frame.headers["receipt-id"] for frame in self.sender.take() if frame.command == "RECEIPT"]
        self.stored.update(int(number) for answer in answers for number in answer.split("."))
        if self.sender.closed:
            self.sender = self.bench.peer()
        for peer, held, asked in sorted(self.peers, key=lambda peer: not peer[0].session.ended):
            for frame in peer.take():
                if frame.command == "MESSAGE":
                    number = int(frame.body)
                    assert number not in self.gone, f"{number} came back"
                    everybody = [int(other.body) for _, others, _ in self.peers for other in others]
                    assert peer.session.ended or number not in everybody, f"{number} came twice"
                    held.append(frame)
                elif frame.command == "RECEIPT":
                    self.gone.update(asked.pop(frame.headers["receipt-id"]))
            if peer.session.ended:
                self.peers.remove((peer, held, asked))
                self.maybe.update(number for numbers in asked.values() for number in numbers)

    def put(self) -> None:
        numbers = [len(self.sent) + more for more in range(self.rng.choice((1, 1, 5)))]
        self.sent += numbers
        octets = b""
        for number in numbers:
            tx = {"transaction": "t"} if len(numbers) > 1 else {"receipt": str(number)}
            octets += self.sender.octets_of("SEND", b"%d" % number, destination=QUEUE, persistent="true", **tx)
        if len(numbers) > 1:
            receipt = ".".join(map(str, numbers))
            octets = self.sender.octets_of("BEGIN", transaction="t") + octets
            octets += self.sender.octets_of("COMMIT", transaction="t", receipt=receipt)
        self.sender.raw(octets)

    def join(self) -> None:
        if len(self.peers) < 2:
            peer = self.bench.peer()
            prefetch = str(self.rng.choice((1, 2, 20)))
            self.peers.append((peer, [], {}))
            more = self.rng.choice(({}, {}, {"selector": "JMSPriority < 10"}))
            peer.subscribe(QUEUE, ack="client-individual", prefetch_count=prefetch, **more)

    def settle(self) -> None:
        if self.peers:
            peer, held, asked = self.rng.choice(self.peers)
            if held:
                frame = held.pop(self.rng.randrange(len(held)))
                if self.rng.random() < 0.7:
                    asked[f"r{frame.headers['ack']}"] = [int(frame.body)]
                    peer.ack(frame, receipt=f"r{frame.headers['ack']}")
                else:
                    peer.nack(frame)

    def leave(self) -> None:
        if self.peers:
            gone = peer, _, asked = self.rng.choice(self.peers)
            self.peers.remove(gone)
            self.maybe.update(number for numbers in asked.values() for number in numbers)
            peer.lose()

    def fail(self) -> None:
        self.store.faulty = not self.store.faulty

    def end_commit(self) -> None:
        if self.store.job is not None:
            self.store.finish()
        self.bench.turn()

    def restart(self) -> None:
        self.store.faulty = False
        self.finish()
        self.finish()
        self.check()
        for peer in list(self.bench.peers.values()):
            peer.lose()
        self.finish()
        self.peers = []
        self.start()

    @property
    def queue(self) -> Queue | None:
        return self.bench.broker.queues.get(("/", QUEUE))

    def check(self) -> None:
        """Compare the counts, while nothing is on its way to the store."""
        queue, rows = self.queue, {int(body) for body in self.store.bodies}
        assert len(rows) == len(self.store.bodies)
        assert self.stored - self.gone - self.maybe - rows == set(), "lost"
        if queue is not None:
            unacked = {int(m.frame.body) for consumer in queue.members for m in consumer.unacked.values()}
            ready = {int(m.frame.body) for m in queue.messages}
            assert queue.total == len(rows | ready | unacked), "what was delivered at once may not be stored"
            assert queue.count - len(unacked) <= 2 * self.window + 45

    def run(self, steps: int) -> None:
        ways = [self.put] * 8 + [self.settle] * 6 + [self.join] * 2 + [self.end_commit] * 4
        ways += [self.leave, self.restart, *[self.fail] * 2]
        for _ in range(steps):
            self.rng.choice(ways)()
            self.look()
        self.restart()
        self.drain()

    def drain(self) -> None:
        before = sorted(int(body) for body in self.store.bodies)
        taker, got = self.bench.peer(), list[int]()
        taker.subscribe(QUEUE)
        for _ in range(10 * len(self.sent) + 10):
            self.finish()
            more = [int(body) for body in taker.bodies()]
            got += more
            if not more and not self.store.bodies:
                break
        assert got == before
        assert self.stored - self.gone - self.maybe <= set(got)
        assert self.store.bodies == []
        assert self.queue is None or (self.queue.total, self.queue.paging) == (0, None)


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_twice_while_commits_fail(seed: int, window: int) -> None:
    Walk(seed, window).run(120)


def test_the_walk_notices_wrong_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Paging, "withdraw", lambda *_: None)
        with pytest.raises(AssertionError, match="may not be stored"):
            Walk(0, 1).run(120)
    right = registry.leave_all_in_store

    def one_more(queue: PagedQueue, held: Held) -> bool:
        return right(queue, held._replace(total=held.total + 1))

    monkeypatch.setattr(registry, "leave_all_in_store", one_more)
    with pytest.raises(AssertionError, match="may not be stored"):
        Walk(0, 1).run(120)
