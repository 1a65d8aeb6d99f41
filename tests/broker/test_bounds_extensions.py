"""Bounds of what goes beyond STOMP, at the limit and one past it: what a peer may have kept, counted, or looked at."""

import pytest
from broker.harness import Bench

from stompcodec.broker.auth import Rule
from stompcodec.broker.config.config import DIALECTS
from stompcodec.broker.queues.consumer import UNLIMITED
from stompcodec.broker.routing import durables
from stompcodec.broker.routing.durable import LONGEST_NAME
from stompcodec.detect import is_legacy

DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "secret"}
NOT_SECRET = (Rule(action="send", destination="/queue/secret", allow=False), Rule())


def queue_of(bench, name="/queue/a"):
    return bench.broker.queues["/", name]


def destinations_of(bench):
    return bench.broker.virtual_host("/").destinations


def later(bench, seconds):
    bench.date += seconds
    bench.wait(seconds)


# ---- delayed messages ----


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
        assert not any("x" * 1000 in repr(vars_of(entry)) for entry in bench.broker.delayed._heap)
    peer = bench.peer()
    for _ in range(3):
        peer.put("/queue/b", "later", delay="1000")
    assert not peer.closed
    peer.put("/queue/b", "later", delay="1000")
    assert peer.error().headers["message"] == "too many delayed messages"
    later(bench, 2)
    assert queue_of(bench, "/queue/b").count == 3


def vars_of(entry):
    return [getattr(part, "tail", part) for part in entry]


@pytest.mark.parametrize(("before", "count"), [(0, 3), (1, 2)])
def test_delayed_messages_of_a_transaction_count(before, count):
    bench = Bench(max_delayed=3)
    peer = bench.peer()
    for past in (0, 1):
        peer.send("BEGIN", transaction="t")
        for _ in range(count if not past else 1):
            peer.put("/queue/a", "x", delay="5000", transaction="t")
            if not past and before:
                before -= 1
                bench.peer().put("/queue/a", "x", delay="5000")
        if not peer.closed:
            peer.send("COMMIT", transaction="t")
        assert peer.closed is bool(past)
    assert peer.error().headers["message"] == "too many delayed messages"
    assert len(bench.broker.delayed) == queue_of(bench).count == 3


def test_a_transaction_of_too_many_delayed_messages_has_no_effect():
    bench = Bench(max_delayed=3)
    peer = bench.peer()
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "now", transaction="t")
    for _ in range(4):
        peer.put("/queue/a", "x", delay="5000", transaction="t")
    peer.send("COMMIT", transaction="t")
    assert peer.error().headers["message"] == "too many delayed messages"
    assert len(bench.broker.delayed) == queue_of(bench).count == 0


@pytest.mark.parametrize(
    ("value", "waits"), [("9" * 15, True), ("9" * 400, False), ("-5", False), ("1e99", False), ("0", False)]
)
def test_absurd_delays(value, waits):
    bench = Bench(dialect="activemq")
    peer = bench.peer()
    peer.put("/queue/a", "x", delay=value)
    assert not peer.closed
    assert len(bench.broker.delayed) == waits
    assert bench.broker.delayed.wait is None or bench.broker.delayed.wait < 10**9


# ---- retained messages ----


@pytest.mark.parametrize("way", ["transaction", "delay", "stored"])
def test_retained_messages_that_take_effect_later_are_bounded(way):
    """There was room when they were sent. Those that it is too late for are delivered, and not retained."""
    bench = Bench(max_destinations=8, retain=True)
    listener, sender = bench.peer(), bench.peer()
    listener.subscribe("/topic/9")
    if way != "delay":
        sender.send("BEGIN", transaction="t")
    for number in range(10):
        headers = {"delay": "10"} if way == "delay" else {"transaction": "t"}
        if way == "stored":
            headers["persistent"] = "true"
        sender.put(f"/topic/{number}", str(number), retain="set", **headers)
    if way != "delay":
        sender.send("COMMIT", transaction="t")
    later(bench, 1)
    assert not sender.closed
    assert listener.bodies() == [b"9"]
    assert list(destinations_of(bench).retained.queues) == [f"/topic/{number}" for number in range(8)]
    assert len(list(bench.store.load())) == (8 if way == "stored" else 0)
    sender.put("/topic/7", "again", retain="set")
    assert not sender.closed
    sender.put("/topic/9", "new", retain="set")
    assert sender.error().headers["message"] == "too many retained messages"


