"""Addresses: routing types by header, by prefix and by settings; what is made by itself; composite destinations."""

import pytest
from broker.harness import Bench

from stompcodec.broker.auth import Rule
from stompcodec.broker.config import Config, parse_config
from stompcodec.broker.routing.addresses import Addresses, Naming
from stompcodec.broker.settings import Kind, Preset, Setting
from stompcodec.errors import ConfigError


def kinds(destination, routing=None, **config):
    """Return its address for SEND, and for SUBSCRIBE."""
    addresses = Addresses(Config(**config), Naming())
    return tuple(addresses.find(destination, routing, subscribing).kind for subscribing in (False, True))


@pytest.mark.req("ART-RTE-01", "ART-RTE-02", "ART-RTE-04", "ART-RTE-05", "ART-DST-01")
def test_one_name_is_a_queue_and_a_topic():
    bench = Bench()
    sender, one, two, worker = (bench.peer() for _ in range(4))
    for peer in (one, two):
        peer.send("SUBSCRIBE", destination="a", id="1", subscription_type="MULTICAST")
    worker.send("SUBSCRIBE", destination="a", id="1", subscription_type="ANYCAST")
    sender.put("a", "m", destination_type="MULTICAST")
    sender.put("a", "q", destination_type="ANYCAST")
    sender.put("a", "default")
    assert (one.bodies(), two.bodies(), worker.bodies()) == ([b"m"], [b"m"], [b"q", b"default"])
    for peer in (one, two, worker):
        peer.send("UNSUBSCRIBE", id="1")
    sender.put("a", "nobody", destination_type="MULTICAST")
    sender.put("a", "kept", destination_type="ANYCAST")
    assert bench.broker.queues["/", "a"].count == 1
    one.send("SUBSCRIBE", destination="a", id="1", subscription_type="MULTICAST")
    assert one.take() == []


@pytest.mark.parametrize("value", ["anycast", "Multicast", "", "BOTH"])
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.req("ART-RTE-01", "ART-RTE-02")
def test_routing_types_are_case_sensitive(command, value):
    peer = Bench().peer()
    name = "destination-type" if command == "SEND" else "subscription-type"
    peer.send(command, destination="a", id="1", **{name: value})
    assert peer.error().headers["message"] == "unknown routing type"


@pytest.mark.req("ART-RTE-03", "ART-ADR-01", "ART-ADR-02")
def test_settings_by_pattern_and_delimiter():
    settings = (
        Setting("topic/special", "ANYCAST", "ANYCAST"),
        Setting("topic/#", "MULTICAST", "MULTICAST"),
        Setting("mixed/*/x", "ANYCAST", "MULTICAST"),
    )
    options = {"address_settings": settings, "delimiter": "/"}
    assert kinds("topic/a/b", **options) == (Kind.TOPIC, Kind.TOPIC)
    assert kinds("topic", **options) == (Kind.TOPIC, Kind.TOPIC)
    assert kinds("topic/special", **options) == (Kind.QUEUE, Kind.QUEUE)
    assert kinds("topic.a", **options) == (Kind.QUEUE, Kind.QUEUE)
    assert kinds("mixed/1/x", **options) == (Kind.QUEUE, Kind.TOPIC)
    assert kinds("mixed/1/2/x", **options) == (Kind.QUEUE, Kind.QUEUE)
    assert kinds("topic/a", "ANYCAST", **options) == (Kind.QUEUE, Kind.QUEUE)
    assert kinds("topic/a/b", address_settings=settings) == (Kind.QUEUE, Kind.QUEUE)  # dots are between words
    assert kinds("a", routing="MULTICAST") == (Kind.TOPIC, Kind.TOPIC)
    assert kinds("/queue/a", routing="MULTICAST") == (Kind.QUEUE, Kind.QUEUE)


@pytest.mark.req("ART-RTE-06")
def test_what_is_not_made_by_itself_is_refused():
    settings = (Setting("fixed.#", auto_create_addresses=False, auto_create_queues=False),)
    options = {"address_settings": settings, "presets": (Preset("fixed.a"), Preset("fixed.t", "MULTICAST"))}
    for command, name in (("SEND", "destination-type"), ("SUBSCRIBE", "subscription-type")):
        for routing, there in (("ANYCAST", "fixed.a"), ("MULTICAST", "fixed.t")):
            bench = Bench(**options)
            peer = bench.peer()
            peer.send(command, destination=there, id="1", receipt="r", **{name: routing})
            peer.send(command, destination="made", id="2", receipt="r", **{name: routing})
            assert [frame.command for frame in peer.take()] == ["RECEIPT", "RECEIPT"]
            peer.send(command, destination="fixed.b", id="3", **{name: routing})
            assert peer.error().headers["message"] in ("no such queue", "no such address")
            assert "fixed.b" not in bench.broker.virtual_host("/").queues


