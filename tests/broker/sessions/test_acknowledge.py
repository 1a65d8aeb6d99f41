"""ACK, NACK, transactions, redelivery and dead letters, in all versions and ack modes; and what a refusal costs."""

import pytest
from broker.harness import Bench, bench_with_two

VERSIONS = ["1.0", "1.1", "1.2"]


def filled(count, body="", persistent="false", **config):
    """A bench with `count` messages in /queue/a, and its sender."""
    bench = Bench(**config)
    sender = bench.peer()
    for number in range(count):
        sender.put("/queue/a", f"{body}{number}", persistent=persistent)
    return bench, sender


def deliveries(bench, *names, ack="client-individual", version="1.2", **headers):
    """A new client, and its deliveries by their bodies."""
    peer = bench.peer(version)
    for name in names or ("/queue/a",):
        peer.subscribe(name, id=name, ack=ack, **headers)
    return peer, {frame.body.decode(): frame for frame in peer.take()}


def counts(bench, name="/queue/a"):
    """The deliveries that are counted, as MESSAGE says, of all messages of a queue; they stay there."""
    peer, got = deliveries(bench, name, prefetch_count="100")
    found = {body: int(frame.get("redelivery-count", "0")) for body, frame in got.items()}
    assert all((frame.get("redelivered") == "true") is ("redelivery-count" in frame.headers) for frame in got.values())
    peer.send("UNSUBSCRIBE", id=name)
    return found


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_message_ids_that_never_were(version):
    bench, _ = filled(1)
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack="client")
    message_id = peer.next("MESSAGE").headers["message-id"]
    peer.send("ACK", message_id=message_id, subscription="2" if version == "1.1" else "1", receipt="r")
    if version == "1.0":
        peer.next("RECEIPT")
        peer.send("ACK", message_id=message_id)
    assert peer.error().headers["message"] == "no such delivery"


def test_an_ack_of_a_subscription_that_ended():
    bench, _ = filled(1)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    peer.send("UNSUBSCRIBE", id="1")
    peer.ack(message)
    assert not peer.closed
    peer.subscribe("/queue/a", "1", ack="client")
    assert peer.next("MESSAGE").headers["ack"] != message.headers["ack"]
    peer.ack(message, receipt="r")
    assert peer.error().headers["receipt-id"] == "r"
    assert counts(bench) == {"0": 2}


# ---- redelivery and dead letters ----

ENDS = {
    "lose": lambda peer: peer.lose(),
    "disconnect": lambda peer: peer.send("DISCONNECT"),
    "unsubscribe": lambda peer: peer.send("UNSUBSCRIBE", id="1"),
    "error": lambda peer: peer.send("COMMIT", transaction="none"),
}


@pytest.mark.req("S12-SUB-10", "S11-SUB-09")
@pytest.mark.parametrize("end", ENDS)
def test_what_is_not_acknowledged_comes_back_in_order(end):
    bench, sender = filled(5)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    peer.ack(peer.take()[1])
    sender.put("/queue/a", "late")
    peer.take()
    ENDS[end](peer)
    other = bench.peer()
    other.subscribe("/queue/a")
    found = [(each.body, each.headers["redelivered"], each.headers["redelivery-count"]) for each in other.take()]
    assert found == [(body, "true", "1") for body in (b"0", b"2", b"3", b"4", b"late")]
    assert bench.queue().count == 0


@pytest.mark.req("S12-NAK-01", "S12-NAK-02", "S11-NAK-01", "S11-NAK-02", "S11-SUB-04", "WISH-NAK-01")
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_nack_delivers_again_in_front(version):
    bench, _ = filled(3)
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
    one, two = peer.take()
    peer.nack(one, receipt="n")
    receipt, again = peer.take()
    assert receipt.headers["receipt-id"] == "n"
    assert (again.body, again.headers["redelivered"], again.headers["redelivery-count"]) == (b"0", "true", "1")
    assert again.headers["message-id"] == one.headers["message-id"]
    assert two.get("redelivered") is None
    peer.ack(again)
    peer.ack(two)
    assert peer.bodies() == [b"2"]


