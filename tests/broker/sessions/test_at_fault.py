"""A frame that the broker refuses ends the session, and is an attempt of the one message that led to it."""

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec import Limits

REFUSED = {
    "a name that is too long": ("SEND", {"destination": "/queue/" + "x" * 5000}),
    "a reserved name": ("SEND", {"destination": "/management/x"}),
    "a transaction that is unknown": ("COMMIT", {"transaction": "none"}),
    "an unknown delivery": ("ACK", {"id": "77-77"}),
    "a command of the server": ("MESSAGE", {"destination": "/queue/a", "message-id": "1", "subscription": "1"}),
}


def filled(count=3, **config):
    bench = Bench(**config)
    sender = bench.peer()
    for number in range(count):
        sender.put("/queue/a", f"m{number}", persistent="true")
    return bench


def consumer(bench, *names, ack="client-individual", version="1.2", **headers):
    """A client, and its deliveries by their bodies."""
    peer = bench.peer(version)
    for name in names or ("/queue/a",):
        peer.subscribe(name, id=name, ack=ack, **headers)
    return peer, {frame.body.decode(): frame for frame in peer.take()}


def counts(bench, name="/queue/a"):
    """The deliveries that are counted, as MESSAGE says, of all messages of a queue."""
    peer, got = consumer(bench, name)
    found = {body: int(frame.get("redelivery-count", "0")) for body, frame in got.items()}
    for frame in got.values():
        assert (frame.get("redelivered") == "true") is (frame.get("redelivery-count") is not None)
        peer.ack(frame)
    return found


def letters(bench):
    return {body: frame.headers for body, frame in consumer(bench, "/queue/DLQ.a")[1].items()}


def refused(peer, command="SEND", headers=None, **more):
    """A frame that is refused, and what the client sends behind it."""
    peer.raw(peer.octets_of(command, b"", **(headers or {"destination": "/management/x"}), **more))
    assert peer.error()


@pytest.mark.parametrize("kind", [*REFUSED, "bytes that are no frame"])
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_each_refused_frame_is_an_attempt_of_the_oldest_delivery_alone(kind, version):
    """What comes behind it is not read; nor does the end of the transport count again."""
    bench = filled(max_attempts=6)
    for _ in range(3):
        peer, got = consumer(bench, version=version)
        assert list(got) == ["m0", "m1", "m2"]
        octets = b"SEND\ndestination\n\n\0"
        if kind in REFUSED:
            command, headers = REFUSED[kind]
            octets = peer.octets_of(command, b"", **headers)
        peer.raw(octets * 3)
        assert peer.error()
        peer.lose()
    assert counts(bench) == {"m0": 3, "m1": 1, "m2": 1}  # 1 for redelivered:true, however often


def test_a_refused_subscription_is_no_attempt():
    """A client that is restarted subscribes each time before it handles a message."""
    bench = filled(max_attempts=2)
    for _ in range(3):
        peer, got = consumer(bench)
        assert list(got) == ["m0", "m1", "m2"]
        refused(peer, "SUBSCRIBE", {"destination": "/management/x", "id": "9"})
    assert counts(bench) == {"m0": 1, "m1": 1, "m2": 1}


def test_it_reaches_the_dead_letters_and_its_neighbours_do_not():
    bench = filled(100, max_attempts=3)
    for _ in range(3):
        peer, got = consumer(bench, prefetch_count="100")
        assert len(got) == 100
        refused(peer)
    (dead,) = letters(bench).items()
    assert dead[0] == "m0"
    assert (dead[1]["dead-letter-reason"], dead[1]["dead-letter-attempts"]) == ("max-attempts", "3")
    assert counts(bench) == {f"m{number}": 1 for number in range(1, 100)}


@pytest.mark.parametrize(
    ("version", "command"),
    [("1.0", "SEND"), ("1.1", "SEND"), *[("1.2", c) for c in ("SEND", "BEGIN", "COMMIT", "ABORT")]],
)
def test_a_frame_can_name_the_message(version, command):
    bench = filled(max_attempts=6)
    headers = {"destination": "/management/x"} if command == "SEND" else {"transaction": "t"}
    for _ in range(2):
        peer, got = consumer(bench, version=version)
        named = {"ack": got["m1"].headers["message-id"], "subscription": "/queue/a"}
        if command == "BEGIN":
            peer.send("BEGIN", transaction="t")
        refused(peer, command, {**named, **headers})
    assert counts(bench) == {"m0": 1, "m1": 2, "m2": 1}


MALFORMED = {
    "a body that is too large": "content-length:2000\n\n",
    "a body without a length that is too large": "\n" + "x" * 2000,
    "a header that is too long": "a:" + "x" * 2000,
    "too many headers": "a:b\n" * 100,
    "an unknown escape": "a:\\x\n\n\0",
}


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("attempts", ["", "named"])
def test_a_malformed_frame_can_name_the_message_before_its_fault(kind, attempts):
    """Otherwise a handler that sends a body that is too large makes dead letters of messages that others handle."""
    bench = filled(max_attempts=6, limits=Limits(max_body=1000, max_header_line=1000, max_headers=50))
    for _ in range(2):
        peer, got = consumer(bench, **({"attempts": attempts} if attempts else {}))
        head = f"SEND\nack:{got['m1'].headers['message-id']}\nsubscription:/queue/a\n"
        for piece in (head[:9], head[9:] + MALFORMED[kind]):
            peer.raw(piece.encode())
        assert peer.error()
    assert counts(bench) == {"m0": 1, "m1": 2, "m2": 1}


