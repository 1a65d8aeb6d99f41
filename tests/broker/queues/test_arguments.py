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


def test_drop_head_by_octets():
    bench, peer = made("SUBSCRIBE", x_max_length_bytes="300")
    for number in range(10):
        peer.put(NAME, str(number) * 100)
    assert queue_of(bench).octets <= 300
    assert left(bench)[-1] == b"9" * 100


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


def test_a_ttl_is_stored_with_what_a_transaction_sends():
    bench, peer = made("SUBSCRIBE", x_message_ttl="2000")
    peer.send("BEGIN", transaction="t")
    peer.put(NAME, "second", transaction="t", persistent="true")
    peer.send("COMMIT", transaction="t")
    assert [stored.expires for stored in bench.store.load()] == [bench.date + 2]


@pytest.mark.parametrize("held", [True, False])
def test_a_queue_that_nobody_uses_goes(held):
    bench, peer = made("SEND", x_expires="5000")
    if held:
        peer.subscribe(NAME, "1", ack="client")
        assert peer.next("MESSAGE").body == b"first"
    bench.wait(4)
    assert queue_of(bench).count == 1
    bench.wait(4)
    assert (("/", NAME) in bench.broker.queues) is held
    if held:
        peer.send("UNSUBSCRIBE", id="1")
        bench.wait(8)
        assert ("/", NAME) not in bench.broker.queues
    assert bench.octets == 0


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


@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("first", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_says_once_what_a_queue_is(by, first, dialect):
    """Later arguments of the same session are ignored."""
    bench = Bench(**DIALECTS[dialect])
    bench.peer().put(NAME, "kept")
    peer = bench.peer()
    use(peer, first)
    for number in range(3):  # with and without what the session remembers of its SENDs
        use(peer, by, id=f"again-{number}", **DEAD_LETTERS, **{"x-max-length": "1"})
        peer.session.forget_targets()
    assert not peer.closed, peer.take()
    assert queue_of(bench).arguments is None


@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("dialect", ["activemq", "artemis"])
@pytest.mark.parametrize("value", ["1", "soon"])
def test_queue_arguments_mean_nothing_to_others(by, dialect, value):
    arguments = {"x_max_length": value, "x_queue_type": "stream", "x_overflow": "explode"}
    bench, peer = made(by, Bench(**DIALECTS[dialect]), **arguments)
    peer.put(NAME, "second")
    assert left(bench) == [b"first", b"second"]


@pytest.mark.parametrize("by", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("dialect", ["stompcodec", "rabbitmq"])
def test_arguments_hold_after_a_restart(by, dialect):
    bench = Bench(**DIALECTS[dialect])
    peer = bench.peer()
    use(peer, by, **DEAD_LETTERS, **{"x-max-length": "2"})
    peer.put(NAME, "kept", persistent="true")
    peer.subscribe("/queue/none", "2", **{"x-max-length": "2"})
    if by == "SUBSCRIBE":
        peer.take()
        peer.send("UNSUBSCRIBE", id="1")
        peer.put(NAME, "kept", persistent="true")
    bench = Bench(bench.store, **DIALECTS[dialect])
    assert queue_of(bench).arguments.max_length == 2
    same, other, plain = bench.peer(), bench.peer(), bench.peer()
    use(same, "SEND", **DEAD_LETTERS, **{"x-max-length": "2"})
    use(other, "SEND", **{"x-max-length": "1"})
    plain.put(NAME, "plain")
    assert (same.closed, other.closed, plain.closed) == (False, dialect == "rabbitmq", False)
    assert left(bench)[-1:] == [b"plain"]
    for session in list(bench.peers.values()):
        session.lose()
    bench.wait(60)
    assert list(bench.store.subscriptions()) == []  # with the queue its arguments go


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


DEAD_LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def test_the_same_arguments_again_none_and_unknown_ones_are_fine():
    _bench, peer = made("SEND", x_max_length="2", x_max_priority="10", x_queue_type="quorum")
    peer.put(NAME, "second", **{"x-max-length": "2"})
    peer.subscribe(NAME, **{"x-max-length": "2"})
    assert peer.bodies() == [b"first", b"second"]
    peer.put(NAME, "third")
    assert peer.bodies() == [b"third"]


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


def test_queues_whose_dead_letters_go_to_each_other():
    bench = Bench()
    peer = bench.peer()
    for name, other in ("ab", "ba"):
        headers = {"x-max-length": "0", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        peer.subscribe(f"/queue/{name}", **headers)
        peer.send("UNSUBSCRIBE", id="1")
    peer.put("/queue/a", "x", receipt="r")
    assert peer.next("RECEIPT")
    assert bench.octets == 0
