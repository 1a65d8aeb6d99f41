"""Others beside a drain wait neither for its commits nor for its pages. Counted, not timed."""

import pytest
from broker.harness import AtOnce, Bench, FaultyStore
from broker.loop import QUEUE, Loop

from stompcodec.broker.loop_quota import FEW
from stompcodec.broker.sessions import plain
from stompcodec.broker.storage import journal

MANY = 12 * FEW
OTHER = "/queue/b"
#: A queue with a consumer.
READ = "/queue/c"


def fill(bench, count=MANY):
    sender = bench.peer()
    for number in range(count):
        sender.put(QUEUE, str(number), persistent="true")
    if isinstance(bench.store, FaultyStore) and bench.store.job:
        bench.store.finish()
    bench.turn()


def drain(bench):
    """SUBSCRIBE, and no turn. From now on others are heard."""
    bench.broker.quota.heard = bench.now  # the shell says so
    return taker_of(bench, QUEUE)


def taker_of(bench, destination):
    """Return a peer that has sent SUBSCRIBE, before a turn."""
    taker = bench.peer()
    taker.session.receive(taker.octets_of("SUBSCRIBE", destination=destination, id="1"), 0.0)
    return taker


def send(peer, destination=OTHER):
    """SEND a stored message, and no turn."""
    peer.session.receive(peer.octets_of("SEND", destination=destination, persistent="true", receipt="s"), 0.0)


def receipts(peer):
    return sum(frame.command == "RECEIPT" for frame in peer.take())


def under_way(bench):
    """Return the numbers of messages that the commit under way adds and removes."""
    batch = bench.store.job[0]
    return len(batch._puts), len(batch._removes)


@pytest.fixture
def draining(monkeypatch):
    """A queue that is being drained, with removals that wait for the next commit, and a sender."""
    monkeypatch.setattr(journal, "_FEW_GONE", 3 * FEW)
    bench = Loop(background=True)
    fill(bench)
    bench.store.finish() if bench.store.job else None
    sender = bench.peer()
    send(sender)  # few removals a commit, since somebody waits
    bench.turn()
    bench.store.finish()
    bench.turn()
    assert receipts(sender) == 1
    drain(bench)
    bench.one_turn()
    assert bench.store.job is None
    assert bench.store.pending >= FEW
    return bench, sender


def test_a_stored_message_does_not_wait_for_the_removals_of_others(draining):
    bench, sender = draining
    removed = bench.store.pending
    send(sender)
    bench.one_turn()
    assert under_way(bench) == (1, 0)
    bench.store.finish()
    bench.one_turn()
    assert receipts(sender) == 1
    while bench.store.job is None:
        bench.one_turn()
    assert under_way(bench)[1] >= removed


@pytest.fixture(params=[True, False], ids=["c", "python"])
def road(request):
    """Frames are read in C, or in Python."""
    if plain.EXTENSION is not None:
        plain.EXTENSION.switch(request.param)


def test_a_queue_that_fell_behind_catches_up_with_its_sender(road):
    """Its consumer can take all; but beside active sessions a turn delivers few messages, and its sender has more."""
    bench = Bench()
    sender, taker = bench.peer(), bench.peer()
    taker.subscribe(QUEUE)
    taker.session.writable(False, bench.now)
    message = sender.octets_of("SEND", destination=QUEUE, persistent="true")
    sender.session.receive(message * MANY, 0.0)
    bench.turn()
    queue = bench.broker.queues["/", QUEUE]
    assert queue.count == MANY
    bench.broker.quota.heard = bench.now
    taker.session.writable(True, bench.now)
    turns = 0
    while queue.count:
        if not sender.session.paused:
            sender.session.receive(message * 2 * FEW, 0.0)  # more than leave in a turn
        list(bench.broker.turn(bench.now))
        turns += 1
        assert queue.count < 2 * MANY
        assert turns < 4 * MANY
    assert not queue.blocked


@pytest.mark.parametrize("end", ["slow", "lost", "suspended", "deleted"])
def test_a_sender_waits_no_longer_than_its_queue_catches_up(road, end):
    bench = Bench()
    sender = bench.peer()
    message = sender.octets_of("SEND", destination=QUEUE, persistent="true")
    sender.session.receive(message * MANY, 0.0)
    bench.turn()
    taker = drain(bench)
    sender.session.receive(message, 0.0)
    queue = bench.broker.queues["/", QUEUE]
    assert sender.session.paused
    assert list(queue.blocked) == [sender.session]
    if end == "slow":
        taker.session.writable(False, bench.now)
    elif end == "lost":
        taker.session.lost(bench.now)
    elif end == "suspended":
        queue.suspend()
    else:
        queue.delete()
    bench.turn()
    assert not sender.session.paused
    assert not queue.blocked


class Counting(AtOnce):
    """A helper that counts its jobs."""

    jobs = 0

    def give(self, job):
        self.jobs += 1
        super().give(job)
