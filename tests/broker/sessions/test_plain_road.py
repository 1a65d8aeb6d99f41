"""The plain road in C.

With it, without it, and switched at random, clients and books are the same, byte for byte. What it takes, it takes.
"""

import gc
from types import SimpleNamespace

import pytest
from broker.harness import Bench, FaultyStore, bench_with_two, switch
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import Limits
from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.memory import MESSAGE, OPERATION
from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.selectors import Selector
from stompcodec.broker.sessions import commit, plain

pytestmark = pytest.mark.skipif(plain.EXTENSION is None, reason="the plain road is not built, or switched off")

SELECTOR = "x IS NULL OR x = 'y'"


def frame(command, *lines, body=b"", end=b"\n"):
    return command + b"\n" + b"".join(line + end for line in lines) + b"\n" + body + b"\0"


def two(*, ack=None, config=None, **headers):
    """A broker, a sender that knows /queue/a, where there is a message, and a consumer, with a subscription to it."""
    bench, sender, consumer = bench_with_two(**(config or {}))
    if ack is not None:
        consumer.subscribe("/queue/a", ack=ack, **headers)
    sender.put("/queue/a")
    return bench, sender, consumer


# ---- random conversations ----

HEADERS = [
    *(b"receipt:7", b"receipt:r-1", b"receipt:", b"receipt:a\\cb", b"receipt:8", "receipt:ä".encode()),
    *(b"persistent:true", b"persistent:false", b"persistent: true", b"content-type:text/plain", b"x:y", b"x:z", b"x:"),
    *(b"time:12:30", b"path:a\\\\b", b"two:a\\nb", "name:ü".encode(), "größe:1".encode(), b"content-length:2"),
    *(b"message-id:forged", b"subscription:9", b"ack:1-1", b"redelivered:true", b"redelivery-count:3"),
    *(b"priority:9", b"expires:1", b"delay:5", b"JMSXGroupID:g", b"reply-to:/queue/b", b"retain:true"),
    *(b"a\\cb:1", b"x:a\rb", b"c\rd:1", b"receipt:12:30", b"receipt:\\\\", b"receipt:\r", b"x:\\c:\\\\:\r", b"x::"),
    *(b"x:\\r", b"time:" + b":" * 999, "ö:12:30".encode(), b"destination:/queue/a:1", b"destination:/queue/a\\c1"),
    *(b"persistent:true:", b"destination:/queue/b", b"destination-type:MULTICAST", b"y" * 31 + b":1"),
    *(b"y" * 32 + b":1", b"ttl:%d"),
]
DESTINATIONS = [
    *(b"/queue/a", b"/queue/a", b"/queue/a", b"/queue/b", b"/topic/t"),
    *(b"/queue/a:1", b"a", "/queue/ö".encode(), b"/queue/%d"),
]
BODIES = [b"hi", b"", b"x" * 100, b"a\0b", b"%d %s", b"\n", b"y" * 3000]
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
plain_sends = st.builds(
    lambda destination, number: frame(b"SEND", b"destination:" + destination, b"content-length:1", body=b"%d" % number),
    st.sampled_from(DESTINATIONS[:5]),
    st.integers(0, 9),
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
        *(frame(b"UNSUBSCRIBE", b"id:%1"), frame(b"BEGIN", b"transaction:t"), frame(b"COMMIT", b"transaction:t")),
        *(frame(b"SEND", b"x:y"), frame(b"SEND", b"destination:/queue/a", b"transaction:t", body=b"late"), b"\n\r\n"),
        *(frame(b"ABORT", b"transaction:t"), frame(b"DISCONNECT", b"receipt:d"), b"SEND\ndestination:/queue/a\n\nhalf"),
    ]
)
transactions = st.sampled_from(
    [
        *(frame(b"BEGIN", b"transaction:t"), frame(b"BEGIN", b"transaction:u"), frame(b"ABORT", b"transaction:u")),
        *(frame(b"COMMIT", b"transaction:t", b"receipt:c"), frame(b"COMMIT", b"transaction:t"), b"\n"),
    ]
)
#: Most of them to one queue, persistent, and in the same transaction.
in_transactions = st.builds(
    lambda destination, name, lines, body: frame(
        b"SEND", b"destination:" + destination, b"transaction:" + name, *lines, body=body
    ),
    st.sampled_from([*[b"/queue/a"] * 6, b"/queue/b", b"/topic/t"]),
    st.sampled_from([*[b"t"] * 6, b"u", b"\\c", b"", "ä".encode()]),
    st.sampled_from(
        [*[[b"persistent:true"]] * 6, [], [b"receipt:5"], [b"receipt:a b", b"persistent:true"], [b"priority:1"]]
    ),
    st.sampled_from([*BODIES, b"z" * 30, b"z" * 30]),
)
acks = st.builds(
    lambda command, at, lines: (command, at, lines),
    st.sampled_from([b"ACK", b"ACK", b"ACK", b"NACK"]),
    st.integers(0, 3),
    st.lists(st.sampled_from([b"receipt:9", b"x:y", b"credit:1", b"transaction:t", b"receipt:a b"]), max_size=1),
)
reads = st.one_of(
    st.lists(st.one_of(plain_sends, plain_sends, plain_sends, sends, sends, subscribes, acks, others), max_size=12),
    st.lists(st.one_of(transactions, in_transactions, in_transactions, plain_sends, acks), max_size=12),
)
EVENTS = ["turn", "shut", "open", "lose", "short", "enough", "heard"]
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
        "max_queue_messages": st.sampled_from([None, 2, 5]),
        "window_messages": st.sampled_from([1, 3, 1000]),
        "limits": st.sampled_from([Limits(), Limits(max_headers=4, max_header_line=64, max_body=2999)]),
        "transient": st.sampled_from(["stop", "spool"]),
        "max_transaction_octets": st.sampled_from([64 * 2**20, 2000]),
    }
)

