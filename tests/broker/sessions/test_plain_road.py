"""On each road of SENDs and ACKs, and switched at random, clients, books and store are the same, byte for byte."""

import gc
from types import SimpleNamespace

import pytest
from broker.harness import Bench, FaultyStore, bench_with_two, switch
from broker.sessions.test_legacy import Heard
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import Frame, Limits
from stompcodec.broker import hot, message
from stompcodec.broker.selectors import Selector
from stompcodec.broker.sessions import commands, commit
from stompcodec.broker.sessions.session import EACH
from stompcodec.codec import serialize_tail

ROADS = ["slow", "frames", "c"] if hot.COMPILED else ["slow", "frames"]
read_by_c = pytest.mark.skipif(not hot.COMPILED, reason="C reads frames only for the compiled broker")
SELECTOR = "x IS NULL OR x = 'y'"


def frame(command, *lines, body=b"", end=b"\n"):
    return command + b"\n" + b"".join(line + end for line in lines) + b"\n" + body + b"\0"


def take(road, bench):
    switch(road == "c")
    if road == "slow":
        slow = {"SEND": commands._send_any, "ACK": lambda *what: commit._acknowledge(True, *what)}
        bench.broker.handlers = {**commands.HANDLERS, **slow}


HEADERS = [
    *(b"receipt:7", b"receipt:r-1", b"receipt:", b"receipt:a\\cb", b"receipt:8", "receipt:ä".encode()),
    *(b"persistent:true", b"persistent:false", b"persistent: true", b"content-type:text/plain", b"x:y", b"x:z", b"x:"),
    *(b"time:12:30", b"path:a\\\\b", b"two:a\\nb", "name:ü".encode(), "größe:1".encode(), b"content-length:2"),
    *(b"message-id:forged", b"subscription:9", b"ack:1-1", b"redelivered:true", b"redelivery-count:3"),
    *(b"priority:9", b"expires:1", b"delay:5", b"JMSXGroupID:g", b"reply-to:/queue/b", b"retain:set"),
    *(b"a\\cb:1", b"x:a\rb", b"c\rd:1", b"receipt:12:30", b"receipt:\\\\", b"receipt:\r", b"x:\\c:\\\\:\r", b"x::"),
    *(b"x:\\r", b"time:" + b":" * 999, "ö:12:30".encode(), b"destination:/queue/a:1", b"destination:/queue/a\\c1"),
    *(b"persistent:true:", b"destination:/queue/b", b"destination-type:MULTICAST", b"y" * 31 + b":1"),
    *(b"y" * 32 + b":1", b"ttl:%d", b"idempotency-key:k", b"transaction:none", b"reply-to:"),
]
LINKS = [
    *(b"transaction:t", b"transaction:t", b"transaction:u", b"reply-to:/queue/b", b"reply-to:/temp-queue/q"),
    *(b"reply-to:/temp-queue/a\\cb", b"x:y"),
]
DESTINATIONS = [
    *(b"/queue/a", b"/queue/a", b"/queue/a", b"/queue/b", b"/topic/t"),
    *(b"/temp-queue/q", b"/queue/a:1", b"a", "/queue/ö".encode(), b"/queue/%d"),
]
BODIES = [b"hi", b"", b"x" * 100, b"a\0b", b"%d %s", b"\n", b"y" * 3000]
RECEIPTS = [b"receipt:7", b"receipt:8", b"receipt:a b"]


def lines_of(*pools):
    return st.tuples(*(st.sampled_from([(), *((line,) for line in pool)]) for pool in pools)).map(
        lambda some: [line for each in some for line in each]
    )


