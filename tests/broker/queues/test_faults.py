"""A message that cannot be written to a consumer ends that consumer's session: never the sender, the turn or another
consumer. The message stays where it was."""

import contextlib
import os

import pytest
from broker.fault_hook import FaultHook
from broker.harness import Bench, FaultyStore
from broker.sockets import Client, run, send, subscribe

from stompcodec import Parser
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.sessions.session import Session

QUEUE = "/queue/a"
NAMES = ("ada", "bob", "eve", "joe")
USERS = {name: User(name, hash_passcode("guest", n=16)) for name in NAMES}
RECEIVE = b"RECEIVE\ndestination:/queue/a\n\n\0"


def legacy(bench, **options):
    peer = bench.peer("legacy", connect=False, listener="legacy", **options)
    peer.raw(b"CONNECT\nusername:guest\npasscode:guest\n\n\0")
    peer.next("CONNECTED")
    return peer


def peer_of(bench, version, **options):
    return legacy(bench, **options) if version == "legacy" else bench.peer(version, **options)


def seqs(*numbers):
    """Messages of these numbers cannot be written to sessions of 1.1."""
    return lambda consumer, seq: consumer.version == "1.1" and seq in numbers


def sent(sender):
    """Everything was received: there is a RECEIPT for each SEND, and nothing else."""
    frames = sender.take()
    assert all(frame.command == "RECEIPT" for frame in frames), frames
    return len(frames)


@pytest.fixture(autouse=True)
def hook():
    with FaultHook() as hook:
        yield hook


# ---- what a version cannot write is refused at SUBSCRIBE ----


@pytest.mark.parametrize("command", ["SUBSCRIBE", "RECEIVE"])
@pytest.mark.parametrize(
    ("version", "name"),
    [
        *(("1.0", name) for name in ("s:eq", "a:")),
        *(("legacy", name) for name in ("Content-Length", "MESSAGE-ID", "Destination", "Subscription")),
    ],
)
def test_a_name_that_the_version_cannot_write_is_refused(command, version, name):
    bench = Bench()
    peer, sender = peer_of(bench, version), bench.peer()
    lines = f"{command}\ndestination:{QUEUE}\nid:1\ninclude-seq:{name}\nreceipt:r\n\n\0"
    peer.raw(lines.encode())
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("bad include-seq", "r")
    assert version in error.body.decode() or name in error.body.decode()
    sender.put(QUEUE, "1", receipt="1")
    assert sent(sender) == 1


# ---- what a sender writes cannot hurt a consumer of another dialect ----


@pytest.mark.parametrize("name", ["Message-Id", "Subscription", "ACK", "Redelivered", "Destination", "Receipt"])
def test_no_sender_forges_a_header_by_its_case(name):
    bench = Bench()
    consumer, sender = legacy(bench), bench.peer()
    consumer.subscribe(QUEUE, id="1")
    sender.put(QUEUE, "1", **{name: "forged", "Other": "kept"})
    message = consumer.next("MESSAGE")
    assert "forged" not in [value for _name, value in message.headers.pairs()]
    assert (message.headers["destination"], message.headers["other"]) == (QUEUE, "kept")


# ---- whatever raises ends that session, and no other ----


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("whole_frames", [False, True])
@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_session_ends_and_the_message_stays(hook, ack, whole_frames, backlog, persistent, caplog):
    bench = Bench()
    sender = bench.peer()
    headers = {"persistent": "true"} if persistent else {}

    def send(*bodies):
        for body in bodies:
            sender.put(QUEUE, body, receipt=body, **headers)

    with hook.when(lambda consumer, seq: seq == 2 and consumer.session is bad.session):
        if backlog:
            send("1", "2", "3")
        bad = bench.peer("1.2", whole_frames=whole_frames)
        bad.subscribe(QUEUE, ack=ack)
        if not backlog:
            send("1", "2", "3")
    assert len(hook.faults) == 1
    assert sent(sender) == 3
    first, error = bad.take()
    assert (first.body, error.command) == (b"1", "ERROR")
    assert error.headers["message"] == "a message could not be written"
    assert bad.closed
    assert [record.levelname for record in caplog.records if record.levelno > 20] == ["ERROR"]
    assert "e-2" in caplog.text
    left = ["2", "3"] if ack == "auto" else ["1", "2", "3"]
    queue = bench.broker.queues["/", QUEUE]
    assert [message.frame.body.decode() for message in queue.messages] == left
    assert [message.attempts for message in queue.messages] == [0, 0] if ack == "auto" else [1, 0, 0]
    assert queue.count == len(left)
    assert queue.octets == bench.octets == sum(message.size for message in queue.messages)
    assert len(list(bench.store.load())) == (len(left) if persistent else 0)
    # The pair of its user and version gets what stands behind it, and others get it.
    again = bench.peer("1.2")
    again.subscribe(QUEUE, ack=ack)
    assert again.bodies() == [body.encode() for body in left if body != "2"]
    other = bench.peer("1.1")
    other.subscribe(QUEUE)
    message = other.next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (b"2", None)