def test_octets_of_retained_messages_that_take_effect_later_are_bounded():
    bench = Bench(max_retained_octets=1000, retain=True)
    sender = bench.peer()
    for _ in range(20):
        sender.put("/topic/a", "x" * 100, retain="set", delay="10")
    for number in range(20):
        sender.put(f"/topic/{number}", "x" * 400, retain="set", delay="10")
    later(bench, 1)
    assert sum(queue.octets for queue in destinations_of(bench).retained.queues.values()) < 1000 + 500
    assert len(destinations_of(bench).retained.queues) == 3


# ---- durable subscriptions ----


def durable(peer, name, **headers):
    peer.subscribe("/topic/a", durable_subscription_name=name, **headers)
    peer.send("UNSUBSCRIBE", id="1")


def test_names_of_durable_subscriptions():
    bench = Bench()
    peer = bench.peer(connect=False)
    peer.connect(client_id="me")
    durable(peer, "n" * (LONGEST_NAME - 3))
    assert peer.take() == []
    durable(peer, "n" * (LONGEST_NAME - 2))
    assert "too long" in peer.take()[0].headers["message"]
    assert len(destinations_of(bench).durables.by_name) == 1


def test_selectors_that_durable_subscriptions_keep(monkeypatch):
    """A session's own bound does not hold for those: they stay when it goes."""
    pytest.importorskip("lark")
    monkeypatch.setattr(durables, "_MOST_SELECTED", 30)
    bench = Bench()
    peer = bench.peer(connect=False)
    peer.connect(client_id="me")
    for number in range(3):
        durable(peer, f"n{number}", selector="color = 'r'")  # the same one is kept once
    durable(peer, "m", selector="size > " + "1" * 12)
    assert peer.take() == []
    durable(peer, "past", selector="n > 12")
    assert peer.take()[0].headers["message"] == "too many selectors"
    assert "me.past" not in destinations_of(bench).durables.by_name


# ---- composite destinations ----


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
    peer = bench.peer(connect=False)
    peer.connect(client_id="me")
    bench.peer().put("/queue/a", "kept")
    peer.subscribe(destination, **headers)
    assert peer.error()
    peer.lose()
    assert destinations_of(bench).durables.by_name == {}
    assert list(bench.store.subscriptions()) == []
    assert not peer.session.consumers
    assert queue_of(bench).consumers == []
    other = bench.peer()
    other.subscribe("/queue/a")
    assert other.bodies() == [b"kept"]


def test_a_composite_of_as_many_parts_as_there_may_be():
    bench = Bench(composite=True)
    peer = bench.peer()
    peer.put(",".join(f"/queue/{number}" for number in range(16)), "x")
    peer.subscribe(",".join(f"/queue/{number}" for number in range(16)))
    assert peer.bodies() == [b"x"] * 16
    peer.subscribe(",".join(f"/queue/{number}" for number in range(17)), "2")
    assert peer.error().headers["message"] == "too many destinations"


# ---- names that stand for others, and rules ----


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("name", ["/queue/secret", "secret"])
def test_no_other_name_leads_around_the_rules(command, name):
    rules = (Rule(destination="/queue/secret", allow=False), Rule(destination="secret", allow=False), Rule())
    bench = Bench(**DIALECTS["rabbitmq"], rules=rules)
    queue = destinations_of(bench).queue(name)
    peer = bench.peer()
    peer.send(command, destination=f"/amq/queue/{name}", id="1")
    assert peer.error().headers["message"] in ("no such queue", f"not allowed to {command.lower()} there")
    assert (queue.count, queue.consumers) == (0, [])