sends = st.builds(
    lambda destination, headers, body, length, end: frame(
        b"SEND",
        *(b"destination:" + destination, *headers, *([b"content-length:" + length % len(body)] if length else ())),
        body=body,
        end=end,
    ),
    st.sampled_from(DESTINATIONS),
    st.lists(st.sampled_from(HEADERS), max_size=3),
    st.sampled_from(BODIES),
    st.sampled_from([b"%d", b"%d", b"%03d", b""]),
    st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"]),
)
#: Most of them to one queue, persistent, and in the same transaction.
linked = st.builds(
    lambda destination, lines, body: frame(b"SEND", b"destination:" + destination, *lines, body=body),
    st.sampled_from([*DESTINATIONS[:6], b"/queue/a"]),
    lines_of(LINKS, [b"persistent:true"] * 3, RECEIPTS),
    st.sampled_from(BODIES[:3]),
)
plain_sends = st.builds(
    lambda destination, number, lines: frame(b"SEND", b"destination:" + destination, *lines, body=b"%d" % number),
    st.sampled_from(DESTINATIONS[:5]),
    st.integers(0, 9),
    lines_of([b"persistent:true", b"persistent:false"], RECEIPTS),
)
ends = st.builds(
    lambda command, name, lines: (
        frame(command, b"transaction:" + name, *lines) + frame(b"BEGIN", b"transaction:" + name)
    ),
    st.sampled_from([b"COMMIT", b"COMMIT", b"ABORT"]),
    st.sampled_from([b"t", b"t", b"u"]),
    lines_of(RECEIPTS),
)
subscribes = st.builds(
    lambda destination, number, mode, window, more: frame(
        *(b"SUBSCRIBE", b"destination:" + destination, b"id:%%%d" % number, b"ack:" + mode),
        *(b"prefetch-count:%d" % window, *more),
    ),
    st.sampled_from(DESTINATIONS),
    st.integers(1, 3),
    st.sampled_from([b"auto", b"auto", b"client-individual", b"client"]),
    st.sampled_from([1, 2, 100]),
    st.sampled_from([(), (), (b"selector:" + SELECTOR.encode(),)]),
)
others = st.sampled_from(
    [
        *(frame(b"UNSUBSCRIBE", b"id:%1"), frame(b"BEGIN", b"transaction:t"), b"\n\r\n", b"\n"),
        *(frame(b"SEND", b"x:y"), frame(b"DISCONNECT", b"receipt:d"), b"SEND\ndestination:/queue/a\n\nhalf"),
    ]
)
acks = st.tuples(
    st.sampled_from([b"ACK", b"ACK", b"ACK", b"NACK"]),
    st.integers(0, 3),
    lines_of([b"receipt:9", b"x:y", b"credit:1", b"transaction:t", b"receipt:a b"]),
)
reads = st.one_of(
    st.lists(st.one_of(plain_sends, plain_sends, plain_sends, sends, sends, subscribes, acks, others), max_size=12),
    st.lists(st.one_of(linked, linked, linked, plain_sends, ends, acks), max_size=12),
)
EVENTS = ["turn", "shut", "open", "lose", "short", "enough", "heard", "written", "written", "written", "fails"]
steps = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(reads, reads, reads, st.sampled_from(EVENTS)), st.booleans(), st.booleans()),
    max_size=12,
)
#: Subscriptions of each conversation: of a peer, to a queue or a topic, in a mode, with a window.
subscribers = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["/queue/a", "/queue/a", "/queue/a", "/topic/t"]),
        st.sampled_from(["auto", "client-individual", "client"]),
        st.sampled_from(["1", "3", "100"]),
        st.sampled_from([None, None, SELECTOR]),
    ),
    max_size=4,
)
configs = st.fixed_dictionaries(
    {
        "write_high": st.sampled_from([1, 300, 262_144]),
        "max_queue_messages": st.sampled_from([None, 2, 5, 20]),
        "window_messages": st.sampled_from([1, 3, 1000]),
        "limits": st.sampled_from([Limits(), Limits(max_headers=4, max_header_line=64, max_body=2999)]),
        **{"transient": st.sampled_from(["stop", "spool"]), "durable": st.sampled_from(["all", "persistent"])},
        "max_transaction_octets": st.sampled_from([2000, 2**24]),
        "dialect": st.sampled_from(["stompcodec", "stompcodec", "rabbitmq"]),
    }
)
conversations = st.tuples(configs, st.booleans(), st.booleans(), subscribers)
#: Of the peers, and whether they have WebSocket.
VERSIONS = (("1.2", False), ("1.2", True), ("1.1", False))


