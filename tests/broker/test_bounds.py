"""Every bound at its limit and one past it, and memory in the hands of peers that misbehave."""

import pytest
from broker.harness import Bench, bench_with_two
from broker.moves import refusal

from stompcodec.broker.auth import Rule
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.memory import OPERATION
from stompcodec.broker.queues.consumer import UNLIMITED
from stompcodec.broker.routing import durables
from stompcodec.broker.routing.topic import LONGEST_NAME


def destinations_of(bench):
    return bench.broker.virtual_host("/").destinations


@pytest.mark.parametrize(
    ("key", "do", "undo", "message"),
    [
        ("max_subscriptions", "SUBSCRIBE", "UNSUBSCRIBE", "too many subscriptions"),
        ("max_transactions", "BEGIN", "ABORT", "too many transactions"),
    ],
)
def test_subscriptions_and_transactions(key, do, undo, message):
    peer = Bench(**{key: 3}).peer()
    for command, name in ((do, "0"), (do, "1"), (do, "2"), (undo, "1"), (do, "1"), (do, "3")):
        assert not peer.closed
        names = {"id": name, "destination": f"/queue/{name}"} if "SUBSCRIBE" in command else {"transaction": name}
        peer.send(command, **names)
    assert refusal(peer) == message


@pytest.mark.parametrize("kind", ["sends", "acks"])
def test_operations_in_transactions(kind):
    tail = len(b"destination:/queue/b\n\n\0") if kind == "sends" else 0
    bench, peer = Bench.with_peers(1, max_transaction_octets=10 * (OPERATION + tail))
    for _ in range(11):
        peer.put("/queue/a", "")
    peer.subscribe("/queue/a", ack="client-individual")
    messages = peer.take()
    for name in ("t", "u"):
        peer.send("BEGIN", transaction=name)
    for number in range(11):
        assert not peer.closed
        transaction = "tu"[number % 2]
        if kind == "acks":
            peer.ack(messages[number], transaction=transaction)
        else:
            peer.raw(b"SEND\ndestination:/queue/b\ntransaction:%b\n\n\0" % transaction.encode())
    assert refusal(peer) == "transactions too large"
    assert bench.queue().count == 11


def test_unacknowledged_messages_of_a_session():
    _bench, peer, sender = bench_with_two(max_unacked=10, prefetch=4)
    for name in "abcd":
        for number in range(12):
            sender.put(f"/queue/{name}", str(number))
    peer.subscribe("/queue/a", "1", ack="client", prefetch_count="0")
    assert len(peer.take()) == 10
    peer.send("UNSUBSCRIBE", id="1")
    for name, count in (("b", 4), ("c", 4), ("d", 2)):
        peer.subscribe(f"/queue/{name}", name, ack="client")
        assert len(peer.take()) == count
    peer.subscribe("/topic/x", "auto")
    assert not peer.closed
    peer.subscribe("/queue/a", "5", ack="client")
    assert refusal(peer) == "too many unacknowledged messages"


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_received_messages_at_their_limit(mode):
    bench, peer = Bench.with_peers(1, max_subscriptions=3)
    receive = f"RECEIVE\nid:1\ndestination:/queue/a\nack:{mode}\n\n\0".encode()
    for _ in range(4):
        peer.put("/queue/a", "x")
    peer.raw(receive * 3)
    messages = peer.take()
    assert [frame.command for frame in messages] == ["MESSAGE"] * 3
    peer.ack(messages[0])
    peer.raw(receive)
    assert peer.next("MESSAGE")
    peer.raw(receive)
    assert refusal(peer) == "too many unacknowledged RECEIVEs"
    assert len(bench.queue().messages) == 3


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destinations(kind):
    bench, sender, peer = bench_with_two(max_destinations=3)
    for number in range(3):
        peer.subscribe(f"/{kind}/{number}", str(number))
    peer.subscribe(f"/{kind}/0", "again")
    assert not peer.closed
    if kind == "topic":
        sender.put("/topic/unheard")
        assert not sender.closed
        sender.subscribe("/topic/3")
    else:
        sender.put("/queue/3")
    assert refusal(sender) == "too many destinations"
    peer.send("UNSUBSCRIBE", id="2")
    sender = bench.peer()
    sender.subscribe(f"/{kind}/3")  # an idle one makes room
    assert not sender.closed


@pytest.mark.long
def test_destinations_that_a_session_remembers():
    peer = Bench().peer()
    for number in range(1500):
        peer.put(f"/queue/{number}")
    assert len(peer.session.cached_targets) <= 1000


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize(("first", "kind"), [("SUBSCRIBE", "queue"), ("SUBSCRIBE", "topic"), ("SEND", "queue")])
def test_the_length_of_a_name(first, kind, over):
    bench, peer = Bench.with_peers(1)
    peer.send(first, destination=f"/{kind}/".ljust(4096 + over, "a"), id="1")
    assert peer.closed is bool(over)
    if over:
        assert (refusal(peer), bench.broker.queues) == ("destination too long", {})


