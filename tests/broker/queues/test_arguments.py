"""Queue arguments of RabbitMQ: what they do, and that nobody can change a queue that is there.

What each dialect does with those that come too late was observed on RabbitMQ 3.10 and ActiveMQ 5.17.
"""

import pytest
from broker.harness import Bench

from stompcodec.broker.config import DIALECTS

NAME = "/queue/a"


def queue_of(bench):
    return bench.broker.queues["/", NAME]


def use(peer, command, id="1", **headers):
    """SEND to the queue, or SUBSCRIBE."""
    if command == "SEND":
        peer.put(NAME, "x", **headers)
    else:
        peer.subscribe(NAME, id, **headers)


def made(by, bench=None, **arguments):
    """Return a broker and a peer, with a message in a queue that a SEND has made, or a SUBSCRIBE that has ended."""
    bench = bench or Bench()
    peer = bench.peer()
    headers = {name.replace("_", "-"): value for name, value in arguments.items()}
    if by == "SEND":
        peer.put(NAME, "first", **headers)
    else:
        peer.subscribe(NAME, **headers)
        peer.send("UNSUBSCRIBE", id="1")
        peer.put(NAME, "first")
    assert not peer.closed, peer.take()
    return bench, peer


def left(bench):
    peer = bench.peer()
    peer.subscribe(NAME)
    return peer.bodies()


@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_drop_head(by, persistent):
    bench, peer = made(by, x_max_length="3")
    for number in range(4):
        peer.put(NAME, str(number), persistent=persistent)
    assert queue_of(bench).count == 3
    assert len(list(bench.store.load())) == (3 if persistent == "true" else 0)
    assert left(bench) == [b"1", b"2", b"3"]
    assert bench.octets == 0


@pytest.mark.parametrize("argument", [{"x_max_length": "2"}, {"x_max_length_bytes": "80"}])
def test_reject_publish(argument):
    bench, peer = made("SUBSCRIBE", x_overflow="reject-publish", **argument)
    peer.put(NAME, "second", receipt="r")
    assert peer.take()[-1].command == "RECEIPT"
    peer.put(NAME, "third", receipt="r3")
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("the queue is full", "r3")
    assert left(bench) == [b"first", b"second"]
    other = bench.peer()
    other.put(NAME, "again")
    assert not other.closed


@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
def test_message_ttl(by):
    bench, peer = made(by, x_message_ttl="2000")
    peer.put(NAME, "short", expiration="1000", persistent="true")
    peer.put(NAME, "long", expiration="9000")
    bench.date += 1.5
    bench.wait(2)
    assert queue_of(bench).count == 2
    bench.date += 1
    bench.wait(2)
    assert left(bench) == []
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("reason", ["rejected", "expired", "max-length"])
def test_dead_letters_have_their_own_queue(reason):
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "graves"}
    bench, peer = made("SEND", **dead, **({"x_max_length": "1"} if reason == "max-length" else {}))
    if reason == "rejected":
        peer.subscribe(NAME, ack="client")
        peer.nack(peer.next("MESSAGE"), requeue="false")
    elif reason == "expired":
        peer.put(NAME, "old", expiration="1000")
        bench.date += 2
        bench.wait(2)
    else:
        peer.put(NAME, "second")
    other = bench.peer()
    other.subscribe("/queue/graves")
    letter = other.next("MESSAGE")
    assert letter.body == (b"old" if reason == "expired" else b"first")
    assert letter.headers["dead-letter-reason"] == reason


# ---- who may ----


@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("before", [{}, {"x_max_length": "5"}])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_queue_that_is_there_keeps_its_arguments(by, before, dialect):
    bench, _peer = made("SEND", Bench(**DIALECTS[dialect]), **before)
    other = bench.peer()
    use(other, by, **{"x-max-length": "1"})
    if dialect == "rabbitmq":
        assert other.error().headers["message"] == "the queue has other arguments"
        assert left(bench) == [b"first"]
        return
    assert not other.closed
    other.send("UNSUBSCRIBE", id="1")
    bench.peer().put(NAME, "last")
    bodies = [b"last"] if by == "SUBSCRIBE" else [b"first", b"x", b"last"]
    assert left(bench) == bodies


def test_a_store_with_arguments_that_mean_nothing_any_more():
    bench = Bench()
    bench.peer().put(NAME, "kept", persistent="true", **{"x-max-length": "1"})
    bench = Bench(bench.store, **DIALECTS["activemq"])
    assert queue_of(bench).arguments is None
    assert left(bench) == [b"kept"]


def test_what_a_session_remembers_of_queues_is_bounded_and_accounted_for():
    bench = Bench(**DIALECTS["rabbitmq"], session_destinations=10_000)
    peer = bench.peer()
    for number in range(1010):
        peer.put(f"/queue/{number}", "x")
    assert len(peer.session.declared) == 1000
    bench.audit()
    peer.lose()
    bench.audit()


@pytest.mark.parametrize(
    "headers",
    [
        {"x-message-ttl": "soon"},
        {"x-expires": "0"},
        {"x-max-length": "-1"},
        {"x-max-length-bytes": "9" * 30},
        {"x-overflow": "explode"},
        {"x-dead-letter-exchange": "amq.topic"},
        {"x-dead-letter-exchange": ""},
        {"x-queue-type": "stream"},
    ],
)
@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
def test_what_cannot_be_served_is_refused(headers, by):
    peer = Bench().peer()
    use(peer, by, **headers)
    assert next(iter(headers)) in peer.error().headers["message"] or headers == {"x-queue-type": "stream"}
