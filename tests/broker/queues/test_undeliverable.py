"""Messages that could not be written to some users: who is offered them again, and when they become dead letters."""

import pytest
from broker.fault_hook import FaultHook
from broker.harness import Bench, FaultyStore

from stompcodec import Frame, serialize
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.message import Message
from stompcodec.broker.queues.arguments import with_fault

QUEUE = "/queue/a"
NAMES = ("ada", "bob", "eve", "joe")
USERS = {name: User(name, hash_passcode("guest", n=16)) for name in NAMES}


@pytest.fixture(autouse=True)
def hook():
    with FaultHook() as hook:
        yield hook


def user(bench, name, version="1.2"):
    peer = bench.peer(version, connect=False)
    peer.connect(login=name)
    return peer


def seqs(*numbers):
    """Messages of these numbers cannot be written to sessions of 1.1."""
    return lambda consumer, seq: consumer.version == "1.1" and seq in numbers


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


def test_without_users_everybody_is_one_user(hook):
    """Whatever login they give: nobody can make dead letters of other people's messages."""
    bench = Bench()
    sender = bench.peer()
    sender.put(QUEUE, "1")
    with hook.when(lambda consumer, seq: seq == 1):
        for name in NAMES:
            for version in ("1.0", "1.1", "1.2"):
                peer = user(bench, name, version)
                peer.subscribe(QUEUE)
                peer.lose()
    assert len(hook.faults) == 3
    assert bench.broker.queues["/", QUEUE].count == 1
    assert ("/", "/queue/DLQ.a") not in bench.broker.queues


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


def test_after_a_restart_everybody_is_offered_it_again(hook):
    bench = Bench()
    bench.peer().put(QUEUE, "1", persistent="true")
    with hook.when(seqs(1)):
        bench.peer("1.1").subscribe(QUEUE)
    bench.broker.stop(0.0)
    bench.turn()
    bench = Bench(bench.store)
    peer = bench.peer("1.1")
    peer.subscribe(QUEUE)
    message = peer.next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (b"1", None)


# ---- bounds ----


def test_the_queue_is_plain_again_when_the_message_is_gone(hook):
    bench = Bench()
    sender = bench.peer()
    sender.put(QUEUE, "1")
    with hook.when(seqs(1)):
        bench.peer("1.1").subscribe(QUEUE)
    queue = bench.broker.queues["/", QUEUE]
    assert queue.dispatcher is not None
    good = bench.peer("1.2")
    good.subscribe(QUEUE)
    assert good.bodies() == [b"1"]
    bench.wait(3)
    assert queue.dispatcher is None
    sender.put(QUEUE, "2")
    assert good.bodies() == [b"2"]


def test_a_consumer_that_comes_again_and_again_costs_one_fault_a_message(hook):
    bench = Bench()
    sender = bench.peer()
    for n in range(20):
        sender.put(QUEUE, str(n))
    with hook.when(lambda consumer, seq: consumer.version == "1.1"):
        for _ in range(25):
            peer = bench.peer("1.1")
            peer.subscribe(QUEUE)
            peer.lose()
    assert sorted(seq for _consumer, seq in hook.faults) == list(range(1, 21))
    queue = bench.broker.queues["/", QUEUE]
    assert all(message.faults == {("", "1.1")} and not message.attempts for message in queue.messages)
    good = bench.peer("1.2")
    good.subscribe(QUEUE)
    assert good.bodies() == [str(n).encode() for n in range(20)]


def test_a_copy_that_failed_keeps_everything():
    tail = serialize(Frame("MESSAGE", {"a": "b"}, b"hi"))[8:]
    message = Message(b"m", 3, QUEUE, tail, True, 5.0, 7, 2)
    copy = with_fault(message, ("ada", "1.2"))
    for name in ("ident", "seq", "destination", "tail", "size", "persistent", "expires", "priority", "attempts"):
        assert getattr(copy, name) == getattr(message, name)
    assert (message.faults, copy.faults) == (frozenset(), {("ada", "1.2")})
    assert copy.again().faults == copy.faults
