"""A message that cannot be written to a consumer ends that consumer's session alone, and stays where it was."""

import contextlib
import os
import socket
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import QUEUE, client, put_all, queue_of, receipts, refusal, taker
from broker.sockets import Client, run, send, subscribe
from crash.process import BrokerProcess
from patience import patience

from stompcodec import Parser
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing import registry
from stompcodec.broker.sessions.session import Session

LETTERS = "/queue/DLQ.a"
NAMES = ("ada", "bob", "eve", "joe")
USERS = {name: User(name, hash_passcode("guest", n=16)) for name in NAMES}
RECEIVE = b"RECEIVE\ndestination:/queue/a\n\n\0"
UNWRITTEN = "a message could not be written"


def peer_of(bench, version):
    if version != "legacy":
        return bench.peer(version)
    peer = bench.peer("legacy", connect=False, listener="legacy")
    peer.raw(b"CONNECT\nusername:guest\npasscode:guest\n\n\0")
    peer.next("CONNECTED")
    return peer


def user(bench, name, version="1.2"):
    return client(bench, "", version, login=name)


def seqs(*numbers):
    return lambda consumer, seq: consumer.version == "1.1" and seq in numbers


class FaultHook:
    """Has `fails(consumer, seq)` decide what cannot be written, and keeps a record of what failed. The bodies for
    consumers that it began are converted, which looks at each message. Where messages are written as they are,
    `consumer.before = None` makes the next one fail."""

    def __init__(self):
        self.fails, self.faults = lambda consumer, seq: False, []

    def begin(self, *args):
        consumer = Consumer(*args)
        consumer.direct = consumer.direct_selective = False
        consumer.conversion = SimpleNamespace(apply=partial(self.look, consumer, consumer.conversion))
        return consumer

    def look(self, consumer, conversion, message):
        if self.fails(consumer, message.seq):
            self.faults.append((consumer, message.seq))
            raise ArithmeticError(f"nothing in the broker expects it: {message.seq}")
        return message if conversion is None else conversion.apply(message)

    @contextlib.contextmanager
    def when(self, fails):
        before, self.fails = self.fails, fails
        yield
        self.fails = before


@pytest.fixture
def hook(monkeypatch):
    hook = FaultHook()
    monkeypatch.setattr(registry, "Consumer", hook.begin)
    return hook


@pytest.mark.parametrize("command", ["SUBSCRIBE", "RECEIVE"])
@pytest.mark.parametrize(
    ("version", "name"),
    [
        *(("1.0", name) for name in ("s:eq", "a:")),
        *(("1.2", name) for name in ("", "message-id", "content-length", "x" * 101)),
        *(("legacy", name) for name in ("Content-Length", "MESSAGE-ID", "Destination", "Subscription")),
    ],
)
def test_a_name_that_the_version_cannot_write_is_refused(command, version, name):
    bench = Bench()
    peer, sender = peer_of(bench, version), bench.peer()
    peer.raw(f"{command}\ndestination:{QUEUE}\nid:1\ninclude-seq:{name}\nreceipt:r\n\n\0".encode())
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("bad include-seq", "r")
    assert any(word in error.body.decode() for word in (version, name, "1 to 100 characters"))
    sender.put(QUEUE, "1", receipt="1")
    assert receipts(sender) == 1


