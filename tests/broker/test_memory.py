"""One account for all memory that clients take: what is in it, and what happens when it is short."""

import re

import pytest
from broker.audit import audit
from broker.harness import Bench, FaultyStore

from stompcodec.broker.config import Config, parse_config
from stompcodec.broker.memory import MESSAGE, OPERATION
from stompcodec.errors import ConfigError
from stompcodec.spec import Limits

#: Frames are so small that a limit of some KiB is large enough.
SMALL = {"limits": Limits(max_headers=20, max_header_line=500, max_body=20_000), "large": 20_000}


class Small(Bench):
    def __init__(self, store=None, **config):
        super().__init__(store, **{"memory": 400_000, **SMALL, **config})
        self.account = self.broker.account

    def fill_up(self):
        self.account.used += self.account.limit
        self.audit = lambda: None


def fill(sender, destination, size=1000, **headers):
    for _ in range(10_000):
        if sender.session.paused:
            return
        sender.put(destination, b"x" * size, **headers)
    raise AssertionError("nobody made the sender wait")


def test_everything_is_accounted_and_is_free_again_when_everybody_has_gone():
    pytest.importorskip("lark")
    bench = Small(memory=2**24, retain=True)
    account, broker, used = bench.account, bench.broker, 0
    sender, peer = bench.peer(), bench.client(client_id="c")
    picky = {"ack": "client", "prefetch_count": "1", "selector": "a is null"}
    for kind, least, deed in (
        ("subscriptions", 1, lambda: None),
        ("queues", 1, lambda: sender.put("/queue/a", b"x" * 100, persistent="true")),
        ("queues", MESSAGE, lambda: sender.put("/queue/a", b"")),
        ("subscriptions", 1, lambda: peer.subscribe("/topic/t", "t", **picky)),
        ("backlogs", 1, lambda: [sender.put("/topic/t", body) for body in (b"1", b"2")]),
        ("retained", 1, lambda: sender.put("/topic/r", b"x", retain="set")),
        ("delayed", 1, lambda: [sender.put(name, b"x", delay="5000") for name in ("/queue/a", "/topic/t")]),
        ("destinations", 1, lambda: peer.subscribe("/topic/d", "d", durable_subscriber_name="n")),
        ("sessions", 1, lambda: sender.send("BEGIN", transaction="t")),
        ("sessions", OPERATION + 1, lambda: sender.put("/queue/a", b"x", transaction="t")),
        ("sessions", 1, lambda: sender.raw(b"SEND\ndestination:/queue/a\nhalf:of")),
        ("sessions", 1, lambda: peer.session.note_unwritten(1000)),
    ):
        deed()
        assert getattr(audit(broker), kind) > 0, kind
        assert account.used - used >= least
        used = account.used
    sender.lose()
    peer.session.note_unwritten(0)
    peer.take()
    peer.send("UNSUBSCRIBE", id="d", durable_subscriber_name="n")
    peer.send("UNSUBSCRIBE", id="t")
    peer.subscribe("/queue/a", "a")
    bench.later(10)
    assert len(peer.take()) == 3
    other = bench.peer()
    other.put("/topic/r", b"", retain="remove")
    other.lose()
    peer.lose()
    bench.wait(70)
    assert not broker.sessions
    assert (account.used, account.held, account.fixed, sum(audit(broker))) == (0, 0, 0, 0)


@pytest.mark.parametrize("faulty", [False, True])
def test_what_waits_for_the_disk_is_accounted(faulty):
    store = FaultyStore(background=True)
    bench, peer = Small.with_peers(1, store)
    peer.put("/queue/x", b"", persistent="true")
    before = bench.account.used
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", b"x" * 2000, persistent="true", transaction="t")
    peer.send("COMMIT", transaction="t")
    peer.put("/queue/b", b"x" * 1000)
    assert audit(bench.broker).queues < 1000
    assert audit(bench.broker).batches > 3000
    assert bench.account.used - before > 3000
    store.faulty = faulty
    while store.job is not None:
        store.finish()
        bench.turn()
    assert audit(bench.broker).batches == 0


