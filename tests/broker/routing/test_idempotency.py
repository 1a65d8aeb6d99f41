"""Idempotency keys: each SEND with a key is stored once, whoever sends it again, and whatever fails in between."""

import logging
from itertools import pairwise

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import QUEUE, client, finish, held, raw_send, receipts, refusal, send, settle, taker
from broker.storage.storing import Unsure, change
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from profiles import examples

from stompcodec import Limits
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.routing.idempotency import MOST_OCTETS, Mark
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore, SentKey

USERS = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "eve")}
each_spelling = pytest.mark.parametrize("header", ["idempotency-key", "_AMQ_DUPL_ID"])


@each_spelling
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("persistent", [b"true", b"false"])
@pytest.mark.parametrize("delay", [b"", b"delay:5000\n"])
def test_a_second_send_has_its_receipt_and_is_not_stored(header, version, persistent, delay):
    bench = Bench()
    sender, other = bench.peer(version), bench.peer(version)
    for peer in (sender, sender, other):
        raw_send(bench, peer, header, "k", b"x", b"persistent:%b\n" % persistent + delay)
        assert receipts(peer) == 1
    assert (held(bench), len(bench.broker.delayed)) == (["x"] * (not delay), bool(delay))
    assert (bench.broker.stats.duplicates, bench.broker.stats.duplicates_changed) == (2, 0)
    assert len(list(bench.store.keys())) == (persistent == b"true")


@each_spelling
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("letter", ["k", "ü"])
def test_a_key_that_is_too_long_is_an_error(header, inside, letter):
    bench = Bench()
    sender, most = bench.peer(), MOST_OCTETS // len(letter.encode())
    raw_send(bench, sender, header, letter * most)
    assert receipts(sender) == 1
    if inside:
        sender.send("BEGIN", transaction="t")
    raw_send(bench, sender, header, letter * (most + 1), more=b"transaction:t\n" if inside else b"")
    error = sender.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("the idempotency key is too long", "r")
    assert len(held(bench)) == 1


def test_another_body_is_confirmed_counted_and_logged_once_per_second(caplog):
    caplog.set_level(logging.WARNING)
    bench = Bench()
    sender = bench.peer()
    for body in "1234":
        send(sender, "secret", body)
    bench.now += 1
    send(sender, "secret", "5")
    assert (receipts(sender), held(bench)) == (5, ["1"])
    assert (bench.broker.stats.duplicates, bench.broker.stats.duplicates_changed) == (4, 4)
    first, second = [record.getMessage() for record in caplog.records]
    assert "another body" in first
    assert "(3 such" in second
    assert "secret" not in caplog.text


def test_a_composite_destination_gets_what_it_lacks():
    bench = Bench(composite=True)
    sender = bench.peer()
    send(sender, "k", destination="/queue/a")
    for _ in range(2):
        send(sender, "k", destination="/queue/a,/queue/b")
    assert receipts(sender) == 3
    assert (held(bench, "/queue/a"), held(bench, "/queue/b")) == (["x"], ["x"])