@pytest.mark.parametrize("name", ["Message-Id", "Subscription", "ACK", "Redelivered", "Destination", "Receipt"])
def test_no_sender_forges_a_header_by_its_case(name):
    bench = Bench()
    consumer = peer_of(bench, "legacy")
    consumer.subscribe(QUEUE, id="1")
    bench.peer().put(QUEUE, "1", **{name: "forged", "Other": "kept"})
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
    headers = {"persistent": "true", "receipt": "r"} if persistent else {"receipt": "r"}
    with hook.when(lambda consumer, seq: seq == 2 and consumer.session is bad.session):
        put_all(sender, "123" if backlog else "", **headers)
        bad = bench.peer("1.2", whole_frames=whole_frames)
        bad.subscribe(QUEUE, ack=ack)
        if not backlog:
            put_all(sender, "1", **headers)
            (consumer,) = bad.session.consumers.values()
            consumer.direct, consumer.before = True, None
            put_all(sender, "23", **headers)
    assert len(hook.faults) == backlog
    assert receipts(sender) == 3
    first, error = bad.take()
    assert (first.body, error.command, error.headers["message"]) == (b"1", "ERROR", UNWRITTEN)
    assert bad.closed
    assert [record.levelname for record in caplog.records if record.levelno > 20] == ["ERROR"]
    assert "e-2" in caplog.text
    there, queue = ["2", "3"] if ack == "auto" else ["1", "2", "3"], queue_of(bench)
    assert [message.frame.body.decode() for message in queue.messages] == there
    assert [message.attempts for message in queue.messages] == [0, 0] if ack == "auto" else [1, 0, 0]
    assert queue.count == len(there)
    assert queue.octets == bench.octets == sum(message.size for message in queue.messages)
    assert len(list(bench.store.load())) == (len(there) if persistent else 0)
    # The pair of its user and version gets what stands behind it, and others get it.
    again = taker(bench, ack=ack)
    assert again.bodies() == [body.encode() for body in there if body != "2"]
    message = taker(bench, version="1.1").next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (b"2", None)


@pytest.mark.parametrize(("name", "seq"), [(QUEUE, 1), ("/topic/t", 3)])
def test_another_consumer_gets_all_messages_of_a_turn(hook, name, seq):
    bench = Bench()
    sender, bad, good = bench.peer(), taker(bench, name, version="1.1"), taker(bench, name)
    octets = b"".join(sender.octets_of("SEND", b"%d" % n, destination=name, receipt=str(n)) for n in range(9))
    with hook.when(seqs(seq)):
        sender.raw(octets)
    assert receipts(sender) == 9
    assert refusal(bad) == UNWRITTEN
    assert good.bodies() == [b"%d" % n for n in range(9)]
    bench.turn()
    assert [(queue.dispatcher, queue.count) for queue in bench.broker.queues.values()] == [(None, 0)] * (name == QUEUE)


def test_receive_is_answered_by_error_alone(hook):
    bench = Bench()
    put_all(bench.peer(), "12")
    bad, again, other = bench.peer("1.1"), bench.peer("1.1"), bench.peer("1.2")
    with hook.when(seqs(1)):
        bad.raw(b"RECEIVE\ndestination:/queue/a\nreceipt:r\n\n\0")
    assert [(frame.command, frame.get("receipt-id")) for frame in bad.take()] == [("ERROR", "r")]
    again.parser = Parser("1.1", commands=("EMPTY",))
    again.raw(RECEIVE)
    assert again.bodies() == [b"2"]
    again.raw(RECEIVE)
    assert again.next("EMPTY")
    other.raw(RECEIVE)
    assert other.bodies() == [b"1"]


@pytest.mark.parametrize("window", [1, 100])
def test_a_browser_is_ended_and_then_passes_it_over(hook, window):
    bench = Bench(window_messages=window)
    put_all(bench.peer(), "123", persistent="true")
    with hook.when(seqs(2)):
        bad = taker(bench, version="1.1", browser="true")
    assert [frame.command for frame in bad.take()] == ["MESSAGE", "ERROR"]
    assert taker(bench, version="1.1", browser="true").bodies() == [b"1", b"3", b""]
    assert taker(bench, browser="true").bodies() == [b"1", b"2", b"3", b""]
    assert queue_of(bench).total == 3


def test_the_owner_of_a_group_that_may_not_have_a_message_does_not_keep_it_from_others(hook):
    bench = Bench()
    sender, bad = bench.peer(), taker(bench, version="1.1")
    with hook.when(seqs(1)):
        sender.put(QUEUE, "1", JMSXGroupID="g")
    assert bad.error()
    owner = taker(bench, version="1.1")
    sender.put(QUEUE, "2", JMSXGroupID="g")
    assert owner.bodies() == [b"2"]
    other = taker(bench)
    assert other.bodies() == [b"1"]
    sender.put(QUEUE, "3", JMSXGroupID="g")
    assert (owner.bodies(), other.bodies()) == ([b"3"], [])