def test_what_is_not_deleted_by_itself_stays():
    settings = (Setting("kept.#", auto_delete_addresses=False, auto_delete_queues=False),)
    bench = Bench(address_settings=settings, presets=(Preset("there"),))
    peer = bench.peer()
    for number, name in enumerate(("kept.a", "kept.b", "other.a", "other.b")):
        routing = "MULTICAST" if name.endswith("b") else "ANYCAST"
        peer.send("SUBSCRIBE", destination=name, id=str(number), subscription_type=routing)
        peer.send("UNSUBSCRIBE", id=str(number))
    host = bench.broker.virtual_host("/")
    host.destinations.sweep()
    assert (set(host.queues), set(host.topics)) == ({"kept.a", "there"}, {"kept.b"})


@pytest.mark.parametrize(
    ("source", "line", "key", "says"),
    [
        ("[[addresses.settings]]\nmatch = 3", 2, "addresses.settings.0.match", "a text"),
        ("[[addresses.settings]]\nmacht = 3", 2, "addresses.settings.0.macht", "allowed are match, default_address"),
        ("[[addresses.settings]]\nauto_create_queues = true", 1, "addresses.settings.0", "match is missing"),
        ('[[addresses.preset]]\nname = "a"\nrouting = "anycast"', 3, "addresses.preset.0.routing", '"ANYCAST"'),
        ("[addresses]\npreset = 3", 2, "addresses.preset", "a list of tables"),
        ('[addresses]\nexchanges = { a = "headers" }', 2, "addresses.exchanges", '"topic", "direct" or "fanout"'),
        ('[addresses]\nwildcards = "ant"', 2, "addresses.wildcards", '"none", "activemq", "rabbitmq"'),
        ('broker.dialect = "hornetq"', 1, "broker.dialect", '"stompcodec", "rabbitmq", "activemq"'),
    ],
)
def test_errors_say_where_and_what_is_allowed(source, line, key, says):
    with pytest.raises(ConfigError) as caught:
        parse_config(source, "b.toml")
    assert (caught.value.line, caught.value.key) == (line, key)
    assert says in str(caught.value)


# ---- composite destinations ----


def test_a_composite_send_goes_everywhere_once():
    bench = Bench(composite=True)
    sender, listener = bench.peer(), bench.peer()
    listener.subscribe("/topic/t")
    for _ in range(2):
        sender.put("/queue/a,/topic/t, /queue/b,/queue/a", "x", receipt="r")
    assert len(sender.take()) == 2
    frames = listener.take()
    assert [(frame.body, frame.headers["destination"]) for frame in frames] == [(b"x", "/topic/t")] * 2
    assert {name: queue.count for (_, name), queue in bench.broker.queues.items()} == {"/queue/a": 2, "/queue/b": 2}
    listener.subscribe("/queue/b", "2")
    assert {frame.headers["destination"] for frame in listener.take()} == {"/queue/b"}


def test_a_composite_send_is_one_or_none():
    """If one part refuses a message, no other part gets it."""
    bench = Bench(composite=True, rules=(Rule(destination="/queue/b", allow=False), Rule()))
    peer = bench.peer()
    peer.put("/queue/a,/queue/b", "x")
    assert peer.error().headers["message"] == "not allowed to send there"
    assert all(queue.count == 0 for queue in bench.broker.queues.values())


def test_a_composite_is_bounded():
    peer = Bench(composite=True).peer()
    peer.put(",".join(f"/queue/{number}" for number in range(17)), "x")
    assert peer.error().headers["message"] == "too many destinations"


def test_rules_speak_of_the_name_without_its_prefix():
    rules = (Rule(destination="private", allow=False), Rule())
    for command in ("SEND", "SUBSCRIBE"):
        peer = Bench(anycast_prefix="queue/", rules=rules).peer()
        peer.send(command, destination="queue/private", id="1")
        assert peer.error().headers["message"].startswith("not allowed")
