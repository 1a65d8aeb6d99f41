"""Addresses: routing types, composites; RabbitMQ's exchanges and named queues; virtual topics as of ActiveMQ 5.17."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import client, finish, left, put_all, queue_of, refusal, taker, transaction

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import DIALECTS, Config
from stompcodec.broker.routing.addresses import Addresses, Naming
from stompcodec.broker.settings import Kind, Preset, Setting

NOT_ALLOWED = "not allowed to subscribe there"


def kinds(destination, routing=None, **config):
    addresses = Addresses(Config(**config), Naming())
    return tuple(addresses.find(destination, routing, subscribing).kind for subscribing in (False, True))


@pytest.mark.parametrize("value", ["anycast", "Multicast", "", "BOTH"])
@pytest.mark.parametrize(("command", "name"), [("SEND", "destination-type"), ("SUBSCRIBE", "subscription-type")])
@pytest.mark.req("ART-RTE-01", "ART-RTE-02")
def test_routing_types_are_case_sensitive(command, name, value):
    peer = Bench().peer()
    peer.send(command, destination="a", id="1", **{name: value})
    assert refusal(peer) == "unknown routing type"


@pytest.mark.req("ART-RTE-03", "ART-ADR-01", "ART-ADR-02", "ART-DST-01")
def test_settings_by_pattern_and_delimiter():
    settings = (
        Setting("topic/special", "ANYCAST", "ANYCAST"),
        Setting("topic/#", "MULTICAST", "MULTICAST"),
        Setting("mixed/*/x", "ANYCAST", "MULTICAST"),
    )
    options = {"address_settings": settings, "delimiter": "/"}
    queues, topics = (Kind.QUEUE, Kind.QUEUE), (Kind.TOPIC, Kind.TOPIC)
    assert kinds("topic/a/b", **options) == kinds("topic", **options) == topics
    assert kinds("topic/special", **options) == kinds("topic.a", **options) == queues
    assert kinds("mixed/1/x", **options) == (Kind.QUEUE, Kind.TOPIC)
    assert kinds("mixed/1/2/x", **options) == kinds("topic/a", "ANYCAST", **options) == queues
    assert kinds("topic/a/b", address_settings=settings) == queues  # dots are between words
    assert kinds("a", routing="MULTICAST") == topics
    assert kinds("/queue/a", routing="MULTICAST") == queues


@pytest.mark.req("ART-RTE-06")
def test_what_is_not_made_by_itself_is_refused():
    settings = (Setting("fixed.#", auto_create_addresses=False, auto_create_queues=False),)
    options = {"address_settings": settings, "presets": (Preset("fixed.a"), Preset("fixed.t", "MULTICAST"))}
    for command, name in (("SEND", "destination-type"), ("SUBSCRIBE", "subscription-type")):
        for routing, there in (("ANYCAST", "fixed.a"), ("MULTICAST", "fixed.t")):
            bench = Bench(**options)
            peer = bench.peer()
            for id, destination in (("1", there), ("2", "made")):
                peer.send(command, destination=destination, id=id, receipt="r", **{name: routing})
            assert [frame.command for frame in peer.take()] == ["RECEIPT", "RECEIPT"]
            peer.send(command, destination="fixed.b", id="3", **{name: routing})
            assert refusal(peer) in ("no such queue", "no such address")
            assert "fixed.b" not in bench.broker.virtual_host("/").queues


def test_what_is_not_deleted_by_itself_stays():
    settings = (Setting("kept.#", auto_delete_addresses=False, auto_delete_queues=False),)
    bench = Bench(address_settings=settings, presets=(Preset("there"),))
    for name in ("kept.a", "kept.b", "other.a", "other.b"):
        left(bench, name, subscription_type="MULTICAST" if name.endswith("b") else "ANYCAST")
    host = bench.broker.virtual_host("/")
    host.destinations.sweep()
    assert (set(host.queues), set(host.topics)) == ({"kept.a", "there"}, {"kept.b"})


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_rules_speak_of_the_name_without_its_prefix(command):
    rules = (Rule(destination="private", allow=False), Rule())
    peer = Bench(anycast_prefix="queue/", rules=rules).peer()
    peer.send(command, destination="queue/private", id="1")
    assert refusal(peer).startswith("not allowed")


def test_a_composite_send_is_one_or_none_and_bounded():
    bench = Bench(composite=True, rules=(Rule(destination="/queue/b", allow=False), Rule()))
    for name, says in (
        ("/queue/a,/queue/b", "not allowed to send there"),
        (",".join(f"/queue/c{number}" for number in range(17)), "too many destinations"),
    ):
        peer = bench.peer()
        peer.put(name, "x")
        assert refusal(peer) == says
        assert all(queue.count == 0 for queue in bench.broker.queues.values())


@pytest.mark.parametrize(
    ("dialect", "headers", "why"),
    [
        ("rabbitmq", {"destination": "/temp-queue/a"}, "invalid destination"),
        (
            *("activemq", {"destination": "/queue/a", "activemq.subscriptionName": "n"}),
            "cannot durably subscribe to a queue",
        ),
        ("activemq", {"destination": "/queue/a.>"}, "queues have no wildcards"),
        ("artemis", {"destination": "/queue/a.*"}, "queues have no wildcards"),
        ("rabbitmq", {"destination": "/queue/a.*"}, None),  # there it is a name
        ("rabbitmq", {"destination": "/queue/a/b"}, "invalid destination"),
        ("activemq", {"destination": "/queue/a", "activemq.prefetchSize": "0"}, "bad activemq.prefetchSize"),
        ("activemq", {"destination": "/queue/a", "activemq.noLocal": "true"}, "bad activemq.noLocal"),
        ("activemq", {"destination": "/queue/a", "activemq.noLocal": "false"}, None),
        ("artemis", {"destination": "/topic/a", "no-local": "true"}, "bad no-local"),
        ("artemis", {"destination": "/topic/a::q"}, "invalid destination"),
        ("activemq", {"destination": "/queue/a", "selector": "convert_string_expressions:a = 1"}, "bad selector"),
        ("artemis", {"destination": "/topic/a", "selector": "convert_string_expressions:a = 1"}, None),
        ("activemq", {"destination": "/queue/a.>b"}, None),
        ("activemq", {"destination": "/queue/Consumer.A.VirtualTopic.>"}, None),
        ("stompcodec", {"destination": "/queue/a.>", "durable-subscriber-name": "n"}, None),
    ],
)
@pytest.mark.req("S12-SUB-03")
def test_what_would_wait_for_ever_is_refused(dialect, headers, why):
    """A subscription that the broker of the dialect refuses, or serves in a way that this one does not."""
    peer = Bench(dialect=dialect).client(client_id="c")
    peer.send("SUBSCRIBE", **{"id": "1", **headers})
    assert [frame.headers["message"] for frame in peer.take()] == ([] if why is None else [why])


# ---- RabbitMQ: exchanges, queues made elsewhere, and queues of a session ----
def rabbitmq(store=None, **config):
    bench = Bench(store, **{**DIALECTS["rabbitmq"], **config})
    return bench, bench.peer(), bench.peer()


@pytest.mark.parametrize(
    ("exchange", "pattern", "key", "fits", "from_topic"),
    [
        *(("amq.topic", "a.*", "a.b", True, True), ("amq.topic", "a.*", "b.b", False, False)),
        *(("amq.direct", "a.b", "a.b", True, False), ("amq.direct", "a.*", "a.b", False, False)),
        *(("amq.direct", "a.*", "a.*", True, False), ("amq.fanout", "a", "b", True, False)),
        *(("orders", "a.*", "a.b", True, False), ("orders", "*.b", "a.b", True, False)),
        *(("orders", "a.*", "b.b", False, False), ("spread", "", "b", True, False)),
    ],
)
def test_exchanges(exchange, pattern, key, fits, from_topic):
    _bench, sender, consumer = rabbitmq(exchanges={"orders": "topic", "spread": "fanout"})
    consumer.subscribe(f"/exchange/{exchange}/{pattern}")
    sender.put(f"/exchange/{exchange}/{key}", "x")
    sender.put(f"/topic/{key}", "topics")
    assert consumer.bodies() == [b"x"] * fits + [b"topics"] * from_topic


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_unknown_exchange_and_a_message_id_are_refused(command):
    _bench, peer, other = rabbitmq()
    peer.send(command, destination="/exchange/nothing/a", id="1")
    assert refusal(peer) == "no such exchange"
    put_all(other, "xx")
    other.put("/queue/a", "x", message_id="1")
    assert refusal(other) == "message-id must not be set"


def test_rules_hold_for_the_topic_behind_a_named_queue():
    rules = (Rule("ada", destination="/topic/private"), Rule(destination="/queue/*"))
    users = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "bob")}
    bench = Bench(**DIALECTS["rabbitmq"], rules=rules, users=users)
    ada, bob = client(bench, "", login="ada"), client(bench, "", login="bob")
    ada.subscribe("/topic/private", x_queue_name="q", durable="true")
    ada.subscribe("/amq/queue/q", "2", receipt="r")
    assert ada.next().command == "RECEIPT"
    bob.subscribe("/amq/queue/q")
    assert refusal(bob) == NOT_ALLOWED


def stored(bench):
    return [found.destination for found in bench.store.load()]


def test_an_exclusive_queue_is_its_sessions():
    bench, sender, owner = rabbitmq(refuse_message_id=False)
    owner.subscribe("/queue/mine", exclusive="true")
    assert "another session" in refusal(taker(bench, "/queue/mine"))
    sender.put("/queue/mine", "1", persistent="true")
    assert owner.bodies() == [b"1"]
    owner.send("UNSUBSCRIBE", id="1")
    sender.put("/queue/mine", "2", persistent="true")
    assert len(stored(bench)) == 1
    assert "/queue/mine" in sender.session.cached_targets
    owner.lose()
    bench.peer().put("/queue/x", "x", persistent="true")
    assert (stored(bench), list(bench.broker.queues)) == (["/queue/x"], [("/", "/queue/x")])
    sender.put("/queue/mine", "3")  # what it knew of the queue is forgotten
    assert left(bench, "/queue/mine") == [b"3"]


@pytest.mark.parametrize("before", [False, True])
def test_an_auto_delete_queue_ends_with_its_last_consumer_if_that_made_it(before):
    bench, sender, _ = rabbitmq(ack_after_unsubscribe=False)
    if before:
        sender.put("/queue/a", "0")
        assert refusal(taker(bench, exclusive="true")) == "the queue is not exclusive"
    one, two = (taker(bench, auto_delete="true", ack="client", prefetch_count="1") for _ in range(2))
    put_all(sender, range(4), persistent="true")
    one.lose()
    assert queue_of(bench).count == 4 + before
    two.send("UNSUBSCRIBE", id="1", receipt="r")
    if before:
        assert queue_of(bench).count == 5
    else:
        assert (bench.broker.queues, stored(bench), bench.octets) == ({}, [], 0)


def test_a_transaction_that_outlives_its_queue():
    bench, sender, peer = rabbitmq()
    peer.subscribe("/queue/a", auto_delete="true", ack="client-individual")
    sender.put("/queue/a", "1", persistent="true")
    with transaction(peer):
        peer.ack(peer.next("MESSAGE"), transaction="t")
        peer.send("UNSUBSCRIBE", id="1")
    bench.peer().put("/queue/x", "x", persistent="true")
    assert (stored(bench), list(bench.broker.queues)) == (["/queue/x"], [("/", "/queue/x")])


FORMS = ("Q", "/queue/Q", "/amq/queue/Q")


@pytest.mark.parametrize("topic", ["/topic/t", "/topic/t.#", "/exchange/amq.topic/t", "/exchange/amq.fanout/t"])
@pytest.mark.parametrize("how", [{}, {"durable": "true"}, {"durable": "true", "auto_delete": "false"}])
def test_a_queue_that_a_subscription_names_has_three_names(topic, how):
    bench, sender, peer = rabbitmq()
    for name in FORMS[:2]:  # what a session remembers of the names from before
        sender.put(name, "before")
        peer.subscribe(name, "before")
        assert peer.bodies() == [b"before"]
        peer.send("UNSUBSCRIBE", id="before")
    for version in ("1.0", "1.1", "1.2") if how else ("1.2",):
        peer = taker(bench, topic, version=version, x_queue_name="Q", **how)
        for name in FORMS:
            sender.put(name, name, persistent="true")
        sender.put(topic.replace("#", "x"), "by the topic", persistent="true")
        assert peer.bodies() == [name.encode() for name in (*FORMS, "by the topic")]
        for name, more in (*((name, {}) for name in FORMS), (topic, {"x_queue_name": "Q", **how})):
            other = taker(bench, name, "2", version, ack="client", **more)
            put_all(sender, "12", topic.replace("#", "x"))
            assert sorted(peer.bodies() + other.bodies()) == [b"1", b"2"]
            other.lose()
            peer.take()
        bench.audit()
        if how:
            bench, sender, _ = rabbitmq(bench.store)
        else:
            peer.lose()
            assert not list(bench.broker.virtual_host("/").destinations.durables), "it ends with its last consumer"


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("name", FORMS[:2])
def test_a_queue_that_was_there_becomes_that_of_the_subscription(persistent, name):
    bench, sender, _ = rabbitmq()
    put_all(sender, "12", name, persistent=persistent)
    peer = taker(bench, "/topic/t", x_queue_name="Q", durable="true", ack="client")
    sender.put("/topic/t", "3", persistent=persistent)
    sender.put(name, "4", persistent=persistent)
    assert (peer.bodies(), list(bench.broker.queues)) == ([b"1", b"2", b"3", b"4"], [])
    bench, *_ = rabbitmq(bench.store)
    assert left(bench, name) == ([b"1", b"2", b"3", b"4"] if persistent == "true" else [])
    assert stored(bench) == []


@pytest.mark.parametrize("reason", ["a consumer", "unacknowledged", "not durable", "too many"])
def test_a_queue_that_is_in_use_cannot_be_named(reason):
    bench, sender, _ = rabbitmq()
    put_all(sender, "x" * (1001 if reason == "too many" else 1), "/queue/Q")
    if reason in ("a consumer", "unacknowledged"):
        taker(bench, "/queue/Q", ack="auto" if reason == "a consumer" else "client")
    peer = taker(bench, "/topic/t", x_queue_name="Q", **({} if reason == "not durable" else {"durable": "true"}))
    assert refusal(peer) == "a queue of that name exists"
    assert queue_of(bench, "/queue/Q").count == {"a consumer": 0, "too many": 1001}.get(reason, 1)


TOPIC = "/topic/VirtualTopic.Orders"


def queue(name, topic="VirtualTopic.Orders"):
    return f"/queue/Consumer.{name}.{topic}"


def activemq(store=None, **config):
    return Bench(store, **{**DIALECTS["activemq"], **config})


def test_each_queue_gets_every_message_beside_plain_subscribers():
    bench = activemq()
    names = [queue("A"), queue("A"), queue("B"), TOPIC, "/topic/VirtualTopic.>"]
    first, second, *all_of_it = [taker(bench, name) for name in names]
    names = (queue("A", "VirtualTopic.Other"), queue("A.B"), "/queue/Consumer.VirtualTopic.Orders")
    none_of_it = [taker(bench, name) for name in names]
    put_all(bench.peer(), range(4), TOPIC)
    assert (first.bodies(), second.bodies()) == ([b"0", b"2"], [b"1", b"3"])
    assert [peer.bodies() for peer in all_of_it] == [[b"0", b"1", b"2", b"3"]] * 3
    assert [peer.bodies() for peer in none_of_it] == [[], [], []]


SENT = ["", ".Orders", ".Orders.eu", ".Orders.eu.de", "X"]


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        *(("VirtualTopic.Orders.>", [".Orders", ".Orders.eu", ".Orders.eu.de"]), ("VirtualTopic.*", [".Orders"])),
        ("VirtualTopic.Orders.*", [".Orders.eu"]),
        *(("VirtualTopic.>", ["", ".Orders", ".Orders.eu", ".Orders.eu.de"]), ("VirtualTopic", [""])),
        ("VirtualTopicX", []),
    ],
)
def test_wildcards_of_virtual_topics(name, topics):
    bench = activemq()
    peer, sender = taker(bench, queue("W", name)), bench.peer()
    for topic in SENT:
        sender.put(f"/topic/VirtualTopic{topic}", topic)
    sender.put("/topic/Orders", "another")
    sender.put("/queue/VirtualTopic.Orders", "a queue is no topic")
    assert peer.bodies() == [topic.encode() for topic in topics]


def test_a_queue_made_while_a_transaction_waits_for_the_disk():
    bench = activemq(FaultyStore(background=True))
    peer, sender = taker(bench, queue("A")), bench.peer()
    finish(bench)
    with transaction(sender):
        sender.put(TOPIC, "1", transaction="t", persistent="true")
    late = taker(bench, queue("B"))
    finish(bench)
    # The late queue was not there, and the store does not have the message for it.
    assert (peer.bodies(), late.bodies(), stored(bench)) == ([b"1"], [], [])


def test_an_automatic_queue_ends_with_its_last_consumer():
    bench = activemq()
    taker(bench, queue("A"), auto_delete="true").lose()
    bench.peer().put(TOPIC, "nobody")
    assert (list(bench.broker.queues), list(bench.store.subscriptions())) == ([], [])
    bench.wait(60)
    assert bench.peer().session.virtual_host.destinations.shares.count == 0
    bench.audit()


@pytest.mark.parametrize("name", ["VirtualTopic." + "a." * 64 + "*", "VirtualTopic." + "a" * 5000])
def test_a_name_that_cannot_be_matched_is_refused(name):
    bench = activemq()
    assert taker(bench, queue("A", name)).error()
    assert list(bench.broker.queues) == []
    bench.audit()


def test_a_queue_that_could_not_be_stored_is_stored_later():
    bench = activemq(FaultyStore())
    bench.store.faulty = True
    bench.peer().put(queue("A"), "x")
    assert list(bench.store.subscriptions()) == []
    bench.store.faulty = False
    bench.peer().put("/queue/other", "x", persistent="true")
    assert len(list(bench.store.subscriptions())) == 1


def test_a_name_without_a_prefix_is_the_queue():
    """ActiveMQ takes NAME for /queue/NAME; so consumers of virtual topics by their bare names are fed, too."""
    bench = activemq(rules=(Rule("*", "*", "/queue/secret", allow=False), Rule("*", "*", "*")), large=1000)
    bare = queue("A").removeprefix("/queue/")
    one, other = taker(bench, bare), taker(bench, queue("B").removeprefix("/queue/"))
    sender = bench.peer()
    sender.put(TOPIC, "fed" * 1000)
    assert (one.bodies(), other.bodies()) == ([b"fed" * 1000], [b"fed" * 1000])
    one.lose()
    sender.put(TOPIC, "kept")
    sender.put(bare, "sent")
    assert left(bench, queue("A")) == [b"kept", b"sent"]
    for name in ("secret", "/queue/secret"):
        peer = bench.peer()
        peer.put(name, "x")
        assert refusal(peer) == "not allowed to send there"
