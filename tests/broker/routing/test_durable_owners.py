"""A durable subscription belongs to user and client-id: nobody else reads it, ends it, or locks its owner out."""

import logging

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec import Limits, Parser
from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.settings import Preset
from stompcodec.broker.storage.sqlite import SqliteStore

TOPIC = "/topic/a"
PASSCODE = hash_passcode("guest", n=16)
USERS = {name: User(name, PASSCODE) for name in ("ada", "eve", "~", "")}
#: Dialect, version, the headers that name it, and the name of its queue.
WAYS = [
    ("stompcodec", "1.0", {"durable-subscription-name": "n"}, "c.n"),
    ("stompcodec", "1.1", {"durable-subscriber-name": "n"}, "c.n"),
    ("artemis", "1.2", {"durable-subscriber-name": "n"}, "c.n"),
    ("artemis", "1.1", {"durable-subscription-name": "n"}, "c.n"),
    ("activemq", "1.1", {"activemq.subscriptionName": "n"}, "c.n"),
    ("activemq", "1.2", {"activemq.subscriptionName": "n", "selector": "a = 1"}, "c.n"),
    ("rabbitmq", "1.2", {"durable": "true", "auto-delete": "false"}, "1@/topic/a"),
    ("rabbitmq", "1.1", {"durable": "true", "auto-delete": "false", "x-queue-name": "q"}, "q"),
    ("rabbitmq", "1.2", {"auto-delete": "false", "x-queue-name": "q"}, "q"),
]
#: Queues of that name, as other brokers let a client reach them.
PREFIXES = {"rabbitmq": "/amq/queue/"}


def in_ways(*ways):
    names = [f"{way[0]}-{way[1]}-{'-'.join(way[2])}" for way in ways]
    return pytest.mark.parametrize(("dialect", "version", "headers", "name"), ways, ids=names)


every_way = in_ways(*WAYS)
#: UNSUBSCRIBE ends it. That with x-queue-name alone ends with its last consumer, or stays.
ways_to_end = in_ways(*(way for way in WAYS if way[2].keys() != {"auto-delete", "x-queue-name"}))


class Place:
    """A broker, and who comes to it."""

    def __init__(self, dialect, version, headers, name, **options):
        options = {"users": USERS, **DIALECTS[dialect], "max_attempts": 1, **options}
        if options["users"] is None:
            del options["users"]
        self.bench = Bench(**options)
        self.version, self.headers, self.name = version, headers, name
        self.prefix = PREFIXES.get(dialect)

    def user(self, login, client_id="c"):
        peer = self.bench.peer(self.version, connect=False)
        peer.parser = Parser(None, limits=Limits(), commands=("EMPTY",))
        peer.connect(login=login, client_id=client_id)
        return peer

    def subscribe(self, peer, **headers):
        peer.send("SUBSCRIBE", destination=TOPIC, id="1", **{**self.headers, **headers})

    def unsubscribe(self, peer):
        peer.send("UNSUBSCRIBE", destination=TOPIC, id="1", **self.headers)

    def put(self, body, login="ada"):
        peer = self.bench.peer(connect=False)
        peer.connect(login=login)
        peer.put(TOPIC, body, a="1", persistent="true", destination_type="MULTICAST")
        assert not peer.closed

    @property
    def kept(self):
        """Messages by durable subscription."""
        durables = self.bench.broker.virtual_host("/").destinations.durables
        return {name: durable.queue.count for name, durable in durables.by_name.items()}


def ask(peer, command, destination, **headers):
    """SUBSCRIBE or RECEIVE, of a queue."""
    pairs = {"destination": destination, "id": "9", "subscription-type": "ANYCAST", **headers}
    if peer.version == "1.0":
        del pairs["id"]
    lines = [command, *(f"{key}:{value}" for key, value in pairs.items()), "", "\0"]
    peer.raw("\n".join(lines).encode())


@pytest.fixture
def place(dialect, version, headers, name):
    """One where ada has a durable subscription with a message in it."""
    place = Place(dialect, version, headers, name)
    ada = place.user("ada")
    place.subscribe(ada, ack="client")
    ada.lose()
    place.put(b"secret")
    assert list(place.kept.values()) == [1]
    return place


@every_way
def test_another_user_gets_one_of_their_own(place):
    """They neither read it nor lock its owner out."""
    eve = place.user("eve")
    place.subscribe(eve)
    ada = place.user("ada")
    assert (ada.closed, eve.closed) == (False, False), "the client-id is taken within a user only"
    place.subscribe(ada)
    assert (ada.bodies(), eve.bodies()) == ([b"secret"], [])
    place.put(b"public")
    assert (ada.bodies(), eve.bodies()) == ([b"public"], [b"public"])