#: Of the peers, and whether they have WebSocket.
VERSIONS = (("1.2", False), ("1.2", True), ("1.1", False))


class World:
    """A broker with three peers. The clock goes on with each look if it is told to."""

    def __init__(self, config, ticks, subscribers):
        self.bench = Bench(FaultyStore(), **config)
        self.bench.broker._entropy = bytes  # the ids of sessions are the same each time
        self.peers = [self.bench.peer(version, whole_frames=ws) for version, ws in VERSIONS]
        for destination in ("/queue/a", "/topic/t"):  # from now on they are cached
            for peer in self.peers:
                peer.put(destination, "first")
        for number, (at, destination, mode, window, selector) in enumerate(subscribers):
            more = {} if selector is None else {"selector": selector}
            self.peers[at].subscribe(destination, id=f"first-{number}", ack=mode, prefetch_count=window, **more)
        if ticks:
            self.bench.broker.quota.clock = self._clock

    def _clock(self):
        self.bench.now += 1
        return self.bench.now

    def step(self, number, what, turns):
        peer, bench, account = self.peers[number], self.bench, self.bench.broker.account
        if what in ("shut", "open"):
            peer.session.writable(what == "open", bench.now)
        elif what in ("short", "enough"):
            account.first = account.used + 2000 if what == "short" else account.second
        elif what == "heard":
            bench.broker.quota.heard = bench.now
        elif what == "lose":
            peer.lose()
            self.peers[number] = bench.peer("1.2", whole_frames=peer.whole_frames)
        elif what != "turn":
            peer.session.receive(b"".join(self._octets(peer, each) for each in what), bench.now)
        if turns or what == "turn":
            bench.turn()

    def _octets(self, peer, what):
        if isinstance(what, bytes):
            return what
        command, at, lines = what
        given = [each.headers["ack"] for each in peer.inbox if each.command == "MESSAGE" and each.get("ack")]
        return frame(command, b"id:" + (given[-1 - at % len(given)] if given else "1-1").encode(), *lines)

    def seen(self):
        """What clients see, and what the books say."""
        broker, peers = self.bench.broker, self.peers
        sessions = [(peer.octets, peer.closed, peer.session.paused, peer.session.ended) for peer in peers]
        outboxes = [peer.session.outbox for peer in peers]
        pending = [(b"".join(each.chunks), each.send_budget, each.starved) for each in outboxes]
        queues = {name: _books(queue) for name, queue in broker.queues.items()}
        consumers = [
            (each.credit, each.last, each.in_ring, {tag: _fields(m) for tag, m in each.unacked.items()})
            for peer in peers
            for each in peer.session.consumers.values()
        ]
        names = ("weight", "octets", "stores", "_mixed")
        transactions = [
            (name, [getattr(each, field) for field in names], [_fields(entry.message) for entry in each.operations])
            for peer in peers
            for name, each in peer.session.transactions.items()
            if not each.settles
        ]
        return sessions, pending, queues, consumers, transactions, broker.seq, broker.account.used, broker.account.held

    def stored(self):
        queues = self.bench.broker.queues.items()
        paged = [(name, queue.paging and queue.paging.count, queue.newest) for name, queue in queues]
        return paged, [(each.queue, each.seq, each.tail) for each in self.bench.store.load()]