class World:
    """A broker with three peers. The clock goes on with each look if it is told to."""

    def __init__(self, road, config, background, ticks, subscribers):
        self.store = FaultyStore(background)
        self.bench = Bench(self.store, **config)
        self.bench.broker._entropy = bytes  # the ids of sessions are the same each time
        self.road = road
        take(road, self.bench)
        self.peers = [self.begin(number) for number in range(3)]
        for number, (at, destination, mode, window, selector) in enumerate(subscribers):
            more = {} if selector is None else {"selector": selector}
            self.peers[at].subscribe(destination, id=f"first-{number}", ack=mode, prefetch_count=window, **more)
        if ticks:
            self.bench.broker.quota.clock = self._clock

    def begin(self, number):
        version, whole_frames = VERSIONS[number]
        peer = self.bench.peer(version, whole_frames=whole_frames)
        peer.subscribe("/temp-queue/q", id="q", ack="client-individual")
        for destination in ("/queue/a", "/queue/b", "/topic/t", "/temp-queue/q"):
            peer.put(destination, "first")
        if not peer.closed:
            peer.raw(frame(b"BEGIN", b"transaction:t") + frame(b"BEGIN", b"transaction:u"))
        return peer

    def _clock(self):
        self.bench.now += 1
        return self.bench.now

    def step(self, number, what, turns, mixed=False):
        switch(self.road == "c" or (self.road == "mixed" and mixed))
        peer, bench, account = self.peers[number], self.bench, self.bench.broker.account
        if what in ("shut", "open"):
            peer.session.writable(what == "open", bench.now)
        elif what in ("short", "enough"):
            account.first = account.used + 2000 if what == "short" else account.second
        elif what == "heard":
            bench.broker.quota.heard = bench.now
        elif what == "lose":
            peer.lose()
        elif what == "written":
            if self.store.job is not None:
                self.store.finish()
        elif what == "fails":
            self.store.faulty = not self.store.faulty
        elif what != "turn":
            peer.session.receive(b"".join(self._octets(peer, each) for each in what), bench.now)
        if turns or what == "turn":
            bench.turn()
        if peer.closed or what == "lose":
            self.peers[number] = self.begin(number)

    def _octets(self, peer, what):
        if isinstance(what, bytes):
            return what
        command, at, lines = what
        given = [each.headers["ack"] for each in peer.inbox if each.command == "MESSAGE" and each.get("ack")]
        return frame(command, b"id:" + (given[-1 - at % len(given)] if given else "1-1").encode(), *lines)

    def seen(self):
        broker, peers, journal = self.bench.broker, self.peers, self.bench.broker.journal
        sessions = [
            (peer.octets, peer.closed, session.paused, session.ended, session.plain, session.memory.transactions)
            for peer in peers
            for session in [peer.session]
        ]
        outboxes = [peer.session.outbox for peer in peers]
        pending = [(b"".join(each.chunks), each.send_budget, each.starved) for each in outboxes]
        queues = {name: _books(queue) for name, queue in broker.queues.items()}
        consumers = [
            (each.credit, each.last, each.in_ring, {tag: _fields(m) for tag, m in each.unacked.items()})
            for peer in peers
            for each in peer.session.consumers.values()
        ]
        transactions = [
            (name, each.weight, each.octets, each.stores, [_fields(entry.message) for entry in each.operations])
            for peer in peers
            for name, each in peer.session.transactions.items()
            if not each.settles
        ]
        batches = [_changes(batch) for batch in (journal.batch, journal.busy) if batch is not None]
        stored = [(each.queue, each.seq, each.tail) for each in self.store.load()]
        counted = broker.seq, broker.account.used, broker.account.held, journal.failures
        return sessions, pending, queues, consumers, transactions, batches, stored, counted


FIELDS = (
    *("ident", "tail", "destination", "seq", "size", "persistent", "priority", "attempts", "special", "closes_group"),
    *("body", "due", "expires", "faults", "group"),
)


def _fields(message):
    return [(type(value), value) for value in (getattr(message, name) for name in FIELDS)]