@ways_to_end
def test_another_user_cannot_end_it(place):
    (title,) = place.kept
    eve = place.user("eve")
    place.unsubscribe(eve)
    assert eve.closed
    assert list(place.kept.values()) == [1]
    eve = place.user("eve")
    place.subscribe(eve)
    place.unsubscribe(eve)
    assert not eve.closed
    assert place.kept == {title: 1}
    ada = place.user("ada")
    place.subscribe(ada)
    assert ada.bodies() == [b"secret"]


@ways_to_end
@pytest.mark.parametrize("users", [True, False])
def test_its_owner_can_end_it(dialect, version, headers, name, users):
    """Without users everybody is one user."""
    place = Place(dialect, version, headers, name, users=USERS if users else None)
    ada = place.user("ada")
    place.subscribe(ada)
    ada.lose()
    place.put(b"open")
    assert list(place.kept.values()) == [1]
    owner = place.user("ada" if users else "eve")
    place.subscribe(owner)
    assert owner.bodies() == [b"open"]
    owner.lose()
    place.put(b"more")
    owner = place.user("ada" if users else "eve")
    place.unsubscribe(owner)
    assert not owner.closed
    assert place.kept == {}
    assert place.bench.octets == 0


@every_way
@pytest.mark.parametrize("command", ["SUBSCRIBE", "browser", "RECEIVE", "SEND"])
def test_another_user_cannot_reach_its_queue(place, command):
    """Try the names that RabbitMQ has for it, and its own name in the broker."""
    (title,) = place.kept
    queues = [place.name, title, "/queue/" + title, "/queue/" + place.name]
    if place.prefix is not None:
        queues += [place.prefix + place.name, place.prefix + title]
    for queue in queues:
        eve = place.user("eve")
        if command == "SEND":
            eve.put(queue, b"forged", a="1", destination_type="ANYCAST")
        else:
            extra = {"browser": "true"} if command == "browser" else {}
            ask(eve, "RECEIVE" if command == "RECEIVE" else "SUBSCRIBE", queue, **extra)
        assert all(b"secret" not in frame.body for frame in eve.take())
        eve.lose()
    assert place.kept == {title: 1}
    ada = place.user("ada")
    place.subscribe(ada)
    assert ada.bodies() == [b"secret"]


@every_way
def test_another_user_cannot_read_its_dead_letters(place, version):
    ada = place.user("ada")
    place.subscribe(ada, ack="client")
    if version == "1.0":
        pytest.skip("it has no NACK")
    ada.nack(ada.next("MESSAGE"))
    letters = [name for _vhost, name in place.bench.broker.queues if "DLQ" in name]
    assert len(letters) == 1
    for command, headers in (("SUBSCRIBE", {}), ("SUBSCRIBE", {"browser": "true"}), ("RECEIVE", {})):
        eve = place.user("eve")
        ask(eve, command, letters[0], **headers)
        assert eve.error().headers["message"] == "not allowed to subscribe there"
    ask(ada, "SUBSCRIBE", letters[0])
    assert ada.bodies() == [b"secret"]


@ways_to_end
def test_the_rules_count_when_it_is_resumed_and_when_it_is_ended(dialect, version, headers, name):
    """They may have changed since it was made."""
    place = Place(dialect, version, headers, name)
    ada = place.user("ada")
    place.subscribe(ada)
    ada.lose()
    place.put(b"secret")
    auth = place.bench.broker.auth
    auth._rules = (Rule("ada", "subscribe", TOPIC, allow=False), Rule())
    for way in (place.subscribe, place.unsubscribe):
        ada = place.user("ada")
        way(ada)
        assert ada.error().headers["message"] == "not allowed to subscribe there"
    if place.prefix is not None:
        ada = place.user("ada")
        ada.subscribe(place.prefix + name)
        assert ada.error().headers["message"] == "not allowed to subscribe there"
    assert list(place.kept.values()) == [1]
    auth._rules = ()
    ada = place.user("ada")
    place.subscribe(ada)
    assert ada.bodies() == [b"secret"]


@pytest.mark.parametrize("policy", ["refuse", "replace", "allow"])
def test_a_client_id_is_taken_within_one_user(policy):
    bench = Bench(users=USERS, same_client=policy)
    peers = {}
    for login in ("ada", "eve"):
        peers[login] = bench.peer(connect=False)
        peers[login].connect(login=login, client_id="c")
    second = bench.peer(connect=False)
    second.send("CONNECT", accept_version="1.2", host="/", login="ada", passcode="guest", client_id="c")
    assert second.closed is (policy == "refuse")
    assert peers["ada"].closed is (policy == "replace")
    assert not peers["eve"].closed
    for peer in (second, *peers.values()):
        peer.lose()
    assert bench.broker.virtual_host("/")._clients == {}