def _fields(message):
    return [(type(value), value) for value in (getattr(message, name) for name in type(message).__slots__)]


def _books(queue):
    ring = [(consumer.key, consumer.session.id) for consumer in queue.ring]
    parked = None if queue.parked is None else [(consumer.key, consumer.session.id) for consumer in queue.parked]
    return queue.count, queue.octets, [_fields(message) for message in queue.messages], ring, parked


@given(configs, st.booleans(), subscribers, steps)
@settings(max_examples=examples(400))
def test_it_is_the_same_with_and_without(config, ticks, subscribers, steps):
    worlds = [World(config, ticks, subscribers) for _ in range(3)]
    for number, what, turns, mixed in steps:
        seen = []
        for world, on in zip(worlds, (True, False, mixed)):
            switch(on)
            world.step(number, what, turns)
            seen.append(world.seen())
        assert seen[0] == seen[1]
        assert seen[2] == seen[1]
    assert worlds[0].stored() == worlds[1].stored() == worlds[2].stored()


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
    "priority": frame(b"SEND", b"destination:/queue/a", b"priority:9"),
}
TAKEN = {
    "to a consumer": SEND,
    "without headers": frame(b"SEND", b"destination:/queue/a", body=b"hi"),
    "without a body": frame(b"SEND", b"destination:/queue/a"),
    "receipt": frame(b"SEND", b"destination:/queue/a", b"receipt:1"),
    "odd receipt": frame(b"SEND", b"destination:/queue/a", b"receipt:a b"),
    "persistent": frame(b"SEND", b"destination:/queue/a", b"persistent:true", body=b"hi"),
    "to a topic": frame(b"SEND", b"destination:/topic/t", body=b"hi"),
    "non-ASCII": frame(b"SEND", b"destination:/queue/a", "x:ä".encode()),
    "escape": frame(b"SEND", b"destination:/queue/a", b"x:a\\cb"),
    "carriage return": frame(b"SEND", b"destination:/queue/a", b"x:\r", end=b"\r\n"),
    "raw colon": frame(b"SEND", b"destination:/queue/a", b"x:12:30"),
    "all of them": frame(b"SEND", b"destination:/queue/a", "ä\\c:12:30\r".encode(), b"receipt:1:2", end=b"\r\n"),
}


@pytest.mark.parametrize("octets", [*TAKEN.values(), *LEFT.values()], ids=[*TAKEN, *LEFT])
@pytest.mark.parametrize(("ack", "whole_frames"), [("auto", False), ("auto", True), ("client-individual", False)])
def test_what_it_takes(octets, ack, whole_frames, monkeypatch):
    bench = Bench()
    sender, consumer = bench.peer(whole_frames=whole_frames), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a", ack=ack)
    consumer.subscribe("/topic/t", id="2")
    sender.put("/queue/a")
    sender.put("/topic/t")
    count = counted(sender, monkeypatch)
    sender.raw(octets * 3)
    assert count.made == (0 if octets in TAKEN.values() else 3)


@pytest.mark.parametrize("past", [0, 1])
def test_a_transaction_may_hold_so_much(past, monkeypatch):
    tail = len(b"destination:/queue/a\ncontent-length:2\n\nhi\0")
    bench = Bench(max_transaction_octets=3 * (OPERATION + tail) - past)
    sender = bench.peer()
    sender.put("/queue/a")
    sender.raw(frame(b"BEGIN", b"transaction:t"))
    count = counted(sender, monkeypatch)
    sender.raw(frame(b"SEND", b"destination:/queue/a", b"transaction:t", body=b"hi") * 3)
    assert count.made == past
    assert sender.session.ended is bool(past)


