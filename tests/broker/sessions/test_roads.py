"""SENDs and ACKs take shorter roads, in C and in Python: clients, books and store are the same as without them."""

import re

import pytest
from broker.harness import Bench, FaultyStore, switch
from broker.sessions.test_legacy import Heard
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import Frame
from stompcodec.broker import message
from stompcodec.broker.config import DIALECTS, Config
from stompcodec.broker.queues.paging import Paging
from stompcodec.broker.sessions import commands, plain
from stompcodec.broker.sessions import commit as acknowledge
from stompcodec.broker.storage import journal
from stompcodec.codec import serialize_tail

ROADS = ["slow", "python", "c"] if plain.EXTENSION is not None else ["slow", "python"]


def frame(command, *lines, body=""):
    return "\n".join([command, *lines, "", body]).encode() + b"\0"


# ---- random conversations ----

LINKS = ["transaction:t", "transaction:u", "reply-to:/queue/b", "reply-to:/temp-queue/q", "reply-to:/temp-queue/a\\cb"]
OTHERS = ["x:y", "priority:9", "delay:5", "expires:1", "idempotency-key:k", "retain:set", "JMSXGroupID:g"]
WRONG = ["transaction:none", "content-length:2", "message-id:forged", "reply-to:"]
RECEIPTS = ["receipt:7", "receipt:8", "receipt:9"]
destinations = st.sampled_from(["/queue/a", "/queue/a", "/queue/a", "/queue/b", "/topic/t", "a", "/temp-queue/q"])
bodies = st.sampled_from(["hi", "", "x" * 900])


def sends(lines):
    return st.builds(
        lambda destination, lines, body: frame("SEND", f"destination:{destination}", *lines, body=body),
        *(destinations, lines, bodies),
    )


stored = sends(st.sampled_from(RECEIPTS).map(lambda line: ["persistent:true", line]) | st.just(["persistent:true"]))
linked = sends(
    st.tuples(st.sampled_from(LINKS), st.sampled_from([[], ["persistent:true"]])).map(lambda two: [two[0], *two[1]])
)
usual = sends(st.sampled_from([[], ["receipt:9"], ["persistent:false"]]))
mixed = st.lists(st.sampled_from([*LINKS, *OTHERS, *RECEIPTS, "persistent:true"]), max_size=4)
special = sends(mixed | mixed | mixed | st.sampled_from(WRONG).map(lambda line: [line]))
ends = st.builds(
    lambda command, name, lines: frame(command, f"transaction:{name}", *lines) + frame("BEGIN", f"transaction:{name}"),
    *(
        st.sampled_from(["COMMIT", "COMMIT", "ABORT"]),
        st.sampled_from(["t", "u"]),
        st.sampled_from([[], ["receipt:9"]]),
    ),
)
acks = st.tuples(st.sampled_from(["ACK", "ACK", "ACK", "NACK"]), st.integers(0, 3), st.sampled_from(["", "receipt:5"]))
subscribes = st.tuples(st.sampled_from(["auto", "client-individual"]), st.sampled_from(["1", "3", "100"]))
reads = st.lists(st.one_of(stored, stored, linked, linked, usual, special, ends), max_size=8)
EVENTS = ["turn", "written", "written", "fails", "short", "enough", "shut", "open", "lost"]
steps = st.lists(
    st.tuples(
        st.one_of(reads, reads, reads, st.lists(acks, max_size=4), subscribes, st.sampled_from(EVENTS)), st.booleans()
    ),
    max_size=12,
)
configs = st.fixed_dictionaries(
    {
        "window_messages": st.sampled_from([1, 3, 1000]),
        "max_queue_messages": st.sampled_from([None, 5, 20]),
        "write_high": st.sampled_from([1, 300, 262_144]),
        "transient": st.sampled_from(["stop", "spool"]),
        "durable": st.sampled_from(["all", "persistent"]),
        "max_transaction_octets": st.sampled_from([3000, 2**24]),
        "dialect": st.sampled_from(["stompcodec", "stompcodec", "rabbitmq"]),
    }
)