def test_an_exclusive_consumer_that_may_not_have_a_message_does_not_keep_it_from_others(hook):
    bench = Bench()
    sender, other = bench.peer(), taker(bench)
    bad, holder = (taker(bench, version="1.1", exclusive="true") for _ in range(2))
    with hook.when(seqs(1)):
        sender.put(QUEUE, "1")
    assert bad.error()
    sender.put(QUEUE, "2")
    assert (holder.bodies(), other.bodies()) == ([b"2"], [b"1"])


# ---- other things that can raise ----
def test_a_selector_that_fails_matches_nothing_and_hurts_nobody(caplog):
    pytest.importorskip("lark")
    bench = Bench()
    sender, bad, durable = bench.peer(), taker(bench, selector="a = 'b'"), client(bench)
    durable.subscribe("/topic/t", durable_subscriber_name="d", selector="a = 'b'")
    good = taker(bench, "/topic/t")

    def condition(_head, _message, _known):
        raise RecursionError

    (consumer,), (own,) = bad.session.consumers.values(), durable.session.consumers.values()
    assert own.durable.selector is consumer.selector
    plain, consumer.selector._condition = consumer.selector._condition, condition
    try:
        for destination in (QUEUE, "/topic/t"):
            put_all(sender, "111", destination, a="b", receipt="1")
    finally:
        consumer.selector._condition, consumer.selector._failed = plain, False
    assert receipts(sender) == 6
    assert len(good.bodies()) == 3
    assert (bad.take(), durable.take()) == ([], [])
    assert len([record for record in caplog.records if record.levelno > 20]) == 1


def test_a_large_body_that_cannot_be_read_to_its_end_is_no_attempt():
    bench = Bench(large=64)
    sender, bad = bench.peer(), bench.peer()
    sender.put(QUEUE, "x" * 10**6, receipt="1")
    assert receipts(sender) == 1
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
    (message,) = queue_of(bench).messages
    assert (message.attempts, message.faults) == (0, {("", "1.2")})


def test_a_large_body_that_is_too_short_is_no_attempt():
    bench = Bench(large=64)
    bench.peer().put(QUEUE, "x" * 100, persistent="true")
    (message,) = queue_of(bench).messages
    os.truncate(message.body.path, 99)
    assert refusal(taker(bench)) == UNWRITTEN
    (message,) = queue_of(bench).messages
    assert (message.attempts, len(list(bench.store.load()))) == (0, 1)


def test_a_fault_while_the_shell_writes_ends_that_connection_alone(monkeypatch, caplog):
    async def main(server):
        peers = [await Client.connect(server) for _ in range(3)]
        for peer in peers:
            assert (await peer.ask(subscribe("/topic/t"))).command == "RECEIPT"
        bad, plain = peers[0].session_id, Session.take_output
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


# ---- dead letters ----
def test_three_users_make_a_dead_letter(hook):
    bench = Bench(users=USERS, max_attempts=1)
    put_all(user(bench, "joe"), "12", persistent="true")
    with hook.when(lambda consumer, seq: seq == 1):
        for name, version in (("ada", "1.0"), ("ada", "1.1"), ("ada", "1.2"), ("bob", "1.2"), ("ada", "1.2")):
            assert queue_of(bench).count == 2
            peer = user(bench, name, version)
            peer.subscribe(QUEUE, ack="client")
            peer.lose()
        assert ("/", LETTERS) not in bench.broker.queues
        eve = user(bench, "eve")
        eve.subscribe(QUEUE)
        assert refusal(eve) == UNWRITTEN
    assert queue_of(bench).count == 1
    joe = user(bench, "joe")
    joe.subscribe(LETTERS)
    letter = joe.next("MESSAGE")
    names = ("dead-letter-reason", "original-message-id", "original-destination", "dead-letter-attempts")
    assert letter.body == b"1"
    assert [letter.headers[name] for name in names] == ["undeliverable", "e-1", QUEUE, "0"]
    joe.subscribe(QUEUE, id="2")
    assert joe.bodies() == [b"2"]
    assert not list(bench.store.load())


