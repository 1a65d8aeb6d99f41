"""A long transaction that stores messages is committed a share at a time, in one commit of the store."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.loop import QUEUE
from broker.moves import receive
from hypothesis import given, settings
from hypothesis import strategies as st

from stompcodec import serialize
from stompcodec.broker.sessions import commit as module
from stompcodec.codec import Frame

#: The share of a turn in the tests that look at each turn: long transactions are short then.
SHARE = 5
COUNT = 4 * SHARE + 2


def begin(peer, count, destination=QUEUE, **headers):
    pairs = {"destination": destination, "transaction": "t", "persistent": "true", **headers}
    sends = (serialize(Frame("SEND", pairs, b"%d" % number)) for number in range(count))
    peer.raw(peer.octets_of("BEGIN", transaction="t") + b"".join(sends))


def committed():
    """A broker that has read a COMMIT of COUNT SENDs, and no turn; their sender, and another peer."""
    bench, sender, other = Bench.with_peers(2, FaultyStore(background=True))
    begin(sender, COUNT)
    receive(sender, "COMMIT", transaction="t", receipt="c")
    return bench, sender, other


def turns_with_disk(bench, count):
    for _ in range(count):
        bench.step()
        bench.audit()
        if bench.store.job is not None:
            bench.store.finish()


def receipts(peer):
    return [frame.headers["receipt-id"] for frame in peer.inbox if frame.command == "RECEIPT"]


NUMBERS = [b"%d" % number for number in range(COUNT)]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", SHARE)


@pytest.mark.usefixtures("small")
def test_commits_of_others_do_not_take_half_of_it():
    bench, sender, other = committed()
    for turn in range(40):
        receive(other, "SEND", b"other", destination="/queue/b", persistent="true", receipt=str(turn))
        turns_with_disk(bench, 1)
        stored = [body for body in bench.store.bodies if body != "other"]
        assert len(stored) in (0, COUNT)
        assert receipts(sender) == [] or len(stored) == COUNT
        if receipts(sender):
            break
    bench.turn()
    assert receipts(sender) == ["c"]
    assert bench.ready() == NUMBERS
    while bench.store.job is not None:
        bench.store.finish()
        bench.turn()
    assert receipts(other) == [str(number) for number in range(turn + 1)]


@pytest.mark.usefixtures("small")
def test_who_waits_for_the_disk_alone_has_its_receipt_first():
    bench, sender, other = committed()
    while not bench.broker.journal.staging:
        bench.step()
    receive(other, "SEND", b"x", destination="/queue/b", persistent="true", receipt="r")
    bench.turn()
    bench.store.finish()
    bench.step()
    bench.audit()
    assert (receipts(other), receipts(sender)) == (["r"], [])
    assert 0 < len(bench.ready()) < COUNT
    assert bench.broker.journal.busy is not None
    bench.turn()
    assert receipts(sender) == ["c"]


@pytest.mark.parametrize("turns", range(0, 36, 3))
@pytest.mark.usefixtures("small")
def test_its_session_is_lost_in_the_middle(turns):
    bench, sender = Bench.with_peers(1, FaultyStore(background=True))
    for body in NUMBERS:
        sender.put("/queue/in", body, persistent="true")
        bench.store.finish()
        bench.turn()
    sender.subscribe("/queue/in", ack="client")
    begin(sender, COUNT)
    last = [frame for frame in sender.take() if frame.command == "MESSAGE"][-1]
    receive(sender, "ACK", id=last.headers["ack"], transaction="t")
    receive(sender, "COMMIT", transaction="t", receipt="c")
    turns_with_disk(bench, turns)
    sender.session.lost(0.0)
    turns_with_disk(bench, 20)
    bench.turn()
    if turns > 12:
        assert bench.ready() == NUMBERS
    assert (bench.ready(), bench.ready("/queue/in")) in ((NUMBERS, []), ([], NUMBERS))
    assert sorted(bench.store.bodies, key=int) == sorted(map(str, range(COUNT)), key=int)
    assert all(queue.suspensions == 0 for queue in bench.broker.queues.values())
    assert bench.broker.journal.kept == 0


@pytest.mark.parametrize("turns", range(0, 12, 2))
@pytest.mark.usefixtures("small")
def test_a_broker_that_stops_in_the_middle_stores_all_or_nothing(turns):
    bench, sender, _other = committed()
    turns_with_disk(bench, turns)
    bench.broker.stop(0.0)
    journal = bench.broker.journal
    assert not journal.staging
    turns_with_disk(bench, 20)
    assert (journal.open, journal.busy) == (False, None)
    assert len(bench.store.bodies) in (0, COUNT)
    assert receipts(sender) == [] or len(bench.store.bodies) == COUNT


# ---- the same, however large a share is ----
QUEUES = ["/queue/a", "/queue/b", "/topic/c"]
whos, queues = st.integers(0, 2), st.sampled_from(QUEUES)
sends = st.tuples(st.just("SEND"), queues, st.booleans(), st.sampled_from(["", "", "k", "l"]))
settles = st.tuples(st.sampled_from(["ACK", "NACK"]), st.integers(0, 3))
steps = st.one_of(
    st.tuples(st.just("SEND"), whos, sends),
    st.tuples(st.just("SETTLE"), whos, settles),
    st.tuples(st.just("SUBSCRIBE"), whos, queues),
    st.tuples(st.just("UNSUBSCRIBE"), whos, queues),
    st.tuples(st.just("LOSE"), whos, st.none()),
    st.tuples(st.just("DISK"), st.booleans(), st.none()),
    *[st.tuples(st.just("COMMIT"), whos, st.lists(sends | settles, min_size=1, max_size=9))] * 3,
)


class Play:
    """A script, played by three sessions. All is done before the next step but what waits for the disk."""

    def __init__(self, window):
        self.bench = Bench(FaultyStore(background=True), prefetch=4, max_attempts=3, window_messages=window)
        self.peers = [self.bench.peer() for _ in range(3)]
        #: What came, by session and command: a receipt need not wait for the deliveries of a commit.
        self.got, self.unacked, self.number = {}, [[], [], []], 0

    def look(self):
        self.bench.turn()
        for who, peer in enumerate(self.peers):
            for frame in peer.take():
                name = frame.get("subscription") or frame.get("receipt-id") or frame.get("message") or ""
                self.got.setdefault((who, frame.command), []).append((name, frame.body))
                if frame.command == "MESSAGE":
                    self.unacked[who].append(frame)
            if peer.closed:
                self.lose(who)

    def lose(self, who):
        self.peers[who].lose()
        self.peers[who] = self.bench.peer()
        self.unacked[who] = []

    def disk(self, faulty=False):
        store = self.bench.store
        if store.job is not None:
            store.faulty = faulty
            store.finish()
            self.look()
            store.faulty = False

    def operation(self, who, what, **headers):
        peer = self.peers[who]
        self.number += 1
        if what[0] == "SEND":
            pairs = {"destination": what[1], "persistent": "true" if what[2] else "false", **headers}
            if what[3]:
                pairs["idempotency-key"] = what[3]
            peer.session.receive(serialize(Frame("SEND", pairs, b"%d" % self.number)), 0.0)
        elif self.unacked[who]:
            frame = self.unacked[who].pop(what[1] % len(self.unacked[who]))
            receive(peer, what[0], id=frame.headers["ack"], **headers)

    def step(self, what, who, rest):
        peer = None if what == "DISK" else self.peers[who]
        if what == "SEND" or what == "SETTLE":
            self.operation(who, rest, receipt="r")
        elif what in ("SUBSCRIBE", "UNSUBSCRIBE"):
            if (what == "SUBSCRIBE") is any(rest == each.destination for each in peer.session.consumers.values()):
                return
            receive(
                peer, what, id=rest, **({} if what[0] == "U" else {"destination": rest, "ack": "client-individual"})
            )
            self.unacked[who] = [frame for frame in self.unacked[who] if frame.headers["subscription"] != rest]
        elif what == "LOSE":
            self.lose(who)
        elif what == "DISK":
            self.disk(who)
        elif what == "COMMIT":
            while self.bench.store.job is not None:  # a batch takes one long transaction
                self.disk()
            receive(self.peers[who], "BEGIN", transaction="t")
            for operation in rest:
                self.operation(who, operation, transaction="t")
            receive(self.peers[who], "COMMIT", transaction="t", receipt="c")
            self.look()
            if any(operation[0] == "SEND" and operation[3] for operation in rest):
                self.disk()  # a short one whose stored messages are all known does not wait for it
        self.look()

    def end(self):
        while self.bench.store.job is not None:
            self.disk()
        stored = [(kept.queue, kept.seq, kept.tail, kept.redelivered) for kept in self.bench.store.load()]
        used = self.bench.broker.account.used
        for who in range(3):
            self.lose(who)
        while self.bench.store.job is not None:
            self.disk()
        left = {name: self.bench.ready(name) for _vhost, name in self.bench.broker.queues}
        keys = sorted((key.key, key.body) for key in self.bench.store.keys())
        assert self.bench.broker.journal.kept == 0
        return self.got, stored, used, left, keys


def play(script, share, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", share)
        play = Play(window)
        for step in script:
            play.step(*step)
        return play.end()


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=20), st.sampled_from([1, 3, 100]))
def test_what_happens_is_the_same_however_large_a_share_is(script, window):
    assert play(script, 2, window) == play(script, 1000, window)


@pytest.mark.usefixtures("small")
def test_a_commit_that_fails_undoes_all_of_it():
    bench = Bench(FaultyStore(background=True))
    used = bench.broker.account.used
    sender, again = bench.peer(), bench.peer()
    begin(sender, COUNT, idempotency_key="k")
    receive(sender, "SEND", b"z", destination=QUEUE, persistent="true", transaction="t", idempotency_key="k")
    receive(sender, "COMMIT", transaction="t", receipt="c")
    bench.turn()
    bench.store.faulty = True
    bench.store.finish()
    bench.turn()
    bench.store.faulty = False
    assert sender.error().headers["message"] == "the message could not be stored"
    assert (bench.ready(), bench.store.bodies, len(bench.broker.sent)) == ([], [], 0)
    assert bench.queue().suspensions == 0
    sender.lose()
    begin(again, COUNT)
    receive(again, "COMMIT", transaction="t", receipt="c")
    bench.turn()
    bench.store.finish()
    bench.turn()
    assert receipts(again) == ["c"]
    assert bench.ready() == NUMBERS
    assert used < bench.broker.account.used


@pytest.mark.usefixtures("small")
def test_each_of_them_has_a_commit_of_its_own():
    bench, written = Bench(FaultyStore(background=True)), []
    peers = [bench.peer() for _ in range(3)]
    for number, peer in enumerate(peers):
        begin(peer, COUNT, f"/queue/{number}")
    for peer in peers:
        receive(peer, "COMMIT", transaction="t", receipt="c")
    for _ in range(50):
        bench.step()
        bench.audit()
        if bench.store.job is not None:
            written.append(len(bench.store.job[0]._puts))
            bench.store.finish()
    assert (written, [receipts(peer) for peer in peers]) == ([COUNT] * 3, [["c"]] * 3)