def _books(queue):
    paging = queue.paging
    ring = [(consumer.key, consumer.session.id) for consumer in queue.ring]
    parked = None if queue.parked is None else [(consumer.key, consumer.session.id) for consumer in queue.parked]
    paged = None if paging is None else (paging.count, [(span.cursor, span.last) for span in paging._spans.values()])
    unwritten = None if paging is None else [first for _batch, first in paging._unwritten]
    ready = [_fields(message) for message in queue.messages]
    return queue.count, queue.octets, queue.newest, ready, ring, parked, paged, unwritten


def _changes(batch):
    moves = [[(queue.key, message.id) for queue, message in pairs] for pairs in (batch.put, batch.settled)]
    gone = [(key, message.id) for key, message in batch.gone]
    return moves, gone, batch.cost, batch.first, [waiter.receipts[:] for waiter in batch.waiters]


@given(conversations, steps)
@settings(max_examples=examples(400))
def test_all_roads_are_the_same(conversation, steps):
    roads = [*ROADS, *(["mixed"] if hot.COMPILED else [])]
    if conversation[0]["dialect"] != "stompcodec":
        roads.remove("slow")  # it looks anew where a SEND goes, and refuses one to a full queue that only it empties
    worlds = [World(road, *conversation) for road in roads]
    for step in steps:
        seen = []
        for world in worlds:
            world.step(*step)
            seen.append(world.seen())
        for each in seen[1:]:
            assert each == seen[0]


