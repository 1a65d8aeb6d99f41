"""One account for all memory that clients take: what is in it, and what happens when it is short."""

import re

import pytest
from broker.audit import audit, difference
from broker.harness import Bench, FaultyStore

from stompcodec.broker.config import Config, parse_config
from stompcodec.broker.memory import MESSAGE, OPERATION, Account, Part
from stompcodec.errors import ConfigError
from stompcodec.spec import Limits

#: Frames are so small that a limit of some KiB is large enough.
SMALL = {"limits": Limits(max_headers=20, max_header_line=500, max_body=20_000), "large": 20_000}


def bench_of(memory=400_000, store=None, **config):
    return Bench(store, memory=memory, **{**SMALL, **config})


def fill(sender, destination, size=1000, most=10_000):
    """Send until the sender is made to wait. Returns how many messages that were."""
    for count in range(most):
        if sender.session.paused:
            return count
        sender.put(destination, b"x" * size)
    raise AssertionError("nobody made the sender wait")


# ---- the account ----


def test_marks_are_in_order_and_a_part_is_charged_to_the_account():
    for limit in (1000, 2**20, 2**26, 2**27, 2**30, 2**40):
        account = Account(limit)
        assert 0 < account.reserve < account.first < account.second < limit
    part = Part(account, 100)
    part.used += 60
    part.used -= 20
    assert (account.used, part.used) == (40, 40)


def test_everything_is_accounted_and_is_free_again_when_everybody_has_gone():
    pytest.importorskip("lark")
    bench = bench_of(memory=2**24, retain=True)
    account, broker = bench.broker.account, bench.broker
    seen = [0]

    def grew(kind):
        assert difference(broker) == {}
        assert getattr(audit(broker), kind) > 0, kind
        assert account.used > seen[-1]
        seen.append(account.used)

    sender, peer = bench.peer(), bench.peer(connect=False)
    peer.connect(client_id="c")
    grew("subscriptions")
    sender.put("/queue/a", b"x" * 100, persistent="true")
    grew("queues")
    grew_by = account.used
    sender.put("/queue/a", b"")
    assert account.used - grew_by >= MESSAGE
    seen.append(account.used)
    peer.subscribe("/topic/t", "t", ack="client", prefetch_count="1", selector="a is null")
    sender.put("/topic/t", b"1")
    sender.put("/topic/t", b"2")
    grew("backlogs")
    sender.put("/topic/r", b"x", retain="set")
    grew("retained")
    sender.put("/queue/a", b"x", delay="5000")
    sender.put("/topic/t", b"x", delay="5000")
    grew("delayed")
    peer.subscribe("/topic/d", "d", durable_subscriber_name="n")
    grew("destinations")
    sender.send("BEGIN", transaction="t")
    grew("sessions")
    sender.put("/queue/a", b"x", transaction="t")
    assert account.used - seen[-1] > OPERATION
    seen.append(account.used)
    sender.raw(b"SEND\ndestination:/queue/a\nhalf:of")
    grew("sessions")
    peer.session.note_unwritten(1000)
    grew("sessions")
    sender.lose()
    assert difference(broker) == {}
    peer.session.note_unwritten(0)
    peer.take()
    peer.send("UNSUBSCRIBE", id="d", durable_subscriber_name="n")
    peer.send("UNSUBSCRIBE", id="t")
    peer.subscribe("/queue/a", "a")
    bench.date += 10
    bench.wait(10)
    bench.turn()
    assert len(peer.take()) == 3
    other = bench.peer()
    other.put("/topic/r", b"", retain="remove")
    other.lose()
    peer.lose()
    bench.wait(70)
    assert not broker.sessions
    assert (account.used, account.held, account.fixed, sum(audit(broker))) == (0, 0, 0, 0)