def test_the_message_goes_to_the_next_consumer_at_once(hook):
    bench = Bench()
    sender, bad, good = bench.peer(), bench.peer("1.1"), bench.peer("1.2")
    bad.subscribe(QUEUE)
    good.subscribe(QUEUE)
    with hook.when(seqs(1)):
        for body in "123":
            sender.put(QUEUE, body, receipt=body)
    assert sent(sender) == 3
    assert bad.error()
    assert good.bodies() == [b"1", b"2", b"3"]
    bench.turn()
    queue = bench.broker.queues["/", QUEUE]
    assert (queue.dispatcher, queue.count) == (None, 0)


def test_many_messages_of_one_turn(hook):
    bench = Bench()
    sender, bad, good = bench.peer(), bench.peer("1.1"), bench.peer("1.2")
    for peer in (bad, good):
        peer.subscribe("/topic/t")
    octets = b"".join(sender.octets_of("SEND", b"%d" % n, destination="/topic/t", receipt=str(n)) for n in range(9))
    with hook.when(seqs(3)):
        sender.raw(octets)
    assert sent(sender) == 9
    assert bad.error()
    assert good.bodies() == [b"%d" % n for n in range(9)]


def test_receive_is_answered_by_error_alone(hook):
    bench = Bench()
    sender = bench.peer()
    for body in "12":
        sender.put(QUEUE, body)
    bad = bench.peer("1.1")
    with hook.when(seqs(1)):
        bad.raw(b"RECEIVE\ndestination:/queue/a\nreceipt:r\n\n\0")
    frames = bad.take()
    assert [(frame.command, frame.get("receipt-id")) for frame in frames] == [("ERROR", "r")]
    again = bench.peer("1.1")
    again.parser = Parser("1.1", commands=("EMPTY",))
    again.raw(RECEIVE)
    assert again.bodies() == [b"2"]
    again.raw(RECEIVE)
    assert again.next("EMPTY")
    other = bench.peer("1.2")
    other.raw(RECEIVE)
    assert other.bodies() == [b"1"]


@pytest.mark.parametrize("window", [1, 100])
def test_a_browser_is_ended_and_then_passes_it_over(hook, window):
    bench = Bench(window_messages=window)
    sender = bench.peer()
    for body in "123":
        sender.put(QUEUE, body, persistent="true")
    bad = bench.peer("1.1")
    with hook.when(seqs(2)):
        bad.subscribe(QUEUE, browser="true")
    assert [frame.command for frame in bad.take()] == ["MESSAGE", "ERROR"]
    again, other = bench.peer("1.1"), bench.peer("1.2")
    for peer in (again, other):
        peer.subscribe(QUEUE, browser="true")
    assert [frame.body for frame in again.take()] == [b"1", b"3", b""]
    assert [frame.body for frame in other.take()] == [b"1", b"2", b"3", b""]
    assert bench.broker.queues["/", QUEUE].total == 3


def test_the_owner_of_a_group_that_may_not_have_a_message_does_not_keep_it_from_others(hook):
    bench = Bench()
    sender, bad = bench.peer(), bench.peer("1.1")
    bad.subscribe(QUEUE)
    with hook.when(seqs(1)):
        sender.put(QUEUE, "1", JMSXGroupID="g")
    assert bad.error()
    owner = bench.peer("1.1")
    owner.subscribe(QUEUE)
    sender.put(QUEUE, "2", JMSXGroupID="g")
    assert owner.bodies() == [b"2"]
    other = bench.peer("1.2")
    other.subscribe(QUEUE)
    assert other.bodies() == [b"1"]
    sender.put(QUEUE, "3", JMSXGroupID="g")
    assert (owner.bodies(), other.bodies()) == ([b"3"], [])