#: Who sends the second message, and where.
OTHERS = {
    **{"user": ({"login": "eve"}, {}), "client-id": ({"client_id": "d"}, {})},
    **{"virtual host": ({"host": "other"}, {}), "destination": ({}, {"destination": "/queue/b"})},
    "routing": ({}, {"destination": "plain", "destination-type": "MULTICAST"}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_nobody_suppresses_the_message_of_another(what):
    who, headers = OTHERS[what]
    bench = Bench(users={**USERS, "guest": USERS["ada"]}, virtual_hosts=("/", "other"), same_client="allow")
    first, second = client(bench, login="ada"), client(bench, **{"login": "ada", **who})
    if what == "routing":
        send(first, "k", persistent="true", **{**headers, "destination-type": "ANYCAST"})
    send(first, "k", persistent="true")
    for duplicates in range(3):
        send(second, "k", persistent="true", **headers)
        assert bench.broker.stats.duplicates == duplicates
        assert len(bench.broker.sent.scopes) == 2 + (what == "routing")


def remembering(*keys):
    store = MemoryStore()
    for number, date in keys:
        store.remember(SentKey(number, b"s" * 24, b"%d" % number, 0, date))
    store.commit()
    return store


@pytest.mark.parametrize(("age", "known"), [(50.0, 1), (-50.0, 1), (98.9, 1), (101.0, 0)])
def test_time_passes_while_the_broker_is_down(age, known):
    store = remembering((1, 1_000_000.0 - age))
    bench = Bench(store, key_window=100.0)
    bench.now = 1.0  # the first look
    bench.broker.tick(bench.now)
    bench.turn()
    assert len(bench.broker.sent) == len(list(store.keys())) == known
    bench.wait(102)
    bench.turn()
    assert len(bench.broker.sent) == 0, "a clock that was put back does not make it live longer"


def test_fewer_keys_are_kept_when_the_configuration_says_so():
    bench = Bench(remembering(*((number, 1_000_000.0) for number in range(1, 11))), max_keys=4)
    bench.turn()
    assert [key.number for key in bench.store.keys()] == [7, 8, 9, 10]
    bench.audit()


def test_expiry_takes_a_share_of_a_turn_at_a_time():
    bench = Bench(key_window=10.0)
    sent = bench.broker.sent
    for number in range(3 * AT_ONCE):
        sent.enter(Mark(b"%024d" % (number % 7), b"%d" % number, 0), 0.0, stored=False)
    bench.now = 20.0
    steps = sent.sweep(20.0)
    assert sent.sweep(20.0) is None, "one at a time"
    left = [len(sent), *(len(sent) for _ in steps)]
    assert max(before - after for before, after in pairwise(left)) <= AT_ONCE
    assert len(sent) == 0
    bench.audit()


def test_the_user_with_most_keys_loses_the_oldest_when_memory_is_short():
    """However many scopes somebody makes: what others have stays."""
    small = {"limits": Limits(max_headers=20, max_header_line=500, max_body=20_000), "large": 20_000}
    bench = Bench(users=USERS, memory=2**21, **small)
    part, (ada, eve) = bench.broker.sent.part, (client(bench, "", login=name) for name in USERS)

    def send_all():
        for number in range(20):
            send(ada, f"k{number}", destination="/topic/t", persistent="true")

    send_all()
    frames = [
        eve.octets_of("SEND", b"x", destination=f"/topic/{number}", idempotency_key=f"k{number}", persistent="true")
        for number in range(part.limit // 1000)
    ]
    for at in range(0, len(frames), 500):
        eve.raw(b"".join(frames[at : at + 500]))
        assert part.used <= part.limit
    assert part.used > part.limit * 0.9
    assert len(bench.broker.sent) == len(list(bench.store.keys()))
    send_all()
    assert (bench.broker.stats.duplicates, bench.broker.sent.cost) == (20, part.used)
    bench.audit()


@pytest.mark.parametrize("destination", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("fails", [False, True])
def test_nobody_gets_it_before_it_is_stored(fails, destination):
    """After a crash in between it would come with another message-id, and unmarked."""
    bench = Bench(FaultyStore(background=True))
    sender, consumer = bench.peer(), taker(bench, destination, ack="client")
    send(sender, "k", destination=destination, persistent="true")
    send(sender, None, "behind", destination=destination)
    assert consumer.take() == []
    bench.store.faulty = fails
    bench.store.finish()
    bench.store.faulty = False
    bench.turn()
    assert consumer.bodies() == ([b"behind"] if fails else [b"x", b"behind"])


DAMAGE = ["scope = x'00'", "key = x'00'", "key = 7", "body = 'x'", "body = body + 1"]
DAMAGE += ["at = at + 1", "crc = 0", "number = 99"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_key_is_reported_and_the_others_count(damage, tmp_path):
    data = tmp_path / "data"
    bench = Bench(SqliteStore(data))
    for number in range(3):
        send(bench.peer(), f"k{number}", persistent="true")
    bench.store.close()
    change(data, f"UPDATE sent SET {damage} WHERE number = 2")
    assert check(data).problems == ["1 rows of the table sent, idempotency keys, are damaged"]
    assert salvage(data, tmp_path / "new").keys == 2
    again = Bench(SqliteStore(data))
    assert again.store.damage.findings == 1
    for number in (0, 2, 1, 1):
        send(again.peer(), f"k{number}", persistent="true")
    assert again.broker.stats.duplicates == 3
    again.store.close()


def test_a_failed_commit_that_is_on_the_disk_is_taken_back(tmp_path):
    store = SqliteStore(tmp_path)
    bench = Bench(store)
    sender = bench.peer()
    store._writer._db = Unsure(store._writer._db)
    headers = {"destination": QUEUE, "persistent": "true", "idempotency_key": "k", "receipt": "r"}
    sender.session.receive(sender.octets_of("SEND", b"x", **headers), 0.0)
    settle(bench)
    assert refusal(sender) == "the message could not be stored"
    send(bench.peer(), "l", persistent="true")
    store.close()
    store = SqliteStore(tmp_path)
    assert len(list(store.keys())) == len(list(store.load())) == 1
    store.close()


WINDOW = 1000.0
NAMES = st.sampled_from(["a", "b"])
#: A key, and whether the message is stored: "11" or "10" as a text.
KEYS = st.builds(lambda key, stored: f"{key}{stored:d}", st.integers(0, 2), st.sampled_from([True, True, False]))


class Machine(RuleBasedStateMachine):
    """Two clients of one scope send the same few keys, each with a body of its name. What the broker may hold follows
    from what had a RECEIPT: that is there once, and nothing is there twice."""

    def __init__(self):
        super().__init__()
        self.store, self.peers, self.promised = FaultyStore(background=True), {}, set()
        #: What each receipt of a client promises, and what its transaction does.
        self.waiting, self.open = {}, {}
        self.start()

    def start(self):
        self.bench = Bench(self.store, key_window=WINDOW, window_messages=3)

    def peer(self, name):
        peer = self.peers.get(name)
        if peer is None or peer.closed:
            self.open.pop(name, None)
            self.waiting[name] = []
            peer = self.peers[name] = self.bench.peer()
        return peer

    def look(self):
        for name, peer in self.peers.items():
            for frame in peer.take():
                if frame.command == "RECEIPT":
                    self.promised.update(self.waiting[name].pop(0))

    def put(self, peer, key, **more):
        peer.put(QUEUE, key, idempotency_key=key, persistent="true" if key[1] == "1" else "false", **more)

    @rule(name=NAMES, key=KEYS)
    def send_one(self, name, key):
        peer = self.peer(name)
        self.waiting[name].append([key])
        self.put(peer, key, receipt="r")
        self.look()

    @rule(name=NAMES, keys=st.lists(KEYS, max_size=4))
    def begin(self, name, keys):
        peer = self.peer(name)
        if name not in self.open:
            peer.send("BEGIN", transaction="t")
            self.open[name] = keys
            for key in keys:
                self.put(peer, key, transaction="t")

    @rule(name=NAMES, command=st.sampled_from(["COMMIT", "COMMIT", "ABORT"]))
    def end(self, name, command):
        peer, sent = self.peer(name), self.open.pop(name, None)
        if sent is not None:
            self.waiting[name].append(sent if command == "COMMIT" else [])
            peer.send(command, transaction="t", receipt="r")
            self.look()

    @rule(fails=st.booleans())
    def disk(self, fails):
        if self.store.job is not None:
            self.store.faulty = fails
            self.store.finish()
            self.store.faulty = False
            self.bench.turn()
            self.look()

    @rule(name=NAMES)
    def lose(self, name):
        self.peer(name).lose()
        del self.peers[name]
        self.open.pop(name, None)

    @rule()
    def restart(self):
        """The broker is killed: what no commit has written is lost."""
        kept = self.store._kept, self.store._sent, self.store._mark
        self.store = FaultyStore(background=True)
        self.store._kept, self.store._sent, self.store._mark = kept
        self.peers.clear()
        self.open.clear()
        self.promised = {key for key in self.promised if key[1] == "1"}
        self.start()

    @rule()
    def forget(self):
        finish(self.bench)
        self.look()
        consumer = taker(self.bench)
        bodies = [frame.body.decode() for frame in consumer.take()]
        consumer.lose()
        assert len(bodies) == len(set(bodies))
        assert self.promised <= set(bodies)
        self.promised.clear()
        self.bench.now += 2 * WINDOW
        self.bench.broker.tick(self.bench.now)
        self.bench.turn()
        assert len(self.bench.broker.sent) == 0
        finish(self.bench)  # else a crash would bring them back, by a clock that stands still
        self.look()

    @invariant()
    def each_is_there_once(self):
        bodies, queue = held(self.bench), self.bench.broker.queues.get(("/", QUEUE))
        assert len(bodies) == len(set(bodies)), bodies
        paged = self.store.bodies if queue is not None and queue.paging is not None else []
        assert self.promised <= {*bodies, *paged}, (self.promised, bodies, paged)
        self.bench.audit()


TestKeys = Machine.TestCase
TestKeys.settings = settings(max_examples=examples(60), stateful_step_count=40)