@given(configs, st.booleans(), subscribers, steps, st.booleans())
@settings(max_examples=examples(200))
def test_a_plain_transaction_takes_fewer_steps_with_the_same_end(config, ticks, subscribers, steps, background):
    """`_send_all` does what the longer way of COMMIT does, with commits at once and later, and with failed ones."""
    short, long = (World(config, ticks, subscribers) for _ in range(2))
    for number, what, turns, faulty in steps:
        for world, only_queue in ((short, commit._only_queue), (long, lambda *_: None)):
            store = world.bench.store
            store.background, store.faulty = background, faulty and turns
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(commit, "_only_queue", only_queue)
                world.step(number, what, turns)
            if store.job is not None and faulty:
                store.finish()
                world.bench.turn()
        assert short.seen() == long.seen()
        assert short.stored() == long.stored()


def test_a_transaction_that_is_stored_later_gets_its_place(monkeypatch):
    """It takes effect after its commit, and comes before what was sent meanwhile."""
    bench = Bench(FaultyStore(background=True))
    sender, other = bench.peer(), bench.peer()
    sender.put("/queue/a")
    send = frame(b"SEND", b"destination:/queue/a", b"transaction:t", b"persistent:true", body=b"hi")
    sender.raw(frame(b"BEGIN", b"transaction:t") + send * 2 + frame(b"COMMIT", b"transaction:t"))
    other.put("/queue/a")
    (queue,) = bench.broker.queues.values()
    monkeypatch.setattr(type(queue), "put", None)  # they are put together
    assert len(queue.messages) == 2
    bench.store.finish()
    bench.turn()
    found = [(message.seq, message.persistent) for message in queue.messages]
    first = found[0][0]
    assert found == [(first, False), (first + 1, True), (first + 2, True), (first + 3, False)]
    assert queue.newest == first + 2


def test_header_lines_are_written_anew():
    """In MESSAGE, a raw colon or CR is an escape, as the Python road writes it."""
    _bench, sender, consumer = two(ack="auto")
    start = len(consumer.octets)
    sender.raw(
        frame(b"SEND", b"destination:/queue/a", b"time:12:30\r:\\c", b"a\\nb:c", b"receipt:1:2", body=b"x", end=b"\r\n")
    )
    head, _, rest = consumer.octets[start:].partition(b"time")
    assert b"time" + rest == b"time:12\\c30\\r\\c\\c\na\\nb:c\ncontent-length:1\n\nx\0\n"
    assert head.endswith(b"destination:/queue/a\n")
    assert sender.octets.endswith(b"RECEIPT\nreceipt-id:1\\c2\n\n\0\n")


@pytest.mark.parametrize("past", [0, 1])
def test_a_head_with_lines_to_write_anew_may_be_so_long(past, monkeypatch):
    _bench, sender, consumer = two(ack="auto")
    count = counted(sender, monkeypatch)
    whole = 2048 + past
    colons = whole - len(frame(b"SEND", b"destination:/queue/a", b"x:")) + 1  # the head is all but the NUL
    octets = frame(b"SEND", b"destination:/queue/a", b"x:" + b":" * colons)
    assert len(octets) - 1 == whole
    sender.raw(octets)
    assert count.made == past
    assert consumer.take()[-1].headers["x"] == ":" * colons


ACKS = dict.fromkeys(["", "receipt:1", "receipt:a b", "x:a\\cb", "x:12:30", "receipt:1:2\r"], True)
ACKS |= dict.fromkeys(["transaction:t", "credit:1", "receipt:a\\cb"], False)


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("line", ACKS)
def test_which_acks_it_takes(line, persistent, monkeypatch):
    bench = Bench(FaultyStore())
    sender, consumer = bench.peer(), bench.peer()
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
    assert bench.queue().total == 0
    assert bench.store.bodies == []


def test_an_ack_is_for_the_first_id_and_its_own_subscription():
    bench, sender, consumer = bench_with_two()
    for number in range(1, 13):
        consumer.subscribe(f"/queue/{number}", id=str(number), ack="client-individual")
        sender.put(f"/queue/{number}")
        sender.put(f"/queue/{number}")
    consumer.raw(frame(b"ACK", b"id:12-1", b"id:11-1") + frame(b"ACK", b"id:1-2") + frame(b"ACK", b"id:11-2"))
    counts = [bench.broker.queues["/", f"/queue/{number}"].count for number in range(1, 13)]
    assert counts == [1, *[2] * 9, 1, 1]