def test_no_other_name_leads_to_a_temporary_queue_of_somebody_else():
    bench = Bench(**DIALECTS["rabbitmq"])
    owner, peer = bench.peer(), bench.peer()
    owner.subscribe("/temp-queue/mine")
    (name,) = destinations_of(bench).owners
    peer.subscribe(f"/amq/queue/{name}")
    assert peer.error().headers["message"] == "no such queue"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_dead_letters_go_nowhere_where_their_sender_may_not(command):
    bench = Bench(rules=NOT_SECRET)
    peer = bench.peer()
    peer.send(command, destination="/queue/a", id="1", **DEAD)
    assert peer.error().headers["message"] == "not allowed to send there"
    other = bench.peer()
    other.send(command, destination="/queue/b", id="1", **{**DEAD, "x_dead_letter_routing_key": "open"})
    assert not other.closed


# ---- numbers ----


def test_credit_does_not_grow_beyond_what_there_can_be():
    bench = Bench(max_unacked=5, prefetch=1)
    peer, sender = bench.peer(), bench.peer()
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
    assert peer.error().headers["message"].startswith("bad ")


@pytest.mark.parametrize(("value", "fine"), [(str(2**62), True), (str(2**62 + 1), False), ("9" * 400, False)])
@pytest.mark.parametrize("name", ["from_seq", "consumer_window_size"])
def test_the_largest_numbers(name, value, fine):
    bench = Bench()
    bench.peer().put("/queue/a", "x")
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client", browser="true", **{name: value})
    assert peer.closed is not fine


@pytest.mark.parametrize("name", ["x_message_ttl", "x_expires", "x_max_length", "x_max_length_bytes"])
def test_the_largest_queue_arguments(name):
    bench = Bench()
    peer = bench.peer()
    peer.subscribe("/queue/a", **{name: "9" * 15})
    peer.put("/queue/a", "x")
    later(bench, 5)
    assert peer.bodies() == [b"x"]
    peer.subscribe("/queue/b", "2", **{name: "9" * 16})
    assert peer.error().headers["message"].startswith("bad x-")


# ---- what is looked at ----


@pytest.mark.parametrize(("size", "legacy"), [(8192, None), (8193, False)])
def test_a_first_frame_that_never_ends(size, legacy):
    head = b"CONNECT\nusername:"
    assert is_legacy(head + b"a" * (size - len(head))) is legacy


def test_a_legacy_client_that_never_ends_its_first_frame_is_cut_off():
    bench = Bench(detect_legacy=True)
    peer = bench.peer(connect=False)
    peer.raw(b"CONNECT\nusername:")
    for _ in range(100):
        if not peer.closed:
            peer.raw(b"a" * 100)
    assert peer.closed
    assert peer.error().headers["message"]


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_received_messages_at_their_limit(mode):
    bench = Bench(max_subscriptions=3)
    peer = bench.peer()
    for _ in range(4):
        peer.put("/queue/a", "x")
    for _ in range(3):
        peer.raw(f"RECEIVE\nid:1\ndestination:/queue/a\nack:{mode}\n\n\0".encode())
    messages = peer.take()
    assert [frame.command for frame in messages] == ["MESSAGE"] * 3
    peer.ack(messages[0])
    peer.raw(f"RECEIVE\nid:1\ndestination:/queue/a\nack:{mode}\n\n\0".encode())
    assert peer.next("MESSAGE")
    peer.raw(f"RECEIVE\nid:1\ndestination:/queue/a\nack:{mode}\n\n\0".encode())
    assert peer.error().headers["message"] == "too many unacknowledged RECEIVEs"
    assert len(queue_of(bench).messages) == 3


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("over", [0, 1])
def test_the_length_of_a_name(kind, over):
    bench = Bench()
    peer, name = bench.peer(), f"/{kind}/".ljust(4096 + over, "a")
    peer.subscribe(name)
    bench.peer().put(name, "hello")
    if over:
        assert peer.error().headers["message"] == "destination too long"
        assert bench.broker.queues == {}
    else:
        assert peer.bodies() == [b"hello"]


@pytest.mark.parametrize("over", [0, 1])
def test_the_length_of_a_name_that_is_sent_to(over):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/".ljust(4096 + over, "a"), "hello")
    if over:
        assert peer.error().headers["message"] == "destination too long"
    else:
        assert not peer.closed