@pytest.mark.parametrize("end", ["finish", "lose", "error"])
@pytest.mark.parametrize("large", [1000, 20_000])
def test_an_unfinished_frame_is_accounted_as_long_as_it_is_unfinished(end, large):
    """Of a large message, its head, while its body goes to a file."""
    bench = bench_of(large=large)
    peer = bench.peer()
    account = bench.broker.account
    before = account.used
    frame = b"SEND\ndestination:/topic/nobody\na:%b\ncontent-length:1000\n\n%b\0" % (b"h" * 300, b"x" * 1000)
    least = 0
    for at in range(0, len(frame) - 1, 100):
        peer.raw(frame[at : at + 100][: len(frame) - 1 - at])
        in_memory = min(at + 100, len(frame) - 1) if large > 1000 else min(at + 100, 300)
        assert account.used - before >= in_memory >= least
        assert account.held == account.used - before
        least = in_memory
    if end == "finish":
        peer.raw(frame[-1:])
    elif end == "error":
        peer.raw(b"x")
        assert peer.closed
    else:
        peer.lose()
    assert account.held == 0
    assert difference(bench.broker) == {}


@pytest.mark.parametrize("faulty", [False, True])
def test_what_waits_for_the_disk_is_accounted(faulty):
    """Behind a transaction that is being stored, and in it, messages are in no queue."""
    store = FaultyStore(background=True)
    bench = bench_of(store=store)
    peer = bench.peer()
    peer.put("/queue/x", b"", persistent="true")
    account, before = bench.broker.account, bench.broker.account.used
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", b"x" * 2000, persistent="true", transaction="t")
    peer.send("COMMIT", transaction="t")
    peer.put("/queue/b", b"x" * 1000)
    assert audit(bench.broker).queues < 1000
    assert audit(bench.broker).batches > 3000
    assert account.used - before > 3000
    store.faulty = faulty
    while store.job is not None:
        store.finish()
        bench.turn()
    assert audit(bench.broker).batches == 0
    assert difference(bench.broker) == {}


# ---- the first mark: senders wait ----


def test_the_sender_to_the_largest_queue_waits_and_others_go_on():
    bench = bench_of()
    account, large, small = bench.broker.account, bench.peer(), bench.peer()
    consumer = bench.peer()
    consumer.subscribe("/queue/small", ack="client-individual")
    fill(large, "/queue/large")
    assert account.first < account.used < account.second
    for number in range(100):
        small.put("/queue/small", b"%d" % number)
        assert not small.session.paused
        consumer.ack(consumer.next("MESSAGE"))
    other = bench.peer()
    other.subscribe("/queue/large")
    assert not large.session.paused
    assert difference(bench.broker) == {}


def test_senders_go_on_when_memory_is_free_again_though_their_own_queue_is_as_it_was():
    bench = bench_of()
    large, small = bench.peer(), bench.peer()
    for _ in range(10):
        small.put("/queue/small", b"x" * 1000)
    fill(large, "/queue/large")
    holder = bench.peer()
    holder.session.note_unwritten(bench.broker.account.second - bench.broker.account.used - 5000)
    small.put("/queue/small", b"x")
    assert small.session.paused
    holder.session.note_unwritten(0)
    bench.turn()
    small_is_free = not small.session.paused
    bench.wait(2)
    assert small_is_free
    assert not small.session.paused
    assert large.session.paused


def test_a_little_memory_that_is_free_again_is_noticed_within_a_second():
    bench = bench_of()
    large, small = bench.peer(), bench.peer()
    small.put("/queue/small", b"x" * 100)
    fill(large, "/queue/large")
    account, holder = bench.broker.account, bench.peer()
    holder.session.note_unwritten(account.second - account.used - 100)
    small.put("/queue/small", b"x")
    assert small.session.paused
    step = 2000  # less than a hundredth of the limit
    holder.session.note_unwritten(holder.session.memory.unwritten - step)
    bench.turn()
    assert small.session.paused
    bench.wait(1.5)
    assert not small.session.paused