def test_an_ack_after_the_queue_was_closed_counts_nothing():
    bench, _sender, consumer = two(ack="client-individual")
    queue = bench.queue()
    queue.close()
    used = bench.broker.account.used
    consumer.ack(consumer.take()[-1])
    assert (queue.count, queue.octets, bench.broker.account.used) == (0, 0, used)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_sender_that_waits_goes_on_after_acks(mode):
    _bench, sender, consumer = two(ack=mode, prefetch_count="100", config={"max_queue_messages": 4})
    sender.raw(SEND * 4)
    assert sender.session.paused
    waits = []
    for each in consumer.take():
        consumer.ack(each)
        waits.append(sender.session.paused)
    assert waits == [True, False, False, False, False]


@pytest.mark.parametrize("lines", [64, 65])
def test_it_takes_so_many_header_lines(lines, monkeypatch):
    _bench, sender, consumer = two(ack="auto")
    count = counted(sender, monkeypatch)
    sender.raw(frame(b"SEND", b"destination:/queue/a", *(b"x%d:%d" % (n, n) for n in range(lines - 1))))
    assert count.made == (lines > 64)
    assert len(consumer.take()[-1].headers.pairs()) == lines + 2  # with subscription and message-id


@pytest.mark.parametrize("length", [100, 900, 1100, 3000])
def test_a_long_head_of_the_consumer(length):
    """The part of MESSAGE that is the consumer's may be larger than what C has room for."""
    for ack in ("auto", "client-individual"):
        _bench, sender, consumer = bench_with_two()
        consumer.subscribe("/queue/a", id=ack + "%" * length, ack=ack)
        for number in range(4):
            sender.put("/queue/a", str(number))
        messages = consumer.take()
        assert [message.body for message in messages] == [b"0", b"1", b"2", b"3"]
        assert {message.headers["subscription"] for message in messages} == {ack + "%" * length}


def test_rules_hold():
    """A destination that is not allowed is not cached, so the road never takes a SEND to it."""
    bench = Bench(users={"u": User("u", hash_passcode("p", n=16))}, rules=(Rule("u", "send", "/queue/a"),))
    peer = bench.client(login="u", passcode="p")
    peer.raw(SEND * 2 + SEND.replace(b"/queue/a", b"/queue/b") + SEND)
    assert peer.error().headers["message"] == "not allowed to send there"
    assert set(bench.broker.queues) == {("/", "/queue/a")}
    assert bench.queue().count == 2


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize(
    "subscription",
    [{}, {"ack": "client-individual", "prefetch_count": "100"}, {"ack": "auto", "selector": "color = 'red'"}],
)
def test_the_bound_of_a_queue(past, subscription):
    """Also one without consumers, and one whose messages match nothing."""
    bench, sender, consumer = two(**subscription, config={"max_queue_messages": 5})
    sender.raw(SEND * (4 + past))
    assert len(consumer.take()) == (5 + past if "prefetch_count" in subscription else 0)
    assert sender.session.paused is bool(past)
    assert bench.queue().cost == MESSAGE * (5 + past) + bench.octets


def test_a_session_that_ends_takes_the_road_with_it():
    bench = Bench()
    peer = bench.peer()
    road = peer.session.road
    assert road is not None
    assert peer.session in gc.get_referents(road)
    peer.raw(SEND + frame(b"DISCONNECT") + SEND)
    assert peer.session.road is None
    assert peer.session not in gc.get_referents(road)
    assert len(bench.queue().messages) == 1
    assert bench.peer("1.0").session.road is None
    assert bench.peer("1.1").session.road is not None


def test_constants_and_classes_are_compared():
    for error, message, each, cost in (
        (TypeError, "class Session is missing", 8, MESSAGE),
        (ValueError, "other constants", 9, MESSAGE),
        (ValueError, "other constants", 8, MESSAGE + 1),
    ):
        with pytest.raises(error, match=message):
            plain.EXTENSION.prepare({}, (), (), (None,) * 8, None, each, cost, OPERATION)


