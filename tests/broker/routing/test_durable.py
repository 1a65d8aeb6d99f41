"""Durable subscriptions: what they are called, what they keep, how they end, and what a failing disk leaves behind."""

import logging

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import client, put_all, refusal

from stompcodec import Limits, Parser
from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.message import Message
from stompcodec.broker.settings import Preset

TOPIC = "/topic/a"
NAME = "durable-subscription-name"
NOT_ALLOWED = "not allowed to subscribe there"


def subscribe(peer, destination=TOPIC, **headers):
    peer.send("SUBSCRIBE", destination=destination, id="1", **{NAME: "n"}, **headers)


def unsubscribe(peer, id="1", name="n", **headers):
    peer.send("UNSUBSCRIBE", id=id, **{NAME: name}, **headers)


def attached(bench, client_id="c", version="1.2", **headers):
    peer = client(bench, client_id, version)
    subscribe(peer, **headers)
    return peer


def names(bench):
    return sorted(bench.broker.virtual_host("/").destinations.durables.by_name)


def leave(peer):
    peer.send("DISCONNECT", receipt="bye")
    peer.lose()


@pytest.mark.req("S11-SUB-04", "ART-DUR-01", "ART-DUR-04", "ART-DUR-05")
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_it_keeps_what_comes_while_its_client_is_away(ack, version):
    bench = Bench()
    sender = bench.peer()
    sender.put(TOPIC, "before")
    peer = attached(bench, version=version, ack=ack)
    sender.put(TOPIC, "1")
    (first,) = peer.take()
    assert (first.body, first.headers["destination"]) == (b"1", TOPIC)
    leave(peer)
    assert names(bench) == ["c.n"]
    put_all(sender, (2, 3), TOPIC)
    bench.wait(100)  # and it does not go for being idle
    peer = attached(bench, version=version, ack=ack)
    frames = peer.take()
    again = [] if ack == "auto" else [b"1"]
    assert [frame.body for frame in frames] == [*again, b"2", b"3"]
    assert [frame.body for frame in frames if frame.get("redelivered")] == again
    for frame in {"auto": [], "client": frames[-1:], "client-individual": frames}[ack]:
        peer.ack(frame)
    assert bench.octets == 0


@pytest.mark.req("ART-DUR-02")
@pytest.mark.parametrize("again", [True, False])
def test_unsubscribe_with_the_name_ends_it_and_without_the_name_leaves_it(again):
    bench = Bench()
    sender, peer = bench.peer(), attached(bench, ack="client-individual")
    peer.send("UNSUBSCRIBE", id="1")
    sender.put(TOPIC, "1", persistent="true")
    assert peer.take() == []
    if again:
        subscribe(peer)
        assert peer.bodies() == [b"1"]
    unsubscribe(peer, receipt="r")
    assert peer.next().command == "RECEIPT"
    assert (names(bench), list(bench.store.load()), list(bench.store.subscriptions())) == ([], [], [])
    sender.put(TOPIC, "2", persistent="true")
    subscribe(peer)
    assert (peer.take(), bench.octets) == ([], 0)
    unsubscribe(peer, "2", "none")
    assert refusal(peer) == "no such subscription"


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        *((name, "client-id is missing") for name in (NAME, "durable-subscriber-name", "activemq.subscriptionName")),
        ("durable", "id is missing"),
    ],
)
def test_what_is_needed_for_a_name(header, missing):
    """Otherwise it could not be found again, and messages would be lost in silence."""
    peer = Bench().peer("1.0")
    peer.send("SUBSCRIBE", destination=TOPIC, receipt="r", **{header: "true"})
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == (missing, "r")


def test_one_consumer_at_a_time():
    bench = Bench(same_client="allow")
    one, two, three = attached(bench), attached(bench), client(bench)
    assert refusal(two) == "the durable subscription is in use"
    unsubscribe(three)
    assert refusal(three) == "the durable subscription is in use"
    bench.peer().put(TOPIC, "x")
    assert one.bodies() == [b"x"]