class World:
    """A broker with a sender and a consumer. On the slow road, no frame takes a shorter one."""

    def __init__(self, road, background=False, **config):
        self.road = road
        self.store = FaultyStore(background)
        self.bench = Bench(self.store, **config)
        self.bench.broker._entropy = bytes  # the ids of sessions are the same each time
        if road == "slow":
            slow = {"SEND": commands._send_any, "ACK": lambda *what: acknowledge._acknowledge(True, *what)}
            self.bench.broker.handlers = {**commands.HANDLERS, **slow}
        self.begin()

    def begin(self):
        """Let a new sender and a new consumer connect. The destinations of the sender are cached from now on."""
        self.sender, self.consumer = self.bench.peer(), self.bench.peer()
        self.sender.subscribe("/temp-queue/q", ack="client-individual")
        for destination in ("/queue/a", "/queue/b", "/topic/t", "/temp-queue/q"):
            self.sender.put(destination, "first")
        self.sender.take()
        self.sender.raw(frame("BEGIN", "transaction:t") + frame("BEGIN", "transaction:u"))

    def step(self, what, turns):
        switch(self.road == "c")
        bench, account = self.bench, self.bench.broker.account
        if isinstance(what, list):
            peer = self.consumer if what and isinstance(what[0], tuple) else self.sender
            peer.session.receive(b"".join(map(self._octets, what)), bench.now)
        elif isinstance(what, tuple):
            id = f"s{len(self.consumer.session.consumers)}"
            self.consumer.subscribe("/queue/a", id, what[0], prefetch_count=what[1])
        elif what == "written":
            if self.store.job is not None:
                self.store.finish()
        elif what == "fails":
            self.store.faulty = not self.store.faulty
        elif what in ("short", "enough"):
            account.first = account.used + 2000 if what == "short" else account.second
        elif what in ("shut", "open"):
            self.consumer.session.writable(what == "open", bench.now)
        elif what == "lost":
            self.consumer.lose()
            self.consumer = bench.peer()
        if turns or what == "turn":
            bench.turn()
        if self.sender.closed or self.consumer.closed:
            self.begin()

    def _octets(self, what):
        if isinstance(what, bytes):
            return what
        command, at, receipt = what
        given = [each.headers["ack"] for each in self.consumer.inbox if each.get("ack")]
        return frame(command, f"id:{given[-1 - at % len(given)] if given else '1-1'}", *filter(None, [receipt]))

    def seen(self):
        """What clients see, what the books say, and what is stored or waits for that."""
        broker, journal, account = self.bench.broker, self.bench.broker.journal, self.bench.broker.account
        clients = [
            (each.octets, each.closed, each.session.paused, each.session.plain, each.session.memory.transactions)
            for each in (self.sender, self.consumer)
        ]
        queues = {name: _books(queue) for name, queue in broker.queues.items()}
        batches = [_changes(batch) for batch in (journal.batch, journal.busy) if batch is not None]
        stored = [(each.queue, each.id, each.tail) for each in self.store.load()]
        return clients, queues, batches, stored, broker.seq, account.used, account.held, journal.failures


def _books(queue):
    paging = queue.paging
    paged = None if paging is None else (paging.count, [(span.cursor, span.last) for span in paging._spans.values()])
    unwritten = None if paging is None else [first for _batch, first in paging._unwritten]
    ready = [(each.id, each.tail, each.persistent) for each in queue.messages]
    unacked = [[each.id for each in consumer.unacked.values()] for consumer in queue.consumers]
    return queue.count, queue.octets, queue.newest, ready, unacked, paged, unwritten


def _changes(batch):
    moves = [[(queue.key, message.id) for queue, message in pairs] for pairs in (batch.put, batch.settled)]
    gone = [(key, message.id) for key, message in batch.gone]
    return moves, gone, batch.cost, batch.first, [waiter.receipts[:] for waiter in batch.waiters]


@given(configs, st.booleans(), steps)
@settings(max_examples=examples(150))
def test_all_roads_are_the_same(config, background, steps):
    worlds = [World(road, background, **config) for road in ROADS]
    for what, turns in steps:
        seen = []
        for world in worlds:
            world.step(what, turns)
            seen.append(world.seen())
        assert all(each == seen[0] for each in seen)