# ---- READY messages ----


class Calls:
    """Counts calls of methods, together."""

    def __init__(self, monkeypatch, *methods):
        self.count = 0
        for kind, name in methods:
            monkeypatch.setattr(kind, name, self._counted(getattr(kind, name), name == "deliver"))

    def _counted(self, done, delivers):
        def call(*arguments):
            found = done(*arguments)
            self.count += not delivers or found is not None
            return found

        return call


PUT, DELIVER = (Queue, "put_plain"), (Queue, "deliver")


def numbered(first, last):
    return b"".join(b"SEND\ndestination:/queue/a\n\n%d\0" % number for number in range(first, last))


@pytest.mark.parametrize("whole_frames", [False, True])
def test_messages_become_ready_and_are_delivered_in_c(whole_frames, monkeypatch):
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
    sender.put("/queue/a", "0")
    consumer.ack(consumer.take()[-1])
    used = bench.broker.account.used
    sender.put("/queue/a", "0")
    sender.raw(numbered(1, 4))  # the first READY message is Python's, which makes the line
    calls, got = Calls(monkeypatch, PUT, DELIVER), []
    sender.raw(numbered(4, 9))
    for _ in range(9):
        for message in (each for each in consumer.take() if each.command == "MESSAGE"):
            got.append(message.body)
            consumer.ack(message)
            (subscription,) = consumer.session.consumers.values()
            assert len(subscription.unacked) <= 2
            assert bench.queue().ring.count(subscription) == subscription.in_ring
    assert got == [b"%d" % number for number in range(9)]
    assert calls.count == 0
    assert bench.queue().cost == 0
    assert bench.broker.account.used == used


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("transient", ["stop", "spool"])
def test_ready_messages_leave_the_window_only_to_be_spooled(past, transient, monkeypatch):
    bench = Bench(FaultyStore(), window_messages=5, transient=transient)
    sender = bench.peer()
    sender.put("/queue/a", "0")
    calls = Calls(monkeypatch, PUT)
    sender.raw(numbered(1, 5 + past))
    queue = bench.queue()
    spooled = past if transient == "spool" else 0
    assert (queue.count, queue.total) == (5 + past - spooled, 5 + past)
    assert calls.count == spooled


@pytest.mark.parametrize("past", [0, 1])
def test_ready_messages_leave_a_window_of_bytes_only_to_be_spooled(past, monkeypatch):
    bench = Bench(FaultyStore(), transient="spool")
    sender = bench.peer()
    sender.put("/queue/a", "0")
    queue = bench.queue()
    assert queue.window is not None
    sender.raw(numbered(1, 2))
    each = queue.octets - len(queue.messages.line[0].tail)
    queue.window.octets = queue.octets + each + 1 - past  # the next one fits; the one behind it if nothing is `past`
    calls = Calls(monkeypatch, PUT)
    sender.raw(numbered(2, 4))
    assert (queue.count, queue.total) == (4 - past, 4)
    assert calls.count == past


# ---- a consumer with a selector: C asks it once for each message ----

PYTHON = (PUT, (Dispatcher, "give_plain"), (Dispatcher, "give"))


def colored(*colors):
    return b"".join(f"SEND\ndestination:/queue/a\ncolor:{color}\n\n{color}\0".encode() for color in colors)


@pytest.mark.parametrize("whole_frames", [False, True])
def test_a_selector_is_asked_once_and_python_only_for_what_it_refuses(whole_frames, monkeypatch):
    bench = Bench()
    sender, consumer = bench.peer(), bench.peer(whole_frames=whole_frames)
    consumer.subscribe("/queue/a", selector="color = 'red'")
    sender.raw(colored("red", "red"))  # Python makes the consumer the only one
    consumer.take()
    python, asked = Calls(monkeypatch, *PYTHON), Calls(monkeypatch, (Selector, "matches"))
    sender.raw(colored("red", "blue", "red", "green", "red"))
    assert [message.body for message in consumer.take()] == [b"red"] * 3
    assert (python.count, asked.count) == (0, 5)
    (queue,) = bench.broker.queues.values()
    assert [message.frame.body for message in queue.messages] == [b"blue", b"green"]
    assert queue.count == 2