@given(conversations, steps)
@settings(max_examples=examples(200))
def test_a_plain_transaction_takes_fewer_steps_with_the_same_end(conversation, steps):
    """`_send_all` does what the longer way of COMMIT does, with commits at once and later, and with failed ones."""
    short, long = (World(ROADS[-1], *conversation) for _ in range(2))
    for step in steps:
        for world, only_queue in ((short, commit._only_queue), (long, lambda *_: None)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(commit, "_only_queue", only_queue)
                world.step(*step)
        assert short.seen() == long.seen()


# ---- that it is taken ----
def counted(peer, monkeypatch):
    """Count, as `made`, the frames that are made, and so were not taken."""
    count, connection = SimpleNamespace(made=0), peer.session.connection
    receive = connection.receive

    def frames(_connection, data, now):
        for each in receive(data, now):
            count.made += 1
            yield each

    monkeypatch.setattr(type(connection), "receive", frames)
    return count


SEND = frame(b"SEND", b"destination:/queue/a", b"content-type:text/plain", b"content-length:2", body=b"hi")
LEFT = {
    "escape in the receipt": frame(b"SEND", b"destination:/queue/a", b"receipt:a\\cb"),
    "escape in the destination": frame(b"SEND", b"destination:/queue/\\\\"),
    **{name: frame(b"SEND", b"destination:/queue/a", name.encode() + b":9") for name in ("priority", "reply-to")},
}
TAKEN = {
    "to a consumer": SEND,
    "without headers": frame(b"SEND", b"destination:/queue/a", body=b"hi"),
    "without a body": frame(b"SEND", b"destination:/queue/a"),
    "receipt": frame(b"SEND", b"destination:/queue/a", b"receipt:1"),
    "odd receipt": frame(b"SEND", b"destination:/queue/a", b"receipt:a b"),
    "persistent": frame(b"SEND", b"destination:/queue/a", b"persistent:true", body=b"hi"),
    "in a transaction": frame(b"SEND", b"destination:/queue/a", b"transaction:t", body=b"hi"),
    "to a topic": frame(b"SEND", b"destination:/topic/t", body=b"hi"),
    "non-ASCII": frame(b"SEND", b"destination:/queue/a", "x:ä".encode()),
    "escape": frame(b"SEND", b"destination:/queue/a", b"x:a\\cb"),
    "carriage return": frame(b"SEND", b"destination:/queue/a", b"x:\r", end=b"\r\n"),
    "raw colon": frame(b"SEND", b"destination:/queue/a", b"x:12:30"),
    "all of them": frame(b"SEND", b"destination:/queue/a", "ä\\c:12:30\r".encode(), b"receipt:1:2", end=b"\r\n"),
}


@read_by_c
@pytest.mark.parametrize("octets", [*TAKEN.values(), *LEFT.values()], ids=[*TAKEN, *LEFT])
@pytest.mark.parametrize("subscription", [{"ack": "auto"}, {"ack": "client-individual"}, {"selector": "x IS NULL"}])
@pytest.mark.parametrize("whole_frames", [False, True])
def test_what_it_takes(octets, subscription, whole_frames, monkeypatch):
    bench = Bench()
    sender, consumer = bench.peer(whole_frames=whole_frames), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a", **subscription)
    consumer.subscribe("/topic/t", id="2")
    sender.put("/queue/a")
    sender.put("/topic/t")
    sender.send("BEGIN", transaction="t")
    count = counted(sender, monkeypatch)
    sender.raw(octets * 3)
    assert count.made == (0 if octets in TAKEN.values() else 1 if sender.closed else 3)


def test_headers_with_a_meaning_of_their_own_keep_a_send_off_the_short_roads(monkeypatch):
    """All that `_send_any` asks for: a header it does not know of would be lost there."""
    bench, peer = Bench.with_peers(1)
    peer.put("/queue/a", "where this goes is known now")
    session = peer.session
    monkeypatch.setattr(message, "serialize_tail", lambda spy, *args, **how: serialize_tail(spy.frame, *args, **how))
    spy = Heard(Frame("SEND", {"destination": "/queue/a"}, b"hello"), set())
    commands._send_any(session, spy)
    assert bench.queue().count == 2
    known = {"destination", "persistent", "receipt", "transaction", *session.virtual_host.destinations.routing_headers}
    assert spy.asked - known == {"reply-to", *commands._SPECIAL_HEADERS}


def test_a_transaction_that_is_stored_later_gets_its_place():
    bench, sender, other = Bench.with_peers(2, FaultyStore(background=True))
    sender.put("/queue/a")
    send = frame(b"SEND", b"destination:/queue/a", b"transaction:t", b"persistent:true", body=b"hi")
    sender.raw(frame(b"BEGIN", b"transaction:t") + send * 2 + frame(b"COMMIT", b"transaction:t"))
    other.put("/queue/a")
    queue, horizon = bench.queue(), bench.broker.journal.horizon
    assert len(queue.messages) == 2
    bench.store.finish()
    bench.turn()
    found = [(message.seq, bool(message.persistent)) for message in queue.messages]
    first = found[0][0]
    assert found == [(first, False), (first + 1, True), (first + 2, True), (first + 3, False)]
    assert (queue.newest, horizon) == (first + 2, first + 1)


#: What the head of a SEND may have: bytes, if there are lines to write anew, and header lines.
MOST = {"bytes": lambda n: [b"x:" + b":" * (2018 + n)], "lines": lambda n: [b"%d:" % k for k in range(63 + n)]}


@read_by_c
@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("of", MOST)
def test_so_large_a_head_is_taken(of, past, monkeypatch):
    _bench, sender, consumer = bench_with_two()
    consumer.subscribe("/queue/a")
    sender.put("/queue/a")
    count, lines = counted(sender, monkeypatch), MOST[of](past)
    sender.raw(octets := frame(b"SEND", b"destination:/queue/a", *lines))
    assert of == "lines" or len(octets) - 1 == 2048 + past  # the head is all but the NUL
    assert count.made == past
    found = consumer.take()[-1].headers
    assert all(found[name] == value for name, _, value in (line.decode().partition(":") for line in lines))


ACKS = dict.fromkeys(["", "receipt:1", "receipt:a b", "x:a\\cb", "x:12:30", "receipt:1:2\r"], True)
ACKS |= dict.fromkeys(["transaction:t", "credit:1", "receipt:a\\cb"], False)


@read_by_c
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("line", ACKS)
def test_which_acks_it_takes(line, persistent, monkeypatch):
    bench, sender, consumer = Bench.with_peers(2, FaultyStore())
    consumer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
    consumer.send("BEGIN", transaction="t")
    for number in range(6):
        sender.put("/queue/a", str(number), persistent=persistent)
    for _ in range(3):
        ids = [each.headers["ack"].encode() for each in consumer.take() if each.command == "MESSAGE"]
        assert len(ids) == 2
        count = counted(consumer, monkeypatch)
        lines = [line.encode()] if line else []
        consumer.raw(b"".join(frame(b"ACK", b"id:" + each, *lines) for each in ids))
        assert count.made == (0 if ACKS[line] else 2)
        if line == "transaction:t":
            return  # they count when it is committed
    assert (bench.queue().total, bench.store.bodies) == (0, [])


@pytest.mark.parametrize("road", ROADS)
def test_an_ack_is_for_the_first_id_and_its_own_subscription(road):
    bench = Bench()
    take(road, bench)
    sender, consumer = bench.peer(), bench.peer()
    for number in range(1, 13):
        consumer.subscribe(f"/queue/{number}", id=str(number), ack="client-individual")
        sender.put(f"/queue/{number}")
        sender.put(f"/queue/{number}")
    consumer.raw(frame(b"ACK", b"id:12-1", b"id:11-1") + frame(b"ACK", b"id:1-2") + frame(b"ACK", b"id:11-2"))
    counts = [bench.broker.queues["/", f"/queue/{number}"].count for number in range(1, 13)]
    assert counts == [1, *[2] * 9, 1, 1]


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("bound", ["messages", "octets"])
@pytest.mark.parametrize("transient", ["stop", "spool"])
def test_ready_messages_leave_the_window_only_to_be_spooled(past, bound, transient):
    bench, sender = Bench.with_peers(1, FaultyStore(), transient=transient)
    sender.put("/queue/a", "0")
    queue, send = bench.queue(), frame(b"SEND", b"destination:/queue/a", body=b"1")
    sender.raw(send)
    if transient == "spool":
        each = queue.octets // 2
        setattr(queue.window, bound, 3 if bound == "messages" else 3 * each)
    sender.raw(send * (1 + past))
    assert (queue.count, queue.total) == (3 + past - (past if transient == "spool" else 0), 3 + past)


def test_a_selector_is_asked_once_for_each_message(monkeypatch):
    bench, sender, consumer = bench_with_two()
    consumer.subscribe("/queue/a", selector="color = 'red'")
    sender.put("/queue/a", color="red")
    consumer.take()
    asked, matches = [], Selector.matches
    monkeypatch.setattr(Selector, "matches", lambda *what: (asked.append(what), matches(*what))[1])
    sender.raw(b"".join(frame(b"SEND", b"destination:/queue/a", b"color:" + each, body=each) for each in COLORS))
    assert ([message.body for message in consumer.take()], len(asked)) == ([b"red"] * 3, len(COLORS))
    assert bench.ready() == [b"blue", b"green"]


COLORS = (b"red", b"blue", b"red", b"green", b"red")


# ---- the road of a session ----
@read_by_c
def test_a_session_that_ends_takes_the_road_with_it():
    bench, peer = Bench.with_peers(1)
    road = peer.session.road
    assert road is not None
    assert peer.session in gc.get_referents(road)
    peer.raw(SEND + frame(b"DISCONNECT") + SEND)
    assert peer.session.road is None
    assert peer.session not in gc.get_referents(road)
    assert len(bench.queue().messages) == 1
    assert bench.peer("1.0").session.road is None
    assert bench.peer("1.1").session.road is not None


def test_the_clock_is_looked_at_after_as_many_frames_on_each_road():
    looks = {road: 0 for road in ROADS}
    for road in ROADS:
        bench = Bench()
        take(road, bench)
        peer, clock = bench.peer(), bench.broker.quota.clock
        peer.put("/queue/a")

        def look(road=road, clock=clock):
            looks[road] += 1
            return clock()

        bench.broker.quota.clock = look
        peer.raw(SEND * (EACH * 5 + 1))
    assert len(set(looks.values())) == 1
    assert looks["frames"] >= 5


@read_by_c
def test_a_hook_is_offered_by_its_owner_alone():
    bench = Bench()
    road = hot._road.Road(bench.peer().session, EACH)
    from stompcodec._codec_c import Parser

    keeper = SimpleNamespace(hook=road.hook)
    with pytest.raises(ValueError, match="belongs to another object"):
        Parser("1.2")._offer(keeper)
    del road
    gc.collect()
    with pytest.raises(ValueError, match="incorrect name"):
        Parser("1.2")._offer(keeper)
