"""A frame that the broker refuses ends the session, and is an attempt of the one message that led to it."""

import pytest
from broker.harness import Bench

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