# ---- that they are taken ----

SENT = frame("SEND", "destination:/queue/a", "persistent:true", "receipt:7", body="hi")


def test_a_message_of_another_rank_is_recorded_once(monkeypatch):
    bench = Bench(FaultyStore(background=True), window_messages=2)
    sender = bench.peer()
    sender.put("/queue/a", "first")
    for _ in range(4):
        sender.put("/queue/a", "hi", persistent="true", priority="9")
    (queue,) = bench.broker.queues.values()
    assert (queue.count, queue.total) == (3, 5)
    switch(False)
    calls, take_new = [], Paging.take_new
    monkeypatch.setattr(Paging, "take_new", lambda *what: (calls.append(what), take_new(*what))[1])
    sender.raw(SENT)
    assert len(calls) == 1
    recorded = [message.seq for _queue, message in bench.broker.journal.batch.put]
    assert sorted(set(recorded)) == recorded


@pytest.fixture(params=ROADS)
def world(request):
    """A broker that stores in the background, and a consumer that acknowledges."""
    world = World(request.param, background=True)
    world.consumer.subscribe("/queue/a", ack="client-individual")
    return world


def test_receipts_wait_for_their_own_commit(world):
    """Also those of frames that come while an earlier batch, for which the session waits, is being written."""
    world.step([SENT], True)
    world.step([SENT.replace(b"receipt:7", b"receipt:8")], True)
    assert world.sender.take() == []
    for receipt in "78":
        world.step("written", True)
        assert [each.headers["receipt-id"] for each in world.sender.take()] == [receipt]
    assert world.store.bodies == ["hi"] * 2


def test_receipts_of_acks_wait_for_their_own_commit(world):
    world.step([SENT * 4], True)
    world.step("written", True)
    world.step([("ACK", 0, "receipt:1"), ("ACK", 1, "receipt:2")], True)
    world.step([("ACK", 2, "receipt:3"), ("ACK", 3, "receipt:4")], True)
    assert b"RECEIPT" not in world.consumer.octets
    for receipts, left in (([b"1", b"2"], 2), ([b"1", b"2", b"3", b"4"], 0)):
        world.step("written", True)
        assert re.findall(rb"receipt-id:(.)", world.consumer.octets) == receipts
        assert len(world.store.bodies) == left


@pytest.mark.parametrize("pending", [3, 4])
@pytest.mark.parametrize("who", ["sender", "consumer"])
def test_whoever_stores_waits_while_the_disk_is_slower(world, pending, who, monkeypatch):
    world.step([SENT] * 4, True)
    world.step("written", True)
    monkeypatch.setattr(journal, "_MOST_PENDING", 2)
    world.step([SENT], True)  # it is being written
    world.step([SENT] * pending if who == "sender" else [("ACK", at, "") for at in range(pending)], False)
    assert getattr(world, who).session.paused is (pending > 3)
    world.step("written", True)
    world.step("written", True)
    assert not world.sender.session.paused


def test_a_header_that_only_the_slow_road_reads_keeps_a_send_off_the_quick_one(monkeypatch):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "where this goes is known now")
    session = peer.session
    monkeypatch.setattr(message, "serialize_tail", lambda spy, *args, **how: serialize_tail(spy.frame, *args, **how))
    spy = Heard(Frame("SEND", {"destination": "/queue/a"}, b"hello"), set())
    commands._send_any(session, spy)
    assert len(bench.broker.queues["/", "/queue/a"].messages) == 2
    quick = {"destination", "persistent", "receipt", *session.virtual_host.destinations.routing_headers}
    assert spy.asked - quick == set(commands.SLOW_HEADERS)


# ---- which messages are stored: those to queues unless they say persistent:false, on each road and in each way ----

#: Headers by which a SEND goes one of several ways through the broker.
WAYS = {
    "plain": {},
    "receipt": {"receipt": "r"},
    "transaction": {"transaction": "t"},
    "reply-to": {"reply_to": "/temp-queue/mine"},
    "key": {"idempotency_key": "{}", "receipt": "r"},
    "expires": {"expires": "9999999999999"},
    "delay": {"delay": "1000"},
}
PLACES = ("/queue/a", "/temp-queue/mine", "/topic/t", "/queue/a,/topic/t")