# ---- over restarts ----


def stored(folder, *, users=USERS, **options):
    options = options if users is None else {"users": users, **options}
    bench = Bench(SqliteStore(folder), **options)
    bench.broker.journal._call_soon = None  # nothing is written in the background
    return bench


def client(bench, login, client_id="c"):
    peer = bench.peer(connect=False)
    peer.connect(login=login, client_id=client_id)
    return peer


def subscribe(peer, destination=TOPIC, **headers):
    peer.send("SUBSCRIBE", destination=destination, id="1", durable_subscription_name="n", **headers)


def close(bench):
    bench.broker.stop(bench.now)
    bench.turn()
    bench.store.close()


def test_owners_outlive_the_broker(tmp_path):
    bench = stored(tmp_path)
    for login in ("ada", "eve"):
        subscribe(client(bench, login), ack="client")
    sender = client(bench, "ada", "s")
    sender.put(TOPIC, b"both", persistent="true", receipt="r")
    assert sender.next().command == "RECEIPT"
    close(bench)
    for _ in range(2):
        bench = stored(tmp_path)
        ada = client(bench, "ada")
        subscribe(ada, ack="client")
        assert ada.bodies() == [b"both"]
        close(bench)
    bench = stored(tmp_path)
    ada = client(bench, "ada")
    ada.send("UNSUBSCRIBE", id="1", durable_subscription_name="n", receipt="r")
    assert ada.next().command == "RECEIPT"
    close(bench)
    bench = stored(tmp_path)
    assert list(bench.broker.virtual_host("/").destinations.durables.by_name) == ["~eve~c.n"]
    eve = client(bench, "eve")
    subscribe(eve)
    assert eve.bodies() == [b"both"]
    close(bench)


def without_owner(folder):
    """Make a folder as a broker without users leaves it: a durable subscription, and a message in it."""
    bench = stored(folder, users=None)
    subscribe(client(bench, "anybody"), ack="client")
    client(bench, "anybody", "s").put(TOPIC, b"old", persistent="true")
    close(bench)


def test_one_without_an_owner_is_adopted_by_the_first_who_may(tmp_path, caplog):
    caplog.set_level(logging.INFO, "stompcodec.broker")
    without_owner(tmp_path)
    rules = (Rule("ada", "*", "*"), Rule("eve", "*", "/topic/b"))
    bench = stored(tmp_path, rules=rules)
    for headers in ({"destination": TOPIC}, {"destination": "/topic/b"}):
        eve = client(bench, "eve")
        eve.send("SUBSCRIBE", id="1", durable_subscription_name="n", **headers)
        assert eve.closed is (headers["destination"] == TOPIC)
        if not eve.closed:
            eve.send("UNSUBSCRIBE", id="1", durable_subscription_name="n")
        eve.lose()
    eve = client(bench, "eve", "other")
    eve.send("UNSUBSCRIBE", id="1", durable_subscription_name="n")
    assert eve.closed
    assert "belongs to user" not in caplog.text
    ada = client(bench, "ada")
    subscribe(ada, ack="client")
    assert ada.bodies() == [b"old"]
    assert caplog.text.count("'c.n', which had no owner, belongs to user 'ada' now") == 1
    close(bench)
    caplog.clear()
    bench = stored(tmp_path)  # without the rules
    eve = client(bench, "eve")
    subscribe(eve)
    assert eve.take() == []
    ada = client(bench, "ada")
    subscribe(ada)
    assert ada.bodies() == [b"old"]
    assert "belongs to user" not in caplog.text
    close(bench)


def test_a_preset_is_adopted_and_stays_so(tmp_path):
    presets = (Preset(TOPIC, "MULTICAST", ("c.n",)),)
    bench = stored(tmp_path, presets=presets)
    ada = client(bench, "ada")
    ada.put(TOPIC, b"early", persistent="true")
    subscribe(ada, ack="client", receipt="r")
    assert {frame.command for frame in ada.take()} == {"RECEIPT", "MESSAGE"}
    close(bench)
    bench = stored(tmp_path, presets=presets)
    eve = client(bench, "eve")
    subscribe(eve)
    assert eve.take() == []
    ada = client(bench, "ada")
    subscribe(ada)
    assert ada.bodies() == [b"early"]
    close(bench)


def test_an_adoption_that_cannot_be_stored_is_told():
    store = FaultyStore()
    bench = Bench(store, users=USERS, presets=(Preset(TOPIC, "MULTICAST", ("c.n",)),))
    store.faulty = True
    ada = client(bench, "ada")
    subscribe(ada, receipt="r")
    assert ada.error().headers["message"] == "the message could not be stored"