@pytest.mark.parametrize("failed", [False, True])
def test_one_that_failed_and_expires_is_a_dead_letter(hook, failed):
    bench = Bench()
    bench.peer().put(QUEUE, "1", expiration="5000")
    if failed:
        with hook.when(seqs(1)):
            taker(bench, version="1.1")
    bench.wait(1)
    bench.date += 10
    bench.wait(60)
    letters = bench.broker.queues.get(("/", LETTERS))
    if failed:
        (letter,) = letters.messages
        assert letter.frame.headers["dead-letter-reason"] == "undeliverable"
    else:
        assert letters is None
    assert bench.octets == (letter.size if failed else 0)


def test_no_room_for_the_dead_letter(hook):
    bench = Bench(users=USERS, max_queue_messages=1)
    sender = user(bench, "joe")
    put_all(sender, "xy", LETTERS)
    sender.put(QUEUE, "1", receipt="1")
    with hook.when(lambda consumer, seq: seq == 3):
        for name in NAMES[:3]:
            user(bench, name).subscribe(QUEUE)
        assert queue_of(bench).count == 1
        bench.wait(5)
        assert queue_of(bench).count == 1
        ada = user(bench, "ada")
        ada.subscribe(LETTERS)
        bench.wait(5)
    assert ada.bodies() == [b"x", b"y", b"1"]
    queue = queue_of(bench)
    assert (queue.count, queue.octets, queue.dispatcher) == (0, 0, None)


def test_a_dead_letter_that_fails_stays_in_its_queue(hook):
    bench = Bench(users=USERS)
    user(bench, "joe").put(LETTERS, "1")
    with hook.when(lambda consumer, seq: True):
        for name in NAMES:
            user(bench, name).subscribe(LETTERS)
    assert queue_of(bench, LETTERS).count == 1


def test_a_store_that_fails_gets_the_dead_letter_later(hook):
    bench = Bench(FaultyStore(), users=USERS)
    user(bench, "joe").put(QUEUE, "1", persistent="true")

    def there():
        stored = [stored.destination for stored in bench.store.load()]
        return queue_of(bench).count, queue_of(bench, LETTERS).count, stored

    with hook.when(lambda consumer, seq: seq == 1):
        for name in NAMES[:2]:
            user(bench, name).subscribe(QUEUE)
        bench.store.faulty = True
        user(bench, "eve").subscribe(QUEUE)
        assert there() == (0, 1, [QUEUE])
        bench.store.faulty = False
        bench.wait(5)
    assert there() == (0, 1, [LETTERS])


@pytest.mark.long
def test_a_subscription_that_cannot_be_served_is_refused(tmp_path):
    from run_scenarios import WebSocket

    pytest.importorskip("click")
    ways = ("port", "1.0", "s:eq"), ("ws_port", "1.0", "s:eq"), ("legacy_port", "legacy", "Content-Length")
    with BrokerProcess(tmp_path, config="[listen]\nlegacy = 0\n") as broker:
        for destination, (port, version, name) in product((QUEUE, "/topic/t"), ways):
            address, limit, parser = ("127.0.0.1", broker.address[port]), patience(30), Parser(version)
            wire = WebSocket(*address, "/", limit) if port == "ws_port" else socket.create_connection(address, limit)
            who = "username:guest\npasscode:guest" if version == "legacy" else "login:guest"
            asked = f"SUBSCRIBE\ndestination:{destination}\nid:1\nreceipt:s\ninclude-seq:{name}\n\n\0"
            frames = []
            with contextlib.closing(wire):
                for text in (f"CONNECT\n{who}\n\n\0\n", asked):
                    wire.sendall(text.encode())
                    wanted = len(frames) + 1
                    while len(frames) < wanted:
                        frames += parser.feed(wire.recv(65536))
            assert [frame.command for frame in frames] == ["CONNECTED", "ERROR"]
            assert frames[1].headers["message"] == "bad include-seq"
        log = broker.log.read_text()
    assert "Traceback" not in log
    assert "internal error" not in log