def test_whose_acks_make_room_is_read():
    """It is not made to wait; with its ACKs the other one goes on."""
    bench = bench_of()
    sender, worker = bench.peer(), bench.peer()
    worker.subscribe("/queue/a", ack="client-individual", prefetch_count="0")
    fill(sender, "/queue/a")
    messages = worker.take()
    worker.put("/queue/results", b"x" * 100)
    assert not worker.session.paused
    for message in messages:
        worker.ack(message)
    assert not worker.closed
    assert not sender.session.paused
    assert difference(bench.broker) == {}


def test_one_that_waits_for_memory_is_read_again_when_it_gets_something_to_acknowledge():
    """Else its ACKs, which nobody reads, would be what all wait for."""
    bench = bench_of()
    sender, worker = bench.peer(), bench.peer()
    worker.subscribe("/queue/work", ack="client-individual")
    fill(worker, "/queue/large")
    sender.put("/queue/work", b"x")
    message = worker.next("MESSAGE")
    assert not worker.session.paused
    worker.ack(message)
    assert bench.broker.queues["/", "/queue/work"].count == 0


@pytest.mark.parametrize("command", ["ACK", "NACK", "ABORT", "UNSUBSCRIBE", "DISCONNECT", "COMMIT"])
def test_what_frees_memory_is_never_refused(command):
    bench = bench_of()
    peer, sender = bench.peer(), bench.peer()
    sender.put("/queue/mine", b"x" * 100)
    peer.subscribe("/queue/mine", ack="client-individual")
    message = peer.next("MESSAGE")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/mine", b"x" * 100, transaction="t")
    fill(sender, "/queue/large")
    bench.broker.account.used += bench.broker.account.limit  # there is nothing left at all
    frames = {
        "ACK": {"id": message.headers["ack"]},
        "NACK": {"id": message.headers["ack"]},
        "ABORT": {"transaction": "t"},
        "COMMIT": {"transaction": "t"},
        "UNSUBSCRIBE": {"id": "1"},
        "DISCONNECT": {},
    }
    bench.audit = lambda: None
    if command == "COMMIT":  # it would add to a queue that the peer itself consumes
        peer.ack(message)
        peer.send("UNSUBSCRIBE", id="1")
    peer.send(command, receipt="r", **frames[command])
    assert "r" in [frame.get("receipt-id") for frame in peer.take()]
    assert peer.closed is (command == "DISCONNECT")


@pytest.mark.parametrize("policy", ["disconnect", "drop", "block"])
def test_the_backlog_of_a_slow_subscriber_gives_way(policy):
    bench = bench_of(slow_consumer=policy)
    slow, quick, sender = bench.peer(), bench.peer(), bench.peer()
    slow.subscribe("/topic/a", ack="client", prefetch_count="1")
    quick.subscribe("/topic/a")
    for _ in range(600):
        if not (slow.closed or sender.session.paused):
            sender.put("/topic/a", b"x" * 1000)
            quick.take()
    assert bench.broker.account.used < bench.broker.account.second
    assert sender.session.paused is (policy == "block")
    assert slow.closed is (policy == "disconnect")
    if slow.closed:
        assert slow.error().headers["message"] == "slow consumer"
    assert difference(bench.broker) == {}


def test_delayed_messages_for_topics_make_their_senders_wait():
    bench = bench_of()
    listener, sender = bench.peer(), bench.peer()
    listener.subscribe("/topic/a")
    for _ in range(1000):
        if sender.session.paused:
            break
        sender.put("/topic/a", b"x" * 1000, delay="5000")
    assert sender.session.paused
    assert bench.broker.account.used < bench.broker.account.second
    bench.date += 10
    bench.wait(10)
    assert not sender.session.paused
    assert len(listener.bodies()) > 50
    assert difference(bench.broker) == {}


# ---- the second mark: the session that holds most is ended ----


def begin(peer, count, size=400):
    """An unfinished frame of so many header lines."""
    peer.raw(b"SEND\n" + b"".join(b"%d:%b\n" % (n, b"x" * size) for n in range(count)))