@pytest.mark.parametrize(("size", "count", "least"), [(1000, 100, 8), (100_000, 3, 2)])
def test_a_consumer_of_a_long_queue_gets_a_little_each_turn(size, count, least):
    """A message that is larger than the bound of the outbox alone."""
    bench, sender, consumer = bench_with_two(write_high=10_000)
    for _ in range(count):
        sender.put("/queue/a", b"x" * size)
    consumer.session.receive(b"SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0", 0.0)
    turns = 0
    while (sessions := list(bench.broker.turn(0.0))) or bench.broker.next_deadline() == 0.0:
        for session in sessions:
            output = session.take_output()
            assert sum(map(len, output)) < 10_000 + 3 * size
            consumer.inbox += consumer.parser.feed(b"".join(output))
        turns += 1
    assert turns > least
    assert len(consumer.bodies()) == count


@pytest.mark.parametrize("end", ["lose", "unsubscribe"])
def test_delayed_messages_go_with_their_queue(end):
    """They take no place in the bound, and no memory, for the ten years that they could wait."""
    bench = Bench(max_delayed=3)
    for _ in range(3):
        peer = bench.peer()
        name = "/temp-queue/a" if end == "lose" else "/queue/a"
        peer.subscribe(name, auto_delete="true")
        for _ in range(3):
            peer.put(name, "x" * 1000, delay="99999999999")
        assert len(bench.broker.delayed) == 3
        peer.lose() if end == "lose" else peer.send("UNSUBSCRIBE", id="1")
        assert bench.octets == 0
        parts = [getattr(part, "tail", part) for entry in bench.broker.delayed._heap for part in entry]
        assert "x" * 1000 not in repr(parts)
    peer = bench.peer()
    for _ in range(4):
        assert not peer.closed
        peer.put("/queue/b", "later", delay="1000")
    assert refusal(peer) == "too many delayed messages"
    bench.later(2)
    assert bench.queue("/queue/b").count == 3


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("past", [0, 1])
def test_delayed_messages_of_a_transaction_count(before, past):
    bench, peer, other = bench_with_two(max_delayed=3)
    for _ in range(before):
        other.put("/queue/a", "x", delay="5000")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "now", transaction="t")
    for _ in range(3 - before + past):
        peer.put("/queue/a", "x", delay="5000", transaction="t")
    peer.send("COMMIT", transaction="t")
    if past:
        assert refusal(peer) == "too many delayed messages"
    assert len(bench.broker.delayed) == (before if past else 3)
    assert len(bench.queue().messages) == 1 - past


@pytest.mark.parametrize("way", ["transaction", "delay", "stored"])
def test_retained_messages_that_take_effect_later_are_bounded(way):
    """There was room when they were sent. Those that it is too late for are delivered, and not retained."""
    bench, listener, sender = bench_with_two(max_destinations=8, retain=True)
    listener.subscribe("/topic/9")
    headers = {"delay": "10"} if way == "delay" else {"transaction": "t"}
    headers |= {"persistent": "true"} if way == "stored" else {}
    if way != "delay":
        sender.send("BEGIN", transaction="t")
    for number in range(10):
        sender.put(f"/topic/{number}", str(number), retain="set", **headers)
    if way != "delay":
        sender.send("COMMIT", transaction="t")
    bench.later(1)
    assert not sender.closed
    assert listener.bodies() == [b"9"]
    assert list(destinations_of(bench).retained.queues) == [f"/topic/{number}" for number in range(8)]
    assert len(list(bench.store.load())) == (8 if way == "stored" else 0)
    sender.put("/topic/7", "again", retain="set")
    assert not sender.closed
    sender.put("/topic/9", "new", retain="set")
    assert refusal(sender) == "too many retained messages"


def test_octets_of_retained_messages_that_take_effect_later_are_bounded():
    bench, sender = Bench.with_peers(1, max_retained_octets=1000, retain=True)
    for number in range(20):
        sender.put("/topic/a", "x" * 100, retain="set", delay="10")
        sender.put(f"/topic/{number}", "x" * 400, retain="set", delay="10")
    bench.later(1)
    retained = destinations_of(bench).retained.queues
    assert sum(queue.octets for queue in retained.values()) < 1000 + 500
    assert len(retained) == 3