def test_the_copy_in_another_subscription_is_not_meant():
    bench = Bench(max_attempts=6)

    def durables():
        peer = bench.peer(connect=False)
        peer.connect(client_id="c")
        for name in ("one", "two"):
            peer.subscribe("/topic/t", id=name, ack="client-individual", durable_subscriber_name=name)
        return peer

    peer = durables()
    bench.peer().put("/topic/t", "m0")
    for name in ("one", "two", "two"):
        ids = {frame.headers["message-id"] for frame in peer.take() if frame.command == "MESSAGE"}
        assert len(ids) == 1
        refused(peer, ack=ids.pop(), subscription=name)
        peer = durables()
    counted = {frame.headers["subscription"]: frame.headers["redelivery-count"] for frame in peer.take()}
    assert counted == {"one": "1", "two": "3"}


def test_a_subscription_whose_refusals_are_named_has_no_other_attempts():
    bench = filled(max_attempts=2)
    for name in ("none", "m-77"):
        peer, got = consumer(bench, attempts="named")
        assert len(got) == 3
        refused(peer, ack=name)
        peer, _ = consumer(bench, attempts="named")
        refused(peer)
    assert counts(bench) == {"m0": 1, "m1": 1, "m2": 1}
    assert letters(bench) == {}


def test_what_a_transaction_settles_is_delivered_as_before():
    bench = filled(max_attempts=6)
    for _ in range(2):
        peer, got = consumer(bench)
        peer.send("BEGIN", transaction="t")
        peer.ack(got["m0"], transaction="t")
        peer.nack(got["m1"], transaction="t")
        refused(peer, transaction="t")
    assert counts(bench) == {"m0": 2, "m1": 1, "m2": 1}


def test_a_commit_that_is_refused_is_an_attempt_of_what_it_settles():
    bench = filled(max_attempts=6)
    for _ in range(2):
        peer, got = consumer(bench)
        peer.send("BEGIN", transaction="t")
        peer.put("/queue/b", "1", transaction="t", delay="1000")
        peer.ack(got["m1"], transaction="t")
        most, bench.broker.delayed._most = bench.broker.delayed._most, 0
        refused(
            peer, "COMMIT", {"transaction": "t", "ack": got["m1"].headers["message-id"], "subscription": "/queue/a"}
        )
        bench.broker.delayed._most = most
    assert counts(bench) == {"m0": 1, "m1": 2, "m2": 1}


def test_other_ends_of_a_session_are_no_attempt_towards_a_dead_letter():
    def stop(bench, peer):
        bench.broker.stop(bench.now)
        bench.turn()

    def fail(bench, peer):
        peer.session.fail("a manager", "closed it")
        bench.turn()

    def exhaust(bench, peer):
        peer.session.exhaust()
        bench.turn()

    for end in (lambda bench, peer: peer.lose(), fail, exhaust, stop):
        bench = filled(1, max_attempts=1)
        peer, got = consumer(bench)
        assert list(got) == ["m0"]
        end(bench, peer)
        assert bench.broker.queues["/", "/queue/a"].count == 1
        assert ("/", "/queue/DLQ.a") not in bench.broker.queues


def test_a_full_disk_is_no_fault_of_a_message():
    bench = filled(max_attempts=1)
    bench.broker.journal.short = True
    peer, got = consumer(bench)
    assert len(got) == 3
    refused(peer, headers={"destination": "/queue/b", "persistent": "true"})
    bench.broker.journal.short = False
    assert counts(bench) == {"m0": 1, "m1": 1, "m2": 1}


def test_browsers_topics_and_automatic_acks_have_no_attempts():
    bench = filled(max_attempts=1)
    for headers in ({"ack": "client", "browser": "true"}, {"ack": "auto", "selector": "x = 1"}):
        peer, _ = consumer(bench, **headers)
        refused(peer)
    peer, _ = consumer(bench, "/topic/t", ack="client")
    bench.peer().put("/topic/t", "t")
    assert peer.bodies() == [b"t"]
    refused(peer)
    assert counts(bench) == {"m0": 0, "m1": 0, "m2": 0}
    assert ("/", "/queue/DLQ.a") not in bench.broker.queues


def test_an_attempt_is_stored_with_the_message():
    store = FaultyStore()
    bench = Bench(store, max_attempts=6)
    bench.peer().put("/queue/a", "m0", persistent="true")
    for _ in range(3):
        peer, _ = consumer(bench)
        refused(peer)
    bench = Bench(store, max_attempts=4)
    peer, got = consumer(bench)
    assert got["m0"].headers["redelivery-count"] == "3"
    refused(peer)
    assert list(letters(bench)) == ["m0"]
    assert store.bodies == ["m0"]