@pytest.mark.parametrize("policy", ["block", "drop", "its own sender"])
def test_a_full_queue(policy):
    bench = Bench(durable_overflow=policy if policy == "drop" else "block", max_queue_messages=3)
    peer = attached(bench, ack="client")
    sender = peer if policy == "its own sender" else bench.peer()
    if sender is not peer:
        leave(peer)
    for number in range(10):
        if not (sender.closed or sender.session.paused):
            sender.put(TOPIC, str(number), persistent="true")
    if sender is peer:
        assert refusal(sender) == "the queue is full"
        return
    assert sender.session.paused is (policy == "block")
    assert attached(bench).bodies() == ([b"0", b"1", b"2", b"3", b"4"] if policy == "block" else [b"7", b"8", b"9"])
    bench.turn()
    assert not sender.session.paused
    bench.peer().put("/queue/x", "x", persistent="true")
    assert len(list(bench.store.load())) == 1


# ---- in the ways of RabbitMQ, and RECEIVE ----
@pytest.mark.parametrize("header", ["x-queue-name:q", "durable:true", "durable-subscription-name:d"])
def test_receive_makes_no_durable_subscription(header):
    """Its answer would be EMPTY, though a message may wait under the name that the program meant."""
    bench = Bench(**DIALECTS["rabbitmq"])
    peer = client(bench, "me")
    peer.raw("\n".join(["RECEIVE", f"destination:{TOPIC}", "id:1", header, "", "\0"]).encode())
    (error,) = peer.take()
    assert (error.command, error.headers["message"]) == ("ERROR", "no such durable subscription")
    assert (names(bench), list(bench.store.subscriptions())) == ([], [])


def test_a_message_of_a_transaction_goes_before_those_that_came_while_it_was_stored():
    bench = Bench()
    leave(attached(bench))
    (durable,) = bench.broker.virtual_host("/").destinations.durables
    late, early = (Message(b"%d" % seq, seq, TOPIC, b"\n\0") for seq in (8, 7))
    durable.take([late])
    durable.take([early], stored=True)
    assert [message.seq for message in durable.queue.messages] == [7, 8]


def test_one_that_could_not_be_stored_is_not_there():
    bench = Bench(FaultyStore())
    peer = client(bench)
    bench.store.faulty = True
    subscribe(peer, receipt="s")
    assert "stored" in refusal(peer)
    assert names(bench) == []
    bench.store.faulty = False
    bench.peer().put("/queue/x", "1", persistent="true")
    assert list(bench.store.subscriptions()) == []


def test_an_end_that_could_not_be_stored_is_stored_later():
    bench = Bench(FaultyStore())
    peer = attached(bench)
    bench.store.faulty = True
    unsubscribe(peer, receipt="r")
    assert "stored" in refusal(peer)
    assert len(list(bench.store.subscriptions())) == 1
    bench.store.faulty = False
    bench.wait(5)
    assert list(bench.store.subscriptions()) == []


# ---- whose it is, in all dialects ----
USERS = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "eve", "~", "")}
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
IDS = [f"{way[0]}-{way[1]}-{'-'.join(way[2])}" for way in WAYS]
every_way = pytest.mark.parametrize("way", WAYS, ids=IDS)
#: UNSUBSCRIBE ends it. That with x-queue-name alone ends with its last consumer, or stays.
ways_to_end = pytest.mark.parametrize("way", WAYS[:-1], ids=IDS[:-1])


class Place:
    """A broker where ada, or everybody, has a durable subscription with a message in it, and who comes to it."""

    def __init__(self, way, users=USERS):
        dialect, self.version, self.headers, self.name = way
        self.prefix = "/amq/queue/" if dialect == "rabbitmq" else None
        letters = {"max_attempts": 1, "nack": "requeue", "letters": "all", "dead_letter": "/queue/DLQ.{name}"}
        letters["forbidden"] = ("", "")  # ada may name it
        self.bench = Bench(**{**DIALECTS[dialect], **letters}, **({"users": users} if users else {}))
        self.subscribed("ada", ack="client").lose()
        self.put(b"secret")
        (self.title,) = self.kept
        assert self.kept == {self.title: 1}

    def user(self, login):
        peer = self.bench.peer(self.version, connect=False)
        peer.parser = Parser(None, limits=Limits(), commands=("EMPTY",))
        peer.connect(login=login, client_id="c")
        return peer

    def subscribe(self, peer, **headers):
        peer.send("SUBSCRIBE", destination=TOPIC, id="1", **{**self.headers, **headers})

    def subscribed(self, login, **headers):
        peer = self.user(login)
        self.subscribe(peer, **headers)
        return peer

    def unsubscribe(self, peer):
        peer.send("UNSUBSCRIBE", destination=TOPIC, id="1", **self.headers)

    def put(self, body):
        peer = client(self.bench, "", login="ada")
        peer.put(TOPIC, body, a="1", persistent="true", destination_type="MULTICAST")
        assert not peer.closed

    def ask(self, login, command, destination, **headers):
        peer = login if not isinstance(login, str) else self.user(login)
        pairs = {"destination": destination, "id": "9", "subscription-type": "ANYCAST", **headers}
        if peer.version == "1.0":
            del pairs["id"]
        peer.raw("\n".join([command, *(f"{key}:{value}" for key, value in pairs.items()), "", "\0"]).encode())
        return peer

    @property
    def kept(self):
        durables = self.bench.broker.virtual_host("/").destinations.durables
        return {name: durable.queue.count for name, durable in durables.by_name.items()}


