"""No turn does more than a share of what there is to do, and none costs more in a deeper queue: others are served."""

import asyncio
from functools import partial

import pytest
from broker.harness import Bench
from broker.loop import MOST, QUEUE, Loop, bytecodes
from broker.moves import client, commit, messages, numbers, put_all, receive, refusal
from broker.sockets import Client, send, subscribe
from crash.process import BrokerProcess
from patience import patience

from stompcodec import BACKEND, serialize
from stompcodec.broker import hot
from stompcodec.broker.loop_quota import AT_ONCE, FEW
from stompcodec.broker.message import Message
from stompcodec.broker.queues import ready
from stompcodec.broker.queues.backlog import Fifo
from stompcodec.broker.storage import journal
from stompcodec.codec import Frame

#: More than twice what a turn may do.
MANY = 7 * AT_ONCE
TOPIC = "/topic/a"
NAMED = {"durable-subscription-name": "n"}


def fill(bench, destination=QUEUE, count=MANY, *, persistent=True, **headers):
    sender = bench.peer()
    pairs = {"destination": destination, **headers, **({"persistent": "true"} if persistent else {})}
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(count, start + AT_ONCE))
        sender.raw(b"".join(serialize(Frame("SEND", pairs, b"%d" % number)) for number in numbers))
    sender.take()
    sender.lose()


def start(peer, destination=QUEUE, **headers):
    receive(peer, "SUBSCRIBE", destination=destination, id="1", **headers)


def store_one(peer, destination="/queue/b"):
    receive(peer, "SEND", destination=destination, persistent="true", receipt="s")


@pytest.fixture
def bench():
    return Loop()


@pytest.mark.parametrize("window", [100, 100_000])
@pytest.mark.parametrize("way", [{}, {"selector": "a IS NULL"}, {"exclusive": "true"}, {"credit": "1000000"}])
def test_beside_active_sessions_a_turn_does_little(way, window):
    """A receipt waits for few messages of the drain, and for a commit of few removals."""
    bench = Loop(window_messages=window)
    fill(bench, count=3 * AT_ONCE)
    peer, sender = bench.peer(), bench.peer()
    bench.broker.quota.heard = bench.now  # the shell says so
    start(peer, **way)
    got = []
    while len(got) < 3 * AT_ONCE:
        bench.store.largest = 0
        store_one(sender)
        before = len(got)
        assert bench.one_turn() <= 6 * FEW + 2
        assert [frame.command for frame in sender.take()] == ["RECEIPT"], "in this turn"
        got += numbers(peer)
        assert len(got) - before <= 3 * FEW
        assert bench.store.largest <= journal._FEW_GONE + 4 * FEW
    assert got == list(range(3 * AT_ONCE))


def test_a_stored_message_does_not_wait_for_the_removals_of_others(monkeypatch):
    monkeypatch.setattr(journal, "_FEW_GONE", 3 * FEW)
    monkeypatch.setattr(journal, "_CALM", 3)
    bench = Loop(background=True)
    put_all(bench.peer(), range(12 * FEW), persistent="true")
    commit(bench)
    if bench.store.job:
        bench.store.finish()
    sender = bench.peer()
    store_one(sender)  # few removals a commit, since somebody waits
    bench.turn()
    commit(bench)
    assert [frame.command for frame in sender.take()] == ["RECEIPT"]
    bench.broker.quota.heard = bench.now
    start(bench.peer())
    bench.one_turn()
    assert bench.store.job is None
    assert (removed := bench.store.pending) >= FEW

    store_one(sender)
    bench.one_turn()
    batch = bench.store.job[0]
    assert (len(batch._puts), len(batch._removes)) == (1, 0)
    bench.store.finish()
    bench.one_turn()
    assert [frame.command for frame in sender.take()] == ["RECEIPT"]
    while bench.store.job is None:
        bench.one_turn()
    assert len(bench.store.job[0]._removes) >= removed
    while bench.store.job is not None:
        commit(bench)
        bench.one_turn()
    assert bench.broker.journal._most_gone == journal._MOST_GONE, "nobody has waited for some commits"


@pytest.fixture(params=[True, False], ids=["c", "python"])
def road(request):
    """Frames are read in C, or in Python."""
    hot.switch(request.param)


def behind(bench, sender):
    message = sender.octets_of("SEND", destination=QUEUE, persistent="true")
    sender.session.receive(message * 12 * FEW, 0.0)
    bench.turn()
    bench.broker.quota.heard = bench.now
    return message, bench.broker.queues["/", QUEUE]