def test_names_and_selectors_of_durable_subscriptions(monkeypatch):
    """A session's own bound does not hold for selectors that stay when it goes."""
    pytest.importorskip("lark")
    monkeypatch.setattr(durables, "_MOST_SELECTED", 30)
    bench = Bench()

    def durable(peer, name, **headers):
        peer.subscribe("/topic/a", durable_subscription_name=name, **headers)
        peer.send("UNSUBSCRIBE", id="1")
        return [frame.headers["message"] for frame in peer.take()]

    peer = bench.client(client_id="me")
    assert durable(peer, "n" * (LONGEST_NAME - 3)) == []
    for number in range(3):
        assert durable(peer, f"n{number}", selector="color = 'r'") == []  # the same one is kept once
    assert durable(peer, "m", selector="size > " + "1" * 12) == []
    assert durable(peer, "past", selector="n > 12") == ["too many selectors"]
    assert "too long" in durable(bench.client(client_id="me"), "n" * (LONGEST_NAME - 2))[0]
    assert len(destinations_of(bench).durables.by_name) == 5


@pytest.mark.parametrize(
    ("destination", "headers", "config"),
    [
        ("/queue/a,/queue/b", {}, {"max_subscriptions": 1}),
        ("/queue/a,/queue/b", {"browser": "true"}, {"max_subscriptions": 1}),
        ("/queue/a,/topic/b", {"browser": "true"}, {}),
        ("/topic/a,/topic/b", {"durable_subscription_name": "n"}, {}),
        ("/queue/a,/queue/b", {"ack": "client"}, {"max_unacked": 1, "prefetch": 1}),
    ],
)
def test_a_composite_subscription_of_which_a_part_is_refused(destination, headers, config):
    bench = Bench(composite=True, **config)
    peer = bench.client(client_id="me")
    bench.peer().put("/queue/a", "kept")
    peer.subscribe(destination, **headers)
    assert peer.error()
    peer.lose()
    assert destinations_of(bench).durables.by_name == {}
    assert list(bench.store.subscriptions()) == []
    assert not peer.session.consumers
    assert bench.queue().consumers == []
    assert bench.left() == [b"kept"]


def test_a_composite_of_as_many_parts_as_there_may_be():
    peer = Bench(composite=True).peer()
    most = ",".join(f"/queue/{number}" for number in range(16))
    peer.put(most, "x")
    peer.subscribe(most)
    assert peer.bodies() == [b"x"] * 16
    peer.subscribe(f"{most},/queue/16", "2")
    assert refusal(peer) == "too many destinations"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("name", ["/queue/secret", "secret"])
def test_no_other_name_leads_around_the_rules(command, name):
    rules = (Rule(destination="/queue/secret", allow=False), Rule(destination="secret", allow=False), Rule())
    bench = Bench(**DIALECTS["rabbitmq"], rules=rules)
    queue, peer = destinations_of(bench).queue(name), bench.peer()
    peer.send(command, destination=f"/amq/queue/{name}", id="1")
    assert refusal(peer) in ("no such queue", f"not allowed to {command.lower()} there")
    assert (queue.count, queue.consumers) == (0, [])


def test_no_other_name_leads_to_a_temporary_queue_of_somebody_else():
    bench, owner, peer = bench_with_two(**DIALECTS["rabbitmq"])
    owner.put("/queue/a", reply_to="/temp-queue/mine")
    (name,) = destinations_of(bench).owners
    peer.subscribe(f"/amq/queue/{name}")
    assert refusal(peer) == "no such queue"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize(("queue", "allowed"), [("secret", False), ("open", True)])
def test_dead_letters_go_nowhere_where_their_sender_may_not(command, queue, allowed):
    peer = Bench(rules=(Rule(action="send", destination="/queue/secret", allow=False), Rule())).peer()
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": queue}
    peer.send(command, destination="/queue/a", id="1", **dead)
    assert peer.closed is not allowed
    assert allowed or refusal(peer) == "not allowed to send there"


def test_credit_does_not_grow_beyond_what_there_can_be():
    _bench, peer, sender = bench_with_two(max_unacked=5, prefetch=1)
    peer.subscribe("/queue/a", ack="client-individual", credit=f"5,{2**62},false")
    for _ in range(20):
        sender.put("/queue/a", "x")
    messages = peer.take()
    assert len(messages) == 5
    for message in messages[:2]:
        peer.ack(message, credit=f"{UNLIMITED},{2**62}")
    assert len(peer.take()) == 2  # the bound of the session holds
    (consumer,) = peer.session.consumers.values()
    assert consumer.flow._messages <= UNLIMITED
    assert consumer.flow._octets <= 2**62
    peer.subscribe("/queue/b", "2", ack="client", credit=str(UNLIMITED + 1))
    assert refusal(peer).startswith("bad ")


@pytest.mark.parametrize("name", ["x_message_ttl", "x_expires", "x_max_length", "x_max_length_bytes"])
def test_the_largest_queue_arguments(name):
    bench, peer = Bench.with_peers(1)
    peer.subscribe("/queue/a", **{name: "9" * 15})
    peer.put("/queue/a", "x")
    bench.later(5)
    assert peer.bodies() == [b"x"]
    peer.subscribe("/queue/b", "2", **{name: "9" * 16})
    assert refusal(peer).startswith("bad x-")