def sender_on(road, bench):
    """A peer of a broker whose SENDs go that road, with a durable subscription to the topic and a temporary queue."""
    switch(road == "c")
    if road == "slow":
        bench.broker.handlers = {**commands.HANDLERS, "SEND": commands._send_any}
    keeper = bench.client(client_id="keeper")
    keeper.subscribe("/topic/t", durable_subscription_name="all")
    keeper.lose()
    sender = bench.peer()
    sender.subscribe("/temp-queue/mine", ack="client-individual")
    for place in PLACES:  # the targets are cached from now on
        sender.put(place, "first", persistent="false")
    sender.take()
    return sender


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("durable", ["all", "persistent", "none"])
def test_a_message_to_a_queue_is_stored_unless_it_says_otherwise(road, durable):
    """A temporary queue is never stored, and a topic stores what says persistent:true, for its durable subscription."""
    for way, headers in WAYS.items():
        for said in (None, "true", "false"):
            bench = Bench(FaultyStore(), durable=durable, composite=True)
            sender = sender_on(road, bench)
            sender.send("BEGIN", transaction="t")
            for number, place in enumerate(PLACES):
                own = {name: value.format(number) for name, value in headers.items()}
                sender.put(place, place, **own, **({} if said is None else {"persistent": said}))
            sender.send("COMMIT", transaction="t", receipt="committed")
            if way == "delay":
                bench.date += 2
                bench.wait(2.0)
            asked = durable != "none" and said == "true"
            to_queue = asked or (durable == "all" and said is None)
            expected = {"/queue/a": to_queue, "/temp-queue/mine": False, "/topic/t": asked}
            both = [place for place in expected if place != "/temp-queue/mine" and expected[place]]
            stored = [place for place in expected if expected[place]] + ["/queue/a,/topic/t"] * len(both)
            assert sorted(bench.store.bodies) == sorted(stored), (way, said)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("place", "said", "waits"),
    [
        ("/queue/a", None, True),
        ("/queue/a", "true", True),
        ("/queue/a", "false", False),
        ("/temp-queue/mine", None, False),
        ("/topic/t", None, False),
    ],
)
def test_a_receipt_waits_for_the_disk_only_where_the_message_is_stored(road, place, said, waits):
    bench = Bench(FaultyStore(background=True), durable="all")
    sender = sender_on(road, bench)
    sender.take()
    sender.put(place, "x", receipt="r", **({} if said is None else {"persistent": said}))
    answers = [frame.command for frame in sender.take() if frame.command != "MESSAGE"]
    assert answers == ([] if waits else ["RECEIPT"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_other_dialects_store_what_says_persistent(dialect):
    """So do their brokers. A value that is given wins."""
    assert Config(dialect=dialect).durable == ("all" if dialect == "stompcodec" else "persistent")
    bench = Bench(FaultyStore(), dialect=dialect, durable=Config(dialect=dialect).durable)
    peer = bench.peer()
    peer.put("/queue/a", "1")
    peer.put("/queue/a", "2", persistent="true")
    assert bench.store.bodies == (["1", "2"] if dialect == "stompcodec" else ["2"])
    assert Config(dialect=dialect, durable="all").durable == "all"


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("headers", [{}, {"transaction": "t"}, {"reply_to": "/queue/b"}])
def test_what_is_not_stored_is_taken_though_the_disk_is_full(road, headers):
    bench = Bench(FaultyStore(), durable="all")
    sender = sender_on(road, bench)
    sender.send("BEGIN", transaction="t")
    bench.broker.journal.short = True
    for place, said in (("/queue/a", "false"), ("/temp-queue/mine", ""), ("/topic/t", "")):
        sender.put(place, "x", receipt="r", **({"persistent": said} if said else {}), **headers)
    assert [frame.command for frame in sender.take() if frame.command != "MESSAGE"] == ["RECEIPT"] * 3
    sender.put("/queue/a", "x", receipt="r", **headers)
    assert sender.error().headers["message"] == "the disk is full"
    assert (bench.queue().count, bench.store.bodies) == (1 + (not headers.get("transaction")), [])