def test_the_one_that_holds_most_is_ended_and_nobody_else():
    bench = bench_of()
    account = bench.broker.account
    peers = [bench.peer() for _ in range(4)]
    for peer in peers:
        peer.session.note_unwritten(0)
        peer.send("BEGIN", transaction="t")
    while not any(peer.closed for peer in peers):
        for peer, size in zip(peers, (100, 100, 900, 100)):
            if not peers[2].closed:
                peer.put("/queue/a", b"x" * size, transaction="t")
        assert account.held <= account.most_held
    assert [peer.closed for peer in peers] == [False, False, True, False]
    error = peers[2].error()
    assert error.headers["message"] == "the broker is short of memory"
    assert re.search(rb"\d+ bytes", error.body)
    assert b"limits.memory" in error.body
    assert b"open transactions" in error.body
    peers[0].send("COMMIT", transaction="t", receipt="r")
    assert peers[0].take()[-1].headers["receipt-id"] == "r"
    assert difference(bench.broker) == {}


def test_one_that_does_not_read_is_cut_off():
    bench = bench_of()
    account = bench.broker.account
    reader, slow = bench.peer(), bench.peer()
    slow.session.note_unwritten(account.most_held - 100)
    assert not slow.session.closing
    slow.session.note_unwritten(account.most_held + 100)
    reader.send("BEGIN", transaction="t")
    assert slow.session.closing
    assert slow.session.hopeless
    assert not reader.closed
    assert account.held < account.most_held
    slow.lose()
    assert difference(bench.broker) == {}


def test_sessions_may_hold_something_however_full_the_queues_are():
    """A backlog that was stored may be more than the limit: it can be consumed nevertheless."""
    bench = bench_of()
    bench.broker.account.used += bench.broker.account.limit
    bench.audit = lambda: None
    peer = bench.peer()
    begin(peer, 8)
    assert not peer.closed
    peers = [bench.peer() for _ in range(16)]
    for other in peers:
        begin(other, 15)
    assert any(other.closed for other in peers)


def test_subscriptions_leave_room_for_others():
    bench = bench_of(max_subscriptions=10_000)
    account = bench.broker.account
    greedy, other = bench.peer(), bench.peer()
    for number in range(1000):
        greedy.subscribe("/queue/a", f"{number}{'i' * 200}")
        if greedy.closed:
            break
    assert greedy.error().headers["message"] == "no memory for another subscription"
    assert difference(bench.broker) == {}
    peers = [bench.peer() for _ in range(6)]
    for peer in peers:
        for number in range(1000):
            if not peer.closed:
                peer.subscribe("/queue/a", f"{number}{'i' * 200}")
    assert account.fixed <= account.most_fixed
    other.put("/queue/b", b"x")
    assert not other.closed
    for peer in peers:
        peer.lose()
    assert difference(bench.broker) == {}


def test_connections_are_refused_when_there_is_no_memory_for_them():
    bench = bench_of()
    peers = [bench.peer(connect=False) for _ in range(200)]
    for peer in peers:
        peer.flush()
    refused = [peer for peer in peers if peer.inbox]
    assert 0 < len(refused) < 200
    assert refused[0].error().headers["message"] == "too many connections"
    assert difference(bench.broker) == {}


# ---- the key ----


def test_a_limit_has_room_for_one_frame():
    limits = SMALL["limits"]
    least = limits.max_command_line + limits.max_headers * (limits.max_header_line + 2) + limits.max_body + 4
    assert Config(memory=least, **SMALL).memory == least
    with pytest.raises(ConfigError, match=f"at least {least} bytes"):
        Config(memory=least - 1, **SMALL)
    Config(memory=64 * 2**20)
    with pytest.raises(ConfigError, match=r"line 2: limits\.memory: it must be at least"):
        parse_config('[limits]\nmemory = "1 MiB"\n')