@pytest.mark.usefixtures("road")
@pytest.mark.parametrize("end", ["slow", "lost", "suspended", "deleted"])
def test_a_sender_waits_no_longer_than_its_queue_catches_up(end):
    bench = Bench()
    sender, taker = bench.peer(), bench.peer()
    message, queue = behind(bench, sender)
    start(taker)
    sender.session.receive(message, 0.0)
    assert sender.session.paused
    assert list(queue.blocked) == [sender.session]
    {
        **{"slow": lambda: taker.session.writable(False, bench.now), "lost": lambda: taker.session.lost(bench.now)},
        **{"suspended": queue.suspend, "deleted": queue.delete},
    }[end]()
    bench.turn()
    assert (sender.session.paused, bool(queue.blocked)) == (False, False)


# ---- a share at a time ----
def test_new_messages_do_not_overtake_what_waits_for_the_disk(bench):
    fill(bench)
    bench.store.background = True
    peer, sender = bench.peer(), bench.peer()
    start(peer)
    while bench.store.job is None or bench.store.pending < FEW:
        bench.one_turn()

    def turn():
        bench.one_turn()
        if bench.store.job is not None:
            bench.store.finish()

    for number in range(200):
        receive(sender, "SEND", b"%d" % (MANY + number), destination=QUEUE)
        turn()
    while not bench.rests or bench.store.job is not None:
        turn()
    assert numbers(peer) == list(range(MANY + 200))


@pytest.mark.long
@pytest.mark.parametrize(
    ("persistent", "waiting"), [(True, None), (True, {}), (True, {"selector": "a IS NULL"}), (False, None)]
)
def test_a_lost_session_gives_back_a_share_at_a_time(bench, persistent, waiting):
    fill(bench, persistent=persistent)
    loser, next_one, late = bench.peer(), bench.peer(), bench.peer()
    loser.subscribe(QUEUE, ack="client")
    assert numbers(loser) == list(range(MANY))
    if waiting is not None:
        start(next_one, **waiting)
    loser.session.lost(0.0)
    receive(late, "SEND", b"%d" % MANY, destination=QUEUE)
    bench.watch(2 * MOST)
    if waiting is None:
        start(next_one)
        bench.watch(2 * MOST)
    frames = messages(next_one)
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


@pytest.mark.parametrize("lost", [False, True])
def test_a_queue_that_ends_while_messages_come_back(bench, lost):
    peer = client(bench)
    peer.subscribe(TOPIC, ack="client", **NAMED)
    fill(bench, TOPIC)
    bench.watch(2 * MOST)
    assert len(bench.store.bodies) == MANY
    if lost:
        peer.session.lost(0.0)
    receive(client(bench) if lost else peer, "UNSUBSCRIBE", id="1", **NAMED)
    bench.watch()
    assert not bench.store.bodies
    bench.turn()


def test_a_durable_subscription_ends_a_share_at_a_time(bench):
    """And what is left of it is not that of a new one of the same name, even if the broker is killed meanwhile."""
    peer = client(bench)
    peer.subscribe(TOPIC, **NAMED)
    peer.lose()
    fill(bench, TOPIC)
    peer = client(bench)
    receive(peer, "UNSUBSCRIBE", id="1", receipt="gone", **NAMED)
    assert bench.one_turn() <= MOST
    assert peer.next().headers["receipt-id"] == "gone"
    start(peer, TOPIC, ack="client", **NAMED)
    receive(peer, "SEND", b"-1", destination=TOPIC, persistent="true")
    bench.one_turn()
    assert 2 < len(bench.store.bodies) < MANY
    assert numbers(peer) == [-1]
    ghost = client(Bench(bench.store))
    ghost.subscribe(TOPIC, **NAMED)
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