def test_an_exclusive_consumer_that_may_not_have_a_message_does_not_keep_it_from_others(hook):
    bench = Bench()
    sender, bad, holder, other = bench.peer(), bench.peer("1.1"), bench.peer("1.1"), bench.peer("1.2")
    other.subscribe(QUEUE)
    for peer in (bad, holder):
        peer.subscribe(QUEUE, exclusive="true")
    with hook.when(seqs(1)):
        sender.put(QUEUE, "1")
    assert bad.error()
    sender.put(QUEUE, "2")
    assert (holder.bodies(), other.bodies()) == ([b"2"], [b"1"])


# ---- other things that can raise ----


def test_a_selector_that_fails_matches_nothing_and_hurts_nobody(caplog):
    pytest.importorskip("lark")
    bench = Bench()
    sender, bad, durable, good = bench.peer(), bench.peer(), bench.peer(connect=False), bench.peer()
    bad.subscribe(QUEUE, selector="a = 'b'")
    durable.connect(client_id="c")
    durable.subscribe("/topic/t", durable_subscriber_name="d", selector="a = 'b'")
    good.subscribe("/topic/t")

    def condition(_head, _message, _known):
        raise RecursionError

    (consumer,) = bad.session.consumers.values()
    (own,) = durable.session.consumers.values()
    plain, consumer.selector._condition = consumer.selector._condition, condition
    try:
        assert own.durable.selector is consumer.selector
        for destination in (QUEUE, "/topic/t"):
            for _ in range(3):
                sender.put(destination, "1", a="b", receipt="1")
    finally:
        consumer.selector._condition, consumer.selector._failed = plain, False
    assert sent(sender) == 6
    assert len(good.bodies()) == 3
    assert (bad.take(), durable.take()) == ([], [])
    assert len([record for record in caplog.records if record.levelno > 20]) == 1


@pytest.mark.parametrize("ack", ["auto", "client"])
@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_large_body_that_cannot_be_read(ack, damage):
    bench = Bench(large=64)
    sender, bad = bench.peer(), bench.peer()
    sender.put(QUEUE, "x" * 100, persistent="true", receipt="1")
    assert sent(sender) == 1
    (message,) = bench.broker.queues["/", QUEUE].messages
    if damage == "missing":
        os.rename(message.body.path, f"{message.body.path}-away")
    else:
        os.truncate(message.body.path, 99)
    bad.subscribe(QUEUE, ack=ack)
    assert bad.error().headers["message"] == "a message could not be written"
    (message,) = bench.broker.queues["/", QUEUE].messages
    assert (message.attempts, len(list(bench.store.load()))) == (0, 1)
    if damage == "missing":
        os.rename(f"{message.body.path}-away", message.body.path)
        other = bench.peer("1.1")
        other.subscribe(QUEUE)
        assert other.bodies() == [b"x" * 100]
    assert sent(sender) == 0


def test_a_large_body_that_cannot_be_read_to_its_end_is_no_attempt():
    bench = Bench(large=64)
    sender, bad = bench.peer(), bench.peer()
    sender.put(QUEUE, "x" * 10**6, receipt="1")
    assert sent(sender) == 1
    bad.reading = False
    bad.subscribe(QUEUE, ack="client")
    (message,) = bad.session.consumers["id:1"].unacked.values()
    os.truncate(message.body.path, 500_000)
    bad.reading = True
    for _ in range(10):
        bad.session.outbox.schedule_flush()
        bench.turn()
    assert bad.closed
    bad.lose()
    (message,) = bench.broker.queues["/", QUEUE].messages
    assert (message.attempts, message.faults) == (0, {("", "1.2")})


def test_a_fault_while_the_shell_writes_ends_that_connection_alone(monkeypatch, caplog):
    async def main(server):
        peers = [await Client.connect(server) for _ in range(3)]
        for peer in peers:
            assert (await peer.ask(subscribe("/topic/t"))).command == "RECEIPT"
        bad = peers[0].session_id
        plain = Session.take_output
        monkeypatch.setattr(Session, "take_output", lambda session: 1 / 0 if session.id == bad else plain(session))
        peers[2].send(send("/topic/t", "hi", "receipt:s"))
        assert (await peers[2].frame()).headers["receipt-id"] == "s"
        assert [(await peer.frame()).body for peer in peers[1:]] == [b"hi", b"hi"]
        with contextlib.suppress(ConnectionError):
            assert await peers[0].rest() == []
        assert bad not in server.broker.sessions
        for peer in peers:
            await peer.close()

    run(main)
    assert "cannot be written to, the connection ends" in caplog.text


def user(bench, name, version="1.2"):
    peer = bench.peer(version, connect=False)
    peer.connect(login=name)
    return peer