@pytest.mark.parametrize("attempts", [1, 6])
def test_after_the_last_attempt_it_is_a_dead_letter(attempts):
    bench = Bench(max_attempts=attempts)
    peer = bench.peer()
    peer.put("/queue/a", b"a\0b", x="a:b", persistent="true", reply_to="/queue/r")
    peer.subscribe("/queue/a", ack="client-individual")
    for number in range(attempts):
        message = peer.next("MESSAGE")
        assert int(message.get("redelivery-count", "0")) == number
        peer.nack(message)
    assert peer.take() == []
    assert [stored.destination for stored in bench.store.load()] == ["/queue/DLQ.a"]
    peer.subscribe("/queue/DLQ.a", "2", ack="client")
    letter = peer.next("MESSAGE")
    assert letter.body == b"a\0b"
    assert dict(letter.headers) | {
        **{"destination": "/queue/DLQ.a", "original-destination": "/queue/a", "dead-letter-reason": "max-attempts"},
        **{"x": "a:b", "persistent": "true", "reply-to": "/queue/r"},
    } == dict(letter.headers)
    assert letter.get("redelivered") is None
    for _ in range(3 * attempts):  # a dead letter does not die again
        peer.nack(letter)
        letter = peer.next("MESSAGE")
    peer.ack(letter)
    assert list(bench.store.load()) == []
    assert bench.octets == 0


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize(("end", "headers"), [("UNSUBSCRIBE", {"id": "1"}), ("DISCONNECT", {"receipt": "r"})])
def test_what_is_given_back_without_a_try_is_no_attempt(end, headers, persistent):
    """Unlike a lost connection: only redelivered:true is left of it. What failed before keeps its count."""
    bench, _ = filled(1, persistent=persistent)
    for nacks in (0, 0, 3, 0, 0):
        peer = bench.peer()
        peer.subscribe("/queue/a", ack="client-individual")
        for _ in range(nacks):
            peer.nack(peer.next("MESSAGE"))
        peer.send(end, **headers)
    assert counts(bench) == {"0": 4}


def test_a_full_dead_letter_queue_loses_nothing():
    bench, sender = filled(0, max_attempts=1, max_queue_messages=3)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    for number in range(6):
        sender.put("/queue/a", str(number))
        peer.nack(peer.next("MESSAGE"))
    assert (len(peer.take()), bench.queue().count, bench.queue("/queue/DLQ.a").count) == (2, 2, 4)


# ---- a refused frame is an attempt of the one message that led to it ----

REFUSED = {
    "a name that is too long": ("SEND", {"destination": "/queue/" + "x" * 5000}),
    "a reserved name": ("SEND", {"destination": "/management/x"}),
    "a transaction that is unknown": ("COMMIT", {"transaction": "none"}),
    "an unknown delivery": ("ACK", {"id": "77-77"}),
    "a command of the server": ("MESSAGE", {"destination": "/queue/a", "message-id": "1", "subscription": "1"}),
}


def three(**config):
    return filled(3, "m", "true", **config)[0]


def refused(peer, command="SEND", headers=None, **more):
    peer.send(command, **(headers or {"destination": "/management/x"}), **more)
    assert peer.error()


@pytest.mark.parametrize("kind", [*REFUSED, "bytes that are no frame"])
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_each_refused_frame_is_an_attempt_of_the_oldest_delivery_alone(kind, version):
    """What comes behind it is not read; nor does the end of the transport count again."""
    bench = three(max_attempts=6)
    for _ in range(3):
        peer, got = deliveries(bench, version=version)
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
    bench, _ = filled(100, "m", "true", max_attempts=3)
    for _ in range(3):
        peer, got = deliveries(bench, prefetch_count="100")
        assert len(got) == 100
        refused(peer)
    ((body, dead),) = deliveries(bench, "/queue/DLQ.a")[1].items()
    assert (body, dead.get("dead-letter-reason"), dead.get("dead-letter-attempts")) == ("m0", "max-attempts", "3")
    assert counts(bench) == {f"m{number}": 1 for number in range(1, 100)}