# ---- the first mark: senders wait ----
def test_the_sender_to_the_largest_queue_waits_and_others_go_on():
    bench, large, small, consumer, other = Small.with_peers(4)
    consumer.subscribe("/queue/small", ack="client-individual")
    fill(large, "/queue/large")
    assert bench.account.first < bench.account.used < bench.account.second
    for number in range(100):
        small.put("/queue/small", b"%d" % number)
        assert not small.session.paused
        consumer.ack(consumer.next("MESSAGE"))
    other.subscribe("/queue/large")
    assert not large.session.paused


def test_a_little_memory_that_is_free_again_is_noticed_within_a_second():
    bench, large, small, holder = Small.with_peers(3)
    small.put("/queue/small", b"x" * 100)
    fill(large, "/queue/large")
    holder.session.note_unwritten(bench.account.second - bench.account.used - 100)
    small.put("/queue/small", b"x")
    assert small.session.paused
    step = 2000  # less than a hundredth of the limit
    holder.session.note_unwritten(holder.session.memory.unwritten - step)
    bench.turn()
    assert small.session.paused
    bench.wait(1.5)
    assert not small.session.paused


def test_one_that_waits_for_memory_is_read_again_when_it_gets_something_to_acknowledge():
    """Else its ACKs, which nobody reads, would be what all wait for."""
    bench, sender, worker = Small.with_peers(2)
    worker.subscribe("/queue/work", ack="client-individual")
    fill(worker, "/queue/large")
    sender.put("/queue/work", b"x")
    message = worker.next("MESSAGE")
    assert not worker.session.paused
    worker.ack(message)
    assert bench.queue("/queue/work").count == 0


@pytest.mark.parametrize("command", ["ACK", "NACK", "ABORT", "UNSUBSCRIBE", "DISCONNECT", "COMMIT"])
def test_what_frees_memory_is_never_refused(command):
    bench, peer, sender = Small.with_peers(2)
    sender.put("/queue/mine", b"x" * 100)
    peer.subscribe("/queue/mine", ack="client-individual")
    message = peer.next("MESSAGE")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/mine", b"x" * 100, transaction="t")
    fill(sender, "/queue/large")
    bench.fill_up()
    names = {"id": message.headers["ack"]} if "ACK" in command else {"id": "1"} if command[0] == "U" else {}
    if command == "COMMIT":  # it would add to a queue that the peer itself consumes
        peer.ack(message)
        peer.send("UNSUBSCRIBE", id="1")
    peer.send(command, receipt="r", **names, **({"transaction": "t"} if command in ("ABORT", "COMMIT") else {}))
    assert "r" in [frame.get("receipt-id") for frame in peer.take()]
    assert peer.closed is (command == "DISCONNECT")


@pytest.mark.parametrize("policy", ["disconnect", "drop", "block"])
def test_the_backlog_of_a_slow_subscriber_gives_way(policy):
    bench, slow, quick, sender = Small.with_peers(3, slow_consumer=policy)
    slow.subscribe("/topic/a", ack="client", prefetch_count="1")
    quick.subscribe("/topic/a")
    for _ in range(600):
        if not (slow.closed or sender.session.paused):
            sender.put("/topic/a", b"x" * 1000)
            quick.take()
    assert bench.account.used < bench.account.second
    assert sender.session.paused is (policy == "block")
    assert slow.closed is (policy == "disconnect")
    if slow.closed:
        assert slow.error().headers["message"] == "slow consumer"


def test_delayed_messages_for_topics_make_their_senders_wait():
    bench, listener, sender = Small.with_peers(2)
    listener.subscribe("/topic/a")
    fill(sender, "/topic/a", delay="5000")
    assert bench.account.used < bench.account.second
    bench.later(10)
    assert not sender.session.paused
    assert len(listener.bodies()) > 50