@every_way
def test_another_user_gets_one_of_their_own(way):
    """They neither read it nor lock its owner out."""
    place = Place(way)
    eve, ada = place.subscribed("eve"), place.user("ada")
    assert (ada.closed, eve.closed) == (False, False), "the client-id is taken within a user only"
    place.subscribe(ada)
    assert (ada.bodies(), eve.bodies()) == ([b"secret"], [])
    place.put(b"public")
    assert (ada.bodies(), eve.bodies()) == ([b"public"], [b"public"])


@ways_to_end
@pytest.mark.parametrize("users", [USERS, None], ids=["users", "everybody"])
def test_its_owner_can_end_it_and_no_other_user(way, users):
    place, login = Place(way, users), "ada" if users else "eve"
    for subscribes in (False, True) if users else ():
        eve = place.subscribed("eve") if subscribes else place.user("eve")
        place.unsubscribe(eve)
        assert (eve.closed, place.kept) == (not subscribes, {place.title: 1})
    owner = place.subscribed(login)
    assert owner.bodies() == [b"secret"]
    owner.lose()
    place.put(b"more")
    owner = place.user(login)
    place.unsubscribe(owner)
    assert (owner.closed, place.kept, place.bench.octets) == (False, {}, 0)


@every_way
@pytest.mark.parametrize("command", ["SUBSCRIBE", "browser", "RECEIVE", "SEND"])
def test_another_user_cannot_reach_its_queue(way, command):
    """Try the names that RabbitMQ has for it, and its own name in the broker."""
    place = Place(way)
    for name in (place.name, place.title):
        for prefix in ("", "/queue/", place.prefix or ""):
            if command == "SEND":
                eve = place.user("eve")
                eve.put(prefix + name, b"forged", a="1", destination_type="ANYCAST")
            elif command == "browser":
                eve = place.ask("eve", "SUBSCRIBE", prefix + name, browser="true")
            else:
                eve = place.ask("eve", command, prefix + name)
            assert all(b"secret" not in frame.body for frame in eve.take())
            eve.lose()
    assert place.kept == {place.title: 1}
    assert place.subscribed("ada").bodies() == [b"secret"]


@pytest.mark.parametrize("way", WAYS[1:], ids=IDS[1:])  # 1.0 has no NACK
def test_another_user_cannot_read_its_dead_letters(way):
    place = Place(way)
    ada = place.subscribed("ada", ack="client")
    ada.nack(ada.next("MESSAGE"))
    (letters,) = (name for _vhost, name in place.bench.broker.queues if "DLQ" in name)
    for command, headers in (("SUBSCRIBE", {}), ("SUBSCRIBE", {"browser": "true"}), ("RECEIVE", {})):
        assert refusal(place.ask("eve", command, letters, **headers)) == NOT_ALLOWED
    assert place.ask(ada, "SUBSCRIBE", letters).bodies() == [b"secret"]