@pytest.mark.parametrize(
    ("version", "command"),
    [("1.0", "SEND"), ("1.1", "SEND"), *(("1.2", c) for c in ("SEND", "BEGIN", "COMMIT", "ABORT"))],
)
def test_a_frame_can_name_the_message(version, command):
    bench = three(max_attempts=6)
    headers = {"destination": "/management/x"} if command == "SEND" else {"transaction": "t"}
    for _ in range(2):
        peer, got = deliveries(bench, version=version)
        if command == "BEGIN":
            peer.send("BEGIN", transaction="t")
        refused(peer, command, headers, ack=got["m1"].headers["message-id"], subscription="/queue/a")
    assert counts(bench) == {"m0": 1, "m1": 2, "m2": 1}


def test_a_subscription_whose_refusals_are_named_has_no_other_attempts():
    bench = three(max_attempts=2)
    for name in ({"ack": "none"}, {}, {"ack": "m-77"}, {}):
        peer, got = deliveries(bench, attempts="named")
        assert len(got) == 3
        refused(peer, **name)
    assert counts(bench) == {"m0": 1, "m1": 1, "m2": 1}
    assert deliveries(bench, "/queue/DLQ.a")[1] == {}


def test_a_commit_that_is_refused_is_an_attempt_of_what_it_settles():
    bench = three(max_attempts=6)
    for _ in range(2):
        peer, got = deliveries(bench)
        peer.send("BEGIN", transaction="t")
        peer.put("/queue/b", "1", transaction="t", delay="1000")
        peer.ack(got["m1"], transaction="t")
        most, bench.broker.delayed._most = bench.broker.delayed._most, 0
        refused(peer, "COMMIT", {"transaction": "t"}, ack=got["m1"].headers["message-id"], subscription="/queue/a")
        bench.broker.delayed._most = most
    assert counts(bench) == {"m0": 1, "m1": 2, "m2": 1}


# ---- transactions ----


@pytest.mark.req("S12-TX-01", "S12-TX-02", "S12-TX-03", "S11-TX-03", "S10-TX-03", "S10-SND-03", "S12-SND-02")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", "disconnect", "lose", "error"])
def test_sends(version, end):
    """What is sent in a transaction is sent by its COMMIT, and by no other end."""
    bench = Bench()
    peer, other = bench.peer(version), bench.peer()
    other.subscribe("/queue/a")
    other.subscribe("/topic/a", "2")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "1", transaction="t", receipt="r")
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"
    peer.put("/topic/a", "2", transaction="t")
    peer.put("/queue/a", "out")
    peer.put("/queue/a", "3", transaction="t")
    assert other.bodies() == [b"out"]
    if end in ENDS:
        ENDS[end](peer)
    else:
        peer.send(end, transaction="t")
        peer.send("BEGIN", transaction="t")  # the name is free again
        assert not peer.closed
        assert peer.session.memory.transactions == 0
    assert sorted(other.bodies()) == ([b"1", b"2", b"3"] if end == "COMMIT" else [])


@pytest.mark.parametrize(
    ("command", "transactions", "why"),
    [
        ("ACK", ["t"], "no such transaction"),
        ("NACK", ["t"], "no such transaction"),
        ("ACK", ["u", "v"], "no such delivery"),  # it is in one transaction only
    ],
)
def test_an_ack_that_cannot_be_in_a_transaction_leaves_the_message(command, transactions, why):
    bench, peer = filled(1)
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    for name in ("u", "v"):
        peer.send("BEGIN", transaction=name)
    for name in transactions:
        peer.ack(message, command, transaction=name, receipt=name)
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == (why, transactions[-1])
    assert bench.left() == [b"0"]


def test_a_commit_that_is_refused_does_nothing():
    bench, peer, other = bench_with_two(max_destinations=2)
    peer.put("/queue/a", "0")
    peer.subscribe("/queue/a", ack="client")
    peer.send("BEGIN", transaction="t")
    peer.ack(peer.next("MESSAGE"), transaction="t")
    peer.put("/queue/a", "1", transaction="t")
    peer.session.forget_targets()
    peer.put("/queue/b", "2", transaction="t")
    bench.wait(100)  # /queue/b is idle, and goes
    other.put("/queue/c", "x")
    peer.send("COMMIT", transaction="t", receipt="c")
    assert peer.error().headers["message"] == "too many destinations"
    assert bench.left() == [b"0"]
