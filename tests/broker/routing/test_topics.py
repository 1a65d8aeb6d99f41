"""Topics, slow subscribers, and temporary destinations."""

import pytest
from broker.harness import Bench


def stuck_subscriber(**config):
    """A subscriber that stopped reading, and one that did not."""
    bench = Bench(**{"topic_backlog": 5, **config})
    sender, stuck, eager = bench.peer(), bench.peer(), bench.peer()
    stuck.subscribe("/topic/a")
    eager.subscribe("/topic/a")
    stuck.session.writable(False, bench.now)
    return bench, sender, stuck, eager


@pytest.mark.parametrize("limit", [{"topic_backlog": 5}, {"topic_backlog": 100, "topic_backlog_octets": 250}])
def test_a_slow_subscriber_is_disconnected(limit):
    bench, sender, stuck, eager = stuck_subscriber(slow_consumer="disconnect", **limit)
    for number in range(5):
        sender.put("/topic/a", str(number))
    assert not stuck.closed
    sender.put("/topic/a", "5" if "topic_backlog_octets" not in limit else "5" * 240)
    assert stuck.error().headers["message"] == "slow consumer"
    sender.put("/topic/a", "6")
    assert len(eager.bodies()) == 7
    assert bench.octets == 0


def test_a_slow_subscriber_loses_the_oldest():
    bench, sender, stuck, eager = stuck_subscriber(slow_consumer="drop")
    for number in range(100):
        sender.put("/topic/a", str(number))
    stuck.session.writable(True, bench.now)
    bench.turn()
    assert stuck.bodies() == [b"95", b"96", b"97", b"98", b"99"]
    assert len(eager.bodies()) == 100


def test_a_slow_subscriber_makes_senders_wait():
    bench, sender, stuck, eager = stuck_subscriber(slow_consumer="block")
    for number in range(5):
        sender.put("/topic/a", str(number))
    assert not sender.session.paused
    sender.put("/topic/a", "5")
    sender.put("/topic/a", "6")  # that the backlog is full is seen when a turn ends
    assert sender.session.paused
    stuck.session.writable(True, bench.now)
    bench.turn()
    assert not sender.session.paused
    assert len(stuck.bodies()) == len(eager.bodies()) == 7
    stuck.session.writable(False, bench.now)
    for number in range(7):
        sender.put("/topic/a", str(number))
    assert sender.session.paused
    stuck.lose()
    assert not sender.session.paused


@pytest.mark.parametrize("itself", [False, True])
def test_unacknowledged_messages_of_a_topic_are_bounded_too(itself):
    """Also those that the subscriber sends itself."""
    bench = Bench(topic_backlog=5)
    sender, peer = bench.peer(), bench.peer()
    sender = peer if itself else sender
    peer.subscribe("/topic/a", ack="client-individual")
    for number in range(5):
        sender.put("/topic/a", str(number))
    peer.ack(peer.take()[0])
    sender.put("/topic/a", "5")
    assert not peer.closed
    sender.put("/topic/a", "6")
    assert peer.error().headers["message"] == "slow consumer"


# ---- temporary destinations ----


def test_request_and_reply():
    bench = Bench()
    client, worker = bench.peer(), bench.peer()
    client.subscribe("/temp-queue/reply", "r")
    worker.subscribe("/queue/work")
    client.put("/queue/work", "ask", reply_to="/temp-queue/reply")
    request = worker.next("MESSAGE")
    address = request.headers["reply-to"]
    assert address.startswith("/temp-queue/")
    assert address != "/temp-queue/reply"
    assert request.headers.getall("reply-to") == [address]
    worker.put(address, "answer", receipt="1")
    worker.next("RECEIPT")
    answer = client.next("MESSAGE")
    assert (answer.body, answer.headers["subscription"]) == (b"answer", "r")
    client.put("/temp-queue/reply", "to myself")
    assert client.bodies() == [b"to myself"]
    client.put("/queue/other", "forward", reply_to=address)
    worker.subscribe("/queue/other", "2")
    assert worker.next("MESSAGE").headers["reply-to"] == address


def test_a_temporary_destination_is_its_owners():
    bench = Bench()
    owner, other = bench.peer(), bench.peer()
    for peer, body in ((owner, "1"), (other, "2")):
        peer.subscribe("/temp-queue/a")
        peer.put("/temp-queue/a", body)
    assert (owner.bodies(), other.bodies()) == ([b"1"], [b"2"])
    address, _ = bench.broker.virtual_host("/").owners
    other.subscribe(address, "2")
    assert other.error().headers["message"] == "a temporary destination of another session"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_it_ends_with_its_owner(kind):
    bench = Bench()
    owner, other = bench.peer(), bench.peer()
    for number in range(2):
        owner.subscribe(f"/temp-{kind}/a", str(number), ack="client")
    (address,) = bench.broker.virtual_host("/").owners
    other.put(address, "x", persistent="true")
    assert owner.bodies() == [b"x"] * (2 if kind == "topic" else 1)
    owner.lose()
    other.put(address, "y", receipt="r")
    other.next("RECEIPT")
    assert not other.closed
    assert not bench.broker.virtual_host("/").owners
    assert (bench.octets, bench.broker.queues, list(bench.store.load())) == (0, {}, [])


def test_a_session_that_is_too_slow_while_it_subscribes():
    bench = Bench(topic_backlog=2, max_attempts=1)
    peer, sender = bench.peer(), bench.peer()
    peer.subscribe("/topic/a", ack="client", prefetch_count="1")
    for _ in range(3):
        sender.session.receive(b"SEND\ndestination:/topic/a\n\n\0", 0.0)
    peer.session.receive(b"SUBSCRIBE\nid:2\ndestination:/topic/a\n\n\0", 0.0)
    bench.turn()
    assert peer.error().headers["message"] == "slow consumer"
    assert bench.broker.virtual_host("/").topics["/topic/a"].consumers == ()
    assert bench.octets == 0


@pytest.mark.parametrize("name", ["durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName"])
def test_what_would_lose_messages_in_silence_is_refused(name):
    """Without a client-id the subscription could not be found again."""
    bench = Bench()
    peer = bench.peer()
    peer.send("SUBSCRIBE", destination="/topic/a", id="1", receipt="r", **{name: "x"})
    error = peer.error()
    assert error.headers["message"] == "client-id is missing"
    assert error.headers["receipt-id"] == "r"