# ---- the second mark: the session that holds most is ended ----
def test_the_one_that_holds_most_is_ended_and_nobody_else():
    bench, *peers = Small.with_peers(4)
    for peer in peers:
        peer.session.note_unwritten(0)
        peer.send("BEGIN", transaction="t")
    while not any(peer.closed for peer in peers):
        for peer, size in zip(peers, (100, 100, 900, 100)):
            if not peers[2].closed:
                peer.put("/queue/a", b"x" * size, transaction="t")
        assert bench.account.held <= bench.account.most_held
    assert [peer.closed for peer in peers] == [False, False, True, False]
    error = peers[2].error()
    assert error.headers["message"] == "the broker is short of memory"
    assert all(re.search(each, error.text()) for each in (r"\d+ bytes", r"limits\.memory", "open transactions"))
    peers[0].send("COMMIT", transaction="t", receipt="r")
    assert peers[0].take()[-1].headers["receipt-id"] == "r"


def test_one_that_does_not_read_is_cut_off():
    bench, reader, slow = Small.with_peers(2)
    slow.session.note_unwritten(bench.account.most_held - 100)
    assert not slow.session.closing
    slow.session.note_unwritten(bench.account.most_held + 100)
    reader.send("BEGIN", transaction="t")
    assert slow.session.closing
    assert slow.session.hopeless
    assert not reader.closed
    assert bench.account.held < bench.account.most_held
    slow.lose()


def test_sessions_may_hold_something_however_full_the_queues_are():
    """A backlog that was stored may be more than the limit: it can be consumed nevertheless."""
    bench = Small()
    bench.fill_up()

    def begin(peer, lines):
        peer.raw(b"SEND\n" + b"".join(b"%d:%b\n" % (number, b"x" * 400) for number in range(lines)))
        return not peer.closed

    assert begin(bench.peer(), 8)
    others = [bench.peer() for _ in range(16)]
    for other in others:
        begin(other, 15)
    assert any(other.closed for other in others)


def test_subscriptions_leave_room_for_others():
    bench, other, greedy, *peers = Small.with_peers(8, max_subscriptions=10_000)

    def subscribe(peer):
        for number in range(1000):
            if not peer.closed:
                peer.subscribe("/queue/a", f"{number}{'i' * 200}")

    subscribe(greedy)
    assert greedy.error().headers["message"] == "no memory for another subscription"
    for peer in peers:
        subscribe(peer)
    assert bench.account.fixed <= bench.account.most_fixed
    other.put("/queue/b", b"x")
    assert not other.closed
    for peer in peers:
        peer.lose()


def test_connections_are_refused_when_there_is_no_memory_for_them():
    bench = Small()
    peers = [bench.peer(connect=False) for _ in range(200)]
    for peer in peers:
        peer.flush()
    refused = [peer for peer in peers if peer.inbox]
    assert 0 < len(refused) < 200
    assert refused[0].error().headers["message"] == "too many connections"


def test_a_limit_has_room_for_one_frame():
    limits = SMALL["limits"]
    least = limits.max_command_line + limits.max_headers * (limits.max_header_line + 2) + limits.max_body + 5
    assert Config(memory=least, **SMALL).memory == least
    with pytest.raises(ConfigError, match=f"at least {least} bytes"):
        Config(memory=least - 1, **SMALL)
    Config(memory=64 * 2**20)
    with pytest.raises(ConfigError, match=r"line 2: limits\.memory: it must be at least"):
        parse_config('[limits]\nmemory = "1 MiB"\n')


def test_senders_go_on_when_memory_is_free_again_though_their_own_queue_is_as_it_was():
    bench, large, small, holder = Small.with_peers(3)
    for _ in range(10):
        small.put("/queue/small", b"x" * 1000)
    fill(large, "/queue/large")
    holder.session.note_unwritten(bench.account.second - bench.account.used - 5000)
    small.put("/queue/small", b"x")
    assert small.session.paused
    holder.session.note_unwritten(0)
    bench.turn()
    assert not small.session.paused
    bench.wait(2)
    assert not small.session.paused
    assert large.session.paused
