"""ACKs of what was not delivered, what a refused frame costs, and what cannot be in a transaction."""

import pytest
from broker.harness import Bench


def filled(count, body="", persistent="false", **config):
    bench, sender = Bench.with_peers(1, **config)
    for number in range(count):
        sender.put("/queue/a", f"{body}{number}", persistent=persistent)
    return bench, sender


def deliveries(bench, *names, ack="client-individual", version="1.2", **headers):
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


@pytest.mark.parametrize("also", [True, False])
@pytest.mark.parametrize("verb", ["ACK", "NACK"])
def test_the_id_of_1_2_may_be_the_message_id(verb, also):
    """As that of stomp-php's NACK, which has both: at RabbitMQ and Artemis, `ack` is the message-id."""
    bench, _ = filled(3)
    peer, got = deliveries(bench)
    message_id = got["1"].headers["message-id"]
    peer.send(verb, id=message_id, receipt="r", **({"message_id": message_id} if also else {}))
    peer.next("RECEIPT")
    peer.lose()
    assert counts(bench) == ({"0": 1, "2": 1} if verb == "ACK" else {"0": 1, "1": 2, "2": 1})


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


@pytest.mark.parametrize("kind", REFUSED)
def test_each_refused_frame_is_an_attempt_of_the_oldest_delivery_alone(kind):
    """What comes behind it is not read; nor does the end of the transport count again."""
    bench = three(max_attempts=6)
    for _ in range(3):
        peer, got = deliveries(bench)
        assert list(got) == ["m0", "m1", "m2"]
        command, headers = REFUSED[kind]
        peer.raw(peer.octets_of(command, b"", **headers) * 3)
        assert peer.error()
        peer.lose()
    assert counts(bench) == {"m0": 3, "m1": 1, "m2": 1}  # 1 for redelivered:true, however often


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


@pytest.mark.parametrize(
    ("command", "transactions", "why"),
    [
        *(("ACK", ["t"], "no such transaction"), ("NACK", ["t"], "no such transaction")),
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


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("dialect", [None, "rabbitmq", "activemq", "artemis"])
def test_an_ack_with_the_headers_of_its_message_copied(version, dialect):
    """A content-length without a body is ignored, as other brokers do; a body behind it is none of 1.1 and 1.2."""
    bench = Bench(dialect=dialect) if dialect else Bench()
    peer = bench.peer(version)
    peer.put("/queue/a", "hello")
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    pairs = [("id", message.get("ack", "")), *message.headers.pairs(), ("content-length", "5"), ("receipt", "done")]
    frame = "ACK\n" + "".join(f"{name}:{value}\n" for name, value in pairs if name != "ack" and value) + "\n"
    peer.raw(frame.encode() + b"\0")
    assert peer.next("RECEIPT").headers["receipt-id"] == "done"
    if version != "1.0":
        peer.raw(frame.encode() + b"hello\0")
        assert "body-not-allowed" in peer.error().headers["message"]