@ways_to_end
def test_the_rules_count_when_it_is_resumed_and_when_it_is_ended(way):
    """They may have changed since it was made."""
    place = Place(way)
    auth = place.bench.broker.auth
    auth._rules = (Rule("ada", "subscribe", TOPIC, allow=False), Rule())
    ways = [place.subscribe, place.unsubscribe]
    if place.prefix is not None:
        ways.append(lambda peer: peer.subscribe(place.prefix + place.name))
    for act in ways:
        act(ada := place.user("ada"))
        assert refusal(ada) == NOT_ALLOWED
    assert place.kept == {place.title: 1}
    auth._rules = ()
    assert place.subscribed("ada").bodies() == [b"secret"]


@pytest.mark.parametrize("policy", ["refuse", "replace", "allow"])
def test_a_client_id_is_taken_within_one_user(policy):
    bench = Bench(users=USERS, same_client=policy)
    ada, eve = client(bench, login="ada"), client(bench, login="eve")
    second = bench.peer(connect=False)
    second.send("CONNECT", accept_version="1.2", host="/", login="ada", passcode="guest", client_id="c")
    assert (second.closed, ada.closed, eve.closed) == (policy == "refuse", policy == "replace", False)
    assert (policy == "refuse") == any(b"sessions.same_client" in frame.body for frame in second.take())
    for peer in (second, ada, eve):
        peer.lose()
    assert bench.broker.virtual_host("/")._clients == {}


# ---- whose it is, over restarts ----
def started(bench=None, **options):
    """Return a broker that has what another one, which stops, has stored."""
    if bench is not None:
        bench.broker.stop(bench.now)
        bench.turn()
    return Bench(bench and bench.store, **options)


def login(bench, name, **headers):
    peer = client(bench, login=name)
    subscribe(peer, **headers)
    return peer


def test_owners_outlive_the_broker():
    bench = started(users=USERS)
    for name in ("ada", "eve"):
        login(bench, name, ack="client")
    client(bench, "s", login="ada").put(TOPIC, b"both", persistent="true")
    for _ in range(2):
        bench = started(bench, users=USERS)
        assert login(bench, "ada", ack="client").bodies() == [b"both"]
    bench = started(bench, users=USERS)
    unsubscribe(ada := client(bench, login="ada"), receipt="r")
    assert ada.next().command == "RECEIPT"
    bench = started(bench, users=USERS)
    assert names(bench) == ["~eve~c.n"]
    assert login(bench, "eve").bodies() == [b"both"]


def test_one_without_an_owner_is_adopted_by_the_first_who_may(caplog):
    caplog.set_level(logging.INFO, "stompcodec.broker")
    bench = started()
    login(bench, "anybody", ack="client")
    client(bench, "s", login="anybody").put(TOPIC, b"old", persistent="true")
    bench = started(bench, users=USERS, rules=(Rule("ada", "*", "*"), Rule("eve", "*", "/topic/b")))
    for destination in (TOPIC, "/topic/b"):
        eve = login(bench, "eve", destination=destination)
        assert eve.closed is (destination == TOPIC)
        if not eve.closed:
            unsubscribe(eve)
        eve.lose()
    unsubscribe(eve := client(bench, "other", login="eve"))
    assert eve.closed
    assert "belongs to user" not in caplog.text
    assert login(bench, "ada", ack="client").bodies() == [b"old"]
    assert caplog.text.count("'c.n', which had no owner, belongs to user 'ada' now") == 1
    bench = started(bench, users=USERS)  # without the rules
    caplog.clear()
    assert (login(bench, "eve").take(), login(bench, "ada").bodies()) == ([], [b"old"])
    assert "belongs to user" not in caplog.text


def test_an_adoption_that_cannot_be_stored_is_told():
    bench = Bench(FaultyStore(), users=USERS, presets=(Preset(TOPIC, "MULTICAST", ("c.n",)),))
    bench.store.faulty = True
    assert refusal(login(bench, "ada", receipt="r")) == "the message could not be stored"


def test_a_preset_is_adopted_and_stays_so():
    config = {"users": USERS, "presets": (Preset(TOPIC, "MULTICAST", ("c.n",)),)}
    bench = started(**config)
    client(bench, "s", login="ada").put(TOPIC, b"early", persistent="true")
    assert login(bench, "ada", ack="client").bodies() == [b"early"]
    bench = started(bench, **config)
    assert [durable.queue.name for durable in bench.broker.virtual_host("/").destinations.durables] == ["~ada~c.n"]
    assert (login(bench, "eve").take(), login(bench, "ada").bodies()) == ([], [b"early"])
