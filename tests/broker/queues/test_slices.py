"""No turn does more than a share of what there is to do: others are served in between. Counted, not timed."""

import pytest
from broker.harness import Bench
from broker.loop import MOST, QUEUE, Loop

from stompcodec import serialize
from stompcodec.broker.loop_quota import AT_ONCE, FEW
from stompcodec.broker.storage import journal
from stompcodec.codec import Frame

#: More than twice what a turn may do.
MANY = 7 * AT_ONCE
TOPIC = "/topic/a"
NAMED = "durable-subscription-name"


def fill(bench, destination=QUEUE, count=MANY, *, persistent=True, **headers):
    sender = bench.peer()
    pairs = {"destination": destination, **headers, **({"persistent": "true"} if persistent else {})}
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(count, start + AT_ONCE))
        sender.raw(b"".join(serialize(Frame("SEND", pairs, b"%d" % number)) for number in numbers))
    sender.take()
    sender.lose()


def numbers(peer):
    return [int(frame.body) for frame in peer.take() if frame.command == "MESSAGE"]


def start(peer, destination=QUEUE, **headers):
    """SUBSCRIBE, and no turn."""
    peer.session.receive(peer.octets_of("SUBSCRIBE", destination=destination, id="1", **headers), 0.0)


WAYS = {
    "queue": {},
    "selector": {"selector": "a IS NULL"},
    "exclusive": {"exclusive": "true"},
    "credit": {"credit": "1000000"},
}


@pytest.mark.parametrize("window", [100, 100_000])
@pytest.mark.parametrize("way", WAYS)
def test_beside_active_sessions_a_turn_does_little(way, window):
    """A receipt waits for few messages of the drain, and for a commit of few removals."""
    bench = Loop(window_messages=window)
    fill(bench, count=3 * AT_ONCE)
    peer, sender = bench.peer(), bench.peer()
    bench.broker.quota.heard = bench.now  # the shell says so
    start(peer, **WAYS[way])
    got = []
    while len(got) < 3 * AT_ONCE:
        bench.store.largest = 0
        sender.session.receive(sender.octets_of("SEND", destination="/queue/b", persistent="true", receipt="s"), 0.0)
        before = len(got)
        assert bench.one_turn() <= 6 * FEW + 2
        assert [frame.command for frame in sender.take()] == ["RECEIPT"], "in this turn"
        got += numbers(peer)
        assert len(got) - before <= 3 * FEW
        assert bench.store.largest <= journal._FEW_GONE + 4 * FEW
    assert got == list(range(3 * AT_ONCE))


def test_new_messages_do_not_overtake_what_waits_for_the_disk():
    bench = Loop()
    fill(bench)
    bench.store.background = True
    peer, sender = bench.peer(), bench.peer()
    start(peer)
    late = 0
    while bench.store.job is None or bench.store.pending < FEW:
        bench.one_turn()
    for _ in range(200):
        sender.session.receive(sender.octets_of("SEND", b"%d" % (MANY + late), destination=QUEUE), 0.0)
        late += 1
        bench.one_turn()
        if bench.store.job is not None:
            bench.store.finish()
    while not bench.rests or bench.store.job is not None:
        if bench.store.job is not None:
            bench.store.finish()
        bench.one_turn()
    assert numbers(peer) == list(range(MANY + late))


@pytest.mark.long
@pytest.mark.parametrize(
    ("persistent", "waiting"),
    [(True, "nobody"), (True, "an auto consumer"), (True, "one that picks"), (False, "nobody")],
)
def test_a_lost_session_gives_back_a_share_at_a_time(persistent, waiting):
    bench = Loop()
    fill(bench, persistent=persistent)
    loser = bench.peer()
    loser.subscribe(QUEUE, ack="client")
    assert numbers(loser) == list(range(MANY))
    next_one = bench.peer()
    if waiting != "nobody":
        start(next_one, **({} if waiting == "an auto consumer" else {"selector": "a IS NULL"}))
    loser.session.lost(0.0)
    late = bench.peer()
    late.session.receive(late.octets_of("SEND", b"%d" % MANY, destination=QUEUE), 0.0)
    bench.watch(2 * MOST)
    if waiting == "nobody":
        start(next_one)
        bench.watch(2 * MOST)
    frames = [frame for frame in next_one.take() if frame.command == "MESSAGE"]
    assert [int(frame.body) for frame in frames] == list(range(MANY + 1))
    assert {frame.get("redelivered") for frame in frames[:-1]} == {"true"}