# ---- dead letters ----


def test_three_users_make_a_dead_letter(hook):
    bench = Bench(users=USERS, max_attempts=1)
    sender = user(bench, "joe")
    for body in "12":
        sender.put(QUEUE, body, persistent="true")
    with hook.when(lambda consumer, seq: seq == 1):
        for name, version in (("ada", "1.0"), ("ada", "1.1"), ("ada", "1.2"), ("bob", "1.2"), ("ada", "1.2")):
            assert bench.broker.queues["/", QUEUE].count == 2
            peer = user(bench, name, version)
            peer.subscribe(QUEUE, ack="client")
            peer.lose()
        assert ("/", "/queue/DLQ.a") not in bench.broker.queues
        eve = user(bench, "eve")
        eve.subscribe(QUEUE)
        assert eve.error()
    assert bench.broker.queues["/", QUEUE].count == 1
    sender.subscribe("/queue/DLQ.a")
    letter = sender.next("MESSAGE")
    headers = letter.headers
    assert (letter.body, headers["dead-letter-reason"], headers["original-message-id"]) == (
        b"1",
        "undeliverable",
        "e-1",
    )
    assert (headers["original-destination"], headers["dead-letter-attempts"]) == (QUEUE, "0")
    sender.subscribe(QUEUE, id="2")
    assert sender.bodies() == [b"2"]
    assert not list(bench.store.load())


@pytest.mark.parametrize("failed", [False, True])
def test_one_that_failed_and_expires_is_a_dead_letter(hook, failed):
    bench = Bench()
    sender = bench.peer()
    sender.put(QUEUE, "1", expiration="5000")
    if failed:
        with hook.when(seqs(1)):
            bench.peer("1.1").subscribe(QUEUE)
    bench.wait(1)
    bench.date += 10
    bench.wait(60)
    letters = bench.broker.queues.get(("/", "/queue/DLQ.a"))
    if failed:
        (letter,) = letters.messages
        assert letter.frame.headers["dead-letter-reason"] == "undeliverable"
    else:
        assert letters is None
    assert bench.octets == (letter.size if failed else 0)


def test_no_room_for_the_dead_letter(hook):
    """The message stays, nobody is offered it who has failed; it goes when there is room."""
    bench = Bench(users=USERS, max_queue_messages=1)
    sender = user(bench, "joe")
    for body in "xy":
        sender.put("/queue/DLQ.a", body)
    sender.put(QUEUE, "1", receipt="1")
    with hook.when(lambda consumer, seq: seq == 3):
        for name in NAMES[:3]:
            user(bench, name).subscribe(QUEUE)
        assert bench.broker.queues["/", QUEUE].count == 1
        bench.wait(5)
        assert bench.broker.queues["/", QUEUE].count == 1
        taker = user(bench, "ada")
        taker.subscribe("/queue/DLQ.a")
        bench.wait(5)
    assert [frame.body for frame in taker.take()] == [b"x", b"y", b"1"]
    queue = bench.broker.queues["/", QUEUE]
    assert (queue.count, queue.octets, queue.dispatcher) == (0, 0, None)


def test_a_dead_letter_that_fails_stays_in_its_queue(hook):
    bench = Bench(users=USERS)
    joe = user(bench, "joe")
    joe.put("/queue/DLQ.a", "1")
    with hook.when(lambda consumer, seq: True):
        for name in NAMES:
            user(bench, name).subscribe("/queue/DLQ.a")
    assert bench.broker.queues["/", "/queue/DLQ.a"].count == 1


def test_a_store_that_fails_gets_the_dead_letter_later(hook):
    bench = Bench(FaultyStore(), users=USERS)
    sender = user(bench, "joe")
    sender.put(QUEUE, "1", persistent="true")
    with hook.when(lambda consumer, seq: seq == 1):
        for name in NAMES[:2]:
            user(bench, name).subscribe(QUEUE)
        bench.store.faulty = True
        user(bench, "eve").subscribe(QUEUE)
        assert (bench.broker.queues["/", QUEUE].count, bench.broker.queues["/", "/queue/DLQ.a"].count) == (0, 1)
        assert [stored.destination for stored in bench.store.load()] == [QUEUE]
        bench.store.faulty = False
        bench.wait(5)
    assert (bench.broker.queues["/", QUEUE].count, bench.broker.queues["/", "/queue/DLQ.a"].count) == (0, 1)
    assert [stored.destination for stored in bench.store.load()] == ["/queue/DLQ.a"]