def test_many_sessions_that_wait_go_on_a_share_at_a_time():
    bench = Loop(max_queue_messages=2, max_connections=10**5)
    senders = [bench.peer(connect=False) for _ in range(5 * AT_ONCE // 2)]
    for peer in senders:
        peer.session.receive(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0SEND\ndestination:/queue/a\n\n0\0", 0.0)
    bench.turn()
    waiting = sum(peer.session.paused for peer in senders)
    assert waiting > 2 * AT_ONCE
    start(bench.peer())
    while waiting:
        bench.one_turn()
        still = sum(peer.session.paused for peer in senders)
        assert waiting - still <= AT_ONCE
        waiting = still
    assert not bench.broker.queues["/", QUEUE].blocked


@pytest.mark.long
@pytest.mark.parametrize(("attempts", "other"), [(1, "auto"), (6, None), (6, "client")])
def test_a_nack_of_very_many_is_done_a_share_at_a_time(attempts, other):
    bench = Loop(max_attempts=attempts)
    fill(bench)
    peer, second = bench.peer(), bench.peer()
    peer.subscribe(QUEUE, ack="client", prefetch_count=str(MANY))
    last = peer.take()[-1]
    if other is not None:
        start(second, ack=other)
    receive(peer, "NACK", id=last.headers["ack"], receipt="all")
    bench.watch(2 * MOST)
    frames = peer.take()
    assert [frame.headers["receipt-id"] for frame in frames if frame.command == "RECEIPT"] == ["all"]
    again, others = [int(frame.body) for frame in frames if frame.command == "MESSAGE"], numbers(second)
    if attempts == 1:
        assert again == others == []
        assert bench.broker.queues["/", "/queue/DLQ.a"].total == MANY
    else:
        assert (sorted(again + others), again, others) == (list(range(MANY)), sorted(again), sorted(others))


def test_a_browser_takes_very_many_a_share_at_a_time(bench):
    fill(bench)
    peer = bench.peer()
    peer.subscribe(QUEUE, ack="client", browser="true", browser_end="true", prefetch_count=str(MANY + 1))
    bench.watch()
    shown = [frame for frame in peer.take() if frame.body]
    receive(peer, "ACK", id=shown[-1].headers["ack"], receipt="all")
    bench.watch()
    assert peer.next().headers["receipt-id"] == "all"
    assert (bench.store.bodies, bench.broker.queues["/", QUEUE].count) == ([], 0)


@pytest.mark.parametrize("consuming", [True, False])
def test_a_long_transaction_takes_effect_a_share_at_a_time(bench, consuming):
    peer, reader = bench.peer(), bench.peer()
    if consuming:
        start(reader)
    peer.send("BEGIN", transaction="t")
    sends = (Frame("SEND", {"destination": QUEUE, "transaction": "t"}, b"%d" % number) for number in range(MANY))
    peer.session.receive(b"".join(map(serialize, sends)), 0.0)
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
        receive(peer, "SEND", destination=QUEUE if number < 2 * AT_ONCE else f"/queue/{number}", transaction="t")
    if not peer.session.ended:
        receive(peer, "COMMIT", transaction="t", receipt="c")
    bench.watch(10**9)
    assert refusal(peer) == "too many destinations"
    queue = bench.broker.queues.get(("/", QUEUE))
    assert queue is None or queue.count == 0


def counted(test):
    """Mark a test that counts bytecodes of the broker: compiled it has few, and the parser in Python has its own."""
    return pytest.mark.uncompiled(pytest.mark.skipif(BACKEND != "c", reason="counts the broker alone")(test))


class Line(Fifo):
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
    return queue


DEEDS = {
    "priority": ("SEND", {"priority": "9"}),
    "group": ("SEND", {"JMSXGroupID": "a"}),
    "selector": ("SUBSCRIBE", {"id": "1", "selector": "a = 1"}),
    "exclusive": ("SUBSCRIBE", {"id": "1", "exclusive": "true", "ack": "client", "prefetch-count": "10"}),
    "consumer of priority": ("SUBSCRIBE", {"id": "1", "x-priority": "7", "ack": "client", "prefetch-count": "10"}),
    "browser": ("SUBSCRIBE", {"id": "1", "browser": "true", "ack": "client", "prefetch-count": "10"}),
    "browser from now on": ("SUBSCRIBE", {"id": "1", "browser": "true", "from-seq": "-1"}),
    "receive": ("RECEIVE", {"id": "1", "selector": "a IS NULL"}),
}


@counted
@pytest.mark.long
@pytest.mark.parametrize("deed", DEEDS)
def test_the_first_of_its_kind_costs_the_same_however_deep_the_queue_is(deed):
    """Frames that change a queue from a plain line into one that can be searched."""
    command, headers = DEEDS[deed]
    octets = serialize(Frame(command, {"destination": QUEUE, **headers}), version="1.2", commands=["RECEIVE"])
    found = []
    for count in (1, 2 * AT_ONCE, 20 * AT_ONCE):  # the first time pays for caches
        bench = Loop()
        peer = bench.peer()
        deepen(bench, count, Line())

        def do(bench=bench, peer=peer):
            peer.session.receive(octets, 0.0)
            bench.one_turn()
            assert not peer.session.ended

        found.append(do() if count == 1 else bytecodes(do))
    assert found[2] <= 1.01 * found[1]


def expire(bench, queue, each):
    for message in list(queue.messages)[::each]:
        message.expires = bench.date - 1
    queue.expiry.pending = True
    bench.now += 100
    bench.broker.tick(bench.now)


def give_back(bench, queue, peer):
    queue.requeue([queue.messages.line.pop(), queue.messages.line.popleft()])


def fail_to_store(bench, queue, peer):
    """The newest message has to leave again."""
    bench.store.faulty = True
    store_one(peer, QUEUE)


@counted
@pytest.mark.parametrize(
    ("do", "gone"),
    [(partial(expire, each=1), 1), (partial(expire, each=2), 0.5), (give_back, 0), (fail_to_store, 0)],
    ids=["all have expired", "each second one has", "some come back", "one is not stored"],
)
def test_no_turn_costs_more_in_a_deeper_queue(monkeypatch, do, gone):
    monkeypatch.setattr(ready, "_SHORT", AT_ONCE)
    found = []
    for count in (2 * AT_ONCE, 4 * AT_ONCE):
        bench = Loop()
        queue = deepen(bench, count, Fifo())
        if gone:
            do(bench, queue)
            most = 0
        else:
            peer = bench.peer()  # the bench looks at all of the queue then
            most = bytecodes(partial(do, bench, queue, peer))
        most = max(most, bytecodes(bench.one_turn))
        while not bench.rests:
            most = max(most, bytecodes(bench.one_turn))
        found.append(most)
        seqs = [queue.messages.line.popleft().seq for _ in range(len(queue.messages))]
        assert seqs == sorted(seqs)
        assert len(seqs) == queue.count == count - gone * count
    assert found[1] <= 1.2 * found[0]


COUNT = 10_000


async def deep(place, destination):
    sender = await Client.connect(place)
    for start in range(0, COUNT, 1000):
        sender.send("".join(send(destination, str(n), "persistent:true") for n in range(start, start + 999)))
        await sender.ask(send(destination, str(start + 999), "persistent:true", "receipt:r"))
    await sender.close()


async def answers_beside(place, main):
    """Have another client ask until something is done, and count its answers."""
    other, count = await Client.connect(place), 0
    doing = asyncio.ensure_future(main)
    while not doing.done():
        assert (await other.ask(send("/queue/other", "", "receipt:r"))).command == "RECEIPT"
        count += 1
    await doing
    await other.close()
    return count


async def subscribed(place, destination, *headers):
    """Connect, as soon as an earlier session with that client-id is gone, and SUBSCRIBE."""
    for _ in range(1000):
        client = await Client.open(place)
        if (await client.ask("CONNECT\naccept-version:1.2\nhost:/\nclient-id:c\n\n\0")).command == "CONNECTED":
            answer = await client.ask(subscribe(destination, *headers))
            return client, answer
        await client.close()
    raise AssertionError("the client-id stays in use")


@pytest.mark.long
@pytest.mark.parametrize(
    ("destination", "extra"), [("/queue/a", "selector:a IS NULL"), (TOPIC, "durable-subscription-name:n")]
)
def test_others_are_served_while_a_deep_backlog_moves_or_ends(tmp_path, destination, extra):
    async def move(place):
        for ack in ("client", "auto"):  # the first one is lost with all that it holds
            client, first = await subscribed(place, destination, f"ack:{ack}", "prefetch-count:100000", extra)
            frames = [first, *[await client.frame() for _ in range(COUNT)]]
            found = [int(frame.body) for frame in frames if frame.command == "MESSAGE"]
            assert found == list(range(COUNT)), "all of them, in order"
            await client.close()

    async def end(place):
        client, _ = await subscribed(place, destination, "ack:client", "prefetch-count:1", extra)
        client.send(f"UNSUBSCRIBE\nid:0\n{extra}\nreceipt:u\n\n\0")
        while (await client.frame()).command != "RECEIPT":
            pass
        await client.close()

    async def main(place):
        client, _ = await subscribed(place, destination, extra)
        await client.close()
        for what, least in ((move, 2 * COUNT // 2000), *([(end, 1)] if destination == TOPIC else [])):
            await deep(place, destination)
            assert await answers_beside(place, what(place)) >= least

    pytest.importorskip("click")
    with BrokerProcess(tmp_path) as place:
        asyncio.run(asyncio.wait_for(main(place), patience(120)))