def test_messages_that_come_back_from_two_at_once_keep_their_order():
    bench = Loop(prefetch=MANY // 2)
    fill(bench)
    losers = [bench.peer() for _ in range(2)]
    for peer in losers:
        peer.subscribe(QUEUE, ack="client")
    bench.watch(2 * MOST)
    next_one = bench.peer()
    start(next_one)
    for peer in losers:
        peer.session.lost(0.0)
    bench.watch(2 * MOST)
    assert numbers(next_one) == list(range(MANY))


@pytest.mark.parametrize("how", ["deleted", "lost"])
def test_a_queue_that_ends_while_messages_come_back(how):
    """They go from the store, too."""
    bench = Loop()
    peer = bench.peer(connect=False)
    peer.connect(client_id="c")
    peer.subscribe(TOPIC, ack="client", **{NAMED: "n"})
    fill(bench, TOPIC)
    bench.watch(2 * MOST)
    assert len(bench.store.bodies) == MANY
    if how == "deleted":
        peer.session.receive(peer.octets_of("UNSUBSCRIBE", id="1", **{NAMED: "n"}), 0.0)
    else:
        peer.session.lost(0.0)
        ender = bench.peer(connect=False)
        ender.connect(client_id="c")
        ender.session.receive(ender.octets_of("UNSUBSCRIBE", id="1", **{NAMED: "n"}), 0.0)
    bench.watch()
    assert not bench.store.bodies
    bench.turn()


def test_a_durable_subscription_ends_a_share_at_a_time():
    """And what is left of it is not that of a new one of the same name, even if the broker is killed meanwhile."""
    bench = Loop()
    peer = bench.peer(connect=False)
    peer.connect(client_id="c")
    peer.subscribe(TOPIC, **{NAMED: "n"})
    peer.lose()
    fill(bench, TOPIC)
    peer = bench.peer(connect=False)
    peer.connect(client_id="c")
    peer.session.receive(peer.octets_of("UNSUBSCRIBE", id="1", receipt="gone", **{NAMED: "n"}), 0.0)
    assert bench.one_turn() <= MOST
    assert peer.next().headers["receipt-id"] == "gone"
    start(peer, TOPIC, ack="client", **{NAMED: "n"})
    peer.session.receive(peer.octets_of("SEND", b"-1", destination=TOPIC, persistent="true"), 0.0)
    bench.one_turn()
    assert 2 < len(bench.store.bodies) < MANY
    assert numbers(peer) == [-1]
    again = Bench(bench.store)
    ghost = again.peer(connect=False)
    ghost.connect(client_id="c")
    ghost.subscribe(TOPIC, **{NAMED: "n"})
    assert numbers(ghost) == [-1]


def test_expired_messages_go_a_share_at_a_time():
    bench = Loop(dead_letter_expired=True)
    fill(bench, expires=str(int((bench.date + 10) * 1000)))
    fill(bench, count=10)
    bench.date += 20
    bench.now += 100
    bench.broker.tick(bench.now)
    bench.watch(2 * MOST)  # each is removed, and becomes a dead letter
    assert bench.broker.queues["/", QUEUE].total == 10
    assert bench.broker.queues["/", "/queue/DLQ.a"].total == MANY
    peer = bench.peer()
    start(peer)
    bench.watch(2 * MOST)
    assert numbers(peer) == list(range(10))


def test_delayed_messages_come_a_share_at_a_time():
    bench = Loop()
    fill(bench, delay="10000")
    bench.date += 20
    done, queue = 0, bench.broker.queues["/", QUEUE]
    while queue.deferred or (queue.paging is not None and queue.paging.deferred):
        bench.now += 1
        bench.broker.tick(bench.now)
        assert bench.one_turn() <= MOST
        done += 1
    assert done >= MANY // AT_ONCE
    peer = bench.peer()
    start(peer)
    bench.watch(2 * MOST)
    assert numbers(peer) == list(range(MANY))


def test_many_sessions_that_wait_go_on_a_share_at_a_time():
    bench = Loop(max_queue_messages=2, max_connections=10**5)
    senders = [bench.peer(connect=False) for _ in range(5 * AT_ONCE // 2)]
    for peer in senders:
        peer.session.receive(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0SEND\ndestination:/queue/a\n\n0\0", 0.0)
    bench.turn()
    waiting = sum(peer.session.paused for peer in senders)
    assert waiting > 2 * AT_ONCE
    queue = bench.broker.queues["/", QUEUE]
    reader = bench.peer()
    start(reader)
    while waiting:
        bench.one_turn()
        left = sum(peer.session.paused for peer in senders)
        assert waiting - left <= AT_ONCE
        waiting = left
    assert not queue.blocked


@pytest.mark.long
@pytest.mark.parametrize(("attempts", "other"), [(1, "auto"), (6, None), (6, "client")])
def test_a_nack_of_very_many_is_done_a_share_at_a_time(attempts, other):
    bench = Loop(max_attempts=attempts)
    fill(bench)
    peer = bench.peer()
    peer.subscribe(QUEUE, ack="client", prefetch_count=str(MANY))
    last = peer.take()[-1]
    if other is not None:
        start(second := bench.peer(), ack=other)
    peer.session.receive(peer.octets_of("NACK", id=last.headers["ack"], receipt="all"), 0.0)
    bench.watch(2 * MOST)
    frames = peer.take()
    assert [frame.headers["receipt-id"] for frame in frames if frame.command == "RECEIPT"] == ["all"]
    again = [int(frame.body) for frame in frames if frame.command == "MESSAGE"]
    others = [] if other is None else numbers(second)
    if attempts == 1:
        assert again == others == []
        assert bench.broker.queues["/", "/queue/DLQ.a"].total == MANY
    else:
        assert sorted(again + others) == list(range(MANY))
        assert again == sorted(again)
        assert others == sorted(others)


def test_a_browser_takes_very_many_a_share_at_a_time():
    bench = Loop()
    fill(bench)
    peer = bench.peer()
    peer.subscribe(QUEUE, ack="client", browser="true", browser_end="true", prefetch_count=str(MANY + 1))
    bench.watch()
    shown = [frame for frame in peer.take() if frame.body]
    octets = peer.octets_of("ACK", id=shown[-1].headers["ack"], receipt="all")
    peer.session.receive(octets, 0.0)
    bench.watch()
    assert peer.next().headers["receipt-id"] == "all"
    assert not bench.store.bodies
    assert bench.broker.queues["/", QUEUE].count == 0


@pytest.mark.parametrize("consuming", [True, False])
def test_a_long_transaction_takes_effect_a_share_at_a_time(consuming):
    bench = Loop()
    peer, reader = bench.peer(), bench.peer()
    if consuming:
        start(reader)
    peer.send("BEGIN", transaction="t")
    fill_frames = [Frame("SEND", {"destination": QUEUE, "transaction": "t"}, b"%d" % number) for number in range(MANY)]
    peer.session.receive(b"".join(map(serialize, fill_frames)), 0.0)
    octets = peer.octets_of("COMMIT", transaction="t", receipt="c")
    peer.session.receive(octets + peer.octets_of("SEND", b"%d" % MANY, destination=QUEUE, receipt="r"), 0.0)
    bench.watch()
    assert [frame.headers["receipt-id"] for frame in peer.take()] == ["c", "r"]
    if not consuming:
        start(reader)
        bench.watch()
    assert numbers(reader) == list(range(MANY + 1))


def test_a_long_transaction_that_cannot_be_is_not_at_all():
    bench = Loop(max_destinations=8, prefetch=10, max_attempts=2)
    peer = bench.peer()
    peer.send("BEGIN", transaction="t")
    for number in range(3 * AT_ONCE):
        name = QUEUE if number < 2 * AT_ONCE else f"/queue/{number}"
        peer.session.receive(peer.octets_of("SEND", b"1", destination=name, transaction="t"), 0.0)
    if not peer.session.ended:
        peer.session.receive(peer.octets_of("COMMIT", transaction="t", receipt="c"), 0.0)
    bench.watch(10**9)
    assert peer.error().headers["message"] == "too many destinations"
    queue = bench.broker.queues.get(("/", QUEUE))
    assert queue is None or queue.count == 0
